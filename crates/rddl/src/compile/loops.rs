//! Compiles aggregations: short ones are unrolled, with constants folded and early exits from quantifiers; long ones
//! become loops over index registers.

use super::{Bound, Compiled, Compiler, HEAVY, MAX_CODE, Operand, objects_at};
use crate::ast::Aggregate;
use crate::code::Op;
use crate::tree::{Tree, rounds, unrolled};

impl Compiler<'_> {
    /// Emits nested loops over variables, the last one innermost, around the instructions that `body` emits.
    pub(super) fn looped(&mut self, counts: &[usize], body: &mut dyn FnMut(&mut Self) -> Compiled<()>) -> Compiled<()> {
        let Some((count, inner)) = counts.split_first() else { return body(self) };
        if *count == 0 {
            return Ok(());
        }
        let register = self.scope.len() as u32;
        self.code.registers = self.code.registers.max(register as usize + 1);
        self.scope.push(Bound::Register(register));
        self.counts.push(*count);
        let mark = self.journal.len();
        self.emit(Op::Reset, 0, register, 0)?;
        let start = self.code.instructions.len() as u32;
        self.looped(inner, body)?;
        self.emit(Op::Next, start, register, *count as u32)?;
        self.forget(mark);
        self.scope.pop();
        self.counts.pop();
        Ok(())
    }

    /// Whether to unroll a loop: only if it is short and the program is not too long already.
    pub(super) fn unrolls(&self, counts: &[usize], body: &Tree) -> bool {
        self.code.instructions.len() < MAX_CODE / 2 && unrolled(counts, body).is_some()
    }

    /// Compiles an aggregation as a loop.
    pub(super) fn loop_over(&mut self, op: Aggregate, counts: &[usize], body: &Tree) -> Compiled<Operand> {
        let to = self.temporary();
        let best = self.temporary();
        let start = self.slot(Operand::Constant(match op {
            Aggregate::Prod | Aggregate::Forall => 1.0,
            Aggregate::Min | Aggregate::Argmin => f64::INFINITY,
            Aggregate::Max | Aggregate::Argmax => f64::NEG_INFINITY,
            _ => 0.0,
        }));
        let zero = self.slot(Operand::Constant(0.0));
        let picks = matches!(op, Aggregate::Argmin | Aggregate::Argmax);
        self.emit(Op::Move, to, if picks { zero } else { start }, 0)?;
        self.emit(Op::Move, best, start, 0)?;
        let mut exits = Vec::new();
        self.looped(counts, &mut |compiler| {
            let value = compiler.tree(body, None)?;
            let value = compiler.slot(value);
            let fold = match op {
                Aggregate::Sum | Aggregate::Avg => Op::Add,
                Aggregate::Prod => Op::Multiply,
                Aggregate::Min => Op::Minimum,
                Aggregate::Max => Op::Maximum,
                Aggregate::Forall | Aggregate::Exists => {
                    compiler.emit(Op::Move, to, value, 0)?;
                    let exit = if op == Aggregate::Forall { Op::JumpIfZero } else { Op::JumpUnlessZero };
                    exits.push(compiler.jump(exit, to)?);
                    return Ok(());
                }
                Aggregate::Argmin | Aggregate::Argmax => {
                    let compare = if op == Aggregate::Argmin { Op::Undercuts } else { Op::Exceeds };
                    let better = compiler.temporary();
                    let place = compiler.once(Op::Index, compiler.scope.len() as u32 - 1, 0)?;
                    compiler.emit(compare, better, value, best)?;
                    compiler.emit(Op::MoveIf, to, place, better)?;
                    return compiler.emit(Op::MoveIf, best, value, better);
                }
            };
            compiler.emit(fold, to, to, value)
        })?;
        exits.into_iter().for_each(|exit| self.land(exit));
        let value = Operand::Slot(to);
        if op != Aggregate::Avg {
            return Ok(value);
        }
        let count = rounds(counts) as f64;
        let value = self.slot(value);
        let count = self.slot(Operand::Constant(count));
        let mean = self.temporary();
        self.emit(Op::Divide, mean, value, count)?;
        Ok(Operand::Slot(mean))
    }

    /// Compiles an aggregation as an unrolled loop.
    pub(super) fn unrolled(
        &mut self,
        op: Aggregate,
        counts: &[usize],
        body: &Tree,
        into: Option<u32>,
    ) -> Compiled<Operand> {
        let rounds = rounds(counts) as usize;
        let before = self.scope.len();
        let mut state = Unrolled { op, total: None, place: Operand::Constant(0.0), exits: Vec::new(), to: into };
        self.counts.extend(counts);
        let mark = self.journal.len();
        for round in 0..rounds {
            self.scope.extend(objects_at(counts, round));
            let done = self.round(&mut state, round, body);
            self.scope.truncate(before);
            if done? {
                break;
            }
        }
        self.counts.truncate(before);
        if !state.exits.is_empty() {
            self.forget(mark);
            state.exits.iter().for_each(|exit| self.land(*exit));
        }
        let total = state.total.unwrap_or(Operand::Constant(match op {
            Aggregate::Prod | Aggregate::Forall => 1.0,
            Aggregate::Avg => f64::NAN,
            _ => 0.0,
        }));
        match op {
            Aggregate::Avg => self.arithmetic(Op::Divide, total, Operand::Constant(rounds as f64)),
            Aggregate::Argmin | Aggregate::Argmax => Ok(state.place),
            _ => Ok(total),
        }
    }

    /// Compiles one round of an unrolled loop and returns whether the value is final.
    fn round(&mut self, state: &mut Unrolled, round: usize, body: &Tree) -> Compiled<bool> {
        let quantifier = match state.op {
            Aggregate::Forall => Some((Op::And, 0.0, Op::JumpIfZero)),
            Aggregate::Exists => Some((Op::Or, 1.0, Op::JumpUnlessZero)),
            _ => None,
        };
        if let Some((op, settled, exit)) = quantifier {
            let jumps = body.impure || body.size >= HEAVY;
            if !jumps {
                let value = self.tree(body, None)?;
                let total = state.total.unwrap_or(Operand::Constant(1.0 - settled));
                let total = self.arithmetic(op, total, value)?;
                state.total = Some(total);
                return Ok(total == Operand::Constant(settled));
            }
            let to = state.to.unwrap_or_else(|| self.temporary());
            state.to = Some(to);
            let since = self.code.instructions.len();
            let value = self.tree(body, Some(to))?;
            match value {
                Operand::Constant(value) if value == settled && state.exits.is_empty() => {
                    state.total = Some(Operand::Constant(settled));
                    return Ok(true);
                }
                Operand::Constant(value) if value != settled => return Ok(false),
                _ => {}
            }
            self.put(value, to, since)?;
            state.total = Some(Operand::Slot(to));
            state.exits.push(self.jump(exit, to)?);
            return Ok(matches!(value, Operand::Constant(_)));
        }
        let value = self.tree(body, None)?;
        let Some(total) = state.total else {
            state.total = Some(value);
            state.place = Operand::Constant(round as f64);
            return Ok(false);
        };
        let fold = match state.op {
            Aggregate::Prod => Op::Multiply,
            Aggregate::Min => Op::Minimum,
            Aggregate::Max => Op::Maximum,
            Aggregate::Argmin | Aggregate::Argmax => {
                let compare = if state.op == Aggregate::Argmin { Op::Undercuts } else { Op::Exceeds };
                let better = self.compute(compare, value, total)?;
                state.place = self.select(better, Operand::Constant(round as f64), state.place)?;
                state.total = Some(self.select(better, value, total)?);
                return Ok(false);
            }
            _ => Op::Add,
        };
        state.total = Some(match (fold, total, value) {
            (Op::Multiply, Operand::Constant(1.0), other) | (Op::Multiply, other, Operand::Constant(1.0)) => other,
            _ => self.arithmetic(fold, total, value)?,
        });
        Ok(false)
    }

    fn select(&mut self, condition: Operand, then: Operand, otherwise: Operand) -> Compiled<Operand> {
        match condition {
            Operand::Constant(0.0) => Ok(otherwise),
            Operand::Constant(_) => Ok(then),
            Operand::Slot(condition) => {
                let to = self.temporary();
                let (then, otherwise) = (self.slot(then), self.slot(otherwise));
                self.emit(Op::Move, to, otherwise, 0)?;
                self.emit(Op::MoveIf, to, then, condition)?;
                Ok(Operand::Slot(to))
            }
        }
    }
}

/// The state of an unrolled loop during compilation.
struct Unrolled {
    op: Aggregate,
    total: Option<Operand>,
    /// The index of the best object so far.
    place: Operand,
    exits: Vec<usize>,
    to: Option<u32>,
}
