"""Every method under [private], at each level: what leaves a client is noised or withheld, or the method refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from covey.core.round import Method, Reply, Step, Task, run_rounds
from covey.errors import UserError
from covey.fleet.local import LocalFleet
from covey.parts.steps.private import Noised, Quiet
from covey.privacy import example
from covey.privacy.candidates import AddSketch
from covey.privacy.example import ExampleTrain
from covey.privacy.secure_steps import SecureUpdate
from covey.runs.config import resolve
from covey.settings.catalogue import METHODS
from covey.testing import CLIENTS, small_fleet
from tests.deploy.test_every_step_under_a_budget import NOISED

LEVELS: dict[str, dict[str, Any]] = {
    "client": {"noise": 2.0, "clip": 0.5},
    "secure": {"secure": True, "noise": 2.0, "clip": 0.5},
    "local": {"level": "local", "noise": 4.0, "clip": 0.5},
    "example": {"level": "example", "epsilon": 8.0, "clip": 1.0},
}
# Of what is left of an update once it is protected, the server is shown the row alone, or its masked numbers.
SHOWN: dict[type, set[str]] = {
    Quiet: set(),
    Noised: set(),
    ExampleTrain: set(),
    SecureUpdate: {"numbers"},
    AddSketch: {"table"},  # to the server that adds the noise to their sum
}
# With these settings a method tells what it tells under noise, or does without.
SETTINGS: dict[str, dict[str, Any]] = {
    "cfic": {"epsilon": 2.0},
    "embedding": {"pretrain": "public", "public": "digits", "pretrain_rounds": 1},
    "haccs": {"losses": "none", "epsilon": 1.0},
    "cafa": {"by_cluster": True, "epsilon": 1.0},
    "cbcc": {"epsilon": 1.0},
    "cbcc-select": {"epsilon": 1.0},
}
# What each level adds to a method is the same for all: the slower ones are run with a few.
FEW = ("fedavg", "haccs", "cfic", "krum")
RUN = [
    (name, level)
    for level in LEVELS
    for name in METHODS
    if name != "compose"
    and (level in ("client", "local") or name in FEW)
    and (name, level) != ("covey", "local")
]


def private_method(name: str, level: str) -> Method | UserError:
    own = SETTINGS.get(name, {})
    tables = {
        "rounds": 1,
        "method": {"name": name, **own},
        "train": {"batches": 2},
        "data": {"clients": CLIENTS},
        "private": LEVELS[level],
    }
    try:
        return resolve(tables).method
    except UserError as refusal:
        return refusal


class Listening:
    """A fleet that remembers what it asked its clients for, and what they said."""

    def __init__(self, fleet: LocalFleet) -> None:
        self.fleet = fleet
        self.heard: list[tuple[Step, Reply]] = []
        self.asking = fleet.ask
        fleet.ask = self.ask  # type: ignore[method-assign]

    def ask(self, step: Step, tasks: Mapping[int, Task], **options: Any) -> list[Reply]:
        replies = self.asking(step, tasks, **options)
        self.heard += [(step, reply) for reply in replies if reply.id >= 0]
        return replies


def objection(step: Step, reply: Reply) -> str:
    """What of this answer is neither noised nor withheld."""
    if type(step) in SHOWN:
        extra = set(reply.stats) - SHOWN[type(step)]
    elif getattr(step, "counted", getattr(getattr(step, "privacy", None), "counted", False)):
        extra = set(reply.stats) - {"epsilon", *NOISED[type(step).__name__]}
    else:
        return f"{step.kind} has no noise"
    return f"{step.kind} tells {extra}, size {reply.size}" if extra or reply.size > 1 else ""


@pytest.mark.parametrize(("name", "level"), RUN)
def test_what_leaves_a_client_is_noised_withheld_or_refused(
    name: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "opacus_noise", lambda *_: 1.0)  # how much is tested elsewhere
    method = private_method(name, level)
    if isinstance(method, UserError):
        assert "cannot be private at the" in str(method)
        assert "does not say what it shows" not in str(method)
        assert "\n" not in str(method)
        return
    listening = Listening(small_fleet())
    run_rounds(method, listening.fleet, rounds=1)
    assert listening.heard
    assert {what for step, reply in listening.heard if (what := objection(step, reply))} == set()
    queries = {reply.id for step, reply in listening.heard if type(step) not in SHOWN}
    told = listening.fleet.ledger.told
    for client in queries:
        assert any(loss.mechanism == "stated" for loss in told[client])
    for client in {reply.id for step, reply in listening.heard if type(step) in SHOWN}:
        assert any(loss.what == "updates" for loss in told[client])


@pytest.mark.parametrize("level", ["client", "secure", "local"])
def test_what_stays_at_home_gets_no_noise(level: str) -> None:
    """FedPer's heads never leave their clients: what the server has of them is what an unseen client starts from."""
    method = private_method("fedper", level)
    assert isinstance(method, Method)
    fleet = small_fleet()
    row = run_rounds(method, fleet, rounds=1).models[0]
    head = 64 * 10 + 10
    start = fleet.start()
    assert bool((row[-head:] == start[-head:]).all())
    assert bool((row[:-head] != start[:-head]).all())
