"""What a site lets a server ask for: a bounded amount of work at a time, and under a budget what its account counts."""

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any

import torch

from covey.core.messages import Task
from covey.core.protocols import Step
from covey.deploy.wire import ModelSpec
from covey.errors import Refused, UserError
from covey.parts.steps.cross import CrossEvaluate
from covey.parts.steps.evaluate import Evaluate

SAID = 1000  # samples to train on, and to test on, that a site with a budget is taken to have when it is asked for work


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The most that one request may take.

    passes: over the site's samples, every row that is sent counted. parameters: of the model. seconds: of work.
    megabytes: of the request.
    """

    passes: float = 1000.0
    parameters: int = 2**28
    seconds: float = 3600.0
    megabytes: int = 4096

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise UserError(f"--most-{field.name} is {value!r}; allowed: a number above 0")

    def check_work(self, step: Step, task: Task, train: int, test: int) -> None:
        """Refuses what would take too many passes over that many samples."""
        passes = max(1, len(task.models)) * step.work(train, test) / max(1, train)
        if not passes <= self.passes:
            raise Refused(
                f"{step.kind} would pass over this site's data {passes:.3g} times; it allows {self.passes:g}"
            )

    def check_model(self, spec: ModelSpec) -> None:
        """Refuses a model that is too large, before any memory is taken for it."""
        try:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in spec.build().parameters())
        except UserError as error:
            raise Refused(str(error)) from error
        if size > self.parameters:
            raise Refused(
                f"the model {spec.name!r} has {size:,} parameters; this site allows {self.parameters:,}"
            )

    @contextlib.contextmanager
    def in_time(self, wanted: float) -> Iterator[None]:
        """Ends the work after these seconds: the site's own, or those after which the server does not wait any more.

        The system's alarm reaches a program's main thread only, which is where `covey join` works.
        """
        seconds = min(self.seconds, wanted) if wanted > 0 else self.seconds
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            raise Refused(f"it took longer than {seconds:g} s")

        gradients = torch.is_grad_enabled()
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            torch.set_grad_enabled(gradients)  # the alarm may ring while `no_grad` is being exited


def check_budget(budget: float | None, trust_server: bool = False) -> None:
    """A budget is a finite number above 0, or none; without one there is nothing to trust the server with."""
    if budget is not None and not 0 < budget < math.inf:
        raise UserError(f"budget is {budget!r}; allowed: a number above 0")
    if trust_server and budget is None:
        raise UserError(
            "trust_server is for sites with a budget: without one the server is told everything it asks for"
        )


def check_counted(step: Any, budget: float, *, trusted: bool) -> None:
    """Refuses a step whose answer the account cannot count.

    A trusted server may have trained models, and evaluations on test data, that have no noise of the site's own.
    """
    kind = getattr(step, "kind", "")
    if isinstance(step, Evaluate) and step.split != "test":
        raise Refused(f"{kind} asks about training data, and this site has a budget of {budget:g}")
    if isinstance(step, CrossEvaluate) and step.holdout > 0.5:
        raise Refused(
            f"{kind} asks about most of the training data, and this site has a budget of {budget:g}"
        )
    if not getattr(step, "about_data", True) or getattr(step, "accounted", False):
        return
    asked = kind.startswith("query.")
    if asked and is_counted(step):
        return
    if kind and (asked or not trusted):
        remedy = "" if asked else "; --trust-server lets it answer"
        raise Refused(
            f"{kind} has no privacy loss that can be counted, and this site has a budget of {budget:g}{remedy}"
        )


def is_counted(step: Any) -> bool:
    """Whether an answer has a privacy loss that can be counted: as the step says, or as its noise does."""
    said = getattr(step, "counted", getattr(getattr(step, "privacy", None), "counted", False))
    return said is True  # a secure sum has a number of that name


def check_choice(step: Any, task: Task) -> None:
    """Which of several models fits the data best is an answer, too, and one without noise unless it is inside a sum."""
    unseen = not getattr(step, "about_data", True) or getattr(step, "hides_choice", False)
    if len(task.models) > 1 and not unseen:
        raise Refused(
            f"{step.kind} would tell which of {len(task.models)} models fits this site's data best, which has no "
            "privacy loss that can be counted, and this site has a budget"
        )
