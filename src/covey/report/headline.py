"""The first thing on the page: tiles for one run, a table for several."""

from collections.abc import Sequence

from covey.folder.read import RunView
from covey.folder.summary import Target
from covey.report.markup import Html, markup, tag
from covey.report.payload import measured_names
from covey.report.replicas import Replicas, verdict
from covey.report.table import best_rows, headline_metric, hues_of, known_metrics, of_finished, targets_of
from covey.report.wording import (
    NO_VALUE,
    epsilon_words,
    metric_title,
    short_title,
    show_bytes,
    show_count,
    show_epsilon,
    show_seconds,
    show_target,
    show_value,
)
from covey.training.metrics import Metrics, higher_is_better, split_name

# a head with a line beneath, and for each row a number, a line beneath it, and whether it is the best
HeadlineCells = tuple[tuple[str, str], list[tuple[str, str, bool]]]


def headline(runs: Sequence[RunView], labels: Sequence[str]) -> Html:
    """The results in numbers: last and best of every named metric, what the targets took, what it cost."""
    inner = tiles(runs[0]) if len(runs) == 1 else comparison(runs, labels)
    return tag("section", tag("h2", "Results"), inner, id="results")


def best_words(run: RunView, name: str) -> str:
    """The best value of a metric and its round; a spread over clients has no best."""
    if split_name(name)[2] == "std":
        return ""
    best = run.summary.best.get(name)
    return (
        NO_VALUE
        if best is None
        else f"best {show_value(name, best.value, run.metrics)} in round {best.round:,}"
    )


def tiles(run: RunView) -> Html:
    """One tile per metric, the one the run is about first; then targets and costs."""
    names = measured_names([run])
    first = headline_metric([run])
    names = [first, *(name for name in names if name != first)] if first in names else names
    made = [
        tile(
            metric_title(name),
            show_value(name, run.summary.last[name], run.metrics),
            best_words(run, name),
            first=name == first,
        )
        for name in names
    ]
    took = [target_tile(run.to_target(metric, target), run.metrics) for metric, target in targets_of([run])]
    cost = run.summary.cost
    took.append(tile("traffic", show_bytes(cost.bytes), f"{show_count(cost.messages)} messages"))
    wall = run.summary.wall_seconds
    small = f"{run.summary.rounds_done:,} rounds"
    small += f" · computed in {show_seconds(wall)}" if wall is not None else ""
    took.append(
        tile("simulated time" if run.simulated else "time by the clock", show_seconds(cost.seconds), small)
    )
    if run.summary.epsilon:
        most = max(run.summary.epsilon.values())
        took.append(tile("largest privacy loss (ε) of a client", show_epsilon(most), epsilon_words(most)))
    return markup(tag("dl", *made, class_="tiles"), tag("dl", *took, class_="tiles"))


def tile(words: str, number: str, small: str, *, first: bool = False) -> Html:
    """A number with what it is and one line beneath."""
    inner = (tag("dt", words), tag("dd", number, class_="big"), tag("dd", small, class_="small"))
    return tag("div", *inner, class_="tile first" if first else "tile")


def target_tile(reached: Target, metrics: Metrics) -> Html:
    """What a target took."""
    words = f"to {show_target(reached.metric, reached.target, metrics)} {metric_title(reached.metric)}"
    if reached.round is None:
        return tile(words, "not reached", "")
    return tile(
        words, f"{reached.round:,} rounds", f"{show_seconds(reached.seconds)} · {show_bytes(reached.bytes)}"
    )


def comparison(runs: Sequence[RunView], labels: Sequence[str]) -> Html:
    """One row per run; the best of every column stands out."""
    columns = [metric_column(runs, name) for name in measured_names(runs)]
    columns += [target_column(runs, metric, target) for metric, target in targets_of(runs)]
    columns += [traffic_column(runs), time_column(runs)]
    heads = [tag("th", "method", scope="col"), *(head_of(head) for head, _ in columns)]
    rows = [
        tag(
            "tr",
            tag("th", swatch(hue), label, scope="row"),
            *(cell(head, *cells[place]) for head, cells in columns),
        )
        for place, (label, hue) in enumerate(zip(labels, hues_of(labels), strict=True))
    ]
    found = verdict(Replicas(runs={label: [run] for label, run in zip(labels, runs, strict=True)}))
    hint = "Large: the last round. Small: the best value @ its round. Bold: the best of the column."
    return results_table(heads, rows, found, [hint])


def results_table(heads: Sequence[Html], rows: Sequence[Html], found: str, hints: Sequence[str]) -> Html:
    """All runs, with what was found in a sentence above, and how to read it beneath."""
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="wide")
    return markup(
        tag("p", found, class_="verdict"),
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Results"),
        *(tag("p", hint, class_="hint") for hint in hints if hint),
    )


def swatch(place: int) -> Html:
    """The colour that a run has in the charts."""
    return tag("span", class_="swatch", style=f"--hue:var(--c{place % 10})")


def metric_column(runs: Sequence[RunView], name: str) -> HeadlineCells:
    """The last value of a metric over its best."""
    values = [run.summary.last.get(name) for run in runs]
    metrics = known_metrics(runs)
    leaders = best_rows(values, highest=higher_is_better(name, metrics))
    found = [run.summary.best.get(name) for run in runs]
    spread = split_name(name)[2] == "std"
    small = [f"{show_value(name, b.value, metrics)} @ {b.round:,}" if b and not spread else "" for b in found]
    cells = [(show_value(name, v, metrics), small[at], at in leaders) for at, v in enumerate(values)]
    return (split_name(name)[1], short_title(name)), cells


def target_column(runs: Sequence[RunView], metric: str, target: float) -> HeadlineCells:
    """What a target took: rounds over seconds and bytes."""
    reached = [run.to_target(metric, target) for run in runs]
    leaders = best_rows([t.round for t in reached], highest=False)
    cells = [
        ("not reached", "", False)
        if t.round is None
        else (f"{t.round:,} rounds", f"{show_seconds(t.seconds)} · {show_bytes(t.bytes)}", at in leaders)
        for at, t in enumerate(reached)
    ]
    return (f"to {show_target(metric, target, known_metrics(runs))}", short_title(metric)), cells


def traffic_column(runs: Sequence[RunView]) -> HeadlineCells:
    """Training bytes over messages."""
    sent = [run.summary.cost.bytes for run in runs]
    small = [f"{show_count(run.summary.cost.messages)} messages" for run in runs]
    leaders = best_rows(of_finished(runs, sent), highest=False)
    cells = [(show_bytes(v), small[at], at in leaders) for at, v in enumerate(sent)]
    return ("traffic", "up, down, peer"), cells


def time_column(runs: Sequence[RunView]) -> HeadlineCells:
    """Seconds on the runs' clock over rounds."""
    spent = [run.summary.cost.seconds for run in runs]
    leaders = best_rows(of_finished(runs, spent), highest=False)
    rounds = [f"{run.summary.rounds_done:,} rounds" for run in runs]
    cells = [(show_seconds(v), rounds[at], at in leaders) for at, v in enumerate(spent)]
    kinds = dict.fromkeys("simulated" if run.simulated else "by the clock" for run in runs)
    return ("time", ", ".join(kinds)), cells


def head_of(head: tuple[str, str]) -> Html:
    return tag("th", tag("span", head[0]), tag("small", head[1]), scope="col", class_="num")


def cell(head: tuple[str, str], large: str, small: str, best: bool) -> Html:
    """A number and a line beneath; its head is repeated where a phone shows rows as cards."""
    number = tag("span", tag("strong" if best else "span", large), tag("small", small))
    return tag("td", number, class_="num", data_head=" ".join(head))
