//! Trees to instructions: loops unrolled where they are short, constants folded, common parts computed once, branches
//! that draw or cost much jumped over.
//!
//! Slots are written once a step (but for accumulators and the two ends of a branch), so a value computed before is good
//! wherever it is known to have been computed; what was computed inside a branch or a loop is forgotten at its end.

use std::collections::HashMap;

use crate::ast::Aggregate;
use crate::code::{Address, Code, DrawSite, From, Instruction, Op, Routine, Term, What};
use crate::model::{Kind, Model};
use crate::source::{Fault, Span};
use crate::tree::{Index, Node, Site, Tree, unrolled};

/// The longest program, the most addresses in it, and how much of it may come from unrolling the groundings of one cpf
/// and of all.
const MAX_CODE: usize = 4_000_000;
const MAX_ADDRESSES: usize = 1_000_000;
const MAX_CPF: u64 = 1 << 16;
const MAX_UNROLLED_CPFS: u64 = 1 << 21;

/// From this size on an operand is worth a jump.
const HEAVY: u64 = 6;

/// A value while compiling.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    Constant(f64),
    Slot(u32),
}

/// A variable in scope: one object, or whatever an index register holds.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Object(usize),
    Register(u32),
}

type Compiled<T> = Result<T, Fault>;

pub(crate) struct Compiler<'a> {
    model: &'a Model,
    /// Where the non-fluents begin: values from here on never change.
    fixed: usize,
    pub code: Code,
    /// The model's values, then constants and temporaries.
    pub values: Vec<f64>,
    constants: HashMap<u64, u32>,
    /// What has been computed already, and in which order it was.
    known: HashMap<(Op, u32, u32), u32>,
    journal: Vec<(Op, u32, u32)>,
    addresses: HashMap<(u32, Vec<Term>), u32>,
    scope: Vec<Bound>,
    /// How many objects each variable in scope has.
    counts: Vec<usize>,
    cpf: u32,
    budget: u64,
    /// Where the last jump leads to: the instruction before it may not have run.
    landed: usize,
}

impl<'a> Compiler<'a> {
    pub fn new(model: &'a Model) -> Compiler<'a> {
        let fixed = model.fluents.iter().filter(|f| f.kind == Kind::NonFluent).map(|f| f.slot).min();
        Compiler {
            model,
            fixed: fixed.unwrap_or(model.values.len()),
            code: Code::default(),
            values: model.values.clone(),
            constants: HashMap::new(),
            known: HashMap::new(),
            journal: Vec::new(),
            addresses: HashMap::new(),
            scope: Vec::new(),
            counts: Vec::new(),
            cpf: 0,
            budget: MAX_UNROLLED_CPFS,
            landed: 0,
        }
    }

    /// Compiles what `body` does into a routine of its own.
    pub fn routine(&mut self, body: impl FnOnce(&mut Self) -> Compiled<()>) -> Compiled<Routine> {
        self.forget(0);
        let start = self.code.instructions.len();
        self.landed = start;
        body(self)?;
        Ok(Routine { start, end: self.code.instructions.len() })
    }

    /// A cpf over parameters with so many objects each, into the slots from `slot` on.
    pub fn cpf(&mut self, name: &str, slot: usize, counts: &[usize], tree: &Tree) -> Compiled<()> {
        self.cpf = self.code.names.len() as u32;
        self.code.names.push(name.to_owned());
        let groundings = counts.iter().product::<usize>();
        let size = (groundings as u64).saturating_mul(tree.size.saturating_add(1));
        if size <= MAX_CPF.min(self.budget) || counts.is_empty() {
            self.budget = self.budget.saturating_sub(size);
            self.counts = counts.to_vec();
            for grounding in 0..groundings {
                self.scope = objects_at(counts, grounding);
                let to = (slot + grounding) as u32;
                self.value_into(tree, to)?;
                if let Some(Instruction { op, a, b, .. }) = self.just_computed().copied().filter(|i| i.to == to)
                    && op != Op::Draw
                {
                    self.known.insert((op, a, b), to);
                    self.journal.push((op, a, b));
                }
            }
        } else {
            let stride = strides(counts);
            self.looped(counts, &mut |compiler| {
                let value = compiler.tree(tree, None)?;
                let value = compiler.slot(value);
                let terms = (0..counts.len()).map(|i| compiler.term(i, stride[i])).collect();
                let address = compiler.address(slot, terms, tree.span)?;
                compiler.emit(Op::Store, 0, address, value)
            })?;
        }
        self.scope.clear();
        self.counts.clear();
        Ok(())
    }

    /// An expression without parameters; gives the slot of its value.
    pub fn scalar(&mut self, name: &str, tree: &Tree) -> Compiled<u32> {
        self.cpf = self.code.names.len() as u32;
        self.code.names.push(name.to_owned());
        let to = self.temporary();
        self.value_into(tree, to)?;
        Ok(to)
    }

    /// The value of a tree of non-fluents alone, for one choice of objects.
    pub fn constant(&mut self, tree: &Tree, objects: &[usize]) -> Compiled<Option<f64>> {
        self.scope = objects.iter().map(|object| Bound::Object(*object)).collect();
        let length = self.code.instructions.len();
        let value = self.tree(tree, None)?;
        self.scope.clear();
        self.code.instructions.truncate(length);
        self.forget(0);
        Ok(match value {
            Operand::Constant(value) => Some(value),
            Operand::Slot(_) => None,
        })
    }

    // Emitting.

    fn emit(&mut self, op: Op, to: u32, a: u32, b: u32) -> Compiled<()> {
        if self.code.instructions.len() >= MAX_CODE || self.values.len() >= u32::MAX as usize {
            return Err(Fault::general(format!("the program has more than {MAX_CODE} instructions")));
        }
        self.code.instructions.push(Instruction { op, to, a, b });
        Ok(())
    }

    /// Emits a jump whose target comes later; see [`Self::land`].
    fn jump(&mut self, op: Op, on: u32) -> Compiled<usize> {
        self.emit(op, 0, on, 0)?;
        Ok(self.code.instructions.len() - 1)
    }

    /// Lets a jump lead here.
    fn land(&mut self, jump: usize) {
        self.landed = self.code.instructions.len();
        self.code.instructions[jump].to = self.landed as u32;
    }

    fn temporary(&mut self) -> u32 {
        self.values.push(0.0);
        (self.values.len() - 1) as u32
    }

    fn slot(&mut self, operand: Operand) -> u32 {
        match operand {
            Operand::Slot(slot) => slot,
            Operand::Constant(value) => {
                let next = self.values.len() as u32;
                let slot = *self.constants.entry(value.to_bits()).or_insert(next);
                if slot == next {
                    self.values.push(value);
                }
                slot
            }
        }
    }

    /// Computes a pure operation, unless it was computed before.
    fn compute(&mut self, op: Op, a: Operand, b: Operand) -> Compiled<Operand> {
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            return Ok(Operand::Constant(op.apply(a, b)));
        }
        let (a, b) = (self.slot(a), self.slot(b));
        self.once(op, a, b).map(Operand::Slot)
    }

    fn once(&mut self, op: Op, a: u32, b: u32) -> Compiled<u32> {
        if let Some(slot) = self.known.get(&(op, a, b)) {
            return Ok(*slot);
        }
        let to = self.temporary();
        self.emit(op, to, a, b)?;
        self.known.insert((op, a, b), to);
        self.journal.push((op, a, b));
        Ok(to)
    }

    /// Forgets what was computed since the journal had this length.
    fn forget(&mut self, length: usize) {
        while self.journal.len() > length {
            if let Some(key) = self.journal.pop() {
                self.known.remove(&key);
            }
        }
    }

    /// Puts a value into a slot; the instruction that has just computed it may write there directly.
    fn put(&mut self, value: Operand, to: u32) -> Compiled<()> {
        if value == Operand::Slot(to) {
            return Ok(());
        }
        let first_free = self.model.values.len() as u32;
        if let (Operand::Slot(from), Some(last)) = (value, self.just_computed())
            && last.to == from
            && from >= first_free
        {
            last.to = to;
            let key = (last.op, last.a, last.b);
            self.known.remove(&key); // the slot may be written again
            return Ok(());
        }
        let from = self.slot(value);
        self.emit(Op::Move, to, from, 0)
    }

    /// The last instruction, if it computes a value and nothing jumps past it.
    fn just_computed(&mut self) -> Option<&mut Instruction> {
        let computes = |i: &&mut Instruction| i.op.is_pure() || matches!(i.op, Op::Load | Op::Draw);
        let always = self.landed < self.code.instructions.len();
        self.code.instructions.last_mut().filter(|_| always).filter(computes)
    }

    fn value_into(&mut self, tree: &Tree, to: u32) -> Compiled<()> {
        let value = self.tree(tree, Some(to))?;
        self.put(value, to)
    }

    // Addresses.

    /// The address of `base` plus terms of registers and slots.
    fn address(&mut self, base: usize, terms: Vec<Offset>, span: Span) -> Compiled<u32> {
        let mut base = base;
        let mut moving = Vec::new();
        for term in terms {
            match term {
                Offset::Fixed(offset) => base += offset,
                Offset::Moving(term) => moving.push(term),
            }
        }
        let key = (base as u32, moving);
        if let Some(address) = self.addresses.get(&key) {
            return Ok(*address);
        }
        if self.code.addresses.len() >= MAX_ADDRESSES {
            return Err(Fault::at(span, format!("the program has more than {MAX_ADDRESSES} computed addresses")));
        }
        let first = self.code.terms.len() as u32;
        self.code.terms.extend(&key.1);
        self.code.addresses.push(Address { base: key.0, first, end: self.code.terms.len() as u32, span });
        let address = self.code.addresses.len() as u32 - 1;
        self.addresses.insert(key, address);
        Ok(address)
    }

    /// What a variable adds to an address.
    fn term(&self, variable: usize, stride: usize) -> Offset {
        match self.scope[variable] {
            Bound::Object(object) => Offset::Fixed(object * stride),
            Bound::Register(register) => {
                Offset::Moving(Term { from: From::Register(register), stride: stride as u32, count: 0 })
            }
        }
    }

    // Trees.

    /// The value of a tree. It may be written to `into` on the way, or anywhere else.
    fn tree(&mut self, tree: &Tree, into: Option<u32>) -> Compiled<Operand> {
        match &tree.node {
            Node::Number(value) => Ok(Operand::Constant(*value)),
            Node::Variable(place) => match self.scope[*place] {
                Bound::Object(object) => Ok(Operand::Constant(object as f64)),
                Bound::Register(register) => self.once(Op::Index, register, 0).map(Operand::Slot),
            },
            Node::Fluent { slot, indices } => self.fluent(*slot, indices, tree.span),
            Node::Apply1(op, a) => {
                let a = self.tree(a, None)?;
                self.compute(*op, a, a)
            }
            Node::Apply2(op, parts) => match op {
                Op::And | Op::Or | Op::Implies => self.logic(*op, parts, into),
                Op::Multiply | Op::MultiplyInt => self.product(*op, parts, into),
                _ => {
                    let (a, b) = (self.tree(&parts[0], None)?, self.tree(&parts[1], None)?);
                    self.arithmetic(*op, a, b)
                }
            },
            Node::If(parts) => self.conditional(parts, into),
            Node::Switch(subject, cases, takes) => self.switch(subject, cases, takes, into),
            Node::Aggregate(op, counts, body) => match self.unrolls(counts, body) {
                true => self.unrolled(*op, counts, body, into),
                false => self.loop_over(*op, counts, body),
            },
            Node::Draw(law, arguments, site) => {
                let mut slots = [0; 2];
                for (slot, argument) in slots.iter_mut().zip(arguments) {
                    let value = self.tree(argument, None)?;
                    *slot = self.slot(value);
                }
                let second = if arguments.len() > 1 { slots[1] } else { slots[0] };
                self.draw(What::Law(*law, slots[0], second), *site, tree.span)
            }
            Node::Discrete(probabilities, site) => {
                let first = self.values.len() as u32;
                self.values.resize(self.values.len() + probabilities.len(), 0.0);
                for (place, probability) in probabilities.iter().enumerate() {
                    self.value_into(probability, first + place as u32)?;
                }
                let count = probabilities.len() as u32;
                self.draw(What::Discrete { first, count, normalised: site.normalised }, *site, tree.span)
            }
            Node::DiscreteOver(variable, count, body, site) => {
                let first = self.values.len();
                self.values.resize(first + count, 0.0);
                match self.unrolls(&[*count], body) {
                    true => {
                        for object in 0..*count {
                            self.scope.push(Bound::Object(object));
                            self.counts.push(*count);
                            let done = self.value_into(body, (first + object) as u32);
                            self.scope.pop();
                            self.counts.pop();
                            done?;
                        }
                    }
                    false => self.looped(&[*count], &mut |compiler| {
                        let value = compiler.tree(body, None)?;
                        let value = compiler.slot(value);
                        let address = compiler.address(first, vec![compiler.term(*variable, 1)], tree.span)?;
                        compiler.emit(Op::Store, 0, address, value)
                    })?,
                }
                let what = What::Discrete { first: first as u32, count: *count as u32, normalised: site.normalised };
                self.draw(what, *site, tree.span)
            }
        }
    }

    fn fluent(&mut self, slot: usize, indices: &[(Index, usize)], span: Span) -> Compiled<Operand> {
        let counts: Vec<usize> = indices.iter().map(|(_, count)| *count).collect();
        let stride = strides(&counts);
        let mut terms = Vec::with_capacity(indices.len());
        for ((index, count), stride) in indices.iter().zip(stride) {
            terms.push(match index {
                Index::Constant(object) => Offset::Fixed(object * stride),
                Index::Variable(place) => self.term(*place, stride),
                Index::Computed(tree) => match self.tree(tree, None)? {
                    Operand::Constant(object) => Offset::Fixed(object as usize * stride),
                    Operand::Slot(from) => {
                        let (stride, count) = (stride as u32, *count as u32);
                        Offset::Moving(Term { from: From::Slot(from), stride, count })
                    }
                },
            });
        }
        let fixed = terms.iter().try_fold(slot, |slot, term| match term {
            Offset::Fixed(offset) => Some(slot + offset),
            Offset::Moving(_) => None,
        });
        match fixed {
            Some(slot) if slot >= self.fixed => {
                Ok(Operand::Constant(self.model.values.get(slot).copied().unwrap_or(f64::NAN)))
            }
            Some(slot) => Ok(Operand::Slot(slot as u32)),
            None => {
                let address = self.address(slot, terms, span)?;
                self.once(Op::Load, address, 0).map(Operand::Slot)
            }
        }
    }

    fn draw(&mut self, what: What, site: Site, span: Span) -> Compiled<Operand> {
        let stride = strides(&self.counts);
        let terms = (0..self.scope.len()).map(|i| self.term(i, stride[i])).collect();
        let index = self.address(0, terms, span)?;
        self.code.sites.push(DrawSite { what, cpf: self.cpf, number: site.number, index, span });
        let to = self.temporary();
        self.emit(Op::Draw, to, self.code.sites.len() as u32 - 1, 0)?;
        Ok(Operand::Slot(to))
    }

    // Operators.

    /// Leaves out what changes nothing.
    fn arithmetic(&mut self, op: Op, a: Operand, b: Operand) -> Compiled<Operand> {
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

    /// Leaves the second operand unevaluated where the first decides.
    fn logic(&mut self, op: Op, parts: &[Tree; 2], into: Option<u32>) -> Compiled<Operand> {
        let [mut first, mut second] = [&parts[0], &parts[1]];
        if op != Op::Implies && (second.touchy, second.size) < (first.touchy, first.size) {
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
        if !second.touchy && second.size < HEAVY {
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

    fn product(&mut self, op: Op, parts: &[Tree; 2], into: Option<u32>) -> Compiled<Operand> {
        // The factor that pyRDDLGym looks at first: a plain one on the right, else the left one.
        let plain = matches!(parts[1].node, Node::Number(_) | Node::Variable(_) | Node::Fluent { .. });
        let (first, second) = if plain { (&parts[1], &parts[0]) } else { (&parts[0], &parts[1]) };
        let first = self.tree(first, None)?;
        match first {
            Operand::Constant(0.0) => return Ok(Operand::Constant(0.0)),
            Operand::Constant(1.0) => return self.tree(second, into),
            _ => {}
        }
        if let (Operand::Slot(factor), true) = (first, second.touchy || second.size > 4 * HEAVY) {
            let to = into.unwrap_or_else(|| self.temporary());
            self.emit(Op::Move, to, factor, 0)?;
            let over = self.jump(Op::JumpIfZero, factor)?;
            let mark = self.journal.len();
            let second = self.tree(second, None)?;
            let value = self.compute(op, first, second)?;
            self.put(value, to)?;
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

    fn conditional(&mut self, parts: &[Tree; 3], into: Option<u32>) -> Compiled<Operand> {
        let [condition, then, otherwise] = parts;
        let condition = match self.tree(condition, None)? {
            Operand::Constant(0.0) => return self.tree(otherwise, into),
            Operand::Constant(_) => return self.tree(then, into),
            Operand::Slot(condition) => condition,
        };
        let light = |tree: &Tree| !tree.touchy && tree.size <= 1;
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

    fn switch(&mut self, subject: &Tree, cases: &[Tree], takes: &[usize], into: Option<u32>) -> Compiled<Operand> {
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

    // Loops.

    /// Emits loops over variables, the last innermost, around what `body` emits.
    fn looped(&mut self, counts: &[usize], body: &mut dyn FnMut(&mut Self) -> Compiled<()>) -> Compiled<()> {
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

    /// Whether to unroll: short loops, while the program is not too long already.
    fn unrolls(&self, counts: &[usize], body: &Tree) -> bool {
        self.code.instructions.len() < MAX_CODE / 2 && unrolled(counts, body).is_some()
    }

    fn loop_over(&mut self, op: Aggregate, counts: &[usize], body: &Tree) -> Compiled<Operand> {
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
        let count = counts.iter().product::<usize>() as f64;
        let value = self.slot(value);
        let count = self.slot(Operand::Constant(count));
        let mean = self.temporary();
        self.emit(Op::Divide, mean, value, count)?;
        Ok(Operand::Slot(mean))
    }

    fn unrolled(&mut self, op: Aggregate, counts: &[usize], body: &Tree, into: Option<u32>) -> Compiled<Operand> {
        let rounds = counts.iter().product::<usize>();
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

    /// One round of an unrolled loop; gives whether the value is settled.
    fn round(&mut self, state: &mut Unrolled, round: usize, body: &Tree) -> Compiled<bool> {
        let quantifier = match state.op {
            Aggregate::Forall => Some((Op::And, 0.0, Op::JumpIfZero)),
            Aggregate::Exists => Some((Op::Or, 1.0, Op::JumpUnlessZero)),
            _ => None,
        };
        if let Some((op, settled, exit)) = quantifier {
            let jumps = body.touchy || body.size >= HEAVY;
            if !jumps {
                let value = self.tree(body, None)?;
                let total = state.total.unwrap_or(Operand::Constant(1.0 - settled));
                let total = self.arithmetic(op, total, value)?;
                state.total = Some(total);
                return Ok(total == Operand::Constant(settled));
            }
            let to = *state.to.get_or_insert_with(|| {
                self.values.push(0.0);
                (self.values.len() - 1) as u32
            });
            let value = self.tree(body, Some(to))?;
            match value {
                Operand::Constant(value) if value == settled && state.exits.is_empty() => {
                    state.total = Some(Operand::Constant(settled));
                    return Ok(true);
                }
                Operand::Constant(value) if value != settled => return Ok(false),
                _ => {}
            }
            self.put(value, to)?;
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

/// An unrolled loop on its way.
struct Unrolled {
    op: Aggregate,
    total: Option<Operand>,
    /// The place of the best so far.
    place: Operand,
    exits: Vec<usize>,
    to: Option<u32>,
}

/// A part of an address.
enum Offset {
    Fixed(usize),
    Moving(Term),
}

/// Row-major strides.
fn strides(counts: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; counts.len()];
    for i in (1..counts.len()).rev() {
        strides[i - 1] = strides[i] * counts[i];
    }
    strides
}

/// The objects of the grounding with this row-major index.
fn objects_at(counts: &[usize], index: usize) -> Vec<Bound> {
    strides(counts).iter().zip(counts).map(|(stride, count)| Bound::Object(index / stride % count)).collect()
}
