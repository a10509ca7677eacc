"""The network for tables: a linear model, and beside it a small perceptron for what a line cannot say."""

from math import prod

from torch import Tensor, nn

from covey.settings.ranges import PartBelowOne, Width
from covey.settings.registry import register


class Tabular(nn.Module):
    """W x + b + V relu(U x + c), with dropout behind the relu; W, b and V start at zero.

    At first it is logistic (or linear) regression that has seen nothing; the perceptron learns what that leaves over.
    Of a category, which is one input per value, the columns of U are its embedding.
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: int, dropout: float) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(inputs, outputs)
        self.inside = nn.Linear(inputs, hidden)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.outside = nn.Linear(hidden, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All but the inner half of the perceptron starts at zero."""
        self.inside.reset_parameters()
        for layer in (self.linear, self.outside):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.flatten(x)
        out: Tensor = self.linear(x) + self.outside(self.dropout(self.relu(self.inside(x))))
        return out


@register("model", "tabular")
def tabular(
    input_shape: tuple[int, ...], outputs: int, *, hidden: Width = 32, dropout: PartBelowOne = 0.2
) -> Tabular:
    """A linear model and a small perceptron side by side, for the rows of a table.

    Args:
        hidden: width of the perceptron.
        dropout: share of its hidden values that is left out in training.
    """
    return Tabular(prod(input_shape), outputs, hidden=hidden, dropout=dropout)
