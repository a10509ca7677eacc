"""The partitions by their public names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from covey.data.partitions.classes import few_classes, random_classes, shards, two_label_groups
from covey.data.partitions.cutting import Parts
from covey.data.partitions.dirichlet import dir_class, dir_class_capped, dir_client, dir_client_prior
from covey.data.partitions.even import iid
from covey.data.partitions.mixes import iid_of_n, m_labels, majority
from covey.data.partitions.natural import domain, kmeans_pixels, natural

PARTITIONS: Final[dict[str, Callable[..., Parts]]] = {
    "iid": iid,
    "dir-class": dir_class,
    "dir-class-capped": dir_class_capped,
    "dir-client": dir_client,
    "dir-client-prior": dir_client_prior,
    "shards": shards,
    "two-label-groups": two_label_groups,
    "random-classes": random_classes,
    "iid-of-n": iid_of_n,
    "few-classes": few_classes,
    "majority": majority,
    "m-labels": m_labels,
    "kmeans-pixels": kmeans_pixels,
    "domain": domain,
    "natural": natural,
}
