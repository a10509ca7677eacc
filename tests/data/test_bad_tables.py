"""Tables and inputs that nobody should get an answer from without a word: the sentence that each gets instead."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from covey.data import from_tensors, load, read_images
from covey.data.table import read_table
from covey.data.types import Dataset
from covey.errors import UserError
from covey.folder.about import Inputs

ROWS = 40
ILL = ["yes" if i % 2 else "no" for i in range(ROWS)]


def with_column(cell: Callable[[int], Any], **columns: Any) -> dict[str, Any]:
    return {
        "age": [20.5 + i % 30 for i in range(ROWS)],
        "s": [cell(i) for i in range(ROWS)],
        "ill": ILL,
    } | columns


def csv(cell: Callable[[int], Any], delimiter: str = ",") -> bytes:
    lines = [f"{cell(i)}{delimiter}{ill}" for i, ill in enumerate(ILL)]
    return "\n".join([f"s{delimiter}ill", *lines]).encode() + b"\n"


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "a stray text among numbers": (
        csv(lambda i: "oops" if i == 7 else 1.5 * i),
        r"the column 's' holds numbers, but 'oops' in row 8: correct it, say na_values = \[\"oops\"\]",
    ),
    "a dash for an empty cell": (csv(lambda i: "-" if i == 7 else i), "but '-' in row 8"),
    "a comma for what?": (
        csv(lambda i: f'"1,{100 + i}"'),
        "holds '1,100', which is one number with a decimal",
    ),
    "commas and points": (
        b"a;b;ill\n"
        + b"\n".join(b"%d,5;1.%d;%s" % (i, 200 + i, b"yn"[i % 2 : i % 2 + 1]) for i in range(ROWS)),
        "has decimal commas in the column 'a' and points in 'b'",
    ),
    "dates in two ways": (
        csv(lambda i: f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2020"),
        'can be read in two ways: say date_format = "%d/%m/%Y" or "%m/%d/%Y"',
    ),
    "no such day": (
        csv(lambda i: "2020-02-31" if i == 3 else f"2020-01-{i % 28 + 1:02d}"),
        "but '2020-02-31' cannot",
    ),
    "a text among dates": (
        csv(lambda i: "soon" if i == 3 else f"2020-01-{i % 28 + 1:02d}"),
        "but 'soon' in row 4",
    ),
    "numbers with a unit": (csv(lambda i: f"{i} %"), "holds numbers with a unit, such as '0 %'"),
    "an empty file": (b"", "cannot be read as a table"),
    "no rows": (b"s,ill\n", "the table has 0 rows; there must be at least 2"),
    "one row": (b"s,ill\n1,a\n", "the table has 1 rows"),
    "a short row": (b"s,ill\n1,a\n2\n3,b\n", "Expected 2 columns, got 1"),
    "a name twice": (b"s,s,ill\n1,2,a\n2,3,b\n", "2 columns called 's'"),
    "UTF-16 cut short": (csv(lambda i: i).decode().encode("utf-16")[:-1], "codec can't decode"),
    "neither UTF-8 nor cp1252": (b"s,ill\n1,\x81\n2,b\n", "can't decode byte 0x81"),
    "a pickle": (b"\x80\x04\x95", "cannot be read as a table"),
    "no label": (
        csv(lambda i: i).replace(b"ill", b"sick", 1),
        "has no column 'ill'; its columns are s, sick",
    ),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_one_sentence(what: str, tmp_path: Path) -> None:
    content, sentence = BAD_FILES[what]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_table(tmp_path / "t.csv", label="ill")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            with_column(lambda i: {"a": i}),
            r"the column 's' holds struct<a: int64>, which is neither numbers nor",
        ),
        (with_column(lambda i: [i, 2]), r"the column 's' holds list<item: int64>"),
        (with_column(lambda i: b"x"), "the column 's' holds binary"),
        (with_column(lambda i: dt.timedelta(i)), "the column 's' holds duration"),
        (
            with_column(lambda i: 2**53 + 1 + i % 7),
            r"holds 9007199254740993 in row 1; whole numbers beyond 2\^53",
        ),
        (
            with_column(lambda i: 0, s=pa.array([2**63 + 5 + i % 7 for i in range(ROWS)], pa.uint64())),
            r"holds 9223372036854775813 in row 1; whole numbers beyond 2\^53",
        ),
        (with_column(lambda i: 2**70), "the column 's' cannot be read: "),
        (with_column(lambda i: i if i % 2 else "a"), "the column 's' cannot be read: "),
        (with_column(lambda i: np.inf if i == 4 else 1.0), "the column 's' holds infinity in row 5"),
        (
            with_column(lambda i: 1e300 if i == 4 else 1.0),
            r"the column 's' holds 1e\+300, which is too large, in row 5",
        ),
        ({"s": [f"p{i}" for i in range(ROWS)], "ill": ILL}, "no column left .* look like IDs: s"),
        (
            with_column(int, ill=pa.nulls(ROWS, pa.string())),
            rf"'ill' has {ROWS} empty cells \(first in row 1\); every row needs its",
        ),
        (with_column(int, ill=[{"a": 1}] * ROWS), "the column 'ill' holds struct"),
        ({"s": [1.0] * 300, "ill": list(range(300))}, 'has 300 different values: say task = "regression"'),
        ({"s": [1, 2], "ill": ["a"]}, "expected length 2 but got length 1"),
        (3, "a table was given as int; allowed: a CSV"),
        ("none.csv", "none.csv does not exist"),
        ("none.xlsx", "none.xlsx does not exist"),
        ("postgresql://u:secret@h/db", r"\(postgresql://u:\*\*\*@h/db\) has a password"),
        ("nosuch://h/db", "nosuch://h/db cannot be read by a query"),
    ],
)
def test_bad_columns_are_one_sentence(source: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_table(source, label="ill")


def test_rows_without_a_label_are_left_out_and_counted() -> None:
    """Row 1 has no label and row 4 says "?": 38 of 40 are left, and a wrong cell is named by its row in the file."""
    labels = [None, *ILL[1:3], "?", *ILL[4:]]
    owner = ["a", "b", "b", "b"] + ["b"] * (ROWS - 4)
    data = read_table(
        with_column(int, ill=labels, owner=owner),
        label="ill",
        client="owner",
        na_values=["?"],
        test_share=0.25,
    )
    assert (
        "the column 'ill' has 2 empty cells (first in row 1): rows without a label are left out" in data.notes
    )
    assert len(data.x) == len(data.y) == ROWS - 2 == len(data.train) + len(data.test)
    assert data.group_names["owner"] == ("b",)  # whose only row had none
    with pytest.raises(UserError, match="every row needs its label"):
        read_table(with_column(int, ill=labels), label="ill", missing="refuse")
    with pytest.raises(UserError, match="'oops' in row 8"):
        read_table(with_column(lambda i: "oops" if i == 7 else str(i)), label="ill")


def test_an_empty_client_is_no_client() -> None:
    owner = np.array([1.0, 2.0, np.nan, np.nan] * 10)
    with pytest.raises(
        UserError, match=r"'owner' has 20 empty cells \(first in row 3\); every row needs its client"
    ):
        read_table(with_column(int, owner=owner), label="ill", client="owner")


def test_what_people_have_is_read(tmp_path: Path) -> None:
    """Each of these failed or became something else once."""

    def read(content: bytes, name: str = "t.csv", **settings: Any) -> Dataset:
        (tmp_path / name).write_bytes(content)
        return read_table(tmp_path / name, label="ill", **settings)

    halves = [1.5 * i for i in range(ROWS)]
    for content in (
        csv(lambda i: str(1.5 * i).replace(".", ","), ";"),
        csv(lambda i: 1.5 * i, "\t"),
        csv(lambda i: 1.5 * i, "|"),
        csv(lambda i: 1.5 * i).decode().encode("utf-16"),
        b"\xef\xbb\xbf" + csv(lambda i: 1.5 * i),
    ):
        data = read(content)
        assert data.features == ("s",)
        assert data.x[:, 0].tolist() == halves
    assert read(gzip.compress(csv(lambda i: 1.5 * i)), "t.csv.gz").x[:, 0].tolist() == halves
    umlauts = read(csv(lambda i: "Köln" if i % 2 else "Graz").decode().encode("latin-1"))
    assert umlauts.features == ("s=Graz", "s=Köln")
    assert umlauts.notes == (
        't.csv is not UTF-8: it is read as cp1252; if letters look wrong, save it as UTF-8 or say encoding = "..."',
    )
    thousands = csv(lambda i: f'"1,{100 + i}"')
    assert read(thousands, decimal_point=".").x[1, 0] == 1101
    assert read(thousands, decimal_point=",").x[1, 0] == np.float32(1.101)
    unknown = read(csv(lambda i: "?" if i == 7 else i), na_values=["?"])
    assert unknown.features == ("s", "s (missing)")
    assert unknown.x[7, 1] == 1
    codes = read(csv(lambda i: i % 3), categories=["s"])
    assert codes.features == ("s=0", "s=1", "s=2")
    assert read(csv(lambda i: f"{i % 12 + 1:02d}/01/2020"), date_format="%m/%d/%Y").features == (
        "s.month",
        "s.weekday",
    )


def test_ids_are_left_out_and_named_unless_they_are_asked_for() -> None:
    rows = with_column(
        lambda i: f"P{i:04d}", patient_id=list(range(1000, 1000 + ROWS)), dose=[3 * i for i in range(ROWS)]
    )
    data = read_table(rows, label="ill")
    assert data.features == ("age", "dose")
    assert data.notes == (
        "left out, because they look like IDs: s, patient_id; name the inputs (features) to use them",
        "every row has a number of its own in dose: leave it out (exclude) if it is an ID",
    )
    assert read_table(rows, label="ill", features=["patient_id"]).features == ("patient_id",)
    assert read_table(rows, label="ill", exclude=["dose", "s", "patient_id"]).notes == ()
    with pytest.raises(UserError, match="'age' is among the features and excluded"):
        read_table(rows, label="ill", features=["age"], exclude=["age"])


def test_empty_cells_are_filled_by_the_training_rows_and_an_input_says_so() -> None:
    rows = {
        "x": [1.0, None, 3.0, 8.0, None],
        "c": ["a", "b", "b", None, "a"],
        "full": [1.0, 2.0, 3.0, 4.0, 5.0],
        "y": ["n", "j", "n", "j", "n"],
        "part": ["", "", "", "", "test"],
    }
    data = read_table(rows, label="y", split="part", standardise=False)
    assert data.features == ("x", "x (missing)", "c=a", "c=b", "c (missing)", "full")
    assert data.x[1].tolist() == [4, 1, 0, 1, 0, 2]  # the mean of 1, 3 and 8
    assert data.x[3].tolist() == [8, 0, 0, 1, 1, 4]  # b is the most frequent
    assert data.x[4].tolist() == [4, 1, 1, 0, 0, 5]
    assert data.notes[0].startswith(
        "3 empty cells in x, c are filled with the mean or the most frequent category"
    )


def write_workbook(path: Path, rows: list[list[Any]]) -> None:
    """The least that is an Excel file."""
    office = "http://schemas.openxmlformats.org"
    sheet = f'xmlns="{office}/spreadsheetml/2006/main"'
    links = f'xmlns="{office}/package/2006/relationships"'
    kind = f"{office}/officeDocument/2006/relationships"

    def cell(value: Any) -> str:
        text = isinstance(value, str)
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>' if text else f"<c><v>{value}</v></c>"

    cells = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{office}/package/2006/content-types">'
            f'<Override PartName="/xl/workbook.xml" ContentType="{types}.sheet.main+xml"/>'
            f'<Override PartName="/xl/a.xml" ContentType="{types}.worksheet+xml"/></Types>',
        )
        for place, target, what in (
            ("_rels/.rels", "xl/workbook.xml", "officeDocument"),
            ("xl/_rels/workbook.xml.rels", "a.xml", "worksheet"),
        ):
            link = f'<Relationship Id="r1" Type="{kind}/{what}" Target="{target}"/>'
            made.writestr(place, f"<Relationships {links}>{link}</Relationships>")
        named = '<sheets><sheet name="first" sheetId="1" r:id="r1"/></sheets>'
        made.writestr("xl/workbook.xml", f'<workbook {sheet} xmlns:r="{kind}">{named}</workbook>')
        made.writestr("xl/a.xml", f"<worksheet {sheet}><sheetData>{cells}</sheetData></worksheet>")


def test_excel_and_databases(tmp_path: Path) -> None:
    path = tmp_path / "clinic.db"
    with sqlite3.connect(path) as there:
        there.execute("create table patients (age real, ward text, ill text)")
        there.executemany(
            "insert into patients values (?, ?, ?)",
            [(None if i == 3 else 20.0 + i % 30, "icu" if i % 3 else "er", ill) for i, ill in enumerate(ILL)],
        )
    data = read_table(path, label="ill")
    assert data.features == ("age", "age (missing)", "ward=er", "ward=icu")
    few = read_table(path, label="ill", query="select ward, ill from patients")
    assert few.features == ("ward=er", "ward=icu")
    with pytest.raises(UserError, match=r"clinic.db cannot be read by a query: .*no such column"):
        read_table(path, label="ill", query="select height from patients")
    with sqlite3.connect(path) as there:
        there.execute("create table other (age real)")
    with pytest.raises(UserError, match=r"has 2 tables \(other, patients\); say query"):
        read_table(path, label="ill")
    pytest.importorskip("python_calamine")
    book = tmp_path / "clinic.xlsx"
    write_workbook(book, [["age", "ward", "ill"], *([20.5 + i, "er", ill] for i, ill in enumerate(ILL))])
    data = read_table(book, label="ill")
    assert data.features == ("age", "ward=er")
    assert data.x[:, 0].tolist() == [20.5 + i for i in range(ROWS)]
    with pytest.raises(UserError, match=r"has no sheet 'second'; its sheets are first"):
        read_table(book, label="ill", sheet="second")
    (tmp_path / "odd.xlsx").write_bytes(b"no workbook")
    with pytest.raises(UserError, match=r"odd.xlsx cannot be read as an Excel file"):
        read_table(tmp_path / "odd.xlsx", label="ill")


# ---------------------------------------------------------------------------------------------- inputs to predict

PATIENTS = {"age": [20.0, 30.0, None, 50.0] * 10, "sex": ["f", "m"] * 20, "ill": ILL}
DIGITS = load("digits")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inputs]:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "empty").mkdir()
    for number in range(8):
        (folder / "all" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (20, 30, 3), dtype=np.uint8)
        image.fromarray(pixels).save(folder / "all" / "ab"[number % 2] / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    whole = {**PATIENTS, "age": [20.0, 30.0, 40.0, 50.0] * 10}
    labels = torch.arange(40) % 2
    return {
        "digits": Inputs.of(DIGITS),
        "table": Inputs.of(read_table(PATIENTS, label="ill")),
        "whole": Inputs.of(read_table(whole, label="ill", missing="refuse")),
        "pictures": Inputs.of(read_images(folder / "all", side=16)),
        "floats": Inputs.of(from_tensors(torch.rand(40, 3, 8, 8), labels)),
        "vectors": Inputs.of(from_tensors(torch.randn(40, 5), labels)),
        "tokens": Inputs.of(from_tensors(torch.arange(240).reshape(40, 6) % 50, labels)),
        "folder": folder,  # type: ignore[dict-item]
    }


BYTES = DIGITS.x[:5].numpy()


@pytest.mark.parametrize(
    ("run", "x", "sentence"),
    [
        ("digits", BYTES / 255 * 16, "samples run from 0 to 16; those of the run did from 0 to 255"),
        ("digits", BYTES / 255, "samples run from 0 to 1; those of the run did from 0 to 255"),
        ("digits", BYTES * 2.0, "samples run from 0 to 510; the run had 0 to 255"),
        ("digits", -1.0 * BYTES, "the run had 0 to 255"),
        ("digits", BYTES.reshape(5, 64), r"samples have shape \(64,\); the models take \(1, 8, 8\)"),
        ("digits", np.where(BYTES > 0, np.nan, 0), "sample 1 holds nan for the input"),
        ("digits", np.where(BYTES > 0, np.inf, 0), "sample 1 holds inf for the input"),
        ("digits", BYTES[:0], "there are no samples to predict"),
        ("digits", None, "samples hold object"),
        ("digits", [[1], [1, 2]], "samples must be numbers of shape"),
        ("digits", BYTES + 1j, "samples hold complex128"),
        ("digits", {"a": [1]}, "the run was not on a table"),
        ("floats", np.full((2, 3, 8, 8), 200.0), "samples run from 200 to 200; those of the run did from"),
        ("vectors", torch.tensor([[1, 2, torch.nan, 0, 0]]), r"sample 1 holds nan for the input \(2,\)"),
        (
            "tokens",
            torch.full((2, 6), 60),
            "samples run from 60 to 60; .* whole numbers from 0 to 49",
        ),
        ("tokens", torch.rand(2, 6), "those of the run are whole numbers"),
        (
            "table",
            {"age": [1], "sex": ["x"]},
            "holds 'x' in row 1, which was not there in training; allowed: f, m",
        ),
        (
            "table",
            {"age": ["old"], "sex": ["f"]},
            "the column 'age' holds 'old' in row 1, which is no number",
        ),
        ("table", {"age": [np.inf], "sex": ["f"]}, "the column 'age' holds infinity in row 1"),
        ("table", {"age": [[1]], "sex": ["f"]}, "the column 'age' holds list"),
        ("table", {"age": [1]}, "the rows have no column 'sex'; they have age"),
        ("table", {"age": [], "sex": []}, "there are no samples to predict"),
        ("table", [], "there are no samples to predict"),
        ("table", np.array([[np.nan, 0, 1, 0]]), "sample 1 holds nan for the input age"),
        ("table", "none.csv", "none.csv does not exist"),
        (
            "whole",
            {"age": [None], "sex": ["f"]},
            r"the column 'age' has 1 empty cells \(first in row 1\); in training",
        ),
        ("pictures", "empty", "holds no pictures"),
        ("pictures", "broken.png", "broken.png is not a readable image"),
        ("pictures", "none.png", "none.png is not a readable image"),
    ],
)
def test_a_bad_input_is_one_sentence(told: dict[str, Inputs], run: str, x: Any, sentence: str) -> None:
    folder: Any = told["folder"]
    if isinstance(x, str):
        x = folder / x
    with pytest.raises(UserError, match=sentence):
        told[run].samples(x)


def test_rows_are_treated_as_in_training(told: dict[str, Inputs], tmp_path: Path) -> None:
    table = told["table"]
    schema = table.schema
    assert schema is not None
    mean, std = schema.columns[0].mean, schema.columns[0].std
    assert mean is not None
    assert std is not None
    wanted = [[(61 - mean) / std, 0, 1, 0], [0, 1, 0, 1]]
    rows: dict[str, Any] = {"age": [61.0, None], "sex": ["f", "m"]}
    (tmp_path / "new.csv").write_text("name;sex;age\nAda;f;61,0\nBob;m;\n")
    pq.write_table(pa.table(rows), tmp_path / "new.parquet")
    sources: list[Any] = [
        rows,
        {"age": np.array([61.0, np.nan]), "sex": ["f", "m"]},
        [{"age": 61, "sex": "f"}, {"sex": "m"}],
        tmp_path / "new.csv",
        str(tmp_path / "new.parquet"),
        pa.table(rows),
    ]
    try:
        import pandas

        sources.append(pandas.DataFrame({"sex": ["f", "m"], "age": [61.0, np.nan]}))
    except ImportError:
        pass
    for source in sources:
        assert table.samples(source).numpy() == pytest.approx(np.array(wanted), abs=1e-5)
    assert table.samples({"age": 61, "sex": "f"}).shape == (1, 4)


def test_pictures_are_treated_as_in_training(told: dict[str, Inputs]) -> None:
    image = pytest.importorskip("PIL.Image")
    folder: Any = told["folder"]
    data = read_images(folder / "all", side=16)
    scaled = told["pictures"].samples(data.x)
    assert torch.equal(told["pictures"].samples(folder / "all" / "a"), scaled[:4])  # of any size
    assert torch.equal(told["pictures"].samples(data.x.permute(0, 2, 3, 1).numpy()), scaled)
    first = image.open(folder / "all" / "a" / "0.png")
    assert torch.equal(told["pictures"].samples([first, first.convert("RGBA")]), scaled[[0, 0]])
    digits = told["digits"].samples(BYTES)
    for same in (
        BYTES[:, 0],
        BYTES.astype(float),
        torch.from_numpy(BYTES),
        [image.fromarray(d[0]) for d in BYTES],
    ):
        assert torch.equal(told["digits"].samples(same), digits)
    assert torch.equal(told["digits"].samples(BYTES[0]), digits[:1])
    with pytest.raises(UserError, match="a picture has 9 x 8 pixels; the models take 8 x 8"):
        told["digits"].samples(image.new("L", (9, 8)))
    with pytest.raises(UserError, match="a picture has the mode RGB; the models take L"):
        told["digits"].samples(image.new("RGB", (8, 8)))
    with pytest.raises(UserError, match="the run was not on pictures"):
        told["floats"].samples(image.new("RGB", (8, 8)))


@pytest.mark.parametrize("made", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_is_not_waited_for(made: Callable[[Path], None], tmp_path: Path) -> None:
    made(tmp_path / "rows.csv")
    with pytest.raises(UserError, match=r"rows\.csv cannot be read as a table: .*it is not a regular file"):
        read_table(tmp_path / "rows.csv", label="ill")
