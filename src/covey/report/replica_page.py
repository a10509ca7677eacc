"""What the page of a study with several seeds shows in place of single runs: means, intervals and paired tests."""

import re
from typing import Any

from covey.report.headline import results_table, swatch
from covey.report.markup import Html, tag
from covey.report.payload import page_data
from covey.report.replicas import Replicas, against_words, mean_curves, replica_columns, verdict
from covey.report.table import TableColumn, hues_of
from covey.report.wording import metric_title


def study_headline(replicas: Replicas) -> Html:
    """One row per label; every number is a mean over seeds."""
    columns = replica_columns(replicas)
    heads = [
        tag("th", column.head.replace("\n", " "), scope="col", class_="num" if column.right else None)
        for column in columns
    ]
    rows = []
    for place, hue in enumerate(hues_of(list(replicas.runs))):
        cells = [study_cell(column, place) for column in columns[1:]]
        name = tag("th", swatch(hue), columns[0].cells[place], scope="row")
        rows.append(tag("tr", name, *cells))
    title = metric_title(replicas.metric)
    words = [
        f"{title[0].upper()}{title[1:]}, after the last round; {replicas.in_words()}. Bold: the best mean.",
        against_words(replicas),
    ]
    inner = results_table(heads, rows, verdict(replicas), words)
    return tag("section", tag("h2", "Results"), inner, id="results")


def study_cell(column: TableColumn, place: int) -> Html:
    """A mean; its interval, and what a test says of it, stand beneath."""
    text = column.cells[place]
    cut = re.search(r" (?=\[|with each of )", text)
    large, rest = (text[: cut.start()], text[cut.end() :]) if cut else (text, "")
    unit = "%" if text.endswith("%") and rest else ""
    number = tag("strong" if place in column.best else "span", large + unit)
    both = tag("span", number, tag("small", rest)) if rest else number
    head = column.head.replace("\n", " ").strip()
    return tag("td", both, class_="num" if column.right else "whole", data_head=head)


def study_data(replicas: Replicas) -> dict[str, Any]:
    """The page's data with every curve as the mean over seeds; everything else is of the first seed."""
    data = page_data(replicas.firsts)
    data["seeds"] = len(replicas.seeds)
    hues = dict(zip(replicas.runs, hues_of(list(replicas.runs)), strict=True))
    for run, (label, views) in zip(data["runs"], replicas.runs.items(), strict=True):
        run["label"], run["hue"] = label, hues[label]
        for name, curve in mean_curves(views, list(run["curves"])).items():
            run["curves"][name] = {"groups": {}, "of": 0, **curve}
    return data
