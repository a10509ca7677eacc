"""Inputs at real sites: standardised by what the sites tell, with the bits of a simulation that sees everything."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.data import from_tensors, load
from covey.data.types import Federation, Samples, Scale
from covey.deploy.fleet import SiteFleet
from covey.deploy.run import site_fleet
from covey.deploy.site import Site
from covey.deploy.site_registry import ClientNumbers
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.scale import TellScale, to_scale, told_scale
from covey.runs.config import resolve
from covey.runs.models import export, load_models
from covey.runs.run import run_config
from tests.deploy.one_request import SPEC
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, Patient, shares, simulated

RAW = replace(DATA.dataset, scale=None)  # what a site has that never heard of a scale


def raw_sites(folder: Path | None = None, **settings) -> dict[int, Site]:
    def part(samples: Samples) -> Samples:
        return replace(samples, dataset=RAW)

    return {
        100 + i: Site(
            (part(share.train), part(share.test)),
            name=f"site-{i}",
            folder=folder / str(i) if folder else None,
            **{"bounds": Patient(), **settings},
        )
        for i, share in enumerate(shares())
    }


def raw_fleet(transport: Hand, scaling: TellScale | None, **settings) -> SiteFleet:
    test = Samples(RAW, np.asarray(DATA.dataset.test))
    usual = {"names": ClientNumbers({}), "seed": 5, "deadline": 0.5, "least": CLIENTS, "scaling": scaling}
    return SiteFleet(transport, SPEC, server_data=Federation(RAW, (), test), **{**usual, **settings})


def told(fleet: SiteFleet) -> Scale:
    fleet.begin(1)
    assert fleet.spec.scale is not None
    return fleet.spec.scale


def test_exact_sums_give_the_scale_of_all_training_data() -> None:
    scale = told(raw_fleet(Hand(raw_sites()), TellScale()))
    x = torch.cat([replace(share.train, dataset=RAW).tensors()[0] for share in shares()]).double()
    assert scale.mean == pytest.approx([float(x.mean())], rel=1e-6)
    assert scale.std == pytest.approx([float(x.std(unbiased=False))], rel=1e-6)


def test_a_run_has_the_bits_of_a_simulation_that_standardises_everything() -> None:
    fleet = raw_fleet(Hand(raw_sites()), TellScale())
    scale = told(fleet)
    fleet = raw_fleet(Hand(raw_sites()), TellScale())
    whole = simulated()
    fleet.model = whole.model
    dataset = replace(DATA.dataset, scale=scale)
    whole.data = Federation(
        dataset,
        tuple(
            replace(s, train=replace(s.train, dataset=dataset), test=replace(s.test, dataset=dataset))
            for s in shares()
        ),
        replace(DATA.test, dataset=dataset),
    )
    method = fedavg(Train(lr=0.1), per_round=3)
    real = run_rounds(method, fleet, rounds=2)
    from covey.fleet.engine import Engine
    from covey.fleet.local import LocalFleet

    same = LocalFleet(whole.data, whole.model, seed=5, engine=Engine(mode="serial", lanes=False))
    assert torch.equal(run_rounds(method, same, rounds=2).models, real.models)


def test_noise_is_counted_at_the_site_and_the_scale_is_near() -> None:
    exact = told(raw_fleet(Hand(raw_sites()), TellScale()))
    hand = Hand(raw_sites(budget=5.0))
    noisy = told(raw_fleet(hand, TellScale(privacy=Privacy(epsilon=4.0))))
    assert noisy.mean != exact.mean
    assert noisy.mean == pytest.approx(exact.mean, abs=0.05)
    assert [site.account.epsilon for site in hand.sites.values()] == [4.0] * CLIENTS


def test_a_site_with_a_budget_tells_no_exact_sums_and_inputs_stay_as_they_are() -> None:
    said: list[str] = []
    fleet = raw_fleet(Hand(raw_sites(budget=1.0)), TellScale(), say=said.append)
    fleet.begin(1)
    assert fleet.spec.scale is None
    assert any("no site told" in line for line in said)


def test_it_is_asked_once_and_a_resumed_server_goes_on_with_the_same() -> None:
    hand = Hand(raw_sites())
    fleet = raw_fleet(hand, TellScale())
    scale = told(fleet)
    fleet.begin(2)
    assert hand.kinds.count("query.scale") == CLIENTS
    again = raw_fleet(hand, TellScale())
    again.load(fleet.save())
    again.begin(3)
    assert again.spec.scale == scale
    assert hand.kinds.count("query.scale") == CLIENTS


def test_who_has_a_scale_already_is_asked_nothing() -> None:
    config = resolve({"data": {"name": "digits", "clients": 4}, "engine": {"lanes": False}})
    assert site_fleet(config, Hand({}), keys={}, least=4, scaling=TellScale()).scaling is None
    digits = load("digits")
    own = from_tensors(digits.x[:50], digits.y[:50], classes=digits.classes)
    assert site_fleet(config, Hand({}), keys={}, least=4, own=own, scaling=TellScale()).scaling is not None


def test_noise_that_would_not_be_added_is_refused() -> None:
    noisy = TellScale(privacy=Privacy(epsilon=1.0), low=0.0, high=1.0)
    with pytest.raises(UserError, match=r"--scale-epsilon is 1, but .* digits has a scale of its own"):
        site_fleet(resolve({"data": {"clients": 4}}), Hand({}), keys={}, least=4, scaling=noisy)
    tables = resolve(
        {"data": {"clients": 4}, "sites": {"schema": "sites"}, "measure": {"global_test": False}}
    )
    with pytest.raises(UserError, match="--scale-range is one range for all inputs; the columns of a table"):
        site_fleet(tables, Hand({}), keys={}, least=4, scaling=noisy)


def test_numbers_by_hand() -> None:
    # one feature: 1, 3 at one site and 8 at another: mean 4, mean square (1 + 9 + 64) / 3, variance 26 / 3
    from covey.core.messages import Reply

    replies = [Reply(id=i, stats={"sums": np.array(sums)}) for i, sums in enumerate([(2, 4, 10), (1, 8, 64)])]
    scale = told_scale(TellScale(), replies, "torch.float32")
    assert scale == Scale((4.0,), (pytest.approx((26 / 3) ** 0.5),))
    assert told_scale(TellScale(), [], "torch.float32") is None


def test_features_need_a_range_under_noise() -> None:
    with pytest.raises(UserError, match="low and high"):
        TellScale(privacy=Privacy(epsilon=1.0)).range_of("torch.float32")
    with pytest.raises(UserError, match="go together"):
        TellScale(low=0.0)
    assert TellScale(privacy=Privacy(epsilon=1.0), low=-2.0, high=2.0).range_of("torch.float32") == (
        -2.0,
        2.0,
    )


@pytest.mark.parametrize("plain", [[[0.0], [0.0]], [[0.0, 1.0], [1.0, 1.0]], [[float("nan")], [1.0]], "x"])
def test_a_scale_that_is_none_is_refused(plain) -> None:
    with pytest.raises((UserError, ValueError)):
        to_scale(plain, 1)


def test_a_site_refuses_a_scale_of_another_size_in_one_sentence() -> None:
    from covey.core.codec import named_from_bytes
    from tests.deploy.one_request import one_request

    site = raw_sites()[100]
    answer = named_from_bytes(
        site.answer(one_request(model={**SPEC.plain(), "scale": [[0.0, 1.0], [1.0, 1.0]]}))
    )
    assert "comes with settings that this site's covey does not know" in answer["refused"]


def test_models_of_sites_are_used_under_the_scale_that_these_told(tmp_path: Path) -> None:
    """And a site's own model lies at the site alone: the server's folder says so."""
    tables = {"rounds": 2, "train": {"lr": 0.1}, "data": {"clients": CLIENTS}, "seed": 5}
    x, y = (DATA.dataset.x[DATA.dataset.test], DATA.dataset.labels()[DATA.dataset.test].astype(int))
    for name in ("fedavg", "fedper"):
        config = resolve({**tables, "method": {"name": name, "per_round": CLIENTS}})
        fleet = raw_fleet(Hand(raw_sites()), TellScale())
        run = run_config(config, tmp_path / name, report=False, fleet=fleet)
        models = load_models(tmp_path / name)
        assert models.facts.inputs.scale == tuple(fleet.spec.scale or ())
        right = (models.predict(x) == np.array(DATA.dataset.classes)[y]).mean()
        assert right == pytest.approx(run.summary.last["global-test/accuracy"])
        if name == "fedavg":
            assert torch.equal(models.served("site-1").row, run.state.models[0])
            continue
        with pytest.raises(UserError, match="the model of site-1 lies at that site and nowhere else"):
            models.of("site-1")
        assert [file.name for file in export(tmp_path / name, out=tmp_path)] == ["unseen.safetensors"]
