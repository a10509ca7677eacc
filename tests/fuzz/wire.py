"""`python -m tests.fuzz.wire CASES [SEED]`: requests, answers, heads and pieces as strangers make them.

Nothing may raise anything but the one refusal that is meant for it, and memory must not grow. With Flower installed its
messages are tried as well.
"""

from __future__ import annotations

import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any

import psutil
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from covey.codec import from_bytes, to_bytes
from covey.deploy.door import is_open
from covey.deploy.outcomes import outcome_of
from covey.deploy.signatures import KEY, SIGNATURE, TIME, Refusal, check_signature
from covey.deploy.site import Site, names_mark
from covey.deploy.site_bounds import Bounds
from covey.deploy.site_registry import _hello
from covey.deploy.transport import Response
from covey.deploy.wire import step_to_plain
from covey.steps import Train
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import DATA, shares

AT_ONCE = 500  # cases of one seed
GROWTH = 64.0  # MB that a whole run may grow by, once everything has been used

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["../../etc/passwd", "\x1b[2J", "os.system", "$step", "nan", "1e999"])
)
PLAIN = st.recursive(
    SCALARS | st.just(torch.zeros(3)) | st.just(torch.full((2, 2), torch.nan)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
REQUEST = (
    "covey",
    "protocol",
    "run",
    "session",
    "seed",
    "round",
    "names",
    "client",
    "step",
    "model",
    "task",
    "seconds",
)


def damaged(block: bytes) -> st.SearchStrategy[bytes]:
    """The block with bytes changed, taken out or put in."""
    place = st.integers(0, len(block) - 1)
    changed = st.builds(lambda at, to: block[:at] + bytes([to]) + block[at + 1 :], place, st.integers(0, 255))
    cut = place.map(lambda at: block[:at])
    grown = st.builds(lambda at, more: block[:at] + more + block[at:], place, st.binary(max_size=40))
    twice = place.map(lambda at: block + block[at:])
    return changed | cut | grown | twice


@cache
def site() -> Site:
    share = shares()[0]
    return Site(
        (share.train, share.test), name="site-0", bounds=Bounds(passes=5, parameters=10**6, seconds=5)
    )


def asked(block: bytes) -> str:
    """A request at a site: it answers, or refuses in a sentence."""
    answer = from_bytes(site().answer(block))
    return "refused" if "refused" in answer and "reply" not in answer else "answered"


def came(block: bytes) -> str:
    """An answer at the server."""
    outcome = outcome_of(3, Response(answer=block))
    hello = _hello(Response(answer=block))
    assert outcome.reply or outcome.refused or outcome.lost
    return "taken" if outcome.reply or "refused" not in hello else "refused"


def knocked(case: tuple[str, dict[str, str]]) -> str:
    """A head at the open port; only the right key opens, and nobody here has it."""
    path, headers = case
    if not is_open(path):
        return "no such path"
    try:
        check_signature(headers, path, lambda _: "")
    except Refusal as no:
        return f"refused {no.status}"
    raise AssertionError(f"let in: {headers}")


def requests() -> st.SearchStrategy[bytes]:
    whole = one_request()
    one = st.builds(lambda name, value: one_request(**{name: value}), st.sampled_from(REQUEST), PLAIN)
    step = step_to_plain(Train(lr=0.1))
    inner = st.builds(
        lambda name, value: one_request(step={**step, "settings": {**step["settings"], name: value}}),
        st.sampled_from([*step["settings"], "other"]),
        PLAIN,
    )
    model = st.builds(
        lambda name, value: one_request(model={**SPEC.plain(), name: value}),
        st.sampled_from(list(SPEC.plain())),
        PLAIN,
    )
    return st.binary(max_size=200) | damaged(whole[:3000]) | damaged(whole) | one | inner | model


def answers() -> st.SearchStrategy[bytes]:
    stats = {"loss": 1.0, "accuracy": 0.5}
    reply = {"id": 3, "vector": torch.zeros(40), "slot": 0, "size": 10, "stats": stats}
    whole = {"reply": reply, "lost": "", "refused": "", "mistake": "", "seconds": 0.1}
    hello = {
        "covey": "0.1.0",
        "protocol": [1, 1],
        "name": "site-0",
        "sizes": [10, 5],
        "shape": [1, 8, 8],
        "classes": 10,
        "labels": names_mark(DATA.dataset.classes),
    }
    pick = st.sampled_from
    return (
        st.binary(max_size=200)
        | damaged(to_bytes(whole))
        | damaged(to_bytes(hello))
        | PLAIN.map(to_bytes)
        | st.builds(lambda name, value: to_bytes({**whole, name: value}), pick(list(whole)), PLAIN)
        | st.builds(
            lambda name, value: to_bytes({**whole, "reply": {**reply, name: value}}), pick(list(reply)), PLAIN
        )
        | st.builds(lambda name, value: to_bytes({**hello, name: value}), pick(list(hello)), PLAIN)
    )


def heads() -> st.SearchStrategy[tuple[str, dict[str, str]]]:
    words = st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b64encode(b).decode())
    pem = "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n"
    key = words | st.binary(max_size=120).map(
        lambda b: b64encode(pem.format(b64encode(b).decode()).encode()).decode()
    )
    clock = (
        words
        | st.datetimes().map(lambda t: t.isoformat())
        | st.datetimes().map(lambda t: f"{t.isoformat()}Z")
    )
    headers = st.fixed_dictionaries({}, optional={KEY: key, TIME: clock, SIGNATURE: words})
    paths = st.sampled_from(["/v1/fleet/pull-messages", "/v1/fleet/../control"]) | st.text(max_size=40).map(
        "/v1/fleet/".__add__
    )
    return st.tuples(paths, headers)


def subjects() -> Iterator[tuple[str, st.SearchStrategy[Any], Callable[[Any], str]]]:
    """What is tried: its name, the cases, and what becomes of one."""
    yield "requests at a site", requests(), asked
    yield "answers at the server", answers(), came
    yield "heads at the open port", heads(), knocked
    if find_spec("flwr") is not None:
        from tests.fuzz.flower_messages import opened, packed, parcels, read

        yield "Flower's messages at the open port", packed(), read
        yield "messages in pieces", parcels(), opened


@dataclass
class Tried:
    """What became of the cases of one subject."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # CPU seconds
    growth: float = 0.0  # MB, after the first fifth
    seconds: float = 0.0

    def __str__(self) -> str:
        became = ", ".join(f"{what} {count:,}" for what, count in self.counts.most_common())
        return (
            f"| {self.name} | {self.counts.total():,} | {became} | {self.slowest:.2f} | {self.growth:+.0f} | "
            f"{self.seconds:.0f} |"
        )


def tried(
    name: str, strategy: st.SearchStrategy[Any], one: Callable[[Any], str], cases: int, first: int
) -> Tried:
    """Tries so many cases of a subject."""
    result, began, settled, number = Tried(name), time.monotonic(), 0.0, first

    def single(case: Any) -> None:
        at = time.process_time()
        try:
            result.counts[one(case)] += 1
        except Exception as error:
            result.counts["fault"] += 1
            result.faults.append(f"{name}: {type(error).__name__}: {error}: {case!r:.300}")
        result.slowest = max(result.slowest, time.process_time() - at)

    while (done := result.counts.total()) < cases:
        some = settings(
            max_examples=min(AT_ONCE, cases - done),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(single))
        seed(number)(some)()
        number += 1
        memory = psutil.Process().memory_info().rss / 2**20
        settled = settled or (memory if result.counts.total() >= cases / 5 else 0.0)
        result.growth = memory - (settled or memory)
    if result.growth > GROWTH:
        result.faults.append(f"{name}: memory grew by {result.growth:.0f} MB")
    result.seconds = time.monotonic() - began
    return result


def fuzz(cases: int, first: int = 0, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Tries so many cases of every subject; gives the faults. `say` gets a line of a table per subject."""
    faults: list[str] = []
    for name, strategy, one in subjects():
        result = tried(name, strategy, one, cases, first)
        say(str(result))
        faults += result.faults
    return faults


def main(cases: int, first: int) -> int:
    print("| what | cases | what became of them | slowest, CPU s | memory, MB | s |", flush=True)
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    faults = fuzz(cases, first, say=lambda line: print(line, flush=True))
    print("\n".join(faults[:20]) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
