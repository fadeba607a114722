//! The command `prudence bench`.

use prudence::{Task, TaskSettings, bench};

use super::{print_json, print_table};
use crate::args::BenchCommand;

pub fn bench(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Update { algo, hidden, batch, threads, population, device, precision, measure } => {
            let one = |algo| {
                let [hidden, batch, population, threads] = [hidden, batch, population, threads].map(|x| x as usize);
                let sizes = bench::UpdateSizes { algo, hidden, batch, population, threads };
                bench::update(&sizes, device.name(), precision.precision(), measure.seconds)
            };
            let lines = algo.algorithms().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
            if measure.json {
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
                    format!("{:.3}", line.milliseconds),
                    format!("{:.0} %", 100.0 * line.per_second / line.floor_per_second),
                ]
            };
            let headings =
                ["algorithm", "hidden", "batch", "population", "threads", "updates/s", "ms/update", "of the peak"];
            print_table(&headings, lines.iter().map(row).collect());
        }
        BenchCommand::Fit { batch, steps, observation, action, models, warm_steps, device, measure } => {
            let [batch, steps, models] = [batch, steps, models].map(|x| x as usize);
            let inputs = (observation as usize, action as usize);
            let sizes = bench::FitSizes { batch, steps, models, inputs, warm_steps };
            let line = bench::fit(&sizes, device.name(), measure.seconds)?;
            if measure.json {
                return print_json(&[line]);
            }
            let sizes = format!("{} + {}", line.sizes.0, line.sizes.1);
            let row = vec![
                line.batch.to_string(),
                line.steps.to_string(),
                line.models.to_string(),
                sizes,
                format!("{:.2}", line.milliseconds),
            ];
            print_table(&["segments", "steps", "models", "inputs", "ms/step of the fit"], vec![row]);
        }
        BenchCommand::Act { hidden, ensemble, population, device, measure } => {
            let [hidden, ensemble, population] = [hidden, ensemble, population].map(|x| x as usize);
            let line = bench::act(hidden, ensemble, population, device.name(), measure.seconds)?;
            if measure.json {
                return print_json(&[line]);
            }
            let row = vec![
                format!("{0}/{0}", line.hidden),
                line.ensemble.to_string(),
                line.population.to_string(),
                format!("{:.0}", line.per_second),
                format!("{:.1}", line.microseconds),
            ];
            print_table(&["hidden", "ensemble", "population", "steps/s", "microseconds"], vec![row]);
        }
        BenchCommand::Train { task, set, config, algo, population, device, threads, measure } => {
            let task = Task::new(TaskSettings::resolve(&task, &config, &set)?)?;
            let threads = threads.map_or(0, usize::from);
            let one = |algo| bench::train(&task, algo, population as usize, device.name(), threads, measure.seconds);
            let lines = algo.algorithms().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
            if measure.json {
                return print_json(&lines);
            }
            let row = |line: &bench::TrainBench| {
                vec![
                    line.task.clone(),
                    line.algo.name().into(),
                    line.population.to_string(),
                    format!("{:.3}", line.milliseconds),
                    format!("{:.3}", line.without_updates),
                    format!("{:.0}", line.per_second),
                ]
            };
            let headings = ["task", "algorithm", "population", "ms/step", "without updates", "agent steps/s"];
            print_table(&headings, lines.iter().map(row).collect());
        }
        BenchCommand::Env { task, set, config, measure } => {
            let task = Task::new(TaskSettings::resolve(&task, &config, &set)?)?;
            let line = bench::env(task.name(), &mut *task.make_env()?, measure.seconds)?;
            if measure.json {
                return print_json(&[line]);
            }
            let mut row = vec![line.task, format!("{:.0}", line.per_second), format!("{:.3}", line.microseconds)];
            let mut headings = vec!["task", "steps/s", "microseconds"];
            if let Some(bare) = line.bare_microseconds {
                row.push(format!("{bare:.3}"));
                headings.push("engine microseconds");
            }
            print_table(&headings, vec![row]);
        }
    }
    Ok(())
}
