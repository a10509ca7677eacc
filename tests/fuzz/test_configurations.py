"""Whatever a file holds, it is accepted and runs, or it is refused in one sentence; `make fuzz` tries for an hour."""

import warnings
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.outcomes import carried_out, read
from tests.fuzz.strategies import configurations

FEW = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@FEW
@given(configurations())
def test_a_configuration_is_accepted_or_refused_in_a_sentence(tables: dict[str, Any]) -> None:
    assert read(tables)[0] in ("accepted", "refused")


@settings(FEW, max_examples=25)
@given(configurations(["digits"]))
def test_what_is_accepted_runs_or_says_why_not(tables: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, config = read(tables)
        assert config is None or carried_out(config) in ("ran", "refused")
