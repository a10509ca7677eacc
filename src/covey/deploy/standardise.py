"""Inputs at real sites are standardised by what the sites tell of them, once, before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from covey.core.round import Task
from covey.data.types import Federation, Scale
from covey.parts.steps.scale import TellScale, told_scale

if TYPE_CHECKING:
    from covey.deploy.fleet import SiteFleet


def ask_scale(fleet: SiteFleet, asked: TellScale) -> Scale | None:
    """What everybody who is here tells, put together; said in one line."""
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
