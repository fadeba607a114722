"""Compares `prudence rollout` with Gymnasium on MuJoCo's three tasks, from the same states with the same actions.

    parity.py --binary PATH [--steps 1000] [--starts 500]

Observations, rewards and velocities must agree to 1e-12, terminations exactly. Each task runs with Gymnasium's default settings, where
episodes can terminate; without termination, for 1,000 steps; and with every option changed. Then initial states of both sides are compared
by a two-sample Kolmogorov-Smirnov test of each number. (Each of ours takes a process here; crates/physics/tests/mujoco.rs compares 10,000
of them with the exact distribution.) Needs `prudence engines install`.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import gymnasium
import mujoco
import numpy as np

TOLERANCE = 1e-12
IDS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "half-cheetah": "HalfCheetah-v5"}
SHARED = dict(forward_reward_weight=1.7, ctrl_cost_weight=0.03, reset_noise_scale=0.02, frame_skip=3, exclude_current_positions_from_observation=False)
HEALTHY = dict(healthy_reward=0.6, healthy_z_range=(0.5, 1.9), healthy_angle_range=(-0.7, 0.9), terminate_when_unhealthy=True)
CHANGED = {
    "hopper": SHARED | HEALTHY | dict(healthy_state_range=(-30.0, 25.0)),
    "walker2d": SHARED | HEALTHY,
    "half-cheetah": SHARED,
}


def settings(task):
    """The options that both sides get, by name."""
    if task == "half-cheetah":
        yield "default settings", {}
    else:
        yield "default settings", dict(terminate_when_unhealthy=True)
        yield "without termination", dict(terminate_when_unhealthy=False)
    yield "all settings changed", CHANGED[task]


def toml(value):
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def actions(random, steps, size, kind):
    """Rows of actions: uniform, or at the limits of their range, each held for ten steps."""
    if kind == "uniform":
        return random.uniform(-1.0, 1.0, (steps, size))
    return np.repeat(random.choice([-1.0, 1.0], (steps // 10 + 1, size)), 10, axis=0)[:steps]


def theirs(env, qpos, qvel, rows):
    """Gymnasium's values after each action, from a reset of the engine: observation, reward, x-velocity, and both end flags."""
    env.reset(seed=0)
    plain = env.unwrapped
    mujoco.mj_resetData(plain.model, plain.data)
    plain.set_state(qpos, qvel)
    for row in rows:
        observation, reward, terminated, truncated, info = env.step(row)
        yield [*observation, reward, info["x_velocity"]], [terminated, truncated and not terminated]
        if terminated or truncated:
            return


def ours(arguments, task, options, state, rows, scratch):
    (scratch / "state.json").write_text(json.dumps(state))
    np.savetxt(scratch / "actions.csv", rows, delimiter=",", fmt="%.17g")
    out = scratch / "out.jsonl"
    out.unlink(missing_ok=True)
    command = [arguments.binary, "rollout", task, "--actions", scratch / "actions.csv", "--state", scratch / "state.json", "--out", out]
    for key, value in options.items():
        command += ["--set", f"env.{key}={toml(value)}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for line in out.read_text().splitlines()[1:]:
        step = json.loads(line)
        yield [*step["observation"], step["reward"], step["signals"]["x_velocity"]], [step["terminated"], step["truncated"]]


def compare(arguments, task, options, random, kind, scratch):
    """The largest difference in one episode, and the number of steps."""
    env = gymnasium.make(IDS[task], disable_env_checker=True, **options)
    plain = env.unwrapped
    qpos = plain.init_qpos + random.uniform(-0.05, 0.05, plain.model.nq)
    qvel = plain.init_qvel + random.uniform(-0.1, 0.1, plain.model.nv)
    rows = actions(random, arguments.steps, plain.model.nu, kind)
    state = {"qpos": qpos.tolist(), "qvel": qvel.tolist()}
    expected = list(theirs(env, qpos, qvel, rows))
    found = list(ours(arguments, task, options, state, rows, scratch))
    if [marks for _, marks in expected] != [marks for _, marks in found]:
        sys.exit(f"{task}: our episode ends after {len(found)} steps with {found[-1][1]}, Gymnasium's after {len(expected)} with {expected[-1][1]}")
    worst = np.abs(np.array([row for row, _ in expected]) - np.array([row for row, _ in found])).max()
    return worst, len(expected)


def starts(arguments, task, scratch):
    """Initial states of both sides, [starts, numbers]."""
    option = "exclude_current_positions_from_observation"
    env = gymnasium.make(IDS[task], disable_env_checker=True, **{option: False})
    reference = np.array([env.reset(seed=seed)[0] for seed in range(arguments.starts)])
    (scratch / "actions.csv").write_text("")
    command = [arguments.binary, "rollout", task, "--actions", scratch / "actions.csv", "--set", f"env.{option}=false"]
    for seed in range(arguments.starts):
        subprocess.run([*command, "--seed", str(seed), "--out", scratch / f"{seed}.jsonl"], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads((scratch / f"{seed}.jsonl").read_text()) for seed in range(arguments.starts)]
    return reference, np.array([line["observation"] for line in lines])


def distance(one, other):
    """The Kolmogorov-Smirnov distance between two samples of the same size."""
    both = np.sort(np.concatenate([one, other]))
    ranks = [np.searchsorted(np.sort(sample), both, side="right") / len(sample) for sample in (one, other)]
    return np.abs(ranks[0] - ranks[1]).max()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=500)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    failed = False
    for task in IDS:
        for name, options in settings(task):
            for kind in ["uniform", "held"]:
                with tempfile.TemporaryDirectory() as scratch:
                    worst, steps = compare(arguments, task, options, random, kind, pathlib.Path(scratch))
                print(f"{task}, {name}, {kind} actions: {steps} steps, largest difference {worst:.1e}")
                failed |= worst > TOLERANCE
        with tempfile.TemporaryDirectory() as scratch:
            pair = starts(arguments, task, pathlib.Path(scratch))
        found = max(map(distance, pair[0].T, pair[1].T))
        limit = np.sqrt(np.log(2e4) / arguments.starts)  # exceeded with probability 1e-4; the seeds are fixed
        print(f"{task}: {arguments.starts} initial states, largest Kolmogorov-Smirnov distance {found:.3f}, limit {limit:.3f}")
        failed |= found > limit
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
