"""The audit trail: what a line is, what a kill leaves, what is noticed, and what sites and servers write into it."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.core.round import run_rounds
from covey.deploy.audit import NOTHING, Trail, checked_lines, names_and_sizes
from covey.deploy.status import Status
from covey.errors import RunError, UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites

TRAIN = Train(epochs=1, lr=0.1)


def trail(folder: Path, lines: int = 3) -> Path:
    written = Trail(folder / "audit.jsonl", clock=lambda: 1_800_000_000.0)
    for number in range(lines):
        written.note("told", kind="train.sgd", round=number)
    return written.path


def events(path: Path) -> list[str]:
    return [line.facts["event"] for line in checked_lines(path) if line.number]


def test_a_line_is_checked_by_anybody_with_sha256(tmp_path: Path) -> None:
    """By hand: the hash of the bytes before it, and in every line that of the line before."""
    lines = trail(tmp_path).read_bytes().splitlines()
    before = NOTHING
    for number, line in enumerate(lines, 1):
        body, _, rest = line.partition(b', "hash": "')
        said = json.loads(line)
        assert rest == hashlib.sha256(body).hexdigest().encode() + b'"}'
        assert (said["n"], said["before"], said["time"]) == (number, before, "2027-01-15T08:00:00.000Z")
        before = said["hash"]


def test_another_process_goes_on_with_the_chain(tmp_path: Path) -> None:
    trail(tmp_path)
    assert events(trail(tmp_path, 2)) == ["told"] * 5


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_line_that_a_kill_cut_off_is_named_by_the_next(tmp_path: Path, cut: int) -> None:
    path = trail(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    whole = 3 if cut == 1 else 2  # only the line break is missing
    assert len(events(path)) == whole
    trail(tmp_path, 1)
    assert events(path) == ["told"] * whole + ["torn"] * (cut != 1) + ["told"]


def test_a_kill_in_the_very_first_line_and_two_kills_in_a_row(tmp_path: Path) -> None:
    path = trail(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:20])
    assert events(path) == []
    trail(tmp_path, 1)
    assert events(path) == ["torn", "told"]
    path.write_bytes(path.read_bytes()[:-10] + b"\n" + b'{"n": 3, "ti')
    trail(tmp_path, 1)
    assert events(path) == ["torn", "torn", "told"]


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        (b'"round": 1', b'"round": 7', 2, "it was changed"),
        (b'"kind": "train.sgd", "round": 0', b'"round": 0', 1, "it was changed"),
    ],
)
def test_a_changed_line_is_named(tmp_path: Path, old: bytes, new: bytes, line: int, why: str) -> None:
    path = trail(tmp_path)
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(RunError, match=f"audit.jsonl is broken at line {line}: .*{why}"):
        list(checked_lines(path))
    with pytest.raises(UserError, match="move it away, and a new one begins"):
        Trail(path)


def test_lines_taken_away_swapped_or_made_up_are_named(tmp_path: Path) -> None:
    path = trail(tmp_path)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for content, line in (
        (first + third, 2),
        (second + third, 1),
        (second + first + third, 1),
        (first + b"nothing of covey's\n" + second, 3),
    ):
        path.write_bytes(content)
        with pytest.raises(RunError, match=f"is broken at line {line}: "):
            list(checked_lines(path))
    path.write_bytes(b"patient,age\n1,50\n")
    with pytest.raises(RunError, match="is not an audit trail"):
        list(checked_lines(path))


def test_the_command_verifies_prints_and_finds_an_old_head(tmp_path: Path) -> None:
    path = trail(tmp_path)
    heads = [line.hash for line in checked_lines(path)]
    good = CliRunner().invoke(app, ["audit", str(tmp_path), "--contains", heads[1]])
    assert good.exit_code == 0, good.output
    assert "2 2027-01-15T08:00:00.000Z told kind=train.sgd round=1" in good.output
    assert f"3 lines from 2027-01-15T08:00:00.000Z to 2027-01-15T08:00:00.000Z; its head is {heads[2]}" in (
        good.output.replace("\n", " ")
    )
    path.write_bytes(
        b"".join(path.read_bytes().splitlines(keepends=True)[:2])
    )  # a chain alone cannot see this
    bad = CliRunner().invoke(app, ["audit", str(path), "--contains", heads[2]])
    assert isinstance(bad.exception, RunError)
    assert "lines were removed" in str(bad.exception)


def test_names_and_sizes_hold_no_value() -> None:
    import torch

    told = {"row": torch.ones(7), "loss": 0.25, "labels": [3, 4], "name": "Bonn", "none": None}
    assert names_and_sizes(told) == {"row": [7], "loss": 1, "labels": 2, "name": 4}


def test_sites_and_server_write_down_a_run(tmp_path: Path) -> None:
    """Every question and answer is in both, as names and sizes; the server knows the heads of the sites' trails."""
    status = Status(log=tmp_path / "run" / "audit.jsonl")
    (tmp_path / "run").mkdir()
    fleet = deployed(Hand(sites(tmp_path)), status=status)
    run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=2)
    at_site = list(checked_lines(tmp_path / "0" / "audit.jsonl"))
    said = [(line.facts["event"], line.facts.get("kind"), line.facts.get("round")) for line in at_site]
    assert said == [
        ("started", None, None),
        ("told", "query.hello", None),
        ("told", "train.sgd", 1),
        ("told", "train.sgd", 2),
    ]
    assert at_site[-1].facts["run"] == fleet.run
    assert at_site[-1].facts["told"]["vector"] == [4810]
    server = [line.facts for line in checked_lines(tmp_path / "run" / "audit.jsonl")]
    answers = [line for line in server if line["event"] == "answered" and line["site"] == "site-0"]
    assert [(line["round"], line["kind"], line["told"]["row"]) for line in answers] == [
        (1, "train.sgd", [4810]),
        (2, "train.sgd", [4810]),
    ]
    (joined,) = [line for line in server if line["event"] == "joined" and line["site"] == "site-0"]
    assert joined["audit"] in {line.hash for line in at_site}


def test_what_cannot_be_written_down_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.core.codec import from_bytes
    from covey.deploy import audit

    (site,) = [site for node, site in sites(tmp_path).items() if node == 100]

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(audit, "append", full)
        answer = from_bytes(site.answer(one_request()))
    assert answer["refused"] == "this site's --state folder cannot be used: No space left on device"
    assert "reply" in from_bytes(site.answer(one_request()))
    assert next(line.facts["event"] for line in checked_lines(tmp_path / "0" / "audit.jsonl")) == "started"
