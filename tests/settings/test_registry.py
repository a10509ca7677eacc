"""Anybody's own things by name: built in, an installed package, a module, a file."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from dataclasses import is_dataclass
from importlib import metadata
from pathlib import Path

import pytest

from covey.core.protocols import Step
from covey.errors import UserError
from covey.settings import catalogue
from covey.settings.own_code import bare_name, file_and_name, full_name, own_place
from covey.settings.registry import Registry, only_installed, registered

KINDS = {name: value for name, value in vars(catalogue).items() if isinstance(value, Registry)}


def things() -> Registry[object]:
    return Registry("thing", "covey.things", {"answer": "math:pi"})


def package(folder: Path, name: str, code: str, entry: str = "") -> None:
    """An installed package, as pip would leave it."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    if entry:
        (info / "entry_points.txt").write_text(f"[covey.things]\n{entry} = {name}:{entry}\n")


@pytest.fixture(autouse=True)
def _clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_built_in_can_be_found(kind: str) -> None:
    registry = KINDS[kind]
    assert registry.group.startswith("covey.")
    for name in registry.builtin:
        assert registry.find(name) is not None
        assert registry.origin(name) is None


def test_every_step_of_covey_is_in_the_catalogue() -> None:
    found = {}
    for home in ("parts", "privacy", "methods", "fleet.heterogeneity"):
        package_ = importlib.import_module(f"covey.{home}")
        for module in pkgutil.walk_packages(package_.__path__, f"{package_.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                here = isinstance(value, type) and value.__module__ == module.name
                if here and is_dataclass(value) and Step in value.__mro__ and value.kind:
                    found[value.__qualname__] = value
    del found["TakeServed"]  # gives a client's own model away: no server may ask a site for it
    del found["UnitOfWork"]  # is never asked: what it would cost tells how heterogeneous the devices are
    assert {name: catalogue.STEPS[name] for name in catalogue.STEPS.builtin} == found


def test_the_catalogue_imports_nothing_heavy() -> None:
    code = "import sys, covey.settings.catalogue; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_is_built_in_before_it_is_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "lies_here", "answer = 42", entry="answer")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert things()["answer"] == pytest.approx(3.14159, abs=1e-5)


def test_an_entry_point_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "brings_things", "other = 42", entry="other")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = things()
    assert registry.find("other") == 42
    assert list(registry) == ["answer", "other"]
    origin = registry.origin("other")
    assert origin is not None
    assert origin.source == "brings_things 1.2"
    assert len(origin.sha256) == 64


def test_a_module_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "some_module", "it = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text("it = 2")
    registry = things()
    assert registry.find("some_module:it") == 1
    assert registry.find(f"{tmp_path}/mine.py:it") == 2
    monkeypatch.chdir(tmp_path)
    assert registry.find("mine.py:it") == 2
    origin = registry.origin("mine.py:it")
    assert origin is not None
    assert origin.source == str(tmp_path / "mine.py")


def test_an_edited_file_counts_and_has_another_hash(tmp_path: Path) -> None:
    name = f"{tmp_path}/mine.py:it"
    (tmp_path / "helper_of_mine.py").write_text("value = 1")
    (tmp_path / "mine.py").write_text("from helper_of_mine import value\nit = value")
    registry = things()
    assert registry.find(name) == 1
    first = registry.origin(name)
    (tmp_path / "helper_of_mine.py").write_text("value = 22")  # also what lies beside it is its source
    second = registry.origin(name)
    assert first is not None
    assert second is not None
    assert first.sha256 != second.sha256
    assert registry.find(name) == 22


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("it = (", "mine.py, line 1: SyntaxError"),
        ("x = 1\nit = 1 / 0", "mine.py, line 2: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all", "mine.py, line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("other = 3\ndef third(): ...", "has no 'it'; it has other, third"),
        ("raise SystemExit(3)", "mine.py, line 1: SystemExit: 3"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_file_and_line(
    tmp_path: Path, code: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(UserError) as error:
        things().find(f"{tmp_path}/mine.py:it")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mistake_in_an_installed_package_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "broken_things", "other = 1\nother += 'a'", entry="other")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"thing 'other': .*broken_things.py, line 2: TypeError"):
        things().find("other")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("answr", "did you mean answer"),
        ("nowhere.py:it", "nowhere.py does not exist"),
        ("mine.py", "say which thing in it: mine.py:NAME"),
        ("no_such_package.mod:it", "there is no module 'no_such_package.mod'"),
        ("mine.py:two words", "must look like"),
        (["answer"], "must be text"),
        ({"name": "answer"}, "must be text"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        things().find(name)


def test_a_site_finds_only_what_is_installed_there_or_allowed_by_its_own_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "at_the_site", "other = 42", entry="other")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text("import pathlib\npathlib.Path('ran').write_text('')\nit = 2")
    monkeypatch.chdir(tmp_path)
    registry = things()
    with only_installed({"allowed": "mine.py:it"}):
        assert registry.find("answer")
        assert registry.find("other") == 42
        for name in ("mine.py:it", "at_the_site:other", "os:system"):
            with pytest.raises(UserError, match="not known"):
                registry.find(name)
        assert not Path("ran").exists()
        assert registry.find("allowed") == 2
    assert registry.find("mine.py:it") == 2


def test_names_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_and_name("a/b.py:c") == ("a/b.py", "c")
    assert file_and_name("fedavg") == ("", "fedavg")
    assert bare_name("a.b:c") == "c"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "mine.py").write_text("")
    assert full_name("fedavg") == "fedavg"
    assert full_name("a.b:c") == "a.b:c"
    assert full_name("mine.py:c", tmp_path / "beside") == f"{tmp_path}/beside/mine.py:c"
    assert full_name("mine.py:c") == f"{tmp_path}/mine.py:c"


def test_the_line_of_a_mistake_while_a_thing_works(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def it():\n    return {}['x']")
    it = things().find(f"{tmp_path}/mine.py:it")
    with pytest.raises(KeyError) as error:
        it()  # type: ignore[operator]
    assert own_place(error.value) == f"{tmp_path / 'mine.py'}, line 2"
    assert own_place(KeyError()) == ""


def test_no_package_of_this_environment_takes_a_built_in_name() -> None:
    for registry in KINDS.values():
        names = [point.name for point in metadata.entry_points(group=registry.group)]
        assert not set(names) & set(registry.builtin)


def test_a_methods_line_says_its_family_and_its_paper() -> None:
    mark = registered()["method"]["scaffold"]
    assert mark == (
        "covey.methods.scaffold:scaffold",
        "drift",
        "https://arxiv.org/abs/1910.06378",
    )
    papers = [mark.paper for mark in registered()["method"].values() if mark.paper]
    assert len(papers) > 40
    assert all(paper.startswith("https://") for paper in papers)
