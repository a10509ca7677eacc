"""`python -m tests.fuzz.readers CASES [SEED]`: files as a broken disk, or a stranger, leaves them, for every reader.

A reader reads, or refuses in one sentence (a block of the wire: with a ValueError); anything else is a fault.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from covey.core.codec import from_bytes, task_to_bytes
from covey.core.round import Task
from covey.data.files import read_idx, read_npz
from covey.data.schema import read_schema
from covey.data.table import read_table
from covey.deploy.site_list import listed_sites
from covey.errors import RunError, UserError
from covey.files import strict_json
from covey.folder.about import read_about
from covey.folder.checkpoint import read_checkpoint
from covey.folder.checksums import Index, KeptCheckpoint, Piece, read_index
from covey.folder.read import read_config, read_run, read_summary
from covey.folder.rows import read_journal, read_parquet
from covey.report.live.folder import RunsFolder
from covey.report.live.table import live_table
from covey.report.page import page
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.runs.study.plan import StudyPlan, read_plan
from covey.runs.study.tuning import read_tuning
from covey.settings.toml import read_tables
from tests.fuzz.frame import HEAD, Subject, damaged, fuzz
from tests.fuzz.strategies import HUGE, TEXTS, WIDE

LONGEST = 2000  # characters of a sentence
ODD = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([*HUGE, *WIDE, *TEXTS, [], {}, [[]], {"a": []}, [1, "a"], "0001", "\ud800"])
)


@cache
def place() -> Path:
    """A folder for all files, which is gone when the process is."""
    folder = Path(tempfile.mkdtemp(prefix="covey-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def run() -> Path:
    """A small finished run, and beside it one in the middle of its way."""
    tables = {
        "rounds": 2,
        "data": {"clients": 2},
        "train": {"batches": 1},
        "engine": {"mode": "serial"},
        "checkpoint_seconds": 0.0,
    }
    folder = place() / "runs" / "finished"
    run_config(resolve(tables), folder, report=False)

    class Dead(BaseException):
        pass

    def watch(end: Any) -> None:
        if end.state.round == 1:
            raise Dead

    with contextlib.suppress(Dead):
        run_config(resolve(tables), place() / "runs" / "begun", watchers=[watch], report=False)
    return folder


# ---------------------------------------------------------------------------------------------- cases


def changed(value: Any) -> st.SearchStrategy[Any]:
    """The value with one part of it, at any depth, replaced by something odd or taken away."""
    if isinstance(value, dict) and value:
        keys = st.sampled_from(sorted(value))
        inner = keys.flatmap(lambda key: changed(value[key]).map(lambda part: {**value, key: part}))
        gone = keys.map(lambda key: {k: v for k, v in value.items() if k != key})
        return inner | inner | gone | ODD
    if isinstance(value, list) and value:
        places = st.integers(0, len(value) - 1)
        inner = places.flatmap(
            lambda at: changed(value[at]).map(lambda part: [*value[:at], part, *value[at + 1 :]])
        )
        return inner | ODD
    return ODD


BRACKETS = st.sampled_from([b"[" * 100_000, b'{"a":' * 50_000, b"[" * 3000 + b"]" * 3000])


def json_files(content: bytes) -> st.SearchStrategy[bytes]:
    """A JSON file with other values in it, or with damaged bytes."""
    as_bytes = changed(json.loads(content)).map(lambda value: json.dumps(value).encode())
    return as_bytes | as_bytes | damaged(content) | st.binary(max_size=60) | BRACKETS


def indexes(content: bytes) -> st.SearchStrategy[bytes]:
    """The same for an index, whose writer knows how to make its checksum."""

    def sealed(value: Any) -> bytes:
        if isinstance(value, dict):
            inner = {k: v for k, v in value.items() if k not in ("format", "sha256")}
            value = {
                **value,
                "sha256": hashlib.sha256(json.dumps(inner, sort_keys=True).encode()).hexdigest(),
            }
        return json.dumps(value).encode()

    return changed(json.loads(content)).map(sealed) | json_files(content)


def journals(content: bytes) -> st.SearchStrategy[bytes]:
    """A journal of which one line has other values, or bytes are damaged."""
    lines = content.splitlines()[:40]
    odd = st.integers(0, len(lines) - 1).flatmap(
        lambda at: changed(json.loads(lines[at])).map(
            lambda row: b"\n".join([*lines[:at], json.dumps(row).encode(), *lines[at + 1 :], b""])
        )
    )
    return odd | damaged(b"\n".join([*lines, b""])) | st.binary(max_size=60) | BRACKETS


CELLS = st.sampled_from(
    [
        "1",
        "2.5",
        "",
        "NA",
        "nan",
        "inf",
        "1e400",
        "9" * 400,
        "a",
        "ä",
        "\x00",
        '"',
        "2020-01-01",
        "1,5",
        "[1]",
        "true",
    ]
)


def csv_files() -> st.SearchStrategy[bytes]:
    usual = st.tuples(st.sampled_from("01"), st.sampled_from("123"), st.sampled_from("uv"), CELLS)
    whole = st.lists(usual, min_size=20, max_size=30)
    rows = whole | whole | st.lists(st.lists(CELLS, min_size=2, max_size=5), min_size=1, max_size=8)
    made = st.tuples(rows, st.sampled_from(",;\t"), st.sampled_from(["utf-8", "latin-1", "utf-16"])).map(
        lambda case: "\n".join(
            [case[1].join(["y", "a", "b", "c"]), *(case[1].join(row) for row in case[0])]
        ).encode(case[2], "replace")
    )
    return made | made.flatmap(damaged) | st.binary(max_size=80)


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def archives() -> st.SearchStrategy[bytes]:
    file = io.BytesIO()
    np.savez_compressed(
        file, x=np.zeros((5, 4, 4, 3), np.uint8), y=np.arange(5), classes=np.array(["a", "b"])
    )
    return damaged(file.getvalue()) | st.binary(max_size=60)


# ---------------------------------------------------------------------------------------------- readers


def reader(name: str, read: Callable[[Path], Any], *refusals: type[Exception]) -> Callable[[bytes], str]:
    """Writes the case as a file of that name and reads it; what became of it."""
    path = place() / "one" / name

    def one(content: bytes) -> str:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except (UserError, RunError) as no:
            said = str(no)
            assert said, "no sentence"
            assert "\n" not in said, f"not one line: {said!r}"
            assert len(said) < LONGEST, f"{len(said)} characters"
            return "refused"
        except refusals:
            return "refused"
        return "read"

    return one


def checkpoint_of(path: Path) -> None:
    """A checkpoint whose index has its right checksum."""
    kept = KeptCheckpoint(round=1, file=path.name, content=Piece.of(path.read_bytes()))
    target = path.parent / "checkpoint" / path.name
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)
    read_checkpoint(path.parent, Index(kept=(kept,)))


def in_a_run(which: str, file: str) -> Callable[[bytes], str]:
    """A run folder of which one file is the case: the live page has a row for it, and a report or a sentence."""
    run()
    folder = place() / f"live-{which}" / "one"
    shutil.copytree(place() / "runs" / which, folder, dirs_exist_ok=True)
    (folder / "checkpoint.json").unlink(missing_ok=True)

    def one(content: bytes) -> str:
        (folder / file).write_bytes(content)
        runs = RunsFolder(folder.parent)
        runs.refresh()
        strict_json(live_table(runs.runs.values()))
        try:
            page([read_run(folder)])
        except UserError:
            return "a row and a sentence"
        return "a row and a page"

    return one


def subjects() -> Iterator[Subject]:
    """Every reader with files for it."""
    finished, begun = run(), run().parent / "begun"

    def of(file: str) -> bytes:
        return ((finished if (finished / file).exists() else begun) / file).read_bytes()

    yield (
        "checkpoint.json",
        indexes(of("checkpoint.json")),
        reader("checkpoint.json", lambda p: read_index(p.parent)),
    )
    yield "about.json", json_files(of("about.json")), reader("about.json", lambda p: read_about(p.parent))
    yield "summary.json", json_files(of("summary.json")), reader("summary.json", read_summary)
    yield "metrics.jsonl", journals(of("metrics.jsonl")), reader("metrics.jsonl", read_journal)
    yield "metrics.parquet", damaged(of("metrics.parquet")), reader("metrics.parquet", read_parquet)
    toml = damaged(of("config.toml")) | BRACKETS.map(b"a = ".__add__)
    yield "config.toml", toml, reader("config.toml", lambda p: (read_config(p), resolve(read_tables(p))))
    safetensors = sorted((begun / "checkpoint").iterdir())[-1].read_bytes()
    yield "a checkpoint", damaged(safetensors), reader("000001.safetensors", checkpoint_of)
    block = task_to_bytes(Task(args={"a": [1, (2, "b")], "c": {1: np.zeros(3)}}))
    yield (
        "a block of the wire",
        damaged(block),
        reader("block", lambda p: from_bytes(p.read_bytes()), ValueError),
    )
    yield "an npz file", archives(), reader("a.npz", lambda p: read_npz(p, ["x", "y", "classes"]))
    idx = b"\0\0\x08\x02" + b"\0\0\0\x02\0\0\0\x03" + bytes(6)
    yield "an idx file", damaged(idx) | st.binary(max_size=30), reader("a-ubyte", read_idx)
    yield "a CSV file", csv_files(), reader("a.csv", lambda p: read_table(p, label="y", client="a"))
    table = parquet({"y": [0, 1] * 4, "a": [1.5, None] * 4, "b": ["u", "v"] * 4})
    yield "a Parquet file", damaged(table), reader("a.parquet", lambda p: read_table(p, label="y"))
    schema = b'{"columns": [{"name": "a", "kind": "number"}], "classes": ["u", "v"]}'
    yield "a schema", json_files(schema), reader("schema.json", read_schema)
    plan = StudyPlan(kind="compare", configs={"a": resolve({})}, seeds=2).json().encode()
    yield "study.json", json_files(plan), reader("study.json", lambda p: read_plan(p.parent))
    tuning = b'{"methods": ["fedavg"], "tables": {}, "over": [], "trials": 3}'
    yield "tune.json", json_files(tuning), reader("tune.json", lambda p: read_tuning(p.parent))
    sites = b'{"next": 1, "sites": [{"name": "a", "client": 0, "public_key": "k", "until": "2030-01-01"}]}'
    yield "sites.json", json_files(sites), reader("sites.json", lambda p: listed_sites(p.parent))
    yield (
        "a run's summary on the live page",
        json_files(of("summary.json")),
        in_a_run("finished", "summary.json"),
    )
    yield (
        "a run's journal on the live page",
        journals(of("metrics.jsonl")),
        in_a_run("begun", "metrics.jsonl"),
    )


def main(cases: int, first: int) -> int:
    print(HEAD, flush=True)
    faults = fuzz(subjects(), cases, first, say=lambda line: print(line, flush=True))
    print("\n".join(faults[:40]) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
