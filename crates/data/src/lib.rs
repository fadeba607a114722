//! Episodes, their labels, and the rules that label them.
//!
//! The tour, in the order data flows: an [`Episode`] is kept in a [`Store`] (Parquet shards and an index), which never
//! changes it again. Labels are appended beside it, in a [`LabelLog`]; they come from a [`Rule`] (by [`label_by_rule`]),
//! from a table ([`import_csv`]) or from people. [`split`] sets episodes aside for testing and [`gather`] turns the
//! labels of one side into the [`Segment`]s a safety model is trained on. Whatever is written goes through [`files`].

mod dataset;
mod episode;
mod error;
pub mod files;
mod labels;
pub mod rule;
mod schema;
mod segments;
mod shard;
mod store;

pub use dataset::{Dataset, find_stores, label_path};
pub use episode::Episode;
pub use error::Error;
pub use labels::{Label, LabelLog, import_csv, latest};
pub use rule::{Judge, Rule, RuleError};
pub use schema::Schema;
pub use segments::{Segment, gather, label_by_rule, split};
pub use store::Store;
