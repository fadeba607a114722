//! One function per command, which calls the library and prints the result.

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

use std::path::Path;

use anyhow::bail;

fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a plain table with headings.
fn print_table(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings.iter());
    table.add_rows(rows);
    println!("{table}");
}

/// Returns an error if the output of an option already exists.
fn refuse_existing(option: &str, out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        let remedy = if out.is_dir() { "folder, or continue a run with `prudence resume`" } else { "name" };
        bail!("{option} {}: already exists; choose another {remedy}", out.display());
    }
    Ok(())
}
