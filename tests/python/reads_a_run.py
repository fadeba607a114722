"""Reads the files of a run with the usual Python packages: TensorBoard, Arrow (pandas, polars), safetensors.

usage: reads_a_run.py RUN
"""
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = Path(sys.argv[1])
seed = run / "round-1/safesac-h/seed-0"
records = [json.loads(line) for line in open(seed / "metrics.jsonl")]
assert records, "no records"

events = EventAccumulator(str(seed))
events.Reload()
for tag, key in [("test/return", "return_mean"), ("test/safe_share", "safe_share"), ("multiplier/value", "multiplier")]:
    scalars = events.Scalars(tag)
    assert [s.step for s in scalars] == [r["step"] for r in records], tag
    assert all(abs(s.value - r[key]) <= 1e-5 * max(1, abs(r[key])) for s, r in zip(scalars, records)), tag

store = run / "round-0/data/sac-seed-0"
index = [json.loads(line) for line in open(store / "index.jsonl")]
lengths = [n for line in index for n in line["steps"]]
rows = sum(pq.read_table(store / line["shard"]).num_rows for line in index)
assert rows == sum(n + 1 for n in lengths), (rows, sum(lengths))
table = pq.read_table(store / index[0]["shard"])
assert {"episode", "t", "observation", "action", "reward", "signal.in_danger"} <= set(table.column_names), table.column_names
labels = [json.loads(line) for line in open(store / "labels.jsonl")]
assert {l["episode"] for l in labels} == set(range(len(lengths))), "an episode has no label"

policy = load_file(seed / "policy.safetensors")
model = load_file(run / "round-1/safety/model.safetensors")
assert policy["policy.0.weight"].shape[1] == 2 + model["0.gru.weight_hh_l0"].shape[1] + 1, "the policy reads s, h and the running sum"
assert model["0.decoder.4.bias"].shape == (1,)
for name, tensor in model.items():
    assert (policy[f"safety.{name}"] == tensor).all(), f"{name} in the policy's file differs from the round's model"

evaluation = json.load(open(run / "evaluation.json"))
assert {r["algo"] for r in evaluation["results"]} == {"sac", "safesac-h"}
for r in evaluation["results"]:
    assert r["episodes"] == 10 and 0 <= r["interval"][0] <= r["safe_share"] <= r["interval"][1] <= 1
print("TensorBoard, Arrow and safetensors read the run")
