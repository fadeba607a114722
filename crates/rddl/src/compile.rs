//! Compiles trees to instructions: unrolls short loops, folds constants, computes common subexpressions once, and jumps
//! over branches that are expensive or draw random numbers.
//!
//! Slots are written once per step (except accumulators and the results of branches), so a value can be reused wherever
//! it is certain to have been computed. Values computed inside a branch or a loop are not reused after its end.

mod branches;
mod loops;

use std::collections::HashMap;

use crate::code::{Address, Code, DrawSite, From, Instruction, Op, Routine, Term, What};
use crate::model::{Kind, Model};
use crate::source::{Fault, Span};
use crate::tree::{Index, Node, Site, Tree};

/// Limits on the program: its instructions, values and addresses, and the part of it that may come from unrolling the
/// groundings of one cpf and of all cpfs.
const MAX_CODE: usize = 4_000_000;
const MAX_VALUES: usize = 1 << 24;
const MAX_ADDRESSES: usize = 1_000_000;
const MAX_CPF: u64 = 1 << 16;
const MAX_UNROLLED_CPFS: u64 = 1 << 21;

/// From this size on, it pays to jump over an operand.
const HEAVY: u64 = 6;

/// A value during compilation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    Constant(f64),
    Slot(u32),
}

/// A variable in scope: a fixed object, or the object in an index register.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Object(usize),
    Register(u32),
}

type Compiled<T> = Result<T, Fault>;

pub(crate) struct Compiler<'a> {
    model: &'a Model,
    /// The slot of the first non-fluent; values from there on never change.
    fixed: usize,
    pub code: Code,
    /// The values of the model, then constants and temporaries.
    pub values: Vec<f64>,
    constants: HashMap<u64, u32>,
    /// The operations that have been computed already, and the order in which they were.
    known: HashMap<(Op, u32, u32), u32>,
    journal: Vec<(Op, u32, u32)>,
    addresses: HashMap<(u32, Vec<Term>), u32>,
    scope: Vec<Bound>,
    /// The number of objects of each variable in scope.
    counts: Vec<usize>,
    cpf: u32,
    budget: u64,
    /// The target of the last jump: the instruction before it may not have run.
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

    /// Compiles the instructions that `body` emits into a routine.
    pub fn routine(&mut self, body: impl FnOnce(&mut Self) -> Compiled<()>) -> Compiled<Routine> {
        self.forget(0);
        let start = self.code.instructions.len();
        self.landed = start;
        body(self)?;
        Ok(Routine { start, end: self.code.instructions.len() })
    }

    /// Compiles a cpf whose parameters have `counts` objects each, into the slots from `slot` on.
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

    /// Compiles an expression without parameters and returns the slot of its value.
    pub fn scalar(&mut self, name: &str, tree: &Tree) -> Compiled<u32> {
        self.cpf = self.code.names.len() as u32;
        self.code.names.push(name.to_owned());
        let to = self.temporary();
        self.value_into(tree, to)?;
        Ok(to)
    }

    /// The value of a tree for given objects, if it depends on non-fluents only.
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
        if self.code.instructions.len() >= MAX_CODE || self.values.len() >= MAX_VALUES {
            let message = format!("the program has more than {MAX_CODE} instructions or {MAX_VALUES} values");
            return Err(Fault::general(message));
        }
        self.code.instructions.push(Instruction { op, to, a, b });
        Ok(())
    }

    /// Emits a jump whose target comes later; see [`Self::land`].
    fn jump(&mut self, op: Op, on: u32) -> Compiled<usize> {
        self.emit(op, 0, on, 0)?;
        Ok(self.code.instructions.len() - 1)
    }

    /// Makes the current position the target of a jump.
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

    /// Emits a pure operation, unless it is constant or was computed before.
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

    /// Forgets the operations that were computed since the journal had this length.
    fn forget(&mut self, length: usize) {
        while self.journal.len() > length {
            if let Some(key) = self.journal.pop() {
                self.known.remove(&key);
            }
        }
    }

    /// Puts a value into a slot. If the instruction that has just computed it came after `since`, it is changed to
    /// write there directly; the value of an earlier instruction may be in use elsewhere.
    fn put(&mut self, value: Operand, to: u32, since: usize) -> Compiled<()> {
        if value == Operand::Slot(to) {
            return Ok(());
        }
        let first_free = self.model.values.len() as u32;
        let is_new = self.code.instructions.len() > since;
        if let (true, Operand::Slot(from), Some(last)) = (is_new, value, self.just_computed())
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

    /// The last instruction, if it computes a value and no jump skips it.
    fn just_computed(&mut self) -> Option<&mut Instruction> {
        let computes = |i: &&mut Instruction| i.op.is_pure() || matches!(i.op, Op::Load | Op::Draw);
        let always = self.landed < self.code.instructions.len();
        self.code.instructions.last_mut().filter(|_| always).filter(computes)
    }

    fn value_into(&mut self, tree: &Tree, to: u32) -> Compiled<()> {
        let since = self.code.instructions.len();
        let value = self.tree(tree, Some(to))?;
        self.put(value, to, since)
    }

    // Addresses.

    /// The address with this base and these terms.
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

    /// The contribution of a variable to an address.
    fn term(&self, variable: usize, stride: usize) -> Offset {
        match self.scope[variable] {
            Bound::Object(object) => Offset::Fixed(object * stride),
            Bound::Register(register) => {
                Offset::Moving(Term { from: From::Register(register), stride: stride as u32, count: 0 })
            }
        }
    }

    // Trees.

    /// Compiles a tree and returns its value, which may be in `into` or in any other slot.
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
            Node::Aggregate(op, counts, body) => {
                if self.unrolls(counts, body) {
                    self.unrolled(*op, counts, body, into)
                } else {
                    self.loop_over(*op, counts, body)
                }
            }
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
                if self.unrolls(&[*count], body) {
                    for object in 0..*count {
                        self.scope.push(Bound::Object(object));
                        self.counts.push(*count);
                        let done = self.value_into(body, (first + object) as u32);
                        self.scope.pop();
                        self.counts.pop();
                        done?;
                    }
                } else {
                    self.looped(&[*count], &mut |compiler| {
                        let value = compiler.tree(body, None)?;
                        let value = compiler.slot(value);
                        let address = compiler.address(first, vec![compiler.term(*variable, 1)], tree.span)?;
                        compiler.emit(Op::Store, 0, address, value)
                    })?;
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
}

/// The contribution of one index to an address.
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
