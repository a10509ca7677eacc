"""CPU time and memory of adapters in covey beside a plain loop with PyTorch and PEFT on the same work.

`python -m benchmarks.adapters`: a decoder of 1.25 million parameters, LoRA of rank 4 on queries and values (A and B
travel), 3 rounds of 5 clients with 200 windows of 32 tokens each, Adam, batches of 16. Both train the same numbers
on as many batches; each has a process of its own, and they take turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import subprocess
import sys
import time

import numpy as np
import torch

CLIENTS, SAMPLES, CONTEXT, TOKENS = 5, 200, 32, 37
RANK, BATCH, ROUNDS, LR = 4, 16, 3, 0.003
PEFT = {
    "name": "peft",
    "type": "LORA",
    "targets": ["*.query", "*.value"],
    "settings": {"r": RANK, "lora_alpha": RANK},
}


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    """Every client's windows, and what follows each."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(1, TOKENS, (CLIENTS * SAMPLES, CONTEXT + 1), generator=rng)
    return x[:, :-1].contiguous(), x[:, -1].contiguous()


def network() -> torch.nn.Module:
    from covey.training.models import build

    return build("decoder", input_shape=(CONTEXT,), outputs=TOKENS, adapter=PEFT)


def plain() -> None:
    """What somebody would write: for each client a copy of the adapter, Adam, and the mean of all adapters."""
    model = network()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    x, y = tokens()
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        start = {name: p.detach().clone() for name, p in trained.items()}
        sums = {name: torch.zeros_like(p) for name, p in start.items()}
        for client in range(CLIENTS):
            with torch.no_grad():
                for name, p in trained.items():
                    p.copy_(start[name])
            optimiser = torch.optim.Adam(trained.values(), lr=LR)
            own = np.arange(client * SAMPLES, (client + 1) * SAMPLES)[rng.permutation(SAMPLES)]
            for first in range(0, SAMPLES, BATCH):
                batch = torch.from_numpy(own[first : first + BATCH])
                target = torch.cat([x[batch, 1:], y[batch, None]], 1)
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(x[batch]), target).backward()
                optimiser.step()
            for name, p in trained.items():
                sums[name] += p.detach() / CLIENTS
        with torch.no_grad():
            for name, p in trained.items():
                p.copy_(copy.copy(sums[name]))


def covey() -> None:
    """The same in covey: one process, no measuring."""
    from covey.core.round import run_rounds
    from covey.data import federate
    from covey.data.types import Dataset
    from covey.fleet.engine import Engine
    from covey.fleet.local import LocalFleet
    from covey.methods.baselines import fedavg
    from covey.parts.steps import Train
    from covey.training.objective import NextToken

    x, y = tokens()
    data = Dataset(
        name="tokens",
        x=x,
        y=y,
        train=np.arange(len(x)),
        test=np.arange(0),
        classes=tuple(map(str, range(TOKENS))),
    )
    parts = federate(data, partition="iid", clients=CLIENTS, seed=0, test_fraction=None)
    fleet = LocalFleet(parts, network(), objective=NextToken(), seed=0, engine=Engine(mode="serial"))
    train = Train(optimiser="adam", lr=LR, batch=BATCH, epochs=1)
    run_rounds(fedavg(train, per_round=CLIENTS), fleet, rounds=ROUNDS)


def child(which: str) -> None:
    """One of the two, after its imports and one build; what the training took as a line."""
    torch.set_num_threads(1)
    network()
    begun = time.process_time()
    {"plain": plain, "covey": covey}[which]()
    used = time.process_time() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": used, "memory": most}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("plain", "covey"))
    parser.add_argument("--times", type=int, default=3)
    settings = parser.parse_args()
    if settings.only:
        child(settings.only)
        return
    found: dict[str, list[dict[str, float]]] = {"plain": [], "covey": []}
    for _ in range(settings.times):
        for which, answers in found.items():
            words = [sys.executable, "-m", "benchmarks.adapters", "--only", which]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            answers.append(json.loads(said.splitlines()[-1]))
    least = {
        which: {kind: min(a[kind] for a in answers) for kind in ("cpu", "memory")}
        for which, answers in found.items()
    }
    for which, numbers in least.items():
        print(f"{which}: {numbers['cpu']:.2f} CPU s, {numbers['memory'] / 1e6:.0f} MB")
    for kind in ("cpu", "memory"):
        print(f"{kind}: {least['covey'][kind] / least['plain'][kind]:.3f} times")


if __name__ == "__main__":
    main()
