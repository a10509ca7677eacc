"""Configurations as users, and strangers, may write them: drawn from the settings' own types, some of them spoilt."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from hypothesis import strategies as st

from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.guard import Guard
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.parts.steps.compress import Compression
from covey.privacy.settings import Private
from covey.runs.config import SECTIONS
from covey.runs.sections import DataSection, ModelSection, Sites, Top, settings_in
from covey.runs.stopping import Stopping
from covey.settings.catalogue import DATASETS, METHODS, MODELS, PARTITIONS, RULES, SHIFTS
from covey.settings.ranges import Range
from covey.settings.signatures import Setting, settings_of

Values = st.SearchStrategy[Any]

ONE_AFTER_ANOTHER = Setting(name="mode", type=Literal["serial"], default="serial")

HUGE = [2**31, 2**63 - 1, 2**63, 2**64, 10**18, 10**400, -(10**400), -(2**63)]
WIDE = [1e-300, 1e6, 1e30, 1.7e308, -1e30, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "none", "nan", "auto", "../..", "x" * 300, "\x1b[31m", "ä\u2028", "true", "[]", "0"]


def nested(depth: int) -> Any:
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


plain: Values = (
    st.none().map(lambda _: "none")
    | st.booleans()
    | st.integers(-3, 100)
    | st.sampled_from(HUGE)
    | st.floats(-2, 2)
    | st.sampled_from(WIDE)
    | st.sampled_from(TEXTS)
    | st.text(max_size=6)
)
loose: Values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abname", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
spoilt: Values = st.sampled_from([*[loose] * 9, st.sampled_from([30, 500, 3000]).map(nested)]).flatmap(
    lambda s: s
)


def of_type(wanted: Any) -> Values:
    """Values of a setting's type, most of them sensible, some at or beyond its ends."""
    origin = typing.get_origin(wanted)
    if origin is Annotated:
        kind, limits = typing.get_args(wanted)
        return within(kind, limits) if isinstance(limits, Range) else plain
    if origin is Literal:
        return st.sampled_from(typing.get_args(wanted))
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(part) for part in typing.get_args(wanted)])
    if wanted is type(None):
        return st.just("none")
    if wanted is bool:
        return st.booleans()
    if wanted is int:
        return st.one_of(
            [st.integers(1, 12)] * 6 + [st.integers(-2, 3), st.sampled_from([100, 10**4, 10**6, 10**9])]
        )
    if wanted is float:
        return st.one_of([st.floats(0, 1)] * 6 + [st.sampled_from([0, 1, 0.0, 1.0, -0.5, 2.5, 100.0, 1e6])])
    if wanted is str:
        return st.sampled_from(TEXTS) | st.text(max_size=5)
    if origin in (tuple, list, Sequence):
        return st.lists(of_type(typing.get_args(wanted)[0]), max_size=4)
    if origin in (dict, Mapping):
        few = st.lists(st.integers(0, 5), min_size=1, max_size=3) | plain
        return st.fixed_dictionaries(
            {"clients": few, "round": st.integers(0, 3)},
            optional={"rotations": plain, "compute": plain, "x": plain},
        )
    return plain


def within(kind: type, limits: Range) -> Values:
    """Numbers of a range, its ends among them, and a few beyond."""
    low = next(end for end in (limits.least, limits.above, 0) if end is not None)
    high = next(end for end in (limits.most, limits.below, low + 10) if end is not None)
    inside = (
        st.integers(int(low), int(min(high, low + 20)))
        if kind is int
        else st.floats(low, min(high, low + 20))
    )
    return st.one_of([inside] * 8 + [st.sampled_from([low, high, low - 1, high + 1, 1, 10**4])])


def table(settings: Mapping[str, Setting], rare: float = 0.02) -> Values:
    """A table with some of the settings; one in `1 / rare` of its values is spoilt."""

    def value(setting: Setting) -> Values:
        usual = of_type(setting.type)
        if (
            isinstance(setting.default, str) and setting.type is str
        ):  # a name: any other text is refused at once
            usual = st.sampled_from([*[setting.default] * 9, *TEXTS])
        return st.sampled_from([*[usual] * (int(1 / rare) - 1), spoilt]).flatmap(lambda s: s)

    chosen = st.sets(st.sampled_from(sorted(settings)), max_size=4) if settings else st.just(set())
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: value(settings[n]) for n in sorted(names)}))


def choice(
    section: str, registry: Mapping[str, Callable[..., Any]], common: Mapping[str, Setting] | None = None
) -> Values:
    """A table that names something of a registry, with settings of its own."""

    def settings(name: str) -> dict[str, Setting]:
        found = {**(common or {}), **settings_in(section, registry[name])}
        return {key: setting for key, setting in found.items() if key != "name"}

    def named(name: str) -> Values:
        return table(settings(name)).map(lambda values: {**values, "name": name})

    return st.sampled_from(sorted(registry)).flatmap(named)


def configurations(datasets: Sequence[str] = ()) -> Values:
    """Whole configurations, of some data sets or of all."""
    loaders = {name: DATASETS[name] for name in datasets or DATASETS}
    sections = {
        "data": choice("data", loaders, settings_of(DataSection)),
        "partition": choice("partition", PARTITIONS),
        "shift": choice("shift", SHIFTS),
        "model": choice("model", MODELS, settings_of(ModelSection)),
        "method": choice("method", METHODS),
        "train": table(settings_of(Train)),
        "devices": table(settings_of(Devices)),
        "engine": table(
            {**settings_of(Engine), "mode": Setting(name="mode", type=Literal["serial"], default="serial")}
        ),
        "measure": table(settings_of(Measuring)),
        "guard": table(settings_of(Guard)),
        "robust": choice("robust", RULES),
        "private": table(settings_of(Private)),
        "compress": table(settings_of(Compression)),
        "stop": table(settings_of(Stopping)),
        "sites": table(settings_of(Sites)),
    }
    assert {*sections, "methods"} == set(SECTIONS), "every section is fuzzed"
    own = st.sampled_from(sorted(METHODS)).flatmap(
        lambda name: table(settings_in("method", METHODS[name])).map(lambda values: {name: values})
    )
    return (
        st.fixed_dictionaries({}, optional={**sections, "methods": own})
        .flatmap(lambda whole: table(settings_of(Top)).map(lambda top: {**top, **whole}))
        .flatmap(disturbed)
    )


def disturbed(tables: dict[str, Any]) -> Values:
    """Mostly the tables as they are; sometimes something stands where something else belongs."""
    keys = st.sampled_from([*SECTIONS, *settings_of(Top), "nam", "metod"])
    sometimes = st.sampled_from([*[False] * 19, True])
    return st.tuples(sometimes, keys, spoilt).map(
        lambda drawn: {**tables, drawn[1]: drawn[2]} if drawn[0] else tables
    )
