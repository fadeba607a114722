//! `prudence bench`.

use prudence_agent::bench;
use prudence_env::MakeEnv as _;

use super::{print_json, print_table};
use crate::args::BenchCommand;
use crate::config;

/// About this long on each measurement.
const SECONDS: f64 = 3.0;

pub fn bench(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Update { algo, hidden, batch, threads, population, json } => {
            let size = |x: u64| x as usize;
            let lines: Vec<_> = algo
                .algorithms()
                .into_iter()
                .map(|algo| bench::update(algo, size(hidden), size(batch), size(population), size(threads), SECONDS))
                .collect();
            if json {
                return print_json(&lines);
            }
            let row = |line: &bench::UpdateBench| {
                vec![
                    line.algo.name().to_owned(),
                    format!("{0}/{0}", line.hidden),
                    line.batch.to_string(),
                    line.population.to_string(),
                    line.threads.to_string(),
                    format!("{:.0}", line.per_second),
                    format!("{:.3}", 1e3 * line.threads as f64 / line.per_second),
                    format!("{:.0} %", 100.0 * line.per_second / line.floor_per_second),
                ]
            };
            let headings =
                ["algorithm", "hidden", "batch", "population", "threads", "updates/s", "ms/update", "of the peak"];
            print_table(&headings, lines.iter().map(row).collect());
        }
        BenchCommand::Act { hidden, json } => {
            let line = bench::act(hidden as usize, SECONDS);
            if json {
                return print_json(&[line]);
            }
            let row = vec![
                format!("{0}/{0}", line.hidden),
                format!("{:.0}", line.per_second),
                format!("{:.1}", line.microseconds),
            ];
            print_table(&["hidden", "steps/s", "microseconds"], vec![row]);
        }
        BenchCommand::Env { task, set, config, json } => {
            let config = config::resolve(&task, &config, &set)?;
            let line = bench::env(&config.name, &mut *config.env.build()?, SECONDS)?;
            if json {
                return print_json(&[line]);
            }
            let mut row = vec![line.task, format!("{:.0}", line.per_second), format!("{:.3}", line.microseconds)];
            let mut headings = vec!["task", "steps/s", "microseconds"];
            if let Some(bare) = line.bare_microseconds {
                row.push(format!("{bare:.3}"));
                headings.push("of them the engine");
            }
            print_table(&headings, vec![row]);
        }
    }
    Ok(())
}
