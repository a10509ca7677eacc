"""One client of eight lies in every answer: no method may end or bend over it."""

from __future__ import annotations

from tests.hostile.frame import Outcome, attempt, held


@attempt("nobody lies: every method ends", seconds=300)
def honest() -> Outcome:
    from covey.methods import METHODS
    from covey.testing import check_toml, final, small_fleet

    quick = {"embedding": {"pretrain_rounds": 1, "pretrain_epochs": 1}}
    for name in METHODS:
        final(check_toml(name, quick.get(name, {})), small_fleet())
    return held(f"{len(METHODS)} of {len(METHODS)} methods")
