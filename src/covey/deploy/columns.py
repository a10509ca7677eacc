"""What a site tells of the columns of its table: as they are, or sums with noise that its account counts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.core.privacy_loss import Loss
from covey.data.realign import asked, bounded_sums, structure, sums, without_range
from covey.data.schema import Schema
from covey.deploy.privacy_account import DELTA, PrivacyAccount, unusable
from covey.errors import Refused, UserError
from covey.files import write_atomically
from covey.parts.steps.gaussian_noise import secure_gaussian
from covey.privacy.accountant import Sampling, noise_for

if TYPE_CHECKING:
    from covey.deploy.site import SiteData

TOLD = "columns.json"  # in a site's folder: noisy sums that were told, which are told again at no loss
KEPT = 100  # of these answers, the latest
MOST_EPSILON = 1e6


def own_columns(data: SiteData, *, strict: bool, exact: bool = True) -> dict[str, Any]:
    """Names, kinds, categories and ranges of a site's columns, and the sums of its rows; nothing, with a budget.

    exact: whether the sums are asked for; a server that wants them with noise asks for those later.
    """
    if strict:
        return {"private": True}
    if data.dataset.schema is None:
        raise Refused("its samples have no column names to compare; join with --table")
    told = sums(data.dataset, data.rows) if exact else None
    return {"schema": structure(data.dataset.schema).plain(), **({} if told is None else {"sums": told})}


def noise_of(epsilon: float) -> float:
    """The noise for one answer of that loss, in lengths of what one row can change."""
    return noise_for(epsilon, DELTA, sampling=Sampling(), times=1)


def column_loss(epsilon: float) -> Loss:
    """The same as the accountant knows it: one sum over all rows, each there or not."""
    return Loss(what="summaries", mechanism="steps", noise=noise_of(epsilon))


class NoisyColumns:
    """A site's noisy sums: each is paid for once, and given again as it was."""

    def __init__(self, account: PrivacyAccount, folder: Path | None) -> None:
        self.account = account
        self.file = None if folder is None else folder / TOLD
        self.told: dict[str, list[float]] = {} if self.file is None else _read(self.file)

    def answer(
        self, request: Mapping[str, Any], under: Callable[[Schema], SiteData], data: str
    ) -> dict[str, Any]:
        """Sums of this site's rows under the schema that was sent, with Gaussian noise; booked before they are told.

        under: this site's data under a schema. data: the mark of the data.
        """
        epsilon = float(request["epsilon"])
        if not 0 < epsilon <= MOST_EPSILON:
            raise Refused(f"an epsilon of {epsilon} was asked for; allowed: a number above 0")
        try:
            schema = Schema.from_plain(request["schema"])
        except UserError as error:
            raise Refused(str(error)) from error
        if odd := without_range(schema):
            raise Refused(f"sums with noise need a range for the column {odd[0]!r}")
        question = json.dumps([schema.plain(), epsilon, data], sort_keys=True)
        number = hashlib.sha256(question.encode()).hexdigest()
        if number not in self.told:
            found = under(asked(schema))
            exact, change = bounded_sums(found.dataset, found.rows)
            loss = column_loss(epsilon)
            self.account.lose(loss)
            self.told[number] = list(secure_gaussian(loss.noise * change)(exact.tolist()))
            self.told = dict(list(self.told.items())[-KEPT:])
            if self.file is not None:
                try:
                    write_atomically(self.file, json.dumps(self.told).encode(), mode=0o600)
                except OSError as error:
                    raise unusable(error) from error
        return {"sums": np.array(self.told[number])}


def _read(file: Path) -> dict[str, list[float]]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        told = {str(number): [float(value) for value in values] for number, values in kept.items()}
        if not all(math.isfinite(value) for values in told.values() for value in values):
            raise ValueError("a sum is no finite number")
        return told
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"--state: {file} cannot be read: {type(error).__name__}: {error}") from error
