"""Settings of 0.1 are renamed in place: comments stay, nothing is renamed twice, and the way back is exact."""

from __future__ import annotations

import tomllib
from pathlib import Path

import tomli_w

from tools.rename_words import main, new_names, old_names, rename_toml

OLD = """\
rounds = 3
# who turns what
[shift]
name = "unlike"   # kinds of clients
kinds = 3
pictures = ["turn", "blur"]
relabel = 0.4

[devices]
drifts = [{ clients = [0], round = 2, turns = 1 }, { clients = 1, round = 3, pictures = ["turn"] }]

[method]
name = "compose"
group = { name = "flocks" }
bank = "per-flock"
select = "within-flocks"
"""


def test_every_setting_has_its_new_name_and_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OLD)
    assert rename_toml(file)
    new = tomllib.loads(file.read_text())
    assert new["shift"] == {
        "name": "clustered",
        "clusters": 3,
        "images": ["rotation", "blur"],
        "label_permutation": 0.4,
    }
    assert [set(one) - {"clients", "round"} for one in new["devices"]["drifts"]] == [
        {"rotations"},
        {"images"},
    ]
    assert new["devices"]["drifts"][1]["images"] == ["rotation"]
    assert (new["method"]["group"], new["method"]["bank"], new["method"]["select"]) == (
        {"name": "portraits"},
        "per-cluster",
        "within-clusters",
    )
    assert "# who turns what" in file.read_text()
    assert not rename_toml(file)  # once is enough


def test_parts_that_are_left_out_of_covey() -> None:
    assert new_names({"method": {"name": "covey", "without": ["flocks", "serving"]}}) == {
        "method": {"name": "covey", "without": ["clusters", "serving"]}
    }


def test_the_old_names_come_back_exactly() -> None:
    before = tomllib.loads(OLD)
    assert tomli_w.dumps(old_names(new_names(before))) == tomli_w.dumps(before)


def test_what_cannot_be_renamed_safely_is_named_and_left_alone(tmp_path: Path, capsys) -> None:
    odd = tmp_path / "odd.toml"
    text = 'shift = { "name" = "unlike", "kinds" = 2 }\n'
    odd.write_text(text)
    assert main([str(tmp_path)]) == 1
    assert "by hand" in capsys.readouterr().err
    assert odd.read_text() == text
