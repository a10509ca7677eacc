"""The trained models of a folder: the same numbers as in the run, for clients and newcomers, and as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import covey
from covey.data import from_tensors
from covey.errors import UserError
from covey.trained import export, load_models

QUIET = {"progress": False, "report": False, "engine": {"mode": "serial"}}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    out = tmp_path_factory.mktemp("trained") / "run"
    return covey.simulate("fedavg", rounds=2, out=out, **QUIET)


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    out = tmp_path_factory.mktemp("trained") / "groups"
    return covey.simulate(
        "local",
        covey.federate(covey.load("digits"), partition="dir-class", clients=3, seed=0),
        rounds=2,
        out=out,
        **QUIET,
    )


def test_a_model_predicts_what_the_run_measured(digits: covey.Run) -> None:
    models = digits.models()
    data = covey.load("digits")
    found = models.predict(data.x[data.test])
    assert found.dtype.kind == "U"  # classes by name
    right = found == np.array(data.classes)[data.labels()[data.test].astype(int)]
    assert right.mean() == pytest.approx(digits.summary["last"]["global-test/accuracy"])


def test_every_client_has_its_own_model(turned: covey.Run) -> None:
    models = turned.models()
    assert len(models) == 3
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=3, seed=0)
    scores = []
    for client, share in enumerate(data.shares):
        x, y = data.dataset.x[share.test.index], share.test.labels().astype(int)
        scores.append((models.predict(x, client=client) == np.array(data.dataset.classes)[y]).mean())
    assert np.mean(scores) == pytest.approx(turned.summary["last"]["local-test/accuracy-mean"])
    with pytest.raises(UserError, match="there are 3 models: say client="):
        models.predict(data.dataset.x[:2])
    with pytest.raises(UserError, match="client 9 was not in the run"):
        models.predict(data.dataset.x[:2], client=9)


def test_a_newcomer_finds_the_model_with_the_lowest_loss(turned: covey.Run) -> None:
    models = turned.models()
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=3, seed=0)
    share = data.shares[1].train
    x, y = data.dataset.x[share.index], share.labels()
    best = models.best_for(x, y)
    assert best == 1
    names = np.array(data.dataset.classes)[y.astype(int)]
    assert models.best_for(x, names) == 1  # labels by name, too
    assert (models.predict(x, examples=(x, y)) == models.predict(x, client=1)).all()


def test_clients_and_classes_by_name_and_rows_of_a_table(tmp_path: Path) -> None:
    columns = {
        "who": ["Lyon", "Berlin"] * 40,
        "size": [float(i) for i in range(80)],
        "kind": ["a" if i % 3 else "b" for i in range(80)],
        "ill": ["yes" if i >= 40 else "no" for i in range(80)],
    }
    data = covey.read_table(columns, label="ill", client="who")
    fleet = covey.federate(data, partition="natural", clients=2, seed=0)
    covey.simulate("fedavg", fleet, rounds=8, out=tmp_path / "run", train={"lr": 0.3}, **QUIET)
    models = load_models(tmp_path / "run")
    new = {"size": [2.0, 78.0], "kind": ["a", "b"]}
    assert models.predict(new, client="Berlin").tolist() == ["no", "yes"]
    assert models.predict(new).tolist() == ["no", "yes"]
    with pytest.raises(UserError, match="client 'Rome' was not in the run; allowed: Berlin, Lyon"):
        models.predict(new, client="Rome")


def test_a_network_of_a_program_is_given_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    run = covey.simulate("fedavg", "digits", net, rounds=1, out=tmp_path / "run", **QUIET)
    with pytest.raises(UserError, match="give it again"):
        run.models()
    models = load_models(tmp_path / "run", model=net)
    assert torch.equal(models[0][1].bias, run.state.models[0, -10:])  # type: ignore[index]
    with pytest.raises(UserError, match="the model has 6 numbers"):
        load_models(tmp_path / "run", model=nn.Linear(1, 3))


def test_regression_gives_values(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 60)[:, None]
    data = covey.federate(from_tensors(x, 2 * x), partition="iid", clients=2, seed=0)
    covey.simulate(
        "fedavg", data, nn.Linear(1, 1), rounds=20, out=tmp_path / "r", objective="regression",
        train={"lr": 0.3}, **QUIET,
    )  # fmt: skip
    models = load_models(tmp_path / "r", model=nn.Linear(1, 1))
    assert models.predict(torch.tensor([[0.5], [-1.0]])) == pytest.approx([1.0, -2.0], abs=0.05)


BATCH_NORM = """
from torch import nn

def net(outputs):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, outputs))
"""


def test_batch_norm_statistics_that_stayed_at_home_are_used(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(BATCH_NORM)
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=3, seed=0)
    network = {"name": f"{tmp_path / 'own.py'}:net", "buffers": "local"}
    run = covey.simulate("fedavg", data, network, rounds=1, out=tmp_path / "run", **QUIET)
    models = load_models(run.folder)
    means = [models.of(client)[1].running_mean for client in range(3)]  # type: ignore[index]
    assert not torch.equal(means[0], means[1])
    for client, share in enumerate(data.shares):
        x, y = data.dataset.x[share.test.index], share.test.labels().astype(int)
        right = (models.predict(x, client=client) == np.array(data.dataset.classes)[y]).mean()
        assert right == pytest.approx(models.served(client).facts.measured["local-test/accuracy"])


def test_a_network_whose_code_has_changed_is_not_filled_with_the_old_numbers(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(BATCH_NORM)
    run = covey.simulate("fedavg", "digits", f"{own}:net", rounds=1, out=tmp_path / "run", **QUIET)
    own.write_text(BATCH_NORM.replace("nn.Flatten()", "nn.Flatten(), nn.Tanh()"))
    with pytest.raises(UserError, match=r"own\.py:net.*has changed since the run began.*changed_code=True"):
        load_models(run.folder)
    with pytest.raises(UserError, match="has changed since the run began"):
        export(run.folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(load_models(run.folder, changed_code=True)) == 1


@pytest.mark.parametrize("format", ["safetensors", "torch", "onnx"])
def test_files_for_other_programs_hold_the_same_model(digits: covey.Run, tmp_path: Path, format: str) -> None:
    models = digits.models()
    x = models.inputs(covey.load("digits").x[:5])
    wanted = models[0](x)
    if format == "onnx":
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
    (path,) = export(digits.folder, format=format, out=tmp_path)  # type: ignore[arg-type]
    if format == "onnx":
        session = runtime.InferenceSession(path.read_bytes())
        (found,) = session.run(None, {"samples": x.numpy()})
        assert found == pytest.approx(wanted.detach().numpy(), abs=1e-4)
        return
    again = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10)
    state = (
        safetensors.torch.load_file(path) if format == "safetensors" else torch.load(path, weights_only=True)
    )
    again.load_state_dict(state)
    assert torch.equal(again(x), wanted)


def test_export_from_the_command_line(turned: covey.Run, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from covey.cli import app

    result = CliRunner().invoke(app, ["export", str(turned.folder), "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"model-{i}.safetensors" for i in range(3)]
    wrong = CliRunner().invoke(app, ["export", str(turned.folder), "--format", "pickle"])
    assert "allowed: safetensors, torch, onnx" in str(wrong.exception)


def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.toml is missing"):
        load_models(tmp_path)
