"""What a site with a privacy budget lets out: what its account counts, and nothing else unless it trusts the server."""

from __future__ import annotations

import math
from typing import Any

from covey.core.round import Task
from covey.errors import Refused, UserError
from covey.parts.steps.cross import CrossEvaluate
from covey.parts.steps.evaluate import Evaluate


def check_budget(budget: float | None, trust_server: bool = False) -> None:
    """A budget is a finite number above 0, or none; without one there is nothing to trust the server with."""
    if budget is not None and not 0 < budget < math.inf:
        raise UserError(f"budget is {budget!r}; allowed: a number above 0")
    if trust_server and budget is None:
        raise UserError(
            "trust_server is for sites with a budget: without one the server is told all that it asks for"
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
    return bool(getattr(step, "counted", getattr(getattr(step, "privacy", None), "counted", False)))


def check_choice(step: Any, task: Task) -> None:
    """Which of several models fits the data best is an answer, too, and one without noise."""
    if len(task.models) > 1 and getattr(step, "about_data", True):
        raise Refused(
            f"{step.kind} would tell which of {len(task.models)} models fits this site's data best, which has no "
            "privacy loss that can be counted, and this site has a budget"
        )
