"""Steps per CPU-second of pyRDDLGym and of `prudence rddl simulate`, on the same texts, on one core, taking turns.

    speed.py --binary PATH [--core 1] [--repeats 5] [--seconds 3] [--json]

pyRDDLGym: its environment as it comes and with `vectorized`, the faster of the two, random actions made beforehand.
Ours: CPU time of a long simulation less that of a short one, so that start-up does not count; every line is written, to /dev/null.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from run import ARCHIVE

TASKS = {"Navigation": "standalone/Navigation/instance0.rddl", "HVAC": "standalone/HVAC/instance0.rddl"}
SHORT, LONG = 1_000, 201_000  # steps of ours
TARGET = 200  # times pyRDDLGym


def texts(task):
    instance = ARCHIVE / TASKS[task]
    return instance.with_name("domain.rddl"), instance


def python_side(task, seconds):
    """Steps per CPU-second of pyRDDLGym, in this process."""
    from pyRDDLGym.core.env import RDDLEnv

    rates = []
    for vectorized in (False, True):
        env = RDDLEnv(*map(str, texts(task)), vectorized=vectorized)
        env.action_space.seed(0)
        actions = [{name: value if vectorized else value.item() for name, value in env.action_space.sample().items()} for _ in range(env.horizon)]
        env.reset(seed=0)
        steps, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            env.reset()
            for action in actions:
                env.step(action)
            steps += len(actions)
        rates.append(steps / (time.process_time() - start))
    return max(rates)


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def our_side(binary, task):
    """Steps per CPU-second of our binary."""
    command = [binary, "rddl", "simulate", *texts(task), "--steps"]
    return (LONG - SHORT) / (cpu_seconds([*command, str(LONG)]) - cpu_seconds([*command, str(SHORT)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of pyRDDLGym (3)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--python-side", choices=TASKS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})  # children inherit it
    if arguments.python_side:
        print(python_side(arguments.python_side, arguments.seconds))
        return
    results = []
    for task in TASKS:
        command = [sys.executable, __file__, "--python-side", task, "--seconds", str(arguments.seconds), "--core", str(arguments.core)]
        reference, ours = [], []
        for _ in range(arguments.repeats):
            reference.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]))
            if arguments.binary:
                ours.append(our_side(arguments.binary, task))
        ratios = [mine / theirs for mine, theirs in zip(ours, reference)]
        results.append({"task": task, "pyrddlgym": reference, "ours": ours, "ratio": statistics.median(ratios) if ratios else None})
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        print(f"{'task':<12} {'pyRDDLGym/s':>12} {'ours/s':>12} {'ratio':>8} (medians; ratio of each turn)")
        for result in results:
            middle = [statistics.median(result[side]) if result[side] else np.nan for side in ("pyrddlgym", "ours")]
            print(f"{result['task']:<12} {middle[0]:>12.0f} {middle[1]:>12.0f} {result['ratio'] or np.nan:>8.0f}")
    if arguments.binary and any(result["ratio"] < TARGET for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
