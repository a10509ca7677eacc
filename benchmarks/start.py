"""What a study's worker takes to start, and then for each run: python -m benchmarks.start [method]

A worker is a process that has imported everything and makes one run after another; CPU seconds of that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import psutil

from covey.runs.config import resolve

RUNS = 4


def main(method: str) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "covey.runs.study.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    spent, process = 0.0, psutil.Process(worker.pid)

    def lap() -> float:
        nonlocal spent
        times = process.cpu_times()
        before, spent = spent, times.user + times.system
        return spent - before

    worker.stdout.readline()
    print(f"load {os.getloadavg()[0]:.0f}; ready after {lap():.2f} CPU s")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(RUNS):
            asked = {"rounds": 1, "seed": number, "data": {"name": "digits"}, "method": {"name": method}}
            job = {"tables": dict(resolve(asked).tables), "folder": f"{folder}/{number}"}
            worker.stdin.write(json.dumps(job) + "\n")
            worker.stdin.flush()
            for line in worker.stdout:
                if "done" in (told := json.loads(line)) or "failed" in told:
                    break
            print(f"run {number + 1}: {lap():.2f} CPU s {told.get('failed', '')}")
        worker.stdin.close()
        worker.wait()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fedavg")
