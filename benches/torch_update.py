"""One SafeSAC-H update in PyTorch, as `prudence bench update` does it: the batch's draw, critics, policy, temperature, averages.

Eager, one thread, fused Adam and `foreach` averages. Nothing else is set: pin the process to one core with `taskset`.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

import peer
from peer import ACTION, MEMORY, OBSERVATION, ROWS

STATE = OBSERVATION + MEMORY
HALF_LN_2_PI = 0.5 * math.log(2 * math.pi)


def mlp(inputs, hidden, outputs):
    layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=peer.RATE, fused=True)


def descend(optimiser, loss):
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def values(critics, state, action):
    """The smaller of the two reward critics, and of the two safety critics: `[B]` each."""
    x = torch.cat([state, action], -1)
    q = [critic(x).squeeze(-1) for critic in critics]
    return torch.minimum(q[0], q[1]), torch.minimum(q[2], q[3])


class Agent:
    def __init__(self, hidden):
        self.policy = mlp(STATE, hidden, 2 * ACTION)
        self.average = mlp(STATE, hidden, 2 * ACTION).requires_grad_(False)
        self.critics = nn.ModuleList(mlp(STATE + ACTION, hidden, 1) for _ in range(4))
        self.targets = nn.ModuleList(mlp(STATE + ACTION, hidden, 1) for _ in range(4)).requires_grad_(False)
        self.average.load_state_dict(self.policy.state_dict())
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.policy_adam, self.critics_adam = adam(self.policy.parameters()), adam(self.critics.parameters())
        self.alpha_adam = adam([self.log_alpha])
        # Lists made once: every update runs over them.
        self.critic_parameters = list(self.critics.parameters())
        self.averages = [
            (list(self.average.parameters()), list(self.policy.parameters()), peer.AVERAGING),
            (list(self.targets.parameters()), self.critic_parameters, peer.POLYAK),
        ]

    def freeze_critics(self, frozen):
        for parameter in self.critic_parameters:
            parameter.requires_grad_(not frozen)

    def sample(self, state):
        """Actions of the squashed Gaussian and their log-probabilities."""
        mean, log_std = self.policy(state).chunk(2, -1)
        log_std = log_std.clamp(*peer.LOG_STD)
        noise = torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        log_det = 2 * (math.log(2) - u - F.softplus(-2 * u))
        return u.tanh(), (-0.5 * noise**2 - log_std - HALF_LN_2_PI - log_det).sum(-1)

    def update(self, buffer, batch):
        """One update, in the order of the paper's listing; returns `(critics' loss, value, entropy)`."""
        rows = torch.randint(0, ROWS - 1, (batch,))
        state, next_state = buffer["state"][rows], buffer["state"][rows + 1]
        action, reward, score = buffer["action"][rows], buffer["reward"][rows], buffer["score"][rows]
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            next_action, log_prob = self.sample(next_state)
            q_reward, q_safety = values(self.targets, next_state, next_action)
            discount = peer.DISCOUNT * buffer["not_terminal"][rows]
            y_reward = reward + discount * (q_reward - alpha * log_prob)
            y_safety = (score + discount * q_safety).clamp(peer.SCORE_FLOOR, 0.0)

        x = torch.cat([state, action], -1)
        targets = [y_reward, y_reward, y_safety, y_safety]
        loss = sum(F.mse_loss(critic(x).squeeze(-1), y) for critic, y in zip(self.critics, targets))
        descend(self.critics_adam, loss)

        self.freeze_critics(True)  # the policy's step needs the gradient by the action only
        new_action, log_prob = self.sample(state)
        q_reward, q_safety = values(self.critics, state, new_action)
        value = q_reward + peer.MULTIPLIER * q_safety
        descend(self.policy_adam, (alpha * log_prob - value).mean() / (1 + peer.MULTIPLIER))
        self.freeze_critics(False)

        log_prob = log_prob.detach()
        descend(self.alpha_adam, -self.log_alpha.exp() * (log_prob + peer.TARGET_ENTROPY).mean())
        with torch.no_grad():
            for slow, fast, rate in self.averages:
                torch._foreach_lerp_(slow, fast, rate)
        return loss.detach(), value.detach().mean(), -log_prob.mean()


def main():
    options = peer.update_options(argparse.ArgumentParser(description=__doc__))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    buffer = {
        "state": torch.randn(ROWS, STATE),
        "action": 2 * torch.rand(ROWS, ACTION) - 1,
        "reward": torch.randn(ROWS),
        "score": -torch.randn(ROWS).abs(),
        "not_terminal": torch.ones(ROWS),
    }
    agent, metrics = Agent(options.hidden), None

    def call():
        nonlocal metrics
        metrics = agent.update(buffer, options.batch)

    for _ in range(10):
        call()
    milliseconds = peer.milliseconds_per_call(call, lambda: None, options.seconds)
    peer.report(
        "update",
        {"torch": torch.__version__},
        [float(number) for number in metrics],
        hidden=options.hidden,
        batch=options.batch,
        milliseconds=milliseconds,
    )


if __name__ == "__main__":
    main()
