"""Texts as tokens: letters, words and pieces; padding is token 0, and the test part has no say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from covey.data.tokens import by_letters, by_pieces, by_words, padded
from covey.errors import UserError


def test_letters_are_numbered_from_one_and_others_left_out() -> None:
    made = by_letters()
    assert made.of("Ab 7?").tolist() == [1, 2, 27, 35]
    assert [made.names[token] for token in (0, 1, 27)] == ["", "a", " "]


def test_the_most_frequent_words_have_a_token_and_all_others_one_together() -> None:
    made = by_words(["to be or not to be, that", "to be"], vocabulary=5)
    # to and be three times each, then five words once each, of which the comma comes first
    assert made.names == ("", "?", "be", "to", ",")
    assert made.of("To be, or").tolist() == [3, 2, 4, 1]


def test_pieces_are_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.setattr("covey.data.tokens.cache_folder", lambda: tmp_path)
    texts = ["low low low lower lower newest newest newest newest"] * 3
    made = by_pieces(texts, vocabulary=40)
    assert made.names[:2] == ("", "?")
    tokens = made.of("lower newest")
    assert "".join(made.names[token] for token in tokens).replace("▁", " ").strip() == "lower newest"
    assert len(tokens) < len("lower newest")  # frequent pairs were merged
    (kept,) = (tmp_path / "tokenisers").iterdir()
    assert (by_pieces([], 2, kept).of("lower newest") == tokens).all()
    with pytest.raises(UserError, match=r"data\.tokeniser is .* which is not there"):
        by_pieces(texts, 40, tmp_path / "none.json")
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(UserError, match=r"which is no tokenizer\.json"):
        by_pieces(texts, 40, tmp_path / "no.json")


def test_shorter_texts_are_followed_by_padding() -> None:
    assert padded([np.array([5, 6]), np.array([7, 8, 9, 10])], 3).tolist() == [[5, 6, 0], [7, 8, 9]]
