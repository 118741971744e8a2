"""Inverse kinematics: joint angles that bring a robot's hand to a target.

    python examples/robot_arm.py

A planar arm of six links.  The kinematics are a scalar loop; the damped Gauss-Newton steps
(Levenberg-Marquardt) use its Jacobian.
"""

import numpy as np

import tapec

LENGTHS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3)


def hand(angles):
    x, y, heading = 0.0, 0.0, 0.0
    for i, length in enumerate(LENGTHS):
        heading = heading + angles[i]
        x = x + length * np.cos(heading)
        y = y + length * np.sin(heading)
    return np.array([x, y])


def main():
    target = np.array([1.5, 2.0])
    angles = np.full(6, 0.3)
    jacobian = tapec.jacobian(hand)
    for step in range(50):
        miss = target - hand(angles)
        print(f"step {step}: distance {np.linalg.norm(miss):.2e}")
        if np.linalg.norm(miss) < 1e-12:
            break
        j = jacobian(angles)
        angles = angles + j.T @ np.linalg.solve(j @ j.T + 0.1 * (miss @ miss) * np.eye(2), miss)
    assert np.allclose(hand(angles), target)
    return angles


if __name__ == "__main__":
    main()
