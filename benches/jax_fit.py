"""One step of fitting the recurrent safety model in JAX, as `prudence bench fit` does it, the batch's draw included.

The whole step is one jitted function that gives its buffers back (donation): the loss at every labelled prefix, clipping,
AdamW from Optax. No flags are set: pin the process to one core with `taskset`. With `--warm-steps` the speed is measured
after that many steps on the same data: a trained model's gradients and moments are small, and denormal numbers slow.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import peer

jax.config.update("jax_platforms", "cpu")
ENCODER, DECODER = [64, 32], [64, 64]
RATE, WEIGHT_DECAY, CLIP = 5e-3, 1e-4, 1.0
TINY = np.finfo(np.float32).tiny
UNROLL = 4  # steps of the GRU per turn of the loop: as fast as 1; 8 and 20 are slower

adamw = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(RATE, weight_decay=WEIGHT_DECAY))


def init(key, inputs, hidden, steps):
    """Weights and biases drawn as PyTorch draws them; the last bias lets whole segments start out safe."""

    def linear(width, units, bound):
        nonlocal key
        key, for_weight, for_bias = jax.random.split(key, 3)
        weight = jax.random.uniform(for_weight, (width, units), minval=-bound, maxval=bound)
        return weight, jax.random.uniform(for_bias, (units,), minval=-bound, maxval=bound)

    def mlp(*sizes):
        return [linear(width, units, width**-0.5) for width, units in zip(sizes, sizes[1:])]

    *layers, (weight, _) = mlp(inputs + hidden, *DECODER, 1)
    return {
        "encoder": mlp(inputs, *ENCODER),
        "gru_input": linear(ENCODER[-1], 3 * hidden, hidden**-0.5),
        "gru_memory": linear(hidden, 3 * hidden, hidden**-0.5),
        "decoder": [*layers, (weight, jnp.log(10.0 * (steps + 1)) * jnp.ones(1))],
    }


def affine(layer, x):
    weight, bias = layer
    return x @ weight + bias


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(affine(layer, x))
    return affine(layers[-1], x)


def memories(model, features):
    """`h_t`, the memory before each step: `[T, N, H]` from `[T, N, features]`."""

    def step(h, from_input):
        r_input, z_input, n_input = jnp.split(from_input, 3, -1)
        r_memory, z_memory, n_memory = jnp.split(affine(model["gru_memory"], h), 3, -1)
        z = jax.nn.sigmoid(z_input + z_memory)
        n = jnp.tanh(n_input + jax.nn.sigmoid(r_input + r_memory) * n_memory)
        return (1 - z) * n + z * h, h

    from_input = affine(model["gru_input"], features)
    width = model["gru_memory"][0].shape[0]
    return jax.lax.scan(step, jnp.zeros((features.shape[1], width)), from_input, unroll=UNROLL)[1]


def loss(model, x, labels):
    """Mean cross-entropy of the labelled prefixes: `-L` where safe, `-ln(1 - e^L)` where not, L = sum of log P <= 0."""
    logits = mlp(model["decoder"], jnp.concatenate([x, memories(model, mlp(model["encoder"], x))], -1))[..., 0]
    log_prob = jnp.minimum(jnp.cumsum(jax.nn.log_sigmoid(logits), 0), -TINY)  # [T, N]
    terms = jnp.where(labels > 0, -log_prob, -jnp.log(-jnp.expm1(log_prob)))
    return jnp.where(labels != 0, terms, 0.0).sum() / jnp.maximum((labels != 0).sum(), 1)


def step(training, data, batch):
    """One step on a batch drawn from the segments; returns the training's state and the loss."""
    model, moments, key = training
    key, for_rows = jax.random.split(key)
    rows = jax.random.randint(for_rows, (batch,), 0, data["labels"].shape[1])
    x = (data["inputs"][:, rows] - data["centre"]) * data["scale"]
    value, gradient = jax.value_and_grad(loss)(model, x, data["labels"][:, rows])
    change, moments = adamw.update(gradient, moments, model)
    return (optax.apply_updates(model, change), moments, key), value


def segments(batch, steps, inputs):
    """Random segments, twice as many as a batch holds, time leading; every other one breaks the rule half-way.

    Labels: 1 safe, -1 unsafe, 0 for the prefix that ends with the breaking step.
    """
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((steps, 2 * batch, inputs), dtype=np.float32)
    labels = np.ones((steps, 2 * batch), np.float32)
    labels[steps // 2, 1::2] = 0
    labels[steps // 2 + 1 :, 1::2] = -1
    labels[-1, 1::2] = -1  # the whole segment always counts
    centre, deviation = numbers.mean((0, 1)), numbers.std((0, 1))
    return jax.device_put({"inputs": numbers, "labels": labels, "centre": centre, "scale": 1 / deviation})


def denormals(tree):
    """Denormal numbers among the arrays of `tree`."""
    arrays = [np.abs(np.asarray(leaf)) for leaf in jax.tree.leaves(tree) if leaf.dtype == jnp.float32]
    return sum(int(((array > 0) & (array < TINY)).sum()) for array in arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=peer.positive, default=128, help="segments per step [default: 128]")
    parser.add_argument("--steps", type=peer.positive, default=20, help="steps of each segment [default: 20]")
    parser.add_argument("--observation", type=peer.positive, default=2, help="numbers of an observation [default: 2]")
    parser.add_argument("--action", type=peer.positive, default=2, help="numbers of an action [default: 2]")
    parser.add_argument("--hidden", type=peer.positive, default=16, help="width of the GRU's memory [default: 16]")
    parser.add_argument("--warm-steps", type=peer.positive, default=3, help="train so many steps first [default: 3]")
    parser.add_argument("--seconds", type=float, default=3.0, help="measure for about this long [default: 3]")
    options = parser.parse_args()

    inputs = options.observation + options.action
    data = segments(options.batch, options.steps, inputs)
    model = init(jax.random.key(0), inputs, options.hidden, options.steps)
    training, value = (model, adamw.init(model), jax.random.key(1)), None
    jitted = jax.jit(step, static_argnames="batch", donate_argnames="training")

    def call():
        nonlocal training, value
        training, value = jitted(training, data, batch=options.batch)

    for _ in range(options.warm_steps):
        call()
    wait = lambda: jax.block_until_ready(training)
    wait()
    milliseconds = peer.milliseconds_per_call(call, wait, options.seconds)
    peer.report(
        "fit",
        {"jax": jax.__version__, "jaxlib": jax.lib.__version__, "optax": optax.__version__},
        [float(value)],
        batch=options.batch,
        steps=options.steps,
        sizes=[options.observation, options.action],
        hidden=options.hidden,
        warm_steps=options.warm_steps,
        denormals=denormals(training[:2]),
        milliseconds=milliseconds,
    )


if __name__ == "__main__":
    main()
