"""The page's part on privacy: what every client lost by kind, and how many clients stand behind every model."""

from types import SimpleNamespace
from typing import Any

from covey.report.privacy_tables import privacy


def page_of(clients: dict[str, Any], notes: dict[str, Any]) -> str:
    summary = SimpleNamespace(privacy={"delta": 1e-5, "clients": clients} if clients else {}, notes=notes)
    return str(privacy(SimpleNamespace(summary=summary, client_names={0: "north"})) or "")  # type: ignore[arg-type]


LOST = {
    "sample": {"all": 2.5, "summaries": 1.0, "updates": 2.0},
    "client": {"all": None, "summaries": None, "updates": 1.5},
}


def test_every_client_has_a_row_by_kind_and_no_bound_is_infinite() -> None:
    page = page_of({"0": LOST, "1": {"sample": {"summaries": 1.0, "all": 1.0}}}, {})
    row = "<tr><td>north</td><td>1</td><td>2</td><td>2.5</td><td>∞</td><td>1.5</td><td>∞</td></tr>"
    assert row in page
    assert "<tr><td>1</td><td>1</td><td>0</td><td>1</td><td>0</td><td>0</td><td>0</td></tr>" in page


def test_many_clients_are_told_by_quantiles() -> None:
    many = {str(i): {"sample": {"updates": float(i), "all": float(i)}} for i in range(101)}
    page = page_of(many, {})
    assert "of 101 clients" in page
    assert "<tr><td>median</td><td>50</td><td>50</td></tr>" in page


def test_it_says_how_many_clients_stand_behind_every_model() -> None:
    page = page_of({}, {"clients behind each model": {"model": [0, 1], "clients": [30, 25]}})
    assert "<tr><td>1</td><td>25</td></tr>" in page
    assert page_of({}, {"weights": {"a": [1]}}) == ""
