"""The reference: steps a domain in pyRDDLGym, with every draw taken from one list of uniform numbers."""

import json
import time

import numpy as np
from scipy import special, stats

from pyRDDLGym.core.compiler.model import RDDLLiftedModel
from pyRDDLGym.core.constraints import RDDLConstraints
from pyRDDLGym.core.parser.expr import Expression
from pyRDDLGym.core.parser.parser import RDDLParser
from pyRDDLGym.core.parser.reader import RDDLReader
from pyRDDLGym.core.simulator import RDDLSimulator

FNV_OFFSET = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
NOT_RANDOM = {"KronDelta", "DiracDelta"}
PRIMITIVE = {"bool", "int", "real"}
ATTEMPTS = 32  # tries to find a legal action before taking none
REACH = 10.0  # how far an unbounded action may be from its default


def load(domain, instance):
    """Parses the two texts into pyRDDLGym's lifted model, as its environment does."""
    parser = RDDLParser(lexer=None, verbose=False)
    parser.build()
    return RDDLLiftedModel(parser.parse(RDDLReader(str(domain), str(instance)).rddltxt))


def random_nodes(part):
    """The distribution nodes of an expression, in the order of the text."""
    if isinstance(part, Expression):
        kind, name = part.etype
        if kind == "randomvar" and name not in NOT_RANDOM:
            yield part
        while isinstance(part, Expression):  # brackets wrap an expression in another
            part = part._expr
    if isinstance(part, (tuple, list)):
        for item in part:
            yield from random_nodes(item)


def fnv(text):
    """The 64-bit FNV-1a hash of an ASCII text, or of each row of an array of texts."""
    rows = np.atleast_1d(np.asarray(text, dtype=np.bytes_))
    characters = rows.view(np.uint8).reshape(len(rows), -1).astype(np.uint64)
    result = np.full(len(rows), FNV_OFFSET)
    for column in characters.T:  # short rows are padded with zeros
        result = np.where(column == 0, result, (result ^ column) * FNV_PRIME)
    return result


class PairedGenerator:
    """Replaces numpy's generator: each distribution is inverted at the uniform numbers of the node that is being sampled."""

    def __init__(self, simulator):
        self.u = simulator.node_uniforms

    def random(self, size):
        return np.reshape(self.u(), size)

    def uniform(self, low=0.0, high=1.0, size=None):
        return low + (high - low) * self.u()

    def normal(self, loc, scale):
        return loc + scale * special.ndtri(self.u())

    def exponential(self, scale):
        return -scale * np.log1p(-self.u())

    def weibull(self, a):
        return (-np.log1p(-self.u())) ** (1.0 / a)

    def pareto(self, a):
        return np.expm1(-np.log1p(-self.u()) / a)

    def gumbel(self, loc, scale):
        return loc - scale * np.log(-np.log(self.u()))

    def laplace(self, loc, scale):
        return stats.laplace.ppf(self.u(), loc=loc, scale=scale)

    def standard_cauchy(self, size):
        return np.tan(np.pi * (self.u() - 0.5))

    def gamma(self, shape, scale):
        return scale * special.gammaincinv(shape, self.u())

    def beta(self, a, b):
        return special.betaincinv(a, b, self.u())

    def standard_t(self, df):
        return special.stdtrit(df, self.u())

    def chisquare(self, df):
        return 2.0 * special.gammaincinv(0.5 * df, self.u())

    def poisson(self, lam):
        return np.int64(stats.poisson.ppf(self.u(), lam))

    def binomial(self, n, p):
        return np.int64(stats.binom.ppf(self.u(), n, p))

    def negative_binomial(self, n, p):
        return np.int64(stats.nbinom.ppf(self.u(), n, p))

    def geometric(self, p):
        return np.int64(stats.geom.ppf(self.u(), p))


class PairedSimulator(RDDLSimulator):
    """pyRDDLGym's simulator with random numbers that depend on step, cpf, site and index instead of on the order of calls."""

    def __init__(self, model, uniforms):
        super().__init__(model, rng=PairedGenerator(self))
        self.uniforms = uniforms
        self.step_index = 0
        self.draws = 0
        self.stack = []  # the distribution nodes being evaluated, innermost last
        expressions = {name.removesuffix("'"): expression for name, (_, expression) in model.cpfs.items()}
        expressions["reward"] = model.reward
        self.sites = {
            id(node): f"{name}|{site}"
            for name, expression in expressions.items()
            for site, node in enumerate(random_nodes(expression))
        }

    def node_uniforms(self):
        """The uniform numbers of the innermost node, in the shape of its scope: the cpf's parameters, then aggregation variables, outermost first."""
        node = self.stack[-1]
        shape = self.rddl.object_counts(kind for _, kind in self.traced.cached_objects_in_scope(node))
        count = int(np.prod(shape))
        prefix = f"{self.step_index}|{self.sites[id(node)]}|"
        keys = fnv([f"{prefix}{index}" for index in range(count)])
        self.draws += count
        result = self.uniforms[keys % np.uint64(len(self.uniforms))]
        if node.etype[1] == "Kumaraswamy":
            result = 1.0 - result  # pyRDDLGym inverts the survival function of this distribution
        return result.reshape(shape) if shape else float(result[0])

    def _sample_random(self, expr, subs):
        self.stack.append(expr)
        try:
            return super()._sample_random(expr, subs)
        finally:
            self.stack.pop()

    def step(self, actions):
        result = super().step(actions)
        self.step_index += 1
        return result

    def values(self, fluents):
        """The values of the given fluents by ground name; objects are given by name."""
        result = {}
        for fluent in fluents:
            array, kind = self.subs[fluent], self.rddl.variable_ranges[fluent]
            if kind not in PRIMITIVE:
                array = self.rddl.index_to_object_string_array(kind, array)
            result.update((name, value.item()) for name, value in self.rddl.ground_var_with_values(fluent, array))
        return result


class RandomActions:
    """Random actions within max-nondef-actions and the bounds that also satisfy the preconditions, or no action after `ATTEMPTS` tries."""

    def __init__(self, simulator, seed):
        self.simulator = simulator
        self.random = np.random.default_rng(seed)
        self.kinds = simulator.grounded_action_ranges
        self.defaults = simulator.grounded_noop_actions
        self.bounds = RDDLConstraints(simulator).bounds
        self.most = min(len(self.kinds), simulator.rddl.max_allowed_actions)

    def value(self, name, share):
        """A value of one action, from the given share of its range around the default."""
        kind, default = self.kinds[name], self.defaults[name]
        if kind == "bool":
            return not default
        if kind not in PRIMITIVE:
            return int(self.random.integers(len(self.simulator.rddl.type_to_objects[kind])))
        low, high = self.bounds[name]
        low = low if np.isfinite(low) else min(default, high) - REACH
        high = high if np.isfinite(high) else max(default, low) + REACH
        centre = np.clip(default, low, high)
        value = centre + share * (self.random.uniform(low, high) - centre)
        return int(round(value)) if kind == "int" else float(value)

    def __call__(self):
        """Ground names and values (objects by index); fewer and smaller values after failed tries."""
        simulator = self.simulator
        for attempt in range(ATTEMPTS if self.most else 0):
            share = 0.5 ** (attempt // 4)
            count = self.random.integers(1, 1 + int(np.ceil(self.most * share)))
            names = self.random.choice(list(self.kinds), size=count, replace=False)
            action = {str(name): self.value(name, share) for name in names}
            if simulator.check_action_preconditions(simulator.prepare_actions_for_sim(action), silent=True):
                return action
        return {}


def named(action, simulator):
    """The action in the format of our binary, with objects by name."""
    kinds, objects = simulator.grounded_action_ranges, simulator.rddl.type_to_objects
    return {name: value if kinds[name] in PRIMITIVE else objects[kinds[name]][value] for name, value in action.items()}


def episode(simulator, choose, steps, deadline, actions_file, trace_file, meta):
    """Runs an episode of at most `steps` steps and writes it line by line, so that a failure keeps the earlier steps."""
    model = simulator.rddl
    simulator.reset()
    simulator.step_index = 0
    print(json.dumps({"t": 0, "state": simulator.values(model.state_fluents)}), file=trace_file)
    for step in range(steps):
        if time.monotonic() > deadline:
            break
        action = choose()
        _, reward, terminated = simulator.step(simulator.prepare_actions_for_sim(action))
        record = {
            "t": step + 1,
            "action": named(action, simulator),
            "state": simulator.values(model.state_fluents),
            "interm": simulator.values([*model.interm_fluents, *model.derived_fluents]),
            "observation": simulator.values(model.observ_fluents),
            "reward": reward,
            "terminated": terminated,
        }
        print(json.dumps(record["action"]), file=actions_file)
        print(json.dumps(record), file=trace_file)
        meta["steps"] += 1
        meta["acted"] += bool(action)
        meta["draws"] = simulator.draws
        if terminated:
            break


def write(domain, instance, uniforms, folder, steps, seconds, seed=0):
    """Writes episodes until there are enough steps or the time is up.

    Episode k is in folder/actions-k.jsonl and folder/trace-k.jsonl, in the formats of `prudence rddl simulate`;
    folder/meta.json has the counts and the error that pyRDDLGym raised, if any.
    """
    start = time.monotonic()
    meta = {"episodes": 0, "steps": 0, "acted": 0, "draws": 0, "failure": None}
    try:
        simulator = PairedSimulator(load(domain, instance), uniforms)
        choose = RandomActions(simulator, seed)
        while meta["steps"] < steps and time.monotonic() < start + seconds:
            number = meta["episodes"]
            with open(folder / f"actions-{number}.jsonl", "w") as actions, open(folder / f"trace-{number}.jsonl", "w") as lines:
                meta["episodes"] += 1
                episode(simulator, choose, steps - meta["steps"], start + seconds, actions, lines, meta)
    except Exception as error:  # any error of pyRDDLGym becomes a row of the table
        meta["failure"] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    meta["seconds"] = round(time.monotonic() - start, 2)
    (folder / "meta.json").write_text(json.dumps(meta))
