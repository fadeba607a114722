"""One SafeSAC-H update in JAX, as `prudence bench update` does it: the batch's draw, critics, policy, temperature, averages.

The whole update is one jitted function that gives its buffers back (donation); Adam is Optax's. No flags are set: pin the
process to one core with `taskset`.
"""

import argparse

import jax
import jax.numpy as jnp
import optax

import peer
from peer import ACTION, MEMORY, OBSERVATION, ROWS

jax.config.update("jax_platforms", "cpu")
STATE = OBSERVATION + MEMORY
HALF_LN_2_PI, LN_2 = 0.9189385332046727, 0.6931471805599453
adam = optax.adam(peer.RATE)


def init_mlp(key, inputs, hidden, outputs):
    """Weights and biases of three layers, drawn as PyTorch's `nn.Linear` draws them."""
    layers = []
    for width, units in [(inputs, hidden), (hidden, hidden), (hidden, outputs)]:
        key, for_weight, for_bias = jax.random.split(key, 3)
        bound = width**-0.5
        weight = jax.random.uniform(for_weight, (width, units), minval=-bound, maxval=bound)
        layers.append((weight, jax.random.uniform(for_bias, (units,), minval=-bound, maxval=bound)))
    return layers


def mlp(layers, x):
    *hidden, (weight, bias) = layers
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weight + bias


def values(critics, state, action):
    """`[4, B]`: the two reward critics, then the two safety critics."""
    x = jnp.concatenate([state, action], -1)
    return jax.vmap(mlp, in_axes=(0, None))(critics, x)[..., 0]


def sample(policy, state, key):
    """Actions of the squashed Gaussian and their log-probabilities."""
    mean, log_std = jnp.split(mlp(policy, state), 2, -1)
    log_std = jnp.clip(log_std, *peer.LOG_STD)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    log_det = 2 * (LN_2 - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), (-0.5 * noise**2 - log_std - HALF_LN_2_PI - log_det).sum(-1)


def init(key, hidden):
    for_policy, for_critics, draws = jax.random.split(key, 3)
    policy = init_mlp(for_policy, STATE, hidden, 2 * ACTION)
    critics = jax.vmap(lambda key: init_mlp(key, STATE + ACTION, hidden, 1))(jax.random.split(for_critics, 4))
    learned = {"policy": policy, "critics": critics, "log_alpha": jnp.zeros(())}
    return {
        **learned,
        "average": jax.tree.map(jnp.copy, policy),
        "targets": jax.tree.map(jnp.copy, critics),
        "adam": {name: adam.init(parameters) for name, parameters in learned.items()},
        "key": draws,
    }


def step(agent, name, gradient):
    """One step of Adam: the new parameters, and the agent's optimisers with the new moments."""
    change, moments = adam.update(gradient, agent["adam"][name])
    return optax.apply_updates(agent[name], change), {**agent["adam"], name: moments}


def follow(slow, fast, rate):
    return jax.tree.map(lambda slow, fast: slow + rate * (fast - slow), slow, fast)


def draw(buffer, key, batch):
    """A batch of transitions; the next state lies in the following row."""
    rows = jax.random.randint(key, (batch,), 0, ROWS - 1)
    action, reward, score, not_terminal = (buffer[name][rows] for name in ["action", "reward", "score", "not_terminal"])
    return buffer["state"][rows], action, reward, score, not_terminal, buffer["state"][rows + 1]


def update(agent, buffer, batch):
    """One update, in the order of the paper's listing; returns the agent and `(critics' loss, value, entropy)`."""
    key, for_rows, for_next, for_new = jax.random.split(agent["key"], 4)
    state, action, reward, score, not_terminal, next_state = draw(buffer, for_rows, batch)
    alpha = jnp.exp(agent["log_alpha"])

    next_action, log_prob = sample(agent["policy"], next_state, for_next)
    q = values(agent["targets"], next_state, next_action)
    y_reward = reward + peer.DISCOUNT * not_terminal * (q[:2].min(0) - alpha * log_prob)
    y_safety = jnp.clip(score + peer.DISCOUNT * not_terminal * q[2:].min(0), peer.SCORE_FLOOR, 0.0)
    y = jnp.stack([y_reward, y_reward, y_safety, y_safety])

    critics_loss = lambda critics: ((values(critics, state, action) - y) ** 2).mean(1).sum()
    loss, gradient = jax.value_and_grad(critics_loss)(agent["critics"])
    critics, optimisers = step(agent, "critics", gradient)
    agent = {**agent, "critics": critics, "adam": optimisers, "key": key}
    agent["targets"] = follow(agent["targets"], critics, peer.POLYAK)

    def policy_loss(policy):
        action, log_prob = sample(policy, state, for_new)
        q = values(critics, state, action)
        value = q[:2].min(0) + peer.MULTIPLIER * q[2:].min(0)
        return (alpha * log_prob - value).mean() / (1 + peer.MULTIPLIER), (log_prob, value.mean())

    gradient, (log_prob, value) = jax.grad(policy_loss, has_aux=True)(agent["policy"])
    agent["policy"], agent["adam"] = step(agent, "policy", gradient)
    agent["average"] = follow(agent["average"], agent["policy"], peer.AVERAGING)

    gradient = -alpha * (log_prob + peer.TARGET_ENTROPY).mean()
    agent["log_alpha"], agent["adam"] = step(agent, "log_alpha", gradient)
    return agent, (loss, value, -log_prob.mean())


def main():
    options = peer.update_options(argparse.ArgumentParser(description=__doc__))
    keys = jax.random.split(jax.random.key(1), 4)
    buffer = {
        "state": jax.random.normal(keys[0], (ROWS, STATE)),
        "action": jax.random.uniform(keys[1], (ROWS, ACTION), minval=-1.0, maxval=1.0),
        "reward": jax.random.normal(keys[2], (ROWS,)),
        "score": -jnp.abs(jax.random.normal(keys[3], (ROWS,))),
        "not_terminal": jnp.ones(ROWS),
    }
    agent, metrics = init(jax.random.key(0), options.hidden), None
    jitted = jax.jit(update, static_argnames="batch", donate_argnames="agent")

    def call():
        nonlocal agent, metrics
        agent, metrics = jitted(agent, buffer, batch=options.batch)

    for _ in range(10):
        call()
    wait = lambda: jax.block_until_ready(agent)
    wait()
    milliseconds = peer.milliseconds_per_call(call, wait, options.seconds)
    peer.report(
        "update",
        {"jax": jax.__version__, "jaxlib": jax.lib.__version__, "optax": optax.__version__},
        [float(number) for number in metrics],
        hidden=options.hidden,
        batch=options.batch,
        milliseconds=milliseconds,
    )


if __name__ == "__main__":
    main()
