//! The command `prudence engines`.

use prudence_physics::engines::{Engines, Status, install_steps};

use super::{print_json, print_table};
use crate::args::{EnginesArgs, EnginesCommand};
use crate::progress::Progress;
use prudence::Progress as _;

pub fn engines(args: EnginesArgs) -> anyhow::Result<()> {
    let engines = Engines::from_environment().map_err(prudence::Error::from)?;
    match args.command.unwrap_or(EnginesCommand::Status { json: args.json }) {
        EnginesCommand::Status { json } => print(&engines.status(), json),
        EnginesCommand::Install { from, json, quiet } => {
            let progress = Progress::new(quiet);
            let bar = progress.begin("engines", install_steps());
            let changed = engines.install(from.as_deref(), &mut |step, what| {
                bar.set(step);
                bar.message(what);
            });
            let changed = changed.map_err(prudence::Error::from)?;
            drop(bar);
            if !changed {
                progress.say("all engines are already installed");
            }
            print(&engines.status(), json)
        }
    }
}

fn print(engines: &[Status], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&engines);
    }
    for status in engines {
        let state = if status.installed { "installed" } else { "not installed; run: prudence engines install" };
        println!("{} {} for {}: {state}", status.engine, status.version, status.tasks.join(", "));
        println!("{}", status.path.display());
        let row = |file: &prudence_physics::engines::FileStatus| {
            vec![file.file.to_owned(), file.problem.clone().unwrap_or_else(|| "ok".to_owned())]
        };
        print_table(&["file", ""], status.files.iter().map(row).collect());
    }
    Ok(())
}
