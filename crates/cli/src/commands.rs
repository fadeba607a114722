//! One function per command, which calls the library and prints the result.

mod bench;
mod data;
mod devices;
mod engines;
mod evaluate;
mod rddl;
mod rollout;
mod tasks;
mod train;

pub use bench::bench;
pub use data::data;
pub use devices::devices;
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
    if headings.iter().all(|heading| heading.is_empty()) {
        // A list of properties, whose values may be long.
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(80);
    }
    table.add_rows(rows);
    println!("{table}");
}

/// Returns an error if the file of an option already exists, unless it may be replaced.
fn refuse_existing(option: &str, file: &Path, force: bool) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{option} {}: a folder; expected the name of a file", file.display());
    }
    if file.exists() && !force {
        bail!("{option} {}: already exists; choose another name, or replace it with --force", file.display());
    }
    Ok(())
}
