"""Tries are bounded: one that hangs or dies is ended and counts as harm, and so does what time was not left for."""

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.hostile import frame, mended
from tests.hostile.frame import Outcome, attempt, broke, carried_out, held, table


@attempt("it holds")
def good() -> Outcome:
    return held("well | done")


@attempt("it does harm")
def bad() -> Outcome:
    return broke("oh")


@attempt("it hangs", seconds=0.5)
def hanging() -> Outcome:
    threading.Event().wait()
    return held("never")


@attempt("it dies")
def dying() -> Outcome:
    os._exit(7)


@attempt("it raises")
def raising() -> Outcome:
    raise ZeroDivisionError("no way")


def subject(monkeypatch: pytest.MonkeyPatch, *tries: object) -> None:
    module = ModuleType("made_up")
    vars(module).update({f"try_{number}": one for number, one in enumerate(tries)})
    monkeypatch.setattr(frame.importlib, "import_module", lambda _: module)


def test_what_became_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    subject(monkeypatch, good, bad, hanging, dying, raising)
    results = {r.what: r.outcome for r in carried_out(["made-up"], seconds=600, told=lambda _: None)}
    assert results["it holds"] == held("well | done")
    assert results["it does harm"] == broke("oh")
    assert results["it hangs"] == broke("it did not end in 0 s")
    assert results["it dies"] == broke("its process died with code 7")
    assert results["it raises"].said.startswith("ZeroDivisionError: no way (test_frame.py:")


def test_all_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    long = attempt("it takes long", seconds=600)(lambda: hanging())
    subject(monkeypatch, long, good)
    began = time.monotonic()
    results = carried_out(["made-up"], seconds=1.0, told=lambda _: None, jobs=1)
    assert [r.outcome.held for r in results] == [False, False]
    assert results[1].outcome.said == "it was not begun within 1 s"
    assert time.monotonic() - began < 300


def test_the_table_is_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    subject(monkeypatch, good)
    lines = table(carried_out(["made-up"], seconds=600, told=lambda _: None)).splitlines()
    assert lines[2].startswith("| made-up | it holds | yes | well / done |")


def test_each_result_is_told_before_the_next_try_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    subject(monkeypatch, good, bad)
    monkeypatch.setattr(frame, "begun", stopping_at(bad, frame.begun))
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        carried_out(["made-up"], seconds=600, told=lambda result: said.append(result.what), jobs=1)
    assert said == ["it holds"]


def stopping_at(last: Any, begun: Callable[..., Any]) -> Callable[..., Any]:
    """Begins tries until that one, at which everything is stopped."""

    def start(name: str, one: frame.Try) -> Any:
        if one is last.attempt:
            raise KeyboardInterrupt
        return begun(name, one)

    return start


def test_the_tests_that_stand_for_what_was_mended_are_there() -> None:
    """One that was moved or renamed would fail only where all tries are run."""
    named = re.findall(r'"(tests/[^":]+)(?:::(\w+))?"', Path(mended.__file__).read_text())
    assert len(named) > 10
    gone = [
        (file, name)
        for file, name in named
        if not (place := mended.ROOT / file).exists() or f"def {name}" not in place.read_text()
    ]
    assert gone == []
