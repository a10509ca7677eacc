"""`covey doctor`: what is here, what is not, and the command for it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from covey.cli import doctor
from covey.cli.command import add
from covey.errors import RunError
from covey.training.bench import lanes_bench


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    add(app, doctor.doctor)
    return app


def output(app: typer.Typer, *words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_what_is_there_has_its_version_and_what_is_missing_its_command(
    command: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    there = {"numba": "0.68.1", "flwr": None, "opendp": "1.0", "dp-accounting": "1.0"}
    monkeypatch.setattr(doctor, "version_of", lambda name: there.get(name, "9.9"))
    wanted = {"fast": ["numba"], "flower": ["flwr", "opendp"]}
    monkeypatch.setattr(doctor, "packages_of_extras", lambda: wanted)
    text = output(command)
    assert f"PyTorch       {torch.__version__}" in text
    assert "numba 0.68.1 (small models many times faster" in text
    assert "missing flwr (real sites): pip install 'covey[flower]'" in text
    assert "cores" in text


def test_the_extras_are_those_of_the_package() -> None:
    """Not where covey is run from its sources without being installed."""
    found = doctor.packages_of_extras()
    if not found:
        pytest.skip("covey is not installed here")
    assert found["fast"] == ["numba"]
    assert set(doctor.EXTRAS) <= set(found)


def test_data_that_are_found_are_named(
    command: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    assert "found         none" in output(command)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(b"")
    assert "found         mnist" in output(command)


def test_kernels_are_compiled_on_request(command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: "1.0")
    built: list[str] = []
    monkeypatch.setattr(lanes_bench, "is_compiled", lambda: bool(built))
    assert "not compiled yet for every model: covey doctor --compile" in output(command)
    monkeypatch.setattr(lanes_bench, "compile_kernels", lambda say: built.append("now"))
    assert "the fast trainer is compiled" in output(command, "--compile")
    assert built == ["now"]


def test_without_numba_the_command_for_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    assert "pip install 'covey[fast]'" in doctor.fast_trainer()
    with pytest.raises(RunError, match="needs numba"):
        doctor.compiled_now()
