"""Sites and their server without a network: the same bits as in simulation, what is refused, what is remembered."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import covey
from covey.cli import app
from covey.core.codec import from_bytes, to_bytes
from covey.core.needs import own_model_of
from covey.core.privacy_loss import Loss
from covey.core.round import Task, run_rounds
from covey.data import federate, from_tensors, load
from covey.deploy import fleet as fleet_module
from covey.deploy import site as site_module
from covey.deploy import site_registry as registry_module
from covey.deploy.fleet import SiteFleet
from covey.deploy.run import site_fleet
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.transport import Response
from covey.deploy.wire import model_from_plain, step_from_plain, step_kinds, step_to_plain
from covey.errors import Refused, UserError
from covey.fleet.work import Call
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from covey.runs.config import resolve
from covey.runs.run import Interrupted, resume, run_config
from covey.settings.catalogue import METHODS, STEPS
from covey.testing import Broken, check_toml, same
from covey.training.objective import Classification
from tests.deploy.one_request import SPEC, one_request, with_header
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, simulated, sites

STEP = {"$step": step_to_plain(Train(lr=0.1))}

# ---------------------------------------------------------------------------------------------- the same bits


# Who is waited for depends on who is fast: tests/deploy/test_underway.py.
BY_ARRIVAL = ("fedasync", "fedbuff", "refl")


@pytest.mark.parametrize("name", BY_ARRIVAL)
def test_methods_that_go_by_arrivals_run_over_sites(name: str) -> None:
    done = run_rounds(check_toml(name, {}), deployed(Hand(sites())), rounds=2)
    assert done.round == 2
    assert done.worked


@pytest.fixture
def draws_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites whose noise comes from the run's seed, as in simulation: a real site draws it from a secure source, so
    that two runs of `embedding`, `haccs` or `covey` may find other groups."""
    monkeypatch.setattr(
        site_module, "Call", lambda **given: Call(**{**given, "live": False, "account": None})
    )


# One method of each kind of group, selection, local step, mixing and update; the others by `make slow`.
IN_THE_GATE = (
    *("cafa", "cfic", "covey", "decentralized", "ditto", "embedding", "fedavg", "feddyn", "fedper", "fedrc"),
    *(
        "fine-tuned",
        "haccs",
        "hierarchical",
        "ifca",
        "krum",
        "local",
        "mime-lite",
        "oort",
        "pacfl",
        "scaffold",
    ),
)


@pytest.mark.usefixtures("draws_from_the_seed")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_THE_GATE else pytest.mark.slow)
        for name in METHODS
        if name not in BY_ARRIVAL and own_model_of(METHODS.find(name)) is None  # these sites have an mlp
    ],
)
def test_every_method_gives_the_simulations_bits(name: str) -> None:
    settings = {"per_round": CLIENTS} if name in ("haccs", "tifl", "oort") else {}
    method = check_toml(name, settings)
    straight = run_rounds(method, simulated(), rounds=2)
    same(
        straight,
        run_rounds(method, deployed(Hand(sites())), rounds=2),
        f"{name}: sites and simulation differ",
    )


class Backwards(Hand):
    """Gives one answer per look, the last one that was asked for first."""

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        return super().collect(list(numbers)[-1:], most=most, until=until)


def test_answers_that_come_in_another_order_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer belongs to the question whose number it carries, whenever it comes."""
    for module in (fleet_module, registry_module):
        monkeypatch.setattr(module, "POLL", 0.0)
    method = check_toml("fedavg", {"per_round": CLIENTS})
    straight, deployment = (
        run_rounds(method, simulated(), rounds=2),
        deployed(Backwards(sites()), deadline=600.0),
    )
    same(straight, run_rounds(method, deployment, rounds=2), "sites and simulation differ")


def test_what_is_measured_is_the_same() -> None:
    found = []
    for fleet in (simulated(), deployed(Hand(sites()))):
        ends: list[Any] = []
        run_rounds(check_toml("fedavg", {}), fleet, rounds=1, measure=Measuring(), watchers=[ends.append])
        found.append({(m.split, m.metric, m.client): m.value for m in ends[0].measurements})
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        assert found[1][key] == pytest.approx(value, rel=1e-6)


# ---------------------------------------------------------------------------------------------- steps as values


def test_every_step_of_covey_goes_through_plain_values_and_back() -> None:
    for maker in STEPS.values():
        try:
            step = maker()
        except (TypeError, UserError):
            continue  # it wraps another step, or has settings without a default
        assert step_from_plain(from_bytes(to_bytes(step_to_plain(step)))) == step
    assert "train.sgd" in step_kinds()


def test_a_step_keeps_its_settings_and_those_within() -> None:
    step = LabelSummary(privacy=Privacy(epsilon=0.5, budget=2.0), labels=10)
    assert step_from_plain(from_bytes(to_bytes(step_to_plain(step)))) == step


def test_a_step_of_the_users_own_cannot_be_sent() -> None:
    with pytest.raises(UserError, match="Broken is not part of covey"):
        step_to_plain(Broken(step=Train(lr=0.1)))


# ---------------------------------------------------------------------------------------------- what a site refuses


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"covey": "9.9"}, f"the server has covey 9.9, this site has {covey.__version__}; install the same"),
        ({"step": {"step": "Steal", "settings": {}}}, "the step 'Steal' is not known to this site's covey"),
        (
            {"step": {"step": "Train", "settings": {"hack": 1}}},
            "Train has no setting 'hack' in this site's covey",
        ),
        (
            {"step": {"step": "Train", "settings": {"lr": "fast"}}},
            "Train.lr is 'fast', which this site's covey does not take",
        ),
        (
            {"model": {**SPEC.plain(), "name": "gpt"}},
            "the model 'gpt' is not known to this site's covey",
        ),
        (
            {"model": {**SPEC.plain(), "shape": (1, 9, 9)}},
            "the model takes samples of shape (1, 9, 9), this site's have (1, 8, 8)",
        ),
        (
            {"run": "../elsewhere"},
            "the run is called '../elsewhere'; at most 80 letters, digits, '.', '_' and '-' are allowed",
        ),
        (
            {"step": {"step": "Poisoned", "settings": {"local": STEP, "clients": [], "attack": "flip"}}},
            "train.poisoned is an attack, which is for simulations",
        ),
        (
            {"step": {"step": "DynTrain", "settings": {"train": {"$step": {"step": "CountLabels"}}}}},
            "DynTrain.train is a CountLabels, which this site's covey does not take",
        ),
    ],
)
def test_a_site_refuses_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    answer = from_bytes(sites()[100].answer(one_request(**changes)))
    assert answer == {"refused": sentence}


def test_a_block_that_is_no_request_is_refused() -> None:
    answer = from_bytes(sites()[100].answer(to_bytes({"covey": covey.__version__})))
    assert "cannot be answered" in answer["refused"]


def test_a_pickle_is_never_read() -> None:
    import pickle

    answer = from_bytes(sites()[100].answer(pickle.dumps({"covey": covey.__version__, "hello": True})))
    assert "cannot be answered" in answer["refused"]


@pytest.mark.parametrize(
    "block",
    [
        with_header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 999]}}),
        with_header({"__metadata__": {"plain": 3000 * "[" + 3000 * "]"}}),
        one_request(model={**SPEC.plain(), "settings": {"hidden": (2**60,)}}),
        one_request(round="first"),
        one_request(task={"hack": 1}),
        to_bytes(7),
    ],
)
def test_no_request_can_stop_a_site(block: bytes) -> None:
    said: list[str] = []
    answer = from_bytes(sites(say=said.append)[100].answer(block))
    assert answer["refused"]
    assert said == [f"refused: {answer['refused']}"]


def test_a_full_disk_at_the_site_is_not_taken_for_an_absent_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    site = sites(tmp_path)[100]
    monkeypatch.setattr("covey.deploy.site_memory.write_atomically", full)
    assert from_bytes(site.answer(one_request())) == {
        "refused": "this site's --state folder cannot be used: No space left on device"
    }


# ---------------------------------------------------------------------------------------------- what is remembered


def test_a_site_keeps_its_number_and_state_over_a_restart(tmp_path: Path) -> None:
    method = check_toml("feddyn", {"per_round": CLIENTS})
    straight = run_rounds(method, simulated(), rounds=3)
    transport = Hand(sites(tmp_path))
    fleet = deployed(transport)

    def restart(end: Any) -> None:
        moved = 50 * end.state.round  # new nodes with the old names and folders
        transport.sites = {node + moved: site for node, site in sites(tmp_path).items()}

    same(straight, run_rounds(method, fleet, rounds=3, watchers=[restart]), "restarted sites differ")
    assert sorted(fleet.registry.sites) == list(range(CLIENTS))


def test_a_server_that_crashed_in_a_round_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    method = check_toml("feddyn", {"per_round": CLIENTS})
    straight = run_rounds(method, simulated(), rounds=3)
    transport = Hand(sites(tmp_path))
    first = deployed(transport)
    state = run_rounds(method, first, rounds=1)
    saved = first.save()
    run_rounds(method, first, rounds=2, state=state)  # all of round 2 is lost
    second = deployed(transport)
    second.load(saved)
    assert second.run == first.run
    assert second.session != first.session
    same(straight, run_rounds(method, second, rounds=3, state=state), "a resumed deployment differs")


def test_a_site_forgets_old_runs_and_models_but_not_what_it_spent(tmp_path: Path) -> None:
    site = sites(tmp_path)[100]
    site.account.spend(0.7)
    for number in range(20):
        model = {**SPEC.plain(), "settings": {"hidden": (number % 6 + 1,)}}
        site.answer(one_request(run=f"run-{number:02}.x", model=model))
        newest = tmp_path / "0" / f"run-run-{number:02}.x.safetensors"
        os.utime(newest, ns=(number, number))  # the clock of a file system may be coarse
    site.answer(one_request(run="last"))
    kept = sorted(path.name for path in (tmp_path / "0").glob("run-*"))
    assert kept == ["run-last.safetensors", *(f"run-run-{n:02}.x.safetensors" for n in range(5, 20))]
    assert len(site.benches) == 4
    assert (tmp_path / "0" / "epsilon").read_text() == "0.7"


def test_a_message_that_cannot_be_sent_is_a_lost_one() -> None:
    class Full(Hand):
        def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
            some = {n: b for n, b in blocks.items() if n != 101 or kind == "query.hello"}
            return super().send(kind, some, seconds)

    fleet = deployed(Full(sites()))
    fleet.begin(1)
    task = Task(models=torch.zeros(1, 4810), slots=(0,))
    assert [r.id for r in fleet.ask(Train(lr=0.1), dict.fromkeys(range(4), task))] == [0, 2, 3]
    assert fleet.ledger.last_problem().endswith("the message could not be sent")


def test_a_resumed_server_has_the_same_data_and_trainer() -> None:
    saved = deployed(Hand({})).save()
    other = federate(load("digits"), partition="iid", clients=CLIENTS, seed=4)
    fewer = replace(other, test=other.test.select(slice(0, 10)))
    with pytest.raises(UserError, match="the run began with other test data at the server"):
        SiteFleet(Hand({}), SPEC, server_data=fewer, names=ClientNumbers({}), seed=5, deadline=0.5).load(
            saved
        )
    with pytest.raises(UserError, match="began with the lanes trainer, and this server would use torch"):
        deployed(Hand({})).load({**saved, "trainer": "lanes"})


def test_simulations_and_deployments_are_resumed_by_their_own_command() -> None:
    with pytest.raises(UserError, match="resume with: covey serve --resume"):
        simulated().load(deployed(Hand({})).save())
    with pytest.raises(UserError, match="resume with: covey run --resume"):
        deployed(Hand({})).load(simulated().save())


def test_an_interrupted_deployment_names_its_own_command(tmp_path: Path) -> None:
    config = resolve({"data": {"name": "digits", "clients": 4}, "rounds": 3, "checkpoint_seconds": 0.0})

    def stop(end: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="after round 1; resume with: covey serve --resume"):
        run_config(config, tmp_path / "run", watchers=[stop], report=False, fleet=deployed(Hand(sites())))


def test_the_configuration_gives_the_fleet() -> None:
    config = resolve({"data": {"name": "digits", "clients": 4}, "engine": {"lanes": False}})
    fleet = site_fleet(config, Hand({}), keys={}, least=4)
    assert fleet.spec == SPEC
    assert isinstance(fleet.objective, Classification)
    assert len(fleet.server_data.test) == len(load("digits").test)


def test_all_of_the_servers_own_data_is_its_test_set() -> None:
    config = resolve({"data": {"name": "digits", "clients": 4}, "engine": {"lanes": False}})
    digits = load("digits")
    own = from_tensors(digits.x[:50], digits.y[:50], classes=digits.classes)
    assert len(site_fleet(config, Hand({}), keys={}, least=4, own=own).server_data.test) == 50


def test_the_summary_names_the_sites() -> None:
    fleet = deployed(Hand(sites()))
    fleet.begin(1)
    assert fleet.info["sites"] == "site-0 = 0, site-1 = 1, site-2 = 2, site-3 = 3"


def test_a_refusal_reaches_the_server() -> None:
    transport = Hand(sites(budget=1.0))
    fleet = deployed(transport)
    fleet.begin(1)
    assert fleet.ask(LabelSummary(), {0: Task()}) == []
    assert fleet.ledger.refused == 1


def test_an_unreadable_model_is_a_refusal() -> None:
    with pytest.raises(Refused, match="objective 'fame' is not known"):
        model_from_plain({**SPEC.plain(), "objective": "fame"})


class Killed(BaseException):
    """What no `except Exception` sees, as a process does that is killed."""


@dataclass
class Mortal(Hand):
    """After so many messages of training the server's process dies, when the sites have heard it."""

    until: int = -1

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        numbers = super().send(kind, blocks, seconds)
        if len([kind for kind in self.kinds if kind.startswith("train.")]) == self.until:
            raise Killed
        return numbers


def test_rounds_that_a_killed_server_began_are_in_the_ledger(tmp_path: Path) -> None:
    """Killed in round 1, which begins anew, and then in round 2: each was begun twice, and all four are booked."""
    pytest.importorskip("opendp")
    config = resolve(
        {
            "data": {"name": "digits", "clients": CLIENTS},
            "engine": {"lanes": False},
            "rounds": 2,
            "checkpoint_seconds": 0.0,
            "method": {"name": "fedavg", "per_round": CLIENTS},
            "private": {"level": "local", "noise": 10.0, "clip": 0.5},
            "measure": {"every": 2, "local_test": False},
        }
    )
    there = sites(tmp_path / "sites")

    def served(until: int) -> SiteFleet:
        return site_fleet(config, Mortal(there, until=until), keys={}, least=CLIENTS)

    with pytest.raises(Killed):
        run_config(config, tmp_path / "run", fleet=served(CLIENTS), report=False)
    with pytest.raises(Killed):
        resume(tmp_path / "run", fleet=served(2 * CLIENTS), report=False)
    fleet = served(-1)
    resume(tmp_path / "run", fleet=fleet, report=False)
    lost = Loss(what="updates", mechanism="local", noise=10.0)
    assert fleet.ledger.told == {client: {lost: 4} for client in range(CLIENTS)}
    assert there[100].account.told == {
        lost: 3
    }  # what it was asked again in round 2 it gave again, at no loss


# ---------------------------------------------------------------------------------------------- the run's folder


def test_the_report_of_a_deployed_run_is_that_of_a_simulated_one(tmp_path: Path) -> None:
    tables = {"data": {"name": "digits", "clients": 4}, "engine": {"lanes": False}, "rounds": 2}
    config = resolve({**tables, "method": {"name": "cafa", "per_round": 4}})
    fleet = site_fleet(config, Hand(sites()), keys={}, least=4)
    run_config(config, tmp_path / "run", fleet=fleet, report=False)
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "run" / "report.html").read_text()
    assert "cafa" in page
    assert "evaluate.cross" in page
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"]
