"""A real site takes its model home: the row that it uses is made there and stays there; the server is told nothing."""

from dataclasses import replace
from typing import ClassVar

from covey.core import Client, Fleet, Method, Reply, State, Step, Task, served, step
from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.served import SERVED_ROW, Serving, served_row


@step(kind="evaluate.take-home")
class TakeHome(Step):
    """Keeps the row that the client uses, and how good it is on the client's own test data, in the client's state.

    Args:
        serving: how the row is made of what the server sends.
    """

    serving: Serving

    about_data: ClassVar[bool] = False  # nothing of the client is told, not even which row it took

    def __call__(self, client: Client, task: Task) -> Reply:
        _, row = served_row(client, task, self.serving)
        # without what it keeps, which is in its row already
        told = (
            Evaluate()(replace(client, state={}), Task(models=row[None], slots=(0,))).stats
            if len(client.test)
            else {}
        )
        measured = {f"local-test/{name}": float(value) for name, value in told.items()}
        client.state[SERVED_ROW] = {**client.state.get(SERVED_ROW, {}), "measured": measured}
        return Reply(id=client.id, slot=task.slots[0])

    def work(self, train: int, test: int) -> float:
        return self.serving.work(train, test) + Evaluate().work(train, test)


def sent_home(method: Method, state: State, fleet: Fleet) -> list[Reply]:
    """Sends every site of the last round what serves it; a site that answers has its model."""
    tasks = served(method, state, fleet, list(fleet.members()))
    step = TakeHome(serving=Serving.of(method))
    return fleet.ask(step, tasks, measure=True) if tasks else []
