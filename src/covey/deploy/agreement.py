"""Several sites' tables under one schema: agreed before the first round, of a file or of what the sites tell.

A site tells the names and kinds of its columns and their categories, and sums of its numbers; one with a privacy budget
tells none of that and takes what the others agree on, or what the file says.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.core.codec import named_from_bytes, to_bytes
from covey.data.realign import added, structure
from covey.data.schema import Schema, union
from covey.data.types import Dataset
from covey.deploy.protocol import SPOKEN
from covey.deploy.site import HELLO
from covey.deploy.status import Status
from covey.deploy.transport import POLL, Response, Transport
from covey.errors import RunError, UserError
from covey.terminal import printable
from covey.version import __version__

PATIENCE = 3600.0  # seconds
AGAIN = 5.0  # seconds after which a site that told nothing is asked again
HELLO_SECONDS = 60.0  # that a question lives
MOST_BYTES = 2**20  # of what a site tells


@dataclass(frozen=True, kw_only=True)
class ToldColumns:
    """What a site told: its columns with the sums of its rows, or nothing, and why."""

    name: str
    schema: Schema | None = None
    sums: NDArray[np.float64] | None = None
    private: bool = False
    why: str = ""


def agreed_schema(
    transport: Transport,
    *,
    least: int,
    own: Dataset | None = None,
    called: Callable[[str], str] = lambda _: "",
    say: Callable[[str], None] = lambda _: None,
    status: Status | None = None,
    patience: float = PATIENCE,
) -> Schema:
    """Waits until so many sites have told columns that fit together, and makes one schema of all.

    own: the server's own test data, whose columns the sites' must be. called: the name of a key on the list.
    """
    status = status or Status()
    told: dict[int, ToldColumns] = {}
    waiting: dict[str, int] = {}
    due: dict[int, float] = {}
    said: set[str] = set()
    give_up = time.monotonic() + patience
    while True:
        nodes = transport.nodes()
        now = time.monotonic()
        new = [
            n
            for n in nodes
            if n not in waiting.values() and (n not in told or told[n].why) and due.get(n, 0) <= now
        ]
        if new:
            block = {
                "covey": __version__,
                "protocol": list(SPOKEN),
                "hello": True,
                "sizes": False,
                "columns": "tell",
            }
            waiting |= transport.send(HELLO, {n: to_bytes(block) for n in new}, HELLO_SECONDS)
            due |= dict.fromkeys(new, now + AGAIN)
        for number, response in transport.collect(list(waiting), most=MOST_BYTES, until=now + AGAIN).items():
            node = waiting.pop(number)
            told[node] = read(response, called(nodes.get(node, "")))
        here = {n: one for n, one in told.items() if n in nodes}
        fits, problems = together(list(here.values()), own)
        for line in problems:
            if line not in said:
                say(line)
            said.add(line)
        there = fits + [one for one in here.values() if one.private]
        if len(there) >= least:
            return made(fits, own, say)
        status.waiting(1, [])
        if time.monotonic() > give_up:
            raise RunError(
                f"{len(there)} of {least} sites told columns that fit together in {patience:.0f} s"
            )
        time.sleep(POLL)


def read(response: Response, listed: str) -> ToldColumns:
    """What an answer holds; nothing that a site sends can do more than be left out."""
    try:
        answer = named_from_bytes(response.answer)
        name = listed or printable(str(answer.get("name", "")))
        if "refused" in answer:
            return ToldColumns(name=name, why=printable(str(answer["refused"])))
        if answer.get("private") is True:
            return ToldColumns(name=name, private=True)
        schema = Schema.from_plain(answer["schema"], "its columns")
        values = np.asarray(answer["sums"], np.float64)
        if values.shape != (schema.places[-1].stop,) or not np.isfinite(values).all():
            raise ValueError("its sums are not those of its columns")
        return ToldColumns(name=name, schema=schema, sums=values)
    except (UserError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return ToldColumns(name=listed, why=printable(f"its columns cannot be read: {error}"))


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


def made(fits: list[ToldColumns], own: Dataset | None, say: Callable[[str], None]) -> Schema:
    """One schema of all, with fill values and scale of everybody's rows."""
    schemas = [one.schema for one in fits if one.schema is not None]
    parts = [(one.schema, one.sums) for one in fits if one.schema is not None and one.sums is not None]
    if not schemas:
        raise RunError(
            "no site tells its columns, because all have a privacy budget: give [sites] a schema, a JSON file that all "
            "have agreed on"
        )
    if own is not None and own.schema is not None:
        schemas = [structure(own.schema), *schemas]
    shared = union(schemas)
    whole = shared.fitted(added(shared, parts))
    count = len({column.name for column in whole.columns})  # a date is several of them
    say(f"the tables of {len(parts)} sites have {count} columns, {len(whole.inputs)} inputs in common")
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
