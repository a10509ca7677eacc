"""Training of a narrower network than the others', on a device that cannot hold the whole."""

from dataclasses import replace

from covey.core import NOTHING, Client, Reply, Task, step
from covey.errors import UserError
from covey.parts.steps.train import AroundTraining, best_row, local_fit, reply_of
from covey.parts.widths import WIDTHS
from covey.training.bench.torch_bench import TorchBench
from covey.training.narrow import Narrow
from covey.training.rows import Layout


@step("narrow", needs=(WIDTHS,), shows=NOTHING)
class TrainNarrow(AroundTraining):
    """Trains the part of the network that the task's `width` and `first` say, and sends back no more than that."""

    def __post_init__(self) -> None:
        if self.train.keep_momentum:
            raise UserError(
                "train.keep_momentum is true, but narrower networks are other numbers in other rounds; allowed: false"
            )

    def __call__(self, client: Client, task: Task) -> Reply:
        width, layout = float(task.args["width"]), client.bench.layout
        if layout.buffers == "local" and layout.has_buffers:
            raise UserError(
                'model.buffers is "local", but clients have networks of different widths; allowed: average'
            )
        size = len(self.train.training_part(client))
        if width >= 1:
            slot, start = best_row(client, task)
            return reply_of(client, local_fit(self.train, client, start), slot, size)
        whole = client.bench.on_torch()
        narrow = Narrow.of(whole.model, width, first=int(task.args["first"]))
        row = task.models[0]
        row = row[narrow.columns(layout)] if len(row) == layout.size else row
        own = replace(client, bench=TorchBench(narrow.network(), whole.objective, device=str(whole.device)))
        return reply_of(client, local_fit(self.train, own, row), task.slots[0], size)

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:  # noqa: ARG002
        """The row that was sent, with the client's numbers in their places."""
        columns, vector = task.columns, reply.vector
        if columns is None or vector is None or len(vector) != len(columns) or reply.slot not in task.slots:
            return reply
        row = task.models[task.slots.index(reply.slot)].clone()
        row[columns] = vector
        return replace(reply, vector=row)
