"""The demo: its known answer, its yardstick, and the whole run."""

from __future__ import annotations

import numpy as np
import pytest

from tapec import demo


def test_known_answer_is_where_expectation_maximisation_ends() -> None:
    """An independent route to the maximum: no gradient, and the textbook density."""
    data = demo.old_faithful()
    assert data.shape == (272, 2)
    weights = np.array([0.5, 0.5])
    means = np.array([[2.0, 55.0], [4.3, 80.0]])
    covariances = np.array([np.diag([0.1, 30.0])] * 2)
    for _ in range(300):
        logs = []
        for w, mean, covariance in zip(weights, means, covariances, strict=True):
            d = data - mean
            form = np.einsum("ni,ij,nj->n", d, np.linalg.inv(covariance), d)
            log_det = np.linalg.slogdet(covariance)[1]
            logs.append(np.log(w) - np.log(2 * np.pi) - log_det / 2 - form / 2)
        total = np.logaddexp(*logs)
        shares = np.exp(logs - total)
        sizes = shares.sum(axis=1)
        weights = sizes / len(data)
        means = shares @ data / sizes[:, None]
        covariances = np.array(
            [
                ((data - m).T * s) @ (data - m) / n
                for m, s, n in zip(means, shares, sizes, strict=True)
            ]
        )
    found = [total.sum(), *weights, *means.ravel()]
    np.testing.assert_allclose(found, list(demo.KNOWN.values()), rtol=1e-8)


def test_hand_written_gradient_is_right() -> None:
    data = demo.old_faithful()
    theta = demo.START + np.linspace(-0.1, 0.1, demo.START.size)
    value, gradient = demo.hand_written(theta, data)
    assert value == pytest.approx(demo.negative_log_likelihood(theta, data), rel=1e-14)
    differences = demo.central_differences(lambda t: demo.hand_written(t, data)[0], theta)
    np.testing.assert_allclose(gradient, differences, rtol=1e-8, atol=1e-7)


def test_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([]) == 0
    out = capsys.readouterr().out
    for text in ("-1130.263960", "0.355873", "79.968115", "SymPy", "loop nests", "µs"):
        assert text in out
    assert "BAD" not in out


def test_wrong_answer_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(demo.KNOWN, "weight 1", 0.355874)
    assert demo.main([]) == 1
    assert "BAD" in capsys.readouterr().out
