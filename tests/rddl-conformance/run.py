"""Compares `prudence rddl simulate` with pyRDDLGym on the domains of rddlrepository, and prints a table.

Both sides get the same actions and the same list of uniform numbers. Two values a and b agree if
|a - b| <= 1e-9 max(1, |a|, |b|), or if both are the same infinity, both NaN, or the same name.
The exit code is 1 if an accepted domain disagrees or less than 80 % of the domains are accepted.
"""

import argparse
import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import rddlrepository

from reference import write

HERE = pathlib.Path(__file__).resolve().parent
ARCHIVE = pathlib.Path(rddlrepository.__file__).parent / "archive"
TOLERANCE = 1e-9
LEAST_ACCEPTED = 0.8
UNIFORMS = 100_003
SECTIONS = ("state", "interm", "observation")
SUBSET = """
    arcade/Blackjack arcade/Pong arcade/Sokoban arcade/Tetris arcade/Zombies
    competitions/IPPC2011/CrossingTraffic/POMDP competitions/IPPC2011/Elevators/MDP competitions/IPPC2011/GameOfLife/MDP
    competitions/IPPC2011/SkillTeaching/POMDP competitions/IPPC2011/SysAdmin/MDP competitions/IPPC2011/Traffic/POMDP
    competitions/IPPC2014/AcademicAdvising/POMDP competitions/IPPC2014/Tamarisk/MDP competitions/IPPC2014/TriangleTireworld/POMDP
    competitions/IPPC2014/Wildfire/MDP
    competitions/IPPC2018/ChromaticDice competitions/IPPC2018/EarthObservation competitions/IPPC2018/Manufacturer
    competitions/IPPC2018/PushYourLuck competitions/IPPC2018/RedFinnedBlueEye competitions/IPPC2018/WildlifePreserve/p1
    competitions/IPPC2023/HVAC competitions/IPPC2023/MarsRover competitions/IPPC2023/PowerGen competitions/IPPC2023/RaceCar
    competitions/IPPC2023/RecSim competitions/IPPC2023/Reservoir competitions/IPPC2023/UAV
    gym/Acrobot gym/CartPole/Discrete or/SupplyChain or/TSP physics/Bicycle physics/Quadcopter
    rddlsim/ComplexSysAdmin rddlsim/Logistics rddlsim/PropDBN rddlsim/Workforce
    standalone/Elevators standalone/HVAC standalone/Intruders/Continuous standalone/Navigation standalone/TrafficBLX/SimplePhases
    own/Language own/Laws
""".split()  # with the first instance of each


def number_in(path):
    """The number of an instance, for sorting and naming."""
    return int("".join(filter(str.isdigit, path.stem)) or 0)


def domains():
    """Name -> (domain file, instance files): all folders of the repository with a domain, and our own domains."""
    found = {}
    for root, prefix in ((ARCHIVE, ""), (HERE / "own", "own/")):
        for domain in sorted(root.rglob("domain.rddl")):
            name = prefix + domain.parent.relative_to(root).as_posix()
            found[name] = (domain, sorted(domain.parent.glob("instance*.rddl"), key=number_in))
    return found


def write_uniforms(path):
    if not path.exists():
        values = np.random.default_rng(20260101).integers(1, 2**53, UNIFORMS) / 2**53  # never 0 or 1
        np.savetxt(path, values, fmt="%.17g")


def quietly(function, *arguments):
    """Calls a function without pyRDDLGym's output."""
    with open(os.devnull, "w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        function(*arguments)


def reference(domain, instance, uniforms, folder, steps, timeout):
    """The reference's meta.json. Its traces are kept in `folder` until reference.py or the texts change."""
    texts = b"".join(path.read_bytes() for path in (HERE / "reference.py", domain, instance))
    version = hashlib.sha256(texts + f"{steps} {timeout}".encode()).hexdigest()
    meta_file = folder / "meta.json"
    if meta_file.exists() and (meta := json.loads(meta_file.read_text())).get("version") == version:
        return meta
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    child = multiprocessing.get_context("fork").Process(
        target=quietly, args=(write, domain, instance, np.loadtxt(uniforms), folder, steps, 0.75 * timeout)
    )
    child.start()
    child.join(timeout)
    if child.is_alive():
        child.kill()
        meta = {"episodes": 0, "steps": 0, "acted": 0, "draws": 0, "failure": f"no result within {timeout:g} s"}
    else:
        meta = json.loads(meta_file.read_text())
    meta["version"] = version
    meta_file.write_text(json.dumps(meta))
    return meta


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def difference(ours, theirs):
    """The relative difference of two values; infinite if they cannot be compared. Ours writes "NaN", "inf" and "-inf"."""
    if ours == theirs:
        return 0.0
    try:
        ours, theirs = float(ours), float(theirs)
    except (TypeError, ValueError):
        return math.inf
    if ours == theirs or math.isnan(ours) and math.isnan(theirs):
        return 0.0
    relative = abs(ours - theirs) / max(1.0, abs(ours), abs(theirs))
    return math.inf if math.isnan(relative) else relative


def compare(ours, theirs):
    """The largest difference of two traces, and a description of the first one that is too large."""
    worst, first = 0.0, None
    for mine, reference_line in zip(ours, theirs):
        for section, expected in reference_line.items():
            got = mine.get(section)
            if section == "action":
                continue
            if section not in SECTIONS:
                expected, got = {section: expected}, {section: got}
            for name in expected.keys() | (got or {}).keys():
                pair = (got or {}).get(name), expected.get(name)
                distance = difference(*pair)
                worst = max(worst, distance)
                if distance > TOLERANCE and first is None:
                    first = f"t={reference_line['t']} {section} {name}: ours {pair[0]}, reference {pair[1]}"
    if len(ours) != len(theirs):
        worst, first = math.inf, first or f"our episode has {len(ours) - 1} steps, the reference {len(theirs) - 1}"
    return worst, first


def simulate(binary, domain, instance, uniforms, out, timeout, more):
    """Runs our side. Returns why there is no trace (or None), and whether the texts were rejected, as opposed to failing in a step."""
    out.unlink(missing_ok=True)
    command = [binary, "rddl", "simulate", domain, instance, "--uniforms", uniforms, "--out", out, *more]
    try:
        done = subprocess.run(command, timeout=timeout, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return f"ours: no result within {timeout:g} s", False
    message = (done.stderr.strip() or done.stdout.strip()).split("\n")[0].replace(f"{domain.parent}/", "")
    if done.returncode == 2 and subprocess.run([binary, "rddl", "check", domain, instance], capture_output=True).returncode == 2:
        return f"rejected: {message}", True
    return (f"ours: exit code {done.returncode}: {message}" if done.returncode else None), False


def check(binary, domain, instance, uniforms, folder, steps, timeout):
    """One row of the table: all episodes of the reference, compared with ours."""
    meta = reference(domain, instance, uniforms, folder, steps, timeout)
    row = {key: meta[key] for key in ("episodes", "steps", "acted", "draws")}
    row |= {"accepted": True, "agrees": None, "difference": None, "reason": f"pyRDDLGym: {meta['failure']}" if meta["failure"] else ""}
    if binary is None:
        return row | {"accepted": False}
    out = folder / "ours.jsonl"
    if meta["steps"] == 0:
        failure, refused = simulate(binary, domain, instance, uniforms, out, timeout, ["--steps", "1"])
        return row | {"accepted": failure is None, "reason": failure or row["reason"]}
    worst, first = 0.0, None
    for episode in range(meta["episodes"]):
        failure, refused = simulate(binary, domain, instance, uniforms, out, timeout, ["--actions", folder / f"actions-{episode}.jsonl"])
        if refused:
            return row | {"accepted": False, "reason": failure}
        if failure:
            return row | {"agrees": False, "difference": math.inf, "reason": failure}
        distance, where = compare(read_lines(out), read_lines(folder / f"trace-{episode}.jsonl"))
        worst = max(worst, distance)
        first = first or where and f"episode {episode} {where}"
    return row | {"agrees": worst <= TOLERANCE, "difference": worst, "reason": first or row["reason"]}


def print_row(row):
    worst = "" if row["difference"] is None else f"{row['difference']:.1e}"
    accepted = "yes" if row["accepted"] else "no"
    print(f"{row['domain']:<46} {row['instance']:>4}  {accepted:<8} {row['steps']:>5} {worst:>9} {row['draws']:>8}  {row['reason']}", flush=True)


def summarise(rows):
    """Summarises the rows; a domain is accepted if all its instances are."""
    names = {row["domain"] for row in rows}
    refused = {row["domain"] for row in rows if not row["accepted"]}
    return {
        "domains": len(names),
        "accepted": len(names - refused),
        "accepted_share": (len(names) - len(refused)) / max(1, len(names)),
        "instances": len(rows),
        "compared": sum(row["agrees"] is not None for row in rows),
        "agree": sum(row["agrees"] is True for row in rows),
        "disagree": sum(row["agrees"] is False for row in rows),
        "not_compared": sum(row["accepted"] and row["agrees"] is None for row in rows),
        "steps": sum(row["steps"] for row in rows if row["agrees"]),
        "draws": sum(row["draws"] for row in rows if row["agrees"]),
        "largest_difference": max((row["difference"] for row in rows if row["agrees"]), default=0.0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="our binary; without it only the reference traces are written")
    parser.add_argument("--domains", help="only domains whose name contains one of these words, separated by commas")
    parser.add_argument("--instances", type=int, default=3, help="maximum number of instances per domain (default 3)")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each side of an instance (default 60)")
    parser.add_argument("--subset", action="store_true", help="a fixed subset that takes less than two minutes")
    parser.add_argument("--cache", type=pathlib.Path, help="keep the reference traces here")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    chosen = [
        (name, domain, instance)
        for name, (domain, instances) in domains().items()
        for instance in instances[: 1 if arguments.subset else arguments.instances]
        if not arguments.subset or name in SUBSET
        if not arguments.domains or any(part in name for part in arguments.domains.split(","))
    ]
    if arguments.subset and not arguments.domains and {name for name, *_ in chosen} != set(SUBSET):
        sys.exit(f"not in the repository: {set(SUBSET) - {name for name, *_ in chosen}}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        cache = arguments.cache or pathlib.Path(scratch)
        cache.mkdir(parents=True, exist_ok=True)
        uniforms = cache / "uniforms.txt"
        write_uniforms(uniforms)
        if not arguments.json:
            print(f"{'domain':<46} inst  accepted steps  max diff    draws  reason")
        for name, domain, instance in chosen:
            folder = cache / name / str(number_in(instance))
            row = check(arguments.binary, domain, instance, uniforms, folder, arguments.steps, arguments.timeout)
            rows.append({"domain": name, "instance": number_in(instance)} | row)
            if not arguments.json:
                print_row(rows[-1])
    summary = summarise(rows)
    if arguments.json:
        print(json.dumps({"summary": summary, "rows": rows}, indent=1))
    else:
        print("\n" + "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in summary.items()))
    least = 1.0 if arguments.subset else LEAST_ACCEPTED
    if arguments.binary and (summary["disagree"] or summary["accepted_share"] < least):
        sys.exit(1)


if __name__ == "__main__":
    main()
