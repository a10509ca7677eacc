"""How many training samples a client holds: asked once, before anything is weighted by it."""

from collections.abc import Iterable

from covey.core import Client, Key, Reply, Round, Step, Task, step
from covey.parts.ask_once import answers, ask_once

SIZES: Key[dict[int, int]] = Key("sizes")


@step(kind="query.size")
class Size(Step):
    """The number of training samples, and nothing else."""

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        return Reply(id=client.id, size=len(client.train))


def sizes(now: Round, ids: Iterable[int]) -> dict[int, int]:
    """The sizes of all clients known so far; unknown ones of `ids` are asked, and remembered."""
    return ask_once(now, SIZES, answers(now, Size(), lambda reply: reply.size), ids).known
