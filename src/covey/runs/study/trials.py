"""Trials of Optuna: its samplers choose settings, its pruners end runs by their learning curve, SQLite keeps it all."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from covey.core.round import RoundEnd, Watcher
from covey.errors import UserError, importing
from covey.runs.run import Pruned

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "qmc": "QMCSampler",
}
PRUNERS = {
    "median": "MedianPruner",
    "hyperband": "HyperbandPruner",
    "halving": "SuccessiveHalvingPruner",
    "none": "NopPruner",
}
FILE = "optuna.db"
REFUSED = "refused"  # what Optuna keeps with a combination of settings that no run takes: why


def optuna() -> Any:
    """The package, imported when it is first used."""
    with importing("covey tune needs Optuna: pip install 'covey[studies]'"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def storage_of(folder: Path) -> str:
    """Where the trials are kept, as Optuna and its dashboard open it."""
    return f"sqlite:///{(folder / FILE).absolute()}"


def open_study(
    folder: Path, name: str, *, highest: bool, sampler: str, pruner: str, seed: int, warmup: int
) -> Any:
    """The method's study in the folder's database, new or as it was left."""
    package = optuna()
    make = getattr(package.samplers, SAMPLERS[sampler])
    prune = getattr(package.pruners, PRUNERS[pruner])
    return package.create_study(
        study_name=name,
        storage=storage_of(folder),
        direction="maximize" if highest else "minimize",
        sampler=make(seed=seed),
        pruner=prune(n_warmup_steps=warmup) if pruner == "median" else prune(),
        load_if_exists=True,
    )


@contextlib.contextmanager
def database(folder: Path) -> Iterator[None]:
    """Says in one sentence that the trials' database is damaged, full or of another program."""
    package = optuna()
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except (DatabaseError, package.exceptions.StorageInternalError) as error:
        cause = error if isinstance(error, DatabaseError) else error.__cause__
        why = getattr(cause, "orig", None) or cause
        raise UserError(
            f"{folder / FILE} cannot be used: {why}; without it the trials are made anew"
        ) from error


def put_back(study: Any) -> None:
    """Trials that were under way when the tuning ended are queued once more; their runs continue in their folders."""
    package = optuna()
    states = package.trial.TrialState
    for trial in study.get_trials(states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)
        study.enqueue_trial(trial.params, user_attrs=dict(trial.user_attrs), skip_if_exists=False)


def decided(study: Any) -> int:
    """Trials that came to an end, complete or pruned, or failed on their way; refused combinations are no trials."""
    states = optuna().trial.TrialState
    done = study.get_trials(states=(states.COMPLETE, states.PRUNED), deepcopy=False)
    failed = [t for t in study.get_trials(states=(states.FAIL,), deepcopy=False) if "why" in t.user_attrs]
    return len(done) + len(failed)


def pruning(*, storage: str, study: str, trial: int, metric: str) -> Watcher:
    """A watcher that tells Optuna the learning curve, and ends the run when its pruner has seen enough."""
    package = optuna()
    known = package.load_study(study_name=study, storage=storage)
    own = package.trial.Trial(known, trial)
    split, _, name = metric.partition("/")

    def watch(end: RoundEnd) -> None:
        value = end.value(split, name)
        if value is None:
            return
        with patient():
            own.report(value, end.state.round)
            if end.state.round < end.rounds and own.should_prune():
                raise Pruned

    return watch


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """A database that another process holds for long costs one report, not the run."""
    from sqlalchemy.exc import OperationalError

    try:
        yield
    except OperationalError:
        return


def importances(study: Any) -> Mapping[str, float]:
    """How much each setting mattered, as Optuna works it out; empty where there are too few trials."""
    package = optuna()
    done = study.get_trials(states=(package.trial.TrialState.COMPLETE,), deepcopy=False)
    values = {trial.value for trial in done}
    if len(done) < 4 or len(values) < 2:
        return {}
    found: dict[str, float] = package.importance.get_param_importances(study)
    return found
