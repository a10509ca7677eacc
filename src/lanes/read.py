"""Reads a model by torch.fx into a graph of layers, or says what in it is not supported."""

import copy
import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from lanes.graph import (
    Activation,
    Add,
    Affine,
    Conv,
    Deconv,
    Drop,
    Graph,
    Kind,
    Linear,
    MaxPool,
    MeanPool,
    Node,
    Norm,
    Shape,
    UnsupportedError,
)

SAMPLES = 3  # in the batch that finds the shapes
ACTIVATIONS: dict[Any, Activation] = {
    **dict.fromkeys((nn.ReLU, F.relu, torch.relu, "relu", "relu_"), Activation(name="relu")),
    **dict.fromkeys((nn.Tanh, F.tanh, torch.tanh, "tanh", "tanh_"), Activation(name="tanh")),
    **dict.fromkeys((nn.Sigmoid, F.sigmoid, torch.sigmoid, "sigmoid"), Activation(name="sigmoid")),
}
RESHAPES = {nn.Flatten, nn.Unflatten, torch.flatten, torch.reshape, "flatten", "view", "reshape"}
SAME = {nn.Identity, "contiguous"}
NUMBERS = {getattr, operator.getitem, "size", "dim"}  # how a model asks for the shape it will reshape to
SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
DIFFERENCES = {operator.sub, operator.isub, torch.sub, "sub", "sub_"}
QUOTIENTS = {operator.truediv, operator.itruediv, torch.div, "div", "div_"}
ARITHMETIC = SUMS | PRODUCTS | DIFFERENCES | QUOTIENTS
LOG_SOFTMAX = {nn.LogSoftmax, F.log_softmax, torch.log_softmax, "log_softmax"}


def read(model: nn.Module, input_shape: tuple[int, ...], objective: str) -> Graph:
    """The model as a graph; raises UnsupportedError."""
    return _Reader(model, input_shape).read(objective)


class _Reader:
    def __init__(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        self.input = _shape(torch.Size((SAMPLES, *input_shape)))
        self.offsets, self.parameters, self.size = _offsets(model)
        self.graph = _trace(model, input_shape)
        self.modules = dict(self.graph.named_modules())
        self.values: dict[fx.Node, int] = {}  # which value of ours each fx node is
        self.constants: dict[fx.Node, torch.Tensor] = {}  # fx nodes that do not depend on the samples
        self.shapes: dict[fx.Node, Shape] = {}
        self.nodes: list[Node] = []
        self.used: set[str] = set()  # modules

    def read(self, objective: str) -> Graph:
        last: fx.Node | None = None
        closed = False  # by a log-softmax, which cross-entropy's own leaves as it is
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                if self.values:
                    raise UnsupportedError("it has more than one input")
                self.values[node], self.shapes[node], last = 0, self.input, node
            elif node.op == "output":
                if node.args[0] is not last:
                    raise UnsupportedError("it returns something else than its last layer's output")
            elif (self._what(node) in NUMBERS and not _is_tensor(node)) or self._is_constant(node):
                continue
            elif closed:
                raise UnsupportedError("a layer follows its log-softmax")
            else:
                closed = self._add(node, objective)
                last = node
        self._check_all_used()
        if not self.nodes or last is None:
            raise UnsupportedError("it has no layers")
        if self.values[last] != len(self.nodes):
            raise UnsupportedError("its last layer's output is not what it returns")
        return Graph(
            nodes=tuple(self.nodes),
            input=self.input,
            output=self.shapes[last],
            parameters=self.parameters,
            size=self.size,
        )

    def _add(self, node: fx.Node, objective: str) -> bool:
        """Takes one fx node into the graph; True for a log-softmax."""
        what = self._what(node)
        inputs = [n for n in node.all_input_nodes if n in self.values]
        if node.op == "get_attr" or not inputs:
            raise UnsupportedError(f"{_label(node)} is a constant or parameter used by itself")
        before, after = self.shapes[inputs[0]], _output(node)
        self.shapes[node] = after
        if what in RESHAPES or what in SAME:
            if before.features != after.features or len(inputs) != 1:
                raise UnsupportedError(f"{_label(node)} mixes samples")
            self.values[node] = self.values[inputs[0]]
            return False
        if what in LOG_SOFTMAX:
            if objective != "cross-entropy" or self._argument(node, "dim", 1) not in (1, -1):
                raise UnsupportedError(f"{_label(node)} is supported only last, before cross-entropy")
            self.values[node] = self.values[inputs[0]]
            return True
        kind = self._kind(node, what)
        if kind is None:
            self.values[node] = self.values[inputs[0]]
            return False
        if isinstance(kind, Add):
            if len(inputs) != 2 or before != self.shapes[inputs[1]] or len(node.args) != 2 or node.kwargs:
                raise UnsupportedError(f"{_label(node)} is not the sum of two values of one shape")
        elif len(inputs) != 1:
            raise UnsupportedError(f"{_label(node)} has more than one input")
        numbers = tuple(self.values[n] for n in inputs)
        self.nodes.append(Node(kind=kind, inputs=numbers, input=before, output=after))
        self.values[node] = len(self.nodes)
        return False

    def _what(self, node: fx.Node) -> Any:
        """The type of a module, the function, or the name of a method."""
        return type(self.modules[str(node.target)]) if node.op == "call_module" else node.target

    def _is_constant(self, node: fx.Node) -> bool:
        """Whether a node is a tensor of fixed numbers, as `x.new_tensor(...)` and views of one; it is kept."""
        if node.op != "call_method" or node.kwargs:
            return False
        receiver, *arguments = node.args
        if any(isinstance(argument, fx.Node) for argument in arguments):
            return False
        if node.target == "new_tensor":
            self.constants[node] = torch.tensor(arguments[0], dtype=torch.float64)
            return True
        if isinstance(receiver, fx.Node) and receiver in self.constants:
            self.constants[node] = getattr(self.constants[receiver], str(node.target))(*arguments)
            return True
        return False

    def _scale(self, node: fx.Node, what: Any) -> Affine:
        """Arithmetic of the samples with fixed numbers, one for each channel or for all."""
        shape = _output(node)
        if len(node.args) != 2 or node.kwargs:
            raise UnsupportedError(f"{_label(node)} has more than two operands")
        sides = [self.constants.get(side, side) if isinstance(side, fx.Node) else side for side in node.args]
        fixed = next((i for i, side in enumerate(sides) if not isinstance(side, fx.Node)), None)
        if fixed is None:
            raise UnsupportedError(f"{_label(node)} of two values is not supported")
        numbers = torch.as_tensor(sides[fixed], dtype=torch.float64)
        sample = (shape.channels, 1, 1) if len(node.meta["shape"]) == 4 else (shape.channels,)
        try:
            channels = numbers.broadcast_to(1, *sample).flatten()
        except RuntimeError:
            raise UnsupportedError(f"{_label(node)} is not by one number per channel") from None
        one, none = torch.ones_like(channels), torch.zeros_like(channels)
        if what in PRODUCTS:
            factor, constant = channels, none
        elif what in SUMS:
            factor, constant = one, channels
        elif what in DIFFERENCES:
            factor, constant = (one, -channels) if fixed == 1 else (-one, channels)
        elif fixed == 1:
            factor, constant = 1 / channels, none
        else:
            raise UnsupportedError(f"{_label(node)} divides by the samples")
        return Affine(factors=tuple(factor.tolist()), constants=tuple(constant.tolist()))

    def _argument(self, node: fx.Node, name: str, position: int, default: Any = None) -> Any:
        """An argument of a function call, or the attribute of a module."""
        if node.op == "call_module":
            return getattr(self.modules[str(node.target)], name)
        if name in node.kwargs:
            return node.kwargs[name]
        return node.args[position] if len(node.args) > position else default

    def _kind(self, node: fx.Node, what: Any) -> Kind | None:
        """The layer a node is; None for one that does nothing."""
        if node.op == "call_module":
            if str(node.target) in self.used:
                raise UnsupportedError(f"the module {node.target} is used twice")
            self.used.add(str(node.target))
        if what in ACTIVATIONS:
            return ACTIVATIONS[what]
        if what in ARITHMETIC:
            both = all(isinstance(side, fx.Node) and side in self.values for side in node.args)
            return Add() if what in SUMS and both else self._scale(node, what)
        if what in (nn.Conv2d, nn.ConvTranspose2d):
            return self._conv(node)
        if what is nn.Linear:
            return Linear(weight=self._offset(node, "weight"), bias=self.offsets.get(f"{node.target}.bias"))
        if what is nn.BatchNorm2d:
            return self._norm(node)
        if what in (nn.MaxPool2d, F.max_pool2d, torch.max_pool2d):
            return self._max_pool(node)
        if what in (nn.AvgPool2d, F.avg_pool2d):
            return self._mean_pool(node)
        if what in (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d):
            shape = self.shapes[node.all_input_nodes[0]]
            if _output(node).rows * _output(node).columns != 1:
                raise UnsupportedError(f"{_label(node)} averages to more than one value per channel")
            return MeanPool(kernel=(shape.rows, shape.columns), stride=(shape.rows, shape.columns))
        if what in (nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d):
            return self._drop(node, channels=what in (nn.Dropout2d, F.dropout2d))
        raise UnsupportedError(
            f"{what.__name__ if isinstance(what, type) else _label(node)} is not supported"
        )

    def _offset(self, node: fx.Node, name: str) -> int:
        return self.offsets[f"{node.target}.{name}"]

    def _conv(self, node: fx.Node) -> Conv | Deconv:
        module: Any = self.modules[str(node.target)]
        kernel, stride = _pair(module.kernel_size), _pair(module.stride)
        if module.padding == "valid":
            padding = (0, 0)
        elif module.padding == "same":
            padding = (kernel[0] // 2, kernel[1] // 2)
            if kernel[0] % 2 == 0 or kernel[1] % 2 == 0:
                raise UnsupportedError(f"{_label(node)} pads an even kernel to the same size")
        else:
            padding = _pair(module.padding)
        if _pair(module.dilation) != (1, 1) or module.groups != 1:
            raise UnsupportedError(f"{_label(node)} has dilation or groups other than 1")
        if module.padding_mode != "zeros":
            raise UnsupportedError(f"{_label(node)} pads with {module.padding_mode}")
        make = Deconv if isinstance(module, nn.ConvTranspose2d) else Conv
        return make(
            weight=self._offset(node, "weight"),
            bias=self.offsets.get(f"{node.target}.bias"),
            kernel=kernel,
            stride=stride,
            padding=padding,
        )

    def _norm(self, node: fx.Node) -> Norm:
        module: Any = self.modules[str(node.target)]
        if module.momentum is None or not module.track_running_stats:
            raise UnsupportedError(f"{_label(node)} is a batch norm without running mean of fixed momentum")
        return Norm(
            weight=self.offsets.get(f"{node.target}.weight"),
            bias=self.offsets.get(f"{node.target}.bias"),
            mean=self._offset(node, "running_mean"),
            variance=self._offset(node, "running_var"),
            momentum=float(module.momentum),
            epsilon=float(module.eps),
        )

    def _max_pool(self, node: fx.Node) -> MaxPool:
        kernel = _pair(self._argument(node, "kernel_size", 1))
        if _pair(self._argument(node, "dilation", 4, 1)) != (1, 1) or kernel[0] * kernel[1] > 255:
            raise UnsupportedError(f"{_label(node)} is a max-pooling with dilation or more than 255 values")
        if self._argument(node, "ceil_mode", 5, False) or self._argument(node, "return_indices", 6, False):
            raise UnsupportedError(f"{_label(node)} is a max-pooling with ceil_mode or indices")
        return MaxPool(
            kernel=kernel,
            stride=_pair(self._argument(node, "stride", 2) or kernel),
            padding=_pair(self._argument(node, "padding", 3, 0)),
        )

    def _mean_pool(self, node: fx.Node) -> MeanPool:
        kernel = _pair(self._argument(node, "kernel_size", 1))
        padded = _pair(self._argument(node, "padding", 3, 0)) != (0, 0)
        if (
            padded
            or self._argument(node, "ceil_mode", 4, False)
            or self._argument(node, "divisor_override", 6)
        ):
            raise UnsupportedError(f"{_label(node)} is an average pooling with padding, ceil_mode or divisor")
        return MeanPool(kernel=kernel, stride=_pair(self._argument(node, "stride", 2) or kernel))

    def _drop(self, node: fx.Node, *, channels: bool) -> Drop | None:
        share = float(self._argument(node, "p", 1, 0.5))
        if not 0 <= share < 1:
            raise UnsupportedError(f"{_label(node)} drops a share of {share:g}")
        if node.op == "call_function" and not self._argument(node, "training", 2, True):
            return None
        if channels and _output(node).rows * _output(node).columns == 1:
            channels = False  # a vector has no channels to drop
        return Drop(share=share, channels=channels) if share else None

    def _check_all_used(self) -> None:
        for name in self.offsets:
            if name.rpartition(".")[0] not in self.used:
                raise UnsupportedError(f"the parameter {name} belongs to no supported layer")


def _offsets(model: nn.Module) -> tuple[dict[str, int], int, int]:
    """Where each parameter and float buffer is in the row; how many are trainable, and all."""
    offsets, size = {}, 0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            raise UnsupportedError(f"the parameter {name} is frozen")
        if parameter.dtype != torch.float32:
            raise UnsupportedError(f"the parameter {name} is {parameter.dtype}, not float32")
        offsets[name], size = size, size + parameter.numel()
    if not offsets:
        raise UnsupportedError("it has no parameters")
    trainable = size
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            offsets[name], size = size, size + buffer.numel()
    return offsets, trainable, size


def _trace(model: nn.Module, input_shape: tuple[int, ...]) -> fx.GraphModule:
    try:
        graph = fx.symbolic_trace(copy.deepcopy(model).train())
        graph.graph.eliminate_dead_code()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            _Shapes(graph).run(torch.zeros(SAMPLES, *input_shape))
    except Exception as error:  # whatever a user's forward() does when it is traced
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(f"torch.fx cannot read it ({reason[0]})") from error
    return graph


class _Shapes(fx.Interpreter):
    """Notes the shape of every value, as torch's ShapeProp does, which imports a computer algebra system first."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            n.meta["shape"] = value.shape
        return value


def _is_tensor(node: fx.Node) -> bool:
    return "shape" in node.meta


def _label(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", node.name)


def _shape(size: torch.Size) -> Shape:
    if len(size) == 2 and size[0] == SAMPLES:
        return Shape(channels=size[1])
    if len(size) == 4 and size[0] == SAMPLES:
        return Shape(channels=size[1], rows=size[2], columns=size[3])
    raise UnsupportedError(f"a value of shape {tuple(size[1:])} is neither a vector nor an image")


def _output(node: fx.Node) -> Shape:
    if not _is_tensor(node):
        raise UnsupportedError(f"{_label(node)} does not return one tensor")
    return _shape(node.meta["shape"])


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))
