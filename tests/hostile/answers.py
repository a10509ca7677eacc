"""A site that holds a key answers with whatever it likes: the run continues, in time and in bounded memory."""

from __future__ import annotations

import json
import time

from tests.hostile.frame import Outcome, attempt, broke, held


def prepare() -> None:
    """What all tries import, once."""
    import tests.deploy.sites_by_hand
    import tests.deploy.test_dishonest_sites  # noqa: F401


def asked(block: bytes) -> tuple[list[int], str, float]:
    """Who replied when one of four sites answers with that block, what is said of it, and after how many seconds."""
    import torch

    from covey.core.round import Task
    from covey.parts.steps import Train
    from tests.deploy.sites_by_hand import Hand, deployed, sites
    from tests.deploy.test_dishonest_sites import Liar

    fleet = deployed(Hand({**sites(), 103: Liar(block)}), least=3)
    here = fleet.begin(1)
    began = time.monotonic()
    task = Task(models=torch.zeros(1, 4810), slots=(0,))
    replies = fleet.ask(Train(lr=0.1), dict.fromkeys(here, task))
    return [reply.id for reply in replies], fleet.ledger.last_problem(), time.monotonic() - began


def left_out(block: bytes, seconds: float = 60.0) -> Outcome:
    replied, problem, took = asked(block)
    said = f"{len(replied)} of 4 sites count after {took:.1f} s; {problem}"
    return held(said) if replied == [0, 1, 2] and took < seconds else broke(said)


@attempt("an answer of 300 MB for a model of 19 kB", seconds=300)
def huge() -> Outcome:
    import torch

    from covey.core.codec import to_bytes
    from tests.deploy.test_dishonest_sites import ANSWER, REPLY

    return left_out(to_bytes({**ANSWER, "reply": {**REPLY, "id": 3, "vector": torch.zeros(75_000_000)}}))


@attempt("60,000 keys that are multiples of 2^61 - 1 and have one hash")
def colliding() -> Outcome:
    from tests.deploy.one_request import with_header

    pairs = [[(2**61 - 1) * n, 0] for n in range(60_000)]
    return left_out(with_header({"__metadata__": {"plain": json.dumps({"reply": {"$pairs": pairs}})}}))


@attempt("3 MB of brackets, one within the other")
def nested() -> Outcome:
    from tests.deploy.one_request import with_header

    return left_out(with_header({"__metadata__": {"plain": "[" * 3 * 10**6}}))


@attempt("one piece of 4 MB that stands in an array a million times")
def multiplied() -> Outcome:
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    from covey.deploy.pieces import Incoming, TooLarge
    from tests.deploy.test_pieces import multiplied as made

    tree, pieces = made()
    incoming = Incoming(tree, 2**24)
    incoming.take(pieces.get)
    try:
        incoming.message()
    except TooLarge as no:
        return held(f"refused before it is made: {no}")
    return broke("it was made")
