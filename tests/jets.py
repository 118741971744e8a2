"""Numbers with two derivatives, by the rules of calculus: an oracle that owes nothing to tapec.

A ``Jet`` is f(t) up to the second order at t = 0.  A function of NumPy scalars that is run on
``x + t v`` gives its value, its directional derivative and its second directional derivative.
"""

from __future__ import annotations

import math
from typing import Any


class Jet:
    __slots__ = ("d", "dd", "v")

    def __init__(self, v: float, d: float = 0.0, dd: float = 0.0) -> None:
        self.v, self.d, self.dd = v, d, dd

    def __add__(self, o: Any) -> Jet:
        o = jet(o)
        return Jet(self.v + o.v, self.d + o.d, self.dd + o.dd)

    def __neg__(self) -> Jet:
        return Jet(-self.v, -self.d, -self.dd)

    def __sub__(self, o: Any) -> Jet:
        return self + -jet(o)

    def __rsub__(self, o: Any) -> Jet:
        return jet(o) + -self

    def __mul__(self, o: Any) -> Jet:
        o = jet(o)
        return Jet(
            self.v * o.v, self.d * o.v + self.v * o.d,
            self.dd * o.v + 2 * self.d * o.d + self.v * o.dd,
        )  # fmt: skip

    def __truediv__(self, o: Any) -> Jet:
        o = jet(o)
        return self * o.apply(1 / o.v, -1 / o.v**2, 2 / o.v**3)

    def __rtruediv__(self, o: Any) -> Jet:
        return jet(o) / self

    __radd__, __rmul__ = __add__, __mul__

    def apply(self, f: float, f1: float, f2: float) -> Jet:
        return Jet(f, f1 * self.d, f2 * self.d**2 + f1 * self.dd)

    def __abs__(self) -> Jet:
        return self if self.v > 0 else -self

    def __lt__(self, o: Any) -> bool:
        return bool(self.v < jet(o).v)

    def __gt__(self, o: Any) -> bool:
        return bool(self.v > jet(o).v)

    def __le__(self, o: Any) -> bool:
        return bool(self.v <= jet(o).v)

    def __ge__(self, o: Any) -> bool:
        return bool(self.v >= jet(o).v)


def jet(x: Any) -> Jet:
    return x if isinstance(x, Jet) else Jet(float(x))


def sin(x: Any) -> Jet:
    x = jet(x)
    return x.apply(math.sin(x.v), math.cos(x.v), -math.sin(x.v))


def cos(x: Any) -> Jet:
    x = jet(x)
    return x.apply(math.cos(x.v), -math.sin(x.v), -math.cos(x.v))


def exp(x: Any) -> Jet:
    x = jet(x)
    e = math.exp(x.v)
    return x.apply(e, e, e)


def tanh(x: Any) -> Jet:
    x = jet(x)
    t = math.tanh(x.v)
    return x.apply(t, 1 - t * t, -2 * t * (1 - t * t))


def sqrt(x: Any) -> Jet:
    x = jet(x)
    s = math.sqrt(x.v)
    return x.apply(s, 0.5 / s, -0.25 / s**3)
