"""Reacher, two joints (angles are absolute). Observation: theta s1 s2, theta-dot s1 s2, tip-x s1 s2, tip-y s1 s2.
Action: torque s1, s2 in [-0.1, 0.1]. Nothing in the domain is random: the policies add N(0, 0.01^2) to the torques."""
import numpy as np

LOW, HIGH = np.full(2, -0.1), np.full(2, 0.1)
EXOGENOUS = []
NOISE = 0.01


def rule(s):  # fraction(tip_y___s2 > 0.4, 20) <= 0.5
    hot = [x > 0.4 for x in s["tip_y___s2"]]
    return all(sum(hot[max(0, t - 19):t + 1]) / 20 <= 0.5 for t in range(len(hot)))


def model(o, a, _):
    th, w = o[0:2], o[2:4]
    x, y = 0.6 * np.cos(th), 0.6 * np.sin(th)
    return np.concatenate([th + w, w + np.clip(a, LOW, HIGH), np.cumsum(x), np.cumsum(y)])


def angles(x, y):  # inverse kinematics
    a, b = np.arctan2(y, x), np.arccos(min(1.0, np.hypot(x, y) / 1.2))
    return np.array([a + b, a - b])


def to(o, x, y, rng):
    u = 0.35 * (angles(x, y) - o[0:2]) - 0.9 * o[2:4]
    return np.clip(np.clip(u, LOW, HIGH) + NOISE * rng.standard_normal(2), LOW, HIGH)


POLICIES = {
    "greedy": lambda o, t, rng: to(o, 0.7, 0.7, rng),  # to the target, and stay
    "safe": lambda o, t, rng: to(o, 0.7, 0.36, rng),  # wait just outside of the heat
    "memory": lambda o, t, rng: to(o, 0.7, 0.7, rng) if t % 20 < 8 else to(o, 0.75, 0.3, rng),  # in and out
}
