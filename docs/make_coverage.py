"""Write ``docs/coverage.md``: what every public name of NumPy and SciPy does on traced values.

    python docs/make_coverage.py            # write the table
    python docs/make_coverage.py --check    # fail if it is out of date, list what is missing

What is supported is read from the tables that the tracer uses, not from a list here.  The lists
here say only which functions have no derivative (or no meaning on traced values) by nature.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import tapec.scipy.linalg
import tapec.scipy.special  # noqa: F401  (imports the front end, registers SciPy's ufuncs)
from tapec.ir.opdef import OPS
from tapec.rules import FUNCTIONS, UFUNCS

HERE = Path(__file__).parent

NATIVE = "differentiable, native"
PARTLY = "differentiable, native, by some arguments"
HOST = "differentiable, by host call"
VALUE = "value only"
NOTHING = "no meaning on traced values"
MISSING = "missing"


def _words(text: str) -> set[str]:
    return set(text.split())


#: integers, truth values, steps, metadata: no derivative by nature
_VALUE_ONLY = _words(
    """all allclose any argmax argmin argpartition argsort argwhere array_equal
        array_equiv bincount bitwise_and bitwise_count bitwise_invert bitwise_left_shift
        bitwise_not bitwise_or bitwise_right_shift bitwise_xor can_cast ceil common_type
        count_nonzero diag_indices_from digitize equal fix flatnonzero floor floor_divide
        gcd greater greater_equal histogram_bin_edges invert in1d isclose iscomplex
        iscomplexobj isfinite isin isinf isnan isnat isneginf isposinf isreal isrealobj
        isscalar iterable lcm left_shift less less_equal lexsort logical_and logical_not
        logical_or logical_xor matrix_rank may_share_memory min_scalar_type nanargmax
        nanargmin ndim nextafter nonzero not_equal ravel_multi_index result_type
        right_shift rint searchsorted shape shares_memory sign signbit size sort_complex
        spacing tril_indices_from triu_indices_from trunc unravel_index einsum_path
        array_repr array_str array2string round around gammasgn packbits unpackbits
        isfortran histogram2d histogramdd"""
)

#: files, text, dtypes, settings, plain arrays of given numbers, other objects
_NO_MEANING: dict[str, set[str]] = {
    "numpy": _words(
        """asarray_chkfinite asmatrix bartlett base_repr binary_repr blackman bmat
        broadcast_shapes busday_count busday_offset datetime_as_string datetime_data
        diag_indices format_float_positional format_float_scientific from_dlpack
        frombuffer fromfile fromfunction fromiter frompyfunc fromregex fromstring
        genfromtxt get_include get_printoptions getbufsize geterr geterrcall hamming
        hanning indices info is_busday isdtype issubdtype kaiser load loadtxt mask_indices
        mintypecode nested_iters printoptions promote_types save savetxt savez
        savez_compressed set_printoptions setbufsize seterr seterrcall show_config
        show_runtime test tril_indices triu_indices typename"""
    ),
    "numpy.linalg": {"test"},
    "numpy.fft": {"fftfreq", "rfftfreq", "test"},
    "scipy.special": _words(
        """ai_zeros bei_zeros beip_zeros ber_zeros bernoulli berp_zeros bi_zeros c_roots
        cg_roots chebyc chebys chebyt chebyu erf_zeros errstate euler fresnel_zeros
        fresnelc_zeros fresnels_zeros gegenbauer genlaguerre geterr h_roots he_roots
        hermite hermitenorm j_roots jacobi jn_zeros jnjnp_zeros jnp_zeros jnyn_zeros
        js_roots kei_zeros keip_zeros kelvin_zeros ker_zeros kerp_zeros l_roots la_roots
        laguerre legendre mathieu_even_coef mathieu_odd_coef obl_cv_seq p_roots pro_cv_seq
        ps_roots roots_chebyc roots_chebys roots_chebyt roots_chebyu roots_gegenbauer
        roots_genlaguerre roots_hermite roots_hermitenorm roots_jacobi roots_laguerre
        roots_legendre roots_sh_chebyt roots_sh_chebyu roots_sh_jacobi roots_sh_legendre
        s_roots seterr sh_chebyt sh_chebyu sh_jacobi sh_legendre stirling2 t_roots test
        ts_roots u_roots us_roots y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros
        factorial2 factorialk ellip_normal mathieu_a mathieu_b obl_cv pro_cv"""
    ),
    "scipy.linalg": _words(
        """bandwidth find_best_blas_type get_blas_funcs get_lapack_funcs hadamard helmert
        hilbert invhilbert invpascal ishermitian issymmetric pascal test dft"""
    ),
}

#: by NumPy or SciPy when the program runs
_ON_HOST = {
    "numpy.linalg": {"eig", "eigvals"},
    "scipy.special": {"lambertw"},
    "scipy.linalg": _words(
        """eig eigvals fractional_matrix_power logm orthogonal_procrustes polar signm
        solve_continuous_are solve_discrete_are sqrtm"""
    ),
}

MODULES = ("numpy", "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg")


def public_names(module: str) -> list[tuple[str, Any]]:
    """The functions that a module offers, classes and constants left out."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or dir(found)
    out = []
    for name in sorted(set(names)):
        value = getattr(found, name, None)
        if name.startswith("_") or isinstance(value, type) or not callable(value):
            continue
        out.append((name, value))
    return out


def own_names(module: str) -> set[str]:
    """Names that tapec's module of the same name replaces."""
    path = {"numpy": "tapec.numpy", "scipy.special": "tapec.scipy.special",
            "scipy.linalg": "tapec.scipy.linalg"}.get(module)  # fmt: skip
    if path is None:
        return set()
    try:
        return set(importlib.import_module(path).__all__)
    except ImportError:
        return set()


def support(module: str, name: str, value: Any, own: set[str]) -> str:
    known = name in own
    with contextlib.suppress(TypeError):
        known = known or value in UFUNCS or value in FUNCTIONS
    if not known:
        return NOTHING if name in _NO_MEANING.get(module, ()) else MISSING
    if name in _VALUE_ONLY:
        return VALUE
    if name in _ON_HOST.get(module, ()):
        return HOST
    entry = OPS.get(name)
    return PARTLY if entry is not None and entry.unknown else NATIVE


def table(module: str) -> dict[str, str]:
    own = own_names(module)
    return {name: support(module, name, value, own) for name, value in public_names(module)}


def text() -> str:
    lines = [
        "# Coverage",
        "",
        "What each public function of NumPy and SciPy does on traced values. Made by",
        "`docs/make_coverage.py` from the tables that the tracer uses.",
        "",
    ]
    tables = {module: table(module) for module in MODULES}
    kinds = (NATIVE, PARTLY, HOST, VALUE, NOTHING, MISSING)
    lines.append("| module | " + " | ".join(kinds) + " |")
    lines.append("|---|" + "---|" * len(kinds))
    for module, rows in tables.items():
        counts = Counter(rows.values())
        lines.append(f"| `{module}` | " + " | ".join(str(counts[k]) for k in kinds) + " |")
    for module, rows in tables.items():
        lines += ["", f"## {module}", ""]
        for kind in kinds:
            names = [f"`{name}`" for name, k in rows.items() if k == kind]
            if names:
                lines += [f"**{kind}** ({len(names)}): " + ", ".join(names), ""]
    return "\n".join([*lines, *distributions()]).rstrip().replace("\n\n\n", "\n\n") + "\n"


def distributions() -> list[str]:
    """What ``tapec.scipy.stats`` covers of SciPy's distributions."""
    import scipy.stats

    from tapec.scipy import stats

    generic = (scipy.stats.rv_continuous, scipy.stats.rv_discrete)
    base = type(scipy.stats.multivariate_normal).__mro__[-2]
    known = [n for n, d in vars(scipy.stats).items() if isinstance(d, (*generic, base))]
    lines = ["", "## scipy.stats", ""]
    for kind, covered in (("distributions with derivatives", True), ("without", False)):
        names = [f"`{n}`" for n in sorted(known) if (n in stats.__all__) is covered]
        lines += [f"**{kind}** ({len(names)}): " + ", ".join(names), ""]
    return lines


def main() -> int:
    made = text()
    path = HERE / "coverage.md"
    if "--check" in sys.argv[1:]:
        for module in MODULES:
            missing = [n for n, k in table(module).items() if k == MISSING]
            print(f"{module}: missing {len(missing)}: {' '.join(missing)}")
        return int(not path.exists() or path.read_text() != made)
    path.write_text(made)
    print(f"wrote {path} (NumPy {np.__version__})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
