"""UAV. Observation: x, y, z, theta (pitch), phi (roll), psi (yaw), vel; action: acceleration in [-10, 10], roll rate and
pitch rate in [-1, 1], in the order of the text: set-acc, set-phi, set-theta. The one aircraft is controllable, so
nothing is random: the policies add noise of 5 % of the action's half range."""
import numpy as np

LOW, HIGH = np.array([-10.0, -1, -1]), np.array([10.0, 1, 1])
EXOGENOUS = []
NOISE = 0.05
GOAL = np.array([12.695694045044526, 43.182225019213064, 56.16032711430123])


def rule(s):  # count(vel___a1 > 10) <= 10
    return sum(v > 10 for v in s["vel___a1"]) <= 10


def model(o, a, _):
    x, y, z, th, ph, ps, v = o
    a = np.clip(a, LOW, HIGH)
    return np.array([x + 0.1 * v * np.cos(ps), y + 0.1 * v * np.sin(ps), z + 0.1 * v * np.sin(th), th + 0.1 * a[2],
                     ph + 0.1 * a[1], ps + 0.1 * (np.tan(ph) / (v + 0.001)) * 9.8, max(0.0, v + 0.1 * a[0])])


fast = [0]  # steps above 10 in this flight, for "memory"


def fly(o, rng, cap):
    d, (th, ph, ps, v) = GOAL - o[:3], o[3:]
    h = np.hypot(d[0], d[1])
    acc = (min(cap, np.sqrt(16 * max(h - 0.05 * v, 0))) - v) / 0.1  # as fast as the cap and the brakes allow
    e = np.mod(np.arctan2(d[1], d[0]) - ps + np.pi, 2 * np.pi) - np.pi
    roll = np.clip(np.arctan(np.clip(0.5 * e, -0.6, 0.6) * (v + 0.001) / 0.98), -1, 1)
    pitch = np.arcsin(np.clip(d[2] / h, -1, 1)) if h > 1 else np.clip(d[2], -1, 1)
    a = np.clip([acc, (roll - ph) / 0.1, (pitch - th) / 0.1], LOW, HIGH)
    return np.clip(a + NOISE * HIGH * rng.standard_normal(3), LOW, HIGH)


def memory(o, t, rng):
    fast[0] = 0 if t == 0 else fast[0] + (o[6] > 10)
    return fly(o, rng, 99 if t < 15 and fast[0] < 5 else 9.5)  # slowing down from there takes a few more fast steps


POLICIES = {
    "greedy": lambda o, t, rng: fly(o, rng, 99),
    "safe": lambda o, t, rng: fly(o, rng, 9.5),
    "memory": memory,
}
