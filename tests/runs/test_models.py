"""The trained models of a folder: the same numbers as in the run, for clients and unseen clients, and as files."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import covey
from covey.data import from_tensors
from covey.errors import UserError
from covey.runs.models import export, load_models

QUIET = {"progress": False, "report": False, "engine": {"mode": "serial"}}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    out = tmp_path_factory.mktemp("trained") / "run"
    return covey.run("fedavg", rounds=2, out=out, **QUIET)


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    out = tmp_path_factory.mktemp("trained") / "groups"
    return covey.run(
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
    assert right.mean() == pytest.approx(digits.summary.last["global-test/accuracy"])


def test_every_client_has_its_own_model(rotated: covey.Run) -> None:
    models = rotated.models()
    assert len(models) == 3
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=3, seed=0)
    scores = []
    for client, share in enumerate(data.shares):
        x, y = data.dataset.x[share.test.index], share.test.labels().astype(int)
        scores.append((models.predict(x, client=client) == np.array(data.dataset.classes)[y]).mean())
    assert np.mean(scores) == pytest.approx(rotated.summary.last["local-test/accuracy-mean"])
    with pytest.raises(UserError, match=r"there are 3 models: say whose \(client\)"):
        models.predict(data.dataset.x[:2])
    with pytest.raises(UserError, match="client 9 was not in the run"):
        models.predict(data.dataset.x[:2], client=9)


def test_an_unseen_client_finds_the_model_with_the_lowest_loss(rotated: covey.Run) -> None:
    models = rotated.models()
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
    covey.run("fedavg", fleet, rounds=8, out=tmp_path / "run", train={"lr": 0.3}, **QUIET)
    models = load_models(tmp_path / "run")
    new = {"size": [2.0, 78.0], "kind": ["a", "b"]}
    assert models.predict(new, client="Berlin").tolist() == ["no", "yes"]
    assert models.predict(new).tolist() == ["no", "yes"]
    with pytest.raises(UserError, match="client 'Rome' was not in the run; allowed: Berlin, Lyon"):
        models.predict(new, client="Rome")


def test_a_network_of_a_program_is_given_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    run = covey.run("fedavg", "digits", net, rounds=1, out=tmp_path / "run", **QUIET)
    with pytest.raises(UserError, match="give it again"):
        run.models()
    models = load_models(tmp_path / "run", model=net)
    assert torch.equal(models[0][1].bias, run.state.models[0, -10:])  # type: ignore[index]
    with pytest.raises(UserError, match="the model has 6 numbers"):
        load_models(tmp_path / "run", model=nn.Linear(1, 3))


def test_regression_gives_values(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 60)[:, None]
    data = covey.federate(from_tensors(x, 2 * x), partition="iid", clients=2, seed=0)
    covey.run(
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
    run = covey.run("fedavg", data, network, rounds=1, out=tmp_path / "run", **QUIET)
    models = load_models(run.folder)
    means = [models.of(client)[1].running_mean for client in range(3)]  # type: ignore[index]
    assert not torch.equal(means[0], means[1])
    for client, share in enumerate(data.shares):
        x, y = data.dataset.x[share.test.index], share.test.labels().astype(int)
        right = (models.predict(x, client=client) == np.array(data.dataset.classes)[y]).mean()
        assert right == pytest.approx(models.served(client).facts.measured["local-test/accuracy"])


def test_a_network_of_ones_own_is_not_taken_for_coveys_of_the_same_name(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(BATCH_NORM.replace("net(", "mlp("))
    run = covey.run("fedavg", "digits", f"{own}:mlp", rounds=1, out=tmp_path / "run", **QUIET)
    (file,) = export(run.folder)
    with pytest.raises(UserError, match="a network of somebody's own, own:mlp; give it"):
        covey.read_model(file)
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    assert torch.equal(covey.read_model(file, model=network).row, run.models().served(0).row)


def test_a_network_whose_code_has_changed_is_not_filled_with_the_old_numbers(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(BATCH_NORM)
    run = covey.run("fedavg", "digits", f"{own}:net", rounds=1, out=tmp_path / "run", **QUIET)
    own.write_text(BATCH_NORM.replace("nn.Flatten()", "nn.Flatten(), nn.Tanh()"))
    with pytest.raises(UserError, match=r"own\.py:net.*has changed since the run began.*changed_code=True"):
        load_models(run.folder)
    with pytest.raises(UserError, match="has changed since the run began"):
        export(run.folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(load_models(run.folder, changed_code=True)) == 1


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_files_for_other_programs_hold_the_same_model(digits: covey.Run, tmp_path: Path, format: str) -> None:
    models = digits.models()
    x = models.inputs(covey.load("digits").x[:5])
    wanted = models[0](x)
    (path,) = export(digits.folder, format=format, out=tmp_path)  # type: ignore[arg-type]
    again = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10)
    state = (
        safetensors.torch.load_file(path) if format == "safetensors" else torch.load(path, weights_only=True)
    )
    again.load_state_dict(state)
    assert torch.equal(again(x), wanted)


def test_export_from_the_command_line(rotated: covey.Run, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from covey.cli import app

    result = CliRunner().invoke(app, ["export", str(rotated.folder), "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"model-{i}.safetensors" for i in range(3)]
    wrong = CliRunner().invoke(app, ["export", str(rotated.folder), "--format", "pickle"])
    assert "allowed: safetensors, torch, onnx" in str(wrong.exception)


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    """Three clients with names, whose heads stay with them."""
    out = tmp_path_factory.mktemp("trained") / "personal"
    x = torch.rand(120, 4)
    columns = {name: x[:, place].tolist() for place, name in enumerate("abcd")}
    columns["who"] = ["Lyon", "Berlin", "Rome / Roma"] * 40
    columns["ill"] = ["yes" if value > 0.5 else "no" for value in columns["a"]]
    data = covey.read_table(columns, label="ill", client="who")
    return covey.run("fedper", data, rounds=2, out=out, **QUIET)


def test_every_clients_own_model_is_a_file_and_a_unseen_clients_too(
    personal: covey.Run, tmp_path: Path
) -> None:
    made = export(personal.folder, out=tmp_path)
    assert [path.name for path in made] == [
        f"{name}.safetensors" for name in ("model-Berlin", "model-Lyon", "model-Rome___Roma", "unseen")
    ]
    models, new = personal.models(), {name: [0.2, 0.9] for name in "abcd"}
    for path, client in zip(made, ("Berlin", "Lyon", "Rome / Roma"), strict=False):
        file = covey.read_model(path)
        assert torch.equal(file.row, models.served(client).row)
        assert file.facts == models.served(client).facts
        assert (
            file.predict(new).probabilities.tolist()
            == models.predict(new, client=client).probabilities.tolist()
        )
    assert [path.name for path in export(personal.folder, client="Lyon", out=tmp_path / "one")] == [
        "model-Lyon.safetensors"
    ]


def test_it_is_said_which_model_answers(personal: covey.Run, rotated: covey.Run) -> None:
    models, new = personal.models(), {name: [0.2, 0.9] for name in "abcd"}
    assert (
        models.predict(new, client="Lyon").given == "model 0 of fedper after round 2 as client Lyon uses it"
    )
    assert models.predict(new).given == (
        "model 0 of fedper after round 2, as an unseen client is given it; what every client keeps for itself is here "
        "as in "
        "the first model"
    )
    x = covey.load("digits").x[:3]
    assert rotated.models().predict(x, examples=(x, [1, 1, 1])).given.startswith("model ")
    assert (
        ", the best of 3 on its 3 labelled examples, as"
        in rotated.models().predict(x, examples=(x, [1, 1, 1])).given
    )
    with pytest.raises(UserError, match="the label 'maybe' is none of the run's; allowed: no, yes"):
        models.predict(new, examples=(new, ["maybe", "no"]))


def test_predict_from_the_command_line(personal: covey.Run, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from covey.cli import app

    table, out = tmp_path / "new.csv", tmp_path / "answers.csv"
    table.write_text("a,b,c,d\n0.2,0.5,0.5,0.5\n0.9,0.5,0.5,0.5\n")
    (model, *_) = export(personal.folder, client="Lyon", out=tmp_path)
    wanted = personal.models().predict(table, client="Lyon").csv()
    for where in ([str(personal.folder), "--client", "Lyon"], [str(model)], [str(model), "--client", "Lyon"]):
        result = CliRunner().invoke(app, ["predict", where[0], str(table), *where[1:], "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert out.read_text() == wanted
        assert out.read_text().startswith("sample,answer,p(no),p(yes)\n1,")
        out.unlink()
    for where, why in (
        (
            [str(model), str(table), "--client", "Rome"],
            "--client is Rome, but the model in .* is that of Lyon",
        ),
        ([str(personal.folder), str(table), "--client", "Oslo"], "client 'Oslo' was not in the run"),
        ([str(model), str(tmp_path / "no.csv")], "no.csv is not there"),
        ([str(table), str(table)], "new.csv is not a model that covey wrote, or is damaged"),
        (
            [str(tmp_path / "model.onnx"), str(table)],
            "is for other programs; covey takes the .safetensors file",
        ),
    ):
        wrong = CliRunner().invoke(app, ["predict", *where, "--out", str(out)])
        assert isinstance(wrong.exception, UserError)
        assert re.search(why, str(wrong.exception))
        assert not out.exists()


def test_a_tables_other_columns_stand_beside_the_answers(
    personal: covey.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from covey.cli import app, as_a_line

    monkeypatch.setattr(warnings, "showwarning", as_a_line)  # as the command line has it

    def answers(*where: str) -> str:
        result = CliRunner().invoke(app, ["predict", str(personal.folder), "--out", str(out), *where])
        if result.exception:
            raise result.exception
        return " ".join(result.output.split())

    table, out = tmp_path / "new.csv", tmp_path / "answers.csv"
    table.write_text("id;a;b;c;d;ill\nP7;0,25;0,5;0,5;;no\nP8;900;0,5;;;yes\n", encoding="cp1252")
    said = answers(str(table), "--client", "Lyon")
    assert "new.csv has decimal commas (first in the column 'a')" in said
    assert "the column 'a' holds 900 in row 2; in training it ran from 0" in said
    assert "is it the same unit? (1 of 2 rows)" in said
    assert "3 empty cells in c, d are filled as in training" in said
    lines = out.read_text().splitlines()
    assert lines[0] == "sample,id,ill,answer,p(no),p(yes)"
    assert [line.split(",")[:3] for line in lines[1:]] == [["1", "P7", "no"], ["2", "P8", "yes"]]
    for wrong in (table, tmp_path):
        with pytest.raises(UserError, match=r"--out is .*; it must be a file of its own"):
            answers(str(table), "--out", str(wrong))
    assert table.read_text().startswith("id;a;b;c;d;ill")
    said = answers(str(table), "--examples", str(table))
    assert "2 answers of model 0 of fedper after round 2, the best of 1 on its 2 labelled examples" in said
    for content, more, why in (
        ("a,b,c,d\n.2,.5,.5,.5\n", [], "has no column 'ill', which is the label"),
        ("a,b,c,d,ill\n.2,.5,.5,.5,\n", [], "has 1 rows without the label 'ill'"),
        (
            "a,b,c,d,ill\n.2,.5,.5,.5,perhaps\n",
            [],
            "the label 'perhaps' is none of the run's; allowed: no, yes",
        ),
        ("a,b,c,d,ill\n.2,.5,.5,.5,no\n", ["--client", "Lyon"], "examples are for an unseen client"),
    ):
        (tmp_path / "some.csv").write_text(content)
        with pytest.raises(UserError, match=why):
            answers(str(table), "--examples", str(tmp_path / "some.csv"), *more)
    table.write_text("answer,a,b,c,d\nP7,0.25,0.5,0.5,0.5\n")
    with pytest.raises(UserError, match="the rows have a column 'answer', which the answers have, too"):
        answers(str(table))


def test_the_labels_of_a_table_are_what_its_cells_say(tmp_path: Path) -> None:
    table = {"a": [0.1 * i for i in range(40)], "ill": [1 + i % 2 for i in range(40)]}
    data = covey.read_table(table, label="ill")
    run = covey.run("fedavg", data, clients=2, rounds=1, out=tmp_path / "run", **QUIET)
    assert run.models().targets([2, 1]).tolist() == [1, 0]
    with pytest.raises(UserError, match="the label '0' is none of the run's; allowed: 1, 2"):
        run.models().targets([0, 1])


def test_prices_are_learned_in_deviations_and_answered_in_their_own_unit(tmp_path: Path) -> None:
    """Of 100,000 to 178,000 in steps of 2,000 the mean is 139,000; 40 rounds of one linear relation learn it."""
    table = {"rooms": [0.1 * i for i in range(40)], "price": [100_000.0 + 2_000 * i for i in range(40)]}
    data = covey.read_table(table, label="price")
    run = covey.run("fedavg", data, clients=2, rounds=40, out=tmp_path / "run", **QUIET)
    schema = run.models().about.inputs.schema
    assert schema is not None
    known = data.y[data.train].double()
    assert schema.label_mean == pytest.approx(float(known.mean()))
    assert schema.label_std == pytest.approx(float(known.std(unbiased=False)))
    answers = run.models().predict({"rooms": [0.0, 2.0]})
    assert answers.tolist() == pytest.approx([100_000, 140_000], abs=8_000)
    assert run.models().targets([schema.label_mean]).tolist() == [0.0]
    assert run.summary.last["local-test/mse-mean"] < 0.2  # in squared deviations


def test_arrays_and_pictures_from_the_command_line(digits: covey.Run, tmp_path: Path) -> None:
    from PIL import Image
    from typer.testing import CliRunner

    from covey.cli import app

    x = covey.load("digits").x[:3]
    np.save(tmp_path / "x.npy", x.numpy())
    (tmp_path / "pictures").mkdir()
    for place, picture in enumerate(x.numpy()):
        Image.fromarray(picture[0]).save(tmp_path / "pictures" / f"{place}.png")
    wanted = digits.models().predict(x)
    for given, names in (("x.npy", []), ("pictures", ["0.png", "1.png", "2.png"])):
        result = CliRunner().invoke(app, ["predict", str(digits.folder), str(tmp_path / given)])
        assert result.exit_code == 0, result.output
        assert wanted.csv(names) in result.output


def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    for name in ("fedavg", "local"):
        (tmp_path / "both" / name).mkdir(parents=True)
        (tmp_path / "both" / name / "config.toml").touch()
    with pytest.raises(UserError, match=r"both holds 2 runs: name one of them, such as .*both/fedavg$"):
        load_models(tmp_path / "both")
    tmp_path = tmp_path / "both" / "local" / "empty"
    tmp_path.mkdir()
    with pytest.raises(UserError, match=r"config\.toml is missing"):
        load_models(tmp_path)
