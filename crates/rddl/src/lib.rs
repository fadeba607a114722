//! RDDL, the Relational Dynamic Influence Diagram Language: from text to a typed program to a simulator.
//!
//! A tour in the order in which data flows: `parser` (on top of `lexer`; the grammar is in `blocks` and `expressions`)
//! turns [`Source`]s into a syntax tree, `ast`. `model` resolves the declarations: types with objects, pvariables with
//! slots in one array of numbers and their initial values. `check` resolves names and types in every expression and
//! produces a `tree`; `order` sorts the cpfs. `compile` turns trees into the bytecode in `code` that a step runs;
//! `bounds` derives bounds from preconditions and invariants. [`Program`] holds the result, and a [`Simulator`] runs it
//! with random [`Draws`].
//!
//! Values, steps and names are those of pyRDDLGym 2.7; `tests/rddl-conformance` compares the two. Known differences:
//! - Zero times a number that is not finite is zero. In pyRDDLGym it is zero only if the first factor is zero for all
//!   objects in scope at once, and NaN otherwise.
//! - Types are checked once, before the first step, also in branches that are never taken.
//! - Extensions: numbers such as `1e-3`, unary `+` anywhere, integers as discount, blocks and files in any order.
//! - Not supported: external functions, matrix algebra, random vectors, policy blocks, `terminate-when`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ast;
mod blocks;
mod bounds;
mod check;
mod code;
mod compile;
mod distributions;
mod draws;
mod expressions;
mod lexer;
mod model;
mod order;
mod parser;
mod program;
mod simulator;
mod source;
mod special;
mod tree;

pub use distributions::Law;
pub use draws::{DrawKey, Draws, Keyed, Noiseless, Random};
pub use model::{Fluent, Kind, Range, Type};
pub use program::{Ground, Program};
pub use simulator::{SimulatedStep, Simulator};
pub use source::{Error, Place, Source};
