"""The pages under `reference/` of the site, made from the code each time the site is built (a hook of mkdocs).

Commands come from the command line itself, settings from signatures and docstrings, methods from the registry, what a
method shows from its parts, what it costs from `docs/methods/cost.json`, which `python -m benchmarks.cost` writes, and
`results/PAPER.md` from the stored results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from covey.cli import app
from covey.cli.lists import as_in_toml
from covey.core.shows import shows_of
from covey.parts.steps import Train
from covey.privacy.refusals import parts_of
from covey.runs.config import ALWAYS, IF_ASKED
from covey.runs.sections import DataSection, ModelSection, Top, settings_in
from covey.settings.catalogue import DATASETS, FAMILIES, METHODS, MODELS, PARTITIONS, SHIFTS
from covey.settings.registry import Registry, registered
from covey.settings.signatures import REQUIRED, Setting, description, settings_of

ROOT = Path(__file__).parents[1]
COST = ROOT / "docs" / "methods" / "cost.json"
EMPTY = '""'  # code without a character in it is no code in Markdown
NAMED = {"data": DATASETS, "partition": PARTITIONS, "shift": SHIFTS, "model": MODELS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages to those that are files."""
    pages = {"commands": commands(), "methods": methods(), "settings": settings()}
    pages = {f"reference/{name}": text for name, text in pages.items()} | results()
    for name, text in pages.items():
        files.append(File.generated(config, f"{name}.md", content=text))
    return files


# A link of a page leads to a file of the repository, where a forge opens it; on the site, to the page made from that.
MADE_FROM = {
    "src/covey/cli": "commands",
    "src/covey/methods": "methods",
    "src/covey/runs/sections.py": "settings",
}
STORED = re.compile(r"\]\((?:\.\./)+experiments/([a-z]+)/results(?:/([\w-]+)\.json)?\)")
SOURCE = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, MADE_FROM))})\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads from stored results and from sources to the pages that are made of them."""
    del config, files
    up = "../" * page.file.src_uri.count("/")
    told = STORED.sub(lambda link: f"]({up}results/{link[1]}.md{'#' + link[2] if link[2] else ''})", markdown)
    return SOURCE.sub(lambda link: f"]({up}reference/{MADE_FROM[link[1]]}.md)", told)


def results() -> dict[str, str]:
    """All stored tables, a page for each paper or subject."""
    sys.path.insert(0, str(ROOT))  # the experiments are not part of what is installed
    from experiments.tables import stored_tables

    return {
        f"results/{folder.parent.name}": stored_tables(folder.parent.name)
        for folder in sorted((ROOT / "experiments").glob("*/results"))
    }


def cell(text: str) -> str:
    """As it may stand in a table of Markdown."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], ["---"] * len([*head]), *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def setting_rows(found: Mapping[str, Setting]) -> str:
    """One line for each setting: its name, its default, what is allowed, what it is."""
    rows = (
        (
            f"`{name}`",
            "required" if one.default is REQUIRED else f"`{as_in_toml(one.default) or EMPTY}`",
            one.allowed,
            one.help,
        )
        for name, one in found.items()
    )
    return table(("setting", "default", "allowed", "what it is"), rows) if found else "It has no settings."


def commands() -> str:
    """Every command with its arguments and options, as `covey COMMAND --help` has them."""
    found = ["# Commands", "Made from the command line itself. `covey COMMAND --help` shows the same."]
    whole = typer.main.get_command(app)
    for name, command in sorted(getattr(whole, "commands", {}).items()):
        inner = getattr(command, "commands", None)
        for called, each in (
            {f"{name} {word}": it for word, it in inner.items()} if inner else {name: command}
        ).items():
            rows = [
                (
                    f"`{', '.join(one.opts) if one.param_type_name == 'option' else one.name.upper()}`",
                    (getattr(one, "help", "") or "").replace("\\[", "["),
                )
                for one in each.params
                if one.name != "help"
            ]
            found += [
                f"## covey {called}",
                each.help or "",
                table(("option", "what it is"), rows) if rows else "",
            ]
    return "\n\n".join(found)


def methods() -> str:
    """Every method by the question that it answers: its paper, what the server sees, what it costs, its settings."""
    cost = json.loads(COST.read_text())
    found = [
        "# Methods",
        "By the question that they answer. *The server sees* names what a method shows beside updates and numbers of "
        "samples; with [`[private]`](../privacy.md) that is refused or covered by noise. Costs are multiples of "
        "FedAvg's: bytes of all messages, and CPU seconds (20 clients of the digits, 10 rounds, the measurement at the "
        "end included: `python -m benchmarks.cost`).",
    ]
    marks = registered()["method"]
    for family, question in FAMILIES.items():
        found.append(f"## {question}")
        for name in (name for name in METHODS if name in marks and marks[name].family == family):
            maker = METHODS[name]
            seen = [
                shown.what for _, part in parts_of(maker(Train())) if (shown := shows_of(part)) and shown.what
            ]
            facts = [
                f"[Paper]({marks[name].paper})." if marks[name].paper else "",
                f"The server sees {'; '.join(dict.fromkeys(seen))}."
                if seen
                else "The server sees nothing more.",
                f"Costs {cost[name]['bytes']:g} times FedAvg's bytes and {cost[name]['cpu']:g} times its CPU time."
                if name in cost
                else "",
            ]
            text = "\n\n".join(description(maker)).replace("<", "&lt;").replace("*", "\\*")
            found += [
                f"### {name}",
                text,
                " ".join(filter(None, facts)),
                setting_rows(settings_in("method", maker)),
            ]
    return "\n\n".join(found)


def settings() -> str:
    """Every table of a configuration file, and everything that a table can name."""
    found = [
        "# Settings",
        "What a TOML file may say, table by table; on the command line `--set table.key=value`.",
    ]
    found += ["## Outside every table", setting_rows(settings_of(Top))]
    common: dict[str, Any] = {"data": DataSection, "model": ModelSection}
    for section, registry in NAMED.items():
        found.append(f"## [{section}]")
        if section in common:
            found.append(setting_rows(settings_of(common[section])))
        found += named(section, registry)
    for section, maker in {**ALWAYS, **IF_ASKED}.items():
        found += [f"## [{section}]", " ".join(description(maker)), setting_rows(settings_of(maker))]
    return "\n\n".join(found)


def named(section: str, registry: Registry[Any]) -> list[str]:
    """Everything of one kind that a table can name, with what else the table may then say."""
    found = []
    for name in registry:
        maker = registry.find(name)
        text = "\n\n".join(description(maker)).replace("<", "&lt;").replace("*", "\\*")
        found += [f"### {section}: {name}", text, setting_rows(settings_in(section, maker))]
    return found
