"""The officer's page of a site: its account, its trail, and a person with several rows."""

from pathlib import Path

import pytest
from dp_accounting import get_epsilon_gaussian
from typer.testing import CliRunner

from covey.cli import app
from covey.core.privacy_loss import Loss
from covey.deploy.audit import AUDIT_FILE, Trail
from covey.deploy.officer import of_site
from covey.deploy.privacy_account import PrivacyAccount
from covey.errors import UserError
from covey.report.officer import page

STEP = Loss(what="updates", mechanism="steps", noise=40.0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    account = PrivacyAccount(folder, data=lambda: "rows", budget=9.0)
    account.lose(STEP, times=100)
    trail = Trail(folder / AUDIT_FILE)
    trail.note("started", site="Bonn <1>", covey="0", budget=9.0, trust_server=False)
    trail.note("told", kind="train.example", run="r1", epsilon=1.0, epsilon_in_all=1.0)
    return folder


def test_a_sites_account_for_a_sample_and_for_a_person(state: Path) -> None:
    """100 steps of noise 40 are one of noise 4; three rows of a person move each by three."""
    statement = of_site(state, rows=3)
    [updates, whole] = statement.lines
    assert updates.sample == pytest.approx(get_epsilon_gaussian(4.0, 1e-5), rel=1e-2)
    assert updates.person == pytest.approx(get_epsilon_gaussian(4.0 / 3, 1e-5), rel=1e-2)
    assert (whole.what, whole.sample) == ("all", updates.sample)
    assert whole.client == float("inf")  # noise on samples hides no site
    text = page(statement)
    assert "Bonn &lt;1&gt;" in text
    assert "<1>" not in text
    assert "budget 9 per sample, ever" in text
    assert "one person (up to 3 rows)" in text
    assert "what the account cannot count is refused" in text


def test_what_was_told_without_noise_is_said(state: Path) -> None:
    Trail(state / AUDIT_FILE).note("told", kind="evaluate.plain", run="r1")
    lines = of_site(state).lines
    assert [(line.what, line.mechanism) for line in lines][-1] == ("evaluations", "none: exact")


def test_of_answers_without_noise_each_kind_is_named_and_what_tells_nothing_is_not(state: Path) -> None:
    trail = Trail(state / AUDIT_FILE)
    for kind in (
        "query.labels",
        "query.labels",
        "query.secure-update",
        "evaluate.take-home",
        "query.secure-keys",
    ):
        trail.note("told", kind=kind, run="r1")
    trail.note("told", kind="query.sketch", run="r1", epsilon=1.0, epsilon_in_all=2.0)
    trail.note("told", kind="query.sketch", run="r2")  # told again, at no loss
    exact = [line for line in of_site(state).lines if line.mechanism == "none: exact"]
    assert [line.what for line in exact] == ["answers"]
    assert "query.labels 2, query.secure-update 1)" in exact[0].to
    assert "nothing is promised about single persons" in page(of_site(state))


def test_the_promise_of_a_page_with_exact_evaluations_says_that_they_are_apart(state: Path) -> None:
    assert "they have no bound" not in page(of_site(state))
    Trail(state / AUDIT_FILE).note("told", kind="evaluate.plain", run="r1")
    assert "The exact evaluations in the table are not part of that: they have no bound." in page(
        of_site(state)
    )


def test_the_command_counts_the_rows_of_each_person(state: Path, tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    table.write_text("patient,age,ill\na,1,no\na,2,yes\nb,3,no\na,4,no\n")
    said = CliRunner().invoke(
        app, ["privacy", "report", str(state), "--table", str(table), "--person", "patient"]
    )
    assert said.exit_code == 0, said.output
    assert "one person (up to 3 rows)" in (state / "privacy.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "covey privacy report needs a folder"),
        (["nowhere"], "nowhere is no folder"),
        (["STATE", "--person", "patient"], "they go together"),
        (["STATE", "--table", "TABLE", "--person", "who"], "--person is 'who', which is no column of"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], sentence: str, state: Path, tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    table.write_text("patient,age\na,1\nb,2\n")
    given = [{"STATE": str(state), "TABLE": str(table)}.get(word, word) for word in arguments]
    said = CliRunner().invoke(app, ["privacy", "report", *given])
    assert isinstance(said.exception, UserError)
    assert sentence in str(said.exception)


def test_a_folder_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a run folder"):
        of_site(tmp_path)
