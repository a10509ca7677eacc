"""Tuning: the same number of trials for every method, on validation data; then the best settings on test data."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import folder_lock, read_json, storing, write_atomically
from covey.folder.place import make, taken
from covey.runs.compare import in_file_names, with_method
from covey.runs.config import Config, resolve
from covey.runs.results import Study
from covey.runs.study.execute import Show, StudyInterrupted, execute
from covey.runs.study.plan import StudyJob, StudyPlan
from covey.runs.study.pool import JobOutcome, run_jobs
from covey.runs.study.room import side_by_side
from covey.runs.study.space import Knob, space_of, with_values
from covey.runs.study.trials import (
    PRUNERS,
    REFUSED,
    SAMPLERS,
    database,
    decided,
    importances,
    open_study,
    optuna,
    put_back,
    storage_of,
)
from covey.training.metrics import Metrics, higher_is_better
from covey.training.objective import objective_named

FILE = "tune.json"
MOST_REFUSED = 100  # combinations in a row


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is tuned, and how: kept in the folder's tune.json, so that it can be resumed."""

    methods: tuple[str, ...]
    tables: Mapping[str, Any]
    trials: int = 40
    over: tuple[str, ...] = ()
    sampler: str = "tpe"
    pruner: str = "median"
    validation: float = 0.2
    metric: str = ""
    test_seeds: int = 3

    def check(self) -> None:
        for name, value, known in (("sampler", self.sampler, SAMPLERS), ("pruner", self.pruner, PRUNERS)):
            if value not in known:
                raise UserError(f"--{name} is {value!r}; allowed: {', '.join(known)}")
        if not 0 < self.validation < 1:
            raise UserError(f"--validation is {self.validation:g}; allowed: above 0 and below 1")
        for method in self.methods:
            if not space_of(self.default(method), self.over):
                raise UserError(f"--over names no setting that {method} has")

    def default(self, method: str) -> Config:
        """The method as the file has it, measured on test data."""
        return resolve(with_method(self.tables, method))

    def measured(self) -> str:
        """The number that is tuned for."""
        config = self.default(self.methods[0])
        main = objective_named(config.top.objective).main
        return self.metric or f"local-test/{main}-mean"


@dataclass(kw_only=True)
class Tuned:
    """The result of one method: the best trial, its configuration, the importances, and the numbers on test data."""

    method: str
    best: Config
    value: float
    default_value: float | None
    params: Mapping[str, Any]
    space: Mapping[str, Knob]
    importance: Mapping[str, float]
    complete: int
    pruned: int
    failed: int
    refused: int
    rounds: int
    file: Path
    tested: Study | None = None


@dataclass(kw_only=True)
class Race:
    """One method under way: its study, and what it tries."""

    method: str
    config: Config  # on validation data
    space: Mapping[str, Knob]
    study: Any
    rounds: int = 0
    asked: dict[str, Any] = field(default_factory=dict)  # title of a job -> Optuna's trial
    in_a_row: int = 0  # combinations that were refused since one was not


def keep(tuning: Tuning, folder: Path) -> None:
    """Writes tune.json, or checks that the folder's own is the same."""
    text = json.dumps(asdict(tuning), indent=1)
    if (folder / FILE).exists():
        if (folder / FILE).read_text(encoding="utf-8") != text:
            raise UserError(f"folder {folder} holds another tuning; name another folder")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"folder {folder} is not empty; name a new folder")
    make(folder)
    with storing(folder):
        write_atomically(folder / FILE, text)


def read_tuning(folder: Path) -> Tuning:
    """The tuning of a folder."""
    try:
        raw = read_json(folder / FILE)
        return Tuning(**{**raw, "methods": tuple(raw["methods"]), "over": tuple(raw["over"])})
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not the folder of a tuning: it has no {FILE}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FILE} is damaged: {type(error).__name__}: {error}") from error


def tune(
    tuning: Tuning, folder: Path, *, show: Show, say: Callable[[str], None], processes: int | None = None
) -> list[Tuned]:
    """All trials of all methods, one method's after the other's in turn; then defaults and best on test data."""
    tuning.check()
    optuna()  # before anything is written
    keep(tuning, folder)
    with folder_lock(folder, taken(folder)), database(folder):
        keep(tuning, folder)  # another tuning may have come first
        try:
            return all_trials(tuning, folder, show=show, say=say, processes=processes)
        except (KeyboardInterrupt, StudyInterrupted):
            raise StudyInterrupted("tune", folder) from None


def all_trials(
    tuning: Tuning, folder: Path, *, show: Show, say: Callable[[str], None], processes: int | None
) -> list[Tuned]:
    """The trials that are left, and what comes after them."""
    metric = tuning.measured()
    races = [begin(tuning, method, folder, metric) for method in tuning.methods]
    queue = Trials(races=races, each=tuning.trials, folder=folder)

    def ended(job: StudyJob, outcome: JobOutcome) -> None:
        tell(queue.of_job[job.title], job, outcome, metric)

    def extra(job: StudyJob) -> Mapping[str, Any]:
        race = queue.of_job[job.title]
        trial = race.asked[job.title]._trial_id
        told = {"storage": storage_of(folder), "study": race.method, "trial": trial, "metric": metric}
        return {"trial": told}

    left = sum(max(0, tuning.trials - decided(race.study)) for race in races)
    with show(left) as shown:
        if left:
            at_once = side_by_side((race.config for race in races), left, processes)
            say(
                f"{left} trials on validation data ({tuning.validation:.0%} of each client's), {at_once} at a time"
            )
            run_jobs(queue, processes=at_once, show=shown, ended=ended, extra=extra)
    found = [conclude(race, tuning, folder) for race in races]
    for one in found if tuning.test_seeds else ():
        one.tested = on_test_data(one, tuning, folder, show, say, processes)
    return found


@dataclass(kw_only=True)
class Trials:
    """The next trial of the method that has had the fewest; more may follow the last, if that one was refused."""

    races: Sequence[Race]
    each: int
    folder: Path
    of_job: dict[str, Race] = field(default_factory=dict)

    def __iter__(self) -> Iterator[StudyJob]:
        return self

    def __next__(self) -> StudyJob:
        had = [decided(race.study) + len(race.asked) for race in self.races]
        fewest = min(had)
        if fewest >= self.each:
            raise StopIteration
        race = self.races[had.index(fewest)]
        job = ask(race, self.folder)
        self.of_job[job.title] = race
        return job


def begin(tuning: Tuning, method: str, folder: Path, metric: str) -> Race:
    """The method's study, whose first trial are the defaults."""
    default = tuning.default(method)
    config = resolve(with_values(default.tables, {"data.validation": tuning.validation}))
    space = space_of(default, tuning.over)
    study = open_study(
        folder,
        method,
        highest=higher_is_better(metric, Metrics()) is not False,
        sampler=tuning.sampler,
        pruner=tuning.pruner,
        seed=config.top.seed,
        warmup=max(1, config.top.rounds // 5),
    )
    put_back(study)
    usual = {key: value_in(default, key) for key in space}
    inside = {key: value for key, value in usual.items() if space[key].holds(value)}
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(inside, user_attrs={"default": len(inside) == len(space)})
    return Race(method=method, config=config, space=space, study=study)


def value_in(config: Config, key: str) -> Any:
    value: Any = config.tables
    for name in key.split("."):
        value = value[name]
    return value


def ask(race: Race, folder: Path) -> StudyJob:
    """The next trial as a run; settings that do not go together cost no trial, and others are drawn in their place."""
    while True:
        trial = race.study.ask()
        values = {key: knob.suggest(trial, key) for key, knob in race.space.items()}
        place = trial.user_attrs.get("folder") or f"trial-{trial.number:03}"
        trial.set_user_attr("folder", place)
        try:
            config = resolve(with_values(race.config.tables, {**values, "name": f"{race.method} {place}"}))
        except UserError as error:
            refuse(race, trial, str(error))
            continue
        job = StudyJob(
            label=f"{race.method} {place}",
            seed=config.top.seed,
            config=config,
            folder=folder / in_file_names(race.method) / place,
        )
        race.asked[job.title] = trial
        return job


def refuse(race: Race, trial: Any, why: str) -> None:
    """A combination that no run takes; where none of very many is taken, one sentence says why not."""
    trial.set_user_attr(REFUSED, why)
    race.study.tell(trial, state=optuna().trial.TrialState.FAIL)
    race.in_a_row += 1
    if race.in_a_row == MOST_REFUSED:
        raise UserError(
            f"{MOST_REFUSED} combinations in a row were refused for {race.method}; the last: {why}"
        )


def tell(race: Race, job: StudyJob, outcome: JobOutcome, metric: str) -> None:
    """How the trial ended."""
    states = optuna().trial.TrialState
    trial = race.asked.pop(job.title)
    if outcome.refused:
        refuse(race, trial, outcome.failed)
        return
    race.in_a_row = 0
    if outcome.stopped:
        race.study.tell(trial, state=states.PRUNED)
    elif metric in outcome.last:
        race.study.tell(trial, outcome.last[metric])
    else:
        measured = ", ".join(sorted(outcome.last))
        trial.set_user_attr(
            "why", outcome.failed or f"--metric {metric} is not measured; allowed: {measured}"
        )
        race.study.tell(trial, state=states.FAIL)


def conclude(race: Race, tuning: Tuning, folder: Path) -> Tuned:
    """The best trial, as a file that `covey run` takes."""
    states = optuna().trial.TrialState
    trials = race.study.get_trials(deepcopy=False)
    by_state = {state: [t for t in trials if t.state == state] for state in states}
    complete = by_state[states.COMPLETE]
    if not complete:
        said = (t.user_attrs.get("why") or t.user_attrs.get(REFUSED) for t in trials)
        why = next(filter(None, said), "none came to its end")
        raise UserError(f"no trial of {race.method} gave a number: {why}")
    best = race.study.best_trial
    config = resolve(with_values(tuning.default(race.method).tables, best.params))
    file = folder / f"best-{in_file_names(race.method)}.toml"
    with storing(folder):
        write_atomically(file, config.toml())
    default = next((t.value for t in complete if t.user_attrs.get("default")), None)
    return Tuned(
        method=race.method,
        best=config,
        value=best.value,
        default_value=default,
        params=best.params,
        space=race.space,
        importance=importances(race.study),
        complete=len(complete),
        pruned=len(by_state[states.PRUNED]),
        failed=sum("why" in t.user_attrs for t in by_state[states.FAIL]),
        refused=sum(REFUSED in t.user_attrs for t in by_state[states.FAIL]),
        rounds=sum(max(t.intermediate_values, default=0) for t in trials),
        file=file,
    )


def on_test_data(
    one: Tuned, tuning: Tuning, folder: Path, show: Show, say: Callable[[str], None], processes: int | None
) -> Study:
    """Defaults and best settings on all training data, measured on test data for the first time."""
    say(f"{one.method}: defaults and tuned settings on test data")
    configs = {"defaults": tuning.default(one.method), "tuned": one.best}
    plan = StudyPlan(kind="tune", configs=configs, seeds=tuning.test_seeds)
    return execute(plan, folder / in_file_names(one.method) / "test", show=show, say=say, processes=processes)
