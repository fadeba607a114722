"""Compares environment steps per CPU-second of `prudence bench env` and bullet-safety-gym, on one core with random actions.

    speed.py --binary PATH [--pairs 3] [--core 0]

Both use the original's timing. The two sides run in turns and the best result of each counts, so that other load on the machine affects both
equally. Required: 3 times their speed on the Ball tasks, 1.8 times on the Car tasks. Run it on an idle machine. Needs `prudence engines install`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import bullet_safety_gym  # registers its environments with gymnasium
import gymnasium
import numpy as np
from parity import STEPS, time_as

SECONDS = 3.0
IDS = {"ball-circle": "SafetyBallCircle-v0", "ball-run": "SafetyBallRun-v0", "car-circle": "SafetyCarCircle-v0", "car-run": "SafetyCarRun-v0"}
LIMITS = {"ball-circle": 3.0, "ball-run": 3.0, "car-circle": 1.8, "car-run": 1.8}


def theirs(env, horizon):
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (20, horizon, 2)).astype(np.float32)
    steps, start = 0, time.process_time()
    while time.process_time() - start < SECONDS:
        env.reset()
        for row in rows[steps // horizon % 20]:  # the speed depends on contacts, so the actions must vary
            env.step(row)
        steps += horizon
    return steps / (time.process_time() - start)


def ours(arguments, task):
    command = [arguments.binary, "bench", "env", "--task", task, "--json"]
    start, before = time.perf_counter(), children_cpu()
    line = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)[0]
    share = (children_cpu() - before) / (time.perf_counter() - start)  # the share of the core that other processes left
    return line["per_second"] / share, line["microseconds"] / line["bare_microseconds"]


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})  # inherited by the child process
    failed = False
    time_as("original")
    for task, limit in LIMITS.items():
        horizon = STEPS["original"][task]
        env = gymnasium.make(IDS[task], disable_env_checker=True, max_episode_steps=horizon)
        pairs = [(theirs(env, horizon), *ours(arguments, task)) for _ in range(arguments.pairs)]
        env.close()
        reference, mine = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        over = statistics.median(pair[2] for pair in pairs)
        ratio = f"{mine / reference:.2f} times, at least {limit} required"
        print(f"{task}: {mine:.0f} steps per CPU-second, theirs {reference:.0f}, {ratio}; {100 * (over - 1):.0f} % over the bare engine", flush=True)
        failed |= mine < limit * reference
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
