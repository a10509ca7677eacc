"""From a plan to its finished runs, and to one table and one page about all of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from covey.errors import UserError
from covey.files import folder_lock
from covey.folder.place import finished_summary, taken
from covey.report.page import write_report
from covey.runs.compare import in_one_sentence
from covey.runs.results import Run, Study
from covey.runs.run import Interrupted, run_or_resume
from covey.runs.study.plan import StudyJob, StudyPlan, keep_plan, read_plan
from covey.runs.study.pool import JobOutcome, run_jobs
from covey.runs.study.room import side_by_side
from covey.terminal import Many

Show = Callable[[int], AbstractContextManager[Many]]  # runs -> what shows several at once


class StudyInterrupted(Interrupted):
    """Ctrl-C: all runs are saved, and the study continues from its folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(folder, 0)
        self.args = (f"interrupted; resume with: covey {kind} --resume {folder}",)


def execute(
    plan: StudyPlan,
    folder: Path,
    *,
    show: Show,
    say: Callable[[str], None],
    processes: int | None = None,
    page: bool = True,
) -> Study:
    """Runs what has not been run yet, side by side as far as memory and cores allow, and writes the page of all."""
    keep_plan(plan, folder)
    with folder_lock(folder, taken(folder)):
        keep_plan(plan, folder)  # another study may have come first
        return execute_here(plan, folder, show=show, say=say, processes=processes, page=page)


def execute_here(
    plan: StudyPlan,
    folder: Path,
    *,
    show: Show,
    say: Callable[[str], None],
    processes: int | None,
    page: bool,
) -> Study:
    """The same in a folder that nobody else writes to."""
    finished: dict[str, dict[int, Run]] = {}
    failed: dict[str, str] = {}
    left = []
    for job in plan.jobs(folder):
        if is_finished(job):
            finished.setdefault(job.label, {})[job.seed] = Run(job.folder, label=job.label)
        else:
            left.append(job)
    if finished:
        say(f"{len(left)} of {len(left) + sum(map(len, finished.values()))} runs are left")

    def ended(job: StudyJob, outcome: JobOutcome) -> None:
        if outcome.failed:
            failed[job.title] = outcome.failed
        elif not outcome.stopped:
            finished.setdefault(job.label, {})[job.seed] = Run(job.folder, label=job.label)

    try:
        with show(len(left)) as shown:
            if plan.given:
                one_by_one(left, shown, ended)
            elif left:
                at_once = side_by_side((job.config for job in left), len(left), processes)
                say(f"{len(left)} runs, {at_once} at a time")
                run_jobs(iter(left), processes=at_once, show=shown, ended=ended)
    except (KeyboardInterrupt, Interrupted):
        raise StudyInterrupted(plan.kind, folder) from None
    ordered = {label: finished[label] for label in plan.configs if label in finished}
    study = Study(ordered, folder, failed, settings=plan.columns)
    if finished and page:
        replicas = study.replicas
        write_report(replicas.firsts, folder / "report.html", replicas)
    return study


def study_in(folder: Path) -> Study:
    """The finished runs of the study in a folder."""
    plan = read_plan(folder)
    finished: dict[str, dict[int, Run]] = {}
    for job in plan.jobs(folder):
        if finished_summary(job.folder) is not None:
            finished.setdefault(job.label, {})[job.seed] = Run(job.folder, label=job.label)
    if not finished:
        raise UserError(f"{folder} holds no finished run yet")
    return Study(finished, folder, settings=plan.columns)


def is_finished(job: StudyJob) -> bool:
    """Whether this very run lies there, finished."""
    if not (job.folder / "config.toml").exists() or finished_summary(job.folder) is None:
        return False
    return (job.folder / "config.toml").read_text(encoding="utf-8") == job.config.toml()


def one_by_one(jobs: list[StudyJob], show: Many, ended: Callable[[StudyJob, JobOutcome], None]) -> None:
    """In this process, which alone has the objects that a program gave."""
    for job in jobs:
        try:
            watch = show.watcher(job.title)
            run = run_or_resume(job.config, job.folder, watchers=[watch], say=show.say, report=False)
            outcome = JobOutcome(last=run.summary.plain()["last"])
        except Interrupted:
            raise
        except Exception as error:  # the other runs are worth having even if one fails
            outcome = JobOutcome(failed=in_one_sentence(error))
        show.done(job.title, outcome.failed)
        ended(job, outcome)
