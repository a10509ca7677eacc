"""Text: in which language is a short phrase? Names of emoji in eight languages, which the package emoji carries."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.data.loaders.carried import folder_of
from covey.data.types import Dataset
from covey.data.usual import Usual, declare
from covey.settings.ranges import Count
from covey.settings.registry import register

LANGUAGES = ("de", "en", "es", "fr", "id", "it", "pt", "tr")  # all that are written in Latin letters
WHOLE = 2  # the status of an emoji that is no part or variant of another
TEST_EVERY = 5  # every fifth emoji, in all its languages, is for testing


@register("data set", "emoji-names")
def emoji_names(
    *,
    folder: Path | None = None,
    features: Count = 256,
) -> Dataset:
    """The names of some 1,900 emoji in 8 languages: which language is it? From the package emoji: no files needed.

    A name is a bag of its runs of one to three letters, hashed to `features` counts of length 1. The natural groups are
    the versions of the emoji standard, from 0.6 on: what newer emoji show is new. Every fifth emoji is for testing, in
    all languages, so that no test name is a translation of a training name.

    Args:
        features: how many numbers a name becomes.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    place = (folder or folder_of("emoji", "emoji-names")) / "unicode_codes"
    about: dict[str, Any] = json.loads((place / "emoji.json").read_text(encoding="utf-8"))
    names = {"en": {sign: one["en"] for sign, one in about.items()}}
    names |= {
        language: json.loads((place / f"emoji_{language}.json").read_text(encoding="utf-8"))
        for language in LANGUAGES
        if language != "en"
    }
    signs = [sign for sign, one in about.items() if one["status"] == WHOLE and "skin_tone" not in one["en"]]
    versions = sorted({float(about[sign]["E"]) for sign in signs})
    rows = [
        (
            names[language][sign].strip(":").replace("_", " "),
            label,
            versions.index(float(about[sign]["E"])),
            at,
        )
        for at, sign in enumerate(signs)
        for label, language in enumerate(LANGUAGES)
        if sign in names[language]
    ]
    texts, labels, version, emoji = zip(*rows, strict=True)
    bag = HashingVectorizer(
        analyzer="char_wb", ngram_range=(1, 3), n_features=features, alternate_sign=False
    ).transform(texts)
    testing = np.array(emoji) % TEST_EVERY == TEST_EVERY - 1
    return Dataset(
        name="emoji-names",
        x=torch.from_numpy(bag.toarray().astype(np.float32)),
        y=torch.tensor(labels),
        train=np.flatnonzero(~testing),
        test=np.flatnonzero(testing),
        classes=LANGUAGES,
        natural={"version": np.array(version, dtype=np.int64)},
        group_names={"version": tuple(f"emoji {number:g}" for number in versions)},
        clients_by="version",
    )


# the versions that have a training name each
declare(emoji_names, usual=Usual(partition="natural", clients=12))
