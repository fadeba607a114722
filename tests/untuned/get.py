"""Copies the texts of the four domains from the Python package rddlrepository 2.2, and checks them.

    python3 -m venv venv && venv/bin/pip install rddlrepository==2.2 numpy
    venv/bin/python get.py
"""
import hashlib
import importlib.util
import pathlib
import shutil

FILES = {
    "reacher": ("physics/Reacher", 0, "c95e7410a8508e05", "7256028c333b8d11"),
    "powergen": ("standalone/PowerGen/Continuous", 0, "d3fd28d50b100a52", "0d9073cd9e440c72"),
    "uav": ("competitions/IPPC2023/UAV", 1, "07f0b084c3563249", "e0fcbb8e2174a95c"),
    "reservoir": ("competitions/IPPC2023/Reservoir", 2, "c05e4ebbdbc57669", "0a31db9ae2db83f9"),
}

here = pathlib.Path(__file__).parent
spec = importlib.util.find_spec("rddlrepository")
assert spec and spec.submodule_search_locations, "rddlrepository is not installed; see the head of this file"
archive = pathlib.Path(spec.submodule_search_locations[0]) / "archive"
for name, (folder, instance, *hashes) in FILES.items():
    texts = [("domain.rddl", "domain.rddl"), (f"instance{instance}.rddl", "instance.rddl")]
    for (source, target), expected in zip(texts, hashes):
        shutil.copy(archive / folder / source, here / name / target)
        found = hashlib.sha256((here / name / target).read_bytes()).hexdigest()
        assert found.startswith(expected), f"{name}/{target}: the text differs from that of rddlrepository 2.2"
print("copied:", ", ".join(FILES))
