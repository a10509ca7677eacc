"""A run of a network that is partly frozen: small rows and checkpoints, and whole models at the end."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import covey
from covey.errors import UserError
from covey.folder.served_model import read_model
from covey.runs.config import resolve
from covey.runs.objects import model_tables
from covey.runs.run import resume, run_config
from covey.training.frozen import Frozen

HEAD = {
    "seed": 4,  # the frozen part is drawn from it, and is not what load_models would build by itself
    "rounds": 2,
    "data": {"clients": 6},
    "model": {"name": "mlp", "hidden": [200], "train": ["3"]},
    "method": {"name": "fedavg", "per_round": 3},
}


def large() -> nn.Sequential:
    """644,826 parameters, of which 2,570 train."""
    torch.manual_seed(0)
    made = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 2000), nn.ReLU(), nn.Linear(2000, 256), nn.ReLU(), nn.Linear(256, 10))
    )
    for parameter in made[:5].parameters():
        parameter.requires_grad_(False)
    return made


def test_a_message_holds_what_trains(tmp_path: Path) -> None:
    said: list[str] = []
    model = large()
    assert sum(p.numel() for p in model.parameters()) == 644_826
    tables = {"rounds": 2, **model_tables(model)}
    run_config(resolve(tables), tmp_path / "run", say=said.append)
    cost = json.loads((tmp_path / "run" / "summary.json").read_text())["cost"]["by_kind"]
    assert said[0].startswith("2,570 parameters train and travel; 642,256 are frozen and travel once;")
    assert cost["train.sgd"]["bytes_down"] == 20 * 4 * 2570  # it was 20 * 4 * 644,826
    sent = cost["send.frozen"]
    assert sent["bytes_down"] == sent["messages"] * 4 * 642_256
    assert 10 <= sent["messages"] <= 20, "once for every client that was asked"
    largest = max(file.stat().st_size for file in (tmp_path / "run" / "checkpoint").iterdir())
    assert largest < 30_000


def test_models_are_put_together_again(tmp_path: Path) -> None:
    run_config(resolve(HEAD), tmp_path / "run")
    models = covey.load_models(tmp_path / "run")
    assert models.rows.shape == (1, 200 * 10 + 10)
    data = covey.load("digits")
    found = models.outputs(data.x[data.test]).argmax(1)
    here = float((found == data.y[data.test]).double().mean())
    measured = json.loads((tmp_path / "run" / "summary.json").read_text())["last"]["global-test/accuracy"]
    assert here == pytest.approx(measured)
    (file,) = covey.export(tmp_path / "run")
    model = read_model(file)
    assert Frozen.of(model.network).digest == Frozen.of(models.network).digest == model.facts.frozen
    assert torch.equal(model.outputs(data.x[:9]), models.outputs(data.x[:9]))


def test_a_resumed_run_has_the_same_bits_and_books_the_frozen_part_once(tmp_path: Path) -> None:
    straight = run_config(resolve({**HEAD, "rounds": 4}), tmp_path / "straight")
    run_config(resolve(HEAD), tmp_path / "run")
    longer = resume(tmp_path / "run", rounds=4)
    assert torch.equal(longer.state.models, straight.state.models)
    assert longer.summary.cost == straight.summary.cost


def test_a_damaged_frozen_part_is_noticed(tmp_path: Path) -> None:
    run_config(resolve(HEAD), tmp_path / "run")
    path = tmp_path / "run" / "frozen.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"frozen.safetensors is damaged"):
        covey.load_models(tmp_path / "run")


def test_an_export_whose_frozen_part_was_changed_is_refused(tmp_path: Path) -> None:
    run_config(resolve(HEAD), tmp_path / "run")
    (file,) = covey.export(tmp_path / "run")
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    places = json.loads(content[8 : 8 + length])["1.weight"]["data_offsets"]
    content[8 + length + places[0]] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(UserError, match="damaged"):
        read_model(file)


def test_what_trains_is_written_into_the_file_only_where_it_is_said() -> None:
    assert 'train = [\n    "3",\n]' in resolve(HEAD).toml()
    assert "train" not in resolve({"model": {"name": "mlp"}})["model"]
