"""What each operation on tensors means, in terms of traced values.

A ``Rule`` lowers one recorded operation to operations of the IR, by calling the functions that
NumPy code is traced with, after PyTorch's own type promotion.  Whatever a rule composes is one
record of the graph and one node to the user (``SoftmaxBackward0``).

``saved`` says which values PyTorch would keep for backward (``"0"``, ``"1"``: operands,
``"r"``: the result; ``"0*"``: operand 0 if operand 1 requires grad, and the other way round):
writing into one of those in place before backward is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.ir.core import BOOL, C64, C128, DTYPES, F32, F64, I64, DType, Type
from tapec.primitives import binary, cast, select, strong, unary
from tapec.tape import Tape, as_tracer
from tapec.tensors.dtypes import defaults
from tapec.tensors.graph import (
    Const,
    Kind,
    TensorError,
    TensorIndexError,
    TensorTypeError,
    TensorValueError,
)
from tapec.tensors.parts import OfPairs, parameter
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["RULES", "Rule", "defaults", "infer", "result_dtype", "rule"]

_RANK = {"b": 0, "i": 1, "f": 2, "c": 3}


class Rule:
    """See the module's description."""

    __slots__ = ("diff", "fixed", "lower", "name", "saved")

    def __init__(
        self,
        lower: Callable[[Tape, Sequence[Any], Any], Tracer],
        name: str,
        diff: bool,
        fixed: tuple[int, ...],
        saved: str,
    ) -> None:
        self.lower = lower
        self.name = name
        self.diff = diff
        self.fixed = fixed
        self.saved = saved


RULES: dict[str, Rule] = {}


def rule(
    op: str,
    name: str | None = None,
    saved: str = "",
    diff: bool = True,
    fixed: tuple[int, ...] = (),
) -> Callable[[Any], Any]:
    """Register ``function(tape, args, attrs)`` as the meaning of ``op``."""

    def register(function: Any) -> Any:
        title = name or "".join(w.capitalize() for w in op.split("_"))
        RULES[op] = Rule(function, f"{title}Backward0", diff, fixed, saved)
        return function

    return register


RULES["input"] = Rule(lambda tape, args, attrs: args[0], "AccumulateGrad", True, (), "")


def _ir(tape: Tape, args: Sequence[Any], fn: Any) -> Tracer:
    from tapec.tensors.plans import inlined

    return inlined(tape, fn, args)  # type: ignore[no-any-return]


RULES["ir"] = Rule(_ir, "PullbackBackward0", True, (), "")


def infer(op: str, types: tuple[Any, ...], attrs: Any) -> tuple[Type, bool]:
    """The result's type, and whether it can require grad.  ``types``: a Type, a ``Kind`` of a
    number that is an input, or a ``Const`` per operand."""
    entry = RULES[op]
    if op == "ir":
        type = attrs.complex_type if isinstance(attrs, OfPairs) else attrs.results[0].type
    else:
        try:
            with Tape("infer") as tape:
                args = []
                for t in types:
                    if t.__class__ is Const:
                        args.append(t.value)
                    elif t.__class__ is Kind:
                        args.append(parameter(tape, t.type, True))
                    else:
                        args.append(parameter(tape, t))
                type = entry.lower(tape, args, attrs).type
        except TensorError:
            raise
        except IndexError as error:
            raise TensorIndexError(str(error)) from None
        except ValueError as error:
            raise TensorValueError(str(error)) from None
        except TypeError as error:
            raise TensorTypeError(str(error)) from None
        except NotImplementedError as error:
            raise TensorTypeError(str(error)) from None
    if len(defaults.inferred) > 200_000:
        defaults.inferred.clear()
    return (type, entry.diff and type.dtype.is_inexact)


# -- promotion ----------------------------------------------------------------------------


def _wider(x: DType | None, y: DType) -> DType:
    if x is None:
        return y
    if "c" in (x.kind, y.kind):
        wide = any(d in (F64, C128) for d in (x, y))
        return C128 if wide else C64
    rx, ry = _RANK[x.kind], _RANK[y.kind]
    if rx != ry:
        return x if rx > ry else y
    return x if x.bits >= y.bits else y


def result_dtype(args: Sequence[Any]) -> DType:
    """PyTorch's promotion: tensors with dimensions before 0-d tensors before numbers; a later
    group counts only if it is of a higher kind (bool < integer < float)."""
    groups: list[DType | None] = [None, None, None]
    for a in args:
        if isinstance(a, Tracer):
            if a.weak:
                kind = a.type.dtype.kind
                d, g = (_default(kind) if kind in "fc" else a.type.dtype), 2
            else:
                d, g = a.type.dtype, 0 if a.type.shape else 1
        elif isinstance(a, bool):
            d, g = BOOL, 2
        elif isinstance(a, int):
            d, g = I64, 2
        else:
            d, g = _default("c" if isinstance(a, complex) else "f"), 2
        groups[g] = _wider(groups[g], d)
    best: DType | None = None
    for found in groups:
        if found is not None and (best is None or _RANK[found.kind] > _RANK[best.kind]):
            # a complex number takes the precision of the real tensor that it meets
            real = best is not None and best.kind == "f" and found.kind == "c"
            best = (C64 if best is F32 else C128) if real else found
    assert best is not None
    return best


def _default(kind: str) -> DType:
    """The dtype of Python's numbers of a kind."""
    if kind == "c":
        return C64 if defaults.dtype is F32 else C128
    return defaults.dtype


def number(tape: Tape, a: Any, dtype: DType) -> Tracer:
    """A number or tracer as a strong tracer of ``dtype``."""
    if isinstance(a, Tracer):
        x: Tracer = strong(cast(a, dtype))
        return x
    kind = dtype.kind
    if kind == "c":
        return as_tracer(tape, dtype.np.type(a))
    value = float(a) if kind == "f" else int(a) if kind == "i" else bool(a)
    return tape.constant(value, dtype)


def promote(tape: Tape, args: Sequence[Any], floating: bool = False) -> list[Tracer]:
    dtype = result_dtype(args)
    if floating and dtype.kind in "bi":
        dtype = defaults.dtype
    return [number(tape, a, dtype) for a in args]


def as_float(tape: Tape, x: Any) -> Tracer:
    return promote(tape, [x], True)[0]


# -- elementwise ------------------------------------------------------------------------------


def _binary(op: str, name: str, saved: str, floating: bool = False, diff: bool = True) -> None:
    def lower(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
        x, y = promote(tape, args, floating)
        if op in ("sub",) and x.type.dtype is BOOL:
            raise TensorError(
                "subtraction of bool tensors is not supported; use logical_xor or "
                "convert with .to()"
            )
        return binary(op, x, y)

    rule(op, name, saved, diff)(lower)


_binary("add", "Add", "")
_binary("sub", "Sub", "")
_binary("mul", "Mul", "0*1*")
_binary("div", "Div", "0*1", True)
_binary("floor_div", "FloorDivide", "", False, False)
_binary("mod", "Remainder", "1")
_binary("fmod", "Fmod", "1")
_binary("max", "Maximum", "01")
_binary("min", "Minimum", "01")
_binary("atan2", "Atan2", "01", True)
_binary("hypot", "Hypot", "01r", True)
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    _binary(_op, _op.capitalize(), "", False, False)
for _op in ("and", "or", "xor", "shift_left", "shift_right"):
    _binary(_op, _op.capitalize(), "", False, False)


@rule("hypot", "Hypot", "01r")
def _hypot(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return UFUNCS[np.hypot](*promote(tape, args, True))  # type: ignore[no-any-return]


@rule("pow", "Pow", "01r")
def _pow(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x, y = args
    if isinstance(y, Tracer) or not isinstance(x, Tracer):
        x, y = promote(tape, args)
        if x.type.dtype.kind in "bi":
            raise TensorTypeError(
                "an integer tensor to an integer tensor power; convert with .to()"
            )
        return binary("pow", x, y)
    dtype = result_dtype(args)
    if isinstance(y, (int, float)) and dtype.kind == "f" and float(y).is_integer():
        y = int(y)
    return UFUNCS[np.power](number(tape, x, dtype), y)  # type: ignore[no-any-return]


@rule("logaddexp", "Logaddexp", "01r")
def _logaddexp(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return UFUNCS[np.logaddexp](*promote(tape, args, True))  # type: ignore[no-any-return]


def _unary(op: str, name: str, saved: str = "0", diff: bool = True, keep: bool = False) -> None:
    ufunc = getattr(np, {"neg": "negative", "abs": "absolute"}.get(op, op))

    def lower(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
        x = promote(tape, args)[0] if keep else as_float(tape, args[0])
        return UFUNCS[ufunc](x)  # type: ignore[no-any-return]

    rule(op, name, saved, diff)(lower)


for _op, _name, _saved in (
    ("sqrt", "Sqrt", "r"), ("exp", "Exp", "r"), ("exp2", "Exp2", "r"), ("expm1", "Expm1", "r"),
    ("log", "Log", "0"), ("log2", "Log2", "0"), ("log10", "Log10", "0"), ("log1p", "Log1P", "0"),
    ("sin", "Sin", "0"), ("cos", "Cos", "0"), ("tan", "Tan", "r"), ("arcsin", "Asin", "0"),
    ("arccos", "Acos", "0"), ("arctan", "Atan", "0"), ("sinh", "Sinh", "0"), ("cosh", "Cosh", "0"),
    ("tanh", "Tanh", "r"), ("arcsinh", "Asinh", "0"), ("arccosh", "Acosh", "0"),
    ("arctanh", "Atanh", "0"), ("sinc", "Sinc", "0"), ("cbrt", "Cbrt", "r"),
):  # fmt: skip
    if _op != "sinc":
        _unary(_op, _name, _saved)
_unary("neg", "Neg", "", keep=True)
_unary("abs", "Abs", "0", keep=True)
_unary("sign", "Sign", "", keep=True)
_unary("floor", "Floor", "", keep=True)
_unary("ceil", "Ceil", "", keep=True)
_unary("trunc", "Trunc", "", keep=True)
_unary("isnan", "Isnan", "", False)
_unary("isinf", "Isinf", "", False)
_unary("isfinite", "Isfinite", "", False)


@rule("sinc", "Sinc", "0")
def _sinc(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return FUNCTIONS[np.sinc](as_float(tape, args[0]))  # type: ignore[no-any-return]


@rule("round", "Round", "")
def _round(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = promote(tape, args)[0]
    if x.type.dtype.kind != "f":
        return x
    if attrs:
        scale = 10.0**attrs
        return binary("div", unary("rint", binary("mul", x, scale)), scale)
    return unary("rint", x)


@rule("not", "BitwiseNot", "", False)
def _not(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return unary("not", args[0])


def truth(x: Tracer) -> Tracer:
    return x if x.type.dtype is BOOL else binary("ne", x, 0)


@rule("logical", "Logical", "", False)
def _logical(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    xs = [truth(x) for x in args]
    return unary("not", xs[0]) if attrs == "not" else binary(attrs, xs[0], xs[1])


@rule("reciprocal", "Reciprocal", "r")
def _reciprocal(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return binary("div", 1.0, as_float(tape, args[0]))


@rule("rdiv", "Mul", "")
def _rdiv(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    """number / tensor, which PyTorch computes as reciprocal times number."""
    x, y = promote(tape, args, True)
    return binary("div", x, y)


@rule("conj", "Conj", "")
def _conj(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return UFUNCS[np.conjugate](args[0])  # type: ignore[no-any-return]


@rule("angle", "Angle", "0")
def _angle(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return FUNCTIONS[np.angle](args[0])  # type: ignore[no-any-return]


def _part(name: str, take: Callable[[Tracer], Tracer]) -> None:
    def lower(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
        if args[0].type.dtype.kind != "c":
            raise TensorError(f"{name} of a real tensor; it is defined for complex ones")
        return take(args[0])

    rule(name, name.capitalize(), "")(lower)


_part("real", lambda x: x.real.copy())
_part("imag", lambda x: x.imag.copy())


@rule("square", "Pow", "0")
def _square(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return UFUNCS[np.square](promote(tape, args)[0])  # type: ignore[no-any-return]


@rule("rsqrt", "Rsqrt", "r")
def _rsqrt(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return binary("div", 1.0, unary("sqrt", as_float(tape, args[0])))


def sigmoid(x: Tracer) -> Tracer:
    """1 / (1 + exp(-x)) without overflow: exp of -|x| only."""
    e = unary("exp", unary("neg", x))
    return binary("div", 1.0, binary("add", 1.0, e))


@rule("sigmoid", "Sigmoid", "r")
def _sigmoid(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    # tanh does not overflow, in value or in any derivative
    half = binary("mul", x, 0.5)
    return binary("add", binary("mul", unary("tanh", half), 0.5), 0.5)


@rule("relu", "Relu", "r")
def _relu(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = promote(tape, args)[0]
    nan = binary("ne", x, x) if x.type.dtype.kind == "f" else None
    on = binary("gt", x, 0)
    if nan is not None:
        on = binary("or", on, nan)
    return select(on, x, number(tape, 0, x.type.dtype))


@rule("leaky_relu", "LeakyRelu", "0")
def _leaky_relu(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    return select(binary("gt", x, 0), x, binary("mul", x, attrs.value))


@rule("elu", "Elu", "r")
def _elu(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    on = binary("gt", x, 0)
    safe = select(on, number(tape, 0, x.type.dtype), x)
    return select(on, x, binary("mul", unary("expm1", safe), attrs.value))


def softplus(x: Tracer) -> Tracer:
    """log(1 + exp(x)), stable, with all derivatives at 0."""
    return UFUNCS[np.logaddexp](x, binary("mul", x, 0.0))  # type: ignore[no-any-return]


@rule("softplus", "Softplus", "0")
def _softplus(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    beta, threshold = attrs.value
    if beta == 1.0:
        y = _softplus_of(tape, x)
    else:
        y = binary("div", _softplus_of(tape, binary("mul", x, beta)), beta)
    return select(binary("gt", binary("mul", x, beta), threshold), x, y)


def _softplus_of(tape: Tape, x: Tracer) -> Tracer:
    zero = number(tape, 0.0, x.type.dtype)
    up = binary("ge", x, 0)
    # from the larger side, so that the branches are the same function
    e = unary("exp", select(up, unary("neg", x), x))
    return binary("add", select(up, x, zero), unary("log1p", e))


@rule("logsigmoid", "LogSigmoid", "0")
def _logsigmoid(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    return unary("neg", _softplus_of(tape, unary("neg", x)))


@rule("erf", "Erf", "0")
def _erf(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return erf(tape, as_float(tape, args[0]))


_erf_coefficients: list[float] = []


def _chebyshev() -> list[float]:
    """Coefficients of log(erfcx(z)/t) over t = 2/(2+z), z >= 0: Chebyshev interpolation."""
    if not _erf_coefficients:
        from scipy.special import erfcx

        n = 32
        theta = (np.arange(n) + 0.5) * math.pi / n
        t = np.clip((np.cos(theta) + 1) / 2, 1e-12, 1)
        f = np.log(erfcx(2 / t - 2) / t)
        for k in range(n):
            _erf_coefficients.append(float(2 / n * (f * np.cos(k * theta)).sum()))
    return _erf_coefficients


def erf(tape: Tape, x: Tracer) -> Tracer:
    """The error function: Taylor's series within 1 of 0, where a Chebyshev series of the scaled
    complement, which serves beyond, would lose digits of the derivatives."""
    c = _chebyshev()
    up = binary("ge", x, 0)
    z = select(up, x, unary("neg", x))
    near = binary("lt", z, 1.0)
    square = binary("mul", x, x)
    square = select(near, square, number(tape, 0.0, x.type.dtype))
    series = number(tape, 0.0, x.type.dtype)
    for k in range(19, -1, -1):
        a = (-1.0) ** k * 2 / (math.sqrt(math.pi) * math.factorial(k) * (2 * k + 1))
        series = binary("add", binary("mul", square, series), a)
    z = select(binary("lt", z, 6.5), z, number(tape, 6.5, x.type.dtype))
    t = binary("div", 2.0, binary("add", z, 2.0))
    y = binary("sub", binary("mul", t, 4.0), 2.0)
    d = number(tape, c[-1], x.type.dtype)
    dd = number(tape, 0.0, x.type.dtype)
    for a in reversed(c[1:-1]):  # Clenshaw's recurrence
        d, dd = binary("sub", binary("add", binary("mul", y, d), a), dd), d
    p_ = binary("sub", binary("add", binary("mul", binary("mul", y, 0.5), d), 0.5 * c[0]), dd)
    complement = binary("mul", t, unary("exp", binary("sub", p_, binary("mul", z, z))))
    value = binary("sub", 1.0, complement)
    far = select(up, value, unary("neg", value))
    return select(near, binary("mul", x, series), far)


@rule("gelu", "Gelu", "0")
def _gelu(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    if attrs == "tanh":
        inner = binary("add", x, binary("mul", binary("mul", binary("mul", x, x), x), 0.044715))
        t = unary("tanh", binary("mul", inner, math.sqrt(2 / math.pi)))
        return binary("mul", binary("mul", x, 0.5), binary("add", t, 1.0))
    e = erf(tape, binary("mul", x, math.sqrt(0.5)))
    return binary("mul", binary("mul", x, 0.5), binary("add", e, 1.0))


@rule("silu", "Silu", "0")
def _silu(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    return binary("mul", x, RULES["sigmoid"].lower(tape, [x], None))


@rule("where", "Where", "0", fixed=(0,))
def _where(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x, y = promote(tape, args[1:])
    return select(truth(args[0]), x, y)


@rule("masked_fill", "MaskedFill", "1", fixed=(1,))
def _masked_fill(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    x, mask, value = args
    return select(mask, number(tape, value, x.type.dtype), x)


@rule("clamp", "Clamp", "0")
def _clamp(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    low, high = attrs
    bounds = [b.value for b in (low, high) if b is not None]
    x = promote(tape, [args[0], *bounds])[0]
    if low is not None:
        x = binary("max", x, number(tape, low.value, x.type.dtype))
    if high is not None:
        x = binary("min", x, number(tape, high.value, x.type.dtype))
    return x


@rule("convert", "ToCopy", "")
def _convert(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return number(tape, args[0], DTYPES[attrs])


@rule("detach", "Detach", "", diff=False)
def _detach(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return args[0]  # type: ignore[no-any-return]


@rule("clone", "Clone", "")
def _clone(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return args[0].copy()  # type: ignore[no-any-return]


@rule("alias", "Alias", "")
def _alias(tape: Tape, args: Sequence[Any], attrs: Any) -> Tracer:
    return args[0].copy()  # type: ignore[no-any-return]
