"""Auxo: its cohorts share a round's clients equally."""

from covey.methods.auxo import auxo
from covey.parts.steps.train import Train
from tests.made_up_rounds import make_round


def test_cohorts_share_a_round_equally() -> None:
    now = make_round((0.0, 0.0), replies={}, number=1)
    now.here, now.groups = list(range(10)), {i: int(i >= 7) for i in range(10)}
    chosen = auxo(Train(lr=0.1), per_round=4).select(now)
    assert [sum(now.groups[i] == cohort for i in chosen) for cohort in (0, 1)] == [2, 2]
    assert len(auxo(Train(lr=0.1), per_round=9).select(now)) == 9
