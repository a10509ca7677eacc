"""What Flower's actors run: a module of its own, because actors cannot import the one that was started."""

from __future__ import annotations

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks import raw
from benchmarks.workloads import EVERY


@functools.cache
def prepared(name: str) -> tuple[raw.Data, nn.Module]:
    """Every client's data and one model, once per process."""
    torch.set_num_threads(1)
    return raw.data_of(EVERY[name]), raw.model_of(EVERY[name])


def client_app(name: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data, model = prepared(name)
        client = int(context.node_config["partition-id"])
        start = message.content["arrays"].to_torch_state_dict()
        trained = raw.train(model, start, *data[client], EVERY[name], client)
        metrics = MetricRecord({"num-examples": len(data[client][1])})
        return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    return app
