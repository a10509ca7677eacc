"""Texts as whole numbers: letters, words, or pieces of words; 0 is padding, at the end of what is shorter."""

import hashlib
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Indices
from covey.errors import UserError, importing, user_error
from covey.files import cache_folder, write_atomically

PAD, UNKNOWN = "", "?"  # the first two tokens; nobody has to say either
LETTERS = string.ascii_lowercase + " \n',.;:!?-"  # the letters that are told apart; all else is left out
WORD = re.compile(r"[a-z0-9][a-z0-9']*|[^\sa-z0-9]")  # a word, or a mark
Units = Literal["letters", "words", "pieces"]


class Tokeniser(NamedTuple):
    """What the tokens are called, in their order, and how a text becomes tokens."""

    names: tuple[str, ...]
    of: Callable[[str], Indices]


def tokeniser_of(units: Units, texts: Sequence[str], vocabulary: int, file: Path | None = None) -> Tokeniser:
    """The tokeniser by letters, or one that is made of `texts` once (the training parts, never the test parts).

    `vocabulary`: the most tokens, padding and unknown among them. `file`: pieces as somebody else made them, a
    tokenizer.json.
    """
    if units == "letters":
        return by_letters()
    if units == "words":
        return by_words(texts, vocabulary)
    return by_pieces(texts, vocabulary, file)


def by_letters() -> Tokeniser:
    """One token per letter in lower case; what is none of LETTERS is left out."""
    places = {letter: place for place, letter in enumerate(LETTERS, start=1)}

    def of(text: str) -> Indices:
        return np.array([places[one] for one in text.lower() if one in places], np.int64)

    return Tokeniser((PAD, *LETTERS), of)


def by_words(texts: Sequence[str], vocabulary: int) -> Tokeniser:
    """The most frequent words and marks in lower case, one token each; all others are the token of the unknown."""
    counted = Counter(word for text in texts for word in WORD.findall(text.lower()))
    ranked = sorted(counted, key=lambda word: (-counted[word], word))
    names = (PAD, UNKNOWN, *[word for word in ranked if word != UNKNOWN][: vocabulary - 2])
    places = {word: place for place, word in enumerate(names)}

    def of(text: str) -> Indices:
        return np.array([places.get(word, 1) for word in WORD.findall(text.lower())], np.int64)

    return Tokeniser(names, of)


def by_pieces(texts: Sequence[str], vocabulary: int, file: Path | None = None) -> Tokeniser:
    """Byte pair encoding (Sennrich et al., 2016) of the package tokenizers: made once of these texts, then kept."""
    library = _library()
    place = file or _kept(texts, vocabulary)
    if not place.is_file():
        if file is not None:
            raise UserError(f"data.tokeniser is {str(file)!r}, which is not there; allowed: a tokenizer.json")
        made = library.Tokenizer(library.models.BPE(unk_token=UNKNOWN))
        made.normalizer = library.normalizers.Lowercase()
        made.pre_tokenizer = library.pre_tokenizers.Metaspace()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=["[PAD]", UNKNOWN], show_progress=False
        )
        made.train_from_iterator(texts, trainer)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, made.to_str().encode())
    with user_error(f"data.tokeniser is {str(place)!r}, which is no tokenizer.json"):
        read = library.Tokenizer.from_str(place.read_text(encoding="utf-8"))
    names = tuple(read.id_to_token(number) or UNKNOWN for number in range(read.get_vocab_size()))
    return Tokeniser((PAD, *names[1:]), lambda text: np.array(read.encode(text).ids, np.int64))


def _kept(texts: Sequence[str], vocabulary: int) -> Path:
    """Where the pieces of these texts are kept."""
    mark = hashlib.sha256(repr((vocabulary, *texts)).encode()).hexdigest()[:32]
    return cache_folder() / "tokenisers" / f"{mark}.json"


def _library() -> Any:
    with importing('data.units = "pieces" needs the package tokenizers: install covey[text]'):
        import tokenizers
    return tokenizers


def padded(texts: Sequence[Indices], length: int) -> Indices:
    """One row per text, cut to `length` or followed by padding."""
    rows = np.zeros((len(texts), length), np.int64)
    for row, text in zip(rows, texts, strict=True):
        kept = text[:length]
        row[: len(kept)] = kept
    return rows


def next_tokens(
    said: NDArray[np.integer[Any]], context: int, most: int, test_share: float = 0.2
) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """Contexts, what follows each, and whether it is a test sample: at most `most`, evenly spaced, the last part test.

    No training context reaches into the test part, and no test context into the training part.
    """
    cut = cut_of(len(said), test_share)
    places = np.r_[np.arange(context, cut), np.arange(cut + context, len(said))]
    if len(places) > most:
        places = places[np.arange(most) * len(places) // most]
    seen = said[places[:, None] + np.arange(-context, 0)].astype(np.int64)
    return seen, said[places].astype(np.int64), places >= cut


def cut_of(length: int, test_share: float = 0.2) -> int:
    """Where the test part of a text begins."""
    return length - round(test_share * length)
