"""No setting of a file is passed over in silence: it counts, or one sentence says what it needs."""

import contextlib
import types
import typing
from typing import Any

import pytest

from covey.errors import UserError
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.runs.config import ALWAYS, IF_ASKED, SECTIONS, resolve
from covey.runs.sections import DataSection, ModelSection, Top, settings_in
from covey.runs.stopping import Stopping
from covey.settings.catalogue import METHODS
from covey.settings.signatures import settings_of
from covey.training.objective import Regression

QUIET = {"private": {"secure": True, "clip": 1.0}}
LOCAL = {"private": {"level": "local", "epsilon": 8.0, "clip": 1.0}}
FIXED = {"private": {"epsilon": 8.0, "clip": 1.0}}
UNMEASURED = {"measure": {"global_test": False, "local_test": False}}

# For each setting that counts only beside another: a file in which it would do nothing, its value, what is said.
NEEDS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "sites.purpose": ({}, "to learn", "sites.purpose and sites.contact go together"),
    "sites.contact": ({}, "a@b.org", "sites.purpose and sites.contact go together"),
    "target_metric": ({}, "loss", 'target_metric is "loss", which needs target'),
    "target_on": ({}, "local-test", 'target_on is "local-test", which needs target'),
    "stop_at_target": ({}, True, "stop_at_target is True, which needs target"),
    "target": ({"measure": {"global_test": False}}, 0.9, 'target_on is "global-test", which is not measured'),
    "compress.share": ({}, 0.3, "compress.name is missing; allowed: top-k, 8-bit, 1-bit, mask or none"),
    "compress.feedback": (
        {"compress": {"name": "none"}},
        False,
        "compress.feedback is False, which needs compress.name, one of top-k, 8-bit, 1-bit, mask",
    ),
    "stop.patience": (UNMEASURED, 5, r"\[stop\] has nothing to go by; it needs measure.global_test or"),
    "stop.metric": (
        {},
        "local-test/nonsense",
        "stop.metric is 'local-test/nonsense', which is not measured or has no better and worse; allowed: "
        "global-test/accuracy, global-test/loss, local-test/accuracy-mean",
    ),
    "private.quantile": (FIXED, 0.9, 'private.quantile is 0.9, which needs private.clip = "adaptive"'),
    "private.first_clip": (FIXED, 0.9, 'private.first_clip is 0.9, which needs private.clip = "adaptive"'),
    "private.sampling": (LOCAL, "method", 'private.sampling is "method", which needs private.level = "client"'),
    "private.accountant": (LOCAL, "rdp", 'private.accountant is "rdp", which needs private.level = "client"'),
    "private.bands": (LOCAL, 3, 'private.bands is 3, which needs level = "client"'),
    "private.noise_from": (FIXED, "clients", 'private.noise_from is "clients", which needs private.secure'),
    "private.neighbours": (FIXED, 20, "private.neighbours is 20, which needs private.secure = true"),
    "private.delta": (QUIET, 1e-4, "private.delta is 0.0001, which needs private.epsilon or private.noise"),
    "private.evaluations": (
        FIXED | {"measure": {"local_test": False}},
        1.0,
        "private.evaluations is given, which needs measure.local_test or measure.fine_tune",
    ),
    "train.lr_floor": ({}, 0.1, "train.lr_floor is 0.1, which needs train.lr_decay below 1"),
    "train.schedule_rounds": ({}, 5, 'train.schedule_rounds is 5, which needs train.schedule = "cosine"'),
    "train.keep_momentum": ({}, True, "train.keep_momentum is True, which needs train.momentum above 0"),
    "train.momentum": (
        {"train": {"optimiser": "adam"}},
        0.9,
        "train.momentum is 0.9, which optimiser 'adam' does not take; allowed: 0",
    ),
    "train.weight_decay": (
        {"train": {"optimiser": "torch.optim:Rprop"}},
        0.1,
        "train.weight_decay is 0.1, which optimiser 'torch.optim:Rprop' does not take",
    ),
    "devices.special": ({}, [{"clients": 0}], r"devices.special\[0\] changes nothing; it needs compute or"),
    "devices.drifts": (
        {},
        [{"clients": 0, "round": 1, "strength": 0.5}],
        r"devices.drifts\[0\] changes nothing; it needs rotations or label_offset or images or mix_of",
    ),
    "engine.precision": ({}, "mixed", 'engine.precision is "mixed", which needs engine.mode = "cohort"'),
    "engine.compile": ({}, True, 'engine.compile is True, which needs engine.mode = "cohort"'),
    "engine.megabytes": ({}, 500, 'engine.megabytes is 500, which needs engine.mode = "cohort"'),
    "engine.address": ({}, "a", 'engine.address is "a", which needs engine.mode = "ray"'),
    "engine.gpus": ({}, 0.5, 'engine.gpus is 0.5, which needs engine.mode = "ray"'),
    "engine.data": ({}, "shared", 'engine.data is "shared", which needs engine.mode = "ray"'),
    "engine.runtime_env": ({}, "a", 'engine.runtime_env is "a", which needs engine.mode = "ray"'),
    "measure.fine_tune_updates": ({}, 4, "measure.fine_tune_updates is 4, which needs measure.fine_tune = true"),
    "measure.whom": (UNMEASURED, "trained", 'measure.whom is "trained", which needs measure.local_test or'),
    "measure.least": (UNMEASURED, 30, "measure.least is 30, which needs measure.local_test or"),
    "measure.per_class": ({}, 10, "measure.per_class is 10, which needs measure.metrics"),
    "measure.metrics": (UNMEASURED, ["auc"], r"measure.metrics is \('auc',\), which needs measure.global_test"),
    "guard.norm": (FIXED, 5.0, "guard.norm is 5.0, which shortens updates by the others' lengths"),
}  # fmt: skip

# What counts by itself, whatever else the file says.
BY_THEMSELVES = {
    *("name", "seed", "rounds", "objective", "checkpoint_seconds", "checkpoints", "patience", "tracker"),
    *(
        "compress.name",
        "data.name",
        "data.clients",
        "data.test_fraction",
        "data.test_samples",
        "data.validation",
        "data.encoder",
        "data.resplit",
    ),
    *(
        "model.name",
        "model.train",
        "model.weights",
        "model.adapter",
        "model.buffers",
    ),  # buffers: of a model that has none, either way is the same
    *("private.level", "private.epsilon", "private.noise", "private.clip", "private.secure"),
    "private.least",  # one table for all methods of a comparison: one without groups has none that is too small
    *("train.epochs", "train.batch", "train.batches", "train.optimiser", "train.lr", "train.lr_decay"),
    *("train.prox", "train.clip", "train.holdout", "train.drop_last"),
    *("train.schedule", "train.warmup", "train.accumulate", "train.precision", "train.seconds"),
    *("devices.profile", "devices.pace", "devices.dropout", "devices.loss", "devices.deadline"),
    *("devices.joins", "devices.leaves"),
    *("engine.mode", "engine.workers", "engine.debug", "engine.lanes", "engine.device"),
    *("measure.every", "measure.global_test", "measure.local_test", "measure.fine_tune"),
    *(
        "guard.samples",
        "sites.quorum",
        "sites.schema",
    ),  # one file for simulation and real sites, where they count
}
# These name something, and take what that takes: anything else is not known.
CHOICES = ("shift", "robust", "partition", "method", "methods")


def every_setting() -> set[str]:
    tables = {**ALWAYS, **IF_ASKED, "data": DataSection, "model": ModelSection}
    assert {*tables, *CHOICES} == set(SECTIONS)
    inside = {f"{table}.{name}" for table, maker in tables.items() for name in settings_of(maker)}
    return inside | set(settings_of(Top))


def test_of_every_setting_it_is_known_whether_it_counts_by_itself() -> None:
    assert every_setting() == set(NEEDS) | BY_THEMSELVES
    assert not set(NEEDS) & BY_THEMSELVES


@pytest.mark.parametrize("setting", sorted(NEEDS))
def test_a_setting_that_would_do_nothing_is_one_sentence(setting: str) -> None:
    around, value, sentence = NEEDS[setting]
    table, dot, name = setting.rpartition(".")
    tables = {**around, table: {**around.get(table, {}), name: value}} if dot else {**around, name: value}
    with pytest.raises(UserError, match=sentence) as mistake:
        resolve(tables)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize("table", ["shift", "robust"])
def test_a_table_without_the_name_of_what_it_sets_up_is_one_sentence(table: str) -> None:
    with pytest.raises(UserError, match=rf"{table}.name is missing; allowed: \w+"):
        resolve({table: {}})
    with pytest.raises(UserError, match=rf"{table}.name is missing"):
        resolve({table: {"trim": 0.2}})


def test_an_empty_table_is_not_passed_over() -> None:
    with pytest.raises(UserError, match=r"private.epsilon is None and private.noise None; give one of them"):
        resolve({"private": {}})
    with pytest.raises(UserError, match=r"compress.name is missing"):
        resolve({"compress": {}})
    assert resolve({"stop": {}})["stop"]["patience"] == 10


@pytest.mark.parametrize(
    ("drift", "sentence"),
    [
        ({"rotations": 1, "strength": 0.5}, "devices.drifts.strength is 0.5, which needs images"),
        (
            {"rotations": 1, "rounds": 5},
            'devices.drifts.rounds is 5, which needs course = "gradual" or "recurring"',
        ),
    ],
)
def test_of_a_drift_every_word_counts(drift: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve({"devices": {"drifts": [{"clients": 0, "round": 1, **drift}]}})


@pytest.mark.parametrize(
    "tables",
    [
        {"compress": {"name": "8-bit"}},
        {"compress": {"name": "none"}},
        {"stop": {"metric": "local-test/accuracy-worst10"}},
        {"stop": {"metric": "global-test/auc"}, "measure": {"metrics": ["auc"]}},
        {"private": {"epsilon": 8.0}},
        {"target": 0.9, "stop_at_target": True, "target_on": "local-test"},
        {"devices": {"drifts": [{"clients": 0, "round": 1, "rotations": 1}]}},
    ],
)
def test_the_complete_file_of_a_run_is_read_as_it_was_written(tables: dict[str, Any]) -> None:
    """It has every setting at its default, also those that do nothing in it."""
    whole = resolve(tables)
    assert resolve(dict(whole.tables)) == whole


def test_what_can_be_watched_of_another_objective() -> None:
    names = Measuring(local_test=False).overall(Regression())
    assert names == ["global-test/mse", "global-test/mae", "global-test/loss"]
    Stopping(metric="global-test/mae").check(names)
    with pytest.raises(UserError, match="allowed: global-test/loss, global-test/mae, global-test/mse"):
        Stopping(metric="global-test/accuracy").check(names)


def test_from_python_it_is_the_same_sentence() -> None:
    with pytest.raises(UserError, match=r"train.lr_floor is 0.1, which needs train.lr_decay below 1"):
        Train(lr_floor=0.1)


def other_values(kind: Any, default: Any) -> list[Any]:
    """Values of a type that are not the default."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return other_values(parts[0], default)
    if origin in (typing.Union, types.UnionType):
        return [value for part in parts for value in other_values(part, default)]
    number = default if isinstance(default, int | float) and default else 0.5
    found = {bool: [not default], int: [int(number) + 1, 2], float: [0.9 * number, 0.3]}.get(kind, [])
    return [value for value in (list(parts) if origin is typing.Literal else found) if value != default]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"compose"}))
def test_every_setting_of_a_method_makes_another_method_or_model_or_is_refused(name: str) -> None:
    def made(**settings: Any) -> tuple[object, object]:
        config = resolve({"method": {"name": name, **settings}})
        return config.method, config["model"]  # of trees the method makes the model

    usual = made()
    idle = []
    for key, setting in settings_in("method", METHODS[name]).items():
        found = []
        for value in other_values(setting.type, setting.default):
            with contextlib.suppress(UserError):
                found.append(made(**{key: value}) == usual)
        if key != "per_round" and found and all(found):
            idle.append(key)
    assert idle == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bins": 30}, 'bins is 30, which summary = "labels" does not use; leave it out'),
        ({"bound": 2.0}, 'bound is 2.0, which summary = "labels" does not use'),
        ({"missing": "ignored"}, 'missing is "ignored", which summary = "labels" does not use'),
        ({"summary": "joint", "bound": 2.0}, 'bound is 2.0, which summary = "joint" does not use'),
        (
            {"summary": "targets", "label_space": 5},
            'label_space is 5, which summary = "targets" does not use',
        ),
    ],
)
def test_a_summary_takes_only_what_it_uses(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve({"method": {"name": "haccs", **settings}})
