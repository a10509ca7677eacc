"""Whether data, model and objective fit each other: a mistake that all clients would meet is said before any does."""

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from covey.data.types import Dataset, Federation, Samples
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.training.frozen import copy_sharing
from covey.training.objective import Classification, Objective, Regression


def check_steps_fit(data: Any, model: Any, objective: Any, devices: Any) -> None:
    """Checks the types of arguments where they are given, and not where they are first used."""
    for name, value, wanted, how in (
        ("data", data, Federation, "covey.federate(dataset, ...)"),
        ("model", model, nn.Module, "a torch.nn.Module, made: Net(), not Net"),
        ("devices", devices, Devices | None, "covey.Devices(...)"),
    ):
        if not isinstance(value, wanted):
            raise UserError(f"{name} is a {type(value).__name__}; it must be {how}")
    if objective is not None and (isinstance(objective, type) or not isinstance(objective, Objective)):
        raise UserError(
            f"objective is {objective!r}; it must be one such as covey.training.objective.Classification()"
        )
    check_objective(data.dataset, objective or Classification())


def check_fit(model: nn.Module, data: Federation, objective: Objective) -> None:
    """Raises one sentence where values are not finite, labels have no class, or the model does not take the samples."""
    dataset = data.dataset
    for values, what in ((dataset.x, "sample"), (dataset.y, "the target of sample")):
        place = first_not_finite(values)
        if place is not None:
            raise UserError(
                f"data set {dataset.name!r}: {what} {place} holds NaN or infinity; every value must be finite"
            )
    check_labels(dataset)
    check_objective(dataset, objective)
    check_outputs(model, dataset, objective)


def check_steps(part: Any, dataset: Dataset, name: str) -> None:
    """Raises one sentence where a method asks clients for something that none of them can do on data of this kind."""
    if is_dataclass(part):
        why = part.unfit(dataset) if hasattr(part, "unfit") else ""
        if why:
            raise UserError(f"method {name} cannot be used with {dataset.name}: {why}")
        part = tuple(getattr(part, f.name) for f in fields(part))
    for one in part if isinstance(part, tuple) else ():
        check_steps(one, dataset, name)


def check_objective(dataset: Dataset, objective: Objective) -> None:
    """Classes are for classification, and targets for regression."""
    if isinstance(objective, Classification) and not dataset.classes:
        raise UserError(
            f"the labels of {dataset.name} are {dataset.y.dtype}; give objective=covey.training.objective.Regression() "
            '(in a file: objective = "regression"), or turn them into classes: whole numbers from 0 on'
        )
    if isinstance(objective, Classification) and len(dataset.classes) == 1:
        raise UserError(
            f"the labels of {dataset.name} are all {dataset.classes[0]!r}; to classify there must be two classes"
        )
    if type(objective) is Regression and dataset.classes:
        raise UserError(
            f"objective is regression, but the labels of {dataset.name} are {len(dataset.classes)} classes; "
            "it needs targets: labels that are floats"
        )


def first_not_finite(values: Tensor) -> int | None:
    """The first sample with a value that is none."""
    if not values.is_floating_point() or bool(torch.isfinite(values.sum())):
        return None
    wrong = ~torch.isfinite(values).flatten(1).all(1) if values.dim() > 1 else ~torch.isfinite(values)
    return int(wrong.nonzero()[0]) if bool(wrong.any()) else None


def check_labels(dataset: Dataset) -> None:
    """Every label is the number of a class."""
    if not dataset.classes or dataset.y.is_floating_point() or not dataset.y.numel():
        return
    least, most = int(dataset.y.min()), int(dataset.y.max())
    if least < 0 or most >= len(dataset.classes):
        raise UserError(
            f"data set {dataset.name!r} has the label {least if least < 0 else most}; "
            f"allowed: 0 to {len(dataset.classes) - 1}, one for each of its {len(dataset.classes)} classes"
        )


def check_outputs(model: nn.Module, dataset: Dataset, objective: Objective) -> None:
    """One forward pass and one loss; cross-entropy needs an output for each class."""
    check_parameters(model)
    x, y = Samples(dataset, dataset.train[:2]).tensors()
    if tokens := dataset.x.dtype == torch.int64 and len(x) > 0:
        x[-1, -1] = dataset.x.max()  # a model that knows the last token knows all
    try:
        with torch.no_grad():
            outputs = copy_sharing(model).eval()(x)
            if not isinstance(outputs, Tensor):
                raise UserError(f"the model gives a {type(outputs).__name__}; it must give one tensor")
            classes = len(dataset.classes)
            if objective.kernel == "cross-entropy" and outputs.dim() > 1 and outputs.shape[1] < classes:
                raise UserError(
                    f"the model has {outputs.shape[1]} outputs, and data set {dataset.name!r} {classes} classes; "
                    "it needs an output for each"
                )
            objective.loss(outputs, objective.target(x, y))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if tokens and isinstance(error, IndexError):
            raise UserError(
                f"tokens of data set {dataset.name!r} run up to {dataset.x.max()}, and the model knows fewer: to "
                f"classify texts set model.vocabulary to {dataset.x.max() + 1} or more"
            ) from error
        which = "are tokens (for lstm, tcn, decoder) of" if tokens else "have"
        raise UserError(
            f"the model cannot be trained on data set {dataset.name!r}, whose samples {which} shape "
            f"{tuple(x.shape[1:])}: {str(error).splitlines()[0]}"
        ) from error


def check_parameters(model: nn.Module) -> None:
    """Something can be trained, and all of that is float32, as rows are."""
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise UserError(f"the model ({type(model).__name__}) has no parameter that can be trained")
    other = next((p.dtype for p in parameters if p.requires_grad and p.dtype != torch.float32), None)
    if other is not None:
        raise UserError(f"the model trains parameters of {other}; allowed: torch.float32 (model.float())")
