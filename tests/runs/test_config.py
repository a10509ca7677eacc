"""A configuration is complete and right, or one sentence says what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from covey.errors import UserError
from covey.runs.config import resolve
from covey.settings.toml import check_tables, read_tables, shown, with_setting
from covey.training.models import build

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


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"train": {"momentum": 10**6}},
            "train.momentum is 1000000; allowed: a number, at least 0 and below 1",
        ),
        (
            {"train": {"lr": 1e12}},
            "train.lr is 1000000000000.0; allowed: a number above 0, of at most 1,000,000,000",
        ),
        (
            {"train": {"epochs": 10**9}},
            "train.epochs is 1000000000; allowed: a whole number from 1 to 10,000 or none",
        ),
        (
            {"rounds": 10**9},
            "rounds is 1000000000; allowed: a whole number, at least 1, of at most 100,000,000",
        ),
        ({"target": 100}, r"target is 100; allowed: from 0 to 1, as accuracy is a share \(0.9 is 90 %\)"),
        ({"target": -0.1}, "target is -0.1; allowed: from 0 to 1"),
        ({"seed": -1}, "seed is -1; allowed: a whole number from 0 to 9,223,372,036,854,775,807"),
        ({"data": {"clients": 10**9}}, "data.clients is 1000000000; .* of at most 100,000,000"),
        (
            {"data": {"test_fraction": 1}},
            "data.test_fraction is 1; allowed: a number above 0 and below 1 or none",
        ),
        ({"engine": {"workers": 10**5}}, "engine.workers is 100000; allowed: a whole number from 0 to 1,024"),
        ({"model": {"hidden": [10**6]}}, r"model.hidden is \[1000000\]; .*from 1 to 100,000"),
        (
            {"method": {"name": "haccs", "epsilon": 1.7e308}},
            "method.epsilon is 1.7e.308; allowed: a number above 0 and at most 1,000 or none",
        ),
        ({"method": {"name": "fedprox", "mu": 1e30}}, r"method.mu is 1e\+30; .* of at most 1,000,000,000"),
        ({"partition": {"alpha": 1e300}}, "partition.alpha is 1e.300; .* of at most 1,000,000,000"),
    ],
)
def test_a_size_that_cannot_be_meant_is_refused_with_what_is_allowed(
    tables: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve(tables)


def test_a_model_that_no_machine_holds_is_refused_before_it_is_made() -> None:
    with pytest.raises(
        UserError, match=r"model 'mlp' would have 10,007,600,010 parameters, which need 160 GB"
    ):
        build("mlp", input_shape=(1, 8, 8), outputs=10, hidden=[100_000, 100_000])


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


def test_a_file_too_long_for_settings_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text("# " + "x" * 5_000_000)
    with pytest.raises(
        UserError, match=r"long.toml is too long for a run's settings; allowed: at most 4,000,000"
    ):
        read_tables(tmp_path / "long.toml")
    with pytest.raises(UserError, match=r"/dev/zero is too long"):
        read_tables(Path("/dev/zero"))


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfrounds = 2\r\nseed = 1\r\n", b"rounds = 2\nseed = 1\n"])
def test_a_file_as_windows_writes_it_is_the_same(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.toml").write_bytes(content)
    assert read_tables(tmp_path / "w.toml") == {"rounds": 2, "seed": 1}


def test_too_many_entries_are_said_of_the_file() -> None:
    with pytest.raises(UserError, match=r"the file has 100,001 entries; allowed: at most 100,000"):
        check_tables({f"k{i}": i for i in range(100_001)})


def test_text_that_is_no_utf8_is_refused() -> None:
    """As `LC_ALL=C` makes of a name with other letters than ASCII's."""
    with pytest.raises(UserError, match=r"^name is 'Z.*rich'; allowed: text in UTF-8$"):
        resolve({"name": "Z\udcfcrich"})
