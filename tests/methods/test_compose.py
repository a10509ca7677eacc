"""Methods composed of named parts in a file: any composition that is accepted runs, and a refusal says why."""

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.core.round import Method, run_rounds, served
from covey.data import Federation, federate, load
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.compose import compose
from covey.parts.steps import Train
from covey.runs.config import resolve
from covey.settings.catalogue import PARTS
from covey.settings.parts import QUESTIONS, part_settings
from covey.settings.toml import with_setting
from covey.testing import check_method
from covey.training.models import build

CLIENTS = 6
TRAIN = {"lr": 0.1, "batch": 8, "batches": 2, "holdout": 0.2}
# What keeps the small runs small, or makes something happen within three rounds.
QUICK: dict[str, dict[str, Any]] = {
    "embedding": {"pretrain_rounds": 1, "pretrain_per_round": 2, "pretrain_epochs": 1},
    "label-clusters": {"clusters": 2, "min_samples": 2},
    "random-starts": {"k": 2, "redraws": 1, "asked": 3},
    "power-of-choice": {"candidates": 4},
    "split": {"still": 100.0, "apart": 1e-9, "patience": 1},
    "tifl": {"tiers": 2, "interval": 1},
    "krum": {"hostile": 0},
}
DEFAULTS = {"bank": "one", "select": "uniform", "send": "auto", "local": "train", "mix": "auto"}


@functools.cache
def tiny() -> Federation:
    digits = load("digits")
    few = replace(digits, train=digits.train[:150], test=digits.test[:60])
    return federate(few, partition="dir-class", clients=CLIENTS, seed=3, alpha=1.0, minimum=8)


def tiny_fleet() -> LocalFleet:
    """Six clients, the last of which comes in the second round."""
    model = build("softmax", input_shape=(1, 8, 8), outputs=10, seed=1)
    devices = Devices(joins=({"clients": CLIENTS - 1, "round": 2},))
    return LocalFleet(tiny(), model, devices=devices, seed=5)


def composed(**tables: Any) -> Method:
    """The method of a configuration with these parts."""
    return resolve(
        {"method": {"name": "compose", **tables}, "train": dict(TRAIN), "data": {"clients": CLIENTS}}
    ).method


@st.composite
def tables(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """A part of that kind, with its quick settings, and sometimes another choice where there is one."""
    name = draw(st.sampled_from(sorted(PARTS[kind].builtin)))
    table: dict[str, Any] = {"name": name, **QUICK.get(name, {})}
    known = part_settings(kind, name)
    if "per_round" in known:
        table["per_round"] = draw(st.integers(1, 4))
    for choice, options in {
        "weighting": ("samples", "equal", "batches"),
        "n_shared": (0, 1),
        "losses": ("reported", "asked", "published"),
        "per": ("model", "group"),
        "among": ("auto", "groups", "clients"),
        "backbone": ("full", "ring"),
        "by": ("size", "similarity"),
    }.items():
        if choice in known and draw(st.booleans()):
            table[choice] = draw(st.sampled_from(options))
    return table if name != "label-clusters" else {k: v for k, v in table.items() if k != "by"}


@st.composite
def compositions(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {kind: draw(tables(kind)) for kind in ("bank", "select", "local", "mix")}
    for kind in ("group", "update", "send"):
        if draw(st.booleans()):
            found[kind] = draw(tables(kind))
    if draw(st.integers(0, 3)) == 0:
        found["combine"] = draw(tables("combine"))
        del found["mix"]
    if draw(st.integers(0, 3)) == 0:
        found["serve"] = draw(tables("send"))
    found["after"] = draw(st.lists(tables("after"), max_size=2, unique_by=lambda table: table["name"]))
    return found


def mended(parts: dict[str, Any]) -> Method:
    """The method, after every part that is refused was replaced by the default; each refusal names its part."""
    parts = dict(parts)
    for _ in range(20):
        try:
            return composed(**parts)
        except UserError as refusal:
            sentence = str(refusal)
        kind, name, *_ = sentence.split()
        assert kind in (*QUESTIONS, "serve"), f"a refusal must begin with the part: {sentence}"
        assert "\n" not in sentence
        if kind == "after":
            parts["after"] = [part for part in parts["after"] if part["name"] != name]
        elif kind in DEFAULTS and parts.get(kind, DEFAULTS[kind]) != DEFAULTS[kind]:
            parts[kind] = DEFAULTS[kind]
        else:
            assert kind in parts, f"the default is refused: {sentence}"
            del parts[kind]
    raise AssertionError(f"never accepted: {parts}")


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(compositions())
def test_any_composition_that_is_accepted_runs(parts: dict[str, Any]) -> None:
    method = mended(parts)
    fleet = tiny_fleet()
    try:
        state = run_rounds(method, fleet, rounds=3)
        assert torch.isfinite(state.models).all()
        assert state.round == 3
        assert served(method, state, fleet, list(state.seen))
    finally:
        fleet.close()


def test_without_settings_it_is_fedavg() -> None:
    train = Train(lr=0.1)
    states = [run_rounds(method, tiny_fleet(), rounds=2) for method in (compose(train), fedavg(train))]
    assert torch.equal(states[0].models, states[1].models)


ISSUE = {
    "group": {"name": "embedding", "flip": 0.1, **QUICK["embedding"]},
    "bank": "per-group",
    "select": {"name": "haccs", "per_round": 4, "rho": 0.5},
    "mix": {"name": "group-average"},
    "update": {"name": "cluster-correction", "alpha": 0.8},
}
SERVERLESS = {
    "group": {"name": "label-clusters", "clusters": 2},
    "bank": "per-client",
    "select": {"name": "fair", "per_round": 4},
    "mix": {"name": "hierarchical", "backbone": "ring"},
    "update": {"name": "cluster-correction", "per": "group"},
    "after": ["spread"],
}


@pytest.mark.parametrize("parts", [ISSUE, SERVERLESS], ids=["groups", "without a server"])
def test_composed_methods_keep_the_contract(parts) -> None:
    check_method("compose", parts)


def test_what_has_to_be_remembered_is_added() -> None:
    assert [part.__name__ for part in composed(**ISSUE).after] == ["remember_losses"]
    oort = composed(select="oort", local="utility")
    assert [part.__name__ for part in oort.after] == ["remember_utilities"]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"select": "haccs"}, "select haccs needs groups: add a group part"),
        (
            {"select": "oort"},
            r'select oort \(after utilities\) needs the utility .* in every reply: set local = "utility"',
        ),
        ({"bank": "per-group"}, "bank per-group needs groups: add a group part"),
        ({"mix": "hierarchical"}, 'mix hierarchical needs a model per client: set bank = "per-client"'),
        (
            {"select": "representatives"},
            "select representatives needs representatives of groups: set mix = .*",
        ),
        (
            {"group": "label-feature", "bank": "random-starts", "after": ["choices"]},
            ".* both make groups: leave .*",
        ),
        (
            {"select": {"name": "uniform", "per_rond": 3}},
            r"method.select.per_rond is not known; did you mean .*",
        ),
        ({"select": {"name": "unifrom"}}, "method.select = 'unifrom' is not known; did you mean uniform.*"),
        (
            {"select": {"per_round": 3}},
            "method.select is .*; allowed: the name of a select part, or a table with its name",
        ),
        (
            {"select": {"name": "uniform", "per_round": 7}},
            "method.select.per_round is 7, but data.clients is 6.*",
        ),
        ({"after": ["loses"]}, r"method.after\[0\] = 'loses' is not known; did you mean losses.*"),
        ({"select": {"name": "haccs", "rho": "half"}}, "method.select.rho is 'half'; allowed: .*"),
    ],
)
def test_a_mistake_is_one_sentence(parts, sentence) -> None:
    with pytest.raises(UserError, match=f"^{sentence}$"):
        composed(**parts)


def test_a_setting_of_a_part_can_be_given_on_the_command_line() -> None:
    tables: dict[str, Any] = {"method": {"name": "compose", "select": "haccs", "group": "label-feature"}}
    with_setting(tables, "method.select.rho=0.3")
    assert tables["method"]["select"] == {"name": "haccs", "rho": 0.3}
    assert resolve(tables)["method"]["select"]["rho"] == 0.3


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_has_one_line_of_help_and_settings_with_defaults(kind) -> None:
    from covey.cli.lists import first_sentence

    for name, part in PARTS[kind].items():
        assert 10 < len(first_sentence(part)) < 120, f"{kind} {name}"
        part_settings(kind, name)
