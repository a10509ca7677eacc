"""What sites agree on before the first round: one schema of their tables, and how inputs are standardised.

A site tells the names and kinds of its columns, their categories and ranges, and sums of its numbers; one with a
privacy budget tells none of that and takes what the others agree on, or what the file says. With an epsilon everybody's
sums have noise, and those with a budget tell theirs, too: numbers are cut off at the ranges of the file or the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from covey.core import Task
from covey.core.codec import named_from_bytes
from covey.core.privacy_loss import Loss
from covey.data.realign import added, structure, unbounded, without_range
from covey.data.schema import Schema, union
from covey.data.types import Dataset, Federation, Scale
from covey.deploy.site_data import column_loss
from covey.deploy.status import Status
from covey.deploy.transport import HELLO, POLL, Response, Transport, greeting
from covey.errors import RunError, UserError
from covey.parts.steps.scale import TellScale, told_scale
from covey.terminal import printable

if TYPE_CHECKING:
    from covey.deploy.fleet import SiteFleet

AGREEMENT_SECONDS = 3600.0
AGAIN = 5.0  # seconds after which a site that told nothing is asked again
HELLO_SECONDS = 60.0  # that a question lives
MOST_BYTES = 2**20  # of what a site tells
UNNAMED = "without a name"


@dataclass(frozen=True, kw_only=True)
class ToldColumns:
    """What a site told: its columns with the sums of its rows, or nothing, and why."""

    name: str
    schema: Schema | None = None
    sums: NDArray[np.float64] | None = None
    private: bool = False
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """One schema for everybody's tables, and what each node lost by telling sums with noise for it."""

    schema: Schema
    lost: Mapping[int, Loss] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How sites come to one schema.

    transport: to the sites. least: how many must be there. own: the server's own test data, whose columns the sites'
    must be. epsilon: of sums with noise; none: they are exact. called: the name of a key on the list. study: as signed.
    """

    transport: Transport
    least: int
    own: Dataset | None = None
    epsilon: float | None = None
    called: Callable[[str], str] = lambda _: ""
    say: Callable[[str], None] = lambda _: None
    status: Status = field(default_factory=Status)
    patience: float = AGREEMENT_SECONDS
    study: Mapping[str, str] | None = None

    def of_sites(self) -> Agreed:
        """Waits until that many sites have told columns that fit together, and makes one schema of all."""
        said: set[str] = set()
        fits: list[ToldColumns] = []

        def enough(told: Mapping[int, ToldColumns]) -> bool:
            nonlocal fits
            fits, problems = together(list(told.values()), self.own)
            for line in problems:
                if line not in said:
                    self.say(line)
                said.add(line)
            return len(fits) + sum(one.private for one in told.values()) >= self.least

        told = self.ask({"columns": "tell", "sums": self.epsilon is None}, read, enough)
        shared = united(fits, self.own, self.say)
        silent = [one.name for one in told.values() if one.private]
        if self.epsilon is not None:
            return self.with_noise(shared, "the sites without a budget tell")
        if silent:
            self.say(
                f"{', '.join(silent)} tell{'s' * (len(silent) == 1)} nothing of columns because of a privacy budget; "
                "with --scale-epsilon sums with noise"
            )
        parts = [(one.schema, one.sums) for one in fits if one.schema is not None and one.sums is not None]
        return Agreed(schema=shared.fitted(added(shared, parts)))

    def with_noise(self, shared: Schema, whose: str) -> Agreed:
        """Fill values and scale of what everybody tells with noise under these columns."""
        assert self.epsilon is not None
        if odd := without_range(shared):
            raise UserError(
                f"--scale-epsilon needs a range of the column {odd[0]!r}, in which numbers are cut off: {whose} none; "
                "give low and high of each column of numbers in the file of [sites] schema"
            )

        def enough(told: Mapping[int, ToldColumns]) -> bool:
            return len(told) >= self.least

        question = {"columns": "sums", "schema": shared.plain(), "epsilon": self.epsilon}
        told = self.ask(question, lambda response, listed: read(response, listed, shared), enough)
        for one in told.values():
            if one.sums is None:
                self.say(f"site {one.name} tells no sums: {one.why}")
        sums = {node: one.sums for node, one in told.items() if one.sums is not None}
        if not sums:
            raise RunError("no site tells sums of its columns, so nothing says how to standardise them")
        self.say(
            f"fill values and scale are of sums that {len(sums)} sites told with noise (epsilon {self.epsilon:g} each)"
        )
        schema = shared.fitted(np.sum(list(sums.values()), axis=0), noisy=True)
        return Agreed(schema=schema, lost=dict.fromkeys(sums, column_loss(self.epsilon)))

    def ask(
        self,
        question: Mapping[str, Any],
        read: Callable[[Response, str], ToldColumns],
        enough: Callable[[Mapping[int, ToldColumns]], bool],
    ) -> dict[int, ToldColumns]:
        """Asks whoever comes until that is enough; a site that told nothing is asked again after a while."""
        told: dict[int, ToldColumns] = {}
        waiting: dict[str, int] = {}
        due: dict[int, float] = {}
        give_up = time.monotonic() + self.patience
        while True:
            nodes, now = self.transport.nodes(), time.monotonic()
            new = [
                n
                for n in nodes
                if n not in waiting.values() and (n not in told or told[n].why) and due.get(n, 0) <= now
            ]
            if new:
                block = greeting(hello=True, sizes=False, study=self.study, time=time.time(), **question)
                waiting |= self.transport.send(HELLO, dict.fromkeys(new, block), HELLO_SECONDS)
                due |= dict.fromkeys(new, now + AGAIN)
            came = self.transport.collect(list(waiting), most=MOST_BYTES, until=now + AGAIN)
            for number, response in came.items():
                node = waiting.pop(number)
                told[node] = read(response, self.called(nodes.get(node, "")))
            here = {n: one for n, one in told.items() if n in nodes}
            if enough(here):
                return here
            self.status.waiting(1, [])
            if time.monotonic() > give_up:
                fit = sum(not one.why for one in here.values())
                raise RunError(
                    f"{fit} of {self.least} sites told columns that fit together in {self.patience:.0f} s"
                )
            time.sleep(POLL)


def read(response: Response, listed: str, under: Schema | None = None) -> ToldColumns:
    """What an answer holds; whatever a site sends, the worst that happens is that it is left out.

    `under` a schema that was sent it holds sums with noise, which become those of the numbers themselves.
    """
    what = "columns" if under is None else "sums"
    try:
        answer = named_from_bytes(response.answer)
        name = listed or printable(str(answer.get("name", ""))) or UNNAMED
        if "refused" in answer:
            return ToldColumns(name=name, why=printable(str(answer["refused"])))
        if under is None and answer.get("private") is True:
            return ToldColumns(name=name, private=True)
        schema = under or Schema.from_plain(answer["schema"], "its columns")
        if under is None and "sums" not in answer:
            return ToldColumns(name=name, schema=schema)
        values = np.asarray(answer["sums"], np.float64)
        if values.shape != (schema.places[-1].stop,) or not np.isfinite(values).all():
            raise ValueError("its sums are not those of the columns")
        if under is not None:
            return ToldColumns(name=name, sums=unbounded(schema, values))
        return ToldColumns(name=name, schema=schema, sums=values)
    except (UserError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return ToldColumns(name=listed or UNNAMED, why=printable(f"its {what} cannot be read: {error}"))


def together(told: list[ToldColumns], own: Dataset | None) -> tuple[list[ToldColumns], list[str]]:
    """Those whose columns are those of most (or the server's own), and a line for each that differs or told nothing."""
    lines = [f"site {one.name} is left out for now: {one.why}" for one in told if one.why]
    have = [one for one in told if one.schema is not None]
    if not have:
        return [], lines
    if own is not None and own.schema is not None:
        most = own.schema
    else:
        votes = Counter(names(one.schema) for one in have if one.schema is not None)
        usual = max(votes, key=lambda key: (votes[key], key))
        most = next(one.schema for one in have if one.schema is not None and names(one.schema) == usual)
    fits = []
    for one in have:
        assert one.schema is not None
        try:
            union([most, one.schema])
            fits.append(one)
        except UserError as error:
            why = str(error).replace(" there", " at this site").replace(" here", " at the others")
            lines.append(f"site {one.name} is left out for now: {why}")
    return fits, lines


def names(schema: Schema) -> tuple[Any, ...]:
    """Equal for tables that can be used together."""
    return (schema.label, *sorted((column.name, column.kind, column.unit) for column in schema.columns))


def united(fits: list[ToldColumns], own: Dataset | None, say: Callable[[str], None]) -> Schema:
    """The columns of all, with the categories and the ranges of all; says which sites lack a category."""
    schemas = [one.schema for one in fits if one.schema is not None]
    if not schemas:
        raise RunError(
            "no site tells its columns, because all have a privacy budget: give [sites] a schema, a JSON file that all "
            "have agreed on"
        )
    if own is not None and own.schema is not None:
        schemas = [structure(own.schema), *schemas]
    whole = union(schemas)
    count = len({column.name for column in whole.columns})  # a date is several of them
    say(f"the tables of {len(fits)} sites have {count} columns, {len(whole.inputs)} inputs in common")
    for column in whole.columns:
        for category in column.categories:
            without = [
                one.name
                for one in fits
                if one.schema is not None
                and all(category not in c.categories for c in one.schema.columns if c.name == column.name)
            ]
            if without:
                say(
                    f"the column {column.name!r} has {category!r}, which does not occur at {', '.join(without)}"
                )
    return whole


def ask_scale(fleet: SiteFleet, asked: TellScale) -> Scale | None:
    """The scale from what everybody who is here tells; said in one line."""
    replies = fleet.ask(asked, dict.fromkeys(fleet.here, Task()))
    scale = told_scale(asked, replies, str(fleet.server_data.dataset.x.dtype))
    if scale is None:
        fleet.say("no site told how its inputs are spread: they are used as they are")
    else:
        spread = f"mean {few(scale.mean)}, deviation {few(scale.std)}"
        fleet.say(f"inputs are standardised by what {len(replies)} sites told: {spread}")
    return scale


def as_stored(data: Federation, told: Scale | None) -> Federation:
    """The server's own test data as they were before sites told a scale."""
    return data if told is None else with_scale(data, None)


def with_scale(data: Federation, scale: Scale | None) -> Federation:
    """The server's own test data, standardised in that way; with none as they were stored."""
    dataset = replace(data.dataset, scale=scale)
    return Federation(dataset, (), replace(data.test, dataset=dataset))


def few(values: Sequence[float]) -> str:
    """Some numbers for a line of text."""
    return ", ".join(f"{value:.3g}" for value in values[:4]) + (" ..." if len(values) > 4 else "")
