"""Compares steps per CPU-second of pyRDDLGym and `prudence bench env` on the same texts, on one core in turns.

    speed.py --binary PATH [--core 1] [--repeats 5] [--json]

The texts are those of our tasks, and the two of rddlrepository that they are based on. Both sides step random actions that are drawn
beforehand. pyRDDLGym's environment is measured with and without `vectorized`, and the faster one counts. The exit code is 1 if ours is less
than 200 times as fast.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

from pyRDDLGym.core.env import RDDLEnv

from run import ARCHIVE, HERE

OURS = HERE.parents[1] / "tasks" / "rddl"
TEXTS = {
    "navigation": (OURS / "navigation.rddl", OURS / "navigation-instance.rddl"),
    "hvac": (OURS / "hvac.rddl", OURS / "hvac-instance.rddl"),
    "repository Navigation": (ARCHIVE / "standalone/Navigation/domain.rddl", ARCHIVE / "standalone/Navigation/instance0.rddl"),
    "repository HVAC": (ARCHIVE / "standalone/HVAC/domain.rddl", ARCHIVE / "standalone/HVAC/instance0.rddl"),
}
TASK = 'name = "speed"\nsummary = ""\nrule = "1 < 2"\ntarget = 0.9\nenv = {{ kind = "rddl", domain = "{}", instance = "{}" }}\n'
SECONDS = 3.0  # per measurement
TARGET = 200  # the required ratio to pyRDDLGym


def python_side(texts, vectorized):
    """Steps per CPU-second of pyRDDLGym, in this process."""
    env = RDDLEnv(*map(str, texts), vectorized=vectorized)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(env.horizon)]
    if not vectorized:
        actions = [{name: value.item() for name, value in action.items()} for action in actions]
    steps, start = 0, time.process_time()
    while time.process_time() < start + SECONDS / 2:
        env.reset()
        for action in actions:
            env.step(action)
        steps += len(actions)
    return steps / (time.process_time() - start)


def our_side(binary, texts):
    """Steps per CPU-second of our binary: its steps per second, divided by its share of the core."""
    with tempfile.TemporaryDirectory() as scratch:
        task = pathlib.Path(scratch) / "speed.toml"
        task.write_text(TASK.format(*texts))
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([binary, "bench", "env", "--task", task, "--json"], check=True, capture_output=True, text=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    busy = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / wall
    return json.loads(done.stdout)[0]["per_second"] / busy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # gymnasium warns about its float32 bounds
    os.sched_setaffinity(0, {arguments.core})  # our binary inherits it
    results = []
    for name, texts in TEXTS.items():
        reference, ours = [], []
        for _ in range(arguments.repeats):
            reference.append(max(python_side(texts, vectorized) for vectorized in (False, True)))
            ours.append(our_side(arguments.binary, texts))
        ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, reference))
        results.append({"texts": name, "pyrddlgym": statistics.median(reference), "ours": statistics.median(ours), "ratio": ratio})
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        print(f"{'texts':<22} {'pyRDDLGym/s':>12} {'ours/s':>12} {'ratio':>8}   medians of {arguments.repeats}; the ratio is the median over turns")
        for result in results:
            print("{texts:<22} {pyrddlgym:>12.0f} {ours:>12.0f} {ratio:>8.0f}".format(**result))
    sys.exit(any(result["ratio"] < TARGET for result in results))


if __name__ == "__main__":
    main()
