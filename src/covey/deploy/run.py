"""From a configuration to a run over real sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from covey.bench.choose import choose_bench
from covey.config import Config, method_of
from covey.data import load
from covey.data.types import Dataset, Federation, Samples
from covey.data.validation import evenly_spaced
from covey.deploy.fleet import SiteFleet
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.status import Status
from covey.deploy.transport import Transport
from covey.deploy.turnout import Turnout
from covey.deploy.wire import ModelSpec, step_to_plain
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.fit import check_steps
from covey.fleet.guard import Guard
from covey.sections import DataSection, ModelSection, own_settings
from covey.steps.scale import TellScale

DEADLINE = 60.0  # seconds that the server waits for a reply where devices.deadline says nothing else


def site_fleet(
    config: Config,
    transport: Transport,
    *,
    keys: Mapping[str, int],
    least: int,
    own: Dataset | None = None,
    say: Callable[[str], None] = lambda _: None,
    status: Status | None = None,
    scaling: TellScale | None = None,
) -> SiteFleet:
    """The fleet of a deployment; the global test set is all of `own`, else that of the configuration's data set.

    Where that set comes without a scale, sites are asked once for sums of their inputs (`scaling`), and all inputs are
    standardised by these.
    """
    data, quorum = config["data"], config.tables.get("sites", {}).get("quorum", 0)
    if quorum > least:
        raise UserError(f"sites.quorum is {quorum}, but the run is for {least} sites; see --clients")
    dataset = own or load(data["name"], **own_settings(data, DataSection))
    method = method_of(config)
    check_steps(method, dataset, config.method_name)
    model = config["model"]
    spec = ModelSpec(
        name=model["name"],
        settings=own_settings(model, ModelSection),
        shape=tuple(dataset.x.shape[1:]),
        outputs=len(dataset.classes) or 1,
        objective=config.top.objective,
        buffers=model["buffers"],
    )
    spec = with_trainer(spec, config["engine"]["lanes"], say)
    test = Samples(dataset, np.arange(len(dataset.x)) if own else np.asarray(dataset.test, dtype=np.int64))
    if count := data.get("test_samples"):
        test = evenly_spaced(test, count)
    say(
        f"{config.method_name}, {model['name']}; {len(test):,} samples of {dataset.name} are the global test set"
    )
    return SiteFleet(
        transport,
        spec,
        server_data=Federation(dataset, (), test),
        names=ClientNumbers(keys),
        seed=config.top.seed,
        deadline=Devices(**config["devices"]).deadline or DEADLINE,
        least=least,
        lanes=config["engine"]["lanes"],
        sizes="private" not in config.tables,
        guard=Guard(**config["guard"]),
        say=say,
        status=status,
        turnout=Turnout(quorum),
        plan={"step": step_to_plain(method.local), "rounds": rounds_of_a_site(config, least)},
        scaling=scaling if dataset.scale is None and dataset.x.dtype != torch.int64 else None,
    )


def rounds_of_a_site(config: Config, sites: int) -> int:
    """In how many rounds of the run a site trains, on average."""
    per_round = config["method"].get("per_round")
    share = min(1.0, per_round / sites) if isinstance(per_round, int) else 1.0
    return math.ceil(config.top.rounds * share)


def with_trainer(spec: ModelSpec, lanes: bool, say: Callable[[str], None] | None = None) -> ModelSpec:
    """Which trainer all sites use: decided once, because trainers differ in rounding."""
    wanted = None if lanes else False
    _, info = choose_bench(
        spec.build(), spec.goal, spec.shape, buffers=spec.buffers, lanes=wanted, device="cpu", say=say
    )
    return replace(spec, lanes=info["trainer"] == "lanes")
