//! Compiles operators, conditions and choices: folds what is constant and jumps over what need not be evaluated.

use super::{Compiled, Compiler, HEAVY, Operand};
use crate::code::Op;
use crate::tree::{Node, Tree};

impl Compiler<'_> {
    /// Omits operations that have no effect.
    pub(super) fn arithmetic(&mut self, op: Op, a: Operand, b: Operand) -> Compiled<Operand> {
        use Operand::Constant;
        match (op, a, b) {
            (Op::Add, Constant(0.0), other) | (Op::Add | Op::Subtract, other, Constant(0.0)) => Ok(other),
            (Op::Divide | Op::Power, other, Constant(1.0)) => Ok(other),
            (Op::Power, other, Constant(2.0)) => self.compute(Op::Multiply, other, other),
            (Op::And, Constant(c), other) | (Op::And, other, Constant(c)) => {
                Ok(if c == 0.0 { Constant(0.0) } else { other })
            }
            (Op::Or, Constant(c), other) | (Op::Or, other, Constant(c)) => {
                Ok(if c == 0.0 { other } else { Constant(1.0) })
            }
            (Op::Implies, Constant(c), other) => Ok(if c == 0.0 { Constant(1.0) } else { other }),
            _ => self.compute(op, a, b),
        }
    }

    /// Does not evaluate the second operand where the first decides.
    pub(super) fn logic(&mut self, op: Op, parts: &[Tree; 2], into: Option<u32>) -> Compiled<Operand> {
        let [mut first, mut second] = [&parts[0], &parts[1]];
        if op != Op::Implies && (second.impure, second.size) < (first.impure, first.size) {
            (first, second) = (second, first);
        }
        let first = self.tree(first, None)?;
        match (op, first) {
            (Op::And, Operand::Constant(0.0)) => return Ok(first),
            (Op::Or, Operand::Constant(c)) if c != 0.0 => return Ok(first),
            (Op::Implies, Operand::Constant(0.0)) => return Ok(Operand::Constant(1.0)),
            (_, Operand::Constant(_)) => return self.tree(second, into),
            _ => {}
        }
        if !second.impure && second.size < HEAVY {
            let second = self.tree(second, None)?;
            return self.arithmetic(op, first, second);
        }
        let to = into.unwrap_or_else(|| self.temporary());
        let condition = self.slot(first);
        let decided = if op == Op::Implies { Operand::Constant(1.0) } else { first };
        let decided = self.slot(decided);
        self.emit(Op::Move, to, decided, 0)?;
        let over = self.jump(if op == Op::Or { Op::JumpUnlessZero } else { Op::JumpIfZero }, condition)?;
        let mark = self.journal.len();
        self.value_into(second, to)?;
        self.forget(mark);
        self.land(over);
        Ok(Operand::Slot(to))
    }

    pub(super) fn product(&mut self, op: Op, parts: &[Tree; 2], into: Option<u32>) -> Compiled<Operand> {
        // The factor that pyRDDLGym evaluates first: a plain one on the right, otherwise the left one.
        let plain = matches!(parts[1].node, Node::Number(_) | Node::Variable(_) | Node::Fluent { .. });
        let (first, second) = if plain { (&parts[1], &parts[0]) } else { (&parts[0], &parts[1]) };
        let first = self.tree(first, None)?;
        match first {
            Operand::Constant(0.0) => return Ok(Operand::Constant(0.0)),
            Operand::Constant(1.0) => return self.tree(second, into),
            _ => {}
        }
        if let (Operand::Slot(factor), true) = (first, second.impure || second.size > 4 * HEAVY) {
            let to = into.unwrap_or_else(|| self.temporary());
            self.emit(Op::Move, to, factor, 0)?;
            let over = self.jump(Op::JumpIfZero, factor)?;
            let mark = self.journal.len();
            let since = self.code.instructions.len();
            let second = self.tree(second, None)?;
            let value = self.compute(op, first, second)?;
            self.put(value, to, since)?;
            self.forget(mark);
            self.land(over);
            return Ok(Operand::Slot(to));
        }
        match self.tree(second, None)? {
            Operand::Constant(0.0) => Ok(Operand::Constant(0.0)),
            Operand::Constant(1.0) => Ok(first),
            second => self.compute(op, first, second),
        }
    }

    pub(super) fn conditional(&mut self, parts: &[Tree; 3], into: Option<u32>) -> Compiled<Operand> {
        let [condition, then, otherwise] = parts;
        let condition = match self.tree(condition, None)? {
            Operand::Constant(0.0) => return self.tree(otherwise, into),
            Operand::Constant(_) => return self.tree(then, into),
            Operand::Slot(condition) => condition,
        };
        let light = |tree: &Tree| !tree.impure && tree.size <= 1;
        if light(then) && light(otherwise) {
            let (then, otherwise) = (self.tree(then, None)?, self.tree(otherwise, None)?);
            if (then, otherwise) == (Operand::Constant(1.0), Operand::Constant(0.0)) || then == otherwise {
                return Ok(if then == otherwise { then } else { Operand::Slot(condition) });
            }
            let to = into.unwrap_or_else(|| self.temporary());
            let (then, otherwise) = (self.slot(then), self.slot(otherwise));
            self.emit(Op::Move, to, otherwise, 0)?;
            self.emit(Op::MoveIf, to, then, condition)?;
            return Ok(Operand::Slot(to));
        }
        let to = into.unwrap_or_else(|| self.temporary());
        let to_else = self.jump(Op::JumpIfZero, condition)?;
        let mark = self.journal.len();
        self.value_into(then, to)?;
        self.forget(mark);
        let to_end = self.jump(Op::Jump, 0)?;
        self.land(to_else);
        self.value_into(otherwise, to)?;
        self.forget(mark);
        self.land(to_end);
        Ok(Operand::Slot(to))
    }

    pub(super) fn switch(
        &mut self,
        subject: &Tree,
        cases: &[Tree],
        takes: &[usize],
        into: Option<u32>,
    ) -> Compiled<Operand> {
        let subject = match self.tree(subject, None)? {
            Operand::Constant(value) => return self.tree(&cases[takes[value as usize]], into),
            Operand::Slot(subject) => Operand::Slot(subject),
        };
        let to = into.unwrap_or_else(|| self.temporary());
        let mark = self.journal.len();
        let mut ends = Vec::new();
        let last = takes.last().copied().unwrap_or(0);
        for (number, case) in cases.iter().enumerate() {
            let mut meant = Operand::Constant(0.0);
            for (value, _) in takes.iter().enumerate().filter(|(_, case)| **case == number && number != last) {
                let equal = self.compute(Op::Equal, subject, Operand::Constant(value as f64))?;
                meant = self.arithmetic(Op::Or, meant, equal)?;
            }
            let Operand::Slot(meant) = meant else { continue };
            let next = self.jump(Op::JumpIfZero, meant)?;
            self.value_into(case, to)?;
            ends.push(self.jump(Op::Jump, 0)?);
            self.forget(mark);
            self.land(next);
        }
        if let Some(case) = cases.get(last) {
            self.value_into(case, to)?;
        }
        self.forget(mark);
        ends.into_iter().for_each(|end| self.land(end));
        Ok(Operand::Slot(to))
    }
}
