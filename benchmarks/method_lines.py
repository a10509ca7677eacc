"""How long the methods are: `python -m benchmarks.method_lines`, a table in Markdown.

Lines of code: without empty lines, comments and docstrings. The composition is the function that a user names; what
is the paper's own is in the same file or in a part (`benchmarks.files_per_paper` lists those), so that a short file may
stand on long parts; the last column says how many files of parts the file imports.
"""

from __future__ import annotations

import ast
import inspect
import io
import statistics
import tokenize
from pathlib import Path

from benchmarks.files_per_paper import ROOMS, SOURCES, imported
from covey.settings.catalogue import METHODS

SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines with code on them."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0]
            if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            used |= set(range(token.start[0], token.end[0] + 1))
    return len(used - prose)


def main() -> None:
    files: dict[str, dict[str, int]] = {}
    for name, maker in METHODS.items():
        function = inspect.unwrap(maker)
        file = Path(inspect.getfile(function)).relative_to(SOURCES)
        files.setdefault(str(file), {})[name] = code_lines(inspect.getsource(function))
    whole = {file: code_lines((SOURCES / file).read_text()) for file in files}
    print(
        "| file | lines | methods, and lines of each one's composition | parts |\n| --- | --- | --- | --- |"
    )
    for file in sorted(files, key=lambda file: (whole[file], file)):
        parts = [module for module in imported(SOURCES / file) if module.startswith(ROOMS)]
        methods = ", ".join(f"`{name}` {lines}" for name, lines in files[file].items())
        print(f"| `{Path(file).name}` | {whole[file]} | {methods} | {len(parts)} |")
    lines = [count for methods in files.values() for count in methods.values()]
    print(
        f"\n{len(lines)} methods in {len(files)} files of `src/covey/methods/`: a composition has "
        f"{statistics.median(lines):g} lines at the median and {max(lines)} at most, a file "
        f"{statistics.median(whole.values()):g} and {max(whole.values())}."
    )


if __name__ == "__main__":
    main()
