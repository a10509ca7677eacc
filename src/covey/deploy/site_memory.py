"""What a site remembers between requests, in a folder that one process at a time may use."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from covey.core.codec import from_bytes, to_bytes
from covey.deploy.privacy_account import PrivacyAccount, unusable
from covey.errors import UserError
from covey.files import folder_lock, write_atomically

RUNS_KEPT = 16  # runs whose state stays in the folder
PAID_KEPT = 16  # answers with noise of a round, the latest: a server may ask as often as it likes
ASKED = ("run", "round", "names", "seed", "client", "step", "model", "task")  # what makes a question the same


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


def question(request: Mapping[str, Any]) -> str:
    """Equal for the same question, whichever process of a server asks it."""
    asked = {name: request[name] for name in ASKED if name in request}
    return hashlib.sha256(to_bytes(asked)).hexdigest()


class Memory:
    """What a site remembers of runs: a run's state, also as it was when the round began.

    And of the round the answers with fresh noise, which were paid for: should one be asked for again, because it was
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
                files = sorted(
                    self.folder.glob("run-*.safetensors"), key=lambda file: file.stat().st_mtime_ns
                )
                for old in files[:-RUNS_KEPT]:
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
