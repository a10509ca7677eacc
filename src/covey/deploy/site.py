"""A site: answers requests with the steps of its own covey, keeps its state on disk and its own privacy budget."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from covey.bench import Bench
from covey.codec import from_bytes, named_from_bytes, to_bytes
from covey.core import Reply, Task
from covey.data.types import Dataset, Samples
from covey.deploy.wire import ModelSpec, model_from_plain, step_from_plain
from covey.errors import Refused, UserError
from covey.fleet.executors import one_thread
from covey.fleet.work import Call, Job, Outcome, do
from covey.folder_lock import folder_lock
from covey.own_code import bare_name, load_own
from covey.registry import only_installed
from covey.steps.cross import CrossEvaluate
from covey.steps.evaluate import Evaluate
from covey.steps.poison import Poisoned
from covey.text import printable
from covey.version import __version__
from covey.writing import write_atomically

HELLO = "query.hello"
RUN_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}")
RUNS_KEPT = 16  # runs whose state stays in the folder
BENCHES_KEPT = 4  # models that are ready to work


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteData:
    """A site's own data: the same in every round."""

    train_samples: Samples
    test_samples: Samples

    def train(self, client: int, number: int) -> Samples:  # noqa: ARG002
        return self.train_samples

    def test(self, client: int, number: int) -> Samples:  # noqa: ARG002
        return self.test_samples

    @classmethod
    def of(cls, data: Any) -> SiteData:
        """Of what a user's load function gives: a Dataset, a (train, test) pair of Samples, or a SiteData."""
        if isinstance(data, SiteData):
            return data
        if isinstance(data, Dataset):
            return cls(train_samples=Samples(data, data.train), test_samples=Samples(data, data.test))
        if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Samples) for part in data):
            return cls(train_samples=data[0], test_samples=data[1])
        raise UserError(
            f"the load function gave a {type(data).__name__}; it must give a covey Dataset (see from_tensors) "
            "or a pair of Samples for training and test"
        )


@contextlib.contextmanager
def locked_folder(folder: Path, *, wait: bool = False) -> Iterator[Path]:
    """A site's folder, for one process at a time: two would each spend the whole budget."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--state {folder} cannot be made: {error.strerror or error}") from error
    taken = f"--state {folder} is used by another covey join; give each its own"
    with folder_lock(folder, None if wait else taken):
        yield folder


class Memory:
    """What a site remembers: a run's state, also as it was when the round began, and its budget's account."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.runs: dict[str, dict[str, Any]] = {}
        self.epsilon = 0.0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.epsilon = _spent(folder / "epsilon")

    def open(self, run: str, session: str, number: int) -> dict[str, Any]:
        """The client's state for a request of that round; a server that goes on after a crash finds it as it was."""
        kept = self.runs.get(run) or self._read(run)
        if kept is None:
            kept = {"session": session, "round": number, "state": {}, "before": {}}
        elif kept["round"] != number:
            kept = {"session": session, "round": number, "state": kept["state"], "before": kept["state"]}
        elif kept["session"] != session:
            kept = {**kept, "session": session, "state": kept["before"]}
        self.runs = {run: kept}
        return dict(kept["state"])

    def close(self, run: str, state: Mapping[str, Any]) -> None:
        """Keeps the new state; what was spent of the budget stays spent, whatever becomes of the run."""
        self.runs[run] = {**self.runs[run], "state": dict(state)}
        self.epsilon = max(self.epsilon, float(state.get("epsilon", 0.0)))
        if self.folder is not None:
            try:
                write_atomically(self.folder / "epsilon", repr(self.epsilon))
                write_atomically(self._path(run), to_bytes(self.runs[run]))
                files = sorted(
                    self.folder.glob("run-*.safetensors"), key=lambda file: file.stat().st_mtime_ns
                )
                for old in files[:-RUNS_KEPT]:
                    old.unlink()
            except OSError as error:
                raise _unusable(error) from error

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
            raise _unusable(error) from error
        return kept


def _spent(file: Path) -> float:
    """What was spent before; a file that does not say it is a mistake, not a new budget."""
    try:
        spent = float(file.read_text())
    except FileNotFoundError:
        return 0.0
    except (OSError, ValueError) as error:
        raise UserError(f"--state: {file} cannot be read: {error}") from error
    if not spent >= 0:
        raise UserError(f"--state: {file} says that {spent} of the budget is spent; it must be at least 0")
    return spent


def _unusable(error: Exception) -> Refused:
    return Refused(f"this site's --state folder cannot be used: {getattr(error, 'strerror', None) or error}")


def check_budget(budget: float | None) -> None:
    """A budget is a finite number above 0, or none."""
    if budget is not None and not 0 < budget < math.inf:
        raise UserError(f"the budget is {budget!r}; it must be a finite number greater than 0")


class Site:
    """One client on its own machine."""

    def __init__(
        self,
        data: Any,
        *,
        name: str = "",
        folder: Path | None = None,
        budget: float | None = None,
        allow: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_budget(budget)
        # Things of this site's own that a server may ask for by their bare names.
        self.allowed = {bare_name(thing): thing for thing in allow}
        for thing in allow:
            load_own(thing, f"--allow {thing}")
        self.data = SiteData.of(data)
        self.name = name
        self.budget = budget
        self.say = say
        self.memory = Memory(folder)
        self.benches: dict[str, Bench] = {}
        self.left_out = ""

    def answer(self, block: bytes) -> bytes:
        """Answers one request, both as bytes; nothing in a request can run code, or raise anything here."""
        try:
            request = named_from_bytes(block)
            if request.get("covey") != __version__:
                raise Refused(
                    f"the server has covey {request.get('covey')}, this site has {__version__}; install the same"
                )
            if "hello" in request:
                self.hear(str(request.get("left_out", "")))
                return to_bytes(self.hello())
            with only_installed(self.allowed):
                return to_bytes(self._work(request))
        except Refused as no:
            reason = str(no)
        except Exception as error:  # a server must not be able to stop a site
            reason = f"the request cannot be answered: {type(error).__name__}: {error}"
        reason = printable(reason)
        self.say(f"refused: {reason}")
        return to_bytes({"refused": reason})

    def hello(self) -> dict[str, Any]:
        """What a site tells about itself: how many samples, of what shape; nothing of what they are."""
        samples = self.data.train_samples
        return {
            "covey": __version__,
            "name": self.name,
            "sizes": [len(samples), len(self.data.test_samples)],
            "shape": list(samples.dataset.x.shape[1:]),
            "classes": len(samples.dataset.classes),
            "labels": names_mark(samples.dataset.classes),
        }

    def hear(self, left_out: str) -> None:
        """Says once why the server leaves this site out."""
        if left_out and left_out != self.left_out:
            self.say(f"the server leaves this site out: {printable(left_out)}")
        self.left_out = left_out

    def _work(self, request: Mapping[str, Any]) -> dict[str, Any]:
        step = self._permitted(step_from_plain(request["step"]))
        spec = model_from_plain(request["model"])
        if spec.shape != tuple(self.data.train_samples.dataset.x.shape[1:]):
            raise Refused(
                f"the model takes samples of shape {spec.shape}, this site's have "
                f"{tuple(self.data.train_samples.dataset.x.shape[1:])}"
            )
        client, run = int(request["client"]), str(request["run"])
        if not RUN_NAME.fullmatch(run):
            raise Refused(
                f"the run is called {run!r}; at most 80 letters, digits, '.', '_' and '-' are allowed"
            )
        call = Call(
            step=step,
            seed=int(request["seed"]),
            round=int(request["round"]),
            names=tuple(request["names"]),
            live=True,
        )
        state = self.memory.open(run, str(request["session"]), call.round)
        state["epsilon"] = self.memory.epsilon
        started = time.perf_counter()
        with one_thread():
            job = Job(ids=(client,), tasks=(Task(**request["task"]),), states=(state,))
            outcome = do(call, job, self.data, self._bench(spec))[0]  # type: ignore[arg-type]
        if not outcome.mistake:
            self.memory.close(run, outcome.state)
        seconds = time.perf_counter() - started
        self.say(f"round {call.round}: {step.kind} in {seconds:.2f} s{problem(outcome)}")
        return {
            "reply": _plain_reply(outcome.reply) if outcome.reply else None,
            "lost": outcome.lost,
            "refused": outcome.refused,
            "mistake": outcome.mistake,
            "seconds": seconds,
        }

    def _bench(self, spec: ModelSpec) -> Bench:
        """The bench of a model; those used last are kept."""
        key = repr(spec)
        bench = self.benches.pop(key, None) or spec.bench()
        self.benches[key] = bench
        if len(self.benches) > BENCHES_KEPT:
            del self.benches[next(iter(self.benches))]
        return bench

    def _permitted(self, step: Any) -> Any:
        """The step, and every step within it, under this site's rules and its own budget."""
        parts = {f.name: getattr(step, f.name) for f in fields(step)}
        step = replace(
            step, **{name: self._permitted(part) for name, part in parts.items() if is_dataclass(part)}
        )
        kind = getattr(step, "kind", "")
        if isinstance(step, Poisoned):
            raise Refused(f"{kind} is an attack, which is for simulations")
        if self.budget is None:
            return step
        if isinstance(step, Evaluate) and step.split != "test":
            raise Refused(f"{kind} asks about training data, and this site has a budget of {self.budget:g}")
        if isinstance(step, CrossEvaluate) and step.holdout > 0.5:
            raise Refused(
                f"{kind} asks about most of the training data, and this site has a budget of {self.budget:g}"
            )
        if not kind.startswith("query."):
            return step
        privacy = getattr(step, "privacy", None)
        if privacy is None or not privacy.counted:
            raise Refused(
                f"{kind} has no privacy loss that can be counted, and this site has a budget of {self.budget:g}"
            )
        least = self.budget if privacy.budget is None else min(self.budget, privacy.budget)
        return replace(step, privacy=replace(privacy, budget=least))


def names_mark(classes: Sequence[str]) -> str:
    """Equal for the same names in the same order."""
    return hashlib.sha256("\0".join(classes).encode()).hexdigest()


def problem(outcome: Outcome) -> str:
    """What went wrong, for the log."""
    what = outcome.lost or outcome.refused or outcome.mistake
    return f" ({what})" if what else ""


def _plain_reply(reply: Reply) -> dict[str, Any]:
    return {
        "id": reply.id,
        "vector": reply.vector,
        "slot": reply.slot,
        "size": reply.size,
        "stats": dict(reply.stats),
    }
