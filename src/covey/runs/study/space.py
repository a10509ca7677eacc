"""What `covey tune` tries: the training's main settings and the method's own, each in a range around its default."""

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from covey.errors import UserError
from covey.runs.config import Config
from covey.runs.sections import settings_in
from covey.runs.study.grid import axis
from covey.settings.catalogue import METHODS
from covey.settings.ranges import Range
from covey.settings.toml import shown, with_setting

# What changes the budget, the privacy or the question itself is not the tuner's to choose.
LEFT_ALONE = frozenset(
    [
        "per_round",
        "epsilon",
        "budget",
        "noise",
        "name",
        "without",
        "rounds",
        "losses",
        "draws",
        "published",
        "schedule",
    ]
)
WIDE = 10.0  # a number is tried from a tenth of its default to ten times as much
COUNTS = 4.0  # a count from a quarter to four times as many


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One setting that is tried: some values, or a range of numbers."""

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False

    def suggest(self, trial: Any, name: str) -> Any:
        """What Optuna's trial takes for it."""
        if self.values:
            return trial.suggest_categorical(name, list(self.values))
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        """Whether a value is one that could be tried."""
        if self.values:
            return value in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        if self.values:
            return ", ".join(map(str, self.values))
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"


def space_of(config: Config, over: Sequence[str]) -> dict[str, Knob]:
    """The settings to try by name: those of --over that the method has, or the usual ones."""
    if over:
        if any(key.partition("=")[0].strip() == "seed" for key in over):
            raise UserError(
                "--over seed is no setting to choose: --test-seeds says with how many the best is tested"
            )
        return {key: knob for key, knob in map(read_knob, over) if has(config, key)}
    train = config["train"]
    found = {
        "train.lr": Knob(low=train["lr"] / WIDE, high=train["lr"] * WIDE, log=True),
        **({"train.momentum": Knob(values=(0.0, 0.5, 0.9))} if train["optimiser"] == "sgd" else {}),
        "train.batch": Knob(values=tuple(sorted({8, 16, 32, train["batch"]}))),
    }
    method = config["method"]
    for name, setting in settings_in("method", METHODS.find(method["name"])).items():
        if name not in LEFT_ALONE and (knob := usual_knob(setting.type, method.get(name))) is not None:
            found[f"method.{name}"] = knob
    return found


def has(config: Config, key: str) -> bool:
    """Whether the configuration has the setting; of another method's settings it may not."""
    table: Any = config.tables
    for name in key.split("."):
        if not isinstance(table, Mapping) or name not in table:
            if key.startswith("method."):
                return False
            raise UserError(f"--over {key} is not a setting of this run")
        table = table[name]
    return True


def usual_knob(kind: Any, default: Any) -> Knob | None:
    """A range around the default; None for what has no default, or is no number and no choice."""
    limits: list[Range] = []
    if typing.get_origin(kind) is Annotated:
        kind, *marks = typing.get_args(kind)
        limits = [mark for mark in marks if isinstance(mark, Range)]
    if default is None:
        return None
    if typing.get_origin(kind) is Literal:
        return Knob(values=typing.get_args(kind))
    if kind is bool:
        return Knob(values=(False, True))
    if isinstance(default, bool) or not isinstance(default, int | float):
        return None
    low, high = bounds(limits)
    if isinstance(default, int) and kind is not float:
        first, last = max(low, math.ceil(default / COUNTS)), min(high, default * COUNTS)
        return Knob(low=first, high=last, whole=True, log=first >= 1) if first < last else None
    if low == 0 and high == 1:
        return Knob(low=0.0, high=1.0)
    if default <= 0:
        return None
    first, last = max(low, default / WIDE), min(high, default * WIDE)
    return Knob(low=first, high=last, log=True) if first < last else None


def bounds(limits: Sequence[Range]) -> tuple[float, float]:
    """The ends of a setting's range, open ones a little inside."""
    lows = [end for limit in limits for end in (limit.least, limit.above) if end is not None]
    highs = [end for limit in limits for end in (limit.most, limit.below) if end is not None]
    return max(lows, default=-math.inf), min(highs, default=math.inf)


def read_knob(text: str) -> tuple[str, Knob]:
    """`train.lr=0.001..0.3` is a range, by factors where its ends are a factor of ten apart; `a,b,c` are choices."""
    key, values = axis(text)
    low, dots, high = values[0].partition("..")
    if len(values) > 1 or not dots:
        return key, Knob(values=tuple(map(plain, values)))
    ends = [plain(low), plain(high)]
    if not all(map(is_number, ends)) or ends[0] >= ends[1]:
        raise UserError(f"--over {shown(text)}: a range is number..number, both finite and the smaller first")
    whole = all(isinstance(end, int) for end in ends)
    return key, Knob(low=ends[0], high=ends[1], whole=whole, log=ends[0] > 0 and ends[1] / ends[0] >= WIDE)


def is_number(value: Any) -> bool:
    """A finite number that Optuna can take."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def plain(text: str) -> Any:
    """A value as TOML reads it."""
    tables: dict[str, Any] = {}
    with_setting(tables, f"value={text}")
    return tables["value"]


def with_values(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with some settings changed."""
    changed = {key: dict(part) if isinstance(part, Mapping) else part for key, part in tables.items()}
    for key, value in values.items():
        *path, last = key.split(".")
        table = changed
        for name in path:
            table[name] = dict(table.get(name, {}))
            table = table[name]
        table[last] = value
    return changed
