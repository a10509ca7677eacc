"""A run as one TOML file: read, complete with every default, check, and build what it describes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from covey.core import Fleet, Method
from covey.core.needs import MODEL_PER_CLIENT, gives_of, own_model_of
from covey.data import Federation, federate, load
from covey.data.usual import NUMBERS_CLIP, Usual, declared, usual_for
from covey.data.validation import evenly_spaced, in_deviations, on_validation, resplit
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.fit import check_fit, check_steps
from covey.fleet.guard import Guard
from covey.fleet.local import LocalFleet
from covey.folder.place import tables_in
from covey.methods.published import as_published
from covey.parts.measure import Measuring
from covey.parts.mix.products import with_products
from covey.parts.mix.robust import Robust
from covey.parts.steps import Train
from covey.parts.steps.compress import Compression, with_compression
from covey.privacy.apply import made_private
from covey.privacy.settings import Private
from covey.runs.sections import (
    USUAL_MODEL,
    DataSection,
    ModelSection,
    Sites,
    Top,
    model_settings,
    settings_in,
)
from covey.runs.stopping import Stopping
from covey.settings.catalogue import DATASETS, METHODS, MODELS, PARTITIONS, RULES, SHIFTS
from covey.settings.choices import complete, own_settings, without_unset
from covey.settings.own_code import bare_name
from covey.settings.passwords import check_no_password
from covey.settings.registry import Registry
from covey.settings.signatures import Setting, checked, settings_of, unknown
from covey.settings.toml import check_tables, named_tables, plain_tables, shown, with_full_names
from covey.training.models import build
from covey.training.objective import objective_named
from covey.training.pretrained.features import encoded
from covey.training.trees.model import Grown

# The tables whose settings are one dataclass: those that only a run which asks for them has, and those of every run.
IF_ASKED: dict[str, type] = {"compress": Compression, "stop": Stopping, "private": Private, "sites": Sites}
ALWAYS: dict[str, type] = {
    "train": Train,
    "devices": Devices,
    "engine": Engine,
    "guard": Guard,
    "measure": Measuring,
}
SECTIONS = ("data", "partition", "shift", "robust", "model", "method", "methods", *IF_ASKED, *ALWAYS)

NAMED = 10  # clients that a sentence names at most


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run, complete and checked; `covey.resolve` makes it.

    What the tables describe (`config.method`, `config.train`, `config.devices`, ...) is made once, when it is asked
    for.

    Args:
        tables: what `config.toml` holds, with every default written out.

    Raises:
        UserError: when something is asked of it that its settings contradict.

    Examples:
        >>> config = covey.resolve({"method": "fedavg", "rounds": 2})
        >>> config.top.rounds, config.train.lr
        (2, 0.05)
    """

    tables: Mapping[str, Any]

    def __getitem__(self, table: str) -> dict[str, Any]:
        return dict(self.tables[table])

    @cached_property
    def top(self) -> Top:
        return Top(**{f.name: self.tables[f.name] for f in fields(Top) if f.name in self.tables})

    @cached_property
    def train(self) -> Train:
        return Train(**self["train"])

    @cached_property
    def devices(self) -> Devices:
        return Devices(**self["devices"])

    @cached_property
    def engine(self) -> Engine:
        return Engine(**self["engine"])

    @cached_property
    def guard(self) -> Guard:
        return Guard(**self["guard"])

    @cached_property
    def measure(self) -> Measuring:
        return Measuring(**self["measure"])

    @cached_property
    def compress(self) -> Compression | None:
        return Compression(**self["compress"]) if "compress" in self.tables else None

    @cached_property
    def stop(self) -> Stopping | None:
        return Stopping(**self["stop"]) if "stop" in self.tables else None

    @cached_property
    def private(self) -> Private | None:
        return Private(**self["private"]) if "private" in self.tables else None

    @cached_property
    def sites(self) -> Sites:
        return Sites(**self.tables.get("sites", {}))

    @cached_property
    def method(self) -> Method:
        """The method, with [robust] inside its mix and [private] where it gathers."""
        if self.private is None:
            return self.method_in_the_open
        if self.compress is not None and self.compress.name:
            raise UserError(
                "compress.name shortens updates, which private noise and sums need whole; leave one of them out"
            )
        return made_private(
            self.method_in_the_open, self.private, clients=self["data"]["clients"], rounds=self.top.rounds
        )

    @cached_property
    def method_in_the_open(self) -> Method:
        """The method without [private], with the combine of [robust] in place of its weighted means."""
        table, robust = self["method"], self.tables.get("robust")
        method = METHODS.find(table["name"])(self.train, **own_settings(table))
        if self.compress is not None:
            method = with_compression(method, self.compress)
        by_products = (self["model"].get("adapter") or {}).get("travels") == "product"
        if by_products and not robust:
            return with_products(method)
        if not robust:
            return method
        if by_products:
            raise UserError(
                f'model.adapter.travels is "product", and robust.name is {robust["name"]!r}: both say how adapters are '
                "combined; leave one of them out"
            )
        if method.mix is None:
            raise UserError(
                f"robust.name is {robust['name']!r}, but method {method.name} combines in a way of its own; "
                "leave one of them out"
            )
        return replace(
            method, mix=Robust(mix=method.mix, rule=RULES.find(robust["name"])(**own_settings(robust)))
        )

    @property
    def method_name(self) -> str:
        """What the method is called, wherever it is from."""
        return bare_name(str(self.tables["method"]["name"]))

    def toml(self) -> str:
        """The file that gives exactly this run."""
        return tomli_w.dumps(_as_toml(self.tables))


def resolve(tables: Mapping[str, Any]) -> Config:
    """The configuration of a run with every default written out.

    Args:
        tables: as a TOML file has them; `partition="iid"` is short for `partition={"name": "iid"}`.

    Returns:
        The complete configuration.

    Raises:
        UserError: for anything wrong, in one sentence with the field, the value and what is allowed.

    Examples:
        >>> config = covey.resolve({"data": {"name": "digits", "clients": 5}, "method": {"per_round": 5}})
        >>> config["partition"]["name"]
        'dir-class'
    """
    tables, per_method = _known_tables(tables)
    plain = {key: value for key, value in tables.items() if key not in SECTIONS}
    result = without_unset(complete("", settings_of(Top), plain), "tracker")
    _check_top(Top(**result))
    data = _complete_choice("data", tables.get("data", {}), DATASETS, settings_of(DataSection))
    usual = usual_of(data, tables)
    if "clients" not in tables.get("data", {}):
        data["clients"] = usual.clients or data["clients"]
    if "objective" not in tables:
        result["objective"] = usual.objective or result["objective"]
    if usual.clip is not None and result["objective"] == "regression":
        tables = {**tables, "train": {"clip": usual.clip, **tables.get("train", {})}}
    result["data"] = without_unset(data, "validation", "test_samples", "encoder")
    partition = {"name": usual.partition or "dir-class", **tables.get("partition", {})}
    result["partition"] = _complete_choice("partition", partition, PARTITIONS)
    if "shift" in tables:
        result["shift"] = _complete_choice("shift", tables["shift"], SHIFTS)
    for section, maker in IF_ASKED.items():
        if section in tables:
            result[section] = _complete_section(section, maker, tables[section])
    if "robust" in tables:
        result["robust"] = _complete_choice("robust", tables["robust"], RULES)
    result["method"] = _resolve_method(tables, per_method, data["clients"])
    features = data.get("encoder") is not None
    if features and tables.get("devices", {}).get("drifts"):
        raise UserError(
            "devices.drifts changes samples during the run, which data.encoder has encoded before; leave one out"
        )
    model = _model_table(tables.get("model", {}), result["method"], "encoder" if features else data["name"])
    whole = _complete_choice("model", model, MODELS, settings_of(ModelSection))
    result["model"] = without_unset(whole, "train", "weights", "adapter")
    wanted = rounds_wanted(result["method"])
    if wanted is not None and "rounds" not in tables:
        result["rounds"] = wanted
    guard = tables.get("guard", {})
    given = {
        **tables,
        "train": {**tables.get("train", {}), **_own_train(result["method"]["name"], per_method)},
        "guard": without_norm_guard(guard) if "private" in result else guard,
    }
    for section, maker in ALWAYS.items():
        result[section] = _complete_section(section, maker, given.get(section, {}))
    config = Config(tables=result)
    for section in (*IF_ASKED, *ALWAYS):
        getattr(config, section)  # each checks what its settings must be together
    _check_target(config)
    _check_measured(config)
    config.method  # noqa: B018  (which checks how its parts fit together)
    return config


def _known_tables(tables: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The tables with full names, each of them known, and those of single methods."""
    check_tables(tables)
    tables = named_tables(plain_tables(tables))
    check_no_password("", tables)
    per_method = _method_tables(with_full_names(tables.get("methods", {}), Path()))
    tables = with_full_names({key: value for key, value in tables.items() if key != "methods"}, Path())
    known = (*(f.name for f in fields(Top)), *SECTIONS)
    for key, value in tables.items():
        if key not in known:
            raise UserError(elsewhere(key, tables) or unknown(key, key, known))
        if key in SECTIONS and not isinstance(value, dict):
            raise UserError(f"{key} is {shown(value)}; it must be a table, [{key}]")
    return tables, per_method


def config_in(folder: Path) -> Config:
    """The configuration of a run folder."""
    return resolve(tables_in(folder))


def without_norm_guard(guard: Mapping[str, Any]) -> dict[str, Any]:
    """The guard of a private run: whether an update counts must not depend on the others', or noise hides nobody."""
    if guard.get("norm", 0):
        raise UserError(
            f"guard.norm is {shown(guard['norm'])}, which shortens updates by the others' lengths: no noise "
            "covers that; leave it out, as [private] clips every update"
        )
    return {**guard, "norm": 0}


def usual_of(data: Mapping[str, Any], tables: Mapping[str, Any]) -> Usual:
    """What a data set says of its clients and labels where the file says nothing: a client column knows its clients.

    Built-in loaders declare it, and load only to see who has `partition.minimum` samples. Data of your own say it
    themselves; where they cannot be loaded, as on the server of real sites, the code that needs them says why.
    """
    declares = declared(DATASETS.find(data["name"])).usual
    told = declares(**own_settings(data, DataSection)) if callable(declares) else declares
    usual = told or Usual()
    partition = tables.get("partition", {})
    name, minimum = partition.get("name", usual.partition), partition.get("minimum", 1)
    if "clients" in tables.get("data", {}) and "name" in partition:
        return usual
    if declares is None and data["name"] in DATASETS.builtin:
        return usual
    if declares is not None and not (name == "natural" and isinstance(minimum, int) and minimum > 1):
        return usual
    try:
        dataset = load(data["name"], **own_settings(data, DataSection))
    except Exception:
        return usual
    found = replace(usual_for(dataset, name, minimum), objective=usual.objective, clip=usual.clip)
    if dataset.schema is not None and not dataset.classes:
        return replace(found, objective=usual.objective or "regression", clip=NUMBERS_CLIP)
    return found


def elsewhere(key: str, tables: Mapping[str, Any]) -> str:
    """The sentence for a setting that stands outside its table; nothing where no table has it."""
    makers: dict[str, Any] = {
        "train": Train,
        "data": DataSection,
        "devices": Devices,
        "engine": Engine,
        "measure": Measuring,
        "model": ModelSection,
        "method": _named(tables, "method", "fedavg", METHODS),
        "partition": _named(tables, "partition", "dir-class", PARTITIONS),
    }
    homes = [table for table, maker in makers.items() if maker and key in settings_in(table, maker)]
    return (
        f"{key} is not known; did you mean {' or '.join(f'{home}.{key}' for home in homes)}?" if homes else ""
    )


def _named(tables: Mapping[str, Any], section: str, usual: str, registry: Mapping[str, Any]) -> Any:
    table = tables.get(section, {})
    name = table.get("name", usual) if isinstance(table, dict) else usual
    return registry.get(name) if isinstance(name, str) else None


def _resolve_method(tables: Mapping[str, Any], per_method: Mapping[str, Any], clients: int) -> dict[str, Any]:
    method = {"name": "fedavg", **tables.get("method", {})}
    if not isinstance(method["name"], str):
        raise UserError(f"method.name is {shown(method['name'])}; allowed: text")
    own = {key: value for key, value in per_method.get(method["name"], {}).items() if key != "train"}
    asked = as_published(method["name"], {**method, **own})
    whole = _complete_choice("method", asked, METHODS)
    _fit_to_fleet("method", whole, asked, clients)
    if isinstance(whole.get("select"), dict):
        _fit_to_fleet("method.select", whole["select"], asked.get("select", {}), clients)
    return whole


def rounds_wanted(method: Mapping[str, Any]) -> int | None:
    """As many as a method that grows a model of its own takes to its end; None where any number will do."""
    own = own_model_of(METHODS.find(method["name"]))
    return None if own is None else own.rounds(method)


def too_few_rounds(config: Config) -> str | None:
    """One sentence about a run that ends before its method has grown its model; None of any other."""
    wanted, rounds = rounds_wanted(config["method"]) or 0, config.top.rounds
    if rounds >= wanted:
        return None
    return f"rounds is {rounds}, but {config['method']['name']} grows all its trees in {wanted}: leave rounds out"


def _model_table(given: Mapping[str, Any], method: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """The table [model]: as it was given, the usual one, or that of a method which grows a model of its own."""
    usual = given.get("name", "usual") == "usual"
    own = own_model_of(METHODS.find(method["name"]))
    if own is None:
        named = {**given, "name": USUAL_MODEL.get(dataset, "mlp")} if usual else dict(given)
        if isinstance(named["name"], str) and isinstance(MODELS.get(named["name"]), Grown):
            raise UserError(
                f"model.name is {named['name']!r}, which method {bare_name(method['name'])} cannot train; trees are "
                "grown by boosting, boosting-personal and bagging"
            )
        return named
    wanted = own.model(method)
    for key, value in given.items():
        if not (key == "name" and usual) and key != "buffers" and value != wanted.get(key):
            raise UserError(
                f"model.{key} is {shown(value)}, but method {method['name']} grows a model of its own; leave [model] "
                f"out{f', or set method.{key}' if key in method and key != 'name' else ''}"
            )
    return {**given, **wanted}


def _fit_to_fleet(where: str, whole: dict[str, Any], asked: Any, clients: int) -> None:
    """No more clients per round than there are; the default is meant for larger fleets."""
    if not isinstance(whole.get("per_round"), int) or whole["per_round"] <= clients:
        return
    if isinstance(asked, Mapping) and "per_round" in asked:
        raise UserError(
            f"{where}.per_round is {whole['per_round']}, but data.clients is {clients}; it must be at most that"
        )
    whole["per_round"] = clients


def _method_tables(per_method: Any) -> dict[str, dict[str, Any]]:
    """The tables [methods.NAME], each checked, whether its method runs now or not."""
    if not isinstance(per_method, dict):
        raise UserError(f"methods is {shown(per_method)}; it must hold tables, [methods.NAME]")
    for name, table in per_method.items():
        maker = METHODS.find(name, f"methods.{name}")
        if not isinstance(table, dict) or not isinstance(table.get("train", {}), dict):
            raise UserError(f"methods.{name} is {shown(table)}; it must be a table, and its train, too")
        own = as_published(name, {key: value for key, value in table.items() if key != "train"})
        checked(f"methods.{name}", settings_in("method", maker), own)
        checked(f"methods.{name}.train", settings_of(Train), table.get("train", {}))
    return per_method


def _own_train(method: str, per_method: Mapping[str, Any]) -> dict[str, Any]:
    return dict(per_method.get(method, {}).get("train", {}))


def _check_top(top: Top) -> None:
    main = objective_named(top.objective, f"objective = {top.objective!r}").main
    if top.target is not None and not top.target_metric and main == "accuracy" and not 0 <= top.target <= 1:
        raise UserError(
            f"target is {top.target:g}; allowed: from 0 to 1, as accuracy is a share (0.9 is 90 %)"
        )


def _check_target(config: Config) -> None:
    """A target is about something that is measured and whose direction is known."""
    top, name = config.top, config.top.target_metric
    told = {m.name: m for m in config.measure.told}
    scores = {objective_named(top.objective).main, "loss"}
    if name and name not in {*told, *scores}:
        raise UserError(
            f"target_metric is {name!r}, which is not measured; allowed: {', '.join([*scores, *told])}, or add it to "
            "measure.metrics"
        )
    if name in told and told[name].higher_is_better is None:
        raise UserError(
            f"target_metric is {name!r}, which has no direction: nothing says whether higher is better"
        )


def _check_measured(config: Config) -> None:
    """Checks that what waits for a number waits for one that is measured."""
    top, measure = config.top, config.measure
    if top.target is not None and not (
        measure.global_test if top.target_on == "global-test" else measure.local_test
    ):
        raise UserError(f'target_on is "{top.target_on}", which is not measured; see [measure]')
    if config.stop is not None:
        config.stop.check(measure.overall(objective_named(top.objective)))
    told_with_noise = config.private is not None and config.private.evaluations is not None
    if told_with_noise and not (measure.local_test or measure.fine_tune):
        raise UserError("private.evaluations is given, which needs measure.local_test or measure.fine_tune")


def _complete_choice(
    where: str,
    values: Mapping[str, Any],
    registry: Registry[Any],
    common: Mapping[str, Setting] | None = None,
) -> dict[str, Any]:
    """A table that names something: its name, the settings common to all, and those of the thing itself."""
    common = dict(common or {})
    name = values.get("name", common["name"].default if "name" in common else None)
    if name is None:
        raise UserError(f"{where}.name is missing; allowed: {', '.join((*registry, 'your own'))}")
    if not isinstance(name, str):
        raise UserError(f"{where}.name is {shown(name)}; allowed: text")
    found = registry.find(name, f"{where}.name = {name!r}")
    own = {} if not callable(found) or isinstance(found, nn.Module) else settings_in(where, found)
    settings = {"name": Setting(name="name", type=str, default=name), **common, **own}
    return complete(where, settings, {**values, "name": registry.called(name)})


def _complete_section(section: str, maker: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose settings are those of one dataclass."""
    settings = settings_of(maker)
    if "name" in settings and "name" not in values:
        raise UserError(f"{section}.name is missing; allowed: {settings['name'].allowed}")
    return complete(section, settings, values)


def _as_toml(value: Any) -> Any:
    """TOML has no null: a setting that is none is written as "none", which every such setting takes."""
    if isinstance(value, Mapping):
        return {key: _as_toml(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_toml(part) for part in value]
    return "none" if value is None else value


# ---------------------------------------------------------------------------------------------- building


def keeps_own_models(config: Config) -> bool:
    """Whether the server holds a model for every client."""
    return MODEL_PER_CLIENT in gives_of(config.method_in_the_open.bank)


def bytes_needed(fleet: Fleet, config: Config) -> int:
    """The bound on a run's memory, beside Python and PyTorch."""
    return fleet.memory_bound(own_models=keeps_own_models(config), batch=config.train.batch)


def federation_of(config: Config, say: Callable[[str], None] | None = None) -> Federation:
    """The data that the configuration describes, partitioned among the clients."""
    data, shift = config["data"], config.tables.get("shift", {})
    given: object = PARTITIONS.find(config["partition"]["name"])
    if isinstance(given, Federation):
        federation = given
    else:
        dataset = load(data["name"], **own_settings(data, DataSection))
        dataset = in_deviations(dataset) if config.top.objective == "regression" else dataset
        federation = federate(
            resplit(dataset, config.top.seed) if data["resplit"] else dataset,
            partition=config["partition"]["name"],
            clients=data["clients"],
            seed=config.top.seed,
            shift=shift.get("name"),
            test_fraction=data["test_fraction"],
            **own_settings(config["partition"]),
            **own_settings(shift),
        )
    if held_out := data.get("validation"):
        federation = on_validation(federation, held_out, config.top.seed)
    if count := data.get("test_samples"):
        federation = replace(federation, test=evenly_spaced(federation.test, count))
    return federation if data.get("encoder") is None else encoded(federation, data["encoder"], say)


def fleet_of(
    config: Config, say: Callable[[str], None] | None = None, network: nn.Module | None = None
) -> LocalFleet:
    """The fleet that the configuration describes: data, model (or `network`, where that is there), devices, engine."""
    federation = federation_of(config, say)
    if say is not None and federation.left_out:
        names = ", ".join(federation.left_out[:NAMED])
        more = f" and {len(federation.left_out) - NAMED} more" if len(federation.left_out) > NAMED else ""
        minimum = config["partition"]["minimum"]
        say(f"partition.minimum is {minimum}: left out, with fewer training samples: {names}{more}")
    dataset, model = federation.dataset, config["model"]
    if say is not None:
        for note in dataset.notes:
            say(note)
    network = network or build(
        model["name"],
        input_shape=tuple(dataset.x.shape[1:]),
        outputs=len(dataset.classes) or 1,
        seed=config.top.seed,
        **model_settings(model),
    )
    objective = objective_named(config.top.objective)
    check_fit(network, federation, objective)
    check_steps(config.method, dataset, config.method_name)
    return LocalFleet(
        federation,
        network,
        objective=objective,
        devices=config.devices,
        seed=config.top.seed,
        engine=config.engine,
        buffers=model["buffers"],
        guard=config.guard,
        say=say,
        source=partial(federation_of, config),
    )
