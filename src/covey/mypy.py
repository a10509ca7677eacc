"""A plugin of mypy: the settings of a method's inline parts are in its signature, `plugins = ["covey.mypy"]`."""

from collections.abc import Callable

from mypy.nodes import ARG_NAMED_OPT, CallExpr, Decorator, Expression
from mypy.plugin import CheckerPluginInterface, MethodContext, Plugin
from mypy.semanal import refers_to_fullname
from mypy.types import CallableType, Instance, Type, get_proper_type

from covey.settings.signatures import FILLED_IN, Marking, inline

MARKING = f"{Marking.__module__}.{Marking.__qualname__}.__call__"  # of what @method(...) gives back
INLINE = f"{inline.__module__}.{inline.__qualname__}"


class InlineSettings(Plugin):
    """Adds to what `@method` decorates the settings of every argument whose default is `inline(part)`."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return with_inline_settings if fullname == MARKING else None


def with_inline_settings(marked: MethodContext) -> Type:
    """The type of the decorated function, with the parts' settings as keyword arguments that can be left out."""
    function = get_proper_type(marked.default_return_type)
    if not isinstance(marked.context, Decorator) or not isinstance(function, CallableType):
        return marked.default_return_type
    settings: dict[str, Type] = {}
    for argument in marked.context.func.arguments:
        for name, kind in part_settings(argument.initializer, marked.api).items():
            if name not in (*function.arg_names, *FILLED_IN):
                settings.setdefault(name, kind)
    return function.copy_modified(
        arg_names=[*function.arg_names, *settings],
        arg_types=[*function.arg_types, *settings.values()],
        arg_kinds=[*function.arg_kinds, *[ARG_NAMED_OPT] * len(settings)],
    )


def part_settings(default: Expression | None, api: CheckerPluginInterface) -> dict[str, Type]:
    """Name -> type of the settings of the part that a default makes inline; of any other default none."""
    if not isinstance(default, CallExpr) or not refers_to_fullname(default.callee, INLINE):
        return {}
    maker = get_proper_type(api.get_expression_type(default.args[0]))
    if not isinstance(maker, CallableType):
        return {}
    named = zip(maker.arg_names, maker.arg_types, strict=True)
    return {name: kind for name, kind in named if name is not None and not is_part(kind)}


def is_part(kind: Type) -> bool:
    """Whether an argument takes a whole part, a dataclass: settings are plain values."""
    found = get_proper_type(kind)
    return isinstance(found, Instance) and "dataclass" in found.type.metadata


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001
    """What mypy asks for."""
    return InlineSettings
