"""Five reservoirs. Observation: rlevel t1..t5; action: release t1..t5, each in [0, TOP_RES]."""
import pathlib
import re

import numpy as np

TEXT = (pathlib.Path(__file__).parent / "instance.rddl").read_text()
N = 5


def number(name):
    return np.array([float(re.search(rf"{name}\(t{i}\) = ([\d.]+);", TEXT).group(1)) for i in range(1, N + 1)])


MIN, MAX, TOP = number("MIN_LEVEL"), number("MAX_LEVEL"), number("TOP_RES")
LOW, HIGH = np.zeros(N), TOP
EXOGENOUS = [f"rain___t{i}" for i in range(1, N + 1)]
FLOW = np.zeros((N, N))
for i, j in re.findall(r"RES_CONNECT\(t(\d+), t(\d+)\)", TEXT):
    FLOW[int(i) - 1, int(j) - 1] = 1
FLOW /= np.maximum(1, FLOW.sum(1))[:, None]  # t4 flows to the sea
ORDER = [0, 1, 4, 2, 3]  # upstream first; t4 is the last
VAR = 10
RAIN = np.sqrt(VAR * 2 / np.pi)  # the mean of |N(0, 10)|


def rule(s):  # run(rlevel___t4 > 70) < 5
    run = 0
    for x in s["rlevel___t4"]:
        run = run + 1 if x > 70 else 0
        if run >= 5:
            return False
    return True


def model(o, a, rain):
    out = np.minimum(o, np.clip(a, 0, TOP))
    spilled = np.maximum(0, o - out - TOP)
    return np.clip(o + out @ FLOW + rain - 0.05 * o / TOP - spilled - out, 0, TOP)


def keep(o, target):  # releases so that every reservoir is expected at its target
    a, inflow = np.zeros(N), np.zeros(N)
    for i in ORDER:
        a[i] = np.clip(o[i] + inflow[i] + RAIN - target[i], 0, o[i])
        inflow += a[i] * FLOW[i]
    return a


LAST = np.arange(N) == 3
BAND = MIN + 0.5 * (MAX - MIN)
high = [0]  # days in a row above 70, for "memory"


def memory(o, t, rng):  # in the band for four days, then below 70 for one
    high[0] = (high[0] + 1 if o[3] > 70 else 0) if t > 0 else 0
    return keep(o, np.where(LAST, 60.0 if high[0] >= 3 else 85.0, BAND))


POLICIES = {
    "greedy": lambda o, t, rng: keep(o, BAND),
    "safe": lambda o, t, rng: keep(o, np.where(LAST, 58.0, BAND)),
    "memory": memory,
}
