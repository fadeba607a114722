//! The bytecode and the machine that runs it: instructions over one array of values, with jumps and counted loops.
//!
//! Every pvariable, constant and temporary has a slot in the array, so operands are indices and nothing is looked up,
//! hashed or allocated. In unrolled loops the non-fluents have been folded; other loops address slots through index
//! registers.

use crate::distributions::Law;
use crate::draws::{DrawKey, Draws};
use crate::source::Span;
use crate::special::ln_gamma;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Op {
    // to = op(a)
    Negate,
    NegateInt,
    Not,
    Abs,
    Sign,
    Round,
    Floor,
    Ceil,
    Cos,
    Sin,
    Tan,
    Acos,
    Asin,
    Atan,
    Cosh,
    Sinh,
    Tanh,
    Exp,
    Ln,
    Sqrt,
    LnGamma,
    Gamma,
    // to = op(a, b)
    Add,
    Subtract,
    Multiply,
    MultiplyInt,
    Divide,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    /// a is below b, or a is NaN and b is not: for argmin
    Undercuts,
    /// a is above b, or a is NaN and b is not: for argmax
    Exceeds,
    And,
    Or,
    Implies,
    IntDivide,
    IntModulo,
    Modulo,
    Minimum,
    Maximum,
    Power,
    Log,
    Hypot,
    // The operations above compute a value from their operands only.
    /// to = a
    Move,
    /// to = a unless b is 0
    MoveIf,
    /// continue at instruction `to`
    Jump,
    JumpIfZero,
    JumpUnlessZero,
    /// index register a = 0
    Reset,
    /// index register a += 1; continue at instruction `to` while it is below b
    Next,
    /// to = index register a
    Index,
    /// to = the value at address a
    Load,
    /// the value at address a = b
    Store,
    /// to = a draw at site a
    Draw,
}

impl Op {
    /// Whether it computes a value from its operands only.
    #[inline(always)]
    pub fn is_pure(self) -> bool {
        (self as u8) < Op::Move as u8
    }

    /// Evaluates a pure operation. Conditions are 0 or 1; integers are never -0.
    #[inline(always)]
    pub fn apply(self, a: f64, b: f64) -> f64 {
        let truth = |p: bool| f64::from(u8::from(p));
        match self {
            Op::Negate => -a,
            Op::NegateInt => 0.0 - a,
            Op::Not => truth(a == 0.0),
            Op::Abs => a.abs(),
            Op::Sign => truth(a > 0.0) - truth(a < 0.0),
            Op::Round => whole(a.round_ties_even()),
            Op::Floor => whole(a.floor()),
            Op::Ceil => whole(a.ceil()),
            Op::Cos => a.cos(),
            Op::Sin => a.sin(),
            Op::Tan => a.tan(),
            Op::Acos => a.acos(),
            Op::Asin => a.asin(),
            Op::Atan => a.atan(),
            Op::Cosh => a.cosh(),
            Op::Sinh => a.sinh(),
            Op::Tanh => a.tanh(),
            Op::Exp => a.exp(),
            Op::Ln => a.ln(),
            Op::Sqrt => a.sqrt(),
            Op::LnGamma => ln_gamma(a),
            Op::Gamma => ln_gamma(a).exp(),
            Op::Add => a + b,
            Op::Subtract => a - b,
            // Zero times anything is zero, as in pyRDDLGym, which does not evaluate the second factor then.
            Op::Multiply => {
                if a == 0.0 {
                    a
                } else {
                    a * b
                }
            }
            Op::MultiplyInt => a * b + 0.0,
            Op::Divide => a / b,
            Op::Less => truth(a < b),
            Op::LessOrEqual => truth(a <= b),
            Op::Greater => truth(a > b),
            Op::GreaterOrEqual => truth(a >= b),
            Op::Equal => truth(a == b),
            Op::NotEqual => truth(a != b),
            Op::Undercuts => truth(a < b || a.is_nan() && !b.is_nan()),
            Op::Exceeds => truth(a > b || a.is_nan() && !b.is_nan()),
            Op::And => truth(a != 0.0 && b != 0.0),
            Op::Or => truth(a != 0.0 || b != 0.0),
            Op::Implies => truth(a == 0.0 || b != 0.0),
            Op::IntDivide => {
                if b == 0.0 {
                    0.0
                } else {
                    (a / b).floor() + 0.0
                }
            }
            Op::IntModulo => {
                if b == 0.0 {
                    0.0
                } else {
                    modulo(a, b) + 0.0
                }
            }
            Op::Modulo => modulo(a, b),
            Op::Minimum => {
                if a <= b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            Op::Maximum => {
                if a >= b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            Op::Power => a.powf(b),
            Op::Log => a.ln() / b.ln(),
            Op::Hypot => a.hypot(b),
            _ => a,
        }
    }
}

/// The remainder with the sign of the divisor.
fn modulo(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest == 0.0 {
        0.0_f64.copysign(b)
    } else if (rest < 0.0) != (b < 0.0) {
        rest + b
    } else {
        rest
    }
}

/// Converts to a 64-bit integer as numpy does: a value that does not fit becomes the smallest one.
fn whole(a: f64) -> f64 {
    if a.abs() < 9.223_372_036_854_775e18 { a + 0.0 } else { i64::MIN as f64 }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub op: Op,
    pub to: u32,
    pub a: u32,
    pub b: u32,
}

/// A computed address: `base` plus the sum of its terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub base: u32,
    pub first: u32,
    pub end: u32,
    /// The first expression that uses it.
    pub span: Span,
}

/// A term of an address: `stride` times an index register, or times a value that must be below `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub from: From,
    pub stride: u32,
    pub count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum From {
    Register(u32),
    Slot(u32),
}

/// An occurrence of a distribution in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawSite {
    pub what: What,
    /// The index of the cpf in [`Code::names`], and the number of the distribution within the cpf.
    pub cpf: u32,
    pub number: u32,
    /// The address whose value is the flat index over the variables in scope.
    pub index: u32,
    pub span: Span,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The law and the slots of its parameters.
    Law(Law, u32, u32),
    /// Probabilities in consecutive slots.
    Discrete { first: u32, count: u32, normalised: bool },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub instructions: Vec<Instruction>,
    pub addresses: Vec<Address>,
    pub terms: Vec<Term>,
    pub sites: Vec<DrawSite>,
    /// The names of the cpfs, which are part of the keys of draws.
    pub names: Vec<String>,
    pub registers: usize,
}

/// A failure while running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub span: Span,
    pub message: &'static str,
    pub value: f64,
}

/// A range of instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routine {
    pub start: usize,
    pub end: usize,
}

impl Code {
    /// Runs a routine. An operation that fails gives NaN, and the first failure is returned at the end.
    pub fn run<D: Draws>(
        &self,
        routine: Routine,
        values: &mut [f64],
        registers: &mut [usize],
        draws: &mut D,
        step: u64,
    ) -> Option<Failure> {
        let mut failure = None;
        let code = self.instructions.get(..routine.end).unwrap_or_default();
        let mut at = routine.start;
        while let Some(&Instruction { op, to, a, b }) = code.get(at) {
            at += 1;
            let (to, a, b) = (to as usize, a as usize, b as usize);
            if op.is_pure() {
                values[to] = op.apply(values[a], values[b]);
                continue;
            }
            match op {
                Op::Move => values[to] = values[a],
                Op::MoveIf => {
                    let kept = values[to];
                    values[to] = if values[b] != 0.0 { values[a] } else { kept };
                }
                Op::Jump => at = to,
                Op::JumpIfZero if values[a] == 0.0 => at = to,
                Op::JumpUnlessZero if values[a] != 0.0 => at = to,
                Op::Reset => registers[a] = 0,
                Op::Next => {
                    registers[a] += 1;
                    if registers[a] < b {
                        at = to;
                    }
                }
                Op::Index => values[to] = registers[a] as f64,
                Op::Load => {
                    values[to] = match self.resolve(a, values, registers) {
                        Some(slot) => values[slot],
                        None => {
                            let message = "a fluent used as an index is not an object of its type";
                            failure.get_or_insert(Failure { span: self.addresses[a].span, message, value: f64::NAN });
                            f64::NAN
                        }
                    }
                }
                Op::Store => {
                    if let Some(slot) = self.resolve(a, values, registers) {
                        values[slot] = values[b];
                    }
                }
                Op::Draw => {
                    let key = DrawKey { code: self, site: &self.sites[a], registers, step };
                    values[to] = draw(key, values, draws).unwrap_or_else(|wrong| {
                        failure.get_or_insert(wrong);
                        f64::NAN
                    });
                }
                _ => {} // a jump that is not taken
            }
        }
        failure
    }

    /// The slot that an address currently refers to.
    fn resolve(&self, address: usize, values: &[f64], registers: &[usize]) -> Option<usize> {
        let Address { base, first, end, .. } = self.addresses[address];
        let mut slot = base as usize;
        for term in &self.terms[first as usize..end as usize] {
            let index = match term.from {
                From::Register(register) => registers[register as usize],
                From::Slot(from) => {
                    let value = values[from as usize];
                    if !(0.0..f64::from(term.count)).contains(&value) {
                        return None;
                    }
                    value as usize
                }
            };
            slot += index * term.stride as usize;
        }
        Some(slot)
    }

    /// The value of an address that depends on index registers only.
    pub fn flat_index(&self, address: u32, registers: &[usize]) -> usize {
        self.resolve(address as usize, &[], registers).unwrap_or(0)
    }
}

/// Not inlined: the loop above is faster if it is small.
#[inline(never)]
fn draw<D: Draws>(key: DrawKey<'_>, values: &[f64], draws: &mut D) -> Result<f64, Failure> {
    let site = key.site;
    let failure = |(message, value)| Failure { span: site.span, message, value };
    match site.what {
        What::Law(law, a, b) => {
            let (a, b) = (values[a as usize], values[b as usize]);
            match law.wrong(a, b) {
                None => Ok(draws.law(law, a, b, key)),
                Some(wrong) => Err(failure(wrong)),
            }
        }
        What::Discrete { first, count, normalised } => {
            let weights = &values[first as usize..(first + count) as usize];
            discrete_sum(weights, normalised).map(|sum| draws.discrete(weights, sum, key)).map_err(failure)
        }
    }
}

/// The divisor that normalises the probabilities, or what is wrong with them.
fn discrete_sum(weights: &[f64], normalised: bool) -> Result<f64, (&'static str, f64)> {
    if let Some(wrong) = weights.iter().find(|p| p.is_nan() || **p < 0.0) {
        return Err(("a probability of a Discrete must not be negative", *wrong));
    }
    let sum: f64 = weights.iter().sum();
    if normalised {
        let is_one = (sum - 1.0).abs() <= 1.001e-5;
        if is_one { Ok(1.0) } else { Err(("the probabilities of a Discrete must sum to 1", sum)) }
    } else if sum > 0.0 && sum.is_finite() {
        Ok(sum)
    } else {
        Err(("the weights of an UnnormDiscrete must have a positive sum", sum))
    }
}
