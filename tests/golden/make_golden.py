"""Computes whole updates with PyTorch's autograd and optimisers in f64, for the golden tests to compare ours with.

    python tests/golden/make_golden.py        # writes learner.json, fit.json to its folder

This is written from the paper and reading-the-paper.md, independently of our code. Random numbers come from SplitMix64,
so the files do not depend on the version of torch. Assertions ensure that every important case occurs: both clips of the
Q_psi target, both critics of each pair, a log-std beyond each limit, a clipped gradient, and a prefix without a label.
"""

import json
import math
import struct
from pathlib import Path

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
HERE = Path(__file__).parent


class SplitMix64:
    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def uniform(self, low=0.0, high=1.0):
        return low + (high - low) * (self.bits() >> 11) / 2**53

    def normal(self):
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def uniforms(self, n, low, high):
        return [self.uniform(low, high) for _ in range(n)]

    def normals(self, n, scale=1.0):
        return [scale * self.normal() for _ in range(n)]


def f32(x):
    """The nearest f32, as episodes store numbers."""
    return struct.unpack("f", struct.pack("f", x))[0]


def tensor(numbers, *shape):
    return torch.tensor(numbers).reshape(*shape)


def flat(*modules):
    """Parameters in PyTorch's order, which is also ours."""
    return [x for module in modules for p in module.parameters() for x in p.detach().flatten().tolist()]


def set_flat(numbers, *modules):
    at = 0
    with torch.no_grad():
        for module in modules:
            for p in module.parameters():
                p.copy_(tensor(numbers[at : at + p.numel()], *p.shape))
                at += p.numel()
    assert at == len(numbers)


def dense(inputs, hidden, outputs):
    sizes = [inputs, *hidden, outputs]
    layers = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1])] + ([nn.ReLU()] if i + 2 < len(sizes) else [])
    return nn.Sequential(*layers)


def write(name, value):
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # repr writes up to 17 digits, as many as are needed
    (HERE / name).write_text(text + "\n")
    print(f"{name}: {len(text) / 1e3:.0f} kB")


# --- updates of the learner -------------------------------------------------------------------------------------------

OBSERVATION, ACTION, MEMORY, BATCH, HIDDEN = 3, 2, 4, 6, [6, 5]
AGENT = {
    "hidden": HIDDEN,
    "batch": BATCH,
    "discount": 0.9,
    "polyak": 0.1,
    "averaging": 0.2,
    "temperature": 0.3,
    "entropy": -0.8,
    "log_std_min": -1.0,
    "log_std_max": 0.3,
    "score_floor": -0.8,
}


def policy_sample(policy, state, noise, seen):
    mean, log_std = policy(state).chunk(2, dim=-1)
    seen["log_std_low"] += int((log_std < AGENT["log_std_min"]).sum())
    seen["log_std_high"] += int((log_std > AGENT["log_std_max"]).sum())
    seen["log_std_inside"] += int(((log_std > AGENT["log_std_min"]) & (log_std < AGENT["log_std_max"])).sum())
    std = log_std.clamp(AGENT["log_std_min"], AGENT["log_std_max"]).exp()
    u = mean + std * noise
    assert u.abs().max() < 6  # so that the plain ln(1 - tanh^2) below is accurate to 1e-11
    a = torch.tanh(u)
    log_prob = torch.distributions.Normal(mean, std).log_prob(u) - torch.log(1 - a**2)
    return a, log_prob.sum(-1)


def learner_case(name, seed, updates):
    random = SplitMix64(seed)
    safety = name != "sac"
    state_size = OBSERVATION + (MEMORY if name == "safesac-h" else 0)
    twins = 4 if safety else 2
    policy, averaged = (dense(state_size, HIDDEN, 2 * ACTION) for _ in range(2))
    critics, targets = ([dense(state_size + ACTION, HIDDEN, 1) for _ in range(twins)] for _ in range(2))
    log_temperature = torch.tensor([math.log(AGENT["temperature"])], requires_grad=True)
    for modules in [[policy], [averaged], critics, targets]:
        n = sum(p.numel() for m in modules for p in m.parameters())
        set_flat(random.uniforms(n, -0.8, 0.8), *modules)

    def snapshot():
        return {
            "policy": flat(policy),
            "averaged_policy": flat(averaged),
            "critics": flat(*critics),
            "target_critics": flat(*targets),
            "log_temperature": log_temperature.tolist(),
        }

    policy_adam = torch.optim.Adam(policy.parameters())
    critic_adam = torch.optim.Adam([p for c in critics for p in c.parameters()])
    temperature_adam = torch.optim.Adam([log_temperature])
    seen = dict.fromkeys(["log_std_low", "log_std_high", "log_std_inside", "at_floor", "at_zero", "between"], 0)
    seen |= dict.fromkeys([f"twin{i}" for i in range(twins)], 0) | {"ends": 0, "not_terminal": 0}

    def smaller(pair, i):
        seen[f"twin{i}"] += int((pair[0] < pair[1]).sum())
        seen[f"twin{i + 1}"] += int((pair[1] < pair[0]).sum())
        return torch.minimum(*pair)

    def follow(slow, fast, rate):
        with torch.no_grad():
            for s, f in zip(slow.parameters(), fast.parameters()):
                s.copy_((1 - rate) * s + rate * f)

    case = {"name": name, "state": state_size, "action": ACTION, "safety": safety, "agent": AGENT, "updates": []}
    case["initial"] = snapshot()
    for k in range(updates):
        raw = {
            "state": random.normals(BATCH * state_size),
            "action": random.uniforms(BATCH * ACTION, -1, 1),
            "reward": random.normals(BATCH),
            "score": random.uniforms(BATCH, -0.6, 0) if safety else [0.0] * BATCH,
            "next_state": random.normals(BATCH * state_size),
            "not_terminal": [0.0 if random.uniform() < 0.3 else 1.0 for _ in range(BATCH)],
            "noise": [random.normals(BATCH * ACTION), random.normals(BATCH * ACTION)],
        }
        multiplier = [0.0, 0.7, 3.0, 12.0, 0.2, 1.0, 40.0][k % 7] if safety else 0.0
        rate = 3e-3 * (1 - 0.1 * k)
        for adam in [policy_adam, critic_adam, temperature_adam]:
            adam.param_groups[0]["lr"] = rate
        state, next_state = (tensor(raw[key], BATCH, state_size) for key in ["state", "next_state"])
        action = tensor(raw["action"], BATCH, ACTION)
        reward, score, not_terminal = (tensor(raw[key], BATCH) for key in ["reward", "score", "not_terminal"])
        noise_next, noise_now = (tensor(noise, BATCH, ACTION) for noise in raw["noise"])
        seen["ends"] += int((not_terminal == 0).sum())
        seen["not_terminal"] += int((not_terminal == 1).sum())

        # Targets.
        with torch.no_grad():
            alpha = log_temperature.exp()
            a, log_prob = policy_sample(policy, next_state, noise_next, seen)
            q = [critic(torch.cat([next_state, a], -1)).squeeze(-1) for critic in targets]
            entropy = 0 if safety else -alpha * log_prob  # with a constraint, rewards alone
            y = [reward + AGENT["discount"] * not_terminal * (torch.minimum(q[0], q[1]) + entropy)]
            if safety:
                y_safety = score + AGENT["discount"] * not_terminal * torch.minimum(q[2], q[3])
                seen["at_floor"] += int((y_safety < AGENT["score_floor"]).sum())
                seen["at_zero"] += int((y_safety > 0).sum())
                seen["between"] += int(((y_safety > AGENT["score_floor"]) & (y_safety < 0)).sum())
                y.append(y_safety.clamp(AGENT["score_floor"], 0))

        # Critics.
        at = torch.cat([state, action], -1)
        losses = [((critic(at).squeeze(-1) - y[i // 2]) ** 2).mean() for i, critic in enumerate(critics)]
        critic_adam.zero_grad()
        sum(losses).backward()
        critic_adam.step()
        for slow, fast in zip(targets, critics):
            follow(slow, fast, AGENT["polyak"])

        # Policy.
        a, log_prob = policy_sample(policy, state, noise_now, seen)
        q = [critic(torch.cat([state, a], -1)).squeeze(-1) for critic in critics]
        q_reward = smaller(q[:2], 0)
        q_safety = smaller(q[2:], 2) if safety else torch.zeros(BATCH)
        objective = ((q_reward + multiplier * q_safety) / (1 + multiplier) - alpha * log_prob).mean()
        policy_adam.zero_grad()
        (-objective).backward()
        policy_adam.step()
        follow(averaged, policy, AGENT["averaging"])

        # Temperature.
        temperature_adam.zero_grad()
        target_entropy = AGENT["entropy"] * ACTION
        (-log_temperature.exp() * (log_prob.detach() + target_entropy)).mean().backward()
        temperature_adam.step()

        metrics = {
            "q_reward": q_reward.mean().item(),
            "q_safety": q_safety.mean().item(),
            "reward_critic_loss": sum(losses[:2]).item(),
            "safety_critic_loss": sum(losses[2:]).item() if safety else 0.0,
            "entropy": -log_prob.mean().item(),
        }
        case["updates"].append({"batch": raw, "multiplier": multiplier, "rate": rate, "after": snapshot(), "metrics": metrics})
    if not safety:
        for key in ["at_floor", "at_zero", "between"]:
            del seen[key]
    assert all(seen.values()), (name, seen)
    print(name, seen)
    return case


# --- fitting the safety model -----------------------------------------------------------------------------------------

FIT_BATCH = 7


def prefix_label(segment, length):
    """None without a label: if the breaking step of an unsafe span is unknown, only the whole span has one."""
    steps = segment["end"] - segment["start"]
    if segment["safe"]:
        return True
    if segment["at"] is not None:
        return segment["start"] + length <= segment["at"]
    return False if length == steps else None


class Safety(nn.Module):
    """log P(psi_t = 1 | s_t, h_t, a_t): the decoder reads the normalised (s, a) and the hidden state BEFORE the step.

    With an encoder the GRU reads its output, otherwise (s, a) itself."""

    def __init__(self, encoder, hidden, decoder, centre, scale):
        super().__init__()
        self.encoder = dense(OBSERVATION + ACTION, encoder[:-1], encoder[-1]) if encoder else nn.Identity()
        self.gru = nn.GRU(encoder[-1] if encoder else OBSERVATION + ACTION, hidden)
        self.decoder = dense(OBSERVATION + ACTION + hidden, decoder, 1)
        self.centre, self.scale = torch.tensor(centre), torch.tensor(scale)

    def forward(self, observations, actions):
        """Returns [T] from `[T, S]` and `[T, A]`, and h before each step and after the last one, [T + 1, H]."""
        x = (torch.cat([observations, actions], -1) - self.centre) * self.scale
        after, _ = self.gru(self.encoder(x))
        h = torch.cat([torch.zeros(1, after.shape[1]), after])
        logits = self.decoder(torch.cat([x, h[:-1]], -1)).squeeze(-1)
        return nn.functional.logsigmoid(logits), h


def fit_case(seed, encoder, prefix_every, steps):
    random = SplitMix64(seed)
    hidden, decoder_sizes = 4, [6, 5]
    inputs = OBSERVATION + ACTION
    centre, scale = random.uniforms(inputs, -0.3, 0.3), random.uniforms(inputs, 0.5, 2.0)
    model = Safety(encoder, hidden, decoder_sizes, centre, scale)
    n = sum(p.numel() for p in model.parameters())
    set_flat(random.uniforms(n, -0.6, 0.6), model)
    episodes = []
    for length in [7, 4, 1, 6, 9]:
        episodes.append({
            "observations": [f32(x) for x in random.normals((length + 1) * OBSERVATION)],
            "actions": [f32(x) for x in random.uniforms(length * ACTION, -1, 1)],
            "length": length,
        })
    segment = lambda episode, start, end, safe, at=None: {"episode": episode, "start": start, "end": end, "safe": safe, "at": at}
    segments = [
        segment(0, 0, 7, False, 3),  # prefixes with both labels, and one that is not used
        segment(0, 3, 7, True),
        segment(1, 0, 4, False),  # only the whole span has a label
        segment(2, 0, 1, True),  # a single step
        segment(3, 2, 5, False, 2),  # unsafe from the first step on
        segment(4, 0, 9, True),
        segment(4, 5, 9, False, 8),
        segment(3, 0, 6, False, 5),
        segment(1, 1, 3, True),
    ]
    settings = {"encoder": encoder, "hidden": hidden, "decoder": decoder_sizes, "weight_decay": 0.05, "clip": 1.5}
    settings |= {"batch": FIT_BATCH, "prefix_every": prefix_every}
    case = {"observation": OBSERVATION, "action": ACTION, "centre": centre, "scale": scale, "settings": settings}
    case["initial"] = flat(model)
    case |= {"episodes": episodes, "segments": segments, "steps": []}
    adam = torch.optim.AdamW(model.parameters(), weight_decay=settings["weight_decay"])
    seen = {"clipped": 0, "not clipped": 0, "no label": 0, "breaking": 0}
    for k in range(steps):
        size = [FIT_BATCH, 5, FIT_BATCH, 1, 6, FIT_BATCH, 3][k % 7]  # also smaller batches
        chosen = [random.bits() % len(segments) for _ in range(size)]
        if k == 0:
            chosen = list(range(FIT_BATCH))
        terms = []
        for i in chosen:
            s = segments[i]
            e = episodes[s["episode"]]
            span = slice(s["start"], s["end"])
            observations = tensor(e["observations"], -1, OBSERVATION)[span]
            actions = tensor(e["actions"], -1, ACTION)[span]
            log_prob, _ = model(observations, actions)
            sums = log_prob.cumsum(0)
            length = s["end"] - s["start"]
            for prefix in range(1, length + 1):
                if prefix % prefix_every and prefix != length:
                    continue
                # The model reads the state that breaks the rule with the next step, so the prefix that ends here is not used.
                if s["start"] + prefix - 1 == s["at"] and prefix != length:
                    seen["breaking"] += 1
                    continue
                safe = prefix_label(s, prefix)
                if safe is None:
                    seen["no label"] += 1
                else:
                    terms.append(-sums[prefix - 1] if safe else -torch.log(-torch.expm1(sums[prefix - 1])))
        loss = torch.stack(terms).mean()
        adam.zero_grad()
        loss.backward()
        # clip_grad_norm_ divides by norm + 1e-6; we divide by the norm, so that the clipped norm equals the limit.
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        seen["clipped" if norm > settings["clip"] else "not clipped"] += 1
        if norm > settings["clip"]:
            for p in model.parameters():
                p.grad *= settings["clip"] / norm
        rate = 1e-2 * 0.5 * (1 + math.cos(math.pi * k / steps))
        adam.param_groups[0]["lr"] = rate
        adam.step()
        case["steps"].append({"segments": chosen, "rate": rate, "loss": loss.item(), "norm": norm.item(), "parameters": flat(model)})
    assert all(seen.values()), seen
    print("fit", encoder, prefix_every, seen)
    with torch.no_grad():
        e = episodes[4]
        log_prob, h = model(tensor(e["observations"], -1, OBSERVATION)[:-1], tensor(e["actions"], -1, ACTION))
        case["scored"] = {"episode": 4, "log_prob": log_prob.tolist(), "hidden": h.flatten().tolist()}
    return case


if __name__ == "__main__":
    names = [("sac", 5), ("safesac-h", 2), ("safesac-noh", 5)]
    write("learner.json", [learner_case(name, seed, 6) for name, seed in names])
    write("fit.json", [fit_case(12, [], 1, 7), fit_case(13, [7, 3], 2, 7), fit_case(14, [4], 1, 7)])
