"""Two kinds of writing in one fleet: roles of Shakespeare, and teams that describe Debian's packages."""

from __future__ import annotations

import numpy as np

from covey.data.files import read_npz
from covey.data.loaders.hands import found_in
from covey.data.loaders.texts import PACKAGES, SHAKESPEARE, most_frequent, most_said, windows
from covey.data.partitions.cutting import DealtOut
from covey.data.tokens import LETTERS, by_letters
from covey.data.types import Dataset, Indices


def writing(*, each: int = 10, context: int = 32, most: int = 250) -> Dataset:
    """What the most talkative roles and the largest teams write next, letter by letter: so many clients of each kind.

    A team's text is its packages' descriptions, a line each. Windows and their split are those of `shakespeare`.
    """
    roles, names = most_said(found_in(SHAKESPEARE, "shakespeare.npz", None), "roles", each)
    stored = read_npz(found_in(PACKAGES, "packages.npz", None), ["text", "team"])
    teams = most_frequent(stored["team"], each)
    said = ["".join(LETTERS[place] for place in text) for text in roles]
    said += ["\n".join(stored["text"][stored["team"] == team]) for team in teams]
    letters = by_letters()
    called = (*names, *map(str, teams))
    return windows(
        "writing", [letters.of(text) for text in said], letters.names, context, most, ("writer", called)
    )


def writers(groups: Indices, *, clients: int, rng: np.random.Generator) -> DealtOut:  # noqa: ARG001
    """Every writer is a client; truly alike are those of one kind, each half of them."""
    parts = [np.flatnonzero(groups == writer) for writer in range(clients)]
    return DealtOut(parts, truth=np.arange(clients) * 2 // clients, tests="group")
