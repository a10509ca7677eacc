"""Every part says itself what it shows the server; [private] trusts no name, and refuses what says nothing."""

import functools
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, get_type_hints

import pytest

from covey.core.declare import part
from covey.core.round import Method, Round, one_model
from covey.core.shows import NOTHING, Shows, says, shows_of
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.mix.robust import Krum
from covey.parts.selection.plain import Uniform
from covey.parts.steps import Train
from covey.privacy.accountant import Sampling
from covey.privacy.plan import planned_sampling
from covey.privacy.refusals import check_private, parts_of
from covey.runs.config import resolve
from covey.settings.catalogue import METHODS, PARTS
from covey.settings.parts import is_part

TRAIN = Train(epochs=1, batch=64)
OWN_FILE = '''
from dataclasses import dataclass

from covey.core.round import Round
from covey.parts.steps.summaries import LabelSummary


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Called as a part of covey's, and asks everybody for exact label counts."""

    per_round: int = 4

    def __call__(self, now: Round) -> list[int]:
        counts = {reply.id: reply.stats["shares"] for reply in now.ask(LabelSummary(), now.here)}
        return sorted(counts)[: self.per_round]
'''


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PARTS for name in PARTS[kind]])
def test_every_part_of_the_catalogue_says_what_it_shows(kind: str, name: str) -> None:
    found = PARTS[kind].find(name)
    if is_part(found):
        assert shows_of(found) is not None
    else:  # a class, or what makes one
        assert says(found if inspect.isclass(found) else get_type_hints(found)["return"])


def test_so_does_every_part_of_every_method() -> None:
    silent = {
        (name, kind)
        for name in METHODS
        for kind, part in parts_of(resolve({"method": {"name": name}, "data": {"clients": 8}}).method)
        if shows_of(part) is None
    }
    assert silent == set()


@pytest.mark.parametrize("level", ["client", "local"])
def test_a_part_of_somebodys_own_with_a_name_of_coveys_is_refused(tmp_path: Path, level: str) -> None:
    (tmp_path / "mine.py").write_text(OWN_FILE)
    tables = {
        "method": {"name": "compose", "select": f"{tmp_path / 'mine.py'}:Uniform"},
        "data": {"clients": 8},
        "private": {"noise": 2.0, "clip": 1.0, "level": level},
    }
    with pytest.raises(UserError, match=r"its select part Uniform does not say what it shows the server"):
        resolve(tables)


def with_select(select: object) -> Method:
    return replace(fedavg(TRAIN), select=select)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Asks(Uniform):
    """Takes over what covey's part does, and with it not what that one says."""

    def __call__(self, now: Round) -> list[int]:
        return now.here[:1]


@dataclass(frozen=True, kw_only=True)
class Renamed(Uniform):
    """Other settings, no other code."""

    per_round: int = 3


@dataclass(frozen=True, kw_only=True)
class Own(Uniform):
    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> list[int]:
        return now.here[:1]


def test_code_of_ones_own_is_spoken_for_by_ones_own_word_only() -> None:
    with pytest.raises(UserError, match="its select part Asks does not say"):
        check_private(with_select(Asks()), "client")
    check_private(with_select(Renamed()), "client")
    check_private(with_select(Own()), "client")


def test_no_chance_is_credited_to_what_draws_in_its_own_way() -> None:
    fixed = Sampling(kind="fixed", chosen=3, of=8)
    assert [planned_sampling(one(per_round=3), 8) for one in (Uniform, Own)] == [fixed, Sampling()]


def test_a_function_around_a_part_says_nothing() -> None:
    @functools.wraps(one_model)
    def around(now: Round) -> object:
        return one_model(now)

    assert shows_of(one_model) == NOTHING
    assert shows_of(around) is None
    assert shows_of(part("select", "mine", shows=NOTHING)(lambda now: now)) == NOTHING


def test_what_is_read_out_of_updates_is_covered_by_noise_on_each() -> None:
    method = replace(fedavg(TRAIN), mix=Krum(hostile=1))
    check_private(method, "local")
    with pytest.raises(
        UserError, match=r"single updates, of which it publishes one; bad .*; or private.level"
    ):
        check_private(method, "client")
