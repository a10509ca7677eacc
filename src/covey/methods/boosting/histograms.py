"""What a client is asked for: its sums of derivatives for the next level of a tree, and later trees of its own."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Singles
from covey.core import NOTHING, Client, Facts, Known, Reply, Stat, Step, Task, step
from covey.data.types import Dataset, View
from covey.errors import RunError
from covey.parts.steps.served import TRAINED_MODEL
from covey.parts.steps.train import split
from covey.settings import Natural, PartBelowOne
from covey.training.objective import Objective
from covey.training.rows import Layout
from covey.training.trees.forest import UNIT, Grove
from covey.training.trees.kept import KEPT
from covey.training.trees.splits import Growth, derivatives, histogram

ROUNDED = 1.01  # times what a sum can be at most, which rounding may exceed
LEVEL_SHARE = 0.05  # a level costs about a twentieth of training a small network on the same samples


@dataclass(eq=False, kw_only=True)
class SampleRows:
    """A client's samples beside a forest: inputs, their bins, targets, and the margins so far."""

    grove: Grove
    x: Singles
    codes: NDArray[np.uint8]
    y: NDArray[np.floating | np.integer]
    margin: Singles
    objective: Objective

    @classmethod
    def of(cls, client: Client, view: View, grove: Grove) -> Self:
        """The samples of a view, under the trees that are complete."""
        x, y = view.tensors()
        inputs = x.flatten(1).numpy().astype(np.float32, copy=False)
        codes, margin = KEPT.of(grove, inputs, max(0, grove.grown) // grove.depth)
        target = client.bench.objective.target(x, y).numpy()
        return cls(
            grove=grove, x=inputs, codes=codes, y=target, margin=margin, objective=client.bench.objective
        )

    def derivatives(self) -> tuple[Singles, Singles]:
        return derivatives(self.margin, self.y, self.objective.kernel)

    def sums(self, tree: int, level: int) -> NDArray[np.float64]:
        """The histograms of every node of a level."""
        nodes = self.grove.nodes(self.x, tree, level)
        return histogram(self.codes, nodes, self.derivatives(), (2**level, self.grove.bins))

    def add_tree(self, tree: int, growth: Growth) -> None:
        """Grows a whole tree on these samples alone, and adds it to the margins."""
        for level in range(self.grove.depth):
            self.grove.grow(tree, level, self.sums(tree, level), growth)
        self.margin = self.grove.added(self.margin, self.x, tree)

    def losses(self) -> NDArray[np.float64]:
        """Of each sample."""
        margin = torch.from_numpy(self.margin)
        two = self.objective.kernel == "cross-entropy" and margin.shape[1] == 1
        outputs = torch.cat([torch.zeros_like(margin), margin], 1) if two else margin
        found: NDArray[np.float64] = (
            self.objective.scores(outputs, torch.from_numpy(self.y))["loss"].double().numpy()
        )
        return found


@step(kind="train.histogram", shows=NOTHING, passes=LEVEL_SHARE)
class TellHistograms(Step):
    """The client's part of the next sum; of its reply only that sum travels, and of the row everything but the sums.

    First the sums of the first and second derivatives g and h of all samples; then for every level of every tree those
    of each node, input and bin. Where the last `own` trees are the client's, it then tells how its kept-out samples
    fare with none to all of them, and at last grows as many as were best for all clients, on all of its samples; these
    stay with it.

    Args:
        growth: how trees of its own are grown.
        own: how many of the last trees may be the client's own.
        holdout: share of the samples that the common trees do not see, to choose how many own ones help.
    """

    growth: Growth = Growth()
    own: Natural = 0
    holdout: PartBelowOne = 0.0

    @property
    def gives(self) -> Facts:
        return (TRAINED_MODEL,) if self.own else ()

    def __call__(self, client: Client, task: Task) -> Reply:
        row = task.models[0]
        grove = Grove(client.bench.layout, row.clone())
        stage = grove.stage(self.own)
        if stage == "choose":
            told, loss = self.curve(client, grove)
        elif stage == "own":
            told, loss = np.zeros(0), self.keep_own(client, row)
        else:
            rows = SampleRows.of(client, self.training_part(client), grove)
            tree, level = divmod(grove.grown, grove.depth)
            if stage == "base":
                told = np.stack([part.sum(axis=0, dtype=np.float64) for part in rows.derivatives()], axis=1)
            else:
                told = rows.sums(tree, level)
            loss = mean(rows.losses())
        vector = torch.from_numpy((told / UNIT).astype(np.float32).ravel())
        return Reply(id=client.id, vector=vector, slot=task.slots[0], size=1, stats={"loss": loss})

    def training_part(self, client: Client) -> View:
        """What the common trees are grown on."""
        return split(client, self.holdout)[0] if self.holdout else client.train

    def curve(self, client: Client, grove: Grove) -> tuple[NDArray[np.float64], float]:
        """The summed loss of the kept-out samples with no own tree, with one, ... with all; and that of training."""
        part, judging = split(client, self.holdout)
        rows, judged = SampleRows.of(client, part, grove), SampleRows.of(client, judging, grove)
        first = grove.trees - self.own
        losses = [judged.losses().sum()]
        for tree in range(first, grove.trees):
            rows.add_tree(tree, self.growth)
            judged.margin = grove.added(judged.margin, judged.x, tree)
            losses.append(judged.losses().sum())
        return np.array(losses), mean(rows.losses())

    def keep_own(self, client: Client, common: Tensor) -> float:
        """Grows the client's own trees, once, and keeps the row."""
        if "own" not in client.state:
            row = common.clone()
            grove = Grove(client.bench.layout, row)
            rows = SampleRows.of(client, client.train, grove)
            first = grove.trees - self.own
            for tree in range(first, first + grove.own):
                rows.add_tree(tree, self.growth)
            client.state["own"] = row
            return mean(rows.losses())
        return mean(SampleRows.of(client, client.train, Grove(client.bench.layout, common.clone())).losses())

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:
        """The row that was sent, with the client's sums in their place."""
        if reply.vector is None:
            return reply
        row = task.models[task.slots.index(reply.slot)].clone()
        place = layout.tensors(row)["sums"]
        grove = Grove(layout, row)
        wanted = int(np.prod(grove.shape(grove.stage(self.own), self.own)))
        if reply.vector.shape != (wanted,) and reply.vector.shape != place.shape:
            raise RunError(f"it tells {reply.vector.numel()} sums, not {wanted}")
        place[: len(reply.vector)] = reply.vector
        return replace(reply, vector=row)

    def misfit(self, reply: Reply, layout: Layout, known: Known) -> str:
        """Sums beyond its samples: of classes no |g| and no h is above 1. Other losses have no such bound."""
        assert reply.vector is not None
        grove = Grove(layout, reply.vector.clone())
        stage = grove.stage(self.own)
        if stage not in ("base", "level") or not known.classes:
            return ""
        shape = grove.shape(stage, self.own)
        sums = UNIT * grove.sums[: int(np.prod(shape))].reshape(shape).astype(np.float64)
        added = np.abs(sums).sum(axis=(1, 3)) if stage == "level" else np.abs(sums)  # over nodes and bins
        if added.max() > ROUNDED * known.train:
            return f"its sums add up to {added.max():.4g}, which is more than its {known.train} samples can"
        return "its second derivatives are below 0" if sums[..., 1].min() < 0 else ""

    def stays(self, layout: Layout) -> Tensor:
        """True for every column of a row that is not a sum: these do not travel to the server, and need no noise."""
        home = torch.ones(layout.size)
        layout.tensors(home)["sums"].zero_()
        return home.bool()

    def spared(self, layout: Layout) -> int:
        """The sums of a row that is sent are zero."""
        return int((~self.stays(layout)).sum())

    def expects(self, known: Known) -> dict[str, Stat]:
        return {"loss": Stat(low=known.lowest_loss)}

    def unfit(self, dataset: Dataset) -> str:
        return "it has no columns that a tree could split" if dataset.x.dtype == torch.int64 else ""


def mean(losses: NDArray[np.float64]) -> float:
    return float(losses.mean()) if len(losses) else 0.0
