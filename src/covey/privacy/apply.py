"""The method with [private] in it."""

from dataclasses import replace
from typing import Any

from covey.core import (
    KNOWN_GROUPS,
    Budget,
    Method,
    Select,
    gives_of,
    hiding_clients,
    hiding_samples,
    needs_of,
    private_form,
    shows_of,
)
from covey.errors import UserError
from covey.parts.selection.plain import Poisson, Uniform
from covey.parts.steps.private import Noised, Quiet
from covey.parts.steps.train import Train
from covey.privacy.accountant import Sampling, noise_for
from covey.privacy.banded import InTurn
from covey.privacy.choices import ChoiceSums
from covey.privacy.example import ExampleTrain
from covey.privacy.local import BookedReplies, local_noise
from covey.privacy.plan import Plan
from covey.privacy.refusals import check_private, parts_of
from covey.privacy.secret_draw import SecretDraw
from covey.privacy.secure import FEWEST_IN_SUM, SecureSums
from covey.privacy.settings import Private
from covey.privacy.small_groups import AtLeast
from covey.privacy.sums import NoisySums

ASKED_SHARE = 0.125  # of epsilon, for what clients are asked beside their updates
DESCRIBED_SHARE = (
    0.15  # the same in sums of clients, of what adds up there: the inverse squares of their noise
)


def made_private(method: Method, settings: Private, *, clients: int, rounds: int) -> Method:
    """The method, of which clients' updates, losses and sizes are protected as the settings say; or one sentence."""
    if settings.level == "example" and settings.epsilon is not None:
        method, settings = with_private_parts(hiding_samples(method, settings.epsilon), settings)
    secure = SecureSums(settings=settings) if settings.secure else None
    if settings.level == "client" and (noise := one_sum(settings, rounds)):
        method = hiding_clients(method, noise, secure)
    check_private(method, settings.level)
    least = max(settings.least, FEWEST_IN_SUM) if settings.secure else settings.least
    at_home = getattr(method.send, "chosen_at_home", False)  # then nobody is in a group
    if method.group is not None and least > 1 and not at_home:
        method = replace(method, group=AtLeast(group=method.group, least=least))
    if settings.level == "example":
        return at_example_level(method, settings, rounds)
    if settings.level == "local":
        noise = local_noise(settings, rounds)
        assert settings.clip_length != "adaptive"
        step = Noised(step=method.local, clip=settings.clip_length, noise=noise)
        booked = BookedReplies(settings=settings, rounds=rounds, noise=noise)
        return replace(method, local=step, gather=booked)
    select: Select = method.select
    if settings.sampling == "poisson" and type(select) is Uniform:
        rate = select.per_round / max(1, clients)
        several = settings.bands > 1
        select = (
            InTurn(rate=min(1.0, settings.bands * rate), bands=settings.bands)
            if several
            else Poisson(rate=min(1.0, rate))
        )
    plan = Plan(settings=settings, rounds=rounds, select=select)
    by_group = KNOWN_GROUPS in needs_of(method.update)
    if settings.bands > 1 and (by_group or not isinstance(select, InTurn)):
        raise UserError(
            f"private.bands is {settings.bands}, but method {method.name} draws clients in a way of its own or sums by "
            "groups; use one that draws uniformly, such as fedavg or covey"
        )
    if isinstance(select, Poisson | Uniform | InTurn) and (settings.epsilon or settings.noise):
        select = SecretDraw(select=select)
    gather = (
        ChoiceSums(plan=plan, secure=secure)
        if at_home
        else NoisySums(plan=plan, by_group=by_group, secure=secure)
    )
    local = method.local if settings.secure else Quiet(step=method.local)
    return replace(method, select=select, local=local, gather=gather)


def one_sum(settings: Private, rounds: int) -> float:
    """The noise of the one sum of clients that is worth all that they tell beside updates; 0 where sums have none."""
    if settings.epsilon is not None:
        all_told = noise_for(settings.epsilon, settings.delta, sampling=Sampling(), times=1)
    else:
        all_told = (settings.noise or 0.0) / rounds**0.5
    return float(all_told / DESCRIBED_SHARE**0.5)


def with_private_parts(method: Method, settings: Private) -> tuple[Method, Private]:
    """The method with each part in the form that it has where samples are hidden, and what is left for its updates.

    What clients are asked beside their updates gets a share of epsilon, and the half of delta that `at_example_level`
    leaves. What is only remembered of exact replies, and read by no part any more, is left out.
    """
    assert settings.epsilon is not None
    budget = Budget(epsilon=ASKED_SHARE * settings.epsilon, delta=settings.delta / 2)
    changed = {kind: private_form(part, budget) for kind, part in parts_of(method) if kind != "after"}
    parts = [private_form(part, budget) for part in method.after]
    read = {fact for part in (*changed.values(), *parts) for fact in needs_of(part)}
    after = tuple(part for part in parts if not exact(part) or read & set(gives_of(part)))
    private = replace(method, **changed, after=after)
    if private == method:
        return method, settings
    return private, replace(settings, epsilon=(1 - ASKED_SHARE) * settings.epsilon)


def exact(part: Any) -> bool:
    """Whether the part reads something of single clients that no noise covers."""
    shows = shows_of(part)
    return shows is not None and bool(shows.what) and not shows.in_updates


def at_example_level(method: Method, settings: Private, rounds: int) -> Method:
    """Clients train with Opacus; only plain training can be replaced by that."""
    if type(method.local) is not Train:
        raise UserError(
            f"method {method.name} cannot be private at the example level: its clients do {method.local.kind}, and "
            'Opacus replaces plain training only; use private.level = "client" or "local"'
        )
    train = method.local
    if train.accumulate > 1 or train.precision != "float32" or train.seconds is not None:
        raise UserError(
            'private.level is "example", where every batch is drawn for itself and clipped in float32: '
            f"train.accumulate is {train.accumulate}, train.precision {train.precision!r}, train.seconds "
            f"{train.seconds}; allowed: 1, 'float32', none"
        )
    assert settings.clip_length != "adaptive"
    assert settings.epsilon is not None
    step = ExampleTrain(
        train=method.local,
        clip=settings.clip_length,
        epsilon=settings.epsilon,
        delta=settings.delta / 2,
        rounds=rounds,
    )
    return replace(method, local=step, gather=BookedReplies(settings=settings, rounds=rounds))
