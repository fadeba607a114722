//! Checked expressions: names and types are resolved, ready to be compiled.

use crate::ast::Aggregate;
use crate::code::Op;
use crate::distributions::Law;
use crate::model::Range;
use crate::source::Span;

/// The maximum size of the code of an unrolled loop.
pub(crate) const MAX_UNROLLED: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Tree {
    pub node: Node,
    pub range: Range,
    pub span: Span,
    /// The approximate number of instructions that this becomes.
    pub size: u64,
    /// The approximate number of instructions that run to evaluate it.
    pub work: u64,
    /// Whether the evaluation may fail or draw, so that it must not be evaluated unless it is needed.
    pub impure: bool,
}

/// How one argument of a fluent selects a grounding.
#[derive(Debug)]
pub(crate) enum Index {
    Constant(usize),
    Variable(usize),
    Computed(Box<Tree>),
}

#[derive(Debug)]
pub(crate) enum Node {
    Number(f64),
    /// A variable, by its index in the scope: the parameters of the cpf, then the variables of the enclosing
    /// aggregations, outermost first.
    Variable(usize),
    /// The slot of the first grounding and, for each argument, its index and the number of objects of its type.
    Fluent {
        slot: usize,
        indices: Vec<(Index, usize)>,
    },
    Apply1(Op, Box<Tree>),
    Apply2(Op, Box<[Tree; 2]>),
    If(Box<[Tree; 3]>),
    /// The subject, the cases, and the number of the case for each value of the subject.
    Switch(Box<Tree>, Vec<Tree>, Vec<usize>),
    /// An aggregation over the last variables in the scope, with the number of objects of each.
    Aggregate(Aggregate, Vec<usize>, Box<Tree>),
    Draw(Law, Vec<Tree>, Site),
    /// The probabilities of the values.
    Discrete(Vec<Tree>, Site),
    /// A Discrete over one variable of the scope: its index and number of objects.
    DiscreteOver(usize, usize, Box<Tree>, Site),
}

/// The number of a distribution within its cpf, in the order of the text, and whether its probabilities must sum to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub number: u32,
    pub normalised: bool,
}

impl Tree {
    pub fn new(node: Node, range: Range, span: Span) -> Tree {
        let sum = |parts: &mut dyn Iterator<Item = &Tree>| {
            parts.fold((1u64, 1u64, false), |(size, work, impure), t| {
                (size.saturating_add(t.size), work.saturating_add(t.work), impure || t.impure)
            })
        };
        let (size, work, impure) = match &node {
            Node::Number(_) | Node::Variable(_) => (0, 0, false),
            Node::Fluent { indices, .. } => {
                let mut computed = indices.iter().filter_map(|(index, _)| match index {
                    Index::Computed(tree) => Some(&**tree),
                    _ => None,
                });
                let any = indices.iter().any(|(index, _)| matches!(index, Index::Computed(_)));
                let (size, work, _) = sum(&mut computed);
                (size, work, any)
            }
            Node::Apply1(_, a) => sum(&mut std::iter::once(&**a)),
            Node::Apply2(_, parts) => sum(&mut parts.iter()),
            Node::If(parts) => sum(&mut parts.iter()),
            Node::Switch(subject, cases, _) => sum(&mut std::iter::once(&**subject).chain(cases)),
            Node::Aggregate(_, counts, body) => over(counts, body),
            Node::Draw(_, arguments, _) | Node::Discrete(arguments, _) => {
                let (size, work, _) = sum(&mut arguments.iter());
                (size.saturating_add(arguments.len() as u64), work.saturating_add(8), true)
            }
            Node::DiscreteOver(_, count, body, _) => {
                let (size, work, _) = over(&[*count], body);
                (size, work, true)
            }
        };
        Tree { node, range, span, size, work, impure }
    }
}

fn over(counts: &[usize], body: &Tree) -> (u64, u64, bool) {
    let rounds = rounds(counts);
    let work = rounds.saturating_mul(body.work.saturating_add(2));
    let unrolled = unrolled(counts, body);
    (unrolled.unwrap_or(body.size.saturating_add(8)), work, body.impure)
}

pub(crate) fn rounds(counts: &[usize]) -> u64 {
    counts.iter().fold(1u64, |n, count| n.saturating_mul(*count as u64))
}

/// The size of the code of an unrolled loop, if it is small enough to unroll.
pub(crate) fn unrolled(counts: &[usize], body: &Tree) -> Option<u64> {
    Some(rounds(counts).saturating_mul(body.size.saturating_add(1))).filter(|size| *size <= MAX_UNROLLED)
}
