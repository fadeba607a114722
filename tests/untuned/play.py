"""Plays a policy of DOMAIN/policy.py in prudence's own engine and lets prudence judge the episodes.

    venv/bin/python play.py DOMAIN POLICY [EPISODES] [FIRST_SEED]

POLICY: random (prudence's own, uniform), or a name in POLICIES. `prudence rollout` takes only a fixed list of actions, so
a closed loop goes in three steps: (1) a rollout of zero actions with the same seed gives the draws of the episode, which
do not depend on the actions (rain, temperature); (2) the policy plays against a copy of the dynamics (`model`) with these
draws; (3) `prudence rollout --actions` plays the resulting actions. The observations of (3) must be those of (2) to 1e-6 (pendulum: 0.01),
and the rule as written out in policy.py must give prudence's verdict; otherwise the script stops."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

BINARY = os.environ.get("PRUDENCE", "../../target/release/prudence")


def rollout(task, seed, *arguments):
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([BINARY, "rollout", task, "--seed", str(seed), "--out", f"{d}/o", *arguments], check=True,
                       stdout=subprocess.DEVNULL)
        return [json.loads(x) for x in open(f"{d}/o")]


def main(name, policy, episodes=100, first=1000):
    task = f"{name}/{name}.toml"
    spec = importlib.util.spec_from_file_location("policy", f"{name}/policy.py")
    p = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(p)
    returns, safe = [], []
    for seed in range(first, first + episodes):
        if policy == "random":
            steps = rollout(task, seed, "--policy", "random")[1:]
        else:
            draws = rollout(task, seed, "--policy", "zero")
            rng, o, actions, expected = np.random.default_rng(seed), np.array(draws[0]["observation"], float), [], []
            for t, d in enumerate(draws[1:]):
                a = np.asarray(p.POLICIES[policy](o, t, rng), float)
                o = p.model(o, a, np.array([d["signals"][k] for k in p.EXOGENOUS]))
                actions.append(a)
                expected.append(o)
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as f:
                f.write("".join(",".join(repr(float(x)) for x in a) + "\n" for a in actions))
                f.flush()
                steps = rollout(task, seed, "--actions", f.name)[1:]
            difference = np.abs(np.array([s["observation"] for s in steps]) - np.array(expected)).max()
            assert difference < getattr(p, "TOLERANCE", 1e-6) * max(1.0, np.abs(expected).max()), difference
        signals = {k: [s["signals"][k] for s in steps] for k in steps[0]["signals"]}
        assert p.rule(signals) == steps[-1]["safe"], seed
        returns.append(sum(s["reward"] for s in steps))
        safe.append(steps[-1]["safe"])
    print(f"{name:10} {policy:12} {episodes} episodes, seeds {first}-{first + episodes - 1}, {len(steps)} steps: "
          f"return {np.mean(returns):.1f} (sd of episodes {np.std(returns):.1f}, per step {np.mean(returns) / len(steps):.2f}), "
          f"safe {100 * np.mean(safe):.0f} %", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:5]))
