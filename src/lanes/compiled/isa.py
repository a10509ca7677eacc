"""What the vector unit of this machine is: floats in a vector, registers, and how to ask LLVM for it."""

import os
import platform
from dataclasses import dataclass


class LanesError(RuntimeError):
    """What keeps lanes from working on this machine, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Isa:
    """A vector instruction set; `cpu` and `features` restrict LLVM to it, None takes the host as it is."""

    name: str
    lanes: int  # float32 values in a vector
    registers: int
    cpu: str | None = None
    features: str | None = None


AVX512 = Isa(name="avx512", lanes=16, registers=32)
# vectors of 8 with the registers of AVX-512: less is wasted on short batches where both widths multiply as fast
AVX512VL = Isa(name="avx512vl", lanes=8, registers=32)
AVX2 = Isa(name="avx2", lanes=8, registers=16, cpu="haswell", features="+avx,+avx2,+fma,+bmi,+bmi2")
SSE = Isa(name="sse", lanes=4, registers=16, cpu="x86-64", features="+sse2")
NEON = Isa(name="neon", lanes=4, registers=32)
PLAIN = Isa(name="plain", lanes=4, registers=16)

KNOWN = {isa.name: isa for isa in (AVX512, AVX512VL, AVX2, SSE, NEON, PLAIN)}


def host() -> Isa:
    """The widest set this machine has; environment LANES_ISA names a narrower one."""
    wanted = os.environ.get("LANES_ISA")
    if wanted:
        if wanted not in KNOWN:
            raise LanesError(f"LANES_ISA is {wanted!r}; allowed are {', '.join(KNOWN)}")
        return KNOWN[wanted]
    if platform.machine() in ("arm64", "aarch64"):
        return NEON
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return AVX512
    if features.get("avx2") and features.get("fma"):
        return AVX2
    return SSE if platform.machine() in ("x86_64", "AMD64") else PLAIN
