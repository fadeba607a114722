//! Parses expressions by precedence climbing.
//!
//! Operators, from lowest to highest precedence: `<=>`, `=>`, `|`, `^` and `&`, comparisons, `+ -`, `* /`, then the
//! prefixes `~ - +`. All are left-associative, including comparisons. An aggregation and an `if` extend as far to the
//! right as possible: `sum_{?x : t} a + b` sums `a + b`, and brackets around the first operand do not end it.

use crate::ast::*;
use crate::lexer::Token;
use crate::parser::{Parsed, Parser};
use crate::source::{Fault, Span, suggest};

/// Limits that keep a malicious text from exhausting the stack: the nesting of expressions, and the height of a tree
/// (which a long chain of operators also increases).
const MAX_DEPTH: u32 = 250;
const MAX_HEIGHT: u32 = 1000;
/// Limits that keep it from exhausting memory.
const MAX_NODES: usize = 1_000_000;
const MAX_BINDINGS: usize = 32;

/// The operators from lowest to highest precedence.
const LEVELS: [&[(&str, Binary)]; 7] = [
    &[("<=>", Binary::Equivalent)],
    &[("=>", Binary::Implies)],
    &[("|", Binary::Or)],
    &[("^", Binary::And), ("&", Binary::And)],
    &[
        ("==", Binary::Equal),
        ("~=", Binary::NotEqual),
        ("<", Binary::Less),
        ("<=", Binary::LessOrEqual),
        (">", Binary::Greater),
        (">=", Binary::GreaterOrEqual),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide)],
];

const AGGREGATES: [(&str, Aggregate); 9] = [
    ("sum", Aggregate::Sum),
    ("prod", Aggregate::Prod),
    ("avg", Aggregate::Avg),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("forall", Aggregate::Forall),
    ("exists", Aggregate::Exists),
    ("argmin", Aggregate::Argmin),
    ("argmax", Aggregate::Argmax),
];

const UNSUPPORTED: [&str; 8] =
    ["MultivariateNormal", "MultivariateStudent", "Dirichlet", "Multinomial", "det", "inverse", "pinverse", "cholesky"];

impl Parser<'_> {
    pub fn expr(&mut self) -> Parsed<Expr> {
        if self.depth == MAX_DEPTH {
            let message = format!("expressions are nested more than {MAX_DEPTH} levels deep here");
            return Err(Fault::at(self.span, message));
        }
        self.depth += 1;
        let expr = self.level(0);
        self.depth -= 1;
        expr
    }

    /// An operand, then operators of this level or a higher one.
    fn level(&mut self, level: usize) -> Parsed<Expr> {
        let mut left = self.prefixed()?;
        while let Token::Symbol(symbol) = self.token {
            let find = |(at, ops): (usize, &&[(&str, Binary)])| {
                ops.iter().find(|(name, _)| *name == symbol).map(|(_, op)| (at, *op))
            };
            let Some((at, op)) = LEVELS.iter().enumerate().skip(level).find_map(find) else { break };
            self.advance()?;
            let right = self.level(at + 1)?;
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Binary(op, Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    fn prefixed(&mut self) -> Parsed<Expr> {
        let start = self.span;
        let op = match self.token {
            Token::Symbol("-") => Unary::Minus,
            Token::Symbol("+") => Unary::Plus,
            Token::Symbol("~") => Unary::Not,
            _ => return self.primary(),
        };
        if self.depth == MAX_DEPTH {
            return Err(Fault::at(self.span, format!("more than {MAX_DEPTH} operators in a row")));
        }
        self.advance()?;
        self.depth += 1;
        let operand = self.prefixed();
        self.depth -= 1;
        let operand = operand?;
        let span = start.to(operand.span);
        self.node(ExprKind::Unary(op, Box::new(operand)), span)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.span;
        let kind = match self.token {
            Token::Integer(value) => {
                self.advance()?;
                ExprKind::Integer(value)
            }
            Token::Real(value) => {
                self.advance()?;
                ExprKind::Real(value)
            }
            Token::Variable => ExprKind::Variable(self.variable()?.text),
            Token::Literal => ExprKind::Literal(self.object("a value")?.text),
            Token::Symbol(open @ ("(" | "[")) => {
                self.advance()?;
                let mut inner = self.expr()?;
                self.close(if open == "(" { ")" } else { "]" })?;
                inner.span = self.since(start);
                return Ok(inner);
            }
            Token::Symbol("$") => return Err(Fault::at(start, "external functions (`$name[...]`) are not supported")),
            Token::Name { primed } => return self.named(primed),
            _ => return self.unexpected("an expression"),
        };
        let span = self.since(start);
        self.node(kind, span)
    }

    /// An expression that begins with a name.
    fn named(&mut self, primed: bool) -> Parsed<Expr> {
        let start = self.span;
        let word = self.word().trim_end_matches('\'');
        if UNSUPPORTED.contains(&word) {
            let what = if word.starts_with(|c: char| c.is_lowercase()) { "matrix algebra" } else { "random vectors" };
            return Err(Fault::at(start, format!("`{word}` is not supported: this engine has no {what}")));
        }
        let name = Name { text: word.to_owned(), span: start };
        self.advance()?;
        let kind = match (word, primed) {
            ("true", false) => ExprKind::Bool(true),
            ("false", false) => ExprKind::Bool(false),
            ("if", false) => self.conditional()?,
            ("switch", false) => self.switch()?,
            ("then" | "else" | "case" | "default" | "otherwise", false) => {
                return Err(Fault::at(start, format!("expected an expression, found `{word}`")));
            }
            ("Discrete" | "UnnormDiscrete", false) if self.is("(") => self.discrete(word == "Discrete")?,
            (_, false) if self.is("_") => self.aggregate(name)?,
            (_, false) if self.is("[") => {
                self.advance()?;
                let arguments = self.list(Self::expr)?;
                self.close("]")?;
                ExprKind::Function { name, arguments }
            }
            _ if self.is("(") => {
                self.advance()?;
                let arguments = if self.is(")") { Vec::new() } else { self.list(Self::expr)? };
                self.close(")")?;
                if !primed && crate::distributions::is_distribution(&name.text) {
                    ExprKind::Distribution { name, arguments }
                } else {
                    ExprKind::Fluent { name, primed, arguments }
                }
            }
            _ => ExprKind::Fluent { name, primed, arguments: Vec::new() },
        };
        let span = self.since(start);
        self.node(kind, span)
    }

    /// Parses a chain of `else if` in a loop, so that it may be long.
    fn conditional(&mut self) -> Parsed<ExprKind> {
        let mut branches = Vec::new();
        let last = loop {
            let start = self.span;
            self.expect("(")?;
            let condition = self.expr()?;
            self.close(")")?;
            self.expect_word("then")?;
            let then = self.expr()?;
            if !self.is_word("else") {
                return self.unexpected("an operator or `else`");
            }
            self.advance()?;
            branches.push((start, condition, then));
            if !self.take_word("if")? {
                break self.expr()?;
            }
        };
        let mut kind = None;
        let mut otherwise = last;
        for (start, condition, then) in branches.into_iter().rev() {
            if let Some(kind) = kind.take() {
                otherwise = kind;
            }
            let span = start.to(otherwise.span);
            kind = Some(self.node(ExprKind::If(Box::new([condition, then, otherwise])), span)?);
            otherwise = Expr { kind: ExprKind::Bool(false), span, height: 1 };
        }
        match kind {
            Some(expr) => Ok(expr.kind),
            None => Ok(otherwise.kind),
        }
    }

    fn switch(&mut self) -> Parsed<ExprKind> {
        self.expect("(")?;
        let subject = self.expr()?;
        self.close(")")?;
        self.expect("{")?;
        let cases = self.list(|p| {
            let label = if p.take_word("default")? {
                None
            } else {
                p.expect_word("case")?;
                Some(p.object("a value such as `@red`")?)
            };
            p.expect(":")?;
            Ok((label, p.expr()?))
        })?;
        self.close("}")?;
        Ok(ExprKind::Switch(Box::new(subject), cases))
    }

    fn discrete(&mut self, normalised: bool) -> Parsed<ExprKind> {
        self.expect("(")?;
        let of = self.name("the type of an enumeration")?;
        self.expect(",")?;
        let cases = self.list(|p| {
            let label = p.object("a value such as `@red`")?;
            p.expect(":")?;
            if p.is_word("otherwise") {
                return Err(Fault::at(p.span, "`otherwise` is not supported; give the probability of this value"));
            }
            Ok((label, p.expr()?))
        })?;
        self.close(")")?;
        Ok(ExprKind::Discrete { normalised, of, cases })
    }

    fn aggregate(&mut self, name: Name) -> Parsed<ExprKind> {
        self.expect("_")?;
        self.expect("{")?;
        let mut bindings = self.list(|p| {
            let variable = p.variable()?;
            p.expect(":")?;
            Ok(Binding { variable, of: p.name("a type")? })
        })?;
        self.close("}")?;
        if bindings.len() > MAX_BINDINGS {
            return Err(Fault::at(name.span, format!("more than {MAX_BINDINGS} variables in one aggregation")));
        }
        let body = Box::new(self.expr()?);
        if let Some((_, aggregate)) = AGGREGATES.iter().find(|(known, _)| *known == name.text) {
            return Ok(ExprKind::Aggregate(*aggregate, bindings, body));
        }
        if name.text != "Discrete" && name.text != "UnnormDiscrete" {
            let known = AGGREGATES.iter().map(|(known, _)| *known).chain(["Discrete", "UnnormDiscrete"]);
            let message = format!("no aggregation is called `{}_`{}", name.text, suggest(&name.text, known));
            return Err(Fault::at(name.span, message));
        }
        match (bindings.pop(), bindings.is_empty()) {
            (Some(binding), true) => Ok(ExprKind::DiscreteOver { normalised: name.text == "Discrete", binding, body }),
            _ => Err(Fault::at(name.span, format!("`{}_` takes one variable", name.text))),
        }
    }

    fn close(&mut self, symbol: &str) -> Parsed<()> {
        if self.is(symbol) { self.advance() } else { self.unexpected(&format!("an operator or `{symbol}`")) }
    }

    fn node(&mut self, kind: ExprKind, span: Span) -> Parsed<Expr> {
        let tallest = |exprs: &[Expr]| exprs.iter().map(|e| e.height).max().unwrap_or(0);
        let below = match &kind {
            ExprKind::Bool(_) | ExprKind::Integer(_) | ExprKind::Real(_) => 0,
            ExprKind::Variable(_) | ExprKind::Literal(_) => 0,
            ExprKind::Fluent { arguments, .. }
            | ExprKind::Function { arguments, .. }
            | ExprKind::Distribution { arguments, .. } => tallest(arguments),
            ExprKind::Unary(_, a) => a.height,
            ExprKind::Binary(_, a, b) => a.height.max(b.height),
            ExprKind::Aggregate(_, _, body) | ExprKind::DiscreteOver { body, .. } => body.height,
            ExprKind::If(parts) => tallest(&parts[..]),
            ExprKind::Switch(subject, cases) => {
                cases.iter().map(|(_, e)| e.height).max().unwrap_or(0).max(subject.height)
            }
            ExprKind::Discrete { cases, .. } => cases.iter().map(|(_, e)| e.height).max().unwrap_or(0),
        };
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Fault::at(span, format!("more than {MAX_NODES} operands and operators in this text")));
        }
        if below >= MAX_HEIGHT {
            let message =
                format!("this expression is more than {MAX_HEIGHT} levels high; split it with interm-fluents");
            return Err(Fault::at(span, message));
        }
        Ok(Expr { kind, span, height: below + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An expression with all its implied parentheses, without places.
    fn shape(expr: &Expr) -> String {
        let all = |exprs: &[Expr]| exprs.iter().map(shape).collect::<Vec<_>>().join(" ");
        match &expr.kind {
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Integer(value) | ExprKind::Real(value) => value.to_string(),
            ExprKind::Variable(name) => format!("?{name}"),
            ExprKind::Literal(name) => format!("@{name}"),
            ExprKind::Fluent { name, primed, arguments } => {
                format!("{}{}{}", name.text, if *primed { "'" } else { "" }, all(arguments))
            }
            ExprKind::Function { name, arguments } | ExprKind::Distribution { name, arguments } => {
                format!("({} {})", name.text, all(arguments))
            }
            ExprKind::Unary(op, a) => format!("({op:?} {})", shape(a)),
            ExprKind::Binary(op, a, b) => format!("({op:?} {} {})", shape(a), shape(b)),
            ExprKind::Aggregate(op, _, body) => format!("({op:?} {})", shape(body)),
            ExprKind::DiscreteOver { body, .. } => format!("(DiscreteOver {})", shape(body)),
            ExprKind::If(parts) => format!("(If {})", all(&parts[..])),
            ExprKind::Switch(subject, cases) => {
                let cases: Vec<_> = cases.iter().map(|(_, case)| shape(case)).collect();
                format!("(Switch {} {})", shape(subject), cases.join(" "))
            }
            ExprKind::Discrete { cases, .. } => {
                let cases: Vec<_> = cases.iter().map(|(_, case)| shape(case)).collect();
                format!("(Discrete {})", cases.join(" "))
            }
        }
    }

    fn parse(text: &str) -> String {
        let mut parser = Parser::new(text, 0).expect("tokens");
        let expr = parser.expr().unwrap_or_else(|fault| panic!("{text}: {}", fault.message));
        assert_eq!(parser.token, Token::End, "{text}");
        shape(&expr)
    }

    #[test]
    fn operators_have_the_precedence_of_pyrddlgym() {
        for (plain, grouped) in [
            ("a + b * c", "a + (b * c)"),
            ("a - b - c", "(a - b) - c"),
            ("a / b * c", "(a / b) * c"),
            ("-a * b", "(-a) * b"),
            ("- - a - -b", "(-(-a)) - (-b)"),
            ("~a ^ b", "(~a) ^ b"),
            ("~a == b", "(~a) == b"),
            ("a ^ b | c & d", "(a ^ b) | (c & d)"),
            ("a | b => c", "(a | b) => c"),
            ("a => b => c", "(a => b) => c"),
            ("a => b <=> c | d", "(a => b) <=> (c | d)"),
            ("a < b ^ c >= d", "(a < b) ^ (c >= d)"),
            ("a < b < c", "(a < b) < c"),
            ("a + b == c * d", "(a + b) == (c * d)"),
            ("a ~= b | c", "(a ~= b) | c"),
            ("sum_{?x : t} [a] + b", "sum_{?x : t} ([a] + b)"),
            ("a + sum_{?x : t} b + c", "a + (sum_{?x : t} (b + c))"),
            ("forall_{?x : t} a => b", "forall_{?x : t} (a => b)"),
            ("-sum_{?x : t} [a] * b", "-(sum_{?x : t} ([a] * b))"),
            ("if (a) then b else c + d", "if (a) then b else (c + d)"),
            ("x + if (a) then b else c ^ d", "x + (if (a) then b else (c ^ d))"),
            ("if (a) then if (b) then c else d else e", "if (a) then (if (b) then c else d) else e"),
            ("if (a) then b else if (c) then d else e | f", "if (a) then b else (if (c) then d else (e | f))"),
            ("Discrete_{?x : t} [p(?x)]", "Discrete_{?x : t} (p(?x))"),
            ("a-b - c_d", "(a-b) - (c_d)"),
            ("x'(?a) + x(?a)", "(x'(?a)) + (x(?a))"),
        ] {
            assert_eq!(parse(plain), parse(grouped), "{plain}");
        }
        assert_eq!(parse("a-b - c'"), "(Subtract a-b c')");
        assert_eq!(parse("sum_{?x : t} a - .5"), "(Sum (Subtract a 0.5))");
        assert_eq!(parse("a<=>b=>c"), "(Equivalent a (Implies b c))");
    }
}
