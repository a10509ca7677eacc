"""`covey look`: who holds which data."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from covey.cli.command import FleetOptions
from covey.cli.run import gathered_tables
from covey.terminal import Console, say

if TYPE_CHECKING:
    import numpy as np

MOST_ROWS = 40  # clients shown in the terminal; the picture shows all
LONGEST_NAME = 24


def look(
    file: Path | None = None,
    *,
    fleet: FleetOptions = FleetOptions(),
    png: Path | None = None,
) -> None:
    """Draw the partition: clients down, labels across, the darker the more; and say how heterogeneous the clients
    are.

    Args:
        png: also draw it into this picture.
    """
    from covey.fleet.heterogeneity.measure import HeterogeneityMeasure, measure_heterogeneity, of_simulation
    from covey.runs.advise import numbers
    from covey.runs.config import fleet_of, resolve

    here = fleet_of(resolve(gathered_tables(file, fleet)), say)
    federation = here.data
    counts = federation.label_counts()
    classes = list(federation.dataset.classes)
    names = [share.name or str(number) for number, share in enumerate(islice(federation.shares, MOST_ROWS))]
    sizes, tests = federation.sizes().T.tolist()
    Console().print_whole(drawn(counts, classes, names, sizes))
    Console().print(
        f"{len(sizes)} client{'s' if len(sizes) != 1 else ''}; training samples {min(sizes)} to {max(sizes)}; "
        f"local test samples {min(tests)} to {max(tests)}",
    )
    if len(federation.shares) > 1:
        found = (
            measure_heterogeneity(here).measures()
            if classes
            else {
                name: HeterogeneityMeasure(value, value, value) for name, value in of_simulation(here).items()
            }
        )
        for line in numbers(found):
            Console().print(line, soft_wrap=True, highlight=False, markup=False)
    here.close()
    if png is not None:
        from covey.report.figures import draw_heatmap

        draw_heatmap(counts, path=png, x_labels=classes, title="training samples by client and label")
        Console(stderr=True).print(f"picture: {png}")


def drawn(counts: np.ndarray, classes: list[str], names: list[str], sizes: list[int]) -> Table:
    """The counts by class of the first clients, under these names, as shaded cells; and how many samples each has."""
    room = Console().width - LONGEST_NAME - 9  # beside the clients and "samples"
    wide = min(max(4, room // max(1, len(classes)) - 1), max(4, *map(len, classes))) if classes else 4
    table = Table(box=None, padding=0, pad_edge=False)
    table.add_column("client", justify="right", max_width=LONGEST_NAME, no_wrap=True)
    for name in classes:
        table.add_column(Text(f"{name[:wide]:>{wide + 1}}"))
    table.add_column(Text("  samples"), justify="right")
    top = max(1, int(counts.max())) if counts.size else 1
    for client, row, size in zip(names, counts, sizes, strict=False):
        cells = [Text(f"{count or '.':>{wide + 1}}", style=shade(count / top)) for count in row.tolist()]
        table.add_row(client, *cells, str(size))
    if len(counts) > MOST_ROWS:
        table.caption = f"the first {MOST_ROWS} of {len(counts)} clients; --png draws all"
    return table


def shade(share: float) -> str:
    """A style from nothing (0) to full (1)."""
    level = 235 + min(20, int(20 * share**0.5))
    return f"{'black' if level > 245 else 'white'} on color({level})" if share else "dim"
