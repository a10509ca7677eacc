"""A network namespace behind a bad link: packets pass through this process, which delays, loses or swallows them.

What `tc netem` does in the kernel, for kernels that have none: the link is a pair of TUN devices, one of them in the
namespace. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from dataclasses import dataclass, field

QUEUE = 64 * 1024  # bytes that wait at a slow link before packets are dropped, as in a router
NUMBERS = itertools.count(os.getpid() % 200)


def possible() -> bool:
    """Whether this process may make namespaces and TUN devices."""
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        return False
    name = f"covey-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


@dataclass
class Direction:
    """One way of the link: packets that are on it, and when it is free again."""

    source: int
    target: int
    free: float = 0.0
    waiting: list[tuple[float, int, bytes]] = field(default_factory=list)
    passed: int = 0
    dropped: int = 0


class BadLink:
    """A namespace with one device; its other end is here. Settings may change while packets are on their way."""

    def __init__(
        self, *, delay: float = 0.0, loss: float = 0.0, rate: float | None = None, seed: int = 1
    ) -> None:
        self.delay = delay  # seconds, one way
        self.loss = loss  # share of the packets
        self.rate = rate  # bytes per second, each way
        self.cut = False
        self.rng = random.Random(seed)
        number = next(NUMBERS) % 200
        self.namespace = f"covey-{os.getpid()}-{number}"
        self.here, self.there = f"10.77.{number}.1", f"10.77.{number}.2"
        self.outside, self.inside = f"cva{number}", f"cvb{number}"
        self.over = threading.Event()

    def __enter__(self) -> BadLink:
        ip("netns", "add", self.namespace)
        near, far = tun(self.outside), tun(self.inside)
        ip("link", "set", self.inside, "netns", self.namespace)
        ip("addr", "add", f"{self.here}/24", "dev", self.outside)
        ip("link", "set", self.outside, "up")
        ip("-n", self.namespace, "addr", "add", f"{self.there}/24", "dev", self.inside)
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "link", "set", self.inside, "up")
        self.ways = [Direction(near, far), Direction(far, near)]
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        for way in self.ways:
            os.close(way.source)
        ip("netns", "del", self.namespace)

    def move(self) -> str:
        """Gives the namespace another address, as a site has after its provider or its VPN came back."""
        ip("-n", self.namespace, "addr", "flush", "dev", self.inside)
        self.there = self.there[: self.there.rindex(".")] + ".77"
        ip("-n", self.namespace, "addr", "add", f"{self.there}/24", "dev", self.inside)
        return self.there

    def forward(self) -> None:
        """Moves packets until it is over."""
        number = itertools.count()
        while not self.over.is_set():
            now = time.monotonic()
            due = [way.waiting[0][0] for way in self.ways if way.waiting]
            wait = min([0.05, *(max(0.0, at - now) for at in due)])
            ready, _, _ = select.select([way.source for way in self.ways], [], [], wait)
            now = time.monotonic()
            for way in self.ways:
                if way.source in ready:
                    self.take(way, os.read(way.source, 65536), now, next(number))
                while way.waiting and way.waiting[0][0] <= now:
                    packet = heapq.heappop(way.waiting)[2]
                    if not self.cut:
                        way.passed += len(packet)
                        os.write(way.target, packet)

    def take(self, way: Direction, packet: bytes, now: float, number: int) -> None:
        """One packet at the beginning of the link."""
        backlog = max(0.0, way.free - now) * (self.rate or 0.0)
        if self.cut or backlog > QUEUE or self.rng.random() < self.loss:
            way.dropped += 1
            return
        way.free = max(way.free, now) + (len(packet) / self.rate if self.rate else 0.0)
        heapq.heappush(way.waiting, (way.free + self.delay, number, packet))

    def enter(self) -> None:
        """Moves the calling thread into the namespace."""
        handle = os.open(f"/var/run/netns/{self.namespace}", os.O_RDONLY)
        try:
            enter_namespace(handle)
        finally:
            os.close(handle)


def enter_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns")


def tun(name: str) -> int:
    """A TUN device; whoever holds the file sees and sends its packets."""
    handle = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(handle, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0001 | 0x1000))
    return handle


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
