"""The settings of 0.1 under their names of 0.2, in TOML files and in stored results.

    python -m tools.rename_words my-fleet.toml runs/mine/config.toml      # files, or folders with TOML files
    python -m tools.rename_words --results                               # the stored results of experiments/

A file keeps its comments and its order; where that cannot be done safely, it is named and left alone. Running it again
changes nothing. A stored run keeps the fingerprint of its old configuration as `renamed_from`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from covey.errors import UserError
from covey.files import write_atomically

# Keys of any table, keys of a table of a given name, and values of a given key.
KEYS = {"turns": "rotations"}
KEYS_OF = {
    "clustered": {"kinds": "clusters", "pictures": "images", "relabel": "label_permutation"},
}
DRIFT_KEYS = {"pictures": "images"}
VALUES = {
    ("shift", "unlike"): "clustered",
    ("images", "turn"): "rotation",
    ("without", "flocks"): "clusters",
    ("group", "flocks"): "portraits",
    ("bank", "per-flock"): "per-cluster",
    ("select", "within-flocks"): "within-clusters",
}
STUDIES = {
    "unseen_clients:unseen": "newcomers:newcomers",
    "heterogeneity:scoreboard": "unlikeness:scoreboard",
}
TEXT = (
    (r"\bturns(?=\s*=)", "rotations"),
    (r"\bkinds(?=\s*=)", "clusters"),
    (r"\bpictures(?=\s*=)", "images"),
    (r"\brelabel(?=\s*=)", "label_permutation"),
    (r'"unlike"', '"clustered"'),
    (r'"turn"', '"rotation"'),
    (r'(group\s*=\s*(?:\{\s*name\s*=\s*)?)"flocks"', r'\1"portraits"'),
    (r'"flocks"', '"clusters"'),
    (r'"per-flock"', '"per-cluster"'),
    (r'"within-flocks"', '"within-clusters"'),
    (r"kinds:worst:", "clusters:worst:"),
)


def new_names(value: Any, key: str = "") -> Any:
    """Settings with their new names; what has no new one stays, and the order, too."""
    return _renamed(value, key, VALUES, lambda name: {**KEYS, **KEYS_OF.get(name, {})}, DRIFT_KEYS)


def old_names(value: Any, key: str = "") -> Any:
    """The inverse of `new_names`: how a configuration was written before."""
    keys = {new: old for old, new in KEYS.items()}
    of = {name: {new: old for old, new in keys.items()} for name, keys in KEYS_OF.items()}
    values = {(which, new): old for (which, old), new in VALUES.items()}
    drift = {new: old for old, new in DRIFT_KEYS.items()}
    return _renamed(value, key, values, lambda name: {**keys, **of.get(name, {})}, drift)


def _renamed(
    value: Any,
    key: str,
    values: Mapping[tuple[str, str], str],
    keys: Callable[[str], Mapping[str, str]],
    drift: Mapping[str, str],
) -> Any:
    if isinstance(value, str):
        return values.get((key, value), value)
    if isinstance(value, list):
        return [_renamed(one, key, values, keys, drift) for one in value]
    if not isinstance(value, dict):
        return value
    name = value.get("name", "")
    known = {**keys(VALUES.get((key, name), name)), **(drift if key == "drifts" else {})}
    found = {}
    for old, inner in value.items():
        context = key if old == "name" else KEYS_OF["clustered"].get(old, old)
        found[known.get(old, old)] = _renamed(inner, context, values, keys, drift)
    return found


def rename_toml(path: Path) -> bool:
    """Renames the settings of one file in its text; whether anything had to be."""
    text = path.read_text(encoding="utf-8")
    wanted = new_names(tomllib.loads(text))
    if wanted == tomllib.loads(text):
        return False
    for pattern, new in TEXT:
        text = re.sub(pattern, new, text)
    if tomllib.loads(text) != wanted:
        raise UserError(
            f"{path}: some settings have new names that must be changed by hand (CHANGELOG.md, 0.2.0)"
        )
    write_atomically(path, text)
    return True


def rename_results() -> int:
    """Marks stored runs whose configuration has new names: `renamed_from` is its fingerprint under the old ones.

    Where that is still the fingerprint of what the experiment's file says under the old names, and of nothing older,
    `config` becomes the one under the new names.
    """
    from covey.runs.config import resolve
    from experiments.execute import settings_key
    from experiments.origin import fingerprint
    from experiments.result import read_stored
    from experiments.spec import experiments_folder, read_experiment
    from experiments.tuning import with_tuned

    count = 0
    for path in sorted(experiments_folder().glob("*/results/*.json")):
        table, _, scale = path.stem.rpartition("-")
        name = f"{path.parents[1].name}/{table}"
        stored = read_stored(name, scale)
        experiment = with_tuned(read_experiment(name, scale, stored["seeds"]), stored.get("tuning", ()))
        rows = {row.name: row for row in experiment.rows}
        cases = {case.name: case for case in experiment.cases}
        before = text = path.read_text(encoding="utf-8")
        for run in stored.get("runs", ()):
            if "renamed_from" in run:
                continue
            if experiment.study:
                new = settings_key(experiment)
                plain = old_names(json.loads(new))
                old = json.dumps(
                    {**plain, "study": STUDIES.get(plain["study"], plain["study"])}, sort_keys=True
                )
            elif run["row"] in rows and run["case"] in cases:
                new = resolve(experiment.tables(rows[run["row"]], cases[run["case"]], run["seed"])).toml()
                old = tomli_w.dumps(old_names(tomllib.loads(new)))
            else:
                continue
            if old != new:
                known = f'"config": "{fingerprint(new)}",\n   ' if fingerprint(old) == run["config"] else ""
                mark = f'{known}"renamed_from": "{run["config"]}"'
                text = re.sub(rf'"config": "{run["config"]}"', mark, text)
                count += 1
        if text != before:
            json.loads(text)
            write_atomically(path, text)
    return count


def main(words: list[str]) -> int:
    if words == ["--results"]:
        print(f"{rename_results()} stored runs have renamed settings and keep their old fingerprint")
        return 0
    if not words:
        print(__doc__)
        return 2
    failed = False
    for word in words:
        path = Path(word)
        for file in sorted(path.rglob("*.toml")) if path.is_dir() else [path]:
            try:
                if rename_toml(file):
                    print(f"{file}: renamed")
            except (UserError, OSError, ValueError) as error:
                failed = True
                print(error if isinstance(error, UserError) else f"{file}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
