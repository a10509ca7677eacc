"""Files and command lines as strangers make them: every reader and every command, some thousand cases."""

from __future__ import annotations

import io
import resource
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from covey.errors import UserError
from tests.hostile.frame import Outcome, attempt, broke, held


@attempt(
    "300 files for each of 18 readers: tables, npz, idx, safetensors, journals, indexes, blocks of the wire",
    seconds=600,
)
def readers() -> Outcome:
    from tests.fuzz.frame import fuzz
    from tests.fuzz.readers import subjects

    every = list(subjects())
    faults = fuzz(every, 100, first=11)
    said = f"{100 * len(every):,} files were read, or refused in a sentence"
    return broke(f"{len(faults)} faults: {faults[0][:200]}") if faults else held(said)


@attempt("60 command lines with words that were not meant for them", seconds=600)
def commands() -> Outcome:
    from tests.fuzz.commands import subjects
    from tests.fuzz.frame import fuzz

    faults = fuzz(subjects(), 60, first=11)
    return broke(f"{len(faults)} faults: {faults[0][:200]}") if faults else held("no traceback")


@attempt("an npz file that promises 10^12 pictures, and one of 13 MB that unpacks to 3 GB", seconds=300)
def archives() -> Outcome:
    from covey.data.files import read_npz

    folder, said = Path(tempfile.mkdtemp()), []
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 3)})
    with zipfile.ZipFile(folder / "promise.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(100))
    size = 3 * 10**9
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(head.getvalue())
        for _ in range(size // 10**8):
            member.write(bytes(10**8))
    import covey.data.files as files

    files.free_memory = lambda: 2 * 10**9  # type: ignore[assignment]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("promise.npz", "bomb.npz"):
        try:
            read_npz(folder / name, ["x"])
            return broke(f"{name} was read")
        except UserError as error:
            said.append(str(error).replace(str(folder), ""))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    words = f"{'; '.join(said)}; memory grew by {grown:.0f} MB"
    return held(words) if grown < 50 else broke(words)


@attempt("replies of own steps with wrong types, two of 8 in every method", seconds=600)
def wrong_types() -> Outcome:
    import warnings
    from dataclasses import replace

    from covey.core.round import run_rounds
    from tests.fleet.test_wrong_types import WRONG, Mine
    from tests.hostile.liar import ALL, honest_fleet, method

    warnings.simplefilter("ignore")
    bare, tried = [], 0
    for name in ALL:
        made = method(name)
        for changes, why in (WRONG[tried // 2 % 8], WRONG[(tried // 2 + 3) % 8]):
            tried += 1
            try:
                run_rounds(replace(made, local=Mine(tuple(changes.items()))), honest_fleet(name), rounds=1)
                bare.append(f"{name}: {why}: taken")
            except UserError:
                pass
            except Exception as error:
                bare.append(f"{name}: {type(error).__name__}: {error}")
    said = f"{tried - len(bare)} of {tried} replies are one sentence of {len(ALL)} methods"
    return held(said) if not bare else broke(f"{said}; {bare[:3]}")
