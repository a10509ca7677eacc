"""`python -m tests.hostile [SUBJECT ...]`: all tries, or those of some files, each a line of a table as it ends.

HOSTILE_SECONDS (1200) bounds the time of all; HOSTILE_PAGE is a page into which the table is written as well, between
its marks.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.hostile.frame import HEAD, carried_out, line_of, subjects, table

MARK, END = "<!-- hostile -->", "<!-- end -->"


def main(wanted: list[str]) -> int:
    """Runs the tries; 1 where one did harm."""
    unknown = set(wanted) - set(subjects())
    if unknown:
        print(f"no subject is called {', '.join(sorted(unknown))}; allowed: {', '.join(subjects())}")
        return 2
    began = time.monotonic()
    print(HEAD, flush=True)
    rows = carried_out(
        wanted or subjects(),
        seconds=float(os.environ.get("HOSTILE_SECONDS", "1200")),
        told=lambda result: print(line_of(result), flush=True),
    )
    harm = [result for result in rows if not result.outcome.held]
    took = f"{(time.monotonic() - began) / 60:.1f} minutes"
    sum_of_all = f"{len(rows) - len(harm)} of {len(rows)} tries did no harm; they took {took}."
    print(f"\n{sum_of_all}")
    if page := os.environ.get("HOSTILE_PAGE"):
        before, _, rest = Path(page).read_text().partition(MARK)
        Path(page).write_text(f"{before}{MARK}\n{table(rows)}\n\n{sum_of_all}\n{END}{rest.partition(END)[2]}")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
