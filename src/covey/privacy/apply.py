"""The method with [private] in it."""

from __future__ import annotations

from dataclasses import replace

from covey.core.needs import KNOWN_GROUPS, needs_of
from covey.core.round import Method, Select
from covey.errors import UserError
from covey.parts.selection.plain import Poisson, Uniform
from covey.parts.steps.private import Noised, Quiet
from covey.parts.steps.train import Train
from covey.privacy.example import ExampleTrain
from covey.privacy.local import BookedReplies, local_noise
from covey.privacy.plan import Plan
from covey.privacy.refusals import check_private
from covey.privacy.secret_draw import SecretDraw
from covey.privacy.secure import FEWEST, SecureSums
from covey.privacy.settings import Private
from covey.privacy.small_groups import AtLeast
from covey.privacy.sums import NoisySums


def made_private(method: Method, settings: Private, *, clients: int, rounds: int) -> Method:
    """The method, of which clients' updates, losses and sizes are protected as the settings say; or one sentence."""
    check_private(method, settings.level)
    least = max(settings.least, FEWEST) if settings.secure else settings.least
    if method.group is not None and least > 1:
        method = replace(method, group=AtLeast(group=method.group, least=least))
    if settings.level == "example":
        return at_example_level(method, settings, rounds)
    if settings.level == "local":
        noise = local_noise(settings, rounds)
        assert settings.clip != "adaptive"
        step = Noised(step=method.local, clip=settings.clip, noise=noise)
        gather = BookedReplies(settings=settings, rounds=rounds, noise=noise)
        return replace(method, local=step, gather=gather)
    select: Select = method.select
    if settings.sampling == "poisson" and type(select) is Uniform:
        select = Poisson(rate=min(1.0, select.per_round / max(1, clients)))
    plan = Plan(settings=settings, rounds=rounds, select=select)
    by_group = KNOWN_GROUPS in needs_of(method.update)
    if isinstance(select, Poisson | Uniform) and (settings.epsilon or settings.noise):
        select = SecretDraw(select=select)
    if settings.secure:
        return replace(method, select=select, gather=SecureSums(plan=plan, by_group=by_group))
    sums = NoisySums(plan=plan, by_group=by_group)
    return replace(method, select=select, local=Quiet(step=method.local), gather=sums)


def at_example_level(method: Method, settings: Private, rounds: int) -> Method:
    """Clients train with Opacus; only plain training can be replaced by that."""
    if type(method.local) is not Train:
        raise UserError(
            f"method {method.name} cannot be private at the example level: its clients do {method.local.kind}, and "
            'Opacus replaces plain training only; use private.level = "client" or "local"'
        )
    assert settings.clip != "adaptive"
    assert settings.epsilon is not None
    step = ExampleTrain(
        train=method.local,
        clip=settings.clip,
        epsilon=settings.epsilon,
        delta=settings.delta / 2,
        rounds=rounds,
    )
    return replace(method, local=step, gather=BookedReplies(settings=settings, rounds=rounds))
