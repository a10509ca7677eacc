"""A configuration is complete and right, or one sentence says what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from covey.config import resolve
from covey.errors import UserError
from covey.tables import check_tables, read_tables, shown, with_setting

DIGITS = 10**400  # more digits than Python is willing to print


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"method": {"name": ["fedavg"]}}, r"method.name is \['fedavg'\]; allowed: text"),
        ({"method": {"name": {"a": 1}}}, r"method.name is \{'a': 1\}; allowed: text"),
        ({"data": {"name": ["digits"]}}, "data.name is"),
        ({"partition": {"name": {}}}, "partition.name is"),
        ({"model": {"name": [[]]}}, "model.name is"),
        ({"shift": {"name": 3}}, "shift.name is 3; allowed: text"),
        ({"objective": ["a"]}, "objective is"),
        ({"rounds": {"a": 1}}, r"rounds is \{'a': 1\}; allowed: a whole number"),
        ({"seed": {}}, r"seed is \{\}; allowed: a whole number"),
        ({"target": {"value": 0.9}}, "target is .*; allowed: a number"),
        ({"rounds": DIGITS}, "rounds is a number of more than 30 digits; allowed: whole numbers of 64 bits"),
        ({"train": {"lr": DIGITS}}, "train.lr is a number of more than 30 digits"),
        ({"seed": 2**64}, "seed is 18446744073709551616; allowed: whole numbers of 64 bits"),
        ({"data": {"clients": -DIGITS}}, "data.clients is a number of more than 30 digits"),
        ({"train": {"lr": nested(5000)}}, "train.lr is nested too deep; allowed: 8"),
        ({"nobody": nested(5000)}, "nobody is nested too deep"),
        ({"methods": {"fedavg": {"train": nested(5000)}}}, "methods.fedavg.train is nested too deep"),
        ({"name": 2000 * "x"}, "name is .*; allowed: at most 1,000 characters"),
        ({"data": [1]}, r"data is \[1\]; it must be a table"),
        ({7: 1}, "the configuration has the key 7; allowed: text"),
    ],
)
def test_what_no_setting_can_take_is_one_sentence(tables: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as mistake:
        resolve(tables)
    assert len(str(mistake.value)) < 300
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("key", "home"),
    [
        ("lr", "train.lr"),
        ("clients", "data.clients"),
        ("alpha", "partition.alpha"),
        ("per_round", "method.per_round"),
        ("dropout", "devices.dropout"),
        ("workers", "engine.workers"),
        ("every", "measure.every"),
        ("buffers", "model.buffers"),
    ],
)
def test_a_setting_outside_its_table_is_shown_the_way_home(key: str, home: str) -> None:
    with pytest.raises(UserError, match=rf"{key} is not known; did you mean {home}\?"):
        resolve({key: 1})


def test_of_two_homes_both_are_named() -> None:
    with pytest.raises(UserError, match=r"did you mean train.mu or method.mu|did you mean method.mu"):
        resolve({"mu": 1, "method": {"name": "fedprox"}})


@pytest.mark.parametrize("text", [4000 * "[", "1" * 5000, "{a = 1", '"'])
def test_a_value_that_is_no_toml_is_text(text: str) -> None:
    tables: dict[str, Any] = {}
    with_setting(tables, f"train.lr={text}")
    assert tables == {"train": {"lr": text}}
    with pytest.raises(UserError, match=r"train.lr is"):
        resolve(tables)


@pytest.mark.parametrize("content", ["a = " + 4000 * "[", "a = " + "1" * 5000, "\x00"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "f.toml").write_text(content)
    with pytest.raises(UserError, match=r"f.toml is not valid TOML"):
        read_tables(tmp_path / "f.toml")


def test_a_sentence_never_shows_a_long_value() -> None:
    assert len(shown(list(range(10**5)))) < 60
    assert len(shown({"a": "x" * 10**5})) < 120
    assert shown(0.25) == "0.25"
    check_tables({"a": [{"b": 2**63 - 1}]})
