"""Cameras, rotations, images, curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate
import scipy.spatial.transform

import tapec.numpy as tnp
from programs import program

rng = np.random.default_rng(17)
CLOUD = rng.normal(size=(6, 3)) + np.array([0.0, 0.0, 5.0])
SEEN = CLOUD[:, :2] / CLOUD[:, 2:] + 0.01 * rng.normal(size=(6, 2))


def _rotation(w: Any) -> Any:
    angle = np.linalg.norm(w)
    k = w / angle
    cross = np.array([[0.0, -k[2], k[1]], [k[2], 0.0, -k[0]], [-k[1], k[0], 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def _bundle_scipy(p: Any) -> Any:
    turned = scipy.spatial.transform.Rotation.from_rotvec(p[:3]).apply(CLOUD) + p[3:6]
    return np.sum((np.exp(p[6]) * turned[:, :2] / turned[:, 2:] - SEEN) ** 2)


@program([0.05, -0.1, 0.07, 0.1, 0.0, 0.2, 0.05], _bundle_scipy)
def bundle_adjustment(p: Any) -> Any:
    camera = CLOUD @ _rotation(p[:3]).T + p[3:6]
    projected = np.exp(p[6]) * camera[:, :2] / camera[:, 2:]
    return np.sum((projected - SEEN) ** 2)


def _attitude_scipy(q: Any) -> Any:
    r = scipy.spatial.transform.Rotation.from_quat(np.roll(q, -1))
    return np.sum((r.apply(CLOUD) - CLOUD[:, [1, 0, 2]]) ** 2)


@program([0.9, 0.1, -0.2, 0.3], _attitude_scipy)
def quaternion_attitude(q: Any) -> Any:
    w, x, y, z = q / np.linalg.norm(q)
    rotation = np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip
    return np.sum((CLOUD @ rotation.T - CLOUD[:, [1, 0, 2]]) ** 2)


def _great_circle(p: Any) -> Any:
    a, b = (
        np.array([np.cos(la) * np.cos(lo), np.cos(la) * np.sin(lo), np.sin(la)])
        for la, lo in p.reshape(2, 2)
    )
    return 6371 * np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)


@program(np.deg2rad([48.9, 2.4, 40.7, -74.0]), _great_circle)
def haversine_distance(p: Any) -> Any:
    lat1, lon1, lat2, lon2 = p
    a = (
        np.sin((lat2 - lat1) / 2) ** 2
        + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * 6371 * np.arcsin(np.sqrt(a))


IMAGE = np.add.outer(np.sin(np.arange(8) / 2), np.cos(np.arange(8) / 3))
FIXED = np.add.outer(np.sin(np.arange(8) / 2 + 0.2), np.cos(np.arange(8) / 3 - 0.1))


def _register_scipy(p: Any) -> Any:
    rows, cols = np.mgrid[1:7, 1:7]
    look = scipy.interpolate.RegularGridInterpolator((np.arange(8), np.arange(8)), IMAGE)
    moved = look(np.stack([rows + p[0], cols + p[1]], axis=-1))
    return np.mean((p[2] * moved - FIXED[1:7, 1:7]) ** 2)


@program([0.37, -0.23, 1.05], _register_scipy)
def image_registration(p: Any) -> Any:
    """Bilinear interpolation."""
    rows, cols = np.mgrid[1:7, 1:7]
    y, x = rows + p[0], cols + p[1]
    i, j = np.floor(y).astype(int), np.floor(x).astype(int)
    fy, fx = y - i, x - j
    image = tnp.array(IMAGE)
    top = image[i, j] * (1 - fx) + image[i, j + 1] * fx
    bottom = image[i + 1, j] * (1 - fx) + image[i + 1, j + 1] * fx
    return np.mean((p[2] * (top * (1 - fy) + bottom * fy) - FIXED[1:7, 1:7]) ** 2)


BLURRED = np.convolve(np.sin(np.arange(16)), [0.25, 0.5, 0.25], mode="same")


@program(rng.normal(size=16))
def deconvolution_by_fft(signal: Any) -> Any:
    kernel = np.fft.rfft([0.25, 0.5, 0.25], n=16)
    blurred = np.fft.irfft(np.fft.rfft(signal) * kernel, n=16)
    return np.sum((blurred - BLURRED) ** 2) + 0.1 * np.sum(np.abs(np.diff(signal)) ** 1.5)


KNOTS = np.array([0.0, 1.0, 2.5, 3.0, 4.2])
AT = np.linspace(0.1, 4.1, 9)


def _natural_spline(y: Any) -> Any:
    return np.sum(scipy.interpolate.CubicSpline(KNOTS, y, bc_type="natural")(AT) ** 2)


@program([0.3, -1.0, 0.5, 2.0, 1.0], _natural_spline)
def spline_fit(y: Any) -> Any:
    h = np.diff(KNOTS)
    system = np.diag(2 * (h[:-1] + h[1:])) + np.diag(h[1:-1], 1) + np.diag(h[1:-1], -1)
    curvature = np.pad(np.linalg.solve(system, 6 * np.diff(np.diff(y) / h)), 1)
    k = np.searchsorted(KNOTS, AT) - 1
    a, b = KNOTS[k + 1] - AT, AT - KNOTS[k]
    values = (curvature[k] * a**3 + curvature[k + 1] * b**3) / (6 * h[k])
    values += (y[k] / h[k] - curvature[k] * h[k] / 6) * a
    values += (y[k + 1] / h[k] - curvature[k + 1] * h[k] / 6) * b
    return np.sum(values**2)


CENTRES = rng.uniform(size=(6, 2))
SURFACE = np.sin(3 * CENTRES[:, 0]) * CENTRES[:, 1]


def _rbf_scipy(p: Any) -> Any:
    model = scipy.interpolate.RBFInterpolator(
        CENTRES, SURFACE, kernel="gaussian", epsilon=np.exp(p[0]), degree=-1, smoothing=1e-3
    )
    return model(np.array([[p[1], p[2]]]))[0]


@program([1.0, 0.4, 0.6], _rbf_scipy, 1e-8)
def rbf_interpolation(p: Any) -> Any:
    shape, where = np.exp(p[0]), p[1:]
    distance = np.sum((CENTRES[:, None] - CENTRES) ** 2, axis=-1)
    weights = np.linalg.solve(np.exp(-(shape**2) * distance) + 1e-3 * np.eye(6), SURFACE)
    return np.exp(-(shape**2) * np.sum((CENTRES - where) ** 2, axis=1)) @ weights


GAPS = np.abs(rng.normal(size=(5, 5))) + 0.5
GAPS = (GAPS + GAPS.T) / 2


@program(rng.normal(size=10))
def multidimensional_scaling(x: Any) -> Any:
    """Kruskal's stress; the diagonal has distance 0."""
    p = x.reshape(5, 2)
    distance = np.sqrt(np.sum((p[:, None, :] - p[None, :, :]) ** 2, axis=-1) + 1e-18)
    mask = ~np.eye(5, dtype=bool)
    return np.sum((distance - GAPS)[mask] ** 2) / np.sum(GAPS[mask] ** 2)


def _arm_complex(t: Any) -> Any:
    end = np.sum(np.array([1.0, 0.8, 0.5]) * np.exp(1j * np.cumsum(t)))
    return abs(end - (1.2 + 0.7j)) ** 2


@program([0.3, 0.5, -0.4], _arm_complex)
def robot_arm_kinematics(t: Any) -> Any:
    pose = np.eye(3)
    for angle, length in zip(t, [1.0, 0.8, 0.5]):
        c, s = np.cos(angle), np.sin(angle)
        pose = pose @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        pose = pose @ np.array([[1.0, 0.0, length], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    return np.sum((pose[:2, 2] - np.array([1.2, 0.7])) ** 2)


def _lens_trigonometry(p: Any) -> Any:
    height, radius, index = p
    outer = np.arcsin(height / radius)
    inner = np.arcsin(height / radius / index)
    sag = radius - np.sqrt(radius**2 - height**2)
    return sag + height / np.tan(outer - inner)


@program([0.4, 2.0, 1.5], _lens_trigonometry)
def ray_trace(p: Any) -> Any:
    """Where a ray parallel to the axis meets it behind a spherical surface (Snell, vectors)."""
    height, radius, index = p
    direction = np.array([1.0, 0.0])
    centre = np.stack([radius, 0.0 * radius])
    start = np.stack([-1.0 + 0.0 * height, height])
    offset = start - centre
    b = offset @ direction
    hit = start + (-b - np.sqrt(b**2 - offset @ offset + radius**2)) * direction
    normal = (hit - centre) / radius
    ratio, cosine = 1 / index, -normal @ direction
    bent = ratio * direction + (ratio * cosine - np.sqrt(1 - ratio**2 * (1 - cosine**2))) * normal
    return hit[0] - hit[1] * bent[0] / bent[1]


@program(np.array([[0.0, 0.0], [2.0, 0.2], [2.3, 1.4], [0.4, 1.1]]).ravel())
def polygon_moments(x: Any) -> Any:
    px, py = x.reshape(4, 2).T
    qx, qy = np.roll(px, -1), np.roll(py, -1)
    cross = px * qy - qx * py
    area = cross.sum() / 2
    return area + np.sum((px + qx) * cross) / (6 * area) + np.hypot(qx - px, qy - py).sum()
