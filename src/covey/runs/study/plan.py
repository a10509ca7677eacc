"""What a study runs: labels, configurations and seeds, kept in `study.json` so that it can be resumed from its
folder."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import read_json, storing, write_atomically
from covey.folder.place import make
from covey.runs.compare import in_file_names
from covey.runs.config import Config, resolve
from covey.settings.own_code import GIVEN

STUDY_FILE = "study.json"
SCHEMA = 1
MOST_RUNS = 100_000
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class StudyJob:
    """One run of a study."""

    label: str
    seed: int
    config: Config
    folder: Path

    @property
    def title(self) -> str:
        return f"{self.label} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study: each configuration is run with its seed and the next ones, `seeds` in all.

    `columns` are the settings that differ, by label, for a table of a sweep; a comparison has none.
    """

    kind: str  # compare, sweep
    configs: Mapping[str, Config]
    seeds: int
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seeds * len(self.configs) > MOST_RUNS:
            raise UserError(
                f"seeds is {self.seeds:,}, which makes {self.seeds * len(self.configs):,} runs; allowed: at most "
                f"{MOST_RUNS:,}"
            )
        last = max((config.top.seed for config in self.configs.values()), default=0) + self.seeds - 1
        if last > LARGEST_SEED:
            raise UserError(
                f"the last seed would be {last}; allowed: whole numbers from 0 to {LARGEST_SEED:,}"
            )

    def jobs(self, folder: Path) -> Iterator[StudyJob]:
        """All runs: every label with its first seed, then every label with the next one."""
        for number in range(self.seeds):
            for label, config in self.configs.items():
                seed = config.top.seed + number
                yield StudyJob(
                    label=label,
                    seed=seed,
                    config=Config(tables={**config.tables, "seed": seed, "name": label}),
                    folder=run_place(folder, label, seed),
                )

    @property
    def given(self) -> bool:
        """Whether it names objects of this Python program, which no other process has."""
        return any(GIVEN in config.toml() for config in self.configs.values())

    def json(self) -> str:
        tables = {label: json.loads(json.dumps(config.tables)) for label, config in self.configs.items()}
        whole = {"schema": SCHEMA, "kind": self.kind, "seeds": self.seeds, "columns": self.columns}
        return json.dumps({**whole, "runs": tables}, indent=1)


def run_place(folder: Path, label: str, seed: int) -> Path:
    """Where one run of a study lies."""
    return folder / in_file_names(label) / f"seed-{seed}"


def keep_plan(plan: StudyPlan, folder: Path) -> None:
    """Writes the plan into its folder, or checks that the folder's own is the same."""
    if (folder / STUDY_FILE).exists():
        if read_plan(folder).json() != plan.json():
            raise UserError(f"folder {folder} holds a study with other settings; name another folder")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"folder {folder} is not empty; name a new folder")
    make(folder)
    with storing(folder):
        write_atomically(folder / STUDY_FILE, plan.json())


def read_plan(folder: Path) -> StudyPlan:
    """The plan of a study's folder; one sentence where there is none."""
    try:
        raw: dict[str, Any] = read_json(folder / STUDY_FILE)
        if raw["schema"] != SCHEMA:
            raise UserError(
                f"{folder / STUDY_FILE} has schema {raw['schema']!r}; this version reads {SCHEMA}"
            )
        configs = {label: resolve(without_nothing(tables)) for label, tables in raw["runs"].items()}
        seeds, columns = int(raw["seeds"]), dict(raw["columns"])
        return StudyPlan(kind=str(raw["kind"]), configs=configs, seeds=seeds, columns=columns)
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not the folder of a study: it has no {STUDY_FILE}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / STUDY_FILE} is damaged: {type(error).__name__}: {error}") from error


def without_nothing(tables: Any) -> Any:
    """JSON's null as TOML writes it, "none", which every such setting takes."""
    if isinstance(tables, Mapping):
        return {key: without_nothing(value) for key, value in tables.items()}
    if isinstance(tables, list):
        return [without_nothing(value) for value in tables]
    return "none" if tables is None else tables
