"""Label mixes drawn from a Dirichlet distribution; the definitions are NOT equally hard at equal alpha."""

import numpy as np

from covey.arrays import Array
from covey.data.partitions.cutting import (
    Parts,
    check_enough,
    counts_of,
    cut_by_shares,
    deal,
    equal_sizes,
    top_up,
)
from covey.data.types import Indices
from covey.errors import UserError
from covey.settings.ranges import Count, Positive
from covey.settings.registry import register

REDRAWS = 100  # of a whole capped partition before the smallest clients are topped up
FRESH = 100  # fresh label mixes tried for one client of dir-client-prior at a time
TRIES_AT_ONCE = 500  # such tries before the tolerance grows tenfold
TOLERANCE = 1e-6  # squared error between the mean label mix and the data set's own


@register("partition", "dir-class")
def dir_class(
    labels: Indices, *, clients: Count, rng: np.random.Generator, alpha: Positive = 0.5, minimum: Count = 10
) -> Parts:
    """Per class, p ~ Dir(alpha) over the clients; the shuffled class is cut by cumulative p.

    Sizes vary as much as label mixes do (CFL). A client below `minimum` samples is topped up to it, in its
    own label mix, from the clients that can spare most of those labels. Smaller alpha: more heterogeneous clients.

    Args:
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
    """
    check_enough(samples=len(labels), clients=clients, minimum=minimum)
    totals = counts_of(labels)
    shares = rng.dirichlet(np.full(clients, alpha), size=len(totals)).T
    return deal(labels, top_up(_cut_classes(totals, shares), shares * totals, minimum, rng), rng)


@register("partition", "dir-class-capped")
def dir_class_capped(
    labels: Indices, *, clients: Count, rng: np.random.Generator, alpha: Positive = 10.0, minimum: Count = 10
) -> Parts:
    """As dir-class, but clients that hold total/N samples or more get nothing of the next classes.

    Class after class, p ~ Dir(alpha) over the clients with p = 0 for the full ones, renormalised; all of it
    is drawn again until the smallest client has `minimum` samples, at most 100 times; the best draw is then
    topped up as in dir-class. Sizes are closer to each other. The embedding paper uses alpha = 10.

    Args:
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
    """
    check_enough(samples=len(labels), clients=clients, minimum=minimum)
    totals = counts_of(labels)
    best = _capped_draw(totals, clients, alpha, rng)
    for _ in range(REDRAWS - 1):
        if best.sum(axis=1).min() >= minimum:
            break
        best = max(
            best, _capped_draw(totals, clients, alpha, rng), key=lambda counts: counts.sum(axis=1).min()
        )
    return deal(labels, top_up(best, best.astype(np.float64), minimum, rng), rng)


@register("partition", "dir-client")
def dir_client(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    alpha: Positive = 0.5,
    size: Count | None = None,
) -> Parts:
    """Per client, a label mix q ~ Dir(alpha) and a fixed size; labels are drawn from q, redrawn if used up.

    FedDyn's rule. Without `size` all samples are split equally, the remainder one each to the first
    clients; the more of the data is used, the more the scarce labels bend the mixes. A client whose labels
    are all used up draws from what is left.

    Args:
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
        size: samples of a client; none splits all samples equally.
    """
    check_enough(samples=len(labels), clients=clients, minimum=1 if size is None else size)
    totals = counts_of(labels)
    sizes = equal_sizes(len(labels), clients) if size is None else np.full(clients, size, dtype=np.int64)
    mixes = rng.dirichlet(np.full(len(totals), alpha), size=clients)
    return deal(labels, _draw_labels(mixes, sizes, totals, rng), rng)


@register("partition", "dir-client-prior")
def dir_client_prior(
    labels: Indices, *, clients: Count, rng: np.random.Generator, alpha: Positive = 0.5, minimum: Count = 10
) -> Parts:
    """Per client, a label mix q ~ Dir(alpha * p), p the data set's label shares; equal sizes, all data used.

    The concentration of one label is alpha / C, so equal alpha is much harder here than in dir-client. As in
    CFIC's framework the mixes are redrawn client by client (the best of 100 fresh draws) until the squared
    error between their mean and p is below 1e-6, ten times more after every 500 tries; then each label is cut
    in proportion to q times size. Clients below `minimum` samples are topped up as in dir-class.

    Args:
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
    """
    check_enough(samples=len(labels), clients=clients, minimum=minimum)
    totals = counts_of(labels)
    present = totals > 0
    sizes = equal_sizes(len(labels), clients)
    wanted = np.zeros((clients, len(totals)))
    wanted[:, present] = _balanced_mixes(totals[present] / len(labels), sizes, alpha, rng) * sizes[:, None]
    return deal(labels, top_up(_cut_classes(totals, wanted), wanted, minimum, rng), rng)


def _cut_classes(totals: Indices, weights: Array) -> Indices:
    """Counts of every client and class when each class is cut in proportion to the clients' weights."""
    columns = [
        cut_by_shares(int(total), column if column.sum() > 0 else np.ones(len(column)))
        for total, column in zip(totals, weights.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def _capped_draw(totals: Indices, clients: Count, alpha: float, rng: np.random.Generator) -> Indices:
    counts = np.zeros((clients, len(totals)), dtype=np.int64)
    cap = totals.sum() / clients
    for label, total in enumerate(totals.tolist()):
        below = counts.sum(axis=1) < cap
        p = rng.dirichlet(np.full(clients, alpha)) * below
        if total:
            # With a tiny alpha all the mass may sit on full clients: then the others share equally.
            counts[:, label] = cut_by_shares(total, p if p.sum() > 0 else below.astype(np.float64))
    return counts


def _draw_labels(mixes: Array, sizes: Indices, totals: Indices, rng: np.random.Generator) -> Indices:
    """Draw each client's labels from its mix while they last; every pass ends or uses up a label."""
    counts = np.zeros(mixes.shape, dtype=np.int64)
    left, missing = totals.copy(), sizes.copy()
    while missing.any():
        weights = np.where(left > 0, mixes, 0.0)
        weights[weights.sum(axis=1) == 0] = left
        drawn = rng.multinomial(missing, weights / weights.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(drawn.sum(axis=0) > left):
            drawn[:, label] = rng.multivariate_hypergeometric(drawn[:, label], left[label])
        counts += drawn
        left -= drawn.sum(axis=0)
        missing -= drawn.sum(axis=1)
    return counts


def _balanced_mixes(p: Array, sizes: Indices, alpha: float, rng: np.random.Generator) -> Array:
    """Label mixes from Dir(alpha * p) whose mean, weighted by size, is close to p."""
    mixes = rng.dirichlet(alpha * p, size=len(sizes))
    if not np.isfinite(mixes).all():
        raise UserError(f"alpha = {alpha}: too small to draw label mixes from")
    share = sizes / sizes.sum()
    gap = share @ mixes - p
    tolerance, tries = TOLERANCE, 0
    while gap @ gap > tolerance:
        client = tries % len(sizes)
        fresh = rng.dirichlet(alpha * p, size=FRESH)
        gaps = gap + share[client] * (fresh - mixes[client])
        errors = (gaps**2).sum(axis=1)
        best = int(np.argmin(errors))
        if errors[best] < gap @ gap:
            mixes[client], gap = fresh[best], gaps[best]
        tries += 1
        if tries % TRIES_AT_ONCE == 0:
            tolerance *= 10
    return mixes
