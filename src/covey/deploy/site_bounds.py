"""What a server may ask of a site at a time, by the site's own measure: a server cannot stall it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import FrameType

import torch

from covey.core.messages import Task
from covey.core.protocols import Step
from covey.deploy.wire import ModelSpec
from covey.errors import Refused, UserError


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

    def check_work(self, step: Step, task: Task, train: int, test: int, *, exact: bool = True) -> None:
        """Refuses what would take too many passes over the data; how many tells how much test data there is."""
        passes = max(1, len(task.models)) * step.work(train, test) / max(1, train)
        if not passes <= self.passes:
            often = f"{passes:.3g} times" if exact else "too often"
            raise Refused(f"{step.kind} would pass over this site's data {often}; it allows {self.passes:g}")

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
            torch.set_grad_enabled(gradients)  # the alarm may ring while `no_grad` is being left
