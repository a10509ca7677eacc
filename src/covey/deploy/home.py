"""A site's own model as a file in its own folder, with everything that is needed to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.data.types import Dataset
from covey.deploy.wire import ModelSpec
from covey.errors import UserError
from covey.folder.about import Inputs
from covey.folder.served_model import ModelFacts, ServedModel, read_model, sentence, write_model
from covey.folder.served_rows import digest
from covey.parts.steps.take_home import TakeHome

MODELS = "models"  # in a site's folder
KEPT = 16  # models of the latest runs


def keep_model(
    folder: Path,
    run: str,
    kept: Mapping[str, Any],
    *,
    step: TakeHome,
    round: int,
    spec: ModelSpec,
    dataset: Dataset,
    name: str,
) -> Path:
    """Writes the model that a run ends with; those of the latest runs stay."""
    facts = ModelFacts(
        method=step.method,
        round=round,
        client=name,
        slot=int(kept["slot"]),
        share=float(kept["share"]),
        measured=dict(kept["measured"]),
        dataset=dataset.name,
        classes=dataset.classes,
        inputs=Inputs.of(dataset),
        objective=spec.objective,
        model=spec.name,
        settings=dict(spec.settings),
        digest=digest(kept["row"]).hex(),
    )
    facts = replace(facts, given=sentence(facts, own=step.serving.own))
    path = folder / MODELS / f"{run}.safetensors"
    write_model(path, ServedModel(network=spec.build(), row=kept["row"], facts=facts))
    for old in newest(folder)[KEPT:]:
        old.unlink()
    return path


def newest(folder: Path) -> list[Path]:
    """The models in a site's folder, the latest first."""
    return sorted((folder / MODELS).glob("*.safetensors"), key=lambda file: -file.stat().st_mtime_ns)


def model_at(folder: Path) -> tuple[Path, ServedModel]:
    """The model of the latest run that has come to its end at this site."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the --state of covey join")
    files = newest(folder)
    if not files:
        raise UserError(f"{folder} holds no model yet: a site has one when a run has come to its end")
    return files[0], read_model(files[0])
