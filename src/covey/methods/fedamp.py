"""FedAMP: personalized cross-silo federated learning on non-IID data (Huang et al., 2021)."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.core import MODEL_PER_CLIENT, Client, Method, Reply, Round, Shows, Task, method, part, step
from covey.core.shows import OWN_MODEL
from covey.parts.banks import one_per_client, to_owner
from covey.parts.mix.average import keep_own
from covey.parts.mix.combine import combine
from covey.parts.mix.gram import products
from covey.parts.selection.plain import Everybody
from covey.parts.steps.personal import fit_near
from covey.parts.steps.stepwise import is_finite
from covey.parts.steps.train import AroundTraining, Train, best_row, reply_of
from covey.settings import NotNegative, Positive, Share, inline


def attention(gram: Array, *, sigma: float, own: float) -> Array:
    """xi_ij: row i says how much of everybody's model is in client i's cloud model.

    exp(-||w_i - w_j||^2 / sigma) over the others, scaled so that they make up 1 - own; own is the share of w_i itself.
    """
    squares = np.maximum(np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram, 0)
    near = np.exp(-squares / sigma)
    np.fill_diagonal(near, 0)
    total = near.sum(axis=1, keepdims=True)
    share = np.divide(near, total, out=np.zeros_like(near), where=total > 0) * (1 - own)
    return np.asarray(share + np.diag(1 - share.sum(axis=1)))


@part("send", "attended", needs=(MODEL_PER_CLIENT,), shows=OWN_MODEL)
class ToAttended:
    """Every client gets its cloud model: everybody's models, weighted by how near they are to its own (FedAMP).

    Args:
        sigma: squared distance at which another model's weight falls to 1 / e, in units of the mean squared distance.
        own: share of the client's own model.
    """

    sigma: Positive = 1.0
    own: Share = 0.5

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        trainable, count = now.fleet.layout.trainable, len(now.models)
        gram = products(list(now.models[:, :trainable]))
        squares = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
        usual = max(float(squares.sum()) / max(1, count * (count - 1)), 1e-12)
        weights = attention(gram, sigma=self.sigma * usual, own=self.own)
        places = {client: now.seen.index(client) for client in ids if client in now.seen}
        clouds = (
            combine([csr_array(weights[list(places.values())])], now.models) if places else now.models[:0]
        )
        return {
            client: Task(models=clouds[at : at + 1], slots=(place,))
            for at, (client, place) in enumerate(places.items())
        }


@step("near-cloud", kind="train.cloud")
class TrainNearCloud(AroundTraining):
    """Trains the client's own model v on F_k(v) + (pull / 2) ||v - u||^2, u the cloud model that it was sent.

    Args:
        pull: how strongly the own model is held to the cloud model (the paper's lambda / alpha).
    """

    pull: NotNegative = 0.1

    shows: ClassVar[Shows] = Shows(
        what="every client's own model", instead="use a method with a common model, such as ditto or fedper"
    )

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, cloud = best_row(client, task)
        fit = fit_near(self.train, client, client.state.get("amp", cloud), cloud, self.pull)
        if is_finite(fit.row):
            client.state["amp"] = fit.row
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))


@method("fedamp", family="personalised", paper="https://arxiv.org/abs/2007.03797")
def fedamp(
    train: Train,
    *,
    local: TrainNearCloud = inline(TrainNearCloud),
    send: ToAttended = inline(ToAttended),
) -> Method:
    """Everybody's model is held to a mixture of all models in which those near to it count more.

    u_i = sum over j of xi_ij w_j, xi_ij ~ exp(-||w_i - w_j||^2 / sigma); w_i minimises F_i(w) + (pull / 2) ||w -
    u_i||^2 (Huang et al., 2021). Every client works in every round and has a model of its own, which the server
    knows.
    """
    return Method(
        name="fedamp",
        select=Everybody(),
        bank=one_per_client,
        send=send,
        serve=to_owner,
        local=local,
        mix=keep_own,
    )
