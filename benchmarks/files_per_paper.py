"""How many files one opens to read a paper's method: `python -m benchmarks.files_per_paper`.

From the method's folder on, every file of covey that it imports and that is a method's or a part of one
counts (methods, parts); the round itself, settings, data and engines are read once for all papers and do not.
"""

from __future__ import annotations

import ast
from pathlib import Path

import covey

PAPERS = {
    "cafa": "cafa",
    "topologies": "topologies",
    "embedding": "embedding",
    "haccs": "haccs",
    "cfic": "cfic",
    "covey": "covey",
}
ROOMS = ("methods", "parts", "training.models.encoders")
SOURCES = Path(covey.__file__).parent


def imported(file: Path) -> set[str]:
    """The modules of covey that a file imports when it runs; not those for the type checker only."""
    tree = ast.parse(file.read_text())
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("covey.")
            and id(node) not in hidden
        ):
            found.add(str(node.module).removeprefix("covey."))
    return found


def file_of(module: str) -> Path | None:
    place = SOURCES / module.replace(".", "/")
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def opened(method: str) -> list[str]:
    """The files that belong to a method's idea, itself first."""
    found, waiting = [], [f"methods.{method}"]
    while waiting:
        module = waiting.pop(0)
        file = file_of(module)
        if module in found or file is None or not module.startswith(ROOMS):
            continue
        found.append(module)
        waiting += sorted(imported(file))
    return found


if __name__ == "__main__":
    for paper, method in PAPERS.items():
        files = opened(method)
        print(f"{paper:12} {len(files):3}  {' '.join(files)}")
