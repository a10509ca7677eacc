"""A served model as a file for other programs: safetensors, PyTorch's own, ONNX."""

import io
import logging
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch

from covey.errors import importing
from covey.folder.served_model import KEY, ServedModel, model_bytes

Format = Literal["safetensors", "torch", "onnx"]
ENDINGS: Mapping[str, str] = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx"}


def as_files(model: ServedModel, name: str, format: Format) -> dict[str, bytes]:
    """The files of a model by their names; what PyTorch's own format cannot carry stands beside it as JSON."""
    ending = ENDINGS[format]
    if format == "safetensors":
        return {f"{name}{ending}": model_bytes(model)}
    if format == "onnx":
        return {f"{name}{ending}": onnx_bytes(model)}
    buffer = io.BytesIO()
    torch.save(model.module().state_dict(), buffer)
    return {f"{name}{ending}": buffer.getvalue(), f"{name}.json": model.facts.json().encode()}


def onnx_bytes(model: ServedModel) -> bytes:
    """The whole network for samples as the network takes them, scaled; the facts are in its metadata."""
    with importing("the format onnx needs the packages onnx and onnxscript: install covey[onnx]"):
        import onnxscript  # noqa: F401
    inputs = model.facts.inputs
    dtype = torch.int64 if inputs.dtype == "int64" and inputs.encoder is None else torch.float32
    sample = torch.zeros((2, *inputs.model_shape), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own insides
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program: Any = torch.onnx.export(
            model.module(),
            (sample,),
            dynamo=True,
            input_names=["samples"],
            output_names=["outputs"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = KEY, model.facts.json()
    content: bytes = proto.SerializeToString()
    return content
