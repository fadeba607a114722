//! RDDL, the Relational Dynamic Influence Diagram Language: text to typed program to simulator. Knows nothing of learning.
//!
//! The tour, in the order data flows. [`Source`]s are read by `parser` (on `lexer`; the grammar is in `blocks` and `expressions`) into
//! what was written, `ast`. `model` makes the declarations good: types with objects, pvariables with slots in one array of
//! numbers and their initial values. `check` looks up names and types in every expression and gives a `tree`; `order`
//! sorts the cpfs. `compile` turns trees into the flat `code` that a step runs; `bounds` reads preconditions and
//! invariants. [`Program`] holds all of it, and a [`Simulator`] runs it, with [`Draws`] from `distributions`.
//!
//! Values, steps and names are those of pyRDDLGym 2.7; `tests/rddl-conformance` compares the two. Known differences:
//! - Zero times a number that is not finite is zero. In pyRDDLGym it is so where the first factor is zero for all objects
//!   in scope at once, and NaN otherwise.
//! - Types are checked once, before the first step, and branches that are never taken are checked, too.
//! - Beyond it: numbers such as `1e-3`, unary `+` anywhere, whole numbers as discount, blocks and files in any order.
//! - Refused: external functions, matrix algebra, random vectors, policy blocks, `terminate-when`.

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
pub use simulator::{Simulator, Step};
pub use source::{Error, Place, Source};
