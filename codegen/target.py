"""What the machine can do, as far as code generation decides by it.

A ``Target`` is a plain value: two machines with equal targets run the same code, so ``key`` belongs
in every cache key.  ``host()`` describes the machine that runs this process.

glibc's vector math library, libmvec, has each function at several widths under the names of the
vector function ABI: ``_ZGVdN4v_tan`` is ``tan`` of four doubles in AVX2 registers, with ``vv`` for
two arguments.  It is used only when it is installed; only x86-64 names are known here.

>>> host().key == host().key
True
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tapec.codegen import engine

__all__ = ["Target", "address", "host"]

# libmvec's one- and two-argument functions of double (glibc 2.22 has the first five, 2.35 all).
# sincos and exp10 are left out: nothing here would call them.
_MVEC_UNARY = (
    "exp", "log", "sin", "cos", "exp2", "expm1", "log1p", "log2", "log10", "tan", "tanh", "sinh",
    "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt", "erf", "erfc",
)  # fmt: skip
_MVEC_BINARY = ("pow", "atan2", "hypot")


@dataclass(frozen=True, slots=True)
class Target:
    """CPU and libraries.  ``mvec`` maps libm's name of a function to libmvec's symbol."""

    cpu: str
    has_fma: bool
    mvec_width: int  # lanes of double of one libmvec call; 0 without libmvec
    mvec: tuple[tuple[str, str], ...]
    has_sincos: bool
    key: str

    def mvec_symbol(self, name: str) -> str | None:
        """libmvec's symbol of libm's function ``name`` at ``mvec_width``, if there is one."""
        return dict(self.mvec).get(name)


def describe(
    cpu: str, features: Mapping[str, bool], machine: str, libmvec: Any, sincos: bool
) -> Target:
    """The Target of a CPU: ``libmvec`` is the loaded library, or None without one."""
    x86 = machine.lower() in ("x86_64", "amd64")
    # Every 64-bit ARM CPU has fused multiply-add; LLVM lists it among the features only on x86.
    fma = features.get("fma", False) if x86 else machine.lower() in ("aarch64", "arm64")
    width, isa = 0, ""
    if x86 and libmvec is not None:
        if features.get("avx512f") and features.get("avx512dq"):
            width, isa = 8, "e"
        elif features.get("avx2"):
            width, isa = 4, "d"
        else:
            width, isa = 2, "b"
    mvec = []
    if width:
        for names, arguments in ((_MVEC_UNARY, "v"), (_MVEC_BINARY, "vv")):
            for name in names:
                symbol = f"_ZGV{isa}N{width}{arguments}_{name}"
                if hasattr(libmvec, symbol):
                    mvec.append((name, symbol))
    if not mvec:
        width = 0
    flags = ",".join(sorted(name for name, on in features.items() if on))
    key = f"{machine} {cpu} {flags} mvec{width}:{','.join(n for n, _ in mvec)} sincos{sincos:d}"
    return Target(cpu, fma, width, tuple(mvec), sincos, key)


@cache
def host() -> Target:
    """The machine this process runs on."""
    return describe(
        engine.host_cpu(),
        engine.host_features(),
        platform.machine(),
        _libmvec(),
        hasattr(_libm(), "sincos"),
    )


@cache
def _libm() -> Any:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    for name in ("libm.so.6", None):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("this process has no C math library")


@cache
def _libmvec() -> Any:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


@cache
def address(symbol: str) -> int:
    """The address of a function of libm or libmvec; ``KeyError`` if neither has it."""
    for library in (_libmvec(), _libm()) if symbol.startswith("_ZGV") else (_libm(),):
        function = getattr(library, symbol, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise KeyError(symbol)
