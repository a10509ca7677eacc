"""Memory that was freed: kept for training, given back to the system when a server asks for it."""

import subprocess
import sys

import pytest

# In a process of its own, whose memory nobody else uses: pieces of a body, as the port's thread holds them.
TRY = """
import threading
from covey.training.bench.freed_memory import give_back_memory, keep_freed_memory

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

def thread():
    before = megabytes()
    pieces = [bytes(2**16) + b"x" for _ in range(640)]
    if {last}:
        above = bytes(2**16)  # stays in use, behind all others
    held = megabytes() - before
    del pieces
    kept = megabytes() - before
    give_back_memory()
    print(held > 35, kept > 35, megabytes() - before < 5)

keep_freed_memory()
other = threading.Thread(target=thread)
other.start()
other.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
@pytest.mark.parametrize("last", [False, True])
def test_what_a_thread_freed_goes_back_to_the_system_when_asked(last: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY.format(last=last)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "True"]
