"""The kernels are compiled once per machine, again when their sources change, and for narrower machines too."""

import itertools
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lanes
from covey.training.models import build
from lanes import LanesError
from lanes.compiled import library
from lanes.compiled.isa import AVX2, AVX512, NEON, host
from lanes.compiled.tiles import Reach, cover, parts, shapes, split
from lanes.program import Each


def test_the_cache_notices_an_edit_of_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = library.object_files(AVX2)
    assert before["vector"].parent == tmp_path / "lanes"
    folder = tmp_path / "sources"
    folder.mkdir()
    for source in Path(library.__file__).parent.glob("*.py"):
        (folder / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(library, "SOURCES", folder)
    assert library.object_files(AVX2) == before
    with (folder / "vector.py").open("a") as file:
        file.write("# changed\n")
    assert library.object_files(AVX2) != before


def test_a_warm_start_is_quick_and_says_nothing() -> None:
    library.ensure_built(host())
    said: list[str] = []
    started = time.process_time()  # of this process alone, however busy the machine is
    library.ensure_built(host(), said.append)
    library.load.__wrapped__(host(), library.EVERY)
    assert time.process_time() - started < 0.5
    assert not said


def test_a_process_without_numba_can_use_what_is_compiled() -> None:
    """Only compiling imports Numba; training processes stay small."""
    library.ensure_built(host())
    code = (
        "import sys; from lanes.compiled.library import load; from lanes.compiled.isa import host;"
        "load(host()); sys.exit('numba' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_an_unknown_instruction_set_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANES_ISA", "mmx")
    with pytest.raises(LanesError, match="LANES_ISA is 'mmx'"):
        host()


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("mlp", set()),
        ("lenet5", {"images"}),
        ("cnn-mnist", {"images", "winograd", "transforms"}),
        ("resnet18", {"images", "windows", "norms", "winograd", "transforms"}),
    ],
)
def test_a_model_compiles_the_parts_that_its_programs_need_and_no_others(model: str, more: set[str]) -> None:
    shape = (3, 32, 32) if model == "resnet18" else (1, 28, 28)
    plan = lanes.plan(build(model, input_shape=shape, outputs=10), shape, "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    assert plan.parts == {"vector", "machine"} | more
    ways: list[Each] = ["alike"] if plan.no_lengths else ["alike", "weighted", "lengths"]
    for blocks, each in itertools.product((1, 3), ways):
        code = replace(plan, fast=frozenset()).program("cross-entropy", blocks, each).code
        assert library.parts_of(code[:, 0].tolist()) <= plan.parts


def test_the_time_to_compile_grows_with_the_parts_and_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SECONDS", {"vector": 4.0, "machine": 3.0, "images": 2.0})
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert library.time_to_compile(["images"]) == "about 2 s"
    assert library.time_to_compile(["vector", "machine", "images"]) == "about 4 s"  # 9 / 2, rounded to even
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 6.0, 6.0))  # nine processes share what three had
    assert library.time_to_compile(["vector", "machine", "images"]) == "about 14 s, as it is busy (load 6)"


@pytest.mark.slow
def test_avx2_gives_the_same_gradients() -> None:
    """All gradient tests again in a process whose target is restricted to AVX2, compiled for it."""
    environment = os.environ | {"LANES_ISA": "avx2"}
    tests = [str(Path(__file__).with_name(name)) for name in ("test_gradients.py", "test_steps.py")]
    result = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *tests], env=environment)
    assert result.returncode == 0


FOR_ARM = """
import llvmlite.binding as llvm
from lanes.compiled.build import optimised

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
machine = target.create_target_machine(cpu="generic", features="+neon", opt=3, reloc="pic")
print(machine.emit_assembly(optimised("vector", machine)))
"""


@pytest.mark.slow
def test_the_same_source_becomes_neon() -> None:
    """No ARM machine is needed to see that LLVM turns a tile into fused multiply-adds on registers of four floats."""
    environment = os.environ | {"LANES_ISA": "neon", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", FOR_ARM], env=environment, capture_output=True, text=True, check=True
    )
    for name in ("lanes_contract_1_4_6", "lanes_correlate_1_4_6"):
        kernel = result.stdout.split(f"{name}:")[1].split(".Lfunc_end")[0]
        tile = re.findall(r"\bfmla\s+v\d+\.4s", kernel)
        assert len(tile) >= 4 * 6
        assert not re.search(r"\bbl\b", kernel)  # nothing is left to a library


@pytest.mark.parametrize("isa", [AVX512, AVX2, NEON])
def test_tiles_fit_into_the_registers_and_cover_everything(isa: object) -> None:
    for rows, columns in shapes(isa):
        assert rows * columns + columns + 1 <= isa.registers
    assert split(10, 4) == [(0, 3), (3, 3), (6, 4)]
    reach = Reach(taps=5, stride=1, pad=4, width=10)
    rows, spans = cover(isa, 7, 14, reach, 80)
    assert [c for s in spans for c in range(s.start, s.start + s.columns * s.tiles)] == list(range(14))
    assert all((rows, s.columns) in shapes(isa) for s in spans)


def test_where_two_columns_share_a_vector_tiles_have_an_even_number_of_them_or_one() -> None:
    assert parts(AVX512) == parts(AVX2) == [1, 2]
    assert parts(NEON) == [1]  # two floats are too few
    assert {columns for _, columns in shapes(AVX512, 2)} == {1, 2, 4, 6}
    assert all((rows + 1) * -(-columns // 2) + 1 <= 16 for rows, columns in shapes(AVX2, 2))
    assert split(9, 4, 2) == [(0, 4), (4, 4), (8, 1)]
    assert split(1, 4, 2) == [(0, 1)]
    rows, spans = cover(AVX512, 7, 15, Reach(taps=5, stride=1, pad=4, width=11), 80, 2)
    assert [c for s in spans for c in range(s.start, s.start + s.columns * s.tiles)] == list(range(15))
    assert all((rows, s.columns) in shapes(AVX512, 2) for s in spans)


def test_taps_that_see_only_margin_are_left_out() -> None:
    """14 columns read 10 with a kernel of 5: the first column sees only its last tap, the last its first."""
    reach = Reach(taps=5, stride=1, pad=4, width=10)
    assert reach.of(0, 1) == (4, 1)
    assert reach.of(0, 2) == (3, 2)
    assert reach.of(4, 8) == (0, 5)
    assert reach.of(13, 14) == (0, 1)
    assert Reach(taps=2, stride=3, pad=0, width=4).of(2, 3) == (0, 0)
