"""Which room imports which, as a picture: `python -m benchmarks.import_graph` writes docs/pictures/imports.png.

Rooms stand in the layers of docs/architecture.md; an arrow goes down to what is imported, the thicker the more files.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from benchmarks.files_per_paper import SOURCES, imported

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "imports.png"
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \|", re.M)


def layers() -> dict[str, int]:
    """Room -> layer, as docs/architecture.md says."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return {
        name.removesuffix("/").removesuffix(".py"): int(layer)
        for layer, names in ROW.findall(text)
        for name in re.findall(r"`([^`]+)`", names)
    }


def edges() -> Counter[tuple[str, str]]:
    """How many files of one room import another."""
    found: Counter[tuple[str, str]] = Counter()
    for file in SOURCES.rglob("*.py"):
        room = file.relative_to(SOURCES).parts[0].removesuffix(".py")
        others = {module.split(".")[0] for module in imported(file)}
        found.update((room, other) for other in others if other != room)
    return found


def sizes() -> Counter[str]:
    """Lines per room."""
    found: Counter[str] = Counter()
    for file in SOURCES.rglob("*.py"):
        room = file.relative_to(SOURCES).parts[0].removesuffix(".py")
        found[room] += len(file.read_text().splitlines())
    return found


def main() -> None:
    from matplotlib.figure import Figure

    level, lines = layers(), sizes()
    rows: dict[int, list[str]] = {}
    for room, layer in level.items():
        rows.setdefault(layer, []).append(room)
    place = {
        room: (3.0 * (at - (len(row) - 1) / 2) + 0.6 * (layer % 2), float(layer))
        for layer, row in rows.items()
        for at, room in enumerate(row)
    }
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.add_subplot()
    for (room, other), count in edges().items():
        if room in place and other in place:
            width = 0.4 + 2.6 * min(1.0, count / 60)
            arrow = {"arrowstyle": "->", "color": "#2a7f7f", "alpha": 0.35, "lw": width}
            axes.annotate("", xy=place[other], xytext=place[room], arrowprops=arrow)
    for room, (x, y) in place.items():
        box = {"boxstyle": "round", "fc": "white", "ec": "#2a7f7f"}
        axes.text(x, y, f"{room}\n{lines[room]:,}", ha="center", va="center", fontsize=9, bbox=box)
    axes.set_xlim(-8, 8)
    axes.set_ylim(-1, max(rows) + 1)
    axes.axis("off")
    axes.set_title("Rooms by layer, with their lines; arrows go to what is imported")
    figure.savefig(PICTURE, dpi=110)
    for room, count in lines.most_common():
        print(f"{room:12} {count:6,}")


if __name__ == "__main__":
    main()
