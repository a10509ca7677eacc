"""A server that means ill: it cannot stall a site, fill its memory, average its noise away or make it forget."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.hostile.frame import Outcome, attempt, broke, held


def prepare() -> None:
    """What all tries import, once."""
    import tests.deploy.one_request
    import tests.deploy.test_privacy_account  # noqa: F401


def refused(*, within: float = 60.0, **changes: Any) -> Outcome:
    """Whether a site refuses a request with these changes, at once."""
    from covey.core.codec import from_bytes
    from tests.deploy.one_request import one_request
    from tests.deploy.test_privacy_account import a_site

    site = a_site(None)
    began = time.monotonic()
    answer = from_bytes(site.answer(one_request(**changes)))
    took = time.monotonic() - began
    why = answer.get("refused") or answer.get("mistake", "")
    said = f"{why!r} after {took:.1f} s"
    return held(said) if why and took < within else broke(said)


@attempt("epochs = 10^9")
def epochs() -> Outcome:
    return refused(step={"step": "Train", "settings": {"lr": 0.1, "epochs": 10**9}})


@attempt("a model of 10^12 parameters")
def parameters() -> Outcome:
    from tests.deploy.one_request import SPEC

    return refused(model={**SPEC.plain(), "settings": {"hidden": (10**6, 10**6)}})


@attempt("a histogram of 10^9 bins")
def bins() -> Outcome:
    return refused(step={"step": "FeatureSummary", "settings": {"bins": 1000, "labels": 10**6}})


@attempt("work that takes longer than the server waits")
def slow() -> Outcome:
    from covey.deploy.wire import step_to_plain
    from covey.parts.steps import Train

    return refused(step=step_to_plain(Train(lr=1e-9, epochs=900, batch=1)), seconds=1.0)


@attempt("25 sessions, new runs and restarts, and a majority vote on the noisy bits")
def majority() -> Outcome:
    import numpy as np

    from covey.parts.steps.embedding import unpack
    from tests.deploy.test_privacy_account import a_site, bits

    folder = Path(tempfile.mkdtemp())
    said = [unpack(bits(a_site(folder), run=f"run-{n}", session=f"{n}")["bits"]) for n in range(25)]
    truth = unpack(bits(a_site(folder), flip=(0.0,))["bits"])
    one, vote = (float((x != truth).mean()) for x in (said[0], np.mean(said, axis=0) > 0.5))
    words = f"{one:.0%} of the bits are lies in one session, {vote:.0%} after the vote"
    return held(words) if one == vote > 0 else broke(words)


@attempt("25 encoders that hardly differ, against a budget")
def nudged() -> Outcome:
    from tests.deploy.test_privacy_account import a_site, bits, encoder

    site = a_site(Path(tempfile.mkdtemp()), budget=30.0)
    told = sum(isinstance(bits(site, row=encoder() + n * 1e-6), dict) for n in range(25))
    words = f"{told} of 25 questions are answered, epsilon {site.account.epsilon:.1f} of 30"
    return held(words) if told == 1 else broke(words)


@attempt("the epsilon file deleted, set back, and the secret removed")
def forgotten() -> Outcome:
    from covey.errors import UserError
    from tests.deploy.test_privacy_account import a_site, spent_site

    noticed = []
    for change in ("delete", "set back", "secret"):
        folder = Path(tempfile.mkdtemp())
        spent_site(folder)
        if change == "delete":
            (folder / "epsilon").unlink()
        elif change == "set back":
            (folder / "epsilon").write_text("0.6")
        else:
            (folder / "answers.json").unlink()
        try:
            a_site(folder)
        except UserError:
            noticed.append(change)
    return held(f"noticed: {', '.join(noticed)}") if len(noticed) == 3 else broke(f"noticed only: {noticed}")
