"""Objectives of the ADBench comparison, written anew in NumPy style; data of our own.

Gaussian mixture (log likelihood with a Wishart prior), an LSTM language model, bundle
adjustment, and hand tracking by linear blend skinning ("simple": without the correspondence
variables).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

__all__ = [
    "ba_data", "gmm", "gmm_data", "hand", "hand_data", "lstm", "lstm_data", "lstm_loop", "project",
]  # fmt: skip


# Gaussian mixture


def _log_gamma_distribution(a: float, p: int) -> float:
    constant = 0.25 * p * (p - 1) * math.log(math.pi)
    return constant + sum(math.lgamma(a + 0.5 * (1 - j)) for j in range(1, p + 1))


def gmm_constant(n: int, d: int, k: int, gamma: float, m: int) -> float:
    """What does not depend on the parameters."""
    w = d + m + 1
    c = w * d * (math.log(gamma) - 0.5 * math.log(2)) - _log_gamma_distribution(0.5 * w, d)
    return -n * d * 0.5 * math.log(2 * math.pi) - k * c


def gmm(np: Any) -> Callable[..., Any]:
    gamma, m = 1.0, 0

    def fn(alphas: Any, means: Any, icf: Any, x: Any) -> Any:
        n, d = x.shape
        k = means.shape[0]
        # The strict lower triangle by columns, from the packed rows of icf.
        place = numpy.zeros((d, d), int)
        rows, columns = numpy.tril_indices(d, -1)
        order = numpy.lexsort((rows, columns))
        place[rows[order], columns[order]] = d + numpy.arange(len(order))
        strict, diagonal = np.asarray(numpy.tri(d, k=-1)), np.asarray(numpy.eye(d))

        log_diagonal = icf[:, :d]
        sums = np.sum(log_diagonal, axis=1)
        inverse = icf[:, np.index(place)] * strict + np.exp(log_diagonal)[:, None, :] * diagonal
        centered = x[None, :, :] - means[:, None, :]
        scaled = np.matmul(centered, np.swapaxes(inverse, 1, 2))
        terms = (alphas + sums)[:, None] - 0.5 * np.sum(scaled * scaled, axis=2)
        top = np.max(terms, axis=0)
        likelihood = np.sum(np.log(np.sum(np.exp(terms - top), axis=0)) + top)
        top = np.max(alphas)
        weights = np.log(np.sum(np.exp(alphas - top))) + top
        frobenius = np.sum(np.exp(log_diagonal) ** 2) + np.sum(icf[:, d:] ** 2)
        prior = 0.5 * gamma * gamma * frobenius - m * np.sum(sums)
        return likelihood - n * weights + prior + gmm_constant(n, d, k, gamma, m)

    return fn


def gmm_data(n: int, d: int, k: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(7)
    means = rng.uniform(size=(k, d))
    icf = 0.3 * rng.normal(size=(k, d * (d + 1) // 2)) / math.sqrt(d)
    x = means[rng.integers(k, size=n)] + 0.5 * rng.normal(size=(n, d))
    return rng.normal(size=k), means, icf, x


# LSTM


def lstm_step(np: Any, weights: Any, extra: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """The prediction from one row, and the next state (a tuple of rows)."""

    def sigmoid(z: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-z))

    h = x * extra[0]
    after = []
    for i in range(0, len(state), 2):
        hidden, cell = state[i], state[i + 1]
        forget = sigmoid(h * weights[i, 0] + weights[i + 1, 0])
        ingate = sigmoid(hidden * weights[i, 1] + weights[i + 1, 1])
        outgate = sigmoid(h * weights[i, 2] + weights[i + 1, 2])
        change = np.tanh(hidden * weights[i, 3] + weights[i + 1, 3])
        cell = cell * forget + ingate * change
        h = outgate * np.tanh(cell)
        after += [h, cell]
    return h * extra[1] + extra[2], tuple(after)


def _lstm(np: Any, scan: Callable[..., Any]) -> Callable[..., Any]:
    def fn(weights: Any, extra: Any, start: Any, sequence: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            total, state = carry
            prediction, state = lstm_step(np, weights, extra, state, rows[0])
            normal = prediction - np.log(np.sum(np.exp(prediction)) + 2.0)
            return total + np.sum(rows[1] * normal), state

        pairs = np.stack((sequence[:-1], sequence[1:]), axis=1)
        state = tuple(start[i] for i in range(start.shape[0]))
        zero = 0.0 * np.sum(extra[0])
        total, _ = scan(step, (zero, state), pairs)
        return -total / (pairs.shape[0] * pairs.shape[2])

    return fn


def lstm(np: Any) -> Callable[..., Any]:
    """Weights (2·layers, 4, b): of each layer its weights, then its biases."""
    return _lstm(np, np.scan)


def lstm_loop(np: Any) -> Callable[..., Any]:
    """The same with a Python loop."""

    def scan(step: Callable[..., Any], init: Any, xs: Any) -> Any:
        carry = init
        for i in range(len(xs)):
            carry = step(carry, xs[i])
        return carry

    return _lstm(np, scan)


def lstm_data(layers: int, characters: int, bits: int = 14) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(8)
    weights = rng.uniform(-1, 1, (2 * layers, 4, bits))
    extra, start = rng.uniform(-1, 1, (3, bits)), rng.uniform(-1, 1, (2 * layers, bits))
    codes = rng.integers(1 << 7, size=characters)
    rows = ((codes[:, None] >> numpy.arange(bits)) & 1).astype(float)
    return weights, extra, start, rows


# Bundle adjustment


def project(np: Any) -> Callable[..., Any]:
    """Weighted reprojection error of one observation, or of many along leading axes.

    Camera: rotation vector (3), centre (3), focal length, principal point (2), distortion (2).
    """

    def fn(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
        rx, ry, rz = camera[..., 0], camera[..., 1], camera[..., 2]
        x = point[..., 0] - camera[..., 3]
        y = point[..., 1] - camera[..., 4]
        z = point[..., 2] - camera[..., 5]
        theta = np.sqrt(rx * rx + ry * ry + rz * rz)
        cosine, sine = np.cos(theta), np.sin(theta)
        rx, ry, rz = rx / theta, ry / theta, rz / theta
        along = (1.0 - cosine) * (rx * x + ry * y + rz * z)
        u = x * cosine + (ry * z - rz * y) * sine + rx * along
        v = y * cosine + (rz * x - rx * z) * sine + ry * along
        w = z * cosine + (rx * y - ry * x) * sine + rz * along
        u, v = u / w, v / w
        square = u * u + v * v
        bent = 1.0 + camera[..., 9] * square + camera[..., 10] * square * square
        scale = camera[..., 6] * bent
        miss_u = u * scale + camera[..., 7] - feature[..., 0]
        miss_v = v * scale + camera[..., 8] - feature[..., 1]
        return np.stack((weight * miss_u, weight * miss_v), axis=-1)

    return fn


def ba_data(cameras: int, points: int, observations: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(9)
    camera = numpy.empty((cameras, 11))
    # Every point is well in front of every camera: no division by a small depth.
    camera[:, :3] = rng.uniform(0.05, 0.3, (cameras, 3))
    camera[:, 3:6] = rng.normal(size=(cameras, 3))
    camera[:, 5] += 8.0
    camera[:, 6] = rng.uniform(400, 600, cameras)
    camera[:, 7:9] = rng.normal(size=(cameras, 2))
    camera[:, 9:] = 1e-2 * rng.normal(size=(cameras, 2))
    point = rng.normal(size=(points, 3))
    weight, feature = rng.uniform(0.5, 1.5, observations), rng.normal(size=(observations, 2))
    which = rng.integers(cameras, size=observations), rng.integers(points, size=observations)
    return camera, point, weight, feature, *which


# Hand tracking: 22 bones, five fingers of four, two roots


def _parents() -> list[int]:
    found = [-1, 0]
    for _ in range(5):
        found += [0, len(found), len(found) + 1, len(found) + 2]
    return found


PARENTS = _parents()


def pose_of(theta: Any) -> list[tuple[Any, Any, Any]]:
    """Euler angles of the bones from the 20 angles of the fingers; the roots are fixed."""
    pose: list[tuple[Any, Any, Any]] = [(0.0, 0.0, 0.0)] * 22
    k = 6
    for finger in range(5):
        bone = 2 + 4 * finger
        pose[bone] = theta[k], theta[k + 1], 0.0
        pose[bone + 1] = theta[k + 2], 0.0, 0.0
        pose[bone + 2] = theta[k + 3], 0.0, 0.0
        k += 4
    return pose


def hand(np: Any) -> Callable[..., Any]:
    """Distances (3, points) of measured points from their vertices on the posed hand."""

    def rotation(tx: Any, tz: Any, ty: Any) -> Any:
        """Rz Ry Rx as a 4x4 matrix."""
        one, zero = tx * 0.0 + 1.0, tx * 0.0
        cx, sx, cz, sz = np.cos(tx), np.sin(tx), np.cos(tz), np.sin(tz)
        cy, sy = (math.cos(ty), math.sin(ty))
        rows = (
            (cy * cz, sx * sy * cz - cx * sz, sx * sz + cx * sy * cz, zero),
            (cy * sz, cx * cz + sx * sy * sz, cx * sy * sz - sx * cz, zero),
            (zero - sy, cy * sx, cx * cy, zero),
            (zero, zero, zero, one),
        )
        return np.stack([np.stack(row) for row in rows])

    def turn(r: Any) -> Any:
        """The rotation matrix of a rotation vector."""
        theta = np.sqrt(np.sum(r * r))
        x, y, z = r[0] / theta, r[1] / theta, r[2] / theta
        c, s = np.cos(theta), np.sin(theta)
        rest = 1.0 - c
        rows = (
            (x * x * rest + c, x * y * rest - z * s, x * z * rest + y * s),
            (x * y * rest + z * s, y * y * rest + c, y * z * rest - x * s),
            (x * z * rest - y * s, z * y * rest + x * s, z * z * rest + c),
        )
        return np.stack([np.stack(row) for row in rows])

    def fn(
        theta: Any, relatives: Any, inverses: Any, vertices: Any, weights: Any, points: Any, at: Any
    ) -> Any:
        absolute: list[Any] = []
        for bone, angles in enumerate(pose_of(theta)):
            tx, tz, ty = angles
            moved = isinstance(tx, float) and isinstance(tz, float)
            relative = relatives[bone]
            if not moved:
                tz = tz if not isinstance(tz, float) else tx * 0.0
                relative = relative @ rotation(tx, tz, ty)
            parent = PARENTS[bone]
            absolute.append(relative if parent < 0 else absolute[parent] @ relative)
        transforms = np.matmul(np.stack(absolute), inverses)  # bones, 4, 4
        skinned = np.matmul(transforms[:, :3, :], vertices)  # bones, 3, vertices
        positions = np.sum(skinned * weights[:, None, :], axis=0)
        positions = turn(theta[:3]) @ positions + theta[3:6][:, None]
        return points - positions[:, at]

    return fn


def hand_data(vertices: int, points: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(10)
    bones = len(PARENTS)
    relatives = numpy.tile(numpy.eye(4), (bones, 1, 1))
    for bone in range(bones):
        q, _ = numpy.linalg.qr(rng.normal(size=(3, 3)))
        relatives[bone, :3, :3] = q
        relatives[bone, :3, 3] = rng.normal(size=3)
    inverses = numpy.empty_like(relatives)
    absolute = numpy.empty_like(relatives)
    for bone, parent in enumerate(PARENTS):
        absolute[bone] = relatives[bone] if parent < 0 else absolute[parent] @ relatives[bone]
        inverses[bone] = numpy.linalg.inv(absolute[bone])
    homogeneous = numpy.ones((4, vertices))
    homogeneous[:3] = rng.normal(size=(3, vertices))
    weights = rng.uniform(size=(bones, vertices)) * (rng.random((bones, vertices)) < 0.2)
    weights /= weights.sum(0) + 1e-9
    at = rng.integers(vertices, size=points)
    theta = rng.uniform(-0.5, 0.5, 26)
    return (
        theta, relatives, inverses, homogeneous, weights, rng.normal(size=(3, points)), at,
    )  # fmt: skip
