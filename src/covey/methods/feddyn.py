"""FedDyn: federated learning based on dynamic regularisation (Acar et al., 2021)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from covey.core import Client, Key, Method, Reply, Round, Shows, Task, method, part, step, to_everybody
from covey.core.needs import ONE_MODEL
from covey.core.shows import AT_THE_SERVER
from covey.methods.baselines import random
from covey.parts.steps.size import sizes
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import Count, Positive

SHOWS_MOVES = Shows(what="how far every client has moved", instead=AT_THE_SERVER)


@step("dyn", shows=SHOWS_MOVES)
class DynTrain(AroundTraining):
    """FedDyn's training, pulled back by the client's memory s_k of past rounds, which never leaves it.

    a_k s_k is minus the gradient of F_k at the last w_k; the task says the clients' mean size.
    """

    alpha: float = 0.01

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        size = len(client.train)
        pull = self.alpha * float(task.args.get("mean_size", size)) / size
        trainable = client.bench.layout.trainable
        memory = client.state.get("dyn", torch.zeros(trainable))
        fit = local_fit(replace(self.train, prox=pull), client, start, linear=pull * memory)
        move = fit.row[:trainable] - start[:trainable]
        if bool(torch.isfinite(move).all()):  # a broken reply is refused; the memory must not keep it
            client.state["dyn"] = memory + move
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))


MOVES: Key[Tensor] = Key("feddyn.sum", 'add "moves" to after')


@part("send", "with-memory", needs=(ONE_MODEL, MOVES), shows=SHOWS_MOVES)
class WithMemory:
    """FedDyn's model to train: the average of the last round plus the mean of all clients' memories."""

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        known = sizes(now, now.here)
        row = now.models[:1].clone()
        if MOVES.name in now.memory:
            total = MOVES.of(now.memory)
            row[0, : len(total)] += total / len(now.fleet.members())
        args = {"mean_size": sum(known.values()) / len(known)} if known else {}
        return dict.fromkeys(ids, Task(models=row, slots=(0,), args=args))


@part("after", "moves", gives=(MOVES,), shows=SHOWS_MOVES)
def remember_moves(now: Round) -> None:
    """Adds what the clients of this round have added to their memories to the sum that the server keeps."""
    trainable = now.fleet.layout.trainable
    total = MOVES.get(now.memory, torch.zeros(trainable)).clone()
    for reply in now.replies:
        assert reply.vector is not None
        total += (reply.vector - now.start_of(reply))[:trainable]
    MOVES.keep(now.memory, total)


CLIP = 10.0  # norm of a gradient, unless the training settings say another


@method("feddyn", family="drift", paper="https://arxiv.org/abs/2111.04263")
def feddyn(train: Train, *, per_round: Count = 10, alpha: Positive = 0.01) -> Method:
    """FedAvg whose clients remember how far they drifted, so that their optima agree with the common one.

    Client k minimises F_k(v) + (a_k/2) ||v - w||^2 + a_k <v, s_k> with a_k = alpha n_mean / n_k, then adds w_k - w to
    its memory s_k; the next w is the plain mean of the round's w_k plus the mean of all clients' s_k (Acar et al.,
    2021, as in the authors' code). The plain mean is the model that is used and evaluated. Gradients are clipped
    (`train.clip`, else to norm 10), without which few clients per round with few labels each can make it diverge.

    Args:
        alpha: weight of the penalty that ties clients to the common model.
    """
    return replace(
        random(train, per_round=per_round),
        name="feddyn",
        send=WithMemory(),
        serve=to_everybody,
        local=DynTrain(train=replace(train, clip=train.clip or CLIP), alpha=alpha),
        after=(remember_moves,),
    )
