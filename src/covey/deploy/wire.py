"""Steps and models as plain values: names and settings that the other side looks up in its own covey, never code."""

import dataclasses
import hashlib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import nn

from covey.core import Step, Task
from covey.core.codec import task_to_plain, to_bytes
from covey.data.types import Scale
from covey.errors import Refused, UserError
from covey.fleet.work import Call
from covey.parts.steps.scale import of_scale, to_scale
from covey.settings.catalogue import CHILD_MODELS, METRICS, MODELS, OBJECTIVES, STEPS
from covey.settings.choices import OneOf, without_unset
from covey.settings.own_code import bare_name, is_own
from covey.settings.registry import Registry, as_told, only_installed
from covey.settings.signatures import checked, fitted, reader_of, settings_of
from covey.training.bench import Bench
from covey.training.bench.choose import choose_bench
from covey.training.metrics import Metric
from covey.training.models import build
from covey.training.objective import Objective, objective_named
from covey.training.rows import BufferPolicy, maker_of
from covey.version import __version__


def names_mark(names: Sequence[str]) -> str:
    """Equal for the same names in the same order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def step_kinds() -> list[str]:
    """Every kind of step that is built in or installed, as Flower spells message types."""
    return sorted({message_type(step.kind) for step in STEPS.values()})


def message_type(kind: str) -> str:
    """Flower wants an identifier after the dot."""
    return kind.replace("-", "_")


def step_to_plain(step: Step) -> dict[str, Any]:
    """A step as the name of its class and its settings; whether it knows that name is for the site to say."""
    name = type(step).__name__
    if not _is_step(step):
        raise UserError(
            f"the step {name} is not part of covey, of an installed package (entry points covey.steps) or of the file "
            "that the method is in, so that no site knows it"
        )
    return {"step": name, "settings": _settings(step)}


def _is_step(value: Any) -> bool:
    """Whether a site can know it: it is built in, installed, or defined beside your own method."""
    made = type(value)
    if not dataclasses.is_dataclass(value) or not getattr(made, "kind", ""):
        return False
    return STEPS.get(made.__name__) is made or is_own(made.__module__)


def _settings(value: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(type(value), include_extras=True)
    return {
        f.name: (_by_bare_name if isinstance(reader_of(hints[f.name]), OneOf) else _plain)(
            getattr(value, f.name)
        )
        for f in dataclasses.fields(value)
    }


def _by_bare_name(value: Any) -> Any:
    """What travels of something that a registry knows: its name without the file that it is in here."""
    return bare_name(value) if isinstance(value, str) else {**value, "name": bare_name(value["name"])}


def _plain(value: Any) -> Any:
    if _is_step(value):
        return {"$step": step_to_plain(value)}
    if isinstance(value, Metric):
        return {"$metric": value.name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"$settings": _settings(value)}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def step_from_plain(plain: Mapping[str, Any]) -> Step:
    """The step of this covey with that name and these settings, or a refusal in one sentence."""
    name = plain.get("step")
    maker = _known(STEPS, name)
    step: Step = _made(maker, plain.get("settings", {}), str(name))
    return step


def _known(registry: Registry[Any], name: object) -> Any:
    """What this site has under that name; nothing is loaded because a request names it."""
    with only_installed():
        found = registry.get(str(name))
    if found is None:
        raise Refused(f"the {registry.kind} {name!r} is not known to this site's covey")
    return found


def _made(maker: Any, settings: Mapping[str, Any], where: str) -> Any:
    hints, marked = typing.get_type_hints(maker), typing.get_type_hints(maker, include_extras=True)
    names = {f.name for f in dataclasses.fields(maker)}
    values = {}
    for key, value in settings.items():
        if key not in names:
            raise Refused(f"{where} has no setting {key!r} in this site's covey")
        # Of what a registry knows, the step itself looks the name up among what this site has.
        looked_up = reader_of(marked[key]) is not None
        values[key] = value if looked_up else _value(value, hints[key], f"{where}.{key}")
    try:
        return maker(**values)
    except (UserError, TypeError, ValueError) as error:
        raise Refused(f"{where}: {error}") from error


def _value(value: Any, wanted: Any, where: str) -> Any:
    options = (wanted, *typing.get_args(wanted))
    if wanted == tuple[Metric, ...] and isinstance(value, list | tuple):
        return tuple(_known(METRICS, dict(part).get("$metric")) for part in value)
    if isinstance(value, Mapping) and "$step" in value:
        step = step_from_plain(value["$step"])
        if Step not in options and type(step) not in options:
            raise Refused(f"{where} is a {type(step).__name__}, which this site's covey does not take")
        return step
    if isinstance(value, Mapping) and "$settings" in value:
        for option in options:
            if dataclasses.is_dataclass(option):
                return _made(option, value["$settings"], where)
        raise Refused(f"{where} takes no settings of its own in this site's covey")
    fits, converted = fitted(value, wanted)
    if not fits:
        raise Refused(f"{where} is {value!r}, which this site's covey does not take")
    return converted


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model by name, with what it is trained for and by which trainer: all that a site needs to build it."""

    name: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    outputs: int
    objective: str
    buffers: BufferPolicy = "average"
    lanes: bool = False
    child: bool = False  # a method's own model, of the registry CHILD_MODELS
    scale: Scale | None = None  # by which inputs are standardised, if not as a site's own data set says
    frozen: str = ""  # the digest of what nobody trains of it
    encoder: Mapping[str, Any] | None = (
        None  # what samples go through first: setting, digest, frozen (its numbers')
    )

    def plain(self) -> dict[str, Any]:
        """What travels: names without the files that they are in here; scale and frozen part where there are any."""
        fields = without_unset({**vars(self), "scale": of_scale(self.scale)}, "scale", "frozen", "encoder")
        # weights are a file of the server's: what is frozen of them is sent, and rows have the rest
        own = {key: value for key, value in self.settings.items() if key != "weights"}
        fields["settings"] = own if self.child else as_told(MODELS.find(self.name), own)
        return {**fields, "name": bare_name(self.name), "objective": bare_name(self.objective)}

    def build(self, seed: int = 0) -> nn.Module:
        """The network; its first weights matter only where the run begins."""
        if self.child:
            return self._child(seed)[0]
        return build(
            self.name, input_shape=self.shape, outputs=self.outputs, seed=seed, **dict(self.settings)
        )

    def _child(self, seed: int = 0) -> tuple[nn.Module, Objective]:
        """A method's own model, and what it is trained for; settings that do not fit are a `UserError`."""
        maker = CHILD_MODELS.find(self.name)
        settings = checked(self.name, settings_of(maker, given=("shape", "seed")), self.settings)
        return maker(self.shape, seed, **settings)

    @property
    def goal(self) -> Objective:
        """What it is trained for."""
        return self._child()[1] if self.child else objective_named(self.objective)

    def of_child(self, model: nn.Module) -> Self:
        """The spec of a method's own model on the same samples."""
        maker = maker_of(model)
        if maker is None:
            raise UserError(
                f"a {type(model).__name__} of the method's own is not part of covey, so that no site knows it"
            )
        return replace(self, name=maker.name, settings=maker.settings, child=True, lanes=False, frozen="")

    def bench(self, model: nn.Module | None = None) -> Bench:
        """The bench that runs it (or the `model` that was built already), with the server's choice of trainer."""
        try:
            make, info = choose_bench(
                model or self.build(), self.goal, self.shape, buffers=self.buffers, lanes=self.lanes
            )
        except UserError as error:
            raise Refused(str(error)) from error
        if (info["trainer"] == "lanes") != self.lanes:
            raise Refused(
                f"the run uses the lanes trainer, which this site cannot ({info['why']}); set engine.lanes=false"
            )
        return make()


def model_from_plain(plain: Mapping[str, Any]) -> ModelSpec:
    """The model spec of a request; an unknown model is refused."""
    name = plain.get("name")
    _known(CHILD_MODELS if plain.get("child") is True else MODELS, name)
    _known(OBJECTIVES, plain.get("objective"))
    try:
        shape = tuple(plain["shape"])
        return ModelSpec(**{**plain, "shape": shape, "scale": to_scale(plain.get("scale"), shape[0])})
    except (TypeError, KeyError, IndexError, ValueError, UserError) as error:
        raise Refused(
            f"the model {name!r} comes with settings that this site's covey does not know"
        ) from error


def request_of(
    call: Call,
    client: int,
    task: Task,
    *,
    seconds: float,
    protocol: int,
    run: str,
    session: str,
    spec: ModelSpec,
    **more: Any,
) -> bytes:
    """What a site is asked, as it travels."""
    return to_bytes(
        {
            "covey": __version__,
            "protocol": [protocol, protocol],
            "run": run,
            "session": session,
            "seed": call.seed,
            "round": call.round,
            "names": call.names,
            "client": client,
            "seconds": seconds,
            "step": step_to_plain(call.step),
            "model": spec.plain(),
            **more,
            "task": task_to_plain(task.as_sent()),
        }
    )
