"""How many files and lines each room of covey has: `python -m benchmarks.lines_per_room [COMMIT]`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import PurePosixPath


def git(*words: str) -> str:
    return subprocess.run(("git", *words), capture_output=True, text=True, check=True).stdout


def main(commit: str = "HEAD") -> None:
    """Prints a row per room, the largest first; what lies beside the rooms is "root"."""
    files, lines = Counter[str](), Counter[str]()
    for name in git("ls-tree", "-r", "--name-only", commit, "src/covey").splitlines():
        path = PurePosixPath(name)
        if path.suffix == ".py":
            room = path.parts[2] if len(path.parts) > 3 else "root"
            files[room] += 1
            lines[room] += git("show", f"{commit}:{name}").count("\n")
    for room, count in (*lines.most_common(), ("all", lines.total())):
        print(f"{room:12} {files[room] or files.total():5} files {count:7,} lines")


if __name__ == "__main__":
    main(*sys.argv[1:2])
