//! One function a command: arguments in, work called, result printed.

mod bench;
mod engines;
mod evaluate;
mod rddl;
mod rollout;
mod tasks;
mod train;

pub use bench::bench;
pub use engines::engines;
pub use evaluate::{eval, plot};
pub use rddl::rddl;
pub use rollout::rollout;
pub use tasks::tasks;
pub use train::{collect, fit, label, resume, run, train};

use crate::args::{AlgoName, Common};
use prudence_agent::Algorithm;

/// Algorithms of a list, each once, in the paper's order.
fn algorithms(names: &[AlgoName]) -> Vec<Algorithm> {
    let mut all: Vec<_> = names.iter().flat_map(|name| name.algorithms()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A pool of as many threads as asked for.
fn pool(common: &Common) -> anyhow::Result<rayon::ThreadPool> {
    let threads = common.threads.map_or(0, usize::from); // 0: the number of cores
    Ok(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?)
}

fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A plain table: headings, then rows.
fn print_table(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings.iter());
    table.add_rows(rows);
    println!("{table}");
}
