"""The data-protection officer's page of a site, from its own state folder: what it told to whom, over all runs."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from covey.core.privacy_loss import Loss, Told
from covey.deploy.audit import AUDIT_FILE, checked_lines
from covey.deploy.privacy_account import DELTA, PrivacyAccount
from covey.deploy.site_data import MOST_UNCOUNTED
from covey.deploy.transport import HELLO
from covey.errors import UserError
from covey.privacy.composition import composed
from covey.privacy.persons import person_epsilon
from covey.report.officer import TO_SERVER, OfficerLine, Statement, exact
from covey.settings.catalogue import STEPS

MECHANISMS = {
    "stated": "noise of the site's own, which states its epsilon (Laplace, randomised response)",
    "local": "update clipped, Gaussian noise of the site's own",
    "sum": "secure sum, Gaussian noise of several sites",
    "steps": "Gaussian noise of the site's own on sums of clipped gradients or of unit vectors",
}
STATE_FILES = (
    ("epsilon, updates.json", "the account: what was told, and what it cost", "as long as the data are used"),
    (
        "answers.json",
        "the secret of answers that are told again",
        "as long as the data are used; never copied",
    ),
    ("run-*.safetensors, models", "models, and what the site remembers of runs", "until a run has ended"),
    (
        "compared.json, failed.json",
        "marks of the columns that its table was held against, and of questions that failed",
        "as long as the data are used",
    ),
    ("audit.jsonl", "who asked what, what was told and what it cost", "as long as accounts are owed"),
)


def of_site(folder: Path, rows: int | None = None) -> Statement:
    """What a site's folder knows: its account, and its audit trail."""
    if not any((folder / name).is_file() for name in ("epsilon", "updates.json", AUDIT_FILE)):
        raise UserError(
            f"{folder} is neither a run folder (config.toml) nor a site's --state folder (epsilon, "
            f"updates.json, {AUDIT_FILE})"
        )
    account = PrivacyAccount(folder, data=lambda: "")
    told: Told = dict(account.told)
    if account.epsilon:
        told[Loss(what="summaries", mechanism="stated", noise=account.epsilon)] = 1
    trail = (
        [line.facts for line in checked_lines(folder / AUDIT_FILE) if line.number]
        if (folder / AUDIT_FILE).is_file()
        else []
    )
    kinds = sorted({loss.what for loss in told})
    parts = {kind: {loss: n for loss, n in told.items() if loss.what == kind} for kind in kinds}
    lines = [line_of(kind, part, rows) for kind, part in parts.items()]
    lines += [line_of("all", told, rows)] if told else []
    lines += unaccounted(trail, kinds)
    return Statement(
        title=f"Privacy statement of the site {site_name(trail) or folder.name}",
        facts=facts_of(trail, folder),
        lines=lines,
        delta=DELTA,
        rows=rows,
        assumptions=assumptions_of(trail),
        uncovered=(
            "That this site participates, when, and for how long it works: server and network see it.",
            "The shape of its samples, how many classes there are, and, without a budget, how many samples: told to a "
            "server that is not private when the site joins.",
            f"Whether its table fits the columns that a server names, and whether a question fails at its data: "
            f"{MOST_UNCOUNTED} times each at most, with a budget.",
            "Models that the site trains on its own data before use: they stay here and have no guarantee.",
            *(
                ()
                if rows
                else ("Persons with several rows, unless --table and --person say how many each has.",)
            ),
        ),
        retention=STATE_FILES,
        holds_for="all that this state folder has booked",
    )


def line_of(kind: str, told: Told, rows: int | None) -> OfficerLine:
    ways = dict.fromkeys(MECHANISMS[loss.mechanism] for loss in told if loss.mechanism in MECHANISMS)
    return OfficerLine(
        what=kind,
        to=f"{TO_SERVER} and whoever sees the models",
        mechanism="all of it, composed" if kind == "all" else "; ".join(ways),
        sample=composed(told, DELTA, "sample"),
        person=None if rows is None else person_epsilon(told, DELTA, rows),
        client=composed(told, DELTA, "client"),
    )


def unaccounted(trail: list[Mapping[str, Any]], kinds: Collection[str]) -> list[OfficerLine]:
    """What the trail says was told without noise: of no answer of that kind the account knows a cost."""
    told = [one for one in trail if one.get("event") == "told"]
    counted = {one.get("kind") for one in told if "epsilon" in one}
    about_none = {
        getattr(step, "kind", "") for step in STEPS.values() if not getattr(step, "about_data", True)
    }
    silent = {HELLO, "query.frozen", *about_none}
    plain = Counter(str(one.get("kind")) for one in told if one.get("kind") not in counted | silent)
    found = []
    for what, start in (("updates", "train."), ("evaluations", "evaluate."), ("answers", "query.")):
        here = {kind: count for kind, count in plain.items() if kind.startswith(start)}
        if here and what not in kinds:
            named = ", ".join(f"{kind} {count}" for kind, count in here.items())
            found.append(exact(what, f"{TO_SERVER} (answers in the audit trail: {named})"))
    return found


def site_name(trail: list[Mapping[str, Any]]) -> str:
    return next((str(one["site"]) for one in reversed(trail) if one.get("site")), "")


def facts_of(trail: list[Mapping[str, Any]], folder: Path) -> tuple[str, ...]:
    if not trail:
        return (f"state folder {folder.name}", "no audit trail")
    started = [one for one in trail if one.get("event") == "started"]
    budget = started[-1].get("budget") if started else None
    runs = {one["run"] for one in trail if one.get("run")}
    return (
        f"state folder {folder.name}",
        f"{len(trail):,} lines of audit trail from {trail[0]['time']} to {trail[-1]['time']}, its chain "
        f"whole",
        f"{len(runs)} run{'s' * (len(runs) != 1)}",
        f"budget {budget:g} per sample, ever" if budget is not None else "no budget",
    )


def assumptions_of(trail: list[Mapping[str, Any]]) -> list[str]:
    started = [one for one in trail if one.get("event") == "started"]
    found = [
        "The --state folder is whole: what was deleted with it is not in these numbers (--anchor notices)."
    ]
    if started and started[-1].get("trust_server"):
        found.append(
            "The server is trusted with updates and evaluations on test data without noise of the site's "
            "own, which no "
            "number here covers (--trust-server)."
        )
    elif started and started[-1].get("budget") is not None:
        found.append("Nothing is assumed of the server: what the account cannot count is refused.")
    else:
        found.append("The site has no budget: the server is told all that it asks for, and may ask for more.")
    found.append("Colluding sites learn no more than the server does; secure sums trust their honest share.")
    return found
