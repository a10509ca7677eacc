"""LADD's clustering (Shenaj et al., WACV 2023): clients with pictures of one style share a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Client, Facts, Known, Method, Reply, Round, Shows, Stat, Step, Task, method, part, step
from covey.core.needs import GROUPS
from covey.core.shows import ANY_GROUPS
from covey.data.types import Dataset
from covey.errors import UserError
from covey.methods.grouped import fedavg_per_group
from covey.parts.group.membership import Vectors, maintained_groups
from covey.parts.mix.average import Weighting
from covey.parts.mix.shared import GroupAverage
from covey.parts.steps.embedding import class_means
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import Train
from covey.settings import Count, Natural, Range, inline
from covey.training.models.encoders import Pixels

MOST_AMPLITUDE = 1e12  # of pictures of any scale and size; its squares can still be added up
FOURIER_SHARE = 0.1  # a transform and a mean beside a forward pass


def styles(x: Tensor, share: float) -> NDArray[np.float64]:
    """The style of every picture, [samples, channels (2b + 1)^2]."""
    height, width = x.shape[-2:]
    b = int(share * min(height, width))
    amplitude = torch.fft.fftshift(torch.fft.fft2(x.double()), dim=(-2, -1)).abs()
    window = amplitude[..., height // 2 - b : height // 2 + b + 1, width // 2 - b : width // 2 + b + 1]
    return np.asarray(window.flatten(1).numpy())


StyleShare = Annotated[float, Range(0, 0.4)]  # of a side of the picture


@step(kind="query.style", of_labels=True, passes=FOURIER_SHARE * FORWARD_SHARE)
class Style(Step):
    """Asks for the mean style: of each class (the embedding paper) or of all pictures (LADD itself)."""

    share: StyleShare = 0.1
    per_class: bool = True

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x, y = client.train.tensors()
        dataset = client.train.dataset
        if why := self.unfit(dataset):
            raise UserError(why)
        if dataset.scale is not None:
            x = Pixels(dataset.scale)(x)
        by_class = self.per_class and len(dataset.classes) > 0
        labels = y.numpy() if by_class else np.zeros(len(y), np.int64)
        classes = len(dataset.classes) if by_class else 1
        means = class_means(styles(x, self.share), labels, classes, client.stream("missing classes"))
        return Reply(id=client.id, size=len(y), stats={"style": means.astype(np.float32).reshape(-1)})

    def unfit(self, dataset: Dataset) -> str:
        dimensions = dataset.x.dim() - 1
        return (
            ""
            if dimensions == 3
            else f"the style is one of pictures; a sample here has {dimensions} dimensions, not 3"
        )

    def expects(self, known: Known) -> dict[str, Stat]:
        """Amplitudes: the numbers of one window per channel and class."""
        side = 2 * int(self.share * min(known.shape[-2:])) + 1
        classes = known.classes if self.per_class and known.classes else 1
        return {"style": Stat(low=0.0, high=MOST_AMPLITUDE, shape=(classes * known.shape[0] * side**2,))}


RESTARTS = 10
FEWEST, MOST = 4, 19  # LADD tries these numbers of clusters


@dataclass(frozen=True, kw_only=True)
class ByStyle:
    """Everybody sends its mean style once; k-means groups them, k given or by the best silhouette."""

    style: Style
    k: Natural = 0

    gives: ClassVar[Facts] = (GROUPS,)
    shows: ClassVar[Shows] = Shows(
        what="the exact mean amplitudes of every client's pictures", instead=ANY_GROUPS
    )

    def __call__(self, now: Round) -> dict[int, int]:
        return maintained_groups(
            now,
            lambda ids: self.styles(now, ids),
            lambda _, vectors: self.found(now, vectors),
            title="Clients by their style",
        )

    def styles(self, now: Round, ids: Sequence[int]) -> Vectors:
        replies = now.ask(self.style, ids) if ids else []
        return {reply.id: np.asarray(reply.stats["style"], np.float32) for reply in replies}

    def found(self, now: Round, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        seed = int(now.stream("k-means").integers(2**31))
        labels, tried = style_clusters(vectors, self.k, seed)
        if tried:
            chosen = int(labels.max()) + 1
            now.notes["silhouette"] = {"k": list(tried), "score": list(tried.values()), "chosen": chosen}
        return labels


def style_clusters(
    vectors: NDArray[np.float32], k: int, seed: int
) -> tuple[NDArray[np.int64], dict[int, float]]:
    """K-means (10 restarts) into k groups; k = 0 tries 4 to 19 and takes the best silhouette (ties: fewer groups)."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    distinct = len(np.unique(vectors, axis=0))

    def clusters(count: int) -> NDArray[np.int64]:
        count = min(count, distinct)
        return np.asarray(KMeans(count, n_init=RESTARTS, random_state=seed).fit_predict(vectors), np.int64)

    if k or distinct < 3:
        return clusters(k or distinct), {}
    most = min(MOST, distinct - 1)
    fewest = min(FEWEST, most)
    found = {count: clusters(count) for count in range(fewest, most + 1)}
    scores = {count: float(silhouette_score(vectors, labels)) for count, labels in found.items()}
    return found[max(scores, key=lambda count: scores[count])], scores


@part("group", "style")
def by_style(*, k: Natural = 0, share: StyleShare = 0.1, per_class: bool = True) -> ByStyle:
    """LADD's clusters: K-means on the pictures' low frequencies, k given or by the best silhouette.

    Args:
        k: how many clusters; 0: as many from 4 to 19 as have the best silhouette.
        share: of a picture's side that the window of low frequencies takes.
        per_class: whether the style is told for each class or for all pictures.
    """
    return ByStyle(style=Style(share=share, per_class=per_class), k=k)


@method("ladd", family="clusters", paper="https://arxiv.org/abs/2210.02326")
def ladd(
    train: Train,
    *,
    per_round: Count = 10,
    n_shared: Natural = 0,
    weighting: Weighting = "samples",
    group: ByStyle = inline(by_style),
) -> Method:
    """Clients whose pictures have a similar style train one model together.

    The style is the mean low-frequency amplitude of the pictures' Fourier transform, in a window of `share` of a side
    each way; of each class (as the embedding paper has it) or, with `per_class = false`, of all pictures. K-means
    makes `k` clusters, or as many from 4 to 19 as have the best silhouette. Unseen clients go to the nearest centroid.
    Only the clustering is LADD's; the rest of it is for segmentation.
    """
    grouped = fedavg_per_group("ladd", train, group, per_round=per_round)
    return replace(grouped, mix=GroupAverage(weighting=weighting, n_shared=n_shared))
