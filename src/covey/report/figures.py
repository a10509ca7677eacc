"""Figures in one style, written to a PNG, SVG or PDF file: curves, bars, heat maps, graphs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from covey.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HUES = (
    "#1f6fb2",
    "#c8501b",
    "#12805c",
    "#a8478f",
    "#a37200",
    "#2b86a8",
    "#6a4fb0",
    "#5f6b7a",
    "#b03a4f",
    "#5c7f1a",
)
DASHES = ("-", "--", ":", "-.")
INK, SOFT, LINE = "#1c2430", "#5a6370", "#e5e2da"
HEAT = ("#f1f3f4", "#9dbdd8", "#2f7ab5", "#0b3d68")
FORMATS = (".png", ".svg", ".pdf")
MOST_ARROWS = 300
STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.left": False,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.hashsalt": "covey",
}


@contextmanager
def one_picture(path: Path, size: tuple[float, float], title: str) -> Iterator["Axes"]:
    """Axes in the common style; the file appears only when the whole picture is drawn."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: a figure's file name must end in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist.")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        if title:
            axes.set_title(title, pad=10)
        yield axes
        part = path.with_name(f"{path.stem}.part{path.suffix}")
        # Without the date the same figure gives the same bytes.
        figure.savefig(part, metadata={"Date": None} if path.suffix == ".svg" else None)
        part.replace(path)


def hue(place: int) -> str:
    """The colour of the n-th line, bar or group; -1 is grey."""
    return HUES[place % len(HUES)] if place >= 0 else HUES[7]


def draw_curves(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    path: Path,
    x_label: str = "round",
    y_label: str = "",
    title: str = "",
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    singles: Mapping[str, Sequence[ArrayLike]] | None = None,
    log_x: bool = False,
) -> None:
    """One line per name from its (x, y); `bands` are (low, high) around a line, `singles` thin lines beside it."""
    with one_picture(path, (7.0, 4.0), title) as axes:
        for place, (name, (x, y)) in enumerate(curves.items()):
            style = DASHES[place // 5 % len(DASHES)]
            axes.plot(
                np.asarray(x), np.asarray(y), color=hue(place), label=name, linewidth=2, linestyle=style
            )
            if bands and name in bands:
                low, high = bands[name]
                axes.fill_between(
                    np.asarray(x), np.asarray(low), np.asarray(high), color=hue(place), alpha=0.15, lw=0
                )
            for single in (singles or {}).get(name, ()):
                axes.plot(np.asarray(x), np.asarray(single), color=hue(place), linewidth=0.7, alpha=0.55)
        if log_x:
            axes.set_xscale("log")
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.margins(x=0.01)
        if len(curves) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_bars(bars: Mapping[str, float], *, path: Path, y_label: str = "", title: str = "") -> None:
    """One bar per name; `y_label` names the values."""
    names = list(bars)
    rows = np.arange(len(names))[::-1]
    with one_picture(path, (7.0, 1.2 + 0.42 * len(names)), title) as axes:
        hues = [hue(place) for place in range(len(names))]
        drawn = axes.barh(rows, list(bars.values()), color=hues, height=0.62)
        axes.bar_label(
            drawn, labels=[f"{value:.4g}" for value in bars.values()], padding=6, color=INK, fontsize=9
        )
        axes.set_yticks(rows, names)
        axes.set_xlabel(y_label)
        axes.grid(axis="x", color=LINE)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.14)


def draw_heatmap(values: ArrayLike, *, path: Path, x_labels: Sequence[str], title: str = "") -> None:
    """A matrix as shades, rows downwards; small matrices with their numbers inside."""
    from matplotlib.colors import LinearSegmentedColormap

    table = np.asarray(values, dtype=np.float64)
    rows, columns = table.shape
    size = (min(14.0, max(4.0, 1.6 + 0.42 * columns)), min(12.0, max(2.6, 1.2 + 0.22 * rows)))
    with one_picture(path, size, title) as axes:
        shades = LinearSegmentedColormap.from_list("covey", HEAT)
        image = axes.imshow(table, cmap=shades, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        rotated = max((len(name) for name in x_labels), default=0) > 4
        axes.set_xticks(
            range(columns), x_labels, rotation=60 if rotated else 0, ha="right" if rotated else "center"
        )
        axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).outline.set_visible(False)
        if table.size <= 144:
            middle = (np.nanmin(table) + np.nanmax(table)) / 2
            for (row, column), value in np.ndenumerate(table):
                ink = "white" if value > middle else INK
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", color=ink, fontsize=8)


def circle(
    things: Sequence[Any], centre: tuple[float, float] = (0.0, 0.0), radius: float = 1.0
) -> dict[Any, tuple[float, float]]:
    """Things clockwise on a circle, the first at the top or nearest to the origin; a single one in the middle."""
    first = np.arctan2(-centre[1], -centre[0]) if any(centre) else np.pi / 2
    turns = first - 2 * np.pi * np.arange(len(things)) / max(len(things), 1)
    reach = radius if len(things) > 1 else 0.0
    return {
        thing: (centre[0] + reach * float(np.cos(turn)), centre[1] + reach * float(np.sin(turn)))
        for thing, turn in zip(things, turns, strict=True)
    }


def draw_graph(
    nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]], *, path: Path, title: str = ""
) -> None:
    """A graph as the note "graph" holds it: groups on a circle, links as wide as their load, heads outlined.

    A link that goes one way only has an arrow in its middle.
    """
    from matplotlib.collections import LineCollection

    groups = list(dict.fromkeys(node.get("group", 0) for node in nodes))
    heads_first = sorted(nodes, key=lambda node: not node.get("head", False))
    members = {g: [node["id"] for node in heads_first if node.get("group", 0) == g] for g in groups}
    if 1 < len(groups) <= len(nodes) / 2:
        small = min(0.4, 2.2 / len(groups))
        at = {
            i: p for g, centre in circle(groups).items() for i, p in circle(members[g], centre, small).items()
        }
    else:
        at = circle([node["id"] for node in nodes])
    with one_picture(path, (6.4, 6.4), title) as axes:
        most = max((edge.get("load", 1) for edge in edges), default=1) or 1
        lines = [(at[edge["from"]], at[edge["to"]]) for edge in edges]
        widths = [0.3 + 3 * edge.get("load", 1) / most for edge in edges]
        axes.add_collection(
            LineCollection(lines, linewidths=widths, colors=SOFT, alpha=0.15 if len(edges) > 300 else 0.45)
        )
        known = {(edge["from"], edge["to"]) for edge in edges}
        for a, b in sorted((a, b) for a, b in known if (b, a) not in known)[:MOST_ARROWS]:
            start, end = np.array(at[a]), np.array(at[b])
            axes.annotate(
                "",
                xy=tuple(start + 0.55 * (end - start)),
                xytext=tuple(start + 0.5 * (end - start)),
                arrowprops={"arrowstyle": "-|>", "color": SOFT},
            )
        points = np.array([at[node["id"]] for node in nodes])
        outlines = [INK if node.get("head") else "white" for node in nodes]
        sizes = [(2 if node.get("head") else 1) * max(12, 3600 / len(nodes)) for node in nodes]
        hues = [hue(node.get("group", 0)) for node in nodes]
        axes.scatter(
            points[:, 0], points[:, 1], c=hues, s=sizes, edgecolors=outlines, linewidths=1.4, zorder=2
        )
        axes.set_aspect("equal")
        axes.margins(0.08)
        axes.set_axis_off()
