"""One name, one thing: a reader who finds a name in one room need not ask which of several it is."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "covey"


def module_of(path: Path) -> str:
    return ".".join(("covey", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def defined(tree: ast.Module) -> Iterator[str]:
    """The public names that a module gives to something at its top level."""
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def trees() -> dict[str, ast.Module]:
    return {module_of(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def homes() -> dict[str, set[str]]:
    """Which modules define each public name."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        for name in defined(tree):
            if not name.startswith("_"):
                found[name].add(module)
    return found


def test_a_type_has_a_name_of_its_own() -> None:
    twice = {name: sorted(rooms) for name, rooms in homes().items() if len(rooms) > 1}
    assert {name: rooms for name, rooms in twice.items() if re.match(r"[A-Z]\w*[a-z]", name)} == {}


def test_what_is_imported_by_one_name_is_one_thing() -> None:
    """Of commands, which are called as what they do, the library's function has the name, too."""
    users: dict[str, set[str]] = defaultdict(set)
    for tree in trees().values():
        for module, name in imports(tree):
            users[name].add(module)
    found = {
        name: sorted(rooms & users[name])
        for name, rooms in homes().items()
        if len({room for room in rooms & users[name] if not room.startswith("covey.cli")}) > 1
    }
    assert found == {}
