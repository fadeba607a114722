"""Compares environment steps per CPU-second of `prudence bench env` and Gymnasium, on one core with random actions.

    speed.py --binary PATH [--pairs 3] [--core 0]

The two sides run in turns and the best result of each counts, so that other load on the machine affects both equally. Required: 1.8 times
Gymnasium's speed on all three tasks with Gymnasium's settings, and at most 10 % over the bare engine (the median). The settings of our tasks,
without termination, are measured too. With random actions the robots then lie on the floor for most of an episode, and contacts increase the
engine's share of a step, so the ratio is smaller. Run it on an idle machine. Needs `prudence engines install`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import gymnasium
import numpy as np

IDS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "half-cheetah": "HalfCheetah-v5"}
SECONDS = 3.0


def theirs(task, options):
    env = gymnasium.make(IDS[task], disable_env_checker=True, **options)
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 1000, env.action_space.shape[0])).astype(np.float32)
    steps, start = 0, time.process_time()
    while time.process_time() - start < SECONDS:
        env.reset(seed=steps)
        for row in rows[steps // 1000 % 50]:  # the speed depends on contacts, so the actions must vary
            if any(env.step(row)[2:4]):
                env.reset()
        steps += 1000
    return steps / (time.process_time() - start)


def ours(arguments, task, options):
    sets = [word for key, value in options.items() for word in ("--set", f"env.{key}={str(value).lower()}")]
    command = [arguments.binary, "bench", "env", "--task", task, "--json", *sets]
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
    for task, end in [("hopper", True), ("walker2d", True), ("half-cheetah", None), ("hopper", False), ("walker2d", False)]:
        options = {} if end is None else {"terminate_when_unhealthy": end}
        pairs = [(theirs(task, options), *ours(arguments, task, options)) for _ in range(arguments.pairs)]
        reference, mine = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        over = statistics.median(pair[2] for pair in pairs)
        name = task if end is not False else f"{task} without termination"
        print(f"{name}: {mine:.0f} steps per CPU-second, Gymnasium {reference:.0f}, {mine / reference:.2f} times; {100 * (over - 1):.1f} % over the bare engine")
        failed |= end is not False and mine < 1.8 * reference or over > 1.1
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
