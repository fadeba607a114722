"""Compares `prudence rollout` with bullet-safety-gym 1.4.0 on Bullet's four tasks, from the same states with the same actions.

    parity.py --binary PATH --starts-binary PATH [--starts 5000]

Poses, velocities, joints, observations, rewards and costs must agree to 1e-12 over whole episodes, with both timings (the original's is also
set in bullet-safety-gym). Then initial states of both sides are compared by a two-sample Kolmogorov-Smirnov test of each number of the state.
The `--starts-binary` comes from `cargo build --release -p prudence-physics --example bullet_starts`. Needs `prudence engines install` and
Python 3.11 or older.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from bullet_safety_gym.envs import bases, builder

TOLERANCE = 1e-12
TASKS = {
    "ball-circle": ("Ball", "CircleTask", "Octagon"),
    "ball-run": ("Ball", "RunTask", "Plane200"),
    "car-circle": ("RaceCar", "CircleTask", "Octagon"),
    "car-run": ("RaceCar", "RunTask", "Plane200"),
}
STEPS = {
    "original": {"ball-circle": 250, "ball-run": 250, "car-circle": 500, "car-run": 500},
    "pypi-1.4": {"ball-circle": 200, "ball-run": 100, "car-circle": 300, "car-run": 200},
}
PHYSICS, CLIPPED = builder.get_physics_parameters, bases.Agent.apply_action
DRIVEN = [0, 2, 8, 15]  # the joints of a car that have motors


def time_as(variant):
    """Gives environments that are created from now on the variant's timing."""
    builder.get_physics_parameters = (lambda task, agent: (1 / 240.0, 4, 5)) if variant == "original" else PHYSICS


def make(task, variant):
    """Creates their environment. The original differs in timing, and in that it does not clip the actions of a car."""
    agent, name, world = TASKS[task]
    time_as(variant)
    env = builder.EnvironmentBuilder(agent=agent, task=name, obstacles={}, world={"name": world})
    if variant == "original" and agent == "RaceCar":
        env.agent.clips = False
    return env


bases.Agent.clips = True
bases.Agent.apply_action = lambda agent, action: CLIPPED(agent, action) if agent.clips else action


def state(env):
    """The state in the format of `prudence rollout`."""
    bc, body = env.bc, env.agent.body_id
    position, orientation = bc.getBasePositionAndOrientation(body)
    linear, angular = bc.getBaseVelocity(body)
    found = {"position": position, "orientation": orientation, "linear_velocity": linear, "angular_velocity": angular}
    if count := bc.getNumJoints(body):
        found["joints"] = [bc.getJointState(body, joint)[:2] for joint in range(count)]
    return found


def flat(state):
    return np.concatenate([np.ravel(value) for _, value in sorted(state.items())])


def set_state(env, state):
    """Sets a state, starting from the loaded state of the engine with the motors off."""
    bc, body = env.bc, env.agent.body_id
    bc.restoreState(env.stored_state_id)
    for joint, (position, velocity) in enumerate(state.get("joints", [])):
        bc.resetJointState(body, joint, position, velocity)
    for joint in DRIVEN if "joints" in state else []:
        bc.setJointMotorControl2(body, joint, bc.VELOCITY_CONTROL, targetVelocity=0, force=0)
    bc.resetBasePositionAndOrientation(body, state["position"], state["orientation"])
    bc.resetBaseVelocity(body, state["linear_velocity"], state["angular_velocity"])
    env.task.old_potential = getattr(env.task, "calculate_task_potential", lambda: 0.0)()


def somewhere(env, random):
    """A random state near one of their initial states, with another position, orientation and velocities."""
    env.reset()
    found = state(env)
    half = random.uniform(-np.pi, np.pi) / 2
    found["position"] = np.add(found["position"], [*random.uniform(-2, 2, 2), random.uniform(0, 0.2)]).tolist()
    found["orientation"] = [0.0, 0.0, float(np.sin(half)), float(np.cos(half))]
    found["linear_velocity"] = random.uniform(-1, 1, 3).tolist()
    found["angular_velocity"] = random.uniform(-1, 1, 3).tolist()
    if "joints" in found:  # a fixed joint keeps its position
        found["joints"] = [[place, place and random.uniform(-1, 1)] for place, _ in found["joints"]]
    return found


def actions(random, steps, kind, most):
    """Uniform actions; or actions at the limits of their range or beyond, each held for ten steps; or a constant action."""
    if kind == "uniform":
        return random.uniform(-1.0, 1.0, (steps, 2))
    if kind == "held":
        return np.repeat(random.choice([-most, most], (steps // 10 + 1, 2)), 10, axis=0)[:steps]
    return np.tile([1.0, 0.2], (steps, 1))


def theirs(env, start, rows):
    set_state(env, start)
    for row in rows:
        observation, reward, *_, info = env.step(row)
        yield np.concatenate([observation, [reward, info["cost"]], flat(state(env))])


def ours(arguments, task, variant, start, rows, scratch):
    (scratch / "state.json").write_text(json.dumps(start))
    np.savetxt(scratch / "actions.csv", rows, delimiter=",", fmt="%.17g")
    out = scratch / "out.jsonl"
    command = [arguments.binary, "rollout", task, "--actions", scratch / "actions.csv", "--state", scratch / "state.json", "--out", out]
    subprocess.run([*command, "--set", f'env.variant="{variant}"'], check=True, stdout=subprocess.DEVNULL)
    for line in out.read_text().splitlines()[1:]:
        step = json.loads(line)
        yield np.concatenate([step["observation"], [step["reward"], step["signals"]["cost"]], flat(step["state"])])


def compare(arguments, env, task, variant, random, kind):
    """The largest difference in one episode, the number of steps and the number of costs."""
    steps = STEPS[variant][task]
    rows = actions(random, steps, kind, 2.0)
    start = somewhere(env, random)
    with tempfile.TemporaryDirectory() as scratch:
        found = np.array(list(ours(arguments, task, variant, start, np.vstack([rows, rows]), pathlib.Path(scratch))))
    expected = np.array(list(theirs(env, start, rows)))
    if found.shape != expected.shape:
        sys.exit(f"{task}, {variant}: our episode has the shape (steps, numbers) {found.shape}, theirs {expected.shape}")
    seen = 7 + ("circle" in task)
    return np.abs(found - expected).max(), steps, int(expected[:, seen + 1].sum())


def distance(one, other):
    """The Kolmogorov-Smirnov distance between two samples of the same size."""
    both = np.sort(np.concatenate([one, other]))
    ranks = [np.searchsorted(np.sort(sample), both, side="right") / len(sample) for sample in (one, other)]
    return np.abs(ranks[0] - ranks[1]).max()


def starts(arguments, task):
    """The largest distance over the numbers of the state, rounded so that differences in the last bits do not count."""
    env = make(task, "original")
    np.random.seed(0)
    reference = []
    for _ in range(arguments.starts):
        env.reset()
        reference.append(flat(state(env)))
    env.close()
    text = subprocess.run([arguments.starts_binary, task, str(arguments.starts)], check=True, stdout=subprocess.PIPE).stdout
    found = [flat(json.loads(line)) for line in text.splitlines()]
    return max(map(distance, np.round(reference, 9).T, np.round(found, 9).T))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--starts-binary", required=True)
    parser.add_argument("--starts", type=int, default=5000)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    failed = False
    for task in TASKS:
        for variant in STEPS:
            env = make(task, variant)
            for kind in ["uniform", "held", "constant"]:
                worst, steps, costs = compare(arguments, env, task, variant, random, kind)
                print(f"{task}, {variant}, {kind} actions: {steps} steps, {costs} with a cost, largest difference {worst:.1e}", flush=True)
                failed |= worst > TOLERANCE
            env.close()
        found = starts(arguments, task)
        limit = np.sqrt(np.log(2e5) / arguments.starts)  # exceeded with probability 1e-5 for each number; the seeds are fixed
        print(f"{task}: {arguments.starts} initial states, largest Kolmogorov-Smirnov distance {found:.3f}, limit {limit:.3f}", flush=True)
        failed |= found > limit
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
