"""Studies of the topologies paper that need no training."""

from __future__ import annotations

from typing import Any

from covey.parts.mix.estimate import Design, estimate
from experiments.spec import Findings


def figure2(settings: dict[str, Any], seed: int) -> Findings:
    """The nodes' deviation from the average of all models by communication round, for each backbone."""
    rows, curves = {}, {}
    for backbone in settings["backbones"]:
        design = Design(
            kind="decentralized",
            backbone=backbone,
            nodes=settings["nodes"],
            clusters=settings["nodes"],
            seed=seed,
        )
        found = estimate(design, rounds=settings["rounds"], parameters=1).deviation
        rows[backbone] = {f"round {number}": round(value, 4) for number, value in enumerate(found)}
        curves[backbone] = (list(range(len(found))), list(found))
    return Findings(rows=rows, curves=curves)
