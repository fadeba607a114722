//! `prudence tasks`.

use prudence_env::MakeEnv as _;

use super::{print_json, print_table};
use crate::args::TasksArgs;
use crate::config::{Config, TASKS, resolve};

pub fn tasks(args: TasksArgs) -> anyhow::Result<()> {
    if let Some(task) = args.task {
        let config = resolve(&task, &[], &[])?;
        if args.json {
            return print_json(&config);
        }
        let env = config.env.build()?;
        let spec = env.spec();
        println!(
            "# observation: {} numbers; action: {} numbers; horizon: {} steps",
            spec.observation.dim(),
            spec.action.dim(),
            spec.horizon
        );
        println!("# signals a rule may use: {}", spec.signals.join(", "));
        println!("{}", config.to_toml()?.trim_end());
        return Ok(());
    }
    let configs: Result<Vec<Config>, _> = TASKS.iter().map(|(name, _)| resolve(name, &[], &[])).collect();
    let configs = configs?;
    if args.json {
        return print_json(&configs);
    }
    let rows = configs.into_iter().map(|c| vec![c.name, c.rule, c.summary]).collect();
    print_table(&["task", "rule", ""], rows);
    Ok(())
}
