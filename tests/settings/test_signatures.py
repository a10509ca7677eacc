"""One check and one wording for every setting, from a file or from Python."""

import re
from dataclasses import dataclass
from inspect import isclass, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import covey
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.runs.sections import FILLED_IN_OF, DataSection, ModelSection, Top, settings_in
from covey.settings.catalogue import DATASETS, METHODS, MODELS, PARTITIONS, PARTS, RULES, SHIFTS, STEPS
from covey.settings.ranges import Count, Natural, NotNegative, Positive, Range, Share
from covey.settings.signatures import (
    FILLED_IN,
    about_settings,
    checked,
    fitted,
    in_words,
    settings_of,
    takes,
    validated,
)


@validated
def maker(
    train: object,
    *,
    count: Count = 10,
    rho: Share = 0.5,
    xi: Annotated[float, Range(above=0, below=1)] = 0.5,
    eta: Positive | None = None,
    speed: Literal["slow", "fast"] = "slow",
    flips: tuple[Share, ...] = (),
) -> dict[str, Any]:
    """A method of these settings."""
    return {"train": train, "count": count, "rho": rho, "xi": xi, "eta": eta, "speed": speed, "flips": flips}


@validated
@dataclass(frozen=True, kw_only=True)
class Part:
    """A part with one setting of its own and one check of two together."""

    low: Natural = 0
    high: Count = 5

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise UserError("low is above high")


WRONG = [
    ("count", 0, "count is 0; allowed: a whole number, at least 1"),
    ("count", 1.5, "count is 1.5; allowed: a whole number, at least 1"),
    ("count", True, "count is True; allowed: a whole number, at least 1"),
    ("rho", 1.01, "rho is 1.01; allowed: a number from 0 to 1"),
    ("rho", float("nan"), "rho is nan; allowed: a number from 0 to 1"),
    ("rho", "much", "rho is 'much'; allowed: a number from 0 to 1"),
    ("xi", 0, "xi is 0; allowed: a number above 0 and below 1"),
    ("xi", 1, "xi is 1; allowed: a number above 0 and below 1"),
    ("eta", 0.0, "eta is 0.0; allowed: a number above 0 or none"),
    ("speed", "faster", "speed is 'faster'; allowed: slow, fast"),
    ("flips", (0.1, 2.0), "flips is (0.1, 2.0); allowed: a list of numbers from 0 to 1"),
    ("flips", 0.1, "flips is 0.1; allowed: a list of numbers from 0 to 1"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_wrong_value_from_python_is_one_sentence(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        maker(None, **{name: value})
    assert str(error.value) == sentence


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_wrong_value_from_a_file_is_the_same_sentence_with_its_table(
    name: str, value: Any, sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        checked("method", settings_of(maker, given=("train",)), {name: value})
    assert str(error.value) == f"method.{sentence}"


def test_bounds_that_belong_to_a_range_are_allowed() -> None:
    assert maker("train", count=1, rho=1, eta=1e-9, speed="fast", flips=[0, 1])["rho"] == 1
    assert maker("train", rho=0.0, eta=None)["eta"] is None


def test_numpy_numbers_are_numbers() -> None:
    assert maker(None, count=np.int64(3), rho=np.float32(0.5), flips=np.array([0.1, 0.2]))["count"] == 3


def test_a_dataclass_is_checked_before_its_own_check() -> None:
    assert Part(low=1, high=1) == Part(low=1, high=1)
    with pytest.raises(UserError, match="high is 0; allowed: a whole number, at least 1"):
        Part(low=1, high=0)
    with pytest.raises(UserError, match="low is above high"):
        Part(low=3, high=2)


def test_validated_keeps_names_defaults_and_types() -> None:
    assert list(settings_of(maker, given=("train",))) == ["count", "rho", "xi", "eta", "speed", "flips"]
    assert settings_of(maker)["count"].default == 10
    assert settings_of(Part)["low"].allowed == "a whole number, at least 0"
    assert maker.__doc__ == "A method of these settings."


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (NotNegative, "a number, at least 0"),
        (Annotated[float, Range(0, below=0.5)], "a number, at least 0 and below 0.5"),
        (Annotated[float, Range(above=0, most=100)], "a number above 0 and at most 100"),
        (Annotated[int, Range(most=3)], "a whole number, at most 3"),
        (tuple[int, ...], "a list of whole numbers"),
        (tuple[tuple[int, int], ...], "a list of lists of whole numbers"),
        (int | None, "a whole number or none"),
    ],
)
def test_types_in_words(wanted: Any, words: str) -> None:
    assert in_words(wanted) == words


def test_a_whole_number_becomes_the_float_that_is_asked_for() -> None:
    fits, value = fitted(1, Share)
    assert fits
    assert isinstance(value, float)


def test_every_setting_has_its_line_of_help() -> None:
    sections = [Train, Devices, Engine, Measuring, Top, DataSection, ModelSection]
    registries = {
        "method": METHODS,
        "partition": PARTITIONS,
        "shift": SHIFTS,
        "model": MODELS,
        "data": DATASETS,
    }
    named = [
        (name, settings_in(table, registry[name]))
        for table, registry in registries.items()
        for name in registry
    ]
    silent = [
        f"{name}.{setting.name}"
        for name, settings in [*named, *((section.__name__, settings_of(section)) for section in sections)]
        for setting in settings.values()
        if not setting.help
    ]
    assert silent == []


def test_no_line_is_about_a_setting_that_is_not_there() -> None:
    registries = [METHODS, PARTITIONS, SHIFTS, MODELS, DATASETS]
    for registry in registries:
        for name in registry:
            assert set(about_settings(registry[name])) <= set(settings_of(registry[name])), name


def every_maker() -> list[tuple[str, Any]]:
    """Whatever a configuration can name and give settings to."""
    plain = [METHODS, DATASETS, PARTITIONS, SHIFTS, MODELS, STEPS, RULES, *PARTS.values()]
    found = [(f"{registry.kind} {name}", registry[name]) for registry in plain for name in registry.builtin]
    return [(name, maker) for name, maker in found if next(iter(signature(maker).parameters), "") != "now"]


def test_everything_that_takes_settings_checks_them_in_the_one_way() -> None:
    filled_in = {*chain.from_iterable(FILLED_IN_OF.values()), *FILLED_IN}
    unchecked = [
        name
        for name, maker in every_maker()
        if set(settings_of(maker)) - filled_in
        and not getattr(maker.__init__ if isclass(maker) else maker, "checks_settings", False)
    ]
    assert unchecked == []


def test_no_other_wording_for_what_is_allowed() -> None:
    """`NAME is VALUE; allowed: ...`, wherever a setting is refused."""
    other = re.compile(
        r"it must (be|lie)( one of| at least| in | between| more| greater| a number)|: must be "
    )
    sources = Path(covey.__file__).parent
    found = [
        f"{file.relative_to(sources)}:{number}"
        for file in sources.rglob("*.py")
        if file.name != "reply_schema.py"  # it speaks of what clients told
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if other.search(line)
    ]
    assert found == []


def test_a_method_takes_the_settings_of_its_parts() -> None:
    @validated
    def part(*, step: object, low: Share = 0.5, many: int = 3) -> None:
        """A part.

        Args:
            low: how low.
            many: how many.
        """

    @validated
    @takes(part, without=("many",))
    def method(train: object, *, high: int = 9, **settings: Any) -> dict[str, Any]:
        """A method.

        Args:
            high: how high.
        """
        return settings

    found = settings_of(method, given=("train",))
    assert {name: (s.default, s.help) for name, s in found.items()} == {
        "high": (9, "how high."),
        "low": (0.5, "how low."),
    }
    assert method(None, low=0.1) == {"low": 0.1}
    for wrong, sentence in (
        ({"low": 2.0}, "low is 2.0; allowed: a number from 0 to 1"),
        ({"many": 1}, "many is not known"),
    ):
        with pytest.raises(UserError) as error:
            method(None, **wrong)
        assert str(error.value).startswith(sentence)
