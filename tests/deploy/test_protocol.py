"""Server and sites of neighbouring versions work together, or refuse in one sentence."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from covey import __version__
from covey.core.round import run_rounds
from covey.deploy.site import Site
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.transport import agreed
from covey.errors import Refused
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, shares, simulated, sites

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("theirs", "ours", "form"),
    [
        ({"covey": __version__}, (1, 1), 1),  # the same covey, from before there was a number
        ({"covey": "0.2.0", "protocol": [1, 2]}, (1, 1), 1),
        ({"covey": "0.0.9", "protocol": [1, 1]}, (1, 2), 1),
        ({"covey": "0.2.0", "protocol": [2, 3]}, (1, 2), 2),
        ({"covey": "0.2.0", "protocol": [1, 2]}, (1, 2), 2),
    ],
)
def test_the_newest_form_that_both_speak(theirs: dict[str, Any], ours: tuple[int, int], form: int) -> None:
    assert agreed(theirs, "the server", ours) == form


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        ({"covey": "9.9"}, "the server has covey 9.9, this site has 1.0; install the same"),
        (
            {"covey": "9.9", "protocol": [4, 5]},
            "the server has covey 9.9 with protocol 4 to 5, this site has 1.0 with protocol 2 to 3; install "
            "neighbouring versions",
        ),
        (
            {"covey": "0.1", "protocol": [1, 1]},
            "the server has covey 0.1 with protocol 1, this site has 1.0 with protocol 2 to 3; install neighbouring "
            "versions",
        ),
        ({"covey": "1.0", "protocol": "new"}, "the server does not say which protocol it speaks"),
        ({"covey": "1.0", "protocol": [1.5, 2**70]}, "the server does not say which protocol it speaks"),
    ],
)
def test_no_form_in_common_is_one_sentence(theirs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        agreed(theirs, "the server", (2, 3), "1.0")
    assert str(caught.value) == sentence


class Newer(Site):
    version = "0.3.0"
    speaks = (1, 2)


class FarNewer(Site):
    version = "0.9.0"
    speaks = (2, 3)


def one_site_as(kind: type[Site]) -> Hand:
    """Four sites, of which the second is another covey."""
    made = sites()
    share = shares()[1]
    made[101] = kind((share.train, share.test), name="site-1", bounds=made[101].bounds)
    return Hand(made)


def learned(fleet: Any) -> torch.Tensor:
    return run_rounds(fedavg(Train(lr=0.1), per_round=CLIENTS), fleet, rounds=2).models


def test_a_site_of_the_next_minor_version_takes_part_with_the_same_bits() -> None:
    said: list[str] = []
    fleet = deployed(one_site_as(Newer), say=said.append)
    assert torch.equal(learned(fleet), learned(simulated()))
    assert any(line.startswith("site site-1 is here") and "with covey 0.3.0" in line for line in said)


def test_a_site_two_versions_away_is_left_out_in_one_sentence_that_both_sides_are_told() -> None:
    said: list[str] = []
    fleet = deployed(one_site_as(FarNewer), say=said.append, least=3)
    assert fleet.begin(1) == [0, 1, 2]
    sentence = f"the server has covey {__version__} with protocol 1, this site has 0.9.0 with protocol 2 to 3"
    assert [line for line in said if "left out" in line] == [
        f"site site-1 is left out for now: {sentence}; install neighbouring versions"
    ]


def test_a_site_that_does_not_say_its_name_is_left_out_under_the_one_of_its_key() -> None:
    class Listed(dict[str, int]):
        def names(self) -> dict[str, str]:
            return {key: f"hospital-{number}" for key, number in self.items()}

    said: list[str] = []
    transport = one_site_as(FarNewer)
    transport.keys = {100 + i: f"key-{i}" for i in range(4)}
    names = ClientNumbers(Listed({f"key-{i}": i for i in range(4)}))
    deployed(transport, say=said.append, least=3, names=names).begin(1)
    assert [line.partition(":")[0] for line in said if "left out" in line] == [
        "site hospital-1 is left out for now"
    ]


# ---------------------------------------------------------------------------------------------- another covey, really

ANSWERING = """
import sys
from covey.runs.config import federation_of, resolve
from covey.data import federate, load
from covey.deploy.site import Site
share = federate(load("digits"), partition="dir-class", clients=4, seed=3, alpha=0.5).shares[1]
site = Site((share.train, share.test), name="site-1")
while size := sys.stdin.buffer.read(8):
    answer = site.answer(sys.stdin.buffer.read(int.from_bytes(size, "big")))
    sys.stdout.buffer.write(len(answer).to_bytes(8, "big") + answer)
    sys.stdout.buffer.flush()
"""


class OtherProcess:
    """A site in a process of its own, with the covey in that folder."""

    def __init__(self, source: Path, which: str) -> None:
        self.which = which
        env = os.environ | {"PYTHONPATH": str(source)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", ANSWERING], stdin=pipe, stdout=pipe, env=env)

    def answer(self, block: bytes) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(len(block).to_bytes(8, "big") + block)
        self.process.stdin.flush()
        return self.process.stdout.read(int.from_bytes(self.process.stdout.read(8), "big"))


def git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    ).stdout.strip()


def earlier(which: str) -> str:
    """A commit: of the last tag, or the first that speaks the present form of messages, or the one before it."""
    if which == "the last tag":
        return os.environ.get("COVEY_EARLIER", git("describe", "--tags", "--abbrev=0"))
    first = git("log", "-1", "--format=%H", "-G^SPOKEN", "--", "src/covey/deploy/transport.py")
    return first if which == "the same form" else git("rev-parse", f"{first}^") if first else ""


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OtherProcess]:
    """A site with an earlier covey, installed from its wheel."""
    if not (commit := earlier(request.param)):
        pytest.skip(f"there is no commit of {request.param} in this repository")
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tmp_path / "tree", filter="data")
    if request.param == "the form before":  # versions grow with the tags, of which there are none yet
        file = tmp_path / "tree" / "src" / "covey" / "version.py"
        file.write_text(file.read_text().replace(__version__, "0.0.9"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    made = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", "./tree"]
    subprocess.run([*pip, *made], cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "wheels").glob("covey-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", "installed", str(wheel)], cwd=tmp_path, check=True
    )
    site = OtherProcess(tmp_path / "installed", request.param)
    yield site
    site.process.kill()
    site.process.wait()


@pytest.mark.parametrize("other", ["the last tag", "the same form", "the form before"], indirect=True)
@pytest.mark.slow
def test_a_site_of_an_earlier_covey_takes_part_or_is_left_out_in_one_sentence(other: OtherProcess) -> None:
    said: list[str] = []
    hand = Hand(sites())
    hand.sites[101] = other  # type: ignore[assignment]
    fleet = deployed(hand, say=said.append, least=3, deadline=300.0)
    here = fleet.begin(1)
    out = [line for line in said if "left out" in line]
    if len(here) == CLIENTS:
        assert other.which != "the form before"
        assert torch.equal(learned(fleet), learned(simulated()))
    else:
        assert other.which != "the same form"
        assert len(out) == 1
        assert out[0].endswith(("install the same", "install neighbouring versions"))
