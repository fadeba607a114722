//! The bounds of actions and states, derived from the preconditions and invariants.
//!
//! They are derived as in pyRDDLGym: through `forall` and conjunctions down to comparisons of one fluent with an
//! expression of non-fluents only. A strict bound is moved inwards by 1e-5, and all other conditions are ignored.
//! (Unlike in pyRDDLGym, a conjunction may also be written `&`.)

use crate::ast::Aggregate;
use crate::code::Op;
use crate::compile::Compiler;
use crate::model::{Kind, Model, Range};
use crate::source::Fault;
use crate::tree::{Index, Node, Tree};

const STRICT: f64 = 1e-5;

/// The total number of operations spent on conditions; those beyond it are ignored.
const MAX_WORK: u64 = 4_000_000;

/// The bounds of each state and action, by slot.
#[derive(Debug)]
pub(crate) struct Bounds {
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Bounds {
    pub fn of(&self, slot: usize) -> (f64, f64) {
        let get = |side: &[f64], open| side.get(slot).copied().unwrap_or(open);
        (get(&self.low, f64::NEG_INFINITY), get(&self.high, f64::INFINITY))
    }
}

pub(crate) fn bounds(
    model: &Model,
    compiler: &mut Compiler<'_>,
    preconditions: &[Tree],
    invariants: &[Tree],
) -> Result<Bounds, Fault> {
    let end = 2 * model.states + model.actions;
    let mut bounds = Bounds { low: vec![f64::NEG_INFINITY; end], high: vec![f64::INFINITY; end] };
    let mut budget = MAX_WORK;
    for (conditions, slots) in [(preconditions, 2 * model.states..end), (invariants, 0..model.states)] {
        for condition in conditions {
            let mut search = Search { compiler, bounds: &mut bounds, slots: slots.clone(), budget };
            search.condition(condition, &mut Vec::new())?;
            budget = search.budget;
        }
    }
    for fluent in model.fluents.iter().filter(|f| matches!(f.kind, Kind::State | Kind::Action)) {
        for slot in fluent.slot..fluent.slot + fluent.count {
            let (low, high) = match fluent.range {
                Range::Bool => (0.0, 1.0),
                Range::Object(of) => (0.0, model.types[of].objects.len().saturating_sub(1) as f64),
                Range::Int | Range::Real => bounds.of(slot),
            };
            if low > high {
                let message = format!("`{}` has no value within its bounds {low} and {high}", fluent.name);
                return Err(Fault::at(fluent.span, message));
            }
            (bounds.low[slot], bounds.high[slot]) = (low, high);
        }
    }
    Ok(bounds)
}

struct Search<'a, 'b> {
    compiler: &'a mut Compiler<'b>,
    bounds: &'a mut Bounds,
    /// The slots of the fluents whose bounds are searched for.
    slots: std::ops::Range<usize>,
    budget: u64,
}

impl Search<'_, '_> {
    /// `counts` holds the number of objects of each variable in scope.
    fn condition(&mut self, tree: &Tree, counts: &mut Vec<usize>) -> Result<(), Fault> {
        match &tree.node {
            Node::Aggregate(Aggregate::Forall, inner, body) => {
                let outer = counts.len();
                counts.extend(inner);
                self.condition(body, counts)?;
                counts.truncate(outer);
                Ok(())
            }
            Node::Apply2(Op::And, parts) => parts.iter().try_for_each(|part| self.condition(part, counts)),
            Node::Apply2(op @ (Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual), parts) => {
                let [left, right] = &**parts;
                let below = matches!(op, Op::Less | Op::LessOrEqual);
                let strict = matches!(op, Op::Less | Op::Greater);
                match (self.is_sought(left), self.is_sought(right)) {
                    (true, false) => self.comparison(left, right, below, strict, counts),
                    (false, true) => self.comparison(right, left, !below, strict, counts),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn is_sought(&self, tree: &Tree) -> bool {
        let Node::Fluent { slot, indices } = &tree.node else { return false };
        let simple = indices.iter().all(|(index, _)| !matches!(index, Index::Computed(_)));
        simple && self.slots.contains(slot)
    }

    /// Takes in that `fluent` is below (or above) `limit`, for all objects.
    fn comparison(
        &mut self,
        fluent: &Tree,
        limit: &Tree,
        below: bool,
        strict: bool,
        counts: &[usize],
    ) -> Result<(), Fault> {
        let Node::Fluent { slot, indices } = &fluent.node else { return Ok(()) };
        let groundings = counts.iter().fold(1u64, |n, count| n.saturating_mul(*count as u64));
        let Some(budget) = self.budget.checked_sub(groundings.saturating_mul(limit.work.saturating_add(1))) else {
            return Ok(());
        };
        self.budget = budget;
        let mut objects = vec![0; counts.len()];
        for _ in 0..groundings {
            let Some(limit) = self.compiler.constant(limit, &objects)? else { return Ok(()) };
            let place = indices.iter().fold(0, |place, (index, count)| {
                place * count
                    + match index {
                        Index::Constant(object) => *object,
                        Index::Variable(variable) => objects.get(*variable).copied().unwrap_or(0),
                        Index::Computed(_) => 0,
                    }
            });
            let inwards = if strict { STRICT } else { 0.0 };
            if below {
                tighten(&mut self.bounds.high, slot + place, |high| high.min(limit - inwards));
            } else {
                tighten(&mut self.bounds.low, slot + place, |low| low.max(limit + inwards));
            }
            for (object, count) in objects.iter_mut().zip(counts).rev() {
                *object += 1;
                if *object < *count {
                    break;
                }
                *object = 0;
            }
        }
        Ok(())
    }
}

fn tighten(side: &mut [f64], slot: usize, by: impl Fn(f64) -> f64) {
    if let Some(bound) = side.get_mut(slot) {
        *bound = by(*bound);
    }
}
