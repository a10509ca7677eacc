"""Figures that only papers have, in covey's style: scatters, grids of images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from covey.errors import UserError
from covey.report.figures import hue, one_picture


def draw_scatter(
    x: ArrayLike,
    y: ArrayLike,
    *,
    path: Path,
    groups: Sequence[int] | None = None,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
) -> None:
    """Points coloured by group; -1 (no group) is grey."""
    across, up = np.asarray(x), np.asarray(y)
    labels = np.zeros(len(across), dtype=np.int64) if groups is None else np.asarray(groups)
    kinds = np.unique(labels).tolist()
    with one_picture(path, (5.6, 4.4), title) as axes:
        for group in kinds:
            here = labels == group
            name = f"group {group}" if group >= 0 else "no group"
            axes.scatter(across[here], up[here], color=hue(group), s=26, alpha=0.85, linewidths=0, label=name)
        axes.set(xlabel=x_label, ylabel=y_label)
        if 1 < len(kinds) <= 16:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_image_grid(
    images: ArrayLike,
    *,
    path: Path,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str = "",
) -> None:
    """Images [rows, columns, height, width] or [..., 3] side by side, values from 0 to 1."""
    pictures = np.clip(np.asarray(images, dtype=np.float64), 0, 1)
    if pictures.ndim not in (4, 5):
        raise UserError(
            f"An image grid needs rows x columns x height x width, but the shape is {pictures.shape}."
        )
    rows, columns, height, width = pictures.shape[:4]
    # One sheet with white lines between: a single picture stays sharp and is quick for any number of images.
    sheet = np.ones((rows * (height + 2) - 2, columns * (width + 2) - 2, *pictures.shape[4:]))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + 2), column * (width + 2)
            sheet[top : top + height, left : left + width] = pictures[row, column]
    with one_picture(path, (1.2 + 0.85 * columns, 0.6 + 0.85 * rows), title) as axes:
        axes.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        middles = [row * (height + 2) + height / 2 for row in range(rows)]
        axes.set_yticks(middles if row_labels else [], row_labels or [])
        middles = [column * (width + 2) + width / 2 for column in range(columns)]
        axes.set_xticks(middles if column_labels else [], column_labels or [])
        axes.tick_params(length=0)
