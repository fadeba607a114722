"""Compares `prudence rollout TASK` with pyRDDLGym on the task's RDDL texts, without noise: every Normal gives its mean.

    parity.py TASK DOMAIN INSTANCE --binary PATH [--starts 10]
    parity.py navigation tasks/rddl/navigation.rddl tasks/rddl/navigation-instance.rddl --binary target/release/prudence

From random initial states, with random actions within their bounds, the observation, the reward and the termination of every step
must agree as in run.py. The columns of actions and observations are the fluents as declared, with the objects of each in row-major order.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from pyRDDLGym.core.constraints import RDDLConstraints
from pyRDDLGym.core.simulator import RDDLSimulator

from reference import REACH, load
from run import TOLERANCE, difference, read_lines


class Noiseless:
    """Replaces numpy's generator; any distribution other than the normal one is an error."""

    def normal(self, loc, scale):
        return loc


def ground(model, values):
    return {name: float(value) for name, value in model.ground_vars_with_values(values).items()}


def start_state(simulator, random):
    """The instance's initial state with every real number shifted by up to 1; sets it in the simulator and returns it by ground names."""
    simulator.reset()
    for fluent, kind in simulator.rddl.state_ranges.items():
        if kind == "real":
            value = simulator.subs[fluent]
            simulator.subs[fluent] = value + random.uniform(-1.0, 1.0, np.shape(value))
    return ground(simulator.rddl, {fluent: simulator.subs[fluent] for fluent in simulator.rddl.state_fluents})


def random_actions(simulator, steps, random):
    """The names of the actions and random rows of them within their bounds, [steps, actions]."""
    names = list(simulator.grounded_noop_actions)
    bounds = np.array([RDDLConstraints(simulator).bounds[name] for name in names])
    return names, random.uniform(*np.clip(bounds, -REACH, REACH).T, size=(steps, len(names)))


def expected(simulator, names, rows):
    """The reference's observation, reward and termination after each action."""
    fluents = list(simulator.rddl.observ_fluents or simulator.rddl.state_fluents)
    for row in rows:
        action = simulator.prepare_actions_for_sim(dict(zip(names, map(float, row))))
        _, reward, terminated = simulator.step(action)
        observation = ground(simulator.rddl, {fluent: simulator.subs[fluent] for fluent in fluents})
        yield [*observation.values(), reward, terminated]
        if terminated:
            return


def worst_of_rollout(arguments, simulator, random, scratch):
    """The largest difference in one episode, and the number of steps."""
    state = start_state(simulator, random)
    names, rows = random_actions(simulator, simulator.rddl.horizon, random)
    (scratch / "state.json").write_text(json.dumps(state))
    np.savetxt(scratch / "actions.csv", rows, delimiter=",", fmt="%.17g")
    command = [arguments.binary, "rollout", arguments.task, "--actions", scratch / "actions.csv", "--state", scratch / "state.json"]
    command += ["--set", "env.noise=false", "--out", scratch / "out.jsonl"]
    (scratch / "out.jsonl").unlink(missing_ok=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ours = [[*line["observation"], line["reward"], line["terminated"]] for line in read_lines(scratch / "out.jsonl")[1:]]
    theirs = list(expected(simulator, names, rows))
    if len(ours) != len(theirs):
        sys.exit(f"{arguments.task}: our episode has {len(ours)} steps, pyRDDLGym's {len(theirs)}")
    pairs = [pair for mine, reference in zip(ours, theirs) for pair in zip(mine, reference, strict=True)]
    return max(difference(*pair) for pair in pairs), len(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("domain")
    parser.add_argument("instance")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    simulator = RDDLSimulator(load(arguments.domain, arguments.instance), rng=Noiseless())
    with tempfile.TemporaryDirectory() as scratch:
        results = [worst_of_rollout(arguments, simulator, random, pathlib.Path(scratch)) for _ in range(arguments.starts)]
    worst = max(result[0] for result in results)
    print(f"{arguments.task}: {sum(result[1] for result in results)} steps from {arguments.starts} initial states, largest difference {worst:.1e}")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
