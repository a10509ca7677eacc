"""A server cannot stall a site, make it take all memory, or steer its terminal."""

import io
import signal
import time
from typing import Any

import pytest
import torch

from covey.core.codec import from_bytes
from covey.deploy.site import Site
from covey.deploy.site_bounds import Bounds
from covey.deploy.wire import step_to_plain
from covey.errors import Refused, UserError
from covey.parts.steps import Evaluate, Train
from covey.parts.steps.summaries import FeatureSummary
from covey.terminal import Console, uncontrolled
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import shares

EVIL = "\x1b]0;pwned\x07\x1b[2Jsite\r\u202e"


def asked(step: Any = None, *, bounds: Bounds | None = None, **changes: Any) -> dict[str, Any]:
    """What a site with these bounds answers."""
    share = shares()[0]
    site = Site((share.train, share.test), name="site-0", bounds=bounds)
    if step is not None:
        changes["step"] = step if isinstance(step, dict) else step_to_plain(step)
    answer: dict[str, Any] = from_bytes(site.answer(one_request(**changes)))
    return answer


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"epochs": 10**9}, "Train.epochs is 1000000000, which this site's covey does not take"),
        ({"epochs": 1001}, "train.sgd would pass over this site's data 1e+03 times; it allows 1000"),
        ({"epochs": 10_000, "batches": 10**6}, "times; it allows 1000"),
    ],
)
def test_more_passes_than_a_site_allows_are_refused_at_once(settings: dict[str, Any], why: str) -> None:
    plain = {"step": "Train", "settings": {"lr": 0.1, **settings}}  # a server may have another covey
    assert why in asked(plain)["refused"]


def test_every_row_counts_as_a_pass_of_its_own() -> None:
    rows = {"models": torch.zeros(500, 4810), "slots": tuple(range(500)), "args": {}}
    assert "times; it allows 10" in asked(Evaluate(), bounds=Bounds(passes=10), task=rows)["refused"]
    assert asked(Evaluate(), bounds=Bounds(passes=10))["reply"] is not None


def test_a_model_that_is_too_large_takes_no_memory() -> None:
    absurd = {**SPEC.plain(), "settings": {"hidden": (10**6, 10**6)}}
    assert "whole numbers from 1 to 100,000" in asked(model=absurd)["refused"]
    huge = {**SPEC.plain(), "settings": {"hidden": (10**5, 10**5)}}
    assert "10,007,600,010 parameters" in asked(model=huge)["refused"]
    large = {**SPEC.plain(), "settings": {"hidden": (20_000, 20_000)}}
    assert asked(model=large)["refused"] == (
        "the model 'mlp' has 401,520,010 parameters; this site allows 268,435,456"
    )
    assert "this site allows 4,000" in asked(bounds=Bounds(parameters=4000))["refused"]


def test_a_summary_has_a_bounded_number_of_numbers() -> None:
    answer = asked(FeatureSummary(bins=1000, labels=10**6))
    assert (
        answer["mistake"] == "a summary of 1,000,000,000 numbers is asked for; at most 10,000,000 are allowed"
    )
    for name, settings in (("LabelSummary", {"labels": 10**12}), ("FeatureSummary", {"bins": 10**9})):
        assert "does not take" in asked({"step": name, "settings": settings})["refused"]


def test_work_ends_when_the_sites_time_or_the_servers_patience_is_over() -> None:
    slow = Train(lr=1e-9, epochs=900, batch=1)
    assert asked(slow, bounds=Bounds(seconds=1.0))["refused"] == "it took longer than 1 s"
    assert asked(slow, seconds=0.5)["refused"] == "it took longer than 0.5 s"


def test_a_site_goes_on_after_work_that_took_too_long() -> None:
    share = shares()[0]
    site = Site((share.train, share.test), name="site-0", bounds=Bounds(seconds=1.0))
    slow = step_to_plain(Train(lr=1e-9, epochs=900, batch=1))
    assert from_bytes(site.answer(one_request(step=slow)))["refused"]
    site.bounds = Bounds()
    assert from_bytes(site.answer(one_request()))["reply"] is not None
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)  # no alarm was left behind


def test_an_alarm_that_rings_while_gradients_are_off_leaves_them_on() -> None:
    def caught_without_gradients() -> None:
        with Bounds(seconds=0.05).in_time(0):
            torch.set_grad_enabled(False)
            time.sleep(5)

    with pytest.raises(Refused, match="longer than"):
        caught_without_gradients()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", ["passes", "parameters", "seconds", "megabytes"])
def test_a_bound_is_greater_than_zero(name: str) -> None:
    with pytest.raises(UserError, match=f"--most-{name} is 0; allowed: a number above 0"):
        Bounds(**{name: 0})


def test_an_unknown_setting_of_a_model_is_a_refusal() -> None:
    from dataclasses import replace

    with pytest.raises(Refused, match="has no setting"):
        Bounds().check_model(replace(SPEC, settings={"wings": 2}))


def test_an_escape_sequence_never_reaches_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.table import Table

    from covey import cli

    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    console.print(EVIL, table, f"[bold]{EVIL}[/bold]", highlight=False)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\u202e"):
        assert sequence not in shown

    def fails() -> None:
        raise UserError(f"site {EVIL} is wrong\nand more")

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith("covey: site \ufffd]0;pwned\ufffd\ufffd[2Jsite\ufffd")
    assert said.endswith("is wrong\nand more\n")


def test_lines_and_tabs_stay() -> None:
    assert uncontrolled("a\tb\nc\x1b[0m") == "a\tb\nc\ufffd[0m"
