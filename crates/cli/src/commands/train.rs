//! The commands of the pipeline: run, collect, label, fit, train, resume.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use prudence::{
    Agent, Algorithm, Collected, Evaluation, Labeller, Quality, Resumed, RunFolder, Session, Store, Task, TaskSettings,
    percent,
};
use prudence_report::html::{POOLED, headline};
use serde_json::json;

use super::evaluate::print_results;
use super::{print_json, print_table};
use crate::args::{
    AlgoName, CollectArgs, Common, Device, FitArgs, LabelArgs, OnDevice, ResumeArgs, RunArgs, Settings, TrainArgs,
};
use crate::progress::resumable;
use crate::text;

fn resolve(task: &str, settings: &Settings) -> anyhow::Result<TaskSettings> {
    Ok(TaskSettings::resolve(task, &settings.configs, &settings.sets)?)
}

/// The algorithms of a list, without duplicates, in the paper's order.
fn algorithms(names: &[AlgoName]) -> Vec<Algorithm> {
    let mut all: Vec<_> = names.iter().flat_map(|name| name.algorithms()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let mut settings = resolve(&args.task, &args.settings)?;
    let run = &mut settings.run;
    if !args.algo.is_empty() {
        run.algo = algorithms(&args.algo);
    }
    run.replicas = args.replicas.unwrap_or(run.replicas);
    run.seeds = args.seeds.unwrap_or(if args.replicas.is_some() { 1 } else { run.seeds });
    run.seed = args.seed.unwrap_or(run.seed);
    run.episodes = args.episodes.unwrap_or(run.episodes);
    run.rounds = args.rounds.unwrap_or(run.rounds);
    let task = Task::new(settings)?;
    let out = args.out.unwrap_or_else(|| RunFolder::next_free(task.name()));
    let evaluation = prudence::run(&task, &out, &session_of(&args.common, &args.on, &out)?)?;
    print_evaluation(&evaluation, &out, &args.common)
}

/// A session for a command that works in a folder.
fn session_of(common: &Common, on: &OnDevice, dir: &Path) -> anyhow::Result<Session> {
    let dir = dir.to_string_lossy();
    let resume = match on.device {
        Device::Cpu => text::command(["prudence", "resume", &dir]),
        Device::Cuda => text::command(["prudence", "resume", &dir, "--device", "cuda"]),
        Device::Auto => text::command(["prudence", "resume", &dir, "--device", "auto"]),
    };
    Ok(resumable(common.threads, common.quiet, resume)?.on(on.device.name())?)
}

fn print_evaluation(evaluation: &Evaluation, dir: &Path, common: &Common) -> anyhow::Result<()> {
    if common.json {
        return print_json(evaluation);
    }
    println!("{}", text::wrap(&headline(evaluation).replace('\u{a0}', " ")));
    print_results(&evaluation.results);
    if evaluation.results.iter().all(|result| result.per_replica.is_empty()) {
        println!("{}", text::wrap(POOLED));
    }
    for reference in &evaluation.references {
        println!(
            " {}: return {:.2}, {:.0} % safe",
            reference.name,
            reference.return_mean,
            100.0 * reference.safe_share
        );
    }
    println!("report: {}", RunFolder::at(dir).report().display());
    Ok(())
}

pub fn collect(args: CollectArgs) -> anyhow::Result<()> {
    let mut settings = resolve(&args.task, &args.settings)?;
    settings.collect.steps = args.steps.unwrap_or(settings.collect.steps);
    (settings.run.seed, settings.run.seeds) = (args.seed, args.seeds);
    let task = Task::new(settings)?;
    let collected = prudence::collect(&task, &args.out, &session_of(&args.common, &args.on, &args.out)?)?;
    print_collected(&collected, task.name(), &args.out, &args.common)
}

fn print_collected(collected: &Collected, task: &str, dir: &Path, common: &Common) -> anyhow::Result<()> {
    let Collected { episodes, steps, .. } = collected;
    if common.json {
        return print_json(&json!({"task": task, "episodes": episodes, "steps": steps, "dir": dir}));
    }
    println!("{episodes} episodes, {steps} steps in {}; next: prudence label {}", dir.display(), dir.display());
    Ok(())
}

pub fn label(args: LabelArgs) -> anyhow::Result<()> {
    let labeller = match &args.from {
        Some(table) => Labeller::Table(table.clone()),
        None => {
            let stores = prudence::stores(std::slice::from_ref(&args.dir))?;
            let settings = settings_of(&args.dir, args.task.as_deref(), &stores[0], &args.settings);
            let (rule, label) = match (&args.rule, settings) {
                // Episodes of a task that is not known can be labelled by a rule.
                (Some(rule), Err(_)) if args.settings.is_empty() && args.task.is_none() => {
                    (rule.clone(), prudence::LabelSettings::default())
                }
                (rule, settings) => {
                    let settings = settings?;
                    settings.check().map_err(prudence::Error::from)?;
                    (rule.clone().unwrap_or(settings.rule), settings.label)
                }
            };
            Labeller::Rule { rule, extra_starts: label.extra_starts, seed: args.seed }
        }
    };
    let labelled = prudence::label(&args.dir, &labeller)?;
    for path in &labelled.torn {
        let text = "the last line was incomplete, as after a crash; it was removed";
        eprintln!("{}", text::wrap(&format!("warning: {}: {text}", path.display())));
    }
    if let Some(problem) = labelled.one_sided() {
        eprintln!("{}", text::wrap(&format!("warning: {problem}")));
    }
    if args.json {
        return print_json(&labelled);
    }
    if labelled.labels == 0 {
        println!("all episodes in {} already have the labels of this rule", args.dir.display());
    } else {
        println!(
            "{} episodes labelled, {} of them safe; {} labels, including segments",
            labelled.episodes, labelled.safe, labelled.labels
        );
    }
    Ok(())
}

/// The settings of stored episodes: those of the named task, those in the folder, or those of the task in the store's
/// schema.
fn settings_of(dir: &Path, task: Option<&str>, store: &Path, settings: &Settings) -> anyhow::Result<TaskSettings> {
    let own = RunFolder::at(dir).config();
    let task = match task {
        Some(task) => task.to_owned(),
        None if own.is_file() => {
            RunFolder::open(dir)?; // verifies the settings and the files that they name
            own.to_string_lossy().into_owned()
        }
        None => Store::open(store).map_err(prudence::Error::from)?.schema().task.clone(),
    };
    resolve(&task, settings)
        .with_context(|| format!("the task of {} (use --task for another task or a task file)", store.display()))
}

pub fn fit(args: FitArgs) -> anyhow::Result<()> {
    let stores = prudence::stores(&args.dirs)?;
    let task = Task::new(settings_of(&args.dirs[0], args.task.as_deref(), &stores[0], &args.settings)?)?;
    if args.out.join("model.safetensors").exists() {
        bail!("--out {}: there is a model in this folder already; choose another one", args.out.display());
    }
    let words: Vec<String> = std::env::args().collect();
    let session = resumable(args.common.threads, args.common.quiet, text::command(words.iter().map(String::as_str)))?;
    let session = session.on(args.on.device.name())?;
    let (_, fitted) = prudence::fit(&task, &stores, &args.out, args.seed, &session)?;
    if args.common.json {
        return print_json(
            &json!({"episodes": fitted.data_episodes, "segments": fitted.data_segments, "held_out": fitted.held_out}),
        );
    }
    println!(
        "{} labelled episodes with {} segments; on held-out episodes:",
        fitted.data_episodes, fitted.data_segments
    );
    print_quality(&fitted.held_out);
    println!("model: {}", args.out.display());
    Ok(())
}

fn print_quality(q: &Quality) {
    let number = |x: f64| if x.is_nan() { "no cases".to_owned() } else { format!("{x:.3}") };
    let rows = [
        ("episodes", q.episodes.to_string()),
        ("safe", percent(q.safe_share)),
        ("accuracy", percent(q.accuracy)),
        ("balanced accuracy", percent(q.balanced_accuracy)),
        ("safe called unsafe", percent(q.safe_called_unsafe)),
        ("unsafe called safe", percent(q.unsafe_called_safe)),
        ("calibration error", number(q.calibration_error)),
        ("mean log P of safe ones", number(q.safe_mean_log_prob)),
    ];
    print_table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect());
}

pub fn train(args: TrainArgs) -> anyhow::Result<()> {
    let mut settings = resolve(&args.task, &args.settings)?;
    settings.run.algo = args.algo.algorithms();
    (settings.run.seed, settings.run.seeds) = (args.seed, args.seeds);
    let task = Task::new(settings)?;
    let stores: Vec<PathBuf> = prudence::stores(&args.data).context("--data")?;
    let model = args
        .safety
        .as_deref()
        .map(prudence::load_model)
        .transpose()
        .context("--safety expects a model from `prudence fit`")?;
    let session = session_of(&args.common, &args.on, &args.out)?;
    let agents = prudence::train(&task, model.as_ref(), &stores, &args.out, &session)?;
    print_trained(&agents, task.settings().train.steps, &args.out, &args.common)
}

fn print_trained(agents: &[Agent], steps: u64, dir: &Path, common: &Common) -> anyhow::Result<()> {
    if common.json {
        return print_json(&json!({"run": dir, "agents": agents.len(), "steps": steps}));
    }
    let noun = if agents.len() == 1 { "agent" } else { "agents" };
    println!("trained {} {noun} in {}; next: prudence eval {}", agents.len(), dir.display(), dir.display());
    Ok(())
}

pub fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let task = Task::open(&args.run)?;
    let (dir, common) = (&args.run, &args.common);
    match prudence::resume(&task, dir, &session_of(common, &args.on, dir)?)? {
        Resumed::Run(evaluation) => print_evaluation(&evaluation, dir, common),
        Resumed::Collect(collected) => print_collected(&collected, task.name(), dir, common),
        Resumed::Train(agents) => print_trained(&agents, task.settings().train.steps, dir, common),
    }
}
