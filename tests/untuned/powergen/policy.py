"""Power generation. Observation: prevProd p1 p2 p3, temperature; action: curProd p1 p2 p3 in [0, 10]. The demand of a day
follows from the temperature that is observed. (The domain's "penalty" for changes of production has a plus sign: it is
a bonus, so the best policy moves production to and fro.)"""
import numpy as np

LOW, HIGH = np.zeros(3), np.full(3, 10.0)
EXOGENOUS = ["temperature"]


def rule(s):  # mean(prevProd___p1, 5) >= 3, not judged in the first 4 steps
    p = s["prevProd___p1"]
    return all(sum(p[t - 4:t + 1]) / 5 >= 3 for t in range(4, len(p)))


def model(o, a, exogenous):
    return np.array([*np.clip(a, LOW, HIGH), exogenous[0]])


def demand(o):
    return 2 + 0.01 * (o[3] - 11.7) ** 2 + 0.01


def greedy(o, t, rng):  # exactly the demand, from plants 1 and 2 in turn
    a, i = np.zeros(3), t % 2
    a[i], a[2] = min(10, demand(o)), max(0, demand(o) - 10)
    return a


def greedy_even(o, t, rng):  # exactly the demand, a third from each plant
    return np.full(3, demand(o) / 3)


def safe(o, t, rng):  # plant 1 always at 3.1, the rest of the demand from plants 2 and 3 in turn
    a, i = np.zeros(3), 1 + t % 2
    a[i] = np.clip(demand(o) - 3.1, 0, 10)
    a[0] = np.clip(demand(o) - 10, 3.1, 10)
    return a


POLICIES = {"greedy": greedy, "greedy_even": greedy_even, "safe": safe}
