//! The command `prudence tasks`.

use prudence::{EnvError, Error, Task, TaskSettings, tasks};

use super::{print_json, print_table};
use crate::args::TasksArgs;

pub fn tasks(args: TasksArgs) -> anyhow::Result<()> {
    let Some(name) = args.task else { return list(args.json) };
    let settings = TaskSettings::resolve(&name, &[], &[])?;
    let task = match Task::new(settings.clone()) {
        Err(Error::Env(absent @ EnvError::Missing(_))) => Err(absent), // the settings can still be shown
        task => Ok(task?),
    };
    if args.json {
        return print_json(&settings);
    }
    match task {
        Ok(task) => {
            let spec = task.spec();
            println!(
                "# observation: {} dimensions; action: {} dimensions; horizon: {} steps",
                spec.observation.dim(),
                spec.action.dim(),
                spec.horizon
            );
            println!("# signals for rules: {}", spec.signals.join(", "));
        }
        Err(absent) => println!("# {absent}; run: prudence engines install"),
    }
    println!("{}", settings.to_toml()?.trim_end());
    Ok(())
}

fn list(json: bool) -> anyhow::Result<()> {
    let all = tasks::names().map(|name| TaskSettings::resolve(name, &[], &[])).collect::<Result<Vec<_>, _>>()?;
    if json {
        return print_json(&all);
    }
    let rows = all.into_iter().map(|task| vec![task.name, task.rule, task.summary]).collect();
    print_table(&["task", "rule", ""], rows);
    Ok(())
}
