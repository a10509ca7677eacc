"""Somebody's own code: modules and files loaded by name, the hash of their sources, and mistakes as one sentence."""

import hashlib
import importlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from covey.errors import UserError, user_error
from covey.settings.passwords import without_password


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedFile:
    """A file as a module, with the names of what it imported from beside it and the hash of all of that."""

    module: ModuleType
    beside: tuple[str, ...]
    sha256: str


GIVEN = "given:"  # begins the names of objects that a Python program gave: given:NAME@DIGEST
_FILES: dict[Path, LoadedFile] = {}
_ROOTS: set[Path] = set()  # files and package folders that own things were loaded from


def file_and_name(name: str) -> tuple[str, str]:
    """`path/to/mine.py:scaffold` -> its place and the bare name; a name without a place has none."""
    place, colon, bare = name.rpartition(":")
    return (place, bare) if colon else ("", name)


def bare_name(name: str) -> str:
    """What to call a thing in a table or in a folder's name, wherever it came from."""
    bare = file_and_name(name)[1]
    return bare.rpartition("@")[0] if name.startswith(GIVEN) else bare


def data_name(name: str, path: object = None) -> str:
    """What to call somebody's data: those of a file or a folder as it is called."""
    return (Path(str(path)).name if path else "") or bare_name(name)


def is_file(place: str) -> bool:
    """Whether the place of a name is a file rather than a module."""
    return place.endswith(".py")


def full_name(name: str, base: Path | None = None) -> str:
    """The name with its file's absolute path (looked for in `base`, then here), so that it holds from any folder."""
    place, bare = file_and_name(name)
    if not is_file(place):
        return name
    beside = base / place if base is not None else Path(place)
    return f"{(beside if beside.is_file() else Path(place)).resolve()}:{bare}"


def load_own(name: str, what: str) -> Any:
    """The thing that `package.module:name` or `path/to/file.py:name` says; `what` begins the sentence of a mistake."""
    place, bare = file_and_name(name)
    if not place or not bare.isidentifier():
        raise UserError(
            f"{what} must look like package.module:NAME or path/to/file.py:NAME, with the name of something in it"
        )
    module = load_file(Path(place), what).module if is_file(place) else load_module(place, what)
    if not hasattr(module, bare):
        raise UserError(f"{what}: {place} has no {bare!r}; it has {', '.join(_public(module)) or 'nothing'}")
    return getattr(module, bare)


def _public(module: ModuleType) -> list[str]:
    """The names of what a module defines itself."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
        and not isinstance(value, ModuleType)
    )


def load_module(name: str, what: str) -> ModuleType:
    """A module that Python finds, also from the folder where the command was given."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    with one_sentence(what):
        try:
            spec = importlib.util.find_spec(name)
        except (ModuleNotFoundError, ValueError):
            spec = None
        if spec is None:
            raise UserError(f"{what}: there is no module {name!r}; is its package installed?")
        top = importlib.util.find_spec(name.partition(".")[0])
        _ROOTS.update(Path(folder) for folder in (top and top.submodule_search_locations) or ())
        _ROOTS.add(Path(spec.origin or name))
        return importlib.import_module(name)


def load_file(path: Path, what: str = "") -> LoadedFile:
    """A file as a module: once for each state of its text, so that an edited file counts in a notebook."""
    path = path.resolve()
    if not path.is_file():
        raise UserError(": ".join(filter(None, (what, f"{path} does not exist"))))
    known = _FILES.get(path)
    if known is not None and known.sha256 == hash_of(_beside(path, known.beside)):
        return known
    # A name of its own in sys.modules, so that worker processes find what is defined in it.
    name = f"covey_own_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    for other in (name, *(known.beside if known else ())):
        sys.modules.pop(other, None)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:  # last: a file beside it never hides an installed package
        sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    linecache.checkcache(str(path))
    _ROOTS.add(path)
    before = set(sys.modules)
    sys.modules[name] = module
    try:
        with one_sentence(what), _no_bytecode():
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    new = tuple(sorted(set(sys.modules) - before - {name}))
    files = _beside(path, new)
    _ROOTS.update(files)
    beside = tuple(other for other in new if _file_of(other) in files)
    _FILES[path] = LoadedFile(module=module, beside=beside, sha256=hash_of(files))
    return _FILES[path]


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Writes no bytecode beside a user's files: it is dated to the second, and an edit may follow within one."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _beside(path: Path, modules: Iterable[str]) -> list[Path]:
    """The file, and those of the modules that lie beside or below it."""
    files = {file for name in modules if (file := _file_of(name)) and file.is_relative_to(path.parent)}
    return sorted(files | {path})


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    # torch.classes says "_classes.py", which does not exist
    return Path(file).resolve() if file and file.endswith(".py") and Path(file).is_file() else None


def is_own(module: str) -> bool:
    """Whether a module came with something that was loaded by name."""
    file = _file_of(module)
    return file is not None and any(file == root or file.is_relative_to(root) for root in _ROOTS)


def package_hash(module: str) -> str:
    """The hash of all Python files of the package that the module belongs to."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return hash_of(files or ([Path(spec.origin)] if spec and spec.origin else []))


def hash_of(files: Iterable[Path]) -> str:
    """The SHA-256 of some files with their names."""
    digest = hashlib.sha256()
    for file in files:
        with user_error(f"{file} cannot be read"):
            content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------- mistakes


@contextmanager
def one_sentence(what: str) -> Iterator[None]:
    """Turns whatever somebody's own lines raise into a sentence with file and line."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(": ".join(filter(None, (what, said(error))))) from error


def said(error: BaseException) -> str:
    """An exception in one sentence, with the file and the line of somebody's own where it happened."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = str(error).splitlines()
    words = without_password(type(error).__name__ + (f": {lines[0]}" if lines else ""))
    place = own_place(error)
    return f"{place}: {words}" if place else words


def own_place(error: BaseException) -> str:
    """The last line of somebody's own that an exception passed through, as `file, line 3`; "" if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if any(file == root or file.is_relative_to(root) for root in _ROOTS):
            return f"{file}, line {frame.lineno}"
    return ""
