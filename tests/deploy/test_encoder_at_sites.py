"""A frozen encoder at real sites: its numbers are sent once, its network is the site's own, features stay there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.core.round import run_rounds
from covey.data.types import Federation
from covey.deploy.fleet import SiteFleet
from covey.deploy.frozen_parts import FrozenStore
from covey.deploy.run import told_of_encoder
from covey.deploy.site_bounds import Bounds
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.wire import ModelSpec
from covey.errors import Refused, RunError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.training.pretrained import encoder_of
from covey.training.pretrained.features import encoded
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, sites

transformers = pytest.importorskip("transformers")
METHOD = fedavg(Train(lr=0.1), per_round=CLIENTS)


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
    )
    torch.manual_seed(3)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    return {"name": "huggingface", "path": str(tmp_path / "vit"), "side": 8}


def fleet_of(setting: dict[str, Any], transport: Hand, said: list[str]) -> tuple[SiteFleet, Federation]:
    data = encoded(DATA, setting)
    spec = ModelSpec(
        name="softmax",
        settings={},
        shape=(16,),
        outputs=10,
        objective="classification",
        encoder=told_of_encoder(data.dataset),
    )
    server = Federation(data.dataset, (), data.test)
    usual: dict[str, Any] = {"names": ClientNumbers({}), "seed": 5, "deadline": 60.0, "least": CLIENTS}
    return SiteFleet(transport, spec, server_data=server, say=said.append, **usual), data


def test_it_is_sent_once_and_sites_train_on_features(setting: dict[str, Any], tmp_path: Path) -> None:
    said: list[str] = []
    there, data = fleet_of(setting, Hand(sites(tmp_path)), said)
    state = run_rounds(METHOD, there, rounds=2)
    local = LocalFleet(data, there.model, seed=5, engine=Engine(mode="serial", lanes=False))
    assert torch.equal(state.models, run_rounds(METHOD, local, rounds=2).models)
    file = len(encoder_of(setting).frozen.file())
    sent = there.ledger.total["send.frozen"].bytes_down
    assert CLIENTS * file < sent < CLIENTS * (file + 8000)
    assert (
        sum(f"encoder ({encoder_of(setting).frozen.digest[:12]}) was sent in {file:,}" in s for s in said)
        == CLIENTS
    )
    again, _ = fleet_of(setting, Hand(sites(tmp_path)), said)
    run_rounds(METHOD, again, rounds=1)
    assert again.ledger.total["send.frozen"].bytes_down < CLIENTS * 8000  # the offer alone
    assert sum("was there already" in s for s in said) == CLIENTS


def test_a_site_without_the_network_says_so(setting: dict[str, Any], tmp_path: Path) -> None:
    said: list[str] = []
    there, _ = fleet_of(setting, Hand(sites(tmp_path)), said)
    told = {**there.spec.encoder, "setting": {"name": "nobody-has-it"}}  # type: ignore[dict-item]
    there.frozen_senders[-1].offer = {"encoder": told}
    with pytest.raises(RunError):
        run_rounds(METHOD, there, rounds=1)
    assert any("lacks" in s and "nobody-has-it" in s for s in said)


def test_another_treatment_of_pictures_is_refused(setting: dict[str, Any], tmp_path: Path) -> None:
    store = FrozenStore(tmp_path / "site", Bounds())
    encoder = encoder_of(setting)
    store.keep(encoder.frozen.digest, encoder.frozen.file())
    told = told_of_encoder(encoded(DATA, setting).dataset)
    assert told is not None
    assert store.encoder(told).digest == encoder.digest
    other = {**told, "setting": {**told["setting"], "side": 16}}
    with pytest.raises(Refused, match="another one than the run's"):
        store.encoder(other)


def test_no_path_of_the_server_is_told(setting: dict[str, Any]) -> None:
    told = told_of_encoder(encoded(replace(DATA), setting).dataset)
    assert setting["path"] not in repr(told)
