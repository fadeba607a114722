//! `prudence tasks`.

use prudence_env::MakeEnv as _;

use super::{print_json, print_table};
use crate::args::TasksArgs;
use crate::config::{Config, TASKS, read};

pub fn tasks(args: TasksArgs) -> anyhow::Result<()> {
    if let Some(task) = args.task {
        let config = read(&task, &[], &[])?;
        let env = config.env.build();
        if !matches!(env, Err(prudence_env::Error::Engine(_))) {
            config.check()?; // a task whose engine is absent can still be shown
        }
        if args.json {
            return print_json(&config);
        }
        match env {
            Ok(env) => {
                let spec = env.spec();
                println!(
                    "# observation: {} numbers; action: {} numbers; horizon: {} steps",
                    spec.observation.dim(),
                    spec.action.dim(),
                    spec.horizon
                );
                println!("# signals a rule may use: {}", spec.signals.join(", "));
            }
            Err(absent) => println!("# {absent}"),
        }
        println!("{}", config.to_toml()?.trim_end());
        return Ok(());
    }
    let configs: Result<Vec<Config>, _> = TASKS.iter().map(|(name, _)| read(name, &[], &[])).collect();
    let configs = configs?;
    if args.json {
        return print_json(&configs);
    }
    let rows = configs.into_iter().map(|c| vec![c.name, c.rule, c.summary]).collect();
    print_table(&["task", "rule", ""], rows);
    Ok(())
}
