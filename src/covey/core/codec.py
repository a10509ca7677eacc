"""Plain values and arrays to safetensors and JSON and back; nothing that is read can run code."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from covey.core import Reply, Task
from covey.core.messages import wrong_type

PLAIN = {bool, int, float, str}  # most of what there is
PLAIN_BYTES = 4 * 2**20  # of what is not an array, in a block that somebody else made
MANY = 64  # values of a mapping, of which those that are alike become columns: an array each would be slow


def take_apart(value: Any, *, alike: bool = False) -> tuple[Any, dict[str, Tensor]]:
    """A value as JSON data, and the arrays that were in it by name.

    `alike`: many arrays of one shape become one. Not for what is sent: one array that is named often would be unpacked
    into more values than anybody has memory for.
    """
    arrays: dict[str, Tensor] = {}
    return _taken(value, "", arrays, alike), arrays


# Recursive functions are not nested: a nested one refers to itself, and so keeps its arrays until the cyclic garbage
# collector runs, which it seldom does where objects are few and large.
def _taken(part: Any, path: str, arrays: dict[str, Tensor], alike: bool) -> Any:
    """One part as JSON data; its arrays are put beside the others."""
    if part is None or type(part) in PLAIN:
        return part
    if isinstance(part, Tensor):
        arrays[path] = part.detach().cpu().contiguous().clone()
        return {"$tensor": path}
    if isinstance(part, np.ndarray):
        arrays[path] = torch.from_numpy(np.array(part, order="C"))
        return {"$array": path}
    if isinstance(part, np.generic):
        return part.item()
    if isinstance(part, tuple):
        return {"$tuple": [_taken(v, f"{path}/{i}", arrays, alike) for i, v in enumerate(part)]}
    if isinstance(part, list):
        return [_taken(v, f"{path}/{i}", arrays, alike) for i, v in enumerate(part)]
    if isinstance(part, Mapping):
        if alike and len(part) >= MANY:
            keys = [checked_key(key) for key in part]
            return {"$alike": [keys, _columns(list(part.values()), path, arrays)]}
        if all(isinstance(key, str) and not key.startswith("$") for key in part):
            return {key: _taken(v, f"{path}/{key}", arrays, alike) for key, v in part.items()}
        named = [(checked_key(key), v) for key, v in part.items()]
        return {"$pairs": [[key, _taken(v, f"{path}/{key}", arrays, alike)] for key, v in named]}
    if isinstance(part, bool | int | float | str):
        return part
    raise TypeError(
        f"{path or 'the value'} is a {type(part).__name__}: only arrays and plain values can be kept or sent"
    )


def _columns(parts: list[Any], path: str, arrays: dict[str, Tensor]) -> Any:
    """Arrays of one type and shape as one array, mappings by name, lists by place, others one by one."""
    first = parts[0]
    if isinstance(first, Tensor | np.ndarray) and first.ndim and one_shape(parts):
        rows = torch.stack(parts).detach().cpu() if isinstance(first, Tensor) else np.stack(parts)
        return {"$rows": _taken(rows, path, arrays, alike=True)}
    if isinstance(first, dict) and first and all(type(p) is dict and list(p) == list(first) for p in parts):
        names = [checked_key(name) for name in first]
        return {"$fields": [names, [_columns([p[n] for p in parts], f"{path}/{n}", arrays) for n in first]]}
    if type(first) in (list, tuple) and first and one_length(parts):
        each = [_columns([p[i] for p in parts], f"{path}/{i}", arrays) for i in range(len(first))]
        return {"$tuples" if isinstance(first, tuple) else "$lists": each}
    if all(part is None or type(part) in PLAIN for part in parts):
        return parts
    return [_taken(part, f"{path}/{i}", arrays, alike=True) for i, part in enumerate(parts)]


def one_shape(parts: Sequence[Any]) -> bool:
    """Whether these are arrays of one kind, type and shape."""
    first = parts[0]
    return all(type(p) is type(first) and p.dtype == first.dtype and p.shape == first.shape for p in parts)


def one_length(parts: Sequence[Any]) -> bool:
    """Whether these are lists, or tuples, of one length."""
    first = parts[0]
    return all(type(p) is type(first) and len(p) == len(first) for p in parts)


def put_together(data: Any, arrays: Mapping[str, Tensor], *, alike: bool = False) -> Any:
    """The value that `take_apart` took apart."""
    if isinstance(data, list):
        return [put_together(part, arrays, alike=alike) for part in data]
    if not isinstance(data, dict):
        return data
    if "$tensor" in data:
        return arrays[data["$tensor"]]
    if "$array" in data:
        return arrays[data["$array"]].numpy()
    if "$tuple" in data:
        return tuple(put_together(part, arrays, alike=alike) for part in data["$tuple"])
    if "$pairs" in data:
        return {checked_key(key): put_together(part, arrays, alike=alike) for key, part in data["$pairs"]}
    if alike and "$alike" in data:
        keys, parts = data["$alike"]
        return dict(zip(map(checked_key, keys), _values(parts, arrays), strict=True))
    return {key: put_together(part, arrays, alike=alike) for key, part in data.items()}


def _values(data: Any, arrays: Mapping[str, Tensor]) -> list[Any]:
    """The values that became columns."""
    if isinstance(data, list):
        return [put_together(part, arrays, alike=True) for part in data]
    if "$rows" in data:
        return list(put_together(data["$rows"], arrays, alike=True))
    if "$fields" in data:
        names, parts = data["$fields"]
        keys = [checked_key(name) for name in names]
        return [dict(zip(keys, row, strict=True)) for row in _rows(parts, arrays)]
    if "$tuples" in data:
        return _rows(data["$tuples"], arrays)
    return [list(row) for row in _rows(data["$lists"], arrays)]


def _rows(parts: Any, arrays: Mapping[str, Tensor]) -> list[tuple[Any, ...]]:
    """The values one by one, each read from its place in the columns."""
    return list(zip(*(_values(part, arrays) for part in parts), strict=True))


def checked_key(key: Any) -> str | int:
    """A key of a mapping: text or a whole number, of which no two can be made to collide in a hash table.

    Python's hashes of numbers are taken modulo 2^61 - 1: a mapping of multiples of that would be searched for minutes.
    """
    if isinstance(key, np.integer):
        key = int(key)
    if isinstance(key, str) or (isinstance(key, int) and abs(key) < 2**60):
        return key
    raise TypeError(
        f"a key is a {type(key).__name__}: only text and whole numbers below 2^60 can be kept or sent"
    )


def to_bytes(value: Any) -> bytes:
    """A value as one safetensors block, with the plain part in its header."""
    data, arrays = take_apart(value)
    return safetensors.torch.save(arrays or {"": torch.zeros(0)}, {"plain": json.dumps(data)})


def from_bytes(block: bytes, *, most_plain: int | None = None) -> Any:
    """The value in a block of `to_bytes`; a ValueError for any other block, whoever made it.

    `most_plain` bounds the plain part, which takes many times its size when it is read.
    """
    try:
        length = int.from_bytes(block[:8], "little")
        if most_plain is not None and length > most_plain:
            raise ValueError(f"its plain part has {length} bytes, at most {most_plain} are read")
        header = json.loads(block[8 : 8 + length])
        return put_together(json.loads(header["__metadata__"]["plain"]), safetensors.torch.load(block))
    except Exception as error:  # safetensors, JSON and arrays each have their own
        raise ValueError(f"not a block of covey ({type(error).__name__}: {error})") from error


def plain_of_file(file: Path) -> Any:
    """The plain part of a block in a file, without its arrays, which are not read."""
    with open(file, "rb") as block:
        length = int.from_bytes(block.read(8), "little")
        if length > os.fstat(block.fileno()).st_size:
            raise ValueError("not a block of covey (it is cut off)")
        header = json.loads(block.read(length))
    return json.loads(header["__metadata__"]["plain"])


def named_from_bytes(block: bytes) -> dict[str, Any]:
    """The values by name in a block that somebody else made; a ValueError where there are none."""
    named = from_bytes(block, most_plain=PLAIN_BYTES)
    if not isinstance(named, dict):
        raise ValueError(f"a {type(named).__name__} in place of values with names")
    return named


def task_to_plain(task: Task) -> dict[str, Any]:
    """A task as names and values, `Task(**...)` of which is the task again."""
    named = {field.name: getattr(task, field.name) for field in fields(task)}
    return {name: value for name, value in named.items() if name != "columns" or value is not None}


def task_to_bytes(task: Task) -> bytes:
    """A task as it goes over a wire."""
    return to_bytes(task_to_plain(task.as_sent()))


def task_from_bytes(block: bytes) -> Task:
    return Task(**from_bytes(block))


def reply_to_bytes(reply: Reply) -> bytes:
    """A reply as it goes over a wire."""
    return to_bytes(reply_to_plain(reply))


def reply_to_plain(reply: Reply) -> dict[str, Any]:
    """A reply as names and values."""
    plain = {"id": reply.id, "slot": reply.slot, "size": reply.size, "stats": dict(reply.stats)}
    return {**plain, "vector": reply.vector}


def reply_from_bytes(block: bytes) -> Reply:
    return reply_from_plain(from_bytes(block))


def reply_from_plain(plain: Any) -> Reply:
    """A reply out of what somebody else sent: every part is of the type it should have, or a ValueError says which."""
    if not isinstance(plain, dict) or set(plain) != {f.name for f in fields(Reply)}:
        raise ValueError("it is not a reply")
    reply = Reply(**plain)
    if why := wrong_type(reply):
        raise ValueError(why)
    vector, stats = reply.vector, reply.stats
    if vector is not None and not (vector.dim() == 1 and vector.is_floating_point()):
        raise ValueError("its row is not a list of numbers")
    if not isinstance(stats.get("epsilon", 0.0), int | float) or not stats.get("epsilon", 0.0) >= 0:
        raise ValueError("its epsilon is not a number from 0")
    return reply
