"""What is kept and sent: codec, checkpoints, atomic files."""

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.core.codec import (
    from_bytes,
    put_together,
    reply_from_bytes,
    reply_to_bytes,
    take_apart,
    task_from_bytes,
    task_to_bytes,
    to_bytes,
)
from covey.core.round import Reply, State, Task
from covey.errors import UserError
from covey.folder.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values_come_back(value: object) -> None:
    assert from_bytes(to_bytes(value)) == value


def test_arrays_come_back_with_their_kind_and_type() -> None:
    value = {"a": torch.arange(3), "b": [np.float32([1, 2])], 7: (1, torch.zeros(0, 4))}
    again = from_bytes(to_bytes(value))
    assert torch.equal(again["a"], value["a"])
    assert isinstance(again["b"][0], np.ndarray)
    assert again["b"][0].dtype == np.float32
    assert isinstance(again[7], tuple)
    assert again[7][1].shape == (0, 4)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_many_values_that_are_alike_are_few_arrays(kind: Callable[[list[float]], Any]) -> None:
    """As the states of many clients are: a block with an array for each of them takes long to write and to read."""
    value = {i: {"summary": kind([float(i), 1.0]), "told": i} for i in range(200)}
    plain, arrays = take_apart(value, alike=True)
    again = put_together(plain, arrays, alike=True)
    assert len(arrays) == 1
    assert list(again) == list(value)
    assert all(type(again[i]["summary"]) is type(value[i]["summary"]) for i in value)
    assert all(again[i]["summary"].tolist() == [i, 1.0] and again[i]["told"] == i for i in value)


def test_many_lists_and_plain_values_come_back_as_they_were() -> None:
    value = {
        "losses": {i: [["query.labels", i / 3, None], (True, "$rows")] for i in range(80)},
        "plain": {f"{i}": "$lists" if i == 3 else i for i in range(80)},
        "uneven": {i: list(range(i % 3)) for i in range(80)},
    }
    plain, arrays = take_apart(value, alike=True)
    assert put_together(json.loads(json.dumps(plain)), arrays, alike=True) == value


def test_many_values_that_differ_come_back_one_by_one() -> None:
    value = {f"client {i}": {"a": np.zeros(i % 2 + 1), "b": np.float64(i)} for i in range(100)}
    value["client 3"]["more"] = np.zeros(())
    again = put_together(*take_apart(value, alike=True), alike=True)
    assert [len(state["a"]) for state in again.values()] == [i % 2 + 1 for i in range(100)]
    assert [state["b"] for state in again.values()] == list(range(100))
    assert again["client 3"]["more"].shape == ()


def test_nothing_holds_the_arrays_of_a_checkpoint_once_it_is_written_or_read() -> None:
    """The collector of circles seldom comes by where objects are few and large: rounds of a bank of 2 GB took 20 GB."""
    gc.disable()
    try:
        plain, arrays = take_apart(
            {"bank": torch.zeros(3), "states": {i: np.zeros(2) for i in range(100)}}, alike=True
        )
        held = [weakref.ref(array) for array in arrays.values()]
        again = put_together(plain, arrays, alike=True)
        del plain, arrays, again
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()


def test_what_somebody_sent_is_not_unpacked_from_columns() -> None:
    """A thousand names of one array with ten thousand rows would be ten million values, from 130 kB."""
    rows = {"$rows": {"$tensor": "a"}}
    plain = {"$alike": [list(range(10_000)), {"$fields": [list(range(1_000)), [rows] * 1_000]}]}
    block = safetensors.torch.save({"a": torch.zeros(10_000, 1)}, {"plain": json.dumps(plain)})
    assert list(from_bytes(block)) == ["$alike"]
    assert "$alike" not in json.dumps(take_apart({i: np.zeros(2) for i in range(100)})[0])


def test_a_client_that_changes_its_row_changes_nobody_elses() -> None:
    again = put_together(*take_apart({i: np.zeros(2) for i in range(100)}, alike=True), alike=True)
    again[0] += 1
    assert again[0].tolist() == [1, 1]
    assert again[1].tolist() == [0, 0]


def test_what_is_neither_array_nor_plain_is_refused() -> None:
    with pytest.raises(TypeError, match="only arrays and plain values"):
        to_bytes({"f": print})


def block_of(header: dict[str, object]) -> bytes:
    text = json.dumps({"__metadata__": {"plain": "{}"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "block",
    [
        b"",
        block_of({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 999]}}),
        block_of({"__metadata__": {"plain": 3000 * "[" + 3000 * "]"}}),
        block_of({"__metadata__": {"plain": '{"$tensor": []}'}}),
        block_of({"__metadata__": {"plain": '{"$pairs": [[[], 1]]}'}}),
        block_of({"__metadata__": {"plain": '{"$tuple": 5}'}}),
        block_of({"__metadata__": 5}),
    ],
)
def test_a_bad_block_is_a_value_error(block: bytes) -> None:
    with pytest.raises(ValueError, match="not a block of covey"):
        from_bytes(block)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_value_error(block: bytes) -> None:
    with pytest.raises(ValueError, match="not a block of covey"):
        from_bytes(block)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": "x"},
        {"size": True},
        {"slot": 2**63},
        {"stats": [1]},
        {"stats": {1: 2}},
        {"stats": {"epsilon": "much"}},
        {"stats": {"epsilon": float("nan")}},
        {"stats": {"loss": 10**400}},
        {"vector": [1, 2]},
        {"vector": torch.zeros(2, 2)},
        {"vector": torch.zeros(2, dtype=torch.int64)},
        {"more": 1},
    ],
)
def test_a_reply_of_other_types_is_a_value_error(changes: dict[str, object]) -> None:
    plain = {"id": 3, "vector": torch.ones(2), "slot": 0, "size": 5, "stats": {"epsilon": 0.5}}
    assert reply_from_bytes(to_bytes(plain)).size == 5
    with pytest.raises(ValueError, match=r"^(its|it is)"):
        reply_from_bytes(to_bytes({**plain, **changes}))


def test_tasks_and_replies_go_over_a_wire() -> None:
    task = task_from_bytes(
        task_to_bytes(Task(models=torch.ones(2, 3), slots=(0, 4), args={"k": 1}, held=(1,)))
    )
    assert task.slots == (0, 4)
    assert task.held == (1,)
    assert task.nbytes == 4 * 3 + 8
    reply = reply_from_bytes(
        reply_to_bytes(Reply(id=3, vector=torch.ones(2), size=5, stats={"bits": np.uint8([1])}))
    )
    assert (reply.id, reply.size, reply.nbytes) == (3, 5, 8 + 1)


def test_shared_columns_travel_once() -> None:
    task = Task(models=torch.zeros(4, 10), slots=(0, 1, 2, 3), shared=6)
    assert task.nbytes == 4 * (6 + 4 * 4)


def a_checkpoint(number: int) -> Checkpoint:
    state = State(
        models=torch.full((2, 3), float(number)),
        groups={0: 1, 5: 0},
        memory={"h": torch.ones(3), "f": {4: 2}},
        seen=(0, 5),
        round=number,
    )
    return Checkpoint(state=state, fleet={"states": {"5": {"v": torch.ones(2)}}}, extra={"journal": 12})


def test_a_checkpoint_comes_back_whole(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, a_checkpoint(3))
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert torch.equal(loaded.state.models, torch.full((2, 3), 3.0))
    assert loaded.state.groups == {0: 1, 5: 0}
    assert loaded.state.seen == (0, 5)
    assert loaded.state.memory["f"] == {4: 2}
    assert torch.equal(loaded.fleet["states"]["5"]["v"], torch.ones(2))


def test_only_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save_checkpoint(tmp_path, a_checkpoint(number))
    assert [file.name for file in (tmp_path / "checkpoint").iterdir()] == ["000003.safetensors"]


def test_arrays_written_without_their_json_are_not_the_checkpoint(tmp_path: Path) -> None:
    """A crash between the two files leaves the older pair in force."""
    save_checkpoint(tmp_path, a_checkpoint(1))
    before = (tmp_path / "checkpoint.json").read_text()
    kept = (tmp_path / "checkpoint" / "000001.safetensors").read_bytes()
    save_checkpoint(tmp_path, a_checkpoint(2))
    (tmp_path / "checkpoint" / "000001.safetensors").write_bytes(kept)
    (tmp_path / "checkpoint.json").write_text(before)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.state.round == 1


def test_a_damaged_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, a_checkpoint(1))
    (tmp_path / "checkpoint" / "000001.safetensors").write_bytes(b"rubbish")
    with pytest.raises(UserError, match=r"checkpoint\.json is damaged"):
        load_checkpoint(tmp_path)
    (tmp_path / "checkpoint.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(UserError, match="format 99"):
        load_checkpoint(tmp_path)
