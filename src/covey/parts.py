"""The parts of a method by the question that they answer, for methods that are composed in a file.

A part without settings is a function of the round. Any other entry makes a part from its settings: a frozen dataclass,
or a function with keyword arguments. Arguments in `GIVEN` are filled in by the program.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from covey.errors import UserError
from covey.settings import REQUIRED, Setting, checked, settings_of, unknown

# train: the settings of local training. step: what clients are asked to do. send: which models they would get.
# exchange: the mix over a topology.
GIVEN = ("train", "step", "send", "exchange")

QUESTIONS = {
    "group": "who is alike",
    "bank": "which models there are",
    "select": "who works",
    "send": "which models go out, to be trained or to be used",
    "local": "what a client does",
    "mix": "how the replies become the new models: a matrix",
    "combine": "the same where no matrix can say it",
    "update": "what the server adds",
    "after": "what is remembered of a round; what other parts need is added by itself",
}

PARTS: dict[str, dict[str, str]] = {
    "group": {
        "label-feature": "covey.group.label_feature:by_label",
        "label-mix": "covey.methods.cafa:by_label_mix",
        "label-clusters": "covey.group.labels:LabelClusters",
        "summary": "covey.methods.haccs:by_summary",
        "embedding": "covey.methods.embedding:by_embedding",
        "style": "covey.methods.ladd:by_style",
    },
    "bank": {
        "one": "covey.core:one_model",
        "per-group": "covey.rows:one_per_group",
        "per-client": "covey.rows:one_per_client",
        "random-starts": "covey.methods.ifca:RandomStarts",
    },
    "select": {
        "uniform": "covey.select.plain:Uniform",
        "everybody": "covey.select.plain:Everybody",
        "server": "covey.select.plain:the_server",
        "every-cluster": "covey.select.clusters:EveryCluster",
        "each-group": "covey.select.groups:EachGroup",
        "largest-group": "covey.select.largest:LargestGroup",
        "haccs": "covey.select.haccs:ByCluster",
        "fair": "covey.select.fair:FairSchedule",
        "tifl": "covey.select.tifl:ByTier",
        "oort": "covey.select.oort:ByUtility",
        "oort-simple": "covey.select.oort:ByPenalisedLoss",
        "power-of-choice": "covey.select.power_of_choice:PowerOfChoice",
        "urns": "covey.select.clustered_sampling:FromUrns",
        "grouped": "covey.methods.topologies:Grouped",
        "representatives": "covey.methods.topologies:Leaders",
    },
    "send": {
        "everybody": "covey.core:to_everybody",
        "group": "covey.rows:to_group",
        "owner": "covey.rows:to_owner",
        "all": "covey.methods.ifca:AllModels",
        "last-choice": "covey.methods.ifca:LastChoice",
        "known-group": "covey.methods.cfl:to_known_group",
        "with-memory": "covey.methods.feddyn:WithMemory",
    },
    "local": {
        "train": "covey.steps.train:as_set",
        "scored": "covey.steps.scored:ScoredTrain",
        "utility": "covey.steps.utility:TrainWithUtility",
        "dyn": "covey.steps.dyn:DynTrain",
    },
    "mix": {
        "average": "covey.mix.average:Average",
        "group-average": "covey.mix.shared:GroupAverage",
        "own": "covey.mix.average:keep_own",
        "likeness": "covey.methods.cafa:by_likeness",
        "krum": "covey.mix.robust:Krum",
        "discrepancy": "covey.methods.feddisco:DiscoAverage",
        "fairness": "covey.methods.fedfa:FairAverage",
        "common-descent": "covey.mix.mgda:CommonDescent",
        "split": "covey.methods.cfl:SplitAndAverage",
        "decentralized": "covey.mix.exchange:everybody_exchanges",
        "hierarchical": "covey.mix.exchange:clusters_exchange",
        "semi-decentralized": "covey.mix.exchange:representatives_exchange",
    },
    "combine": {
        "trimmed-mean": "covey.mix.robust:TrimmedMean",
        "median": "covey.mix.robust:Median",
    },
    "update": {
        "cluster-correction": "covey.update.clusters:ClusterCorrection",
        "adaptive-correction": "covey.update.clusters:AdaptiveCorrection",
        "momentum": "covey.update.momentum:ServerMomentum",
    },
    "after": {
        "losses": "covey.select.feedback:remember_losses",
        "utilities": "covey.select.oort:remember_utilities",
        "sketches": "covey.select.clustered_sampling:remember_sketches",
        "moves": "covey.methods.feddyn:remember_moves",
        "choices": "covey.methods.ifca:remember_choices",
        "spread": "covey.mix.exchange:note_spread",
    },
}

Table = dict[str, Any]


def find_part(kind: str, name: object, where: str = "") -> Callable[..., Any]:
    """The part, or what makes it."""
    if not isinstance(name, str) or name not in PARTS[kind]:
        raise UserError(unknown(where or f"{kind} {name!r}", str(name), PARTS[kind]))
    module, _, attribute = PARTS[kind][name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def is_part(found: Callable[..., Any]) -> bool:
    """Whether this is a part itself, a function of the round, and not what makes one."""
    return not inspect.isclass(found) and next(iter(inspect.signature(found).parameters), "") == "now"


def part_settings(kind: str, name: object, where: str = "") -> dict[str, Setting]:
    """The settings that a user can give the part."""
    found = find_part(kind, name, where)
    return {} if is_part(found) else settings_of(found, given=GIVEN)


def make_part(kind: str, table: Mapping[str, Any], given: Mapping[str, object]) -> Any:
    """The part that a complete table describes."""
    found = find_part(kind, table["name"])
    if is_part(found):
        return found
    wanted = inspect.signature(found).parameters
    settings = {name: value for name, value in table.items() if name != "name"}
    filled = {name: value for name, value in given.items() if name in wanted}
    try:
        return found(**filled, **settings)
    except UserError as mistake:
        raise UserError(f"{kind} {table['name']}: {mistake}") from mistake


@dataclass(frozen=True)
class PartOf:
    """Marks a setting that names a part: text, or a table with its name and settings; `auto` is also allowed."""

    kind: str
    auto: bool = False

    def read(self, where: str, value: Any) -> Table | str | None:
        """The part as a table with every setting written out."""
        if value is None or value == "none":
            return None
        if self.auto and value == "auto":
            return "auto"
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping) or "name" not in table:
            raise UserError(f"{where} is {value!r}; allowed: the name of a part, or a table with its name")
        settings = part_settings(self.kind, table["name"], f"{where} = {table['name']!r}")
        own = checked(where, settings, {key: part for key, part in table.items() if key != "name"})
        for name, setting in settings.items():
            if name not in own and setting.default is REQUIRED:
                raise UserError(f"{where}.{name} is missing; allowed: {setting.allowed}")
        return {"name": table["name"], **{name: own.get(name, s.default) for name, s in settings.items()}}

    def __str__(self) -> str:
        return f"{'auto, or ' if self.auto else ''}a part (see covey parts {self.kind})"


@dataclass(frozen=True)
class PartsOf:
    """Marks a setting that is a list of parts."""

    kind: str

    def read(self, where: str, value: Any) -> list[Table]:
        entries = [value] if isinstance(value, str | Mapping) else value
        if not isinstance(entries, list | tuple):
            raise UserError(f"{where} is {value!r}; allowed: a list of parts")
        read = [PartOf(self.kind).read(f"{where}[{at}]", entry) for at, entry in enumerate(entries)]
        return [table for table in read if isinstance(table, dict)]

    def __str__(self) -> str:
        return f"a list of parts (see covey parts {self.kind})"
