//! Episodes, their labels, and the rules that label them.
//!
//! A tour in the order in which data flows: a [`Store`] (Parquet shards and an index) keeps [`Episode`]s and never
//! changes them. Labels are appended to a separate [`LabelLog`]; they come from a [`Rule`] (through [`label_by_rule`]),
//! from a table ([`import_csv`]) or from people. A [`Dataset`] decodes stores once and splits their labels into the
//! [`Segment`]s that a safety model is trained or tested on. All writing goes through
//! [`files`].
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod dataset;
mod episode;
mod error;
pub mod files;
mod labels;
mod moments;
pub mod rule;
mod schema;
mod scratch;
mod segments;
mod shard;
mod store;
mod table;

pub use dataset::{Dataset, Segments, find_stores, label_path};
pub use episode::{Episode, Episodes, Steps};
pub use error::Error;
pub use labels::{Label, LabelLog, latest};
pub use moments::Moments;
pub use rule::{Judge, Rule, RuleError};
pub use schema::Schema;
pub use scratch::ScratchFile;
pub use segments::{Segment, gather, held_out_from, label_by_rule};
pub use store::Store;
pub use table::import_csv;
