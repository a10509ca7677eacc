"""One page for a data-protection officer: who learns what, from whom, by which mechanism, at which epsilon; to sign."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.errors import RunError
from covey.files import reason, write_atomically
from covey.folder.read import RunView
from covey.privacy.settings import GRADIENT
from covey.report.markup import Html, cells_table, tag
from covey.report.page import POLICY, STYLE, part_of_page
from covey.report.privacy_tables import shown_epsilon
from covey.terminal import in_order
from covey.version import __version__

MEANT = {
    "updates": "how a client's data move a model in training",
    "summaries": "counts of labels and features",
    "embeddings": "what the classes of a client look like",
    "labels": "which label stands out at a client",
    "evaluations": "how good a model is on a client's test data",
    "answers": "what else was asked of a client's data",
}
TO_SERVER, TO_ALL = "the server", "whoever sees the models"
PRINT = "@media print { body { font-size: 10pt; } section { break-inside: avoid; margin: 1rem 0; } }"
SIGN = "Name, function, date, signature: ______________________________________________"


@dataclass(frozen=True, kw_only=True)
class OfficerLine:
    """One kind of thing that is told: to whom, by which mechanism, and what it costs a sample, a person, a client."""

    what: str
    to: str
    mechanism: str
    sample: float
    person: float | None
    client: float


@dataclass(frozen=True, kw_only=True)
class Statement:
    """All that the page says."""

    title: str
    facts: Sequence[str]
    lines: Sequence[OfficerLine]
    delta: float
    rows: int | None
    assumptions: Sequence[str]
    uncovered: Sequence[str]
    retention: Sequence[tuple[str, str, str]]
    purpose: str = ""
    holds_for: str = "this run"


def write_statement(statement: Statement, path: Path) -> None:
    """Writes the page, at once or not at all."""
    try:
        write_atomically(path, in_order(page(statement)))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {reason(error)}") from error


# ---------------------------------------------------------------------------------------------- of a run


def of_run(run: RunView, rows: int | None = None) -> Statement:
    """What a run folder knows: the ledger of all clients, the worst of them, and the settings."""
    tables = tomllib.loads(run.config)
    private = {name: value for name, value in tables.get("private", {}).items() if value != "none"}
    told = run.summary.privacy.get("clients", {})
    kinds = sorted({kind for one in told.values() for kind in one.get("sample", {}) if kind != "all"})
    lines = [ledger_line(kind, told, private) for kind in kinds]
    if lines:
        lines.append(ledger_line("all", told, private))
    if "updates" not in kinds:
        seen = (
            "sums over clients, under masks (SecAgg+); no noise" if private.get("secure") else "none: exact"
        )
        lines.insert(0, exact("updates", TO_SERVER, seen))
    if private.get("evaluations") is None and tables.get("measure", {}).get("local_test", True):
        lines.append(exact("evaluations", f"{TO_SERVER}, in the run's own measurements"))
    at = datetime.fromtimestamp((run.path / "config.toml").stat().st_mtime, UTC)
    facts = (
        f"run folder {run.path.name}",
        f"method {run.summary.method}",
        f"{run.summary.clients:,} clients",
        f"{run.summary.rounds_done} of {run.summary.rounds} rounds",
        f"begun {at:%Y-%m-%d %H:%M} UTC",
        f"covey {run.summary.covey or __version__}",
    )
    return Statement(
        title=f"Privacy statement of the run {run.label}",
        facts=facts,
        lines=lines,
        delta=float(run.summary.privacy.get("delta", private.get("delta", 1e-5))),
        rows=rows,
        assumptions=assumptions_of(private, simulated=run.simulated),
        uncovered=uncovered_by(private, run.summary.method),
        retention=RUN_FILES,
        purpose=str((tables.get("sites") or {}).get("purpose", "")),
    )


def ledger_line(kind: str, told: Mapping[str, Any], private: Mapping[str, Any]) -> OfficerLine:
    """The largest loss of any client."""

    def most(whose: str) -> float:
        values = [one.get(whose, {}).get(kind, 0.0) for one in told.values()]
        return max((math.inf if value is None else float(value) for value in values), default=0.0)

    trusted = private.get("level", "client") == "client" and private.get("noise_from") != "clients"
    summed = kind in ("updates", "embeddings", "all") and trusted
    covered = {"updates", "embeddings"} if private.get("level", "client") != "example" else set()
    kinds = {name for one in told.values() for name in one.get("sample", {})} - {"all"}
    # noise on whole updates hides whatever of its data a client changes
    by_update = kind in covered or (kind == "all" and kinds <= covered)
    return OfficerLine(
        what=kind,
        to=TO_ALL if summed else f"{TO_SERVER} and {TO_ALL}",
        mechanism="all of it, composed" if kind == "all" else mechanism(kind, private),
        sample=most("sample"),
        person=most("sample") if by_update else None,
        client=most("client"),
    )


def exact(kind: str, to: str, seen: str = "none: exact") -> OfficerLine:
    """Of what has no bound."""
    return OfficerLine(what=kind, to=to, mechanism=seen, sample=math.inf, person=math.inf, client=math.inf)


def mechanism(kind: str, private: Mapping[str, Any]) -> str:
    """In words, by level and settings."""
    level = private.get("level", "client")
    clip = private.get("clip", "auto")
    if clip == "auto":
        clip = GRADIENT if level == "example" else "adaptive"
    if kind == "evaluations":
        return f"discrete noise on counts, epsilon {private.get('evaluations')} each"
    if kind == "updates" and level == "example":
        return (
            f"DP-SGD at the client: Poisson batches, gradients of samples clipped to {clip}, Gaussian noise"
        )
    if kind == "updates" and level == "local":
        return f"update clipped to {clip}, Gaussian noise of the client's own"
    if kind in ("updates", "embeddings") and level == "client":
        whose = "the clients" if private.get("noise_from") == "clients" else "the server"
        masks = ", under masks (SecAgg+)" if private.get("secure") else ""
        length = f"clipped to {length_of(clip)}" if kind == "updates" else "of length 1"
        return f"sum over clients of contributions {length}{masks}, Gaussian noise of {whose}"
    if kind == "embeddings" and level == "example":
        return "class sums of unit vectors, Gaussian noise of the client's own, told once"
    return "noise of the client's own (Laplace, randomised response or Gaussian), as docs/guarantees.md says"


def length_of(clip: float | str) -> str:
    return f"length {clip:g}" if isinstance(clip, float | int) else "a length that follows a noisy quantile"


def assumptions_of(private: Mapping[str, Any], *, simulated: bool) -> list[str]:
    """On which the numbers rest."""
    level, found = private.get("level", "client"), []
    if simulated:
        found.append(
            "This run was a simulation: all data lay in one process, and noise came from the run's seed. "
            "The numbers say "
            "what the same settings promise at real sites; in this run nobody was protected from whoever "
            "ran it."
        )
    if not private:
        return [
            *found,
            "No [private] table was set: updates were not protected, and no number below covers them.",
        ]
    if level == "client" and private.get("noise_from") != "clients":
        found.append(
            "The server is honest: it adds the noise, keeps single contributions and who participated to "
            "itself, and "
            "publishes models only."
        )
        if not private.get("secure"):
            found.append("The server sees every single contribution before it adds noise.")
    if private.get("secure"):
        found.append(
            "Secure sums: the server hands on keys and letters as it got them, and of each client's "
            "neighbours fewer "
            "than the threshold collude with it."
        )
    if private.get("noise_from") == "clients":
        found.append("Two thirds of the clients of a sum add their share of the noise honestly.")
    if level in ("local", "example"):
        found.append(
            "Noise is added at the client: the server asks as the run's file says, to which a site's own budget "
            "holds it; of other clients nothing is assumed."
        )
    found.append("Each run on the same data costs again; these numbers are of this run alone.")
    return found


def uncovered_by(private: Mapping[str, Any], method: str) -> list[str]:
    """What no number covers."""
    found = [
        "That a client participates, when, and for how long it works: server and network see it.",
        "Conclusions that hold for everybody and are drawn about somebody.",
    ]
    if method in ("covey", "fine-tuned", "ditto", "apfl", "pfedme", "per-fedavg", "fedala"):
        found.append(
            "Models that clients train on their own data before use: they have no guarantee and must "
            "stay where these "
            "data are (their files say so)."
        )
    if private.get("level") == "example":
        found.append(
            "Persons with several rows: the server knows promises for one row only. Each site's own page "
            "says the number "
            "for persons (covey privacy report STATE --table FILE --person COLUMN)."
        )
    return found


RUN_FILES = (
    (
        "checkpoint, served.safetensors",
        "models, and what the server remembers of clients",
        "while the run may continue or its models are used",
    ),
    (
        "metrics.parquet, report.html",
        "measurements, who participated in which round",
        "as long as results are reported; not to be shown to whom amplification protects from",
    ),
    ("audit.jsonl (real sites)", "who asked what of whom, without contents", "as long as accounts are owed"),
)


# ---------------------------------------------------------------------------------------------- the page


def page(statement: Statement) -> str:
    """The whole page as text: no script, prints on one sheet or two."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{statement.title} – Covey"),
        tag("style", Html(part_of_page(STYLE) + PRINT)),
    )
    parts = (
        section("Who learns what", losses(statement), tag("p", READ, class_="hint")),
        section("Assumptions", items(statement.assumptions)),
        section("What no number covers", items(statement.uncovered)),
        section(
            "Retention",
            cells_table([RETAINED, *map(list, statement.retention)], "What is kept where", stacked=True),
        ),
        section("For a data protection impact assessment", *(tag("p", text) for text in dpia(statement))),
        section("Read and accepted", tag("p", SIGN)),
    )
    header = tag(
        "header",
        tag("h1", statement.title),
        tag("p", *(tag("span", fact) for fact in statement.facts), class_="facts"),
        tag("p", promise(statement), class_="notice"),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', header, tag('main', *parts)), lang='en')}\n"


RETAINED = ("file", "what is in it", "needed for")
READ = (
    "Epsilon of the client that lost most, by kind, and composed. ∞: there is no bound. Sample: one row "
    "more or less. Person: all rows of one person at a client. Client: all that it holds, there or not. In sums over "
    "clients one row makes another contribution of its client, which moves a sum by twice as much as one that is "
    "missing: there the number of a sample is above the client's."
)


def section(title: str, *parts: Html) -> Html:
    return tag("section", tag("h2", title), *parts)


def items(texts: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", text) for text in texts))


def losses(statement: Statement) -> Html:
    heads = [
        "what is told",
        "ε, one sample",
        persons(statement.rows),
        "ε, the client",
        "who learns it",
        "mechanism",
    ]
    rows = [
        [
            line.what if line.what == "all" else f"{line.what}: {MEANT.get(line.what, '')}",
            shown_epsilon(line.sample),
            "–" if line.person is None else shown_epsilon(line.person),
            shown_epsilon(line.client),
            line.to,
            line.mechanism,
        ]
        for line in statement.lines
    ]
    return cells_table([heads, *rows], f"Privacy loss at δ = {statement.delta:g}", stacked=True)


def persons(rows: int | None) -> str:
    return "ε, one person" if rows is None else f"ε, one person (up to {rows} rows)"


def whole(statement: Statement) -> OfficerLine | None:
    """The line of everything together, where all that is told has a bound."""
    if any(math.isinf(line.sample) and line.what != "evaluations" for line in statement.lines):
        return None
    return next((line for line in statement.lines if line.what == "all"), None)


def promise(statement: Statement) -> str:
    """The promise in one sentence."""
    line = whole(statement)
    if line is None:
        return (
            "Something that was told has no bound: taken together, nothing is promised about single persons."
        )
    who, epsilon = ("client", line.client) if math.isfinite(line.client) else ("sample", line.sample)
    if line.person is not None and math.isfinite(line.person) and who == "sample":
        who, epsilon = "person", line.person
    apart = any(math.isinf(one.sample) for one in statement.lines)
    aside = " The exact evaluations in the table are not part of that: they have no bound." if apart else ""
    bound = at_most(epsilon)
    digits = 0 if epsilon > 3 else 1
    factor = ""
    if epsilon < 30:
        factor = f" = {math.ceil(math.exp(float(bound)) * 10**digits) / 10**digits:,.{digits}f}"
    return (
        f"Whatever anybody computes from what was told, the odds of any conclusion change by at most a "
        f"factor of e^"
        f"{bound}{factor}, but for a chance of {statement.delta:g}, whether the data of one {who} "
        f"were among it or not, under the assumptions below.{aside}"
    )


def at_most(epsilon: float) -> str:
    """Three digits, rounded up: a bound that is printed too small is none."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    return f"{math.ceil(epsilon / step - 1e-9) * step:.3g}"


def dpia(statement: Statement) -> list[str]:
    """Text for the assessment's usual headings."""
    purpose = statement.purpose or "(purpose of the study, to be filled in)"
    line = whole(statement)
    bound = (
        "no bound holds for all that is told; see the table for what is exact"
        if line is None
        else f"epsilon {at_most(line.sample)} for a row, "
        + (
            f"{at_most(line.person)} for a person, "
            if line.person is not None and math.isfinite(line.person)
            else ""
        )
        + (
            f"{at_most(line.client)} for a client"
            if math.isfinite(line.client)
            else "no bound for a whole client"
        )
    )
    return [
        f"Nature of the processing. Models are trained where the data are; rows do not leave a client. "
        f"What leaves it is "
        f"listed above. Purpose: {purpose}.",
        "Necessity. Each kind of message in the table is needed by a part of the method; parts that are "
        "not needed can be "
        "left out, and what remains is listed by covey join --show before a site participates.",
        f"Risks to persons. Whoever learns what is listed may infer that a person was among the data, or "
        f"an attribute of "
        f"that person (membership, attribute inference, reconstruction). Measured attacks: docs/evidence/privacy.md. "
        f"Bound: {bound}.",
        "Measures. Clipping and noise as in the table, accounted by dp-accounting and Opacus. At real sites also, "
        "where a site sets one, a budget over all runs and servers (covey join --budget, --anchor); TLS and keys of "
        "each site; an audit trail with a hash chain at both ends (covey audit); files readable by their owner only.",
        "Residual risk. The guarantee bounds what is learned, it does not make it zero; it rests on the "
        f"assumptions above and holds for {statement.holds_for}. Epsilon above about 10 promises little by itself.",
    ]
