"""FedGWC: interaction-aware Gaussian weighting for clustered federated learning (Licciardi et al., 2025)."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Client, Fact, Key, Method, Mixing, Reply, Round, Shows, Task, method, part, step
from covey.core.needs import KNOWN_GROUPS, ONE_MODEL
from covey.core.reply_schema import Known, Stat
from covey.core.shows import ANY_GROUPS
from covey.data.ground_truth import numbered
from covey.methods.baselines import fedavg
from covey.methods.cfl import to_known_group
from covey.parts.mix.average import weights
from covey.parts.mix.regroup import regrouped
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import Count, Positive, inline

POINTS = 10  # at which the course of a client's loss is told
COURSES = Fact("the course of the loss in every reply", 'set local = "course"')
INTERACTIONS: Key[dict[str, Any]] = Key("fedgwc.interactions")
SHOWS_COURSES = Shows(what="the exact course of every client's loss", instead=ANY_GROUPS)


@step("course", gives=(COURSES,), shows=SHOWS_COURSES)
class TrainWithCourse(AroundTraining):
    """Training that also tells the course of its loss, at ten points of the way."""

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        fit = local_fit(self.train, client, start)
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        losses = fit.losses if len(fit.losses) else np.zeros(1)
        course = np.interp(np.linspace(0, 1, POINTS), np.linspace(0, 1, len(losses)), losses)
        return replace(reply, stats={**reply.stats, "course": course})

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known) | {"course": Stat(low=known.lowest_loss, shape=(POINTS,))}


def rewards(courses: Array, sizes: Array) -> Array:
    """Mean over the way of exp(-(loss - mean)^2 / (2 variance)): how near a client's loss stays to the group's."""
    share = sizes / sizes.sum()
    mean = share @ courses
    variance = share @ np.square(courses - mean) + 1e-16
    return np.asarray(np.exp(-0.5 * np.square(courses - mean) / variance).mean(axis=1))


def affinity(interactions: Array, gamma: float) -> Array:
    """exp(-gamma ||v_i - v_j||^2), v_i what others' rewards were with i, without the entries of i and j themselves."""
    seen = interactions.T
    seen = (seen - seen.min()) / max(float(seen.max() - seen.min()), 1e-8)
    table = np.zeros_like(seen)
    for i in range(len(seen)):
        for j in range(i + 1, len(seen)):
            rest = np.delete(np.arange(len(seen)), [i, j])
            table[i, j] = table[j, i] = np.exp(-gamma * np.square(seen[i, rest] - seen[j, rest]).sum())
    return np.asarray(table)


def split(table: Array, most: int, seed: int) -> NDArray[np.int64]:
    """Spectral clusters of 2 to `most` by the lowest Davies-Bouldin score below 1; one group where none is."""
    from sklearn.cluster import SpectralClustering
    from sklearn.manifold import spectral_embedding
    from sklearn.metrics import davies_bouldin_score

    best, labels = 1.0, np.zeros(len(table), np.int64)
    for count in range(2, min(most, len(table) - 1) + 1):
        tree = SpectralClustering(
            count, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
        )
        tried = tree.fit_predict(table)
        if len(np.unique(tried)) == count:
            points = spectral_embedding(table, n_components=count, random_state=seed)
            score = float(davies_bouldin_score(points, tried))
            if score < best:
                best, labels = score, numbered(tried)
    return labels


@part("mix", "interactions", needs=(ONE_MODEL, COURSES), gives=(KNOWN_GROUPS,), shows=SHOWS_COURSES)
class ByInteractions:
    """Groups whose interactions have settled are split by them; then each group's replies are averaged (FedGWC).

    They have settled when they changed little for as many rounds in a row as it takes everybody to work once.

    Args:
        gamma: how fast likeness falls with the distance of two clients' interactions.
        settled: mean squared change of the interactions below which they have settled.
        most: the most parts of one split.
    """

    gamma: Positive = 4.0
    settled: Positive = 1e-5
    most: Count = 4

    def __call__(self, now: Round) -> Mixing:
        now.groups = now.groups | {reply.id: reply.slot for reply in now.replies}
        known = INTERACTIONS.get(now.memory, {"pairs": {}, "change": {}, "calm": {}})
        pairs, change, calm = dict(known["pairs"]), dict(known["change"]), dict(known["calm"])
        count, parents = len(now.models), {}
        for group in range(len(now.models)):
            replies = [reply for reply in now.replies if reply.slot == group]
            members = sorted(i for i, g in now.groups.items() if g == group)
            if len(replies) < 2:
                continue
            moved = self.taken_in(pairs, replies, len(members))
            fresh = len(replies) / len(members)
            change[group] = (1 - fresh) * float(change.get(group, 1.0)) + fresh * moved
            calm[group] = calm.get(group, 0) + 1 if change[group] < self.settled else 0
            if calm[group] >= round(1 / fresh) and len(members) > 3:
                change[group], calm[group] = 1.0, 0
                table = np.array([[pairs.get(pair(i, j), 0.0) for j in members] for i in members])
                labels = split(
                    affinity(table, self.gamma), self.most, int(now.stream("spectral").integers(2**31))
                )
                for label in range(1, int(labels.max()) + 1):
                    leaving = [i for i, one in zip(members, labels, strict=True) if one == label]
                    now.groups = now.groups | dict.fromkeys(leaving, count)
                    parents[count] = group
                    count += 1
        INTERACTIONS.keep(now.memory, {"pairs": pairs, "change": change, "calm": calm})
        return regrouped(now, count, weights(now.replies, "samples"), parents)

    def taken_in(self, pairs: dict[str, float], replies: list[Reply], members: int) -> float:
        """Puts the rewards of a group's replies into the interactions; the mean squared change of these."""
        courses = np.stack([np.asarray(reply.stats["course"], float) for reply in replies])
        earned = rewards(courses, np.array([float(max(1, reply.size)) for reply in replies]))
        fresh, moved = len(replies) / members, 0.0
        for reply, reward in zip(replies, earned / earned.sum(), strict=True):
            for other in replies:
                old = pairs.get(pair(reply.id, other.id), 1 / members**2)
                new = (1 - fresh) * old + fresh * float(reward)
                pairs[pair(reply.id, other.id)] = new
                moved += (new - old) ** 2
        return moved / len(replies) ** 2


def pair(one: int, other: int) -> str:
    return f"{one}/{other}"


@method("fedgwc", family="clusters")
def fedgwc(train: Train, *, per_round: Count = 10, mix: ByInteractions = inline(ByInteractions)) -> Method:
    """Clients whose losses run alike are found by who is rewarded with whom; groups are split once that has settled.

    A client's reward is exp(-(loss - mean)^2 / (2 variance)) over the round's clients, averaged over its way; running
    means for all pairs make the interactions, whose columns tell which clients are alike: spectral clusters, as many as
    have the lowest Davies-Bouldin score (Licciardi et al., 2025).
    """
    base, local = fedavg(train, per_round=per_round), TrainWithCourse(train=train)
    return replace(base, name="fedgwc", send=to_known_group, local=local, mix=mix)
