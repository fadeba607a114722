"""Compares random small domains like those of the repository: if pyRDDLGym accepts a text, ours must accept it and agree.

    random_texts.py --binary PATH [--count 300] [--seed 0] [--keep FOLDER]

The expressions are well typed, but brackets are omitted at random, which also tests precedence. There is no division by zero: in pyRDDLGym
0 * inf is 0 or NaN, depending on the other objects; in ours it is 0. A text that pyRDDLGym rejects or fails on is only counted. Texts that
show a difference are kept.
"""

import argparse
import pathlib
import random
import shutil
import sys
import tempfile

from run import check, write_uniforms

DOMAIN = """
domain texts {{
    types {{ node : object; colour : {{ @red, @green, @blue }}; }};
    pvariables {{
        P(node) : {{ non-fluent, real, default = 0.75 }};
        K(node) : {{ non-fluent, int, default = 3 }};
        A(node, node) : {{ non-fluent, bool, default = false }};
        M(node, colour) : {{ non-fluent, real, default = -1.5 }};
        x(node) : {{ state-fluent, real, default = 0.5 }};
        n(node) : {{ state-fluent, int, default = 2 }};
        on(node) : {{ state-fluent, bool, default = false }};
        hue(node) : {{ state-fluent, colour, default = @red }};
        total : {{ state-fluent, real, default = 1.0 }};
        push(node) : {{ action-fluent, real, default = 0.0 }};
        flip(node) : {{ action-fluent, bool, default = false }};
{declared}
    }};
    cpfs {{
{cpfs}
    }};
    reward = {reward};
}}
"""
INSTANCE = """
non-fluents nf {
    domain = texts;
    objects { node : { n1, n2, n3 }; };
    non-fluents { P(n1) = 0.1; P(n3) = -2.5; K(n2) = -4; K(n3) = 7; A(n1, n2) = true; A(n3, n3) = true; M(n1, @red) = 2.0; M(n2, @blue) = 0.0; };
}
instance i {
    domain = texts;
    non-fluents = nf;
    init-state { x(n1) = -1.25; x(n2) = 3.5; n(n1) = 0; n(n3) = -5; on(n2) = true; hue(n3) = @blue; };
    max-nondef-actions = pos-inf;
    horizon = 10;
    discount = 1.0;
}
"""


class Writer:
    """Writes expressions of a given kind; `scope` holds the variables that may be used and their types."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.fresh = 0

    def pick(self, options):
        return self.random.choice(options)

    def bracketed(self, text):
        """A text in brackets or, sometimes, without them, so that precedence decides."""
        return self.pick([f"({text})", f"[{text}]", f"({text})", text])

    def node(self, scope):
        return self.pick([name for name, kind in scope if kind == "node"])

    def colour(self, scope):
        return self.pick(["@red", "@green", "@blue", *(name for name, kind in scope if kind == "colour")])

    def over(self, scope, operators, kind, depth):
        """An aggregation over one or two new variables."""
        variables = []
        for _ in range(self.pick([1, 1, 2])):
            self.fresh += 1
            variables.append((f"?v{self.fresh}", self.pick(["node", "node", "colour"]) if scope or variables else "node"))
        listed = ", ".join(f"{name} : {of}" for name, of in variables)
        body = getattr(self, kind)([*scope, *variables], depth - 1)
        return f"{self.pick(operators)}_{{{listed}}} {self.bracketed(body)}"

    def real(self, scope, depth):
        if depth <= 0:
            node = self.node(scope)
            fluents = [f"x({node})", f"P({node})", f"n({node})", f"on({node})", f"push({node})", f"M({node}, {self.colour(scope)})"]
            return self.pick([*fluents, "total", "2", "0.5", "-3"])
        one = lambda: self.bracketed(self.real(scope, depth - 1))
        full = lambda: self.real(scope, depth - 1)
        condition = lambda: self.bool(scope, depth - 1)
        form = self.random.randrange(10)
        if form < 3:
            return f"{one()} {self.pick('+-*')} {one()}"
        if form == 3:
            return f"{one()} / {self.pick(['4', '-0.3', '(abs[{}] + 0.5)']).format(full())}"
        if form == 4:
            return self.pick(["-{}", "abs[{}]", "sgn[{}]", "tanh[{}]", "cos[{}]", "sqrt[abs[{}]]", "pow[abs[{}], 1.5]"]).format(one())
        if form == 5:
            return self.pick(["min[{}, {}]", "max[{}, {}]", "hypot[{}, {}]", "fmod[{}, 0.7]"]).format(full(), full())
        if form == 6:
            return f"if ({condition()}) then {one()} else {one()}"
        if form == 7:
            return self.over(scope, ["sum", "prod", "min", "max", "avg"], self.pick(["real", "real", "bool"]), depth)
        if form == 8:
            cases = self.pick(["case @red : {}, case @blue : {}, case @green : {}", "case @green : {}, default : {}"])
            return f"switch (hue({self.node(scope)})) {{ {cases.format(full(), full(), full())} }}"
        laws = [f"Normal({full()}, abs[{full()}])", f"Uniform(0.0, abs[{full()}])", f"Poisson(abs[tanh[{full()}]])", "Bernoulli(0.3)"]
        return self.pick([*laws, self.integer(scope, depth)])

    def integer(self, scope, depth):
        if depth <= 0:
            return self.pick([f"n({self.node(scope)})", f"K({self.node(scope)})", "3", "1", "10"])
        one = lambda: self.bracketed(self.integer(scope, depth - 1))
        full = lambda: self.integer(scope, depth - 1)
        rounded = f"{self.pick(['round', 'floor', 'ceil'])}[tanh[{self.real(scope, depth - 1)}] * 5]"
        chosen = f"if ({self.bool(scope, depth - 1)}) then {one()} else {one()}"
        divided = self.pick(["div[{}, 3]", "mod[{}, 4]", "mod[{}, -3]", "div[{}, -2]"]).format(full())
        return self.pick([f"{one()} {self.pick('+-*')} {one()}", divided, rounded, chosen, self.over(scope, ["sum", "min", "max"], "integer", depth)])

    def bool(self, scope, depth):
        if depth <= 0:
            node = self.node(scope)
            other = self.node(scope)
            return self.pick([f"on({node})", f"flip({node})", f"A({node}, {other})", f"hue({node}) == {self.colour(scope)}", f"{node} ~= {other}", "true"])
        one = lambda: self.bracketed(self.bool(scope, depth - 1))
        number = lambda: f"({self.real(scope, depth - 1)})"
        form = self.random.randrange(7)
        if form < 2:
            return f"{one()} {self.pick(['^', '|', '&', '=>', '<=>', '^', '|'])} {one()}"
        if form == 2:
            return f"~({self.bool(scope, depth - 1)})"
        if form < 5:
            return f"{number()} {self.pick(['<', '<=', '>', '>=', '==', '~='])} {number()}"
        if form == 5:
            return self.over(scope, ["forall", "exists"], "bool", depth)
        return f"if ({self.bool(scope, depth - 1)}) then {one()} else {one()}"

    def enum(self, scope, depth):
        if depth <= 0:
            return self.pick([f"hue({self.node(scope)})", self.colour(scope)])
        weights = [f"abs[{self.real(scope, depth - 1)}] + 0.1" for _ in range(3)]
        return self.pick(
            [
                f"if ({self.bool(scope, depth - 1)}) then {self.enum(scope, depth - 1)} else {self.enum(scope, depth - 1)}",
                f"UnnormDiscrete(colour, @green : {weights[0]}, @red : {weights[1]}, @blue : {weights[2]})",
                f"argmax_{{?q{depth} : colour}} [M({self.node(scope)}, ?q{depth}) * {self.bracketed(self.real(scope, depth - 1))}]",
                f"switch (hue({self.node(scope)})) {{ case @red : {self.enum(scope, depth - 1)}, default : {self.enum(scope, depth - 1)} }}",
            ]
        )

    def domain(self, cpfs):
        """A domain whose intermediate fluents and states have random expressions."""
        one, pair = [("?a", "node")], [("?a", "node"), ("?b", "node")]
        declared, written = [], []
        for index in range(cpfs):
            kind = self.pick(["real", "real", "integer", "bool", "enum"])
            scope = self.pick([one, pair])
            value = {"integer": "int", "enum": "colour"}.get(kind, kind)
            text = getattr(self, kind)(scope, self.pick([1, 2, 3]))
            declared.append(f"        f{index}({', '.join(of for _, of in scope)}) : {{ interm-fluent, {value} }};")
            written.append(f"        f{index}({', '.join(name for name, _ in scope)}) = {text};")
        written += [
            f"        x'(?a) = tanh[{self.real(one, 2)}] * 3 + push(?a);",
            f"        n'(?a) = mod[{self.integer(one, 2)}, 9] - 4;",
            f"        on'(?a) = {self.bool(one, 2)};",
            f"        hue'(?a) = {self.enum(one, 1)};",
            "        total' = sum_{?a : node} [x'(?a)];",
        ]
        return DOMAIN.format(declared="\n".join(declared), cpfs="\n".join(written), reward=self.over([], ["sum"], "real", 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "rddl-random-texts")
    arguments = parser.parse_args()
    outcomes = dict.fromkeys(("agree", "differ", "rejected by ours", "rejected by pyRDDLGym"), 0)
    arguments.keep.mkdir(parents=True, exist_ok=True)
    uniforms = arguments.keep / "uniforms.txt"
    write_uniforms(uniforms)
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        folder = arguments.keep / str(seed)
        folder.mkdir(exist_ok=True)
        domain, instance = folder / "domain.rddl", folder / "instance1.rddl"
        domain.write_text(Writer(seed).domain(cpfs=4))
        instance.write_text(INSTANCE)
        row = check(arguments.binary, domain, instance, uniforms, folder / "traces", steps=5, timeout=30.0)
        if row["steps"] < 5:
            outcome = "rejected by pyRDDLGym"
        elif not row["accepted"]:
            outcome = "rejected by ours"
        else:
            outcome = "agree" if row["agrees"] else "differ"
        outcomes[outcome] += 1
        if outcome in ("differ", "rejected by ours"):
            print(f"{folder}: {row['reason']}", flush=True)
        else:
            shutil.rmtree(folder)
    print(", ".join(f"{name}: {count}" for name, count in outcomes.items()))
    sys.exit(bool(outcomes["differ"] or outcomes["rejected by ours"]))


if __name__ == "__main__":
    main()
