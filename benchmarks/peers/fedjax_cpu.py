"""FedAvg on a workload with FedJAX: its own algorithm, the client loop compiled by XLA for the processor."""

from __future__ import annotations

import sys

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload

# Widths and padding of the convolutions, and widths of the layers behind them: the workloads' two models.
SHAPES = {
    "lenet5": (((6, "SAME"), (16, "VALID")), (120, 84)),
    "cnn-mnist": (((32, "SAME"), (64, "SAME")), (512,)),
}


def model_of(workload: Workload) -> fedjax.Model:
    """The same layers as Covey's model, channels last as XLA likes them on a processor."""
    convolutions, widths = SHAPES[workload.model]

    def forward(batch: dict[str, jnp.ndarray]) -> jnp.ndarray:
        layers: list[object] = []
        for width, padding in convolutions:
            layers += [hk.Conv2D(width, 5, padding=padding), jax.nn.relu, hk.MaxPool(2, 2, "VALID")]
        layers.append(hk.Flatten())
        for width in widths:
            layers += [hk.Linear(width), jax.nn.relu]
        return hk.Sequential([*layers, hk.Linear(10)])(batch["x"])

    sample = {"x": np.zeros((1, 28, 28, 1), np.float32), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch=sample,
        train_loss=lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
    )


def examples(x: object, y: object) -> dict[str, np.ndarray]:
    return {
        "x": np.ascontiguousarray(np.transpose(np.asarray(x), (0, 2, 3, 1))),
        "y": np.asarray(y, np.int32),
    }


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    gate = Gate(waits=not workload.digits)
    data = {i: examples(x, y) for i, (x, y) in enumerate(raw.data_of(workload))}
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(data), num_clients=workload.per_round, seed=0
    )
    model = model_of(workload)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(workload.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_epochs=1),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    test = fedjax.ClientDataset(examples(*raw.test_of(workload)))
    for _ in range(rounds):
        gate()
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        if workload.digits:
            found = fedjax.evaluate_model(model, state.params, test.padded_batch(batch_size=1000))
            gate.tell(float(found["accuracy"]))
    gate.close()


if __name__ == "__main__":
    main()
