"""What a site keeps in its folder, which one process at a time may use: the state of runs, and its own models as files
with everything that is needed to use them.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from covey.core import Client, Reply, Step, Task
from covey.core.codec import from_bytes, to_bytes
from covey.deploy.outcomes import is_training
from covey.deploy.privacy_account import PrivacyAccount, unusable
from covey.deploy.wire import ModelSpec
from covey.errors import UserError, user_error
from covey.files import folder_lock, newest, write_atomically
from covey.folder.about import Inputs
from covey.folder.served_model import ModelFacts, ServedModel, read_model, sentence, write_model
from covey.folder.served_rows import digest
from covey.parts.steps.evaluate import Evaluate, values_in
from covey.parts.steps.take_home import TakeHome
from covey.parts.steps.train import best_row

RUNS_KEPT = 16  # runs whose state stays in the folder
PAID_KEPT = 16  # answers with noise of a round, the latest: a server may ask as often as it likes
ASKED = ("run", "round", "names", "seed", "client", "step", "model", "task")  # what makes a question the same


@contextlib.contextmanager
def locked_folder(folder: Path, *, wait: bool = False) -> Iterator[Path]:
    """A site's folder, for one process at a time: two would each spend the whole budget."""
    with user_error(f"--state {folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    taken = f"--state {folder} is used by another covey join; give each its own"
    with folder_lock(folder, None if wait else taken):
        yield folder


def question(request: Mapping[str, Any]) -> str:
    """Equal for the same question, whichever process of a server asks it."""
    asked = {name: request[name] for name in ASKED if name in request}
    return hashlib.sha256(to_bytes(asked)).hexdigest()


class Memory:
    """What a site remembers of runs: a run's state, also as it was when the round began.

    And the round's answers with fresh noise, which were paid for: should one be asked for again, because it was
    lost or the server continues after a crash, it is given as it was and costs nothing.
    """

    def __init__(self, folder: Path | None, account: PrivacyAccount) -> None:
        self.folder = folder
        self.account = account
        self.runs: dict[str, dict[str, Any]] = {}

    def open(self, run: str, session: str, number: int) -> dict[str, Any]:
        """The client's state for a request of that round; a server that continues after a crash finds it as it was."""
        kept = self.runs.get(run) or self._read(run)
        if kept is None:
            kept = {"session": session, "round": number, "state": {}, "before": {}, "paid": {}}
        elif kept["round"] != number:
            state = kept["state"]
            kept = {"session": session, "round": number, "state": state, "before": state, "paid": {}}
        elif kept["session"] != session:
            kept = {**kept, "session": session, "state": kept["before"]}
        self.runs = {run: kept}
        return dict(kept["state"])

    def paid(self, run: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was answered to this very question in this round, if it has fresh noise; the state is as after it."""
        kept = self.runs[run]
        if not kept.get("paid") or (found := kept["paid"].get(question(request))) is None:
            return None
        self.runs[run] = {**kept, "state": found["state"]}
        answer: dict[str, Any] = found["answer"]
        return answer

    def close(
        self,
        run: str,
        state: Mapping[str, Any],
        paid: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    ) -> None:
        """Keeps the new state, with what the account says: should that be set back, this knows better.

        `paid` is a question that was answered with fresh noise, and its answer.
        """
        known = {**state, "epsilon": self.account.epsilon, "updates": sum(self.account.told.values())}
        self.runs[run] = {**self.runs[run], "state": known, "mark": self.account.mark}
        if paid is not None:
            again = {question(paid[0]): {"answer": dict(paid[1]), "state": known}}
            kept = {**self.runs[run].get("paid", {}), **again}
            self.runs[run]["paid"] = {number: kept[number] for number in list(kept)[-PAID_KEPT:]}
        if self.folder is not None:
            try:
                write_atomically(self._path(run), to_bytes(self.runs[run]))
                for old in newest(self.folder, "run-*.safetensors")[RUNS_KEPT:]:
                    old.unlink()
            except OSError as error:
                raise unusable(error) from error

    def _path(self, run: str) -> Path:
        assert self.folder is not None
        return self.folder / f"run-{run}.safetensors"

    def _read(self, run: str) -> dict[str, Any] | None:
        if self.folder is None:
            return None
        try:
            kept: dict[str, Any] = from_bytes(self._path(run).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise unusable(error) from error
        return kept


MODELS = "models"  # in a site's folder
KEPT = 16  # models of the latest runs
GOES_ON = "; the run had not come to its end at this site"


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """What a site has just done for a run.

    method: the run's, empty for a model that the method makes for itself. measures: whether it measures the run, for
    the first time in this round. network: makes the model that its rows belong to.
    """

    run: str
    method: str
    step: Step
    measures: bool
    task: Task
    reply: Reply
    client: Client
    spec: ModelSpec
    network: Callable[[], nn.Module]


class Home:
    """Where a site keeps the models of its runs, and under whose name.

    Of a run it keeps the latest: the model that the run ends with, which every site is sent then; before that the one
    that was measured last; and where nothing is measured at the sites, what this site was last sent to train.
    """

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.site = site
        self.used: dict[str, bool] = {}  # whether a run's model here is one that the site uses

    def keep(self, work: Work, kept: Mapping[str, Any] | None) -> Path | None:
        """Writes what a step left (`kept`) or was sent, if it is the site's model; the path where the run has ended."""
        step, client = work.step, work.client
        if not work.method:  # a model that the method makes for itself, such as an encoder
            return None
        if isinstance(step, TakeHome) and kept is not None:
            self.write(work, kept, measured=kept["measured"])
            return self.path(work.run)
        if kept is not None and work.measures:
            self.write(work, kept, measured=measured_by(step, work.reply), ending=GOES_ON)
        elif not is_training(step) or client.round == 1 or self.is_used(work.run):
            return None
        elif (
            len(work.task.models) and work.task.models.shape[1] == client.bench.layout.size
        ):  # no part of one
            slot, row = sent(client, work.task, work.reply)
            given = (
                f"model {slot} of {work.method} after round {client.round - 1}, as it was sent to client {self.site} "
                f"to be trained in round {client.round}{GOES_ON}"
            )
            self.write(work, {"row": row, "slot": slot, "share": 0.0}, given=given)
        return None

    def write(
        self,
        work: Work,
        kept: Mapping[str, Any],
        *,
        measured: Mapping[str, float] | None = None,
        ending: str = "",
        given: str = "",
    ) -> None:
        """The row as a file, with all that is known of it; the models of the latest runs stay."""
        dataset, spec = work.client.train.dataset, work.spec
        facts = ModelFacts(
            method=work.method,
            round=work.client.round - bool(given),
            client=self.site,
            slot=int(kept["slot"]),
            share=float(kept["share"]),
            measured=dict(measured or {}),
            dataset=dataset.name,
            classes=dataset.classes,
            inputs=Inputs.of(dataset),
            objective=spec.objective,
            model=spec.name,
            settings=dict(spec.settings),
            digest=digest(kept["row"]).hex(),
            frozen=spec.frozen,
        )
        facts = replace(facts, given=given or sentence(facts, own=bool(kept["own"])) + ending)
        write_model(self.path(work.run), ServedModel(network=work.network(), row=kept["row"], facts=facts))
        self.used[work.run] = not given
        for old in newest(self.folder / MODELS, "*.safetensors")[KEPT:]:
            old.unlink()

    def path(self, run: str) -> Path:
        return self.folder / MODELS / f"{run}.safetensors"

    def is_used(self, run: str) -> bool:
        """Whether the run's model here is one that the site uses, rather than one that it was sent to train."""
        if run not in self.used:
            path = self.path(run)
            self.used[run] = path.exists() and "to be trained" not in read_model(path).facts.given
        return self.used[run]


def measured_by(step: Step, reply: Reply) -> dict[str, float]:
    """What the step found, where that is exact and of all test data."""
    if not isinstance(step, Evaluate) or step.split != "test" or step.share < 1:
        return {}
    return {f"local-test/{name}": value for name, value in values_in(reply.stats).items()}


def sent(client: Client, task: Task, reply: Reply) -> tuple[int, Tensor]:
    """The row that a client was sent and trained, with what stays at home; of several the one that it chose."""
    if len(task.models) > 1 and reply.slot in task.slots:
        place = task.slots.index(reply.slot)
        task = replace(task, models=task.models[place][None], slots=(reply.slot,))
    return best_row(client, task)


def model_at(folder: Path) -> tuple[Path, ServedModel]:
    """The model of the latest run at this site."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the --state of covey join")
    files = newest(folder / MODELS, "*.safetensors")
    if not files:
        raise UserError(f"{folder} holds no model yet: a site has one once it has trained in a run")
    return files[0], read_model(files[0])
