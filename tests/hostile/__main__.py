"""`python -m tests.hostile [SUBJECT ...]`: all tries, or those of some files, and a table of what became of them."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.hostile.frame import Result, carried_out, subjects, table, tries_of


def main(wanted: list[str]) -> int:
    """Runs the tries; 1 where one did harm."""
    unknown = set(wanted) - set(subjects())
    if unknown:
        print(f"no subject is called {', '.join(sorted(unknown))}; allowed: {', '.join(subjects())}")
        return 2
    rows: list[tuple[str, Result]] = []
    for subject in wanted or subjects():
        for one in tries_of(subject):
            print(f"{subject}: {one.what} ...", file=sys.stderr, flush=True)
            rows.append((subject, carried_out(one)))
    print(table(rows))
    harm = [result for _, result in rows if not result.outcome.held]
    print(f"\n{len(rows) - len(harm)} of {len(rows)} tries did no harm")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
