"""From a configuration to a run over real sites."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.core.privacy_loss import Loss, Told, add_loss, answers_called, plain_losses
from covey.data import load
from covey.data.realign import realigned
from covey.data.schema import Schema, read_schema
from covey.data.types import Dataset, Federation, Samples
from covey.data.validation import evenly_spaced
from covey.deploy.agreement import Agreed, Agreement
from covey.deploy.fleet import SiteFleet
from covey.deploy.outcomes import Turnout
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.status import Status
from covey.deploy.study import SiteStudy, nested_parts
from covey.deploy.transport import Transport
from covey.deploy.wire import ModelSpec, step_to_plain
from covey.errors import UserError
from covey.fleet.fit import check_steps
from covey.parts.measure import POINTS
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.scale import TellScale
from covey.runs.config import Config
from covey.runs.sections import DataSection, model_settings
from covey.settings.choices import own_settings
from covey.training.bench.choose import choose_bench
from covey.training.pretrained import encoder_as_sent, encoder_of
from covey.training.pretrained.features import encoded

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
    before: Schema | None = None,
    study: SiteStudy | None = None,
) -> SiteFleet:
    """The fleet of a deployment; the global test set is all of `own`, else that of the configuration's data set.

    Where that set comes without a scale, sites are asked once for sums of their inputs (`scaling`), and all inputs are
    standardised by these. `before` is what the columns are in an unfinished run.
    """
    data, sites = config["data"], config.sites
    if sites.quorum > least:
        raise UserError(f"sites.quorum is {sites.quorum}, but the run is for {least} sites; see --clients")
    no_rows = sites.schema and data["name"] == DataSection.name
    dataset = own or (None if no_rows else load(data["name"], **own_settings(data, DataSection)))
    tables = dataset if dataset is not None and dataset.schema is not None else None
    if scaling is not None and scaling.privacy.epsilon is not None:
        check_noise(scaling, bool(sites.schema or tables), dataset)
    listed: Callable[[], Mapping[str, str]] = getattr(keys, "names", dict)
    agreement = Agreement(
        transport=transport,
        least=least,
        own=tables,
        epsilon=scaling.privacy.epsilon if scaling is not None else None,
        called=lambda key: listed().get(key, ""),
        say=say,
        status=status or Status(),
        study=study.plain() if study else None,
    )
    agreed = Agreed(schema=before) if before else shared_schema(sites.schema, agreement)
    schema, method = agreed.schema if agreed else None, config.method
    dataset = with_columns(dataset, schema, measures=config["measure"]["global_test"])
    dataset, test = test_data(dataset, data, whole=own is not None, say=say)
    check_steps(method, dataset, config.method_name)
    spec = with_trainer(model_spec(config, dataset), config["engine"]["lanes"], say)
    where = f"{len(test):,} samples of {dataset.name} are" if len(test) else "the server has"
    say(f"{config.method_name}, {spec.name}; {where} {'the' if len(test) else 'no'} global test set")
    return SiteFleet(
        transport,
        spec,
        server_data=Federation(dataset, (), test),
        names=ClientNumbers(keys),
        seed=config.top.seed,
        deadline=config.devices.deadline or DEADLINE,
        least=least,
        lanes=config["engine"]["lanes"],
        sizes="private" not in config.tables,
        guard=config.guard,
        say=say,
        status=status or Status(),
        turnout=Turnout(sites.quorum),
        schema=schema,
        method=method.name,
        lost=dict(agreed.lost) if agreed else {},
        study=study,
        plan=plan_of(config, least),
        scaling=scaling if asks_for_scale(dataset) else None,
    )


def with_columns(dataset: Dataset | None, schema: Schema | None, *, measures: bool) -> Dataset:
    """The server's own data under the columns that were agreed on; no rows where it has none."""
    if dataset is not None:
        return dataset if schema is None else realigned(dataset, schema)
    assert schema is not None
    if measures:
        raise UserError(
            "the server has no test data of its own: give [data] a table of test rows, or set "
            "measure.global_test = false"
        )
    return without_rows(schema)


def test_data(
    dataset: Dataset, data: Mapping[str, Any], *, whole: bool, say: Callable[[str], None]
) -> tuple[Dataset, Samples]:
    """What the server measures on: all of its own data, or a data set's test part; features, if there is an encoder."""
    test = Samples(dataset, np.arange(len(dataset.x)) if whole else np.asarray(dataset.test, dtype=np.int64))
    if count := data.get("test_samples"):
        test = evenly_spaced(test, count)
    if data.get("encoder") is None:
        return dataset, test
    made = encoded(Federation(dataset, (), test), data["encoder"], say)
    return made.dataset, made.test


def model_spec(config: Config, dataset: Dataset) -> ModelSpec:
    """What sites are told of the model."""
    model = config["model"]
    return ModelSpec(
        name=model["name"],
        settings=model_settings(model),
        shape=tuple(dataset.x.shape[1:]),
        outputs=len(dataset.classes) or 1,
        objective=config.top.objective,
        buffers=model["buffers"],
        encoder=told_of_encoder(dataset),
    )


def told_of_encoder(dataset: Dataset) -> dict[str, Any] | None:
    """What sites are told of the encoder: its network, and the digests of it and of its numbers."""
    if (origin := dataset.encoded_from) is None:
        return None
    numbers = encoder_of(origin.setting).frozen.digest
    return {"setting": encoder_as_sent(origin.setting), "digest": origin.digest, "frozen": numbers}


def asks_for_scale(dataset: Dataset) -> bool:
    """Whether sites are asked how to standardise inputs; tokens and features of an encoder are taken as they are."""
    return dataset.scale is None and dataset.encoded_from is None and dataset.x.dtype != torch.int64


def check_noise(scaling: TellScale, tables: bool, dataset: Dataset | None) -> None:
    """Refuses noise that would not be added, and a range that would not be used."""
    epsilon = scaling.privacy.epsilon
    if tables:
        if scaling.low is not None:
            raise UserError(
                "--scale-range is one range for all inputs; the columns of a table have each their own: low and high "
                "in the file of [sites] schema"
            )
    elif dataset is not None and dataset.scale is not None:
        raise UserError(
            f"--scale-epsilon is {epsilon:g}, but nothing would get that noise: {dataset.name} has a scale of its "
            "own, so the sites are not asked; leave it out"
        )


def shared_schema(asked: str, agreement: Agreement) -> Agreed | None:
    """What the columns of everybody's tables are: of a file, of what the sites tell, or nothing where they are none."""
    if asked not in ("", "sites"):
        schema = read_schema(Path(asked))
        if agreement.epsilon is None:
            return Agreed(schema=schema)
        return agreement.with_noise(schema, f"{asked} says")
    return agreement.of_sites() if asked or agreement.own is not None else None


def without_rows(schema: Schema) -> Dataset:
    """A data set of a server that has none: it says what samples look like."""
    targets = torch.zeros(0, dtype=torch.int64) if schema.classes else torch.zeros(0, 1)
    return Dataset(
        name="the sites' tables",
        x=torch.zeros(0, len(schema.inputs)),
        y=targets,
        train=np.arange(0),
        test=np.arange(0),
        classes=schema.classes,
        scale=schema.scale,
        features=schema.inputs,
        schema=schema,
    )


def plan_of(config: Config, sites: int) -> dict[str, Any]:
    """What the run is going to ask of a site, by which the site sees whether its budget lasts.

    `beside` its updates: what each step among the method's parts tells once, and the evaluations.
    """
    beside: Told = {}
    for loss in map(loss_of_asking, nested_parts(config.method)):
        if loss is not None:
            add_loss(beside, loss)
    if config.private is not None and (epsilon := config.private.evaluations) is not None:
        every, rounds = config["measure"]["every"], config.top.rounds
        every = max(1, rounds // POINTS) if every == "auto" else every
        add_loss(
            beside,
            Loss(what="evaluations", mechanism="stated", noise=epsilon),
            times=math.ceil(rounds / every),
        )
    step = step_to_plain(config.method.local)
    return {"step": step, "rounds": rounds_of_a_site(config, sites), "beside": plain_losses(beside)}


def loss_of_asking(part: Any) -> Loss | None:
    """What one answer to a step costs, if it is known before it is asked."""
    if getattr(part, "counted", False) is True and hasattr(part, "loss"):
        found: Loss = part.loss
        return found
    privacy = getattr(part, "privacy", None)
    if isinstance(privacy, Privacy) and privacy.counted and privacy.epsilon is not None:
        return Loss(what=answers_called(part.kind), mechanism="stated", noise=privacy.epsilon)
    return None


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
