"""The demo tells what each idea is for, in one table, with its seeds."""

from pathlib import Path

import pytest

from covey.runs.study.execute import execute
from covey.runs.study.story import StoryLine, between, read_story, story_columns
from covey.terminal import live_many

SMALL = """
title = "small"
seeds = 2
[base]
rounds = 2
data = { name = "digits", clients = 8 }
shift = { name = "rotation" }
train = { epochs = 1 }
[[line]]
idea = "one for each"
fleet = "four clusters"
set = {}
method = { name = "local" }
baseline = { name = "fedavg", per_round = 4 }
measure = "clusters:worst:local-test/accuracy"
what = "worst cluster"
clusters = true
[[line]]
idea = "fewer messages"
fleet = "no server"
set = {}
method = { name = "decentralized", backbone = "ring" }
baseline = { name = "decentralized" }
measure = "cost:messages"
better = "lower"
what = "messages"
beside = "last:global-test/accuracy"
"""


def test_the_story_has_all_five_ideas_and_their_composition_last() -> None:
    story = read_story()
    methods = [line.method["name"] for line in story.lines]
    assert methods == ["cafa", "hierarchical", "embedding", "haccs", "cfic", "covey"]
    assert story.plan.seeds >= 3
    assert "messages" in story.lines[1].what
    assert "seconds" in story.lines[3].what


def test_every_line_is_run_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "story.toml"
    file.write_text(SMALL.replace('"decentralized" }\nmeasure', '"hierarchical", clusters = 2 }\nmeasure'))
    story = read_story(file)
    done = execute(story.plan, tmp_path / "out", show=live_many, say=lambda _: None, page=False)
    columns = {column.head: column.cells for column in story_columns(story, done)}
    assert columns["idea"] == ("one for each", "fewer messages")
    ours = columns["with it"][0]
    assert ours.startswith("local\n")
    assert len(ours.rpartition("(")[2].split()) == 4  # one number for each kind
    assert "points" in columns["with it, against the baseline"][0]
    assert "of it" in columns["with it, against the baseline"][1]


def line(better: str) -> StoryLine:
    nothing: dict[str, object] = {}
    return StoryLine(
        idea="", fleet="", set=nothing, method=nothing, baseline=nothing, measure="", what="", better=better
    )  # type: ignore[arg-type]


def test_differences_and_ratios_by_hand() -> None:
    assert between([0.9, 0.8, 0.85], [0.7, 0.6, 0.66], line("higher")).startswith("19.67 [18, 21] points")
    assert between([50.0, 25.0], [100.0, 50.0], line("lower")) == "0.5 of it\nnot significant"  # two seeds
    assert "not significant" in between([50.0, 110.0], [100.0, 100.0], line("lower"))
    assert between([50.0] * 3, [100.0] * 3, line("lower")) == "0.5 of it\nin every seed"
    assert between([1.0], [1.0, 2.0], line("lower")) == "not all runs came to their end"


@pytest.mark.parametrize("seeds", [1, 4])
def test_it_says_with_how_many_seeds(seeds: int) -> None:
    assert read_story(seeds=seeds).plan.seeds == seeds
