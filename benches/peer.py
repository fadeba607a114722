"""What the peers' scripts share: options, timing, and the JSON line they print."""

import json
import math
import os
import platform
import sys
import time

# Sizes of `prudence bench update`: observation, action, memory; and the transitions in the buffer.
OBSERVATION, ACTION, MEMORY = 17, 6, 64
ROWS = 100_000

# Settings of the agent that `prudence bench update` runs with.
DISCOUNT, POLYAK, AVERAGING, RATE = 0.99, 0.005, 0.005, 3e-4
TARGET_ENTROPY = -float(ACTION)
LOG_STD = (-20.0, 2.0)
SCORE_FLOOR = -7.0
MULTIPLIER = 0.5


def positive(text):
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def update_options(parser):
    """The options of `prudence bench update` that a peer's script takes."""
    parser.add_argument("--hidden", type=positive, default=256, help="units in both hidden layers [default: 256]")
    parser.add_argument("--batch", type=positive, default=256, help="transitions [default: 256]")
    parser.add_argument("--seconds", type=float, default=3.0, help="measure for about this long [default: 3]")
    return parser.parse_args()


def milliseconds_per_call(call, wait, seconds):
    """Calls `call` for about `seconds`; `wait` returns when everything called so far is done.

    Libraries run calls in the background, so only every block of calls is waited for: about ten in all.
    """
    calls, block, spent = 0, 1, 0.0
    start = time.perf_counter()
    while spent < seconds:
        for _ in range(block):
            call()
        wait()
        calls += block
        spent = time.perf_counter() - start
        block = max(1, int(calls * seconds / 10 / spent))
    return 1e3 * spent / calls


def report(bench, versions, metrics, **values):
    """Prints the result as one JSON line; a training that diverged is an error, not a result."""
    if not all(math.isfinite(number) for number in metrics):
        sys.exit(f"training diverged: its last metrics are {metrics}")
    cores = len(os.sched_getaffinity(0))
    if cores > 1:
        print(f"not pinned: this process may use {cores} cores (use `taskset -c CORE`)", file=sys.stderr)
    versions = {**versions, "python": platform.python_version()}
    print(json.dumps({"bench": bench, **values, "metrics": metrics, "cores": cores, "versions": versions}))
