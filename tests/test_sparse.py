"""Sparse derivatives: patterns against brute force, colourings against bounds, values, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
import tapec.sparse as sparse_module
from tapec.coloring import bidirectional, columns, star
from tapec.pattern import Pattern
from tapec.sparse import sparse_hessian, sparse_jacobian, sparsity

RNG = np.random.default_rng(5)


# -- problems ------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def laplace(u: Any) -> Any:
    """2-D, five points, with a non-linear source."""
    n = round(np.sqrt(u.shape[0]))
    v = np.pad(u.reshape(n, n), 1)
    inner = v[1:-1, 1:-1]
    return (
        4 * inner - v[:-2, 1:-1] - v[2:, 1:-1] - v[1:-1, :-2] - v[1:-1, 2:] + np.exp(inner)
    ).reshape(-1)


def arrow(x: Any) -> Any:
    return np.concatenate([np.array([np.sum(x**2)]), x[1:] * x[0] + x[1:] ** 3])


CAMERA = np.array([0, 0, 1, 1, 2, 2, 0])
POINT = np.array([0, 1, 1, 2, 0, 3, 3])


def bundle(p: Any) -> Any:
    """Two residuals per observation, of one camera (12) and one point (3)."""
    cameras, points = p[:36].reshape(3, 12), p[36:].reshape(4, 3)
    c, x = cameras[CAMERA], points[POINT]
    q = np.einsum("nij,nj->ni", c[:, :9].reshape(-1, 3, 3), x) + c[:, 9:]
    return (q[:, :2] / q[:, 2:]).reshape(-1)


def collocation(z: Any) -> Any:
    """Trapezoidal defects of a controlled pendulum."""
    n = z.shape[0] // 3
    a, w, u = z[:n], z[n : 2 * n], z[2 * n :]
    rate = -np.sin(a) + u
    return np.concatenate(
        [a[1:] - a[:-1] - 0.05 * (w[1:] + w[:-1]), w[1:] - w[:-1] - 0.05 * (rate[1:] + rate[:-1])]
    )


FROM, TO = np.array([0, 1, 2, 3, 4, 0, 2]), np.array([1, 2, 3, 4, 5, 3, 5])


def power_flow(s: Any) -> Any:
    """Injections of a small network: angles, then magnitudes."""
    t, v = s[:6], s[6:]
    d = t[FROM] - t[TO]
    flow = v[FROM] * v[TO] * np.sin(d)
    loss = v[FROM] ** 2 - v[FROM] * v[TO] * np.cos(d)
    rows = [
        np.sum((flow + loss)[np.flatnonzero(np.equal(FROM, k))])
        - np.sum(flow[np.flatnonzero(np.equal(TO, k))])
        for k in range(6)
    ]
    return np.stack(rows)


JACOBIANS = {
    "laplace": (laplace, RNG.normal(size=36)),
    "arrow": (arrow, RNG.normal(size=9)),
    "bundle": (bundle, RNG.uniform(1, 2, 48)),
    "collocation": (collocation, RNG.normal(size=24)),
    "reverse": (lambda x: np.array([x @ x, np.sum(x[::2])]), RNG.normal(size=8)),
    "cumsum": (lambda x: np.cumsum(x**2), RNG.normal(size=5)),
    "gather": (lambda x: x[np.array([2, 0, 2])] * x[3], RNG.normal(size=5)),
    "matrix": (lambda x: np.triu(np.ones((4, 4))) @ np.sin(x), RNG.normal(size=4)),
    "places": (lambda x: np.concatenate([x[:2], x[::-1]]).reshape(2, 3).T.reshape(-1), RNG.normal(size=4)),
}  # fmt: skip


def brute(jacobian: Any, x: Any) -> np.ndarray:
    """Where the dense derivative differs from zero at one of some points."""
    found = np.zeros(np.shape(jacobian(x)), bool)
    for _ in range(4):
        found |= jacobian(x * RNG.uniform(0.9, 1.1, x.shape)) != 0
    return found


def dense(p: Pattern) -> np.ndarray:
    out = np.zeros(p.shape, bool)
    out[p.rows, p.cols] = True
    return out


@pytest.mark.parametrize("name", list(JACOBIANS))
def test_jacobian(name: str) -> None:
    fn, x = JACOBIANS[name]
    full = tapec.jacobian(fn)
    np.testing.assert_array_equal(dense(sparsity(fn, x)), brute(full, x))
    for mode in ("auto", "forward", "reverse", "both"):
        j = sparse_jacobian(fn, mode=mode)
        for point in (x, 1.1 * x):
            got = j(point)
            assert got.format == "csr"
            np.testing.assert_allclose(got.toarray(), full(point), rtol=1e-12, atol=1e-14)


def test_power_flow() -> None:
    x = np.concatenate([RNG.normal(size=6), RNG.uniform(0.9, 1.1, 6)])
    full = tapec.jacobian(power_flow)
    np.testing.assert_array_equal(dense(sparsity(power_flow, x)), brute(full, x))
    np.testing.assert_allclose(sparse_jacobian(power_flow)(x).toarray(), full(x), atol=1e-13)


def test_no_entries() -> None:
    got = sparse_jacobian(lambda x: np.floor(x[:2]))(np.ones(3))
    assert got.shape == (2, 3) and got.nnz == 0


HESSIANS = {
    "rosenbrock": (rosenbrock, RNG.normal(size=8)),
    "arrow": (lambda x: np.sum(x[0] * x[1:] ** 2) + x[0] ** 3, RNG.normal(size=7)),
    "quadratic": (lambda x: x[0] * x[1] + 3 * x[2], RNG.normal(size=4)),
    "laplace": (lambda u: np.sum(laplace(u) ** 2), RNG.normal(size=25)),
    "pairs": (lambda x: np.sum(np.exp(x[:3] * x[3:])), RNG.normal(size=6)),
    "dense": (lambda x: np.sum(x) ** 4, RNG.normal(size=4)),
}


@pytest.mark.parametrize("name", list(HESSIANS))
def test_hessian(name: str) -> None:
    fn, x = HESSIANS[name]
    full = tapec.hessian(fn)
    np.testing.assert_array_equal(dense(sparsity(fn, x, of="hessian")), brute(full, x))
    h, low = sparse_hessian(fn), sparse_hessian(fn, lower=True)
    for point in (x, 1.1 * x):
        np.testing.assert_allclose(h(point).toarray(), full(point), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(
            low(point).toarray(), np.tril(full(point)), rtol=1e-11, atol=1e-13
        )


def test_colors() -> None:
    h = sparse_hessian(rosenbrock)
    h(RNG.normal(size=200))
    assert h.colors <= 3
    j = sparse_jacobian(arrow)
    j(RNG.normal(size=50))
    assert j.colors == 3  # against 50 in one direction
    h = sparse_hessian(HESSIANS["arrow"][0])
    h(RNG.normal(size=40))
    assert h.colors == 2
    j = sparse_jacobian(laplace)
    j(RNG.normal(size=400))
    assert j.colors <= 7


def test_lagrangian() -> None:
    def lagrangian(x: Any, sigma: Any, lam: Any) -> Any:
        return sigma * rosenbrock(x) + lam @ (x[1:] ** 2 * x[:-1])

    x, lam = RNG.normal(size=6), RNG.normal(size=5)
    got = sparse_hessian(lagrangian, lower=True)(x, 0.5, lam)
    want = np.tril(tapec.hessian(lagrangian)(x, 0.5, lam))
    np.testing.assert_allclose(got.toarray(), want, rtol=1e-12)


def test_loops() -> None:
    def chain(x: Any) -> Any:
        _, path = tapec.scan(lambda c, v: (v, np.sin(c) * v), 0.5, x)
        return path

    x = RNG.normal(size=6)
    full = tapec.jacobian(chain)
    np.testing.assert_array_equal(dense(sparsity(chain, x)), brute(full, x))
    np.testing.assert_allclose(sparse_jacobian(chain)(x).toarray(), full(x), rtol=1e-12)

    def power(x: Any) -> Any:
        return tapec.while_loop(lambda c: np.max(c) < 100, lambda c: c * x, x)

    x = np.array([1.5, 2.0, 1.1])
    np.testing.assert_array_equal(dense(sparsity(power, x)), np.eye(3, dtype=bool))
    np.testing.assert_allclose(
        sparse_jacobian(power)(x).toarray(), tapec.jacobian(power)(x), rtol=1e-12
    )


def test_new_paths_extend_the_pattern() -> None:
    def fn(x: Any) -> Any:
        if x[0] > 0:
            return x * x[0]
        return x * x[-1]

    j = sparse_jacobian(fn)
    for x in (np.array([1.0, 2, 3]), np.array([-1.0, 2, 3]), np.array([2.0, 2, 3])):
        np.testing.assert_allclose(j(x).toarray(), tapec.jacobian(fn)(x))
    assert j.pattern.nnz == 7


def test_index_arguments() -> None:
    fn = sparse_jacobian(lambda x, i: x[i] ** 2)
    x = RNG.normal(size=4)
    for i in (np.array([0, 1]), np.array([3, 3])):
        want = tapec.jacobian(lambda x, i: x[i] ** 2)(x, i)
        np.testing.assert_allclose(fn(x, i).toarray(), want)


def test_arguments_of_all_kinds() -> None:
    """Parameters in containers, keywords, and what a plan must not be used for."""
    x = np.array([1.0, 2, 3])

    def energy(x: Any, p: Any, *, shift: float = 0.0) -> Any:
        return np.sum(p["a"] * (x - shift) ** 3) + p["b"] * x[0] * x[1]

    def exact(a: Any, b: float, shift: float) -> Any:
        h = np.diag(6 * a * (x - shift))
        h[0, 1] = h[1, 0] = b
        return h

    h = sparse_hessian(energy)
    for a, b, shift in ((np.ones(3), 2.0, 0.0), (np.arange(3.0), 5.0, 0.0), (np.ones(1), 3.0, 0.5)):
        more = {"shift": shift} if shift else {}
        found = h(x, {"a": a, "b": b}, **more)
        np.testing.assert_allclose(found.toarray(), exact(a, b, shift), rtol=1e-14)
    j = sparse_jacobian(lambda x: x[::-1] ** 2)
    for point in (x, np.ones((2, 2)), x.astype(np.float32), np.ones(4), x):
        n = point.size
        want = np.zeros((n, n))
        want[np.arange(n), np.arange(n)[::-1]] = 2 * point.reshape(-1)[::-1]
        if point.ndim == 2:  # rows are reversed
            want = np.kron(np.eye(2)[::-1], 2 * np.eye(2))
        found = j(point)
        np.testing.assert_allclose(found.toarray(), want, rtol=1e-6)
        assert found.dtype == point.dtype and found.nnz == n


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_an_index_that_is_not_always_given(mode: str) -> None:
    """A plan of shapes alone does not serve a call whose indices decide the pattern."""
    fn = lambda x, i=None: x**2 if i is None else x[i] ** 2  # noqa: E731
    j, x = sparse_jacobian(fn, mode=mode), np.array([1.0, 2, 3])
    for more in ((), (np.arange(3),), (np.array([2, 0, 1]),), (np.array([1, 1, 2]),), ()):
        np.testing.assert_allclose(j(x, *more).toarray(), tapec.jacobian(fn)(x, *more))


def test_plans_are_bounded() -> None:
    fn = sparse_jacobian(lambda x, i: x[i] ** 2)
    for k in range(sparse_module.PLANS + 3):
        assert fn(np.arange(200.0), np.array([k]))[0, k] == 2 * k
    assert len(fn.plans) == sparse_module.PLANS


def test_dump_shows_one_nest() -> None:
    text = sparse_hessian(rosenbrock).dump("loops", np.ones(100))
    assert text.count("nest ") == 1 and "workspace 0 bytes" in text


# -- patterns and colourings -----------------------------------------------------------------


def test_save_and_load(tmp_path: Path) -> None:
    p = sparsity(rosenbrock, np.ones(5), of="hessian")
    p.save(tmp_path / "p.npz")
    q = Pattern.load(tmp_path / "p.npz")
    assert q.shape == p.shape and (q.keys() == p.keys()).all()
    h = sparse_hessian(rosenbrock, pattern=q)
    np.testing.assert_allclose(h(np.ones(5)).toarray(), tapec.hessian(rosenbrock)(np.ones(5)))
    with pytest.raises(ValueError, match=r"given pattern.*is not that of"):
        sparse_hessian(lambda x: np.sum(x) ** 3, pattern=q)(np.ones(5))
    with pytest.raises(ValueError, match=r"pattern has 5 columns, argument 0 has 6 elements"):
        h(np.ones(6))
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match="does not hold"):
        Pattern.load(tmp_path / "other.npz")


def test_spy() -> None:
    text = sparsity(rosenbrock, np.ones(3), of="hessian").spy()
    assert text.splitlines() == ["██·", "███", "·██", "3×3, 7 non-zeros"]
    wide = sparsity(laplace, np.ones(900)).spy().splitlines()
    assert max(map(len, wide[:-1])) <= 64


def random_pattern(seed: int) -> tuple[Any, Any, int]:
    rng = np.random.default_rng(seed)
    n = 30
    a = rng.random((n, n)) < 0.08
    a |= a.T
    rows, cols = np.nonzero(a)
    return rows, cols, n


@pytest.mark.parametrize("seed", range(5))
def test_colorings_are_proper(seed: int) -> None:
    rows, cols, n = random_pattern(seed)
    a = np.zeros((n, n), bool)
    a[rows, cols] = True
    c = columns(rows, cols, (n, n))
    for row in a:
        used = c[row]
        assert len(set(used)) == used.size
    bound = int(a.sum(1).max())
    assert bound <= c.max() + 1 <= bound * bound
    s = star(rows, cols, n)
    near = [np.flatnonzero(a[v] & (np.arange(n) != v)) for v in range(n)]
    for v in range(n):
        for w in near[v]:
            assert s[v] != s[w]
            for x in near[w]:
                for y in near[x]:
                    if len({v, w, x, y}) == 4:
                        assert len({s[v], s[w], s[x], s[y]}) >= 3
    assert s.max() <= c.max()
    cc, rc, by_row = bidirectional(rows, cols, (n, n))
    assert rc[rows[by_row]].min(initial=0) >= 0 and cc.size == n


def test_known_chromatic_numbers() -> None:
    n = 20
    band = [(i, j) for i in range(n) for j in range(n) if abs(i - j) <= 2]
    rows, cols = np.array(band).T
    assert columns(rows, cols, (n, n)).max() + 1 == 5
    full = np.ones((4, 4))
    assert columns(*np.nonzero(full), (4, 4)).max() + 1 == 4
    assert star(*np.nonzero(full), 4).max() + 1 == 4
    path = [(i, j) for i in range(n) for j in range(n) if abs(i - j) == 1]
    assert star(*np.array(path).T, n).max() + 1 == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sparse_jacobian(3), "expects a function"),  # type: ignore[arg-type]
        (lambda: sparse_jacobian(np.sin, mode="odd"), "no mode"),
        (lambda: sparse_jacobian(np.sin, argnums=(0,)), "one position"),  # type: ignore[arg-type]
        (lambda: sparse_jacobian(np.sin, pattern=3), "is a Pattern"),  # type: ignore[arg-type]
        (lambda: sparse_jacobian(np.sin, argnums=2)(np.ones(2)), "argnums=2"),
        (lambda: sparse_jacobian(lambda x: (x, x))(np.ones(2)), "returns one array"),
        (lambda: sparse_hessian(np.sin)(np.ones(2)), "returns a scalar"),
        (lambda: sparse_hessian(np.sum)(np.ones(2, int)), "dtype is int64"),
        (
            lambda: sparse_hessian(lambda p: np.sum(p["a"] ** 2))({"a": np.ones(2)}),
            "container of 1",
        ),
        (lambda: sparse_hessian(lambda x: x[0] * x[1])([1.0, 2.0]), "container of 2"),
        (lambda: sparsity(np.sin, np.ones(2), of="x"), "of is"),
        (lambda: sparse_hessian(rosenbrock).pattern, "after the first call"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(tapec.TapecError, match=message):
        call()
