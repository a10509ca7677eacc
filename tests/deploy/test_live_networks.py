"""Bad networks: a real site in a network namespace, with keys and TLS, behind a link that is slow, breaks or moves.

The server is this process (SuperLink, door and mailbox). The site is `serve_site` with answers of any size; every
question it works on is a line of a file, so that one that was answered twice would be seen.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from covey.deploy.certs import make_certs, private_key
from covey.deploy.door import Door
from covey.deploy.flower_transport import SuperLinkTransport, flower_run
from covey.deploy.mailboxes import Mailboxes
from covey.deploy.site_list import SiteList
from covey.deploy.superlink import free_port, superlink
from covey.deploy.transport import Response
from tests.deploy.bad_link import BadLink, possible
from tests.deploy.live_deployment import FORKS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not possible(), reason="network namespaces and TUN devices need root"),
]
MB = 10**6


def answered(block: bytes, folder: Path) -> bytes:
    """As many bytes as the question asks for, no two of them alike; the question goes into a file."""
    size = int(block[:12])
    with open(folder / "worked", "a") as file:
        file.write(hashlib.sha256(block).hexdigest() + "\n")
    return noise(size, seed=int(block[12:24]))


def noise(size: int, seed: int) -> bytes:
    import numpy as np

    return np.random.default_rng(seed).bytes(size)


def site(namespace: str, address: str, folder: Path) -> None:
    """A site in the namespace, in a process of its own."""
    from covey.deploy.connection import serve_site
    from tests.deploy.bad_link import enter_namespace

    log = os.open(folder / "site.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    handle = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    enter_namespace(handle)
    certs = folder / "certs"
    key = private_key(certs / "sites" / "far.key")
    serve_site(
        address,
        lambda block: answered(block, folder),
        ca=certs / "ca.crt",
        key=key,
        folder=folder,
        say=lambda text: print(f"{time.time():.1f} {text}", flush=True),
    )


@dataclass
class Far:
    """A server, and a site behind a bad link."""

    link: BadLink
    transport: SuperLinkTransport
    folder: Path
    asked: int = 0

    def node(self) -> int:
        while not (nodes := self.transport.nodes()):
            time.sleep(0.2)
        return next(iter(nodes))

    def ask(self, *, down: int = 0, up: int = 0) -> "Question":
        """Sends a question of so many bytes that is answered with so many."""
        self.asked += 1
        node = self.node()
        block = f"{up:012d}{self.asked:012d}".encode() + noise(down, seed=0)
        began = time.monotonic()
        self.transport.expect(up)
        (number,) = self.transport.send("query.hello", {node: block}, 3600)
        return Question(self, number, self.asked, up, began)

    def worked(self) -> int:
        """How many questions the site has worked on."""
        file = self.folder / "worked"
        return len(file.read_text().split()) if file.exists() else 0

    def said(self) -> str:
        return (self.folder / "site.log").read_text()


@dataclass
class Question:
    far: Far
    number: str
    seed: int
    up: int
    began: float

    def look(self) -> Response | None:
        until = time.monotonic() + 60
        return self.far.transport.collect([self.number], most=2 * self.up + MB, until=until).get(self.number)

    def wait(self, seconds: float = 3600.0) -> float:
        """Waits for the right answer; gives the seconds since the question."""
        until = time.monotonic() + seconds
        while (found := self.look()) is None:
            assert time.monotonic() < until, self.far.said()
            time.sleep(0.2)
        assert found.error == "", self.far.said()
        assert found.answer == noise(self.up, seed=self.seed)
        return time.monotonic() - self.began

    def wait_until(self, there: Callable[[], bool], seconds: float = 600.0) -> None:
        """Looks for the answer, which must not be complete, until something is so."""
        until = time.monotonic() + seconds
        while not there():
            assert self.look() is None, "it came too early for this test"
            assert time.monotonic() < until, self.far.said()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    folder = tmp_path_factory.mktemp("far")
    certs, port, boxes = folder / "certs", free_port(), Mailboxes()
    with BadLink() as link:
        make_certs(certs, hosts=["127.0.0.1", link.here], sites=["far"])
        sites = SiteList(certs)
        with (
            superlink(certs, certs=certs) as inside,
            flower_run(inside, sites.names, boxes) as transport,
            Door(inside, certs, objection=sites.objection, mailboxes=boxes).opened(link.here, port),
        ):
            process = FORKS.Process(target=site, args=(link.namespace, f"{link.here}:{port}", folder))
            process.start()
            try:
                found = Far(link, transport, folder)
                found.node()
                yield found
            finally:
                process.kill()
                process.join()


@pytest.fixture(autouse=True)
def good_line_again(far: Far) -> Iterator[None]:
    yield
    far.link.delay, far.link.loss, far.link.rate, far.link.cut = 0.0, 0.0, None, False


def report(what: str, **numbers: float) -> None:
    """A line for the table in docs/evidence/sites.md (`pytest -s`)."""
    print(f"\n| {what} | " + " | ".join(f"{name} {value:.1f}" for name, value in numbers.items()) + " |")


@pytest.mark.parametrize(
    ("what", "delay", "loss", "rate"),
    [
        ("a good line", 0.0, 0.0, None),
        ("200 ms each way", 0.2, 0.0, None),
        ("5 % of the packets lost", 0.0, 0.05, None),
        ("1 Mbit/s", 0.0, 0.0, 125_000.0),
        ("all three", 0.2, 0.05, 125_000.0),
    ],
)
def test_questions_are_answered_once_over_a_bad_line(
    far: Far, what: str, delay: float, loss: float, rate: float | None
) -> None:
    far.ask(up=100).wait()  # it may still be busy with the last test's end
    before = far.worked()
    far.link.delay, far.link.loss, far.link.rate = delay, loss, rate
    small = [far.ask(up=1000).wait() for _ in range(3)]
    large = far.ask(down=1 * MB, up=1 * MB).wait()
    report(what, small=sorted(small)[1], megabyte=large)
    assert far.worked() == before + 4


def test_a_line_that_is_cut_for_a_minute_in_an_upload_goes_on_with_the_piece_that_broke(far: Far) -> None:
    before, sent = far.worked(), far.link.ways[1].passed
    far.link.rate = 500_000.0
    question = far.ask(up=8 * MB)
    question.wait_until(lambda: far.link.ways[1].passed > sent + 3 * MB)
    far.link.cut = True
    time.sleep(60)
    far.link.cut = False
    seconds = question.wait()
    over = (far.link.ways[1].passed - sent) / MB
    report("8 MB, cut for 60 s", seconds=seconds, sent=over)
    assert far.worked() == before + 1
    assert over < 10.5  # 8 MB, their wrapping, and at most one piece of 1 MB again, not all


def test_an_upload_goes_on_from_another_address(far: Far) -> None:
    before, sent = far.worked(), far.link.ways[1].passed
    far.link.rate = 500_000.0
    question = far.ask(up=6 * MB)
    question.wait_until(lambda: far.link.ways[1].passed > sent + 2 * MB)
    far.link.move()
    seconds = question.wait()
    over = (far.link.ways[1].passed - sent) / MB
    report("6 MB, another address", seconds=seconds, sent=over)
    assert far.worked() == before + 1
    assert over < 8.5


def test_a_message_that_was_given_into_a_dead_line_is_given_again(far: Far) -> None:
    """The site waits at its mailbox, the line dies without a word, and only then there is mail."""
    far.ask(up=10).wait()
    before = far.worked()
    time.sleep(1)  # it looks again
    far.link.cut = True
    question = far.ask(up=1000)
    for _ in range(20):
        assert question.look() is None
        time.sleep(1)
    far.link.cut = False
    seconds = question.wait(600)
    report("half-open for 20 s, mail meanwhile", seconds=seconds)
    assert far.worked() == before + 1


def test_50_megabytes_each_way_over_a_thin_line_with_a_cut(far: Far) -> None:
    rate = float(os.environ.get("COVEY_THIN", "1000000"))  # 8 Mbit/s; 125000 is 1 Mbit/s
    before, sent = far.worked(), far.link.ways[1].passed
    far.link.rate = rate
    question = far.ask(down=50 * MB, up=50 * MB)
    question.wait_until(lambda: far.link.ways[1].passed > sent + 10 * MB, seconds=3000)
    far.link.cut = True
    time.sleep(30)
    far.link.cut = False
    seconds = question.wait()
    over = (far.link.ways[1].passed - sent) / MB
    report(f"50 MB each way, {rate * 8 / MB:g} Mbit/s, cut for 30 s", seconds=seconds, sent=over)
    assert far.worked() == before + 1
    assert over < 56
