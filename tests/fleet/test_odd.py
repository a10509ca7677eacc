"""Who stands out by its updates is named, with what to switch on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covey.core.ledger import Conduct, Ledger
from covey.core.round import Reply, Task
from covey.fleet import guard
from covey.fleet.guard import Guard, lengths_of
from covey.fleet.odd import against, note_conduct, odd_clients, odd_in_words, refused_in_words
from covey.runs import run as runs
from covey.runs.config import fleet_of, resolve
from covey.runs.run import run_config
from covey.training.rows import Layout
from experiments.hostile import attacked

LAYOUT = Layout(names=("w",), shapes=((2,),), trainable=2, size=2, buffers="average")


def noted(rows: list[list[float]], norm: float = 2.0, rounds: int = 5) -> Ledger:
    """What is remembered of so many rounds with these updates of a model at (3, 4)."""
    task = Task(models=torch.tensor([[3.0, 4.0]]), slots=(0,))
    replies = [Reply(id=i, vector=torch.tensor([3.0 + x, 4.0 + y])) for i, (x, y) in enumerate(rows)]
    tasks = dict.fromkeys(range(len(rows)), task)
    ledger = Ledger()
    for _ in range(rounds):
        note_conduct(replies, lengths_of(replies, tasks, LAYOUT), Guard(norm=norm), ledger)
    return ledger


def test_an_update_against_all_others_and_a_long_one_are_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside (1, 0) three times, (-1, 0) is backwards and (3, 3), 4.24 long, is too long; (0, 1) is neither."""
    monkeypatch.setattr(guard, "ENOUGH", 6)
    ledger = noted([[1, 0], [1, 0], [1, 0], [-1, 0], [3, 3], [0, 1]])
    odd = odd_clients(ledger)
    assert odd.keys() == {3, 4}
    assert odd[3] == Conduct(updates=5, long=0, against=5, times=1.0)
    assert (odd[4].long, odd[4].against, round(odd[4].times, 2)) == (5, 0, 4.24)
    said = odd_in_words(ledger)
    assert said.startswith("2 clients stand out: client 3 (of 5 updates 5 against the others')")
    assert "client 4 (of 5 updates 5 longer than guard.norm allows, up to 4.24 times the others')" in said
    assert 'robust.name = "cosine" and robust.hostile = 2' in said


def test_nothing_is_said_too_early_nor_of_two_nor_without_the_guard() -> None:
    assert odd_in_words(noted([[1, 0], [1, 0], [1, 0], [-1, 0]], rounds=4)) == ""
    assert noted([[1, 0], [-9, 0]]).conduct == {}
    assert (
        noted([[1, 0], [1, 0], [1, 0], [-9, 0]], norm=0).conduct == {}
    )  # as in private runs: nothing is kept


def test_who_is_refused_makes_nobody_else_odd() -> None:
    """(1, 0), (1, 1) and (1, -1) are against the sum of the others with (-9, 0), and not without it."""
    rows = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [-9.0, 0.0]])
    long = np.linalg.norm(rows, axis=1)
    gram = rows @ rows.T / np.outer(long, long)
    assert against(gram, long, np.ones(4, bool)).tolist() == [True, True, True, True]
    assert against(gram, long, np.arange(4) < 3).tolist() == [False, False, False, True]
    alone = np.array([[1.0, -1.0], [-1.0, 1.0]])  # beside one without length nothing is backwards
    assert against(alone, np.array([0.7, 0.0]), np.ones(2, bool)).tolist() == [False, False]


def test_who_keeps_pointing_away_is_named_though_its_updates_are_refused() -> None:
    honest = {i: Conduct(updates=6, compared=6, cosine=1.8) for i in range(9)}
    away = Conduct(updates=6, compared=6, cosine=-1.5, apart=-3.3)
    said = odd_in_words(Ledger(conduct={**honest, 9: away}))
    assert said.startswith("1 client stands out: client 9 (of 6 updates mean cosine to the others' -0.25).")
    names = [f"site {i}" for i in range(10)]
    assert "out: site 9 (of" in odd_in_words(Ledger(conduct={**honest, 9: away}), names)
    assert 'robust.name = "cosine" and robust.hostile = 1' in said


def test_where_most_stand_out_nobody_does() -> None:
    conduct = {i: Conduct(updates=6, long=6 * (i < 6)) for i in range(10)}
    said = odd_in_words(Ledger(conduct=conduct))
    assert said.startswith("the updates of 6 of 10 clients were longer than guard.norm allows")
    assert said.endswith('set robust.name = "clip".')


def test_a_refused_reply_is_told_with_its_client_and_reason() -> None:
    ledger = Ledger()
    assert refused_in_words(ledger) == ""
    for client in (3, 1):
        ledger.note_refusal(
            client, kind="query.secure-update", round=2, reason="its shares do not fit together"
        )
    assert refused_in_words(ledger) == (
        "2 replies were refused, first of all client 3's to query.secure-update in round 2: "
        "its shares do not fit together"
    )


def test_it_lasts_with_a_checkpoint() -> None:
    ledger, again = noted([[1, 0], [1, 0], [1, 0], [-1, 0]]), Ledger()
    again.load(ledger.save())
    assert again.conduct == ledger.conduct


def test_a_run_names_its_liars_and_nobody_where_nobody_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {"rounds": 6, "data": {"clients": 10}, "partition": {"name": "iid"}, "method": {"per_round": 10}}
    config = resolve({**tables, "train": {"lr": 0.1, "epochs": 1}, "engine": {"lanes": False}})
    said: list[str] = []
    done = run_config(config, tmp_path / "honest", say=said.append, report=False)
    assert "odd clients" not in done.summary.notes
    monkeypatch.setattr(runs, "fleet_of", lambda config, _say: attacked(fleet_of(config), (2, 5), "scale"))
    done = run_config(config, tmp_path / "attacked", say=said.append)
    assert said[-1].startswith("2 clients stand out: client 2 (of 6 updates 6 longer than")
    assert said[-1] == done.summary.notes["odd clients"]["text"]
