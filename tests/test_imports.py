"""The import graph keeps the layers that docs/architecture.md draws: a room knows only rooms below its own."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "covey"


@cache
def modules() -> dict[str, Path]:
    """Every module of covey by its name."""
    return {
        ".".join(("covey", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """All that can run, also inside functions. What stands under TYPE_CHECKING loads nothing: it names types in
    annotations, and a registry or a protocol may speak of what it is for."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from running(node)


def imported(path: Path) -> Iterator[str]:
    """What a file imports of covey, anywhere in it."""
    for node in running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (
                    [whole] if whole in modules() else [node.module] if node.module in modules() else []
                )


def room(module: str) -> str:
    """The part of covey that a module belongs to: its package, or itself where it is a file beside them."""
    return module.split(".")[1] if "." in module else module


@cache
def edges() -> dict[tuple[str, str], str]:
    """Which room imports which, with one module that does."""
    found = {}
    for module, path in modules().items():
        for other in imported(path):
            if room(module) != room(other):
                found[room(module), room(other)] = f"{module} imports {other}"
    return found


def layers() -> list[set[str]]:
    """The table "Layers" of docs/architecture.md, the lowest first."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split("## Rooms and layers", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| *-?\d+ *\|([^|]*)\|", table, flags=re.M)
    return [set(re.findall(r"`(\w+)", row)) for row in rows][::-1]


def test_no_room_imports_another_in_a_circle() -> None:
    graph = nx.DiGraph(list(edges()))
    assert not [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]


def test_the_drawn_layers_name_every_room_once() -> None:
    drawn = [name for layer in layers() for name in sorted(layer)]
    assert sorted(drawn) == sorted({room(module) for module in modules()} - {"covey"})


def test_a_room_imports_only_its_own_and_lower_layers() -> None:
    level = {name: number for number, layer in enumerate(layers()) for name in layer}
    level["covey"] = len(layers())  # `import covey` offers the public names of all rooms
    wrong = [
        how for (higher, lower), how in edges().items() if level[higher] < level[lower] and lower != "covey"
    ]
    assert not wrong


def test_the_root_is_imported_only_for_where_it_lies() -> None:
    users = [
        module
        for module, path in modules().items()
        if "covey" in set(imported(path)) and not re.search(r"covey\.__(file|path)__", path.read_text())
    ]
    assert users == []


def test_no_library_module_knows_the_command_line() -> None:
    importing = [how for (_, lower), how in edges().items() if lower == "cli"]
    assert importing == ["covey.__main__ imports covey.cli"]
    speaking = [
        module
        for module, path in modules().items()
        if room(module) != "cli" and re.search(r"--(out|set)\b", path.read_text())
    ]
    assert speaking == []


def test_lanes_stands_alone_and_is_known_to_one_file() -> None:
    of_lanes = [path for path in (ROOT / "src" / "lanes").rglob("*.py") if "covey" in path.read_text()]
    users = {
        module
        for module, path in modules().items()
        if re.search(r"^\s*(from|import) lanes\b", path.read_text(), flags=re.M)
    }
    assert (of_lanes, users) == ([], {"covey.training.bench.lanes_bench"})


LONGEST_BODY = 50


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_is_longer_than_a_page() -> None:
    found = [
        f"{path.relative_to(SOURCE).as_posix()} {node.name}"
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > LONGEST_BODY
    ]
    assert found == []
