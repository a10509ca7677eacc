"""The points of a sweep: every combination of the values that some settings are to take."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from covey.errors import UserError
from covey.runs.config import Config, resolve
from covey.runs.study.plan import StudyPlan
from covey.settings.toml import with_setting

MOST = 10_000  # points


def sweep_plan(tables: Mapping[str, Any], over: Sequence[str], seeds: int) -> StudyPlan:
    """A study with one label for every combination: `train.lr=0.01 method.mu=1`."""
    axes = [axis(text) for text in over]
    if not axes:
        raise UserError("sweep needs at least one --over table.key=value,value,...")
    names = [key for key, _ in axes]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--over {name} is there twice; name all its values in one")
        if name == "seed":
            raise UserError("--over seed is what --seeds is for")
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST:
        raise UserError(f"--over makes {count:,} combinations; allowed: at most {MOST:,}")
    configs: dict[str, Config] = {}
    columns: dict[str, dict[str, str]] = {}
    for point in itertools.product(*(values for _, values in axes)):
        here = copy.deepcopy(dict(tables))
        for key, value in zip(names, point, strict=True):
            with_setting(here, f"{key}={value}")
        label = " ".join(f"{key}={value}" for key, value in zip(names, point, strict=True))
        configs[label] = resolve(here)
        columns[label] = dict(zip(names, point, strict=True))
    return StudyPlan(kind="sweep", configs=configs, seeds=seeds, columns=columns)


def axis(text: str) -> tuple[str, list[str]]:
    """`train.lr=0.01,0.1` as the setting and its values; commas inside brackets or quotes belong to a value."""
    key, equals, rest = text.partition("=")
    values = [value.strip() for value in split(rest)]
    if not equals or not key.strip() or not all(values):
        raise UserError(f"--over {text!r} must look like table.key=value,value,...")
    if len(set(values)) < len(values):
        raise UserError(f"--over {text!r} names a value twice")
    return key.strip(), values


def split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        depth += (sign in "[{") - (sign in "]}") if not quote else 0
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
