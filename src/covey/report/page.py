"""One self-contained page for one run or several: no network, no library, every name escaped."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from covey.errors import RunError, UserError
from covey.files import reason, write_atomically
from covey.folder.read import RunView
from covey.report.headline import headline
from covey.report.markup import Html, markup, tag
from covey.report.payload import page_data
from covey.report.replica_page import study_data, study_headline
from covey.report.replicas import Replicas
from covey.report.run_page import run_details
from covey.report.table import run_labels, unfinished
from covey.terminal import in_order

STYLE = "page.css"
SCRIPTS = ("draw.js", "curves.js", "clients.js", "devices.js", "notes.js", "graph.js", "page.js")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MARK = Html(
    '<svg class="mark" viewBox="0 0 48 28" aria-hidden="true" fill="none" stroke="currentColor" '
    'stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round">'
    '<path d="M3 9q6-6 9 1q3-7 9-1M25 6q5-5 8 1q3-6 8-1M17 23q6-6 9 1q3-7 9-1"/></svg>'
)


def write_report(runs: Sequence[RunView], path: Path, replicas: Replicas | None = None) -> None:
    """Write the page to `path`, at once or not at all; with `replicas`, all seeds of the runs, means over them."""
    if not runs:
        raise UserError("A report needs at least one run folder, but none was given.")
    try:
        write_atomically(path, in_order(page(runs, replicas)))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {reason(error)}; the runs themselves are whole") from error


def page(runs: Sequence[RunView], replicas: Replicas | None = None) -> str:
    """The whole page as text."""
    labels = list(replicas.runs) if replicas else run_labels(runs)
    title = heading(runs, labels)
    data = study_data(replicas) if replicas else page_data(runs)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – Covey"),
        tag("style", Html(part_of_page(STYLE))),
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", class_="skip", href="#results"),
        masthead(runs, labels, replicas),
        tag(
            "main",
            study_headline(replicas) if replicas else headline(runs, labels),
            curves(),
            clients_apart(),
            of_first_seed(replicas) if replicas else None,
            details(runs, labels),
        ),
        footer(runs),
        tag("div", id="tip", role="status", aria_live="polite"),
        tag("script", embedded(data), type="application/json", id="data"),
        tag("script", Html('(() => {\n"use strict";\n' + "\n".join(map(part_of_page, SCRIPTS)) + "\n})();")),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def part_of_page(name: str) -> str:
    """A file of this package."""
    return files("covey.report").joinpath(name).read_text(encoding="utf-8")


def embedded(data: object) -> Html:
    """JSON inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def of_first_seed(replicas: Replicas) -> Html | None:
    """Which seed the charts of single runs show."""
    words = (
        f"Clients, devices, costs and notes are of seed {replicas.seeds[0]}, one of {len(replicas.seeds)}."
    )
    return tag("p", words, class_="notice") if len(replicas.seeds) > 1 else None


def masthead(runs: Sequence[RunView], labels: Sequence[str], replicas: Replicas | None = None) -> Html:
    """What was run, in one line of facts, and the links to the parts of the page."""
    first = runs[0].summary
    facts = ["1 client" if first.clients == 1 else f"{first.clients:,} clients"]
    shared = ("dataset", "model", "method") if len(runs) == 1 else ("dataset", "model")
    facts += [str(value) for key in shared if (value := same(runs, key)) and value != labels[0]]
    facts += [f"{first.parameters:,} parameters"] if first.parameters and same(runs, "parameters") else []
    seeds = replicas.seeds if replicas else [first.seed]
    if len(seeds) > 1:
        facts.append(f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]})")
    else:
        facts += [f"seed {first.seed}"] if same(runs, "seed") is not None else []
    links = ("Results", "Curves", "Clients", "Devices", "Cost", "Notes", "Configuration")
    nav = [tag("a", word, href=f"#{word.lower()}") for word in links]
    return tag(
        "header",
        tag("div", MARK, tag("span", "Covey"), class_="brand"),
        tag("h1", heading(runs, labels)),
        tag("p", *(tag("span", fact) for fact in facts), class_="facts"),
        *(tag("p", sentence, class_="notice") for sentence in unfinished(runs, labels)),
        tag("nav", *nav, aria_label="Parts of this page"),
    )


def heading(runs: Sequence[RunView], labels: Sequence[str]) -> str:
    """What the page is about, in a few words."""
    if len(runs) == 1:
        return labels[0]
    alike = len({run.summary.method for run in runs}) == len(runs)
    return f"{len(runs)} {'methods' if alike else 'runs'} compared"


def same(runs: Sequence[RunView], field: str) -> object | None:
    """The value that all runs share, else None."""
    values = {getattr(run.summary, field) for run in runs}
    return values.pop() if len(values) == 1 else None


def curves() -> Html:
    """The place of the main chart; the script fills its controls."""
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("div", class_="controls", id="curve-controls"),
        tag("figure", class_="chart", id="curve-chart"),
        tag("div", class_="legend", id="curve-legend"),
        tag("p", class_="hint", id="curve-note"),
        tag("div", id="curve-reach"),
        tag(
            "noscript",
            tag("p", "The charts need JavaScript; all numbers are in the tables.", class_="notice"),
        ),
        id="curves",
    )


def clients_apart() -> Html:
    """The place of the distribution of the clients' own results, of all runs side by side."""
    return tag(
        "section",
        tag("h2", "Client by client"),
        tag("p", class_="lead", id="spread-lead"),
        tag("figure", class_="chart", id="spread-chart"),
        id="clients",
    )


def details(runs: Sequence[RunView], labels: Sequence[str]) -> Html:
    """What belongs to one run; with several runs a picker shows one at a time."""
    picker = tag("div", class_="controls picker", id="run-picker") if len(runs) > 1 else None
    parts = [
        run_details(run, label, place, len(runs))
        for place, (run, label) in enumerate(zip(runs, labels, strict=True))
    ]
    return markup(picker, *parts)


def footer(runs: Sequence[RunView]) -> Html:
    """Which version wrote the runs, and where the raw numbers are."""
    versions = ", ".join(sorted({run.summary.covey for run in runs if run.summary.covey}))
    words = "All numbers are in metrics.parquet and summary.json of the run folder."
    return tag("footer", f"Covey {versions}. {words}" if versions else words)
