"""What a model answers: classes by name with their probabilities, or values; and what gave the answers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import UserError


class Answers(np.ndarray[Any, Any]):
    """An array of class names, or of values, one for each sample.

    `probabilities` has a row for each sample and a column for each of `classes` (None where there are no classes), and
    `given` says in a sentence which model it was.
    """

    probabilities: NDArray[np.float32] | None
    classes: tuple[str, ...]
    given: str

    def __array_finalize__(self, whole: Any) -> None:
        self.probabilities, self.classes, self.given = None, (), getattr(whole, "given", "")

    @classmethod
    def of(cls, outputs: Tensor, classes: Sequence[str], given: str) -> Answers:
        """Of what a model puts out: logits where there are classes, values elsewhere."""
        found: Answers
        by_class = bool(classes) and outputs.dim() == 2 and outputs.shape[1] == len(classes)
        if by_class:
            found = np.array(classes)[outputs.argmax(1).numpy()].view(cls)
            found.probabilities = torch.softmax(outputs, 1).numpy()
            found.classes = tuple(classes)
        else:
            found = outputs.squeeze(-1).numpy().view(cls)
        found.given = given
        return found

    def csv(self, names: Sequence[str] = (), beside: Mapping[str, Sequence[Any]] | None = None) -> str:
        """A line for each sample: its number from 1 (or its name), the answer, and the probability of each class.

        `beside` are columns that stand between the number and the answer, such as the samples' IDs.
        """
        beside = beside or {}
        said = ["answer", *(f"p({name})" for name in self.classes)]
        if twice := [name for name in beside if name in ("sample", *said)]:
            raise UserError(
                f"the rows have a column {twice[0]!r}, which the answers have, too: rename it or leave it out"
            )
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["sample", *beside, *said])
        shares = self.probabilities if self.probabilities is not None else np.zeros((len(self), 0))
        values = self.reshape(len(self), -1).tolist()
        for place, (value, row) in enumerate(zip(values, shares, strict=True)):
            sample = names[place] if names else place + 1
            numbers = [f"{one:.7g}" if isinstance(one, float) else one for one in value]
            answer = numbers[0] if len(numbers) == 1 else " ".join(numbers)
            more = [cells[place] for cells in beside.values()]
            lines.writerow([sample, *more, answer, *(f"{share:.6f}" for share in row)])
        return text.getvalue()
