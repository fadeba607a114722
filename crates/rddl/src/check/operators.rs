//! Checks operators and functions: the types of their operands and of their values.

use super::{Checked, Checker, numeric};
use crate::ast::{self, Expr, Name};
use crate::code::Op;
use crate::model::Range;
use crate::source::{Fault, Span, suggest};
use crate::tree::{Node, Tree};

/// The functions, their operations and their numbers of arguments.
const FUNCTIONS: [(&str, Op, usize); 27] = [
    ("abs", Op::Abs, 1),
    ("sgn", Op::Sign, 1),
    ("round", Op::Round, 1),
    ("floor", Op::Floor, 1),
    ("ceil", Op::Ceil, 1),
    ("cos", Op::Cos, 1),
    ("sin", Op::Sin, 1),
    ("tan", Op::Tan, 1),
    ("acos", Op::Acos, 1),
    ("asin", Op::Asin, 1),
    ("atan", Op::Atan, 1),
    ("cosh", Op::Cosh, 1),
    ("sinh", Op::Sinh, 1),
    ("tanh", Op::Tanh, 1),
    ("exp", Op::Exp, 1),
    ("ln", Op::Ln, 1),
    ("sqrt", Op::Sqrt, 1),
    ("lngamma", Op::LnGamma, 1),
    ("gamma", Op::Gamma, 1),
    ("div", Op::IntDivide, 2),
    ("mod", Op::IntModulo, 2),
    ("fmod", Op::Modulo, 2),
    ("min", Op::Minimum, 2),
    ("max", Op::Maximum, 2),
    ("pow", Op::Power, 2),
    ("log", Op::Log, 2),
    ("hypot", Op::Hypot, 2),
];

impl Checker<'_> {
    pub(super) fn unary(&mut self, op: ast::Unary, a: &Expr, span: Span) -> Checked<Tree> {
        match op {
            ast::Unary::Not => Ok(apply1(Op::Not, self.condition(a)?, Range::Bool, span)),
            ast::Unary::Plus => self.number(a),
            ast::Unary::Minus => {
                let a = self.number(a)?;
                let range = numeric(a.range);
                let op = if range == Range::Int { Op::NegateInt } else { Op::Negate };
                Ok(apply1(op, a, range, span))
            }
        }
    }

    pub(super) fn binary(&mut self, op: ast::Binary, a: &Expr, b: &Expr, span: Span) -> Checked<Tree> {
        use ast::Binary as B;
        let logical = match op {
            B::Equivalent => Some(Op::Equal),
            B::Implies => Some(Op::Implies),
            B::Or => Some(Op::Or),
            B::And => Some(Op::And),
            _ => None,
        };
        if let Some(op) = logical {
            let parts = [self.condition(a)?, self.condition(b)?];
            return Ok(apply2(op, parts, Range::Bool, span));
        }
        let arithmetic = match op {
            B::Add => Some(Op::Add),
            B::Subtract => Some(Op::Subtract),
            B::Multiply => Some(Op::Multiply),
            B::Divide => Some(Op::Divide),
            _ => None,
        };
        if let Some(op) = arithmetic {
            let (a, b) = (self.number(a)?, self.number(b)?);
            let range = both(&a, &b);
            let (op, range) = match op {
                Op::Divide => (op, Range::Real),
                Op::Multiply if range == Range::Int => (Op::MultiplyInt, range),
                _ => (op, range),
            };
            return Ok(apply2(op, [a, b], range, span));
        }
        let parts = [self.expr(a)?, self.expr(b)?];
        let comparable = match (parts[0].range, parts[1].range) {
            (Range::Object(a), Range::Object(b)) if a == b => matches!(op, B::Equal | B::NotEqual),
            (Range::Object(_), _) | (_, Range::Object(_)) => false,
            _ => true,
        };
        if !comparable {
            let (a, b) = (self.model.range_name(parts[0].range), self.model.range_name(parts[1].range));
            let message = format!(
                "{a} and {b} cannot be compared like this; objects of the same type can be compared by == and ~="
            );
            return Err(Fault::at(span, message));
        }
        let op = match op {
            B::Equal => Op::Equal,
            B::NotEqual => Op::NotEqual,
            B::Less => Op::Less,
            B::LessOrEqual => Op::LessOrEqual,
            B::Greater => Op::Greater,
            _ => Op::GreaterOrEqual,
        };
        Ok(apply2(op, parts, Range::Bool, span))
    }

    pub(super) fn function(&mut self, name: &Name, arguments: &[Expr], span: Span) -> Checked<Tree> {
        let Some((_, op, arity)) = FUNCTIONS.iter().find(|(known, ..)| *known == name.text) else {
            let hint = suggest(&name.text, FUNCTIONS.iter().map(|(known, ..)| *known));
            return Err(Fault::at(name.span, format!("no function is called `{}`{hint}", name.text)));
        };
        if arguments.len() != *arity {
            let message = format!(
                "`{}` takes {arity} argument{}, {} given",
                name.text,
                if *arity == 1 { "" } else { "s" },
                arguments.len()
            );
            return Err(Fault::at(span, message));
        }
        if let [a] = arguments {
            let a = self.number(a)?;
            let range = match op {
                Op::Abs => numeric(a.range),
                Op::Sign | Op::Round | Op::Floor | Op::Ceil => Range::Int,
                _ => Range::Real,
            };
            return Ok(apply1(*op, a, range, span));
        }
        let [a, b] = arguments else { return Err(Fault::at(span, "expected one or two arguments")) };
        if matches!(op, Op::IntDivide | Op::IntModulo) {
            let what = format!("`{}`", name.text);
            let parts = [self.integer(a, &what)?, self.integer(b, &what)?];
            return Ok(apply2(*op, parts, Range::Int, span));
        }
        let (a, b) = (self.number(a)?, self.number(b)?);
        let range = both(&a, &b);
        let (op, range) = match op {
            Op::Modulo if range == Range::Int => (Op::IntModulo, range),
            Op::Modulo | Op::Minimum | Op::Maximum | Op::Power => (*op, range),
            _ => (*op, Range::Real),
        };
        Ok(apply2(op, [a, b], range, span))
    }
}

fn both(a: &Tree, b: &Tree) -> Range {
    if a.range == Range::Real || b.range == Range::Real { Range::Real } else { Range::Int }
}

fn apply1(op: Op, a: Tree, range: Range, span: Span) -> Tree {
    Tree::new(Node::Apply1(op, Box::new(a)), range, span)
}

fn apply2(op: Op, parts: [Tree; 2], range: Range, span: Span) -> Tree {
    Tree::new(Node::Apply2(op, Box::new(parts)), range, span)
}
