"""What a site may answer: whatever it is, the run continues without that site."""

import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.codec import from_bytes, named_from_bytes, to_bytes
from covey.core.round import Reply, Task, empty_state, open_round, run_rounds
from covey.deploy.fleet import SiteFleet
from covey.deploy.outcomes import ReplySchemas, outcome_of
from covey.deploy.site import Site
from covey.deploy.site_registry import _hello
from covey.deploy.transport import SPOKEN, Response
from covey.deploy.wire import names_mark
from covey.fleet.bookkeeping import Trip
from covey.fleet.work import Outcome
from covey.methods.baselines import fedavg
from covey.methods.embedding.pretraining import look
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.testing import check_toml
from tests.deploy.one_request import with_header
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, deployed, sites

REPLY = {"id": 0, "vector": torch.zeros(4810), "slot": 0, "size": 3, "stats": {"loss": 1.0, "batches": 2}}
ANSWER = {"reply": REPLY, "lost": "", "refused": "", "mistake": "", "seconds": 0.1}
HELLO = {
    "name": "liar",
    "protocol": list(SPOKEN),
    "shape": [1, 8, 8],
    "classes": 10,
    "labels": names_mark(DATA.dataset.classes),
    "sizes": [5, 5],
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
PLAIN = st.recursive(
    SCALARS | st.just(torch.zeros(2, 2)) | st.just(np.zeros(3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class Liar(Site):
    """Answers each question with a block of its own."""

    def __init__(self, work: bytes, hello: bytes | None = None, *, name: str = "site-3") -> None:
        super().__init__((DATA.shares[3].train, DATA.shares[3].test), name=name)
        self.blocks = {"work": work, "hello": hello}

    def answer(self, block: bytes) -> bytes:
        given = self.blocks["hello" if "hello" in from_bytes(block) else "work"]
        return super().answer(block) if given is None else given


def asked(work: bytes, hello: bytes | None = None) -> tuple[list[int], SiteFleet]:
    """Who replied to a training task when one of four sites is a liar, and the fleet."""
    transport = Hand({**sites(), 103: Liar(work, hello)})
    fleet = deployed(transport, least=3)
    here = fleet.begin(1)
    task = Task(models=torch.zeros(1, 4810), slots=(0,))
    return [reply.id for reply in fleet.ask(Train(lr=0.1), dict.fromkeys(here, task))], fleet


@given(
    st.binary(max_size=60) | PLAIN.map(to_bytes) | st.builds(with_header, st.dictionaries(st.text(), SCALARS))
)
@settings(max_examples=60, deadline=None)
def test_an_arbitrary_answer_is_an_outcome(block: bytes) -> None:
    outcome = outcome_of(3, Response(answer=block))
    assert outcome.reply is None
    assert outcome.refused
    assert _hello(Response(answer=block))["refused"]


@given(st.sampled_from([*REPLY, "stats.loss", "stats.epsilon", "reply", "lost", "mistake"]), PLAIN)
@settings(max_examples=150, deadline=None)
def test_an_arbitrary_value_in_a_reply_ends_nothing(name: str, value: Any) -> None:
    if name in ANSWER:
        answer = {**ANSWER, name: value}
    elif name.startswith("stats."):
        answer = {**ANSWER, "reply": {**REPLY, "stats": {**REPLY["stats"], name[6:]: value}}}
    else:
        answer = {**ANSWER, "reply": {**REPLY, name: value}}
    outcome = outcome_of(0, Response(answer=to_bytes(answer)))
    assert outcome.reply or outcome.refused or outcome.lost
    fleet = deployed(Hand({}))
    fleet.books.open(1)
    call, task = fleet.books.call(Train(lr=0.1)), {0: Task(models=torch.zeros(1, 4810), slots=(0,))}
    fleet.books.accept(call, task, fleet.schemas.checked(call.step, task, [outcome]), {0: Trip()})


@given(st.sampled_from(list(HELLO)), PLAIN)
@settings(max_examples=100, deadline=None)
def test_an_arbitrary_introduction_ends_nothing(name: str, value: Any) -> None:
    hello = _hello(Response(answer=to_bytes({**HELLO, name: value})))
    if "refused" not in hello:
        assert isinstance(hello["name"], str)
        numbers = (*hello["shape"], hello["classes"], *hello["sizes"])
        assert all(type(number) is int for number in numbers)
        assert len(hello["sizes"]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"size": "x"},
        {"size": -1},
        {"size": 10**400},
        {"slot": 7},
        {"stats": [1]},
        {"stats": {}},
        {"stats": {"batches": 2}},
        {"stats": {"loss": "low", "batches": 2}},
        {"stats": {"loss": np.zeros(3), "batches": 2}},
        {"stats": {"loss": 1.0, "batches": 2, "epsilon": "none"}},
        {"stats": {"loss": float("nan"), "batches": 2}},
        {"vector": [1, 2]},
        {"vector": torch.zeros(3)},
        {"vector": None},
    ],
)
def test_a_reply_that_is_none_leaves_out_its_site_only(changes: dict[str, Any]) -> None:
    replied, fleet = asked(to_bytes({**ANSWER, "reply": {**REPLY, "id": 3, **changes}}))
    assert replied == [0, 1, 2]
    assert fleet.ledger.refused == 1


def test_a_good_reply_of_that_form_is_taken() -> None:
    assert asked(to_bytes({**ANSWER, "reply": {**REPLY, "id": 3}}))[0] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changes", [{"shape": 5}, {"sizes": []}, {"classes": float("inf")}, {"name": 5}, {"sizes": [-1, 2]}]
)
def test_an_introduction_that_is_none_leaves_out_its_site_only(changes: dict[str, Any]) -> None:
    assert asked(b"", to_bytes({**HELLO, **changes}))[0] == [0, 1, 2]


@pytest.mark.parametrize("name", ["cafa", "cfic", "haccs", "feddisco", "power-of-choice", "fedfa"])
@pytest.mark.parametrize("stats", [{}, {"shares": np.ones(3), "label": "x", "loss": np.ones(2)}])
def test_no_method_stops_over_the_statistics_of_one_site(name: str, stats: dict[str, Any]) -> None:
    """The liar knows its number, and otherwise sends a reply of the right sort with other statistics."""
    reply = {**REPLY, "id": 3, "stats": stats}
    transport = Hand({**sites(), 103: Liar(to_bytes({**ANSWER, "reply": reply}))})
    fleet = deployed(transport)
    state = run_rounds(check_toml(name, {"per_round": CLIENTS}), fleet, rounds=2, measure=Measuring())
    assert state.worked == (0, 1, 2)


def test_an_answer_that_is_larger_than_the_model_could_need_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def watched(block: bytes) -> Any:
        read.append(len(block))
        return named_from_bytes(block)

    monkeypatch.setattr("covey.deploy.outcomes.named_from_bytes", watched)
    huge = to_bytes({**ANSWER, "reply": {**REPLY, "id": 3, "vector": torch.zeros(2 * 10**6)}})
    replied, fleet = asked(huge)
    assert replied == [0, 1, 2]
    most = 4 * 4 * 4810 + 4 * 2**20  # four rows, and 4 MB for statistics
    assert max(read) < most < len(huge)
    assert fleet.ledger.last_problem().endswith(f"its answer is larger than {most} bytes")


def test_keys_that_collide_in_a_hash_table_are_refused_at_once() -> None:
    """60,000 multiples of 2^61 - 1 have one hash: a mapping of them takes minutes."""
    pairs = [[(2**61 - 1) * n, 0] for n in range(60_000)]
    plain = json.dumps({"reply": {"$pairs": pairs}})
    block = with_header({"__metadata__": {"plain": plain}})
    outcome = outcome_of(3, Response(answer=block))
    assert "whole numbers below 2^60" in outcome.refused


@pytest.mark.parametrize("key", [2**60, -(2**61), 0.5, None, [1], {"$tuple": [1]}])
def test_a_key_is_text_or_a_whole_number(key: Any) -> None:
    block = with_header({"__metadata__": {"plain": json.dumps({"$pairs": [[key, 0]]})}})
    with pytest.raises(ValueError, match="only text and whole numbers below"):
        from_bytes(block)
    assert from_bytes(to_bytes({3: "a", "$b": 1, np.int64(4): None})) == {3: "a", "$b": 1, 4: None}


def test_the_plain_part_of_what_somebody_else_made_is_bounded() -> None:
    block = to_bytes({"names": ["x" * 1000] * 5000})
    assert len(from_bytes(block)["names"]) == 5000
    with pytest.raises(ValueError, match=r"its plain part has .* bytes, at most 4194304 are read"):
        named_from_bytes(block)


def test_answers_are_compared_with_those_to_a_like_question() -> None:
    def told(sizes: dict[int, int], *, models: int = 1) -> list[bool]:
        """Who is refused of clients that give arrays of these sizes."""
        tasks = dict.fromkeys(sizes, Task(models=torch.zeros(models, 3)))
        outcomes = [
            Outcome(id=i, reply=Reply(id=i, size=1, stats={"loss": np.zeros(n)})) for i, n in sizes.items()
        ]
        return [bool(o.refused) for o in schemas.checked(Train(lr=0.1), tasks, outcomes)]

    schemas = ReplySchemas()
    assert told({2: 9, 3: 4}) == [False, False]  # who is right?
    assert told({0: 4, 1: 4, 2: 9, 3: 4}) == [False, False, True, False]
    assert told({2: 9}) == [True]  # alone, it is measured by what the others said before
    assert told({2: 4}) == [False]
    assert told({0: 5, 1: 5, 2: 5}, models=2) == [False] * 3  # another question
    assert told({0: 6, 1: 6, 2: 6}) == [False] * 3  # all agree on something new


@pytest.mark.parametrize("stats", [{}, {"shape": 5}, {"shape": ["x"]}, {"shape": [1, 8, 8], "mean": 3}])
def test_who_does_not_say_what_samples_look_like_is_passed_over(stats: dict[str, Any]) -> None:
    reply = {**REPLY, "id": 0, "vector": None, "stats": stats}
    fleet = deployed(Hand({**sites(), 100: Liar(to_bytes({**ANSWER, "reply": reply}), name="site-0")}))
    now = open_round(empty_state(fleet), fleet)
    shape, _ = look(now)
    assert shape == (1, 8, 8)


def test_a_stranger_cannot_write_markup_or_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey import terminal as progress

    console = progress.Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(progress, "console", console)
    progress.say("site [/x] [bold]is[/bold] :smile: here\x1b[2J\n\ud800")
    assert console.file.getvalue() == "site [/x] [bold]is[/bold] :smile: here\ufffd[2J\ufffd\ufffd\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["fedavg", "cfic", "feddyn"])
def test_a_site_that_sends_a_row_of_1e30_is_left_out(name: str) -> None:
    reply = {**REPLY, "id": 3, "vector": torch.full((4810,), 1e30)}
    fleet = deployed(Hand({**sites(), 103: Liar(to_bytes({**ANSWER, "reply": reply}))}))
    state = run_rounds(check_toml(name, {"per_round": CLIENTS}), fleet, rounds=2, measure=Measuring())
    assert state.worked == (0, 1, 2)
    assert torch.isfinite(state.models).all()
    assert {problem.client for what, problem in fleet.ledger.problems if what == "refused"} == {3}


def test_sizes_are_those_of_first_contact_and_must_be_believable() -> None:
    stated = to_bytes({**ANSWER, "reply": {**REPLY, "id": 3, "size": 10**18}})
    assert asked(stated)[0] == [0, 1, 2]  # not what it told when it came
    hello = to_bytes({**HELLO, "name": "site-3", "sizes": [10**18, 5]})
    replied, fleet = asked(stated, hello)
    assert replied == [0, 1, 2]
    assert "guard.samples" in fleet.ledger.last_problem()


class Late(Site):
    """Answers every question but the first with what it answered the one before, of whatever kind and round."""

    before: bytes | None = None

    def answer(self, block: bytes) -> bytes:
        now = super().answer(block)
        if "hello" in from_bytes(block):
            return now
        given, self.before = self.before or now, now
        return given


def test_answers_to_other_questions_cost_their_site_its_place_and_nobody_else_anything() -> None:
    """Questions alternate between training and evaluation: each of its answers is of the wrong kind."""
    late = Late((DATA.shares[3].train, DATA.shares[3].test), name="site-3")
    fleet = deployed(Hand({**sites(), 103: late}), least=3)
    state = run_rounds(
        fedavg(Train(lr=0.1), per_round=CLIENTS), fleet, rounds=3, measure=Measuring(global_test=False)
    )
    assert state.round == 3
    assert bool(torch.isfinite(state.models).all())
    assert sorted(state.worked) == [0, 1, 2]
    assert {example.client for example in fleet.ledger.examples("refused")} == {3}
