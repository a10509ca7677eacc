"""Tables at real sites: what a method asks of rows that are no pictures."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from covey.config import resolve
from covey.core import run
from covey.deploy.fleet import SiteFleet
from covey.deploy.run import site_fleet
from covey.deploy.site import Site
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.wire import ModelSpec
from covey.errors import UserError
from covey.methods.embedding import embedding
from covey.steps import Train
from tests.deploy.sites_by_hand import Hand, Patient
from tests.methods.test_embedding import of_tables


def test_embeddings_of_tables_find_the_same_kinds_of_sites() -> None:
    data = of_tables()
    hand = Hand(
        {
            100 + i: Site((share.train, share.test), name=f"site-{i}", bounds=Patient())
            for i, share in enumerate(data.shares)
        }
    )
    spec = ModelSpec(name="mlp", settings={"hidden": [4]}, shape=(12,), outputs=2, objective="classification")
    fleet = SiteFleet(hand, spec, server_data=data, names=ClientNumbers({}), seed=1, deadline=0.5, least=8)
    state = run(embedding(Train(lr=0.1), per_round=8, flip=0.01), fleet, rounds=1)
    assert adjusted_rand_score(np.arange(8) % 2, [state.groups[i] for i in range(8)]) == 1.0
    assert torch.isfinite(state.models).all()


def test_what_no_site_can_do_is_refused_when_the_file_is_read() -> None:
    tables = {"method": {"name": "ladd"}, "data": {"clients": 8}}
    with pytest.raises(UserError, match=r"method ladd cannot be used with .* 1 dimensions, not 3"):
        site_fleet(resolve(tables), Hand({}), keys={}, least=8, own=of_tables().dataset)
