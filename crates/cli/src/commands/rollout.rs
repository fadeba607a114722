//! The command `prudence rollout`: one episode of given actions or of a trained agent, written with full precision or
//! drawn.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use prudence::files::{read_limited, write_atomic};
use prudence::{Actions, Env, Error, Rollout, RolloutStep, Scene, Task, TaskSettings};
use prudence_report::film::{self, Pose};
use serde_json::{Map, Value, json};

use super::refuse_existing;
use crate::args::{PolicyName, RolloutArgs};

pub fn rollout(args: RolloutArgs) -> anyhow::Result<()> {
    args.out.iter().try_for_each(|file| refuse_existing("--out", file, args.force))?;
    args.render.iter().try_for_each(|file| refuse_existing("--render", file, args.force))?;
    if args.out.is_some() && args.out == args.render {
        bail!("--out and --render name the same file");
    }
    let draw = args.render.as_deref().map(|file| drawing("--render", file)).transpose()?;
    let Start { task, mut rollout, actions, rows } = start(&args)?;
    let mut lines = format!("{}\n", json!({"t": 0, "observation": rollout.observation()}));
    let mut poses = Vec::new();
    let (mut steps, mut total, mut safe) = (0, 0.0, true);
    if draw.is_some() {
        poses.push(pose(rollout.env(), safe).with_context(|| format!("--render: task `{}`", task.name()))?);
    }
    while let Some(step) = rollout.step().with_context(|| place(&actions, steps))? {
        (steps, total, safe) = (step.t, total + step.step.reward, step.safe);
        if draw.is_some() {
            poses.push(pose(rollout.env(), safe)?);
        }
        if args.out.is_some() {
            writeln!(lines, "{}", line(&step, &task))?;
        }
        if step.step.terminated || step.step.truncated {
            break;
        }
    }
    if let Some(out) = &args.out {
        write_atomic(out, lines.as_bytes()).map_err(Error::from)?;
    }
    if let (Some(file), Some(draw)) = (&args.render, draw) {
        write_atomic(file, &draw(&poses, task.scene())?).map_err(Error::from)?;
    }
    if let Some(rows) = rows.filter(|rows| *rows > steps) {
        eprintln!("note: the episode ended before the last {} rows of the action file", rows - steps);
    }
    println!("{steps} steps, return {total:.2}, {}", if safe { "safe" } else { "unsafe" });
    Ok(())
}

/// The place of a step, for errors.
fn place(actions: &Option<PathBuf>, steps: usize) -> String {
    match actions {
        Some(file) => format!("{}, row {}", file.display(), steps + 1),
        None => format!("step {}", steps + 1),
    }
}

pub(super) fn pose(env: &dyn Env, safe: bool) -> anyhow::Result<Pose> {
    let Some(drawable) = env.drawable() else {
        bail!("nothing to draw: the environment has no body and no plane ([env.scene] in docs/settings.md)");
    };
    Ok(Pose { limbs: drawable.limbs().map_err(Error::from)?, safe })
}

fn line(step: &RolloutStep, task: &Task) -> Value {
    let names = task.spec().signals.iter().cloned();
    let signals: Map<String, Value> = names.zip(step.signals.iter().map(|x| json!(x))).collect();
    json!({
        "t": step.t,
        "action": step.action,
        "observation": step.observation,
        "reward": step.step.reward,
        "terminated": step.step.terminated,
        "truncated": step.step.truncated,
        "signals": signals,
        "state": step.state,
        "safe": step.safe,
    })
}

pub(super) type Draw = fn(&[Pose], Option<&Scene>) -> Result<Vec<u8>, film::Error>;

/// The function that draws a file with this extension.
pub(super) fn drawing(option: &str, file: &Path) -> anyhow::Result<Draw> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("gif") => Ok(film::gif),
        Some("png") => Ok(film::sheet),
        _ => bail!("{option} {}: expected a name that ends with .gif or .png", file.display()),
    }
}

/// An episode that is ready to start, and the file of its actions.
struct Start {
    task: Task,
    rollout: Rollout,
    actions: Option<PathBuf>,
    /// The rows of this file.
    rows: Option<usize>,
}

fn start(args: &RolloutArgs) -> anyhow::Result<Start> {
    if let Some(dir) = &args.agent {
        let (task, rollout) = Rollout::of_agent(dir, args.seed)?;
        return Ok(Start { task, rollout, actions: None, rows: None });
    }
    // The argument parser ensures this.
    let Some(task) = &args.task else { bail!("give a task, or --agent") };
    let task = Task::new(TaskSettings::resolve(task, &args.settings.configs, &args.settings.sets)?)?;
    let actions = match (&args.actions, args.policy) {
        (Some(file), _) => Actions::List(read_actions(file, task.spec().action.dim())?),
        (None, Some(PolicyName::Zero)) => Actions::Zero,
        (None, _) => Actions::Random,
    };
    let rows = if let Actions::List(list) = &actions { Some(list.len()) } else { None };
    let state: Option<Value> = match &args.state {
        None => None,
        Some(path) => Some(
            serde_json::from_slice(&read_limited(path, 1 << 24).map_err(Error::from)?)
                .map_err(|e| anyhow!("{}: not JSON: {e} (numbers must be finite; JSON has no NaN)", path.display()))?,
        ),
    };
    let name = || args.state.as_ref().map_or_else(|| task.name().to_owned(), |path| path.display().to_string());
    let rollout = Rollout::with_actions(&task, actions, args.seed, state.as_ref()).with_context(name)?;
    Ok(Start { task, rollout, actions: args.actions.clone(), rows })
}

fn read_actions(path: &Path, dim: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let text = String::from_utf8(read_limited(path, 1 << 28).map_err(Error::from)?)
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
            bail!("{}: {} numbers, expected {dim}, one per dimension of the action", place(), row.len());
        }
        if let Some(x) = row.iter().find(|x| !x.is_finite()) {
            bail!("{}: {x} is not a finite number", place());
        }
        rows.push(row);
    }
    Ok(rows)
}
