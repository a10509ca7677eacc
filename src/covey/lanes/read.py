"""Reads a model by torch.fx into a chain of layers, or says what in it is not supported."""

import copy
import operator
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

from covey.lanes.layers import (
    Activation,
    Chain,
    Conv,
    Drop,
    Kind,
    Layer,
    Linear,
    MaxPool,
    Shape,
    UnsupportedError,
)

SAMPLES = 3  # in the batch that finds the shapes
ACTIVATIONS: dict[Any, Activation] = {
    key: Activation(name=name)  # type: ignore[arg-type]
    for name, keys in {
        "relu": (nn.ReLU, F.relu, torch.relu, "relu", "relu_"),
        "tanh": (nn.Tanh, F.tanh, torch.tanh, "tanh", "tanh_"),
        "sigmoid": (nn.Sigmoid, F.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"),
    }.items()
    for key in keys
}
RESHAPES = {
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    torch.flatten,
    torch.reshape,
    "flatten",
    "view",
    "reshape",
    "contiguous",
}
NUMBERS = {getattr, operator.getitem, "size", "dim"}  # how a model asks for the shape it will reshape to


def read(model: nn.Module, input_shape: tuple[int, ...], objective: str) -> Chain:
    """The model as a chain of layers; raises UnsupportedError."""
    offsets, size = _parameters(model)
    graph = _trace(model, input_shape)
    modules = dict(graph.named_modules())
    layers: list[Layer] = []
    at: fx.Node | None = None  # what the chain has computed so far
    used: set[str] = set()
    first = last = _shape(torch.Size((SAMPLES, *input_shape)))
    final = False
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            if at is not None:
                raise UnsupportedError("it has more than one input")
            at = node
            continue
        if node.op == "output":
            if node.args[0] is not at:
                raise UnsupportedError("it returns something else than its last layer's output")
            continue
        what = type(modules[str(node.target)]) if node.op == "call_module" else node.target
        if what in NUMBERS and not isinstance(
            node.meta.get("tensor_meta"), fx.passes.shape_prop.TensorMetadata
        ):
            continue
        if node.all_input_nodes[:1] != [at] or _consumers(at) > 1:
            raise UnsupportedError(f"its layers are not a chain at {_label(node)}")
        if final:
            raise UnsupportedError("a layer follows its softmax")
        at, before, last = node, last, _output(node)
        if what in RESHAPES:
            if before.features != last.features:
                raise UnsupportedError(f"{_label(node)} mixes samples")
            continue
        if what in (nn.LogSoftmax, F.log_softmax, torch.log_softmax, "log_softmax"):
            if objective != "cross-entropy" or _argument(node, modules, "dim", 1) not in (1, -1):
                raise UnsupportedError(
                    f"{_label(node)} is supported only as the last layer before cross-entropy"
                )
            final = True  # cross-entropy's own log-softmax changes nothing that is one already
            continue
        if node.op == "call_module":
            if str(node.target) in used:
                raise UnsupportedError(f"the module {node.target} is used twice")
            used.add(str(node.target))
        kind = _kind(node, what, modules, offsets)
        if kind is not None:
            layers.append(Layer(kind=kind, input=before, output=last))
    trained = {name for name in offsets if any(name.startswith(f"{m}.") for m in used)}
    if trained != set(offsets):
        raise UnsupportedError(f"the parameter {min(set(offsets) - trained)} belongs to no supported layer")
    return Chain(layers=tuple(layers), input=first, output=last, parameters=size)


def _parameters(model: nn.Module) -> tuple[dict[str, int], int]:
    """The offset of each parameter in the row, and the size of all."""
    offsets, size = {}, 0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            raise UnsupportedError(f"the parameter {name} is frozen")
        if parameter.dtype != torch.float32:
            raise UnsupportedError(f"the parameter {name} is {parameter.dtype}, not float32")
        offsets[name], size = size, size + parameter.numel()
    if not offsets:
        raise UnsupportedError("it has no parameters")
    return offsets, size


def _trace(model: nn.Module, input_shape: tuple[int, ...]) -> fx.GraphModule:
    try:
        graph = fx.symbolic_trace(copy.deepcopy(model).train())
        with torch.random.fork_rng(devices=[]):
            ShapeProp(graph).propagate(torch.zeros(SAMPLES, *input_shape))
    except Exception as error:  # whatever a user's forward() does when it is traced
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(f"torch.fx cannot read it ({reason[0]})") from error
    return graph


def _consumers(node: fx.Node | None) -> int:
    """How many nodes use the values of this one, not only its shape."""
    return 0 if node is None else sum(user.target not in NUMBERS for user in node.users)


def _label(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", node.name)


def _shape(size: torch.Size) -> Shape:
    if len(size) < 2 or len(size) == 3 or len(size) > 4 or size[0] != SAMPLES:
        raise UnsupportedError(
            f"a value of shape {tuple(size[1:])} a sample is neither a vector nor an image"
        )
    return (
        Shape(channels=size[1]) if len(size) == 2 else Shape(channels=size[1], rows=size[2], columns=size[3])
    )


def _output(node: fx.Node) -> Shape:
    meta = node.meta.get("tensor_meta")
    if not isinstance(meta, fx.passes.shape_prop.TensorMetadata):
        raise UnsupportedError(f"{_label(node)} does not return one tensor")
    return _shape(meta.shape)


def _argument(
    node: fx.Node, modules: dict[str, nn.Module], name: str, position: int, default: Any = None
) -> Any:
    """An argument of a function call, or the attribute of a module."""
    if node.op == "call_module":
        return getattr(modules[str(node.target)], name)
    if name in node.kwargs:
        return node.kwargs[name]
    return node.args[position] if len(node.args) > position else default


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def _kind(node: fx.Node, what: Any, modules: dict[str, nn.Module], offsets: dict[str, int]) -> Kind | None:
    """The layer a node is; None for one that does nothing."""

    def get(name: str, position: int, default: Any = None) -> Any:
        return _argument(node, modules, name, position, default)

    if what in ACTIVATIONS:
        return ACTIVATIONS[what]
    if what is nn.Conv2d:
        return _conv(node, modules[str(node.target)], offsets)
    if what is nn.Linear:
        return Linear(weight=offsets[f"{node.target}.weight"], bias=offsets.get(f"{node.target}.bias"))
    if what in (nn.MaxPool2d, F.max_pool2d, torch.max_pool2d):
        kernel = _pair(get("kernel_size", 1))
        stride = _pair(get("stride", 2) or kernel)
        plain = _pair(get("padding", 3, 0)) == (0, 0) and _pair(get("dilation", 4, 1)) == (1, 1)
        if kernel != (2, 2) or stride != (2, 2) or not plain or get("ceil_mode", 5, False):
            raise UnsupportedError(f"{_label(node)} is a max-pooling other than 2 x 2 with stride 2")
        return MaxPool()
    if what in (nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d):
        share = float(get("p", 1, 0.5))
        if not 0 <= share < 1:
            raise UnsupportedError(f"{_label(node)} drops a share of {share:g}")
        if node.op == "call_function" and not get("training", 2, True):
            return None
        return Drop(share=share, channels=what in (nn.Dropout2d, F.dropout2d)) if share else None
    raise UnsupportedError(f"{what.__name__ if isinstance(what, type) else _label(node)} is not supported")


def _conv(node: fx.Node, module: nn.Module, offsets: dict[str, int]) -> Conv:
    if not isinstance(module, nn.Conv2d):
        raise UnsupportedError(f"{_label(node)} is no Conv2d")
    kernel = _pair(module.kernel_size)
    if isinstance(module.padding, str):
        padding = (0, 0) if module.padding == "valid" else (kernel[0] // 2, kernel[1] // 2)
        if module.padding == "same" and (kernel[0] % 2 == 0 or kernel[1] % 2 == 0):
            raise UnsupportedError(f"{_label(node)} pads an even kernel to the same size")
    else:
        padding = _pair(module.padding)
    if _pair(module.stride) != (1, 1) or _pair(module.dilation) != (1, 1) or module.groups != 1:
        raise UnsupportedError(f"{_label(node)} has a stride, dilation or groups other than 1")
    if module.padding_mode != "zeros":
        raise UnsupportedError(f"{_label(node)} pads with {module.padding_mode}")
    return Conv(
        weight=offsets[f"{node.target}.weight"],
        bias=offsets.get(f"{node.target}.bias"),
        kernel=kernel,
        padding=padding,
    )
