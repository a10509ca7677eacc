"""Pictures that a study draws once it is known where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # name -> x and y


def of_curves(curves: Curves, *, x_label: str, y_label: str, title: str) -> Callable[[Path], None]:
    """Draws the curves into a path; the drawing library is imported only then."""

    def draw(path: Path) -> None:
        from covey.report.figures import draw_curves

        draw_curves(curves, path=path, x_label=x_label, y_label=y_label, title=title)

    return draw
