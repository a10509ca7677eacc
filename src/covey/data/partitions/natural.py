"""Clients as the data come: by writer, by domain, by how the images look."""

import numpy as np

from covey.arrays import Array
from covey.data.partitions.cutting import DealtOut, Parts, check_enough
from covey.data.partitions.dirichlet import dir_class_capped
from covey.data.types import Indices
from covey.errors import UserError
from covey.settings.ranges import Count, Positive
from covey.settings.registry import register


@register("partition", "natural")
def natural(groups: Indices, *, clients: Count, rng: np.random.Generator, minimum: Count = 1) -> Parts:
    """Each natural group (writer) is a client; fewer clients than groups are drawn at random.

    FEMNIST by its writers; MNIST by the writers in qmnist_writers.npz; PACS by its four domains. Groups with
    fewer than `minimum` training samples are left out. Clients are in the order of the group ids.

    Args:
        minimum: groups with fewer training samples are left out.
    """
    check_enough(samples=len(groups), clients=clients, minimum=minimum)
    sizes = np.bincount(groups)
    able = np.flatnonzero(sizes >= minimum)
    if clients > len(able):
        raise UserError(
            f"clients = {clients}: there are only {len(able)} natural groups with {minimum} samples or more"
        )
    chosen = np.sort(rng.choice(able, clients, replace=False))
    order = np.argsort(groups, kind="stable")
    pieces = np.split(order, np.cumsum(sizes)[:-1])
    few = np.flatnonzero((sizes > 0) & (sizes < minimum)).tolist()
    return DealtOut((rng.permutation(pieces[group]) for group in chosen), tests="group", left_out=few)


@register("partition", "domain")
def domain(
    labels: Indices,
    domains: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    alpha: Positive = 10.0,
    minimum: Count = 10,
    leaky: bool = False,
) -> Parts:
    """Equally many clients for each domain; inside a domain the data are cut by dir-class-capped(alpha).

    The embedding paper: PACS, 4 domains, 10 clients each, alpha = 10; ids in blocks of one domain. `clients`
    must be a multiple of the number of domains.

    Args:
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
        leaky: whether local test samples are trained on as well: a fault of some published results, to show its size.
    """
    found = np.unique(domains)
    if clients % len(found):
        raise UserError(f"clients is {clients}; allowed: multiples of the {len(found)} domains")
    each = clients // len(found)
    parts: list[Indices] = []
    for one in found:
        members = np.flatnonzero(domains == one)
        cut = dir_class_capped(labels[members], clients=each, rng=rng, alpha=alpha, minimum=minimum)
        parts.extend(members[part] for part in cut)
    return DealtOut(parts, truth=np.repeat(found, each), tests="leaky" if leaky else "mix-in-group")


@register("partition", "kmeans-pixels")
def kmeans_pixels(pixels: Array, *, clients: Count, rng: np.random.Generator) -> Parts:
    """Each K-means cluster of the raw inputs is a client; sizes are very unequal.

    What the topologies paper's code does, with 50 clusters. K-means starts from random samples and stops
    after 20 passes at the latest, which bounds the time for many clients.
    """
    from sklearn.cluster import KMeans

    check_enough(samples=len(pixels), clients=clients)
    means = KMeans(clients, init="random", n_init=1, max_iter=20, random_state=int(rng.integers(2**31)))
    sizes = np.bincount(found := means.fit_predict(pixels), minlength=clients)
    if (sizes == 0).any():
        raise UserError(
            f"clients = {clients}: the inputs fall into only {(sizes > 0).sum()} distinct clusters"
        )
    return DealtOut(np.split(np.argsort(found, kind="stable"), np.cumsum(sizes)[:-1]), tests="own")
