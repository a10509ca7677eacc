"""A table of one's own: columns become inputs, classes, clients and test rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from covey.data import Samples, federate
from covey.data.encoding import encode
from covey.data.table import read_table
from covey.errors import UserError
from covey.runs.config import fleet_of, resolve

ROWS = 40
COLUMNS = {
    "hospital": ["Lyon" if i % 2 else "Berlin" for i in range(ROWS)],
    "age": [20.0 + i for i in range(ROWS)],
    "sex": ["f" if i % 3 else "m" for i in range(ROWS)],
    "ill": ["yes" if i >= 24 else "no" for i in range(ROWS)],
}


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in zip(*COLUMNS.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_become_inputs_classes_and_clients(csv: Path) -> None:
    data = read_table(csv, label="ill", client="hospital")
    assert data.name == "patients"
    assert data.classes == ("no", "yes")
    assert data.features == ("age", "sex=f", "sex=m")
    assert data.group_names == {"hospital": ("Berlin", "Lyon")}
    assert data.x[1].tolist() == [21, 1, 0]
    assert data.natural["hospital"].tolist() == [i % 2 for i in range(ROWS)]
    assert len(data.test) == 8
    assert np.bincount(data.natural["hospital"][data.test]).tolist() == [4, 4]


def test_numbers_are_standardised_by_the_training_rows_and_texts_are_not(csv: Path) -> None:
    inputs = ["age", "sex"]
    data = read_table(csv, label="ill", features=inputs)
    x, _ = Samples(data, data.train).tensors()
    age = np.array(COLUMNS["age"])[data.train]
    assert x[:, 0].numpy() == pytest.approx((age - age.mean()) / age.std(), abs=1e-5)
    assert set(x[:, 1:].unique().tolist()) == {0.0, 1.0}
    raw, _ = Samples(
        plain := read_table(csv, label="ill", features=inputs, standardise=False), plain.train
    ).tensors()
    assert raw[:, 0].tolist() == age.tolist()


def test_the_same_from_parquet_a_frame_and_semicolons(csv: Path, tmp_path: Path) -> None:
    first = read_table(csv, label="ill", client="hospital")
    pq.write_table(pa.table(COLUMNS), tmp_path / "patients.parquet")
    (tmp_path / "excel.csv").write_text(csv.read_text().replace(",", ";"))
    sources = [tmp_path / "patients.parquet", pa.table(COLUMNS), COLUMNS, tmp_path / "excel.csv"]
    try:
        import pandas

        sources.append(pandas.DataFrame(COLUMNS))
    except ImportError:
        pass
    for source in sources:
        again = read_table(source, label="ill", client="hospital")
        assert torch.equal(again.x, first.x)
        assert torch.equal(again.y, first.y)
        assert again.train.tolist() == first.train.tolist()


def test_a_datasets_dataset_is_a_table() -> None:
    datasets = pytest.importorskip("datasets")
    data = read_table(datasets.Dataset.from_dict(COLUMNS), label="ill", client="hospital")
    assert data.classes == ("no", "yes")
    assert len(data.x) == ROWS


def test_own_test_rows_by_a_column_or_by_a_second_file(csv: Path) -> None:
    split = {**COLUMNS, "part": ["test" if i < 5 else "train" for i in range(ROWS)]}
    data = read_table(split, label="ill", split="part")
    assert data.test.tolist() == [0, 1, 2, 3, 4]
    assert "part" not in " ".join(data.features)
    second = {name: column[:6] for name, column in COLUMNS.items()}
    data = read_table(csv, label="ill", test=second)
    assert (len(data.train), len(data.test)) == (ROWS, 6)


def test_real_labels_are_a_regression() -> None:
    data = read_table({"x": [1.0, 2.0, 3.0, 4.0], "y": [0.5, 1.5, 2.5, 3.5]}, label="y", test_share=0.5)
    assert data.classes == ()
    assert data.y.shape == (4, 1)
    assert read_table({"x": [1, 2, 3], "y": [3, 1, 3]}, label="y").classes == ("1", "3")
    assert read_table({"x": [1, 2, 3], "y": [3, 1, 3]}, label="y", task="regression").classes == ()


def test_empty_cells_are_refused_or_filled_with_the_training_mean() -> None:
    gaps = {"x": [1.0, None, 3.0, 5.0], "y": ["a", "b", "a", "b"], "part": ["", "", "", "test"]}
    with pytest.raises(UserError, match="the column 'x' has 1 empty cells \\(first in row 2\\)"):
        read_table(gaps, label="y", split="part", features=["x"], missing="refuse")
    data = read_table(gaps, label="y", split="part", features=["x"], missing="mean", standardise=False)
    assert data.x[:, 0].tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"label": "sick"}, "has no column 'sick'; its columns are hospital, age, sex, ill"),
        ({"label": "ill", "features": ["ill"]}, "'ill' is the label"),
        ({"label": "ill", "split": "sex"}, "says test for 0 of 40 rows"),
        ({"label": "ill", "test_share": 1.5}, "test_share is 1.5; allowed: a number above 0 and below 1"),
        ({"label": "ill", "test": {"age": [1]}}, "must have the same columns"),
    ],
)
def test_a_mistake_is_one_sentence(csv: Path, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_table(csv, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b'a,b\n1,2\n3\n"'])
def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.csv").write_bytes(content)
    with pytest.raises(UserError, match="odd"):
        read_table(tmp_path / "odd.csv", label="a")
    with pytest.raises(UserError, match="does not exist"):
        read_table(tmp_path / "none.csv", label="a")


def test_new_rows_are_encoded_as_the_table_was(csv: Path) -> None:
    data = read_table(csv, label="ill", client="hospital")
    assert torch.equal(encode(data.schema, COLUMNS), data.x)
    assert data.schema is not None
    with pytest.raises(
        UserError, match="the column 'sex' holds 'never seen' in row 1, which was not there in training"
    ):
        encode(data.schema, {"age": [30], "sex": ["never seen"]})
    with pytest.raises(UserError, match="the rows have no column 'age'; they have sex"):
        encode(data.schema, {"sex": ["f"]})


def test_a_table_with_a_client_column_needs_no_other_setting(csv: Path) -> None:
    tables = {"data": {"name": "table", "path": str(csv), "label": "ill", "client": "hospital"}}
    config = resolve(tables)
    assert (config["partition"]["name"], config["data"]["clients"]) == ("natural", 2)
    fleet = fleet_of(config)
    assert [share.name for share in fleet.data.shares] == ["Berlin", "Lyon"]
    assert config["method"]["per_round"] == 2


def test_data_say_in_one_line_what_they_are(csv: Path) -> None:
    data = read_table(csv, label="ill", client="hospital")
    assert repr(data) == ("Dataset('patients': 32 training and 8 test samples of shape (3,), 2 classes)")
    fleet = federate(data, partition="natural", clients=2, seed=0)
    assert repr(fleet) == "Federation('patients': 2 clients, 16 to 16 training samples each)"
    assert repr(fleet.shares[0].train) == "Samples(16 of 'patients')"


def written(path: Path, columns: str, *rows: str) -> Path:
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


@pytest.mark.parametrize("client", [None, "hospital"])
def test_a_table_without_rows_is_one_sentence(tmp_path: Path, client: str | None) -> None:
    path = written(tmp_path / "none.csv", "age,ill,hospital")
    tables = {
        "data": {"name": "table", "path": str(path), "label": "ill", **({"client": client} if client else {})}
    }
    with pytest.raises(UserError, match=r"the table has 0 rows; there must be at least 2"):
        fleet_of(resolve(tables))


def test_two_columns_of_one_name_are_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "twice.csv", "age,age,ill", "1,2,yes", "2,3,no")
    with pytest.raises(UserError, match="the table has 2 columns called 'age'"):
        read_table(path, label="ill")


def test_a_client_with_one_row_trains_on_it(tmp_path: Path) -> None:
    rows = [f"{i % 7},{'yes' if i % 2 else 'no'},{'Lyon' if i % 3 else 'Berlin'}" for i in range(60)]
    path = written(tmp_path / "alone.csv", "age,ill,hospital", *rows, "3,yes,Alone", "4,no,Lonely")
    tables = {"data": {"name": "table", "path": str(path), "label": "ill", "client": "hospital"}}
    fleet = fleet_of(resolve(tables))
    assert {share.name: len(share.train) for share in fleet.data.shares if len(share.train) == 1} == {
        "Alone": 1,
        "Lonely": 1,
    }
    assert len(fleet.data.shares) == 4


def test_a_label_of_numbers_is_a_regression_without_being_told(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i * 0.5},{'Lyon' if i % 3 else 'Berlin'}" for i in range(60)]
    path = written(tmp_path / "doses.csv", "age,dose,hospital", *rows)
    data = {"name": "table", "path": str(path), "label": "dose", "client": "hospital"}
    config = resolve({"data": data})
    assert (config.top.objective, config["partition"]["name"]) == ("regression", "natural")
    fleet_of(config).close()
    alone = resolve({"data": {"name": "table", "path": str(path), "label": "dose"}})
    assert (alone.top.objective, alone["partition"]["name"]) == ("regression", "iid")
    assert resolve({"data": {**data, "label": "hospital", "client": None}}).top.objective == "classification"


def test_a_number_to_predict_is_learned_with_short_gradients_unless_the_file_says_otherwise(
    csv: Path,
) -> None:
    data = {"name": "table", "path": str(csv), "client": "hospital"}
    numbers = resolve({"data": {**data, "label": "age"}})
    assert (numbers.top.objective, numbers.train.clip) == ("regression", 1.0)
    assert resolve({"data": {**data, "label": "age"}, "train": {"clip": 9}}).train.clip == 9
    assert resolve({"data": {**data, "label": "age"}, "objective": "cox"}).train.clip is None
    assert resolve({"data": {**data, "label": "ill"}}).train.clip is None
