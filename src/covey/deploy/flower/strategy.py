"""Covey's methods as a strategy of Flower: clusters, selection, mixing and correction for foreign ClientApps."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower

from covey.core.round import (
    PATIENCE,
    Method,
    Round,
    State,
    answered_round,
    asked_round,
    each_reply,
    empty_state,
    served,
)
from covey.deploy.flower.foreign import ForeignFleet, Names, metrics_of
from covey.deploy.flower.rows import RowForm
from covey.errors import RunError, SilentRoundError, UserError
from covey.parts.steps.train import Train
from covey.runs.config import resolve
from covey.streams import stream

# Of covey what a foreign client cannot do is left out: it neither judges its training on data that it kept out of it,
# nor is it told a weight decay or a learning rate.
LEFT_OUT = {"covey": {"without": ["serving", "decay", "rate"]}}


class Strategy(flower.Strategy):  # type: ignore[misc]
    """A strategy for `strategy.start(grid, initial_arrays, ...)`, in the place of Flower's FedAvg.

    After a run `clusters` says which node is in which cluster, and `models` holds every cluster's arrays. What Flower
    gives as the run's arrays is the model that serves most nodes.

    Args:
        method: by its name, or one of your own. Its clients train by themselves, so it must train as FedAvg does;
            `covey methods` says what each does.
        settings: of the method, as in a file's [method], such as `per_round=10, k=3`.
        min_available_nodes: to wait for.
        fraction_evaluate: share of the nodes that evaluate the model that serves them after a round.
        seed: of everything that the server draws.
        timeout: seconds for a question of the method's own; those for training are `start`'s.
        names: what the app calls its records and metrics.

    Examples:
        >>> strategy = covey.flower.Strategy("ifca", k=2, per_round=4)
    """

    def __init__(
        self,
        method: str | Method = "covey",
        *,
        min_available_nodes: int = 2,
        fraction_evaluate: float = 1.0,
        seed: int = 0,
        timeout: float = 3600.0,
        names: Names | None = None,
        say: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        self.method = method if isinstance(method, Method) else method_named(method, seed, settings)
        check_method(self.method)
        if not 0 <= fraction_evaluate <= 1:
            raise UserError(f"fraction_evaluate is {fraction_evaluate}; allowed: 0 to 1")
        if min_available_nodes < 1:
            raise UserError(f"min_available_nodes is {min_available_nodes}; allowed: at least 1")
        self.least, self.fraction, self.seed, self.timeout = (
            min_available_nodes,
            fraction_evaluate,
            seed,
            timeout,
        )
        self.names = names or Names()
        self.say = say or logging.getLogger("flwr").info
        self.fleet: ForeignFleet | None = None
        self.state: State | None = None
        self.now: Round | None = None
        self.begun = 0.0
        self.silent = 0  # rounds in a row in which nobody answered

    def summary(self) -> None:
        """Says what the strategy is."""
        self.say(f"\tcovey: the method {self.method.name}, at least {self.least} nodes")

    # ------------------------------------------------------------------------------------------ training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The first half of a round: who trains, and which model each of them is sent."""
        fleet = self.opened(arrays, grid)
        state = self.state or empty_state(fleet)
        self.now = now = asked_round(self.method, state, fleet)
        now.tasks = fleet.best_of(now.tasks)
        config["server-round"] = server_round
        if (prox := getattr(self.method.local, "prox", 0.0)) > 0:
            config["proximal-mu"] = prox  # as Flower's FedProx tells it
        self.begun = time.time()
        return list(fleet.training(now.tasks, config).values())

    def opened(self, arrays: ArrayRecord, grid: Grid) -> ForeignFleet:
        """The fleet, which is made when the first arrays are there."""
        if self.fleet is None:
            self.fleet = ForeignFleet(
                RowForm.of(arrays),
                seed=self.seed,
                least=self.least,
                timeout=self.timeout,
                names=self.names,
                say=self.say,
            )
        self.fleet.grid = grid
        return self.fleet

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The second half: what the replies make of the models."""
        fleet, now = self.fleet, self.now
        assert fleet is not None
        assert now is not None
        now.replies = fleet.trained(now.tasks, replies, self.begun)
        try:
            self.state = answered_round(self.method, now)
        except SilentRoundError as error:
            self.silent += 1
            if self.silent > PATIENCE:
                raise
            self.say(f"\t{error}; the models stay as they are")
            self.state = replace(self.state or empty_state(fleet), round=now.number)
            return None, None
        except KeyError as error:
            raise RunError(
                f"the method {self.method.name} needs {error} of every training, which these clients do not tell: "
                "put it into the MetricRecord, or choose another method"
            ) from error
        self.silent = 0
        told = {reply.id: (reply.size, dict(reply.stats)) for reply in now.replies}
        trained = f"{len(told)} of {len(now.tasks)} trained, {self.in_words()}"
        self.say(f"\tround {server_round}: {trained}{fleet.ledger.why_in_round()}")
        row = self.state.models[self.most_used()]
        return fleet.form.arrays(row), MetricRecord(self.averaged(told))

    # ------------------------------------------------------------------------------------------ evaluation

    def configure_evaluate(
        self,
        server_round: int,
        arrays: ArrayRecord,  # noqa: ARG002
        config: ConfigRecord,
        grid: Grid,  # noqa: ARG002
    ) -> Iterable[Message]:
        """Every node evaluates the model that serves it."""
        fleet, state = self.fleet, self.state
        if fleet is None or state is None or not len(state.models):
            return []
        count = int(np.ceil(self.fraction * len(fleet.here)))
        drawn = stream(self.seed, "evaluate", "round", server_round).permutation(fleet.here)[:count]
        config["server-round"] = server_round
        tasks = fleet.best_of(served(self.method, state, fleet, sorted(drawn.tolist())))
        return [fleet.message(client, "evaluate", task.models[0], config) for client, task in tasks.items()]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:  # noqa: ARG002
        """Means over all nodes, weighted by their samples, and over each cluster's (`cluster-0/...`)."""
        fleet, state = self.fleet, self.state
        if fleet is None or state is None:
            return None
        told = {
            client: (int(metrics.get(self.names.size, 1)), metrics)
            for client, reply in fleet.by_client(replies).items()
            if not reply.has_error() and (metrics := metrics_of(reply))
        }
        if not told:
            return None
        found = self.averaged(told)
        groups = {client: state.groups.get(client, 0) for client in told}
        for group in sorted(set(groups.values())) if len(set(groups.values())) > 1 else ():
            members = {client: one for client, one in told.items() if groups[client] == group}
            found |= {f"cluster-{group}/{name}": value for name, value in self.averaged(members).items()}
        return MetricRecord(found)

    def averaged(self, told: Mapping[int, tuple[int, Mapping[str, Any]]]) -> dict[str, float]:
        """The means of the metrics that everybody told."""
        sizes = np.array([max(1, size) for size, _ in told.values()], dtype=float)
        common = set.intersection(*(set(metrics) for _, metrics in told.values())) if told else set()
        return {
            name: float(np.average([float(metrics[name]) for _, metrics in told.values()], weights=sizes))
            for name in sorted(common - {self.names.size})
            if np.ndim(next(iter(told.values()))[1][name]) == 0
        }

    # ------------------------------------------------------------------------------------------ what came of it

    @property
    def clusters(self) -> dict[int, int]:
        """The cluster of every node, by Flower's number of the node."""
        if self.fleet is None or self.state is None:
            return {}
        return {self.fleet.nodes[client]: group for client, group in sorted(self.state.groups.items())}

    @property
    def models(self) -> list[ArrayRecord]:
        """The arrays of every model."""
        if self.fleet is None or self.state is None:
            return []
        return [self.fleet.form.arrays(row) for row in self.state.models]

    def most_used(self) -> int:
        """The model that serves most nodes; the first one where each has its own or all share one."""
        assert self.state is not None
        groups = list(self.state.groups.values())
        most = max(set(groups), key=lambda group: (groups.count(group), -group)) if groups else 0
        return most if most < len(self.state.models) else 0

    def in_words(self) -> str:
        """How many clusters there are, and of how many nodes each."""
        assert self.state is not None
        groups = list(self.state.groups.values())
        sizes = [str(groups.count(group)) for group in sorted(set(groups))]
        return f"clusters of {', '.join(sizes)} nodes" if len(sizes) > 1 else "one cluster"


def method_named(name: str, seed: int, settings: Mapping[str, Any]) -> Method:
    """A method of covey with these settings, but for what foreign clients cannot do."""
    given = {**LEFT_OUT.get(name, {}), **settings}
    return resolve({"seed": seed, "method": {"name": name, **given}}).method


def check_method(method: Method) -> None:
    """Refuses what a foreign ClientApp cannot do, before anybody is asked."""
    why = ""
    if type(method.local) is not Train:
        why = f"has a training of its own ({method.local.kind})"
    elif method.gather is not each_reply:
        why = "does not wait for all replies of a round"
    elif method.adapt is not None:
        why = "lets clients train before they use a model"
    if why:
        raise UserError(
            f"method is {method.name!r}, which {why}, and a foreign ClientApp trains as it likes; allowed: methods "
            "that train as fedavg does, such as covey, ifca, fesem, cfl, haccs, cfic, cafa, fedadam"
        )
