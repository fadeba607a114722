//! `prudence rollout`: given actions, every step written down with full precision.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use prudence_data::files::{read_limited, write_atomic};
use prudence_env::MakeEnv as _;
use serde_json::{Map, Value, json};

use crate::args::RolloutArgs;
use crate::config::resolve;
use crate::folder::refuse_existing;

pub fn rollout(args: RolloutArgs) -> anyhow::Result<()> {
    let config = resolve(&args.task, &args.settings.configs, &args.settings.sets)?;
    refuse_existing(&args.out)?;
    let mut env = config.env.build()?;
    let actions = read_actions(&args.actions, env.spec().action.dim())?;
    let mut observation = vec![0.0; env.spec().observation.dim()];
    env.reset(args.seed, &mut observation)?;
    if let Some(path) = &args.state {
        let state: Value = serde_json::from_slice(&read_limited(path, 1 << 24)?)
            .map_err(|e| anyhow!("{}: not JSON: {e} (numbers must be finite; JSON has no NaN)", path.display()))?;
        env.set_state(&state, &mut observation).with_context(|| path.display().to_string())?;
    }
    let mut judge = config.parsed_rule()?.judge();
    let mut lines = String::new();
    writeln!(lines, "{}", json!({"t": 0, "observation": observation}))?;
    for (k, action) in actions.iter().enumerate() {
        let step =
            env.step(action, &mut observation).with_context(|| format!("{}, row {}", args.actions.display(), k + 1))?;
        judge.step(env.signals());
        let signals: Map<String, Value> =
            env.spec().signals.iter().cloned().zip(env.signals().iter().map(|x| json!(x))).collect();
        let line = json!({
            "t": k + 1,
            "action": action,
            "observation": observation,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "signals": signals,
            "state": env.state(),
            "safe": judge.safe(),
        });
        writeln!(lines, "{line}")?;
        if step.terminated || step.truncated {
            break;
        }
    }
    Ok(write_atomic(&args.out, lines.as_bytes())?)
}

fn read_actions(path: &Path, dim: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let text = String::from_utf8(read_limited(path, 1 << 28)?)
        .map_err(|_| anyhow!("{}: not UTF-8 text; expected CSV without a header", path.display()))?;
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}, row {}", path.display(), i + 1);
        let row: Result<Vec<f64>, _> = line
            .split(',')
            .map(|cell| cell.trim().parse().map_err(|_| anyhow!("{}: `{}` is not a number", place(), cell.trim())))
            .collect();
        let row = row?;
        if row.len() != dim {
            bail!("{}: {} numbers, expected {dim}, one a dimension of the action", place(), row.len());
        }
        if let Some(x) = row.iter().find(|x| !x.is_finite()) {
            bail!("{}: {x} is not a finite number", place());
        }
        rows.push(row);
    }
    Ok(rows)
}
