"""MOON: model-contrastive federated learning (Li et al., 2021)."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from covey.core import NOTHING, Client, Method, Reply, Task, method, step
from covey.methods.baselines import fedavg
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.latents import representations, watched
from covey.parts.steps.stepwise import is_finite
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import NotNegative, Positive, inline
from covey.training.bench import LossFunction


def contrastive(z: Tensor, common: Tensor, before: Tensor, temperature: float) -> Tensor:
    """-log(e^(s / t) / (e^(s / t) + e^(r / t))), mean over samples; s, r: cosine of z with common and with before."""
    sims = torch.stack([F.cosine_similarity(z, common), F.cosine_similarity(z, before)], dim=1) / temperature
    return F.cross_entropy(sims, torch.zeros(len(z), dtype=torch.long, device=z.device))


@step("contrastive", shows=NOTHING, passes=2 * FORWARD_SHARE)
class ContrastiveTrain(AroundTraining):
    """Training whose representations are drawn to those of the common model and away from the client's last own.

    The loss is the objective's + mu times `contrastive`; a client that works for the first time has no last model, and
    trains as in FedAvg. The last model stays at the client.

    Args:
        mu: weight of the contrastive loss; 0 is FedAvg.
        temperature: of the contrastive loss.
    """

    mu: NotNegative = 1.0
    temperature: Positive = 0.5

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        bench = client.bench.on_torch()
        before: Tensor = client.state.get("moon", start)

        def loss(x: Tensor) -> LossFunction:
            common, last = (representations(bench, row, x) for row in (start, before))
            seen: dict[str, Tensor] = {}

            def of(model: nn.Module, inputs: Tensor, target: Tensor, index: Tensor) -> Tensor:
                with watched(model, seen):
                    outputs = model(inputs)
                at = index.cpu()
                near, far = common[at].to(inputs.device), last[at].to(inputs.device)
                apart = contrastive(seen["z"], near, far, self.temperature)
                return bench.objective.loss(outputs, target) + self.mu * apart

            return of

        fit = local_fit(self.train, client, start, loss=loss if "moon" in client.state and self.mu else None)
        if is_finite(fit.row):
            client.state["moon"] = fit.row
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))


@method("moon", family="drift", paper="https://arxiv.org/abs/2103.16257")
def moon(
    train: Train, *, base: Method = inline(fedavg), local: ContrastiveTrain = inline(ContrastiveTrain)
) -> Method:
    """FedAvg whose clients keep their representations near those of the common model and away from their own last one.

    The loss of a sample is the objective's + mu (-log(e^(s_w / t) / (e^(s_w / t) + e^(s_v / t)))), s_w and s_v the
    cosine of its representation and that by the model w that was sent, and by the client's last model v (Li et al.,
    2021). The representation is what the last linear layer is given.
    """
    return replace(base, name="moon", local=local)
