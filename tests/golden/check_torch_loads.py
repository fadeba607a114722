"""Checks that PyTorch loads our files under its parameter names, strictly, and computes the same numbers. Run manually:

    mkdir -p /tmp/torch && PRUDENCE_TORCH=/tmp/torch cargo test --release -p prudence-agent --test golden -- --ignored
    python tests/golden/check_torch_loads.py /tmp/torch
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

folder = Path(sys.argv[1])
expected = json.loads((folder / "expected.json").read_text())
S, A, H = expected["observation"], expected["action"], expected["hidden"]


def part(tensors, prefix):
    return {name[len(prefix) :]: x for name, x in tensors.items() if name.startswith(prefix)}


def dense(*sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def close(what, ours, theirs):
    error, spread = (torch.tensor(ours) - theirs).abs().max().item(), theirs.std().item()
    print(f"{what}: largest difference {error:.1e}, deviation {spread:.1e}")
    assert error < 1e-5 * spread


with torch.no_grad():
    # The policy that `prudence train` writes.
    tensors = load_file(folder / "policy.safetensors")
    policy = dense(S + H + 1, 32, 16, 2 * A)
    policy.load_state_dict(part(tensors, "policy."), strict=True)
    assert len(tensors) == len(policy.state_dict())
    close("actions", expected["actions"], torch.tanh(policy(torch.tensor(expected["states"]))[:, :A]))

    # The checkpoint, which has every network under the same names.
    checkpoint = load_file(folder / "checkpoint.safetensors")
    for name in ["policy.", "averaged_policy."]:
        dense(S + H + 1, 32, 16, 2 * A).load_state_dict(part(checkpoint, name), strict=True)
    for name in [f"{bank}.{i}." for bank in ["critics", "target_critics"] for i in range(4)]:
        dense(S + H + 1 + A, 32, 16, 1).load_state_dict(part(checkpoint, name), strict=True)
    assert all(torch.equal(x, checkpoint["averaged_" + name]) for name, x in tensors.items())

    # The safety model: log P(psi_t = 1 | s_t, a_t, h_t), where h_t is the hidden state before the step.
    tensors = load_file(folder / "safety.safetensors")
    encoder, gru, decoder = dense(S + A, 64, 32), nn.GRU(32, H), dense(S + A + H, 64, 64, 1)
    encoder.load_state_dict(part(tensors, "encoder."), strict=True)
    gru.load_state_dict(part(tensors, "gru."), strict=True)
    decoder.load_state_dict(part(tensors, "decoder."), strict=True)
    episode = expected["episode"]
    observations = torch.tensor(episode["observations"]).reshape(-1, S)[:-1]
    actions = torch.tensor(episode["actions"]).reshape(-1, A)
    x = (torch.cat([observations, actions], -1) - tensors["centre"]) * tensors["scale"]
    h = torch.cat([torch.zeros(1, H), gru(encoder(x))[0][:-1]])
    score = nn.functional.logsigmoid(decoder(torch.cat([x, h], -1))).squeeze(-1)
    close("scores", expected["score"], score)
print("all files load")
