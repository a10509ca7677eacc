"""The method with [private] in it."""

from __future__ import annotations

from dataclasses import replace

from covey.core import Method
from covey.needs import KNOWN_GROUPS, needs_of
from covey.private.plan import Plan
from covey.private.refusals import check_private
from covey.private.settings import Private
from covey.private.small_groups import AtLeast
from covey.private.sums import NoisySums
from covey.select.plain import Poisson, Uniform
from covey.steps.private import Quiet


def made_private(method: Method, settings: Private, *, clients: int, rounds: int) -> Method:
    """The method, of which clients' updates, losses and sizes are protected as the settings say; or one sentence."""
    check_private(method, settings.level)
    select = method.select
    if settings.sampling == "poisson" and isinstance(select, Uniform):
        select = Poisson(rate=min(1.0, select.per_round / max(1, clients)))
    group = method.group
    if group is not None and settings.least > 1:
        group = AtLeast(group=group, least=settings.least)
    plan = Plan(settings=settings, rounds=rounds, select=select)
    return replace(
        method,
        select=select,
        group=group,
        local=Quiet(step=method.local),
        gather=NoisySums(plan=plan, by_group=KNOWN_GROUPS in needs_of(method.update)),
    )
