"""A site's consent: the one study that a person approved here, and nothing beyond it is answered."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.deploy.audit import AUDIT_FILE as AUDIT
from covey.deploy.audit import Trail
from covey.deploy.privacy_account import write_kept
from covey.deploy.study import SiteStudy, verified
from covey.errors import Refused, UserError
from covey.files import read_json, write_atomically

SHOWN, APPROVED = "study-shown.json", "study.json"  # in a site's folder
HOW = "read it with covey join --show, then covey join --approve NAME"


def keep_shown(folder: Path, study: SiteStudy) -> None:
    """What `--show` showed is what `--approve` approves."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SHOWN, json.dumps(study.plain()))


def approve(folder: Path, ca: Path | None, *, by: str, budget: float | None, cpu: float | None) -> SiteStudy:
    """Writes down that a person approves the study that was shown here."""
    if not by.strip():
        raise UserError("--approve is empty; it must be the name of the person who approves")
    try:
        study = verified(read_json(folder / SHOWN), ca)
    except FileNotFoundError as error:
        raise UserError(f"no study was shown in {folder} yet; first: covey join ... --show") from error
    except Refused as no:
        raise UserError(str(no)) from no
    terms = {
        "by": by.strip(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "budget": budget,
        "cpu": cpu,
    }
    write_atomically(folder / APPROVED, json.dumps({**study.plain(), **terms, "used": 0.0}, indent=1))
    Trail(folder / AUDIT).note("approved", study=study.digest, by=by.strip(), budget=budget, cpu=cpu)
    return study


class Consent:
    """What was approved in a site's folder, if anything: `budget` and `cpu` (seconds in all) are the site's terms."""

    def __init__(self, folder: Path | None, ca: Path | None = None) -> None:
        self.file = None if folder is None else folder / APPROVED
        self.ca = ca
        self.kept: dict[str, Any] = {}
        if self.file is not None and self.file.exists():
            self.kept = read_json(self.file)
            try:
                self.study: SiteStudy | None = verified(self.kept, ca)
                self.by, self.used = str(self.kept["by"]), float(self.kept["used"])
            except (Refused, KeyError, TypeError, ValueError) as error:
                raise UserError(f"--state: {self.file} cannot be used: {error}; {HOW}") from error
        else:
            self.study = None

    @property
    def budget(self) -> float | None:
        return self.kept.get("budget")

    def greeted(self, plain: Any) -> None:
        """Refuses a server whose study was not approved here."""
        if plain is None:
            if self.study is not None:
                raise Refused(
                    f"this site answers only the study that {self.by} approved, and the server names none"
                )
            return
        named = verified(plain, self.ca)
        if self.study is None:
            raise Refused(f"the study {named.says.get('name')!r} is not approved at this site; {HOW}")
        if named.digest != self.study.digest:
            raise Refused(
                f"the study {named.says.get('name')!r} ({named.digest[:16]}) is not the one that {self.by} approved "
                f"({self.study.digest[:16]}): {', '.join(changes(self.study, named))}; {HOW}"
            )

    def asked(self, request: Mapping[str, Any]) -> None:
        """Refuses a task that is not of the approved study: by its study, method or round, or because CPU is spent."""
        digest = request.get("study")
        if self.study is None:
            if digest is not None:
                raise Refused(f"the server's study is not approved at this site; {HOW}")
            return
        says, method = self.study.says, request.get("method")
        if digest != self.study.digest:
            raise Refused(f"this site answers only the study that {self.by} approved")
        if method not in (None, says["method"]):
            raise Refused(f"the method is {method!r}, and {says['method']!r} was approved")
        if int(request["round"]) > says["rounds"]:
            raise Refused(
                f"round {request['round']} was asked for, and {says['rounds']} rounds were approved"
            )
        most = self.kept.get("cpu")
        if most is not None and self.used >= most:
            raise Refused(f"the study has used the {most:g} CPU seconds that were approved")

    def check_step(self, kind: str) -> None:
        """Refuses a step that the study does not name."""
        if self.study is not None and kind and kind not in self.study.says["steps"]:
            raise Refused(f"{kind} is not among the steps of the study that {self.by} approved")

    def use(self, seconds: float) -> None:
        """Counts CPU seconds of work for the study."""
        if self.study is None or self.file is None or self.kept.get("cpu") is None:
            return
        self.used += seconds
        self.kept["used"] = self.used
        write_kept(self.file, json.dumps(self.kept, indent=1))


def changes(old: SiteStudy, new: SiteStudy) -> list[str]:
    """Which parts of a study differ."""
    before, after = old.says, new.says
    return [f"another {name}" for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
