//! Parses a rule into a program by precedence climbing. Names and kinds (number or condition) are resolved while
//! parsing, so that every error knows its place in the text.

use std::ops::Range;

use winnow::Parser as _;
use winnow::ascii::{digit0, digit1, multispace0};
use winnow::combinator::{alt, opt, peek};
use winnow::error::ParserError;
use winnow::stream::{LocatingSlice, Location as _, Stateful, Stream as _};
use winnow::token::{any, one_of, take_while};

use prudence_core::nearest;

use super::RuleError;
use super::program::{Aggregate, Arithmetic, Comparison, Node};

/// Limits that keep the stack, memory and time of a malicious rule small.
const MAX_TEXT: usize = 4096;
const MAX_DEPTH: usize = 64;
const MAX_WINDOWS: usize = 1_000_000; // steps, the total of all windows

const FUNCTIONS: [&str; 7] = ["abs", "count", "fraction", "max", "mean", "min", "run"];

/// Parses a rule over the named signals.
pub(super) fn parse(text: &str, signals: &[&str]) -> Result<Vec<Node>, RuleError> {
    let fail = |Fault { span, message }| RuleError { message, span, text: text.to_owned() };
    if text.len() > MAX_TEXT {
        let message = format!("the rule has {} bytes; at most {MAX_TEXT} are accepted", text.len());
        return Err(RuleError { message, span: 0..0, text: String::new() });
    }
    let state = State { signals, nodes: Vec::new(), aggregates: 0, windows: 0, depth: 0, inside: None };
    let mut input = Input { input: LocatingSlice::new(text), state };
    whole(&mut input).map_err(fail)?;
    Ok(input.state.nodes)
}

type Input<'a> = Stateful<LocatingSlice<&'a str>, State<'a>>;
type Parsed<T> = Result<T, Fault>;

#[derive(Debug)]
struct State<'a> {
    signals: &'a [&'a str],
    nodes: Vec<Node>,
    aggregates: usize,
    windows: usize,
    depth: usize,
    inside: Option<&'a str>, // the name of the enclosing aggregate
}

/// What is wrong, and where. A missing token has an empty message: only its caller knows what would be accepted.
#[derive(Debug)]
struct Fault {
    span: Range<usize>,
    message: String,
}

impl<'a> ParserError<Input<'a>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'a>) -> Self {
        Fault { span: input.current_token_start()..input.current_token_start(), message: String::new() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

fn fault<T>(span: Range<usize>, message: impl Into<String>) -> Parsed<T> {
    Err(Fault { span, message: message.into() })
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Condition,
}

/// A parsed subexpression: its node, its kind and its place in the text.
struct Operand {
    node: usize,
    kind: Kind,
    span: Range<usize>,
}

#[derive(Clone, Copy)]
enum Infix {
    Or,
    And,
    Compare(Comparison),
    Arithmetic(Arithmetic),
}

const NOT: u8 = 2;
const COMPARE: u8 = 3;
const UNARY: u8 = 6;

impl Infix {
    /// The precedence; a higher one binds more tightly.
    fn power(self) -> u8 {
        match self {
            Infix::Or => 0,
            Infix::And => 1,
            Infix::Compare(_) => COMPARE,
            Infix::Arithmetic(Arithmetic::Add | Arithmetic::Subtract) => 4,
            Infix::Arithmetic(_) => 5,
        }
    }
}

fn whole(input: &mut Input<'_>) -> Parsed<()> {
    expression(input, 0)?;
    if input.is_empty() { Ok(()) } else { unexpected(input, "an operator or the end of the rule") }
}

/// An expression whose operators all have at least the precedence `floor`.
fn expression(input: &mut Input<'_>, floor: u8) -> Parsed<Operand> {
    let mut left = operand(input)?;
    loop {
        let before = input.checkpoint();
        let at = input.current_token_start();
        let Some(infix) = opt(infix).parse_next(input)?.filter(|infix| infix.power() >= floor) else {
            input.reset(&before);
            return Ok(left);
        };
        if infix.power() == COMPARE && left.kind == Kind::Condition {
            let span = at..input.previous_token_end();
            return fault(span, "comparisons take numbers and do not chain: write `0 < x and x < 1` for `0 < x < 1`");
        }
        blank(input)?;
        let right = expression(input, infix.power() + 1)?;
        let (a, b) = (left.node, right.node);
        let (node, kind) = match infix {
            Infix::Or => (Node::Or(a, b), Kind::Condition),
            Infix::And => (Node::And(a, b), Kind::Condition),
            Infix::Compare(comparison) => {
                number(&right)?;
                (Node::Compare(comparison, a, b), Kind::Condition)
            }
            Infix::Arithmetic(arithmetic) => {
                number(&left)?;
                number(&right)?;
                (Node::Arithmetic(arithmetic, a, b), Kind::Number)
            }
        };
        left = push(input, node, kind, left.span.start..right.span.end);
    }
}

/// A number, a signal, a call, something in parentheses, or one of these with `-` or `not` before it.
fn operand(input: &mut Input<'_>) -> Parsed<Operand> {
    blank(input)?;
    let start = input.current_token_start();
    if input.state.depth == MAX_DEPTH {
        return fault(start..start, format!("nested deeper than {MAX_DEPTH} levels"));
    }
    input.state.depth += 1;
    let operand = match peek(opt(any)).parse_next(input)? {
        Some('(') => {
            any.void().parse_next(input)?;
            let inner = expression(input, 0)?;
            expect(input, ')')?;
            Operand { span: start..input.previous_token_end(), ..inner }
        }
        Some('-') => {
            any.void().parse_next(input)?;
            let inner = expression(input, UNARY)?;
            number(&inner)?;
            push(input, Node::Negate(inner.node), Kind::Number, start..inner.span.end)
        }
        Some(c) if c.is_ascii_digit() || c == '.' => {
            let (value, span) = literal(input)?;
            push(input, Node::Number(value), Kind::Number, span)
        }
        Some(c) if is_letter(c) => match word(input)? {
            "not" => {
                let inner = expression(input, NOT)?;
                push(input, Node::Not(inner.node), Kind::Condition, start..inner.span.end)
            }
            "and" | "or" => {
                return fault(start..input.previous_token_end(), "expected a number, a signal or `(` before it");
            }
            name => named(input, name, start..start + name.len())?,
        },
        _ => return unexpected(input, "a number, a signal, a function, `not`, `-` or `(`"),
    };
    input.state.depth -= 1;
    blank(input)?;
    Ok(operand)
}

/// A signal or a call, after its name.
fn named<'a>(input: &mut Input<'a>, name: &'a str, span: Range<usize>) -> Parsed<Operand> {
    let call = opt((multispace0, '(')).parse_next(input)?.is_some();
    if !call {
        return match input.state.signals.iter().position(|signal| *signal == name) {
            Some(signal) => Ok(push(input, Node::Signal(signal), Kind::Number, span)),
            None => fault(span, unknown("signal", name, input.state.signals)),
        };
    }
    let (node, kind) = match name {
        "abs" => {
            let a = expression(input, 0)?;
            number(&a)?;
            (Node::Abs(a.node), Kind::Number)
        }
        "min" | "max" => {
            let a = expression(input, 0)?;
            expect(input, ',')?;
            let b = expression(input, 0)?;
            number(&a)?;
            number(&b)?;
            let which = if name == "min" { Arithmetic::Min } else { Arithmetic::Max };
            (Node::Arithmetic(which, a.node, b.node), Kind::Number)
        }
        "mean" | "fraction" | "count" | "run" => (aggregate(input, name, span.clone())?, Kind::Number),
        _ => return fault(span, unknown("function", name, &FUNCTIONS)),
    };
    expect(input, ')')?;
    Ok(push(input, node, kind, span.start..input.previous_token_end()))
}

/// The inside of an aggregate's parentheses.
fn aggregate<'a>(input: &mut Input<'a>, name: &'a str, span: Range<usize>) -> Parsed<Node> {
    if let Some(outer) = input.state.inside {
        return fault(span, format!("`{name}` inside `{outer}`: aggregates cannot be nested"));
    }
    input.state.inside = Some(name);
    let over = expression(input, 0)?;
    input.state.inside = None;
    if name == "mean" && over.kind == Kind::Condition {
        return fault(over.span, "expected a number, but this is a condition; use `fraction` for the share of steps");
    }
    let aggregate = match name {
        "run" => Aggregate::Run,
        "count" if peek(opt(',')).parse_next(input)?.is_none() => Aggregate::Count,
        "count" => Aggregate::CountLast(steps(input)?),
        "fraction" => Aggregate::Fraction(steps(input)?),
        _ => Aggregate::Mean(steps(input)?),
    };
    input.state.aggregates += 1;
    Ok(Node::Aggregate(aggregate, over.node, input.state.aggregates - 1))
}

/// A comma and the length of a window.
fn steps(input: &mut Input<'_>) -> Parsed<usize> {
    expect(input, ',')?;
    blank(input)?;
    let expected = "a whole number of steps from 1 to 1000000";
    if !peek(opt(any)).parse_next(input)?.is_some_and(|c| c.is_ascii_digit()) {
        return unexpected(input, expected);
    }
    let (value, span) = literal(input)?;
    if value.fract() != 0.0 || !(1.0..=MAX_WINDOWS as f64).contains(&value) {
        return fault(span, format!("expected {expected}"));
    }
    input.state.windows += value as usize;
    if input.state.windows > MAX_WINDOWS {
        return fault(span, format!("the windows of a rule may have at most {MAX_WINDOWS} steps in total"));
    }
    blank(input)?;
    Ok(value as usize)
}

fn infix(input: &mut Input<'_>) -> Parsed<Infix> {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let comparison = alt((
        "<=".value(LessOrEqual),
        "<".value(Less),
        ">=".value(GreaterOrEqual),
        ">".value(Greater),
        "==".value(Equal),
        "!=".value(NotEqual),
    ));
    let arithmetic = alt(('+'.value(Add), '-'.value(Subtract), '*'.value(Multiply), '/'.value(Divide)));
    alt((
        comparison.map(Infix::Compare),
        arithmetic.map(Infix::Arithmetic),
        word.verify(|word: &str| word == "and").value(Infix::And),
        word.verify(|word: &str| word == "or").value(Infix::Or),
    ))
    .parse_next(input)
}

fn blank(input: &mut Input<'_>) -> Parsed<()> {
    multispace0.void().parse_next(input)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn word<'a>(input: &mut Input<'a>) -> Parsed<&'a str> {
    (one_of(is_letter), take_while(0.., |c: char| is_letter(c) || c.is_ascii_digit())).take().parse_next(input)
}

fn literal(input: &mut Input<'_>) -> Parsed<(f64, Range<usize>)> {
    let start = input.current_token_start();
    let digits = alt(((digit1, opt(('.', digit0))).void(), ('.', digit1).void()));
    let exponent = opt((one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1));
    let text: Parsed<&str> = (digits, exponent).take().parse_next(input);
    let span = start..input.previous_token_end().max(start + 1);
    match text.ok().and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite()) {
        Some(value) => Ok((value, span)),
        None => fault(span, "expected a finite number such as 2, 0.5 or 1e-3"),
    }
}

fn expect(input: &mut Input<'_>, token: char) -> Parsed<()> {
    match opt(token).parse_next(input)? {
        Some(_) => Ok(()),
        None => unexpected(input, &format!("an operator or `{token}`")),
    }
}

/// An error about the next token.
fn unexpected<T>(input: &Input<'_>, expected: &str) -> Parsed<T> {
    let start = input.current_token_start();
    let rest: &str = input.input.as_ref();
    let word = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
    match rest.chars().next() {
        None => fault(start..start, format!("expected {expected}, but the rule ends here")),
        Some(c) => fault(start..start + word.max(c.len_utf8()), format!("expected {expected}")),
    }
}

fn unknown(what: &str, name: &str, accepted: &[&str]) -> String {
    let meant =
        nearest(name, accepted.iter().copied()).map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    format!("no {what} is called `{name}`{meant}; accepted: {}", accepted.join(", "))
}

fn number(operand: &Operand) -> Parsed<()> {
    match operand.kind {
        Kind::Number => Ok(()),
        Kind::Condition => fault(operand.span.clone(), "expected a number, but this is a condition"),
    }
}

fn push(input: &mut Input<'_>, node: Node, kind: Kind, span: Range<usize>) -> Operand {
    input.state.nodes.push(node);
    Operand { node: input.state.nodes.len() - 1, kind, span }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn operators_have_the_usual_precedence() {
        for (plain, grouped) in [
            ("a or b and c", "a or (b and c)"),
            ("a and b or c", "(a and b) or c"),
            ("a or b or c", "(a or b) or c"),
            ("not a and b", "(not a) and b"),
            ("not a < b", "not (a < b)"),
            ("a and not b or c", "(a and (not b)) or c"),
            ("not not a", "not (not a)"),
            ("a + b < c * a and b", "((a + b) < (c * a)) and b"),
            ("a - b - c < 0", "((a - b) - c) < 0"),
            ("a + b * c < 0", "(a + (b * c)) < 0"),
            ("a / b / c < 0", "((a / b) / c) < 0"),
            ("-a * b < 0", "((-a) * b) < 0"),
            ("a - -b < 0", "(a - (-b)) < 0"),
            ("- -a < 0", "(-(-a)) < 0"),
            ("a<b or mean(a+b*c,3)>=1", "(a < b) or ((mean(a + (b * c), 3)) >= 1)"),
        ] {
            let names = ["a", "b", "c"];
            assert_eq!(parse(plain, &names), parse(grouped, &names), "{plain}");
            assert!(parse(plain, &names).is_ok(), "{plain}");
        }
    }
}
