//! `prudence rollout`: one episode by given actions or a trained agent, every step written down with full precision or
//! drawn.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use prudence_agent::player::{Choose, Player};
use prudence_data::files::{read_limited, write_atomic};
use prudence_env::{Env, MakeEnv as _, Scene, Step};
use prudence_report::film::{self, Pose};
use serde_json::{Map, Value, json};

use crate::args::RolloutArgs;
use crate::config::{Config, resolve};
use crate::folder::{self, AgentFolder, refuse_existing, refuse_existing_for};
use crate::stages;

pub fn rollout(args: RolloutArgs) -> anyhow::Result<()> {
    args.out.iter().try_for_each(|file| refuse_existing(file))?;
    args.render.iter().try_for_each(|file| refuse_existing_for("--render", file))?;
    if args.out == args.render {
        bail!("--out and --render name the same file");
    }
    let draw = args.render.as_deref().map(drawing).transpose()?;
    let (config, mut actor) = Actor::new(&args)?;
    let mut judge = config.parsed_rule()?.judge();
    let mut lines = format!("{}\n", json!({"t": 0, "observation": actor.observation()}));
    let mut poses = Vec::new();
    let (mut steps, mut total, mut safe) = (0, 0.0, true);
    if draw.is_some() {
        let limbs = actor.env().limbs().with_context(|| format!("--render: task `{}`", config.name))?;
        poses.push(Pose { limbs, safe });
    }
    while let Some((action, step)) = actor.step()? {
        let env = actor.env();
        judge.step(env.signals());
        (steps, total, safe) = (steps + 1, total + step.reward, judge.safe());
        if draw.is_some() {
            poses.push(Pose { limbs: env.limbs()?, safe });
        }
        if args.out.is_some() {
            writeln!(lines, "{}", line(steps, &action, &step, actor.observation(), env, safe))?;
        }
        if step.terminated || step.truncated {
            break;
        }
    }
    if let Some(out) = &args.out {
        write_atomic(out, lines.as_bytes())?;
    }
    if let (Some(file), Some(draw)) = (&args.render, draw) {
        write_atomic(file, &draw(&poses, actor.env().scene().as_ref())?)?;
    }
    let left = actor.rows_left();
    if left > 0 {
        eprintln!("note: the episode ended before the last {left} rows of the actions");
    }
    println!("{steps} steps, return {total:.2}, {}", if safe { "safe" } else { "unsafe" });
    Ok(())
}

fn line(t: usize, action: &[f64], step: &Step, observation: &[f64], env: &dyn Env, safe: bool) -> Value {
    let names = env.spec().signals.iter().cloned();
    let signals: Map<String, Value> = names.zip(env.signals().iter().map(|x| json!(x))).collect();
    json!({
        "t": t,
        "action": action,
        "observation": observation,
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "signals": signals,
        "state": env.state(),
        "safe": safe,
    })
}

type Draw = fn(&[Pose], Option<&Scene>) -> Result<Vec<u8>, film::Error>;

/// What draws a file of this name.
fn drawing(file: &Path) -> anyhow::Result<Draw> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("gif") => Ok(film::gif),
        Some("png") => Ok(film::sheet),
        _ => bail!("--render {}: expected a name that ends with .gif or .png", file.display()),
    }
}

/// Who acts.
enum Actor {
    Given { env: Box<dyn Env>, observation: Vec<f64>, file: PathBuf, actions: std::vec::IntoIter<Vec<f64>>, row: usize },
    Agent { player: Box<Player>, policy: Vec<f32> },
}

impl Actor {
    /// At the episode's start.
    fn new(args: &RolloutArgs) -> anyhow::Result<(Config, Self)> {
        if let Some(dir) = &args.agent {
            let (run, agent) = AgentFolder::at(dir)?;
            let (config, _) = folder::open(&run)?;
            let (mut player, policy) = stages::load_agent(&config, &run, &agent)?;
            player.start(args.seed)?;
            return Ok((config, Self::Agent { player: Box::new(player), policy }));
        }
        // Which of them may be left out is for the parser of arguments.
        let (Some(task), Some(file)) = (&args.task, &args.actions) else {
            bail!("give a task and --actions, or --agent")
        };
        let config = resolve(task, &args.settings.configs, &args.settings.sets)?;
        let mut env = config.env.build()?;
        let actions = read_actions(file, env.spec().action.dim())?.into_iter();
        let mut observation = vec![0.0; env.spec().observation.dim()];
        env.reset(args.seed, &mut observation)?;
        if let Some(path) = &args.state {
            let state: Value = serde_json::from_slice(&read_limited(path, 1 << 24)?)
                .map_err(|e| anyhow!("{}: not JSON: {e} (numbers must be finite; JSON has no NaN)", path.display()))?;
            env.set_state(&state, &mut observation).with_context(|| path.display().to_string())?;
        }
        Ok((config, Self::Given { env, observation, file: file.clone(), actions, row: 0 }))
    }

    fn env(&self) -> &dyn Env {
        match self {
            Self::Given { env, .. } => &**env,
            Self::Agent { player, .. } => player.env(),
        }
    }

    fn observation(&self) -> &[f64] {
        match self {
            Self::Given { observation, .. } => observation,
            Self::Agent { player, .. } => player.observation(),
        }
    }

    /// Given actions that were not taken.
    fn rows_left(&self) -> usize {
        match self {
            Self::Given { actions, .. } => actions.len(),
            Self::Agent { .. } => 0,
        }
    }

    /// The next step and the action that made it; nothing after the last action.
    fn step(&mut self) -> anyhow::Result<Option<(Vec<f64>, Step)>> {
        match self {
            Self::Given { env, observation, file, actions, row } => {
                let Some(action) = actions.next() else { return Ok(None) };
                *row += 1;
                let place = || format!("{}, row {row}", file.display());
                let step = env.step(&action, observation).with_context(place)?;
                Ok(Some((action, step)))
            }
            Self::Agent { player, policy } => {
                let step = player.step(&mut Choose::Policy(policy, None))?;
                Ok(Some((player.action().to_vec(), step)))
            }
        }
    }
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
