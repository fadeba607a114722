//! Builds a program from texts: parses, checks, orders the cpfs and compiles.

use std::sync::Arc;

use crate::ast::{Expr, Files, Instance};
use crate::bounds::{Bounds, bounds};
use crate::check::{Checker, Reader};
use crate::code::{Code, Routine, What};
use crate::compile::Compiler;
use crate::distributions::Law;
use crate::model::{Fluent, Kind, Model, Range, Type, ground_name};
use crate::order::{CheckedCpf, check_cpfs};
use crate::parser;
use crate::source::{Error, Fault, Source};
use crate::tree::Tree;

/// The approximate number of instructions that a step may run, which takes a few seconds.
const MAX_WORK: u64 = 1_000_000_000;

/// The stack size of the thread that parses. The highest expression uses a tenth of it, and unused stack costs no
/// memory.
const STACK: usize = 64 << 20;

/// A domain with an instance, checked and compiled. It is immutable and can be shared between simulators.
#[derive(Debug)]
pub struct Program {
    pub(crate) sources: Arc<[Source]>,
    domain: String,
    instance: String,
    types: Vec<Type>,
    fluents: Vec<Fluent>,
    /// The values before the first step, then constants and temporaries.
    pub(crate) values: Vec<f64>,
    pub(crate) states: usize,
    pub(crate) actions: usize,
    /// The number of values that are pvariables.
    pub(crate) ground: usize,
    pub(crate) code: Code,
    pub(crate) step: Routine,
    /// The slot of a step's reward.
    pub(crate) reward: usize,
    pub(crate) terminations: Conditions,
    pub(crate) preconditions: Conditions,
    pub(crate) invariants: Conditions,
    bounds: Bounds,
    horizon: Option<u64>,
    discount: f64,
    max_nondef_actions: Option<u64>,
}

/// Conditions that are computed together, and the slots of their values.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub routine: Routine,
    pub slots: Vec<u32>,
}

/// A ground pvariable: a pvariable with its objects, which has one number in the array of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// The name in the format of pyRDDLGym: `fluent___object__object`.
    pub name: String,
    /// The role of the pvariable.
    pub kind: Kind,
    /// The values that it can take.
    pub range: Range,
    /// The index in [`crate::Simulator::values`].
    pub slot: usize,
    /// The value before the first step: the default, unless the instance gives another.
    pub initial: f64,
    /// The lower and the upper bound: from preconditions for an action, from invariants for a state, otherwise
    /// infinite.
    pub bounds: (f64, f64),
}

impl Program {
    /// Loads a domain, an instance and its non-fluents from one or more texts, in any order.
    pub fn load(sources: &[Source]) -> Result<Program, Error> {
        // On a separate thread, so that no text can exhaust the caller's stack, however small it is.
        let built = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let reading = thread.spawn_scoped(scope, || Program::build(sources));
            reading.map(|reading| reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let built = built.unwrap_or_else(|error| Err(Fault::general(format!("cannot start a thread: {error}"))));
        built.map_err(|fault| fault.show(sources))
    }

    fn build(sources: &[Source]) -> Result<Program, Fault> {
        let files = parser::parse(sources)?;
        let model = Model::new(&files)?;
        let Files { domain: Some(domain), instance: Some(instance), .. } = &files else {
            return Err(Fault::general("expected a domain block and an instance block"));
        };
        let Some(reward) = &domain.reward else {
            return Err(Fault::at(domain.name.span, "the domain has no section `reward`"));
        };
        let cpfs = check_cpfs(&model, &domain.cpfs)?;
        let check = |reader, range, expr: &Expr| {
            Checker::new(&model, reader, Vec::new()).run(expr, range).map(|(tree, _)| tree)
        };
        let conditions = |reader, exprs: &[Expr]| -> Result<Vec<Tree>, Fault> {
            exprs.iter().map(|expr| check(reader, Range::Bool, expr)).collect()
        };
        let reward = check(Reader::Reward, Range::Real, reward)?;
        let terminations = conditions(Reader::Termination, &domain.terminations)?;
        let preconditions = conditions(Reader::Precondition, &domain.preconditions)?;
        let invariants = conditions(Reader::Invariant, &domain.invariants)?;
        let scalars = [&terminations, &preconditions, &invariants].into_iter().flatten().chain([&reward]);
        check_work(&model, &cpfs, scalars)?;

        let mut compiler = Compiler::new(&model);
        let bounds = bounds(&model, &mut compiler, &preconditions, &invariants)?;
        let mut reward_slot = 0;
        let step = compiler.routine(|compiler| {
            for cpf in &cpfs {
                let fluent = &model.fluents[cpf.fluent];
                let slot = if fluent.kind == Kind::State { fluent.next } else { fluent.slot };
                let counts: Vec<usize> = fluent.parameters.iter().map(|t| model.types[*t].objects.len()).collect();
                compiler.cpf(&fluent.name, slot, &counts, &cpf.tree)?;
            }
            reward_slot = compiler.scalar("reward", &reward)?;
            Ok(())
        })?;
        let terminations = compile_conditions(&mut compiler, &terminations)?;
        let preconditions = compile_conditions(&mut compiler, &preconditions)?;
        let invariants = compile_conditions(&mut compiler, &invariants)?;
        let Compiler { code, values, .. } = compiler;
        let (horizon, discount) = horizon_and_discount(instance)?;
        Ok(Program {
            sources: sources.into(),
            domain: domain.name.text.clone(),
            instance: instance.name.text.clone(),
            values,
            states: model.states,
            actions: model.actions,
            ground: model.values.len(),
            code,
            step,
            reward: reward_slot as usize,
            terminations,
            preconditions,
            invariants,
            bounds,
            horizon,
            discount,
            max_nondef_actions: instance.max_nondef_actions.filter(|n| n.is_finite()).map(|n| n as u64),
            types: model.types,
            fluents: model.fluents,
        })
    }

    /// The name of the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The name of the instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The types and their objects, in order; the number in [`Range::Object`] is an index into them.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The objects of a type, given by its index in [`Program::types`].
    pub fn objects(&self, of: usize) -> &[String] {
        self.types.get(of).map_or(&[], |of| &of.objects)
    }

    /// All pvariables, in the order of the text.
    pub fn fluents(&self) -> &[Fluent] {
        &self.fluents
    }

    /// The groundings of all pvariables of a kind, in the order of the text and, within each, row-major. For actions
    /// this is the order in which [`crate::Simulator::step`] takes them.
    pub fn ground(&self, kind: Kind) -> Vec<Ground> {
        let fluents = self.fluents.iter().filter(|fluent| fluent.kind == kind);
        let all = fluents.flat_map(|fluent| (0..fluent.count).map(move |index| (fluent, index)));
        let ground = all.map(|(fluent, index)| Ground {
            name: ground_name(fluent, index, &self.types),
            kind,
            range: fluent.range,
            slot: fluent.slot + index,
            initial: self.values.get(fluent.slot + index).copied().unwrap_or(0.0),
            bounds: self.bounds.of(fluent.slot + index),
        });
        ground.collect()
    }

    /// The number of steps after which an episode ends, if it is finite.
    pub fn horizon(&self) -> Option<u64> {
        self.horizon
    }

    /// The discount factor; 1 if the instance gives none.
    pub fn discount(&self) -> f64 {
        self.discount
    }

    /// How many actions may differ from their defaults in a step; `None` for any number.
    pub fn max_nondef_actions(&self) -> Option<u64> {
        self.max_nondef_actions
    }

    /// The number of instructions in the program.
    pub fn instructions(&self) -> usize {
        self.code.instructions.len()
    }

    /// Returns an error if the program has a distribution other than Normal, which [`crate::Noiseless`] does not
    /// support.
    pub fn check_noiseless(&self) -> Result<(), Error> {
        let noisy = self.code.sites.iter().find_map(|site| match site.what {
            What::Law(Law::Normal, ..) => None,
            What::Law(law, ..) => Some((law.name(), site.span)),
            What::Discrete { .. } => Some(("Discrete", site.span)),
        });
        match noisy {
            None => Ok(()),
            Some((name, span)) => {
                let message = format!("only Normal can be simulated without noise (it gives its mean), not {name}");
                Err(Fault::at(span, message).show(&self.sources))
            }
        }
    }

    /// Whether any step draws a random number.
    pub fn is_random(&self) -> bool {
        !self.code.sites.is_empty()
    }
}

fn check_work<'a>(model: &Model, cpfs: &[CheckedCpf], scalars: impl Iterator<Item = &'a Tree>) -> Result<(), Fault> {
    let cpfs = cpfs.iter().map(|cpf| (model.fluents[cpf.fluent].count as u64, &cpf.tree));
    let mut total = 0u64;
    for (count, tree) in cpfs.chain(scalars.map(|tree| (1, tree))) {
        let work = count.saturating_mul(tree.work.saturating_add(1));
        total = total.saturating_add(work);
        if total > MAX_WORK {
            let message = format!(
                "a step would take about {total} operations, {work} of them here; at most {MAX_WORK} are allowed"
            );
            return Err(Fault::at(tree.span, message));
        }
    }
    Ok(())
}

fn compile_conditions(compiler: &mut Compiler<'_>, trees: &[Tree]) -> Result<Conditions, Fault> {
    let mut slots = Vec::with_capacity(trees.len());
    let routine = compiler.routine(|compiler| {
        for tree in trees {
            slots.push(compiler.scalar("", tree)?);
        }
        Ok(())
    })?;
    Ok(Conditions { routine, slots })
}

fn horizon_and_discount(instance: &Instance) -> Result<(Option<u64>, f64), Fault> {
    let horizon = match instance.horizon {
        None => None,
        Some((steps, _)) if steps.is_infinite() => None,
        Some((steps, _)) if steps.fract() == 0.0 => Some(steps as u64),
        Some((_, span)) => return Err(Fault::at(span, "expected a whole number of steps")),
    };
    let discount = match instance.discount {
        None => 1.0,
        Some((discount, _)) if discount.is_finite() => discount,
        Some((_, span)) => return Err(Fault::at(span, "expected a finite number")),
    };
    Ok((horizon, discount))
}
