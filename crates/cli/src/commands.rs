//! One function per command: arguments in, the library called, its result printed.

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

/// A plain table: headings, then rows.
fn print_table(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings.iter());
    table.add_rows(rows);
    println!("{table}");
}

/// Refuses to write where something exists.
fn refuse_existing(option: &str, out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        let remedy = if out.is_dir() { "folder, or continue with `prudence resume` if it is a run's" } else { "name" };
        bail!("{option} {}: exists already; choose another {remedy}", out.display());
    }
    Ok(())
}
