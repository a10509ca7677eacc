"""`python -m tests.fuzz.wire CASES [SEED]`: requests, answers, heads and pieces as strangers make them.

Nothing may raise anything but the one refusal that is meant for it, and memory must not grow. With Flower installed its
messages are tried as well.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

import torch
from hypothesis import strategies as st

from covey.core.codec import from_bytes, to_bytes
from covey.deploy.door import is_open
from covey.deploy.http_connection import KEY, SIGNATURE, TIME, Refusal, check_signature
from covey.deploy.outcomes import outcome_of
from covey.deploy.site import Site
from covey.deploy.site_bounds import Bounds
from covey.deploy.site_registry import _hello
from covey.deploy.transport import Response
from covey.deploy.wire import names_mark, step_to_plain
from covey.parts.steps import Train
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import DATA, shares
from tests.fuzz.frame import HEAD, Subject, damaged, fuzz

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


def subjects() -> Iterator[Subject]:
    """What is tried: its name, the cases, and what becomes of one."""
    yield "requests at a site", requests(), asked
    yield "answers at the server", answers(), came
    yield "heads at the open port", heads(), knocked
    if find_spec("flwr") is not None:
        from tests.fuzz.flower_messages import opened, packed, parcels, read

        yield "Flower's messages at the open port", packed(), read
        yield "messages in pieces", parcels(), opened


def main(cases: int, first: int) -> int:
    print(HEAD, flush=True)
    faults = fuzz(subjects(), cases, first, say=lambda line: print(line, flush=True))
    print("\n".join(faults[:20]) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
