"""The model that is loaded is the model that was measured: for every method and every client, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import covey
from covey.core import Client, RoundEnd
from covey.errors import UserError
from covey.fleet.evaluations import Evaluations
from covey.folder import served_rows
from covey.folder.checkpoint import read_checkpoint
from covey.folder.checksums import SERVED_FILE
from covey.folder.place import index_in
from covey.folder.recorder import remove_derived
from covey.parts.steps import evaluate
from covey.parts.steps.evaluate import Evaluate
from covey.runs.config import config_in
from covey.runs.extend import extended
from covey.runs.models import TrainedModels, load_models
from covey.runs.run import Pruned
from covey.settings.catalogue import DATASETS, METHODS
from covey.testing import small_federation
from covey.training.rows import read_row
from tests.methods.test_contract import QUICK

QUIET = {"progress": False, "report": False, "engine": {"mode": "serial"}, "train": {"lr": 0.1}}
# a common row, a choice by loss, a row per client, parts at home, an own model, an adapted row
KINDS = ("fedavg", "ifca", "local", "fedper", "ditto", "fine-tuned")


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Tensor]]:
    """The last row that each client was scored with; nothing is looked up or done for several clients at once."""
    rows: dict[int, Tensor] = {}
    plain = evaluate.outputs_of

    def noted(client: Client, row: Tensor, x: Tensor, y: Tensor) -> Any:
        rows[client.id] = row.clone()
        return plain(client, row, x, y)

    monkeypatch.setattr(evaluate, "outputs_of", noted)
    monkeypatch.setattr(Evaluations, "answers", lambda *_: ([], 0.0))
    monkeypatch.setattr(Evaluate, "one_pass", False)
    return rows


def run(name: str, folder: Path, rounds: int = 2, **tables: Any) -> covey.Run:
    method = {"name": name, **QUICK.get(name, {})}
    return covey.run(method, small_federation(), rounds=rounds, out=folder, **{**QUIET, **tables})


def row_of(models: TrainedModels, client: int) -> Tensor:
    return read_row(models.of(client))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_loaded_is_what_was_measured(name: str, tmp_path: Path, scored: dict[int, Tensor]) -> None:
    models = run(name, tmp_path / "run").models()
    data = small_federation()
    assert len(models.serving) == len(data.shares)
    for client, share in enumerate(data.shares):
        assert torch.equal(row_of(models, client), scored[client]), f"client {client}"
        x, y = data.dataset.x[share.test.index], share.test.labels().astype(int)
        right = (models.predict(x, client=client) == np.array(data.dataset.classes)[y]).mean()
        assert right == pytest.approx(models.served(client).facts.measured["local-test/accuracy"])


@pytest.mark.parametrize("name", KINDS)
def test_rows_above_the_bound_are_made_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = run(name, tmp_path / "stored").models()
    monkeypatch.setattr(served_rows, "KEPT_BYTES", 0)
    again = load_models(run(name, tmp_path / "made").folder, data=small_federation())
    assert again.stored is not None
    assert stored.stored is not None
    assert again.stored.rows is None or (again.stored.bank >= 0).all()
    for client in stored.serving:
        assert torch.equal(row_of(again, client), row_of(stored, client))
        assert again.served(client).facts.digest == again.stored.digest_of(client).hex()


@pytest.mark.parametrize("measure", [{"local_test": False}, {"whom": "trained"}])
def test_who_was_not_measured_has_the_row_of_a_measurement(tmp_path: Path, measure: dict[str, Any]) -> None:
    straight = run("fine-tuned", tmp_path / "all").models()
    other = run("fine-tuned", tmp_path / "other", measure=measure).models()
    for client in straight.serving:
        assert torch.equal(row_of(straight, client), row_of(other, client))


@pytest.mark.parametrize("name", ["fedper", "fine-tuned"])
def test_a_run_that_goes_on_makes_its_rows_anew(name: str, tmp_path: Path) -> None:
    early = {c: row_of(run(name, tmp_path / "run").models(), c) for c in range(8)}
    late = run(name, tmp_path / "run", rounds=3).models()
    straight = run(name, tmp_path / "straight", rounds=3).models()
    for client in straight.serving:
        assert torch.equal(row_of(late, client), row_of(straight, client))
        assert not torch.equal(row_of(late, client), early[client])


@pytest.mark.parametrize("name", ["fedper", "fine-tuned"])
def test_rows_of_a_run_that_was_killed_or_stopped_are_those_of_its_checkpoint(
    name: str, tmp_path: Path
) -> None:
    """Killed while it was extended: the rows of its earlier end lie there, and are none of this run any more."""
    folder = run(name, tmp_path / "run").folder
    ended = {c: row_of(load_models(folder), c) for c in range(8)}
    config, index = config_in(folder), index_in(folder)
    old = (folder / SERVED_FILE).read_bytes()
    extended(folder, config, index, read_checkpoint(folder, index), 3)
    (folder / SERVED_FILE).write_bytes(old[:-1])  # whatever it is, nobody looks at it
    models = load_models(folder)
    assert models.stored is None
    assert all(torch.equal(row_of(models, client), ended[client]) for client in ended)
    goes_on = run(name, folder, rounds=3).models()
    assert goes_on.stored is not None
    assert goes_on.facts.round == 3


def test_stored_rows_that_were_changed_are_not_used(tmp_path: Path) -> None:
    folder = run("ditto", tmp_path / "run").folder
    content = bytearray((folder / SERVED_FILE).read_bytes())
    content[-1] ^= 1
    (folder / SERVED_FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"served\.safetensors is damaged: its SHA-256"):
        load_models(folder)


def test_equal_rows_are_stored_once_and_those_of_the_bank_not_at_all(tmp_path: Path) -> None:
    for name, distinct, kept in (("fedavg", 1, 0), ("local", 8, 0), ("ditto", 8, 8)):
        stored = run(name, tmp_path / name).models().stored
        assert stored is not None
        assert stored.rows is not None
        assert (len(stored.digests), len(stored.rows)) == (distinct, kept), name


@pytest.mark.parametrize("name", ["fedavg", "fine-tuned"])
def test_a_run_that_was_stopped_has_the_rows_of_its_last_checkpoint(name: str, tmp_path: Path) -> None:
    """At a stop nothing is computed: what must be is made when somebody asks for it."""

    def stop(end: RoundEnd) -> None:
        if end.state.round == 2:
            raise Pruned

    with pytest.raises(covey.Interrupted):
        run(name, tmp_path / "stopped", rounds=4, watchers=[stop])
    stopped, straight = load_models(tmp_path / "stopped"), run(name, tmp_path / "straight").models()
    assert stopped.stored is not None
    assert stopped.stored.is_known(0) == (name == "fedavg")
    for client in straight.serving:
        assert torch.equal(row_of(stopped, client), row_of(straight, client))


def test_data_of_a_program_are_given_again_and_must_be_the_same(tmp_path: Path) -> None:
    folder = run("fine-tuned", tmp_path / "run").folder
    checkpoint = json.loads((folder / "checkpoint.json").read_text())
    assert SERVED_FILE in checkpoint["files"]
    remove_derived(folder)  # as at the beginning of a longer run
    given = DATASETS.objects
    kept = dict(given)
    given.clear()  # another process
    try:
        with pytest.raises(UserError, match=r"give them: load_models\(folder, data="):
            load_models(folder).of(0)
        other = covey.federate(covey.load("digits"), partition="iid", clients=8, seed=0)
        with pytest.raises(UserError, match="data is not what the run had"):
            load_models(folder, data=other).of(0)
        assert load_models(folder, data=small_federation()).served(0).facts.share == 1
    finally:
        given.clear()
        given.update(kept)
