//! The commands that learn: run, collect, label, fit, train, resume.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use prudence_agent::clock;
use prudence_agent::{Algorithm, Scaling};
use prudence_data::{Episode, LabelLog, Rule, Store, find_stores, import_csv, label_path};
use prudence_env::MakeEnv as _;
use prudence_safety::SafetyModel;
use prudence_safety::quality::Quality;
use rayon::prelude::*;
use serde_json::json;

use super::evaluate::print_results;
use super::{algorithms, pool, print_json, print_table};
use crate::args::{CollectArgs, Common, FitArgs, LabelArgs, ResumeArgs, RunArgs, Settings, TrainArgs};
use crate::config::{Config, LabelSettings, resolve};
use crate::experiment::Experiment;
use crate::folder::{self, Invocation, refuse_existing};
use crate::progress::Progress;
use crate::reporting;
use crate::stages::{self, Job};

pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let mut config = resolve(&args.task, &args.settings.configs, &args.settings.sets)?;
    if !args.algo.is_empty() {
        config.run.algo = algorithms(&args.algo);
    }
    let run = &mut config.run;
    run.seeds = args.seeds.unwrap_or(run.seeds);
    run.seed = args.seed.unwrap_or(run.seed);
    run.episodes = args.episodes.unwrap_or(run.episodes);
    run.rounds = args.rounds.unwrap_or(run.rounds);
    config.check()?;
    config.check_warm_up("collect.steps", config.collect.steps)?;
    let out = args.out.unwrap_or_else(|| folder::next_free(&config.name));
    refuse_existing(&out)?;
    let config = folder::create(&out, config, &Invocation::Run, None)?;
    experiment(&config, &out, &args.common)
}

fn experiment(config: &Config, dir: &Path, common: &Common) -> anyhow::Result<()> {
    stages::stop_at_checkpoint()?;
    let progress = Progress::new(common.quiet);
    let outcome = Experiment { config, dir, pool: &pool(common)?, progress: &progress }.run()?;
    let evaluation = reporting::evaluation(config, &outcome);
    let evaluation = evaluation.ok_or_else(|| anyhow!("the run has no round"))?;
    reporting::write(config, dir, &outcome, &evaluation)?;
    if common.json {
        return print_json(&evaluation);
    }
    print_results(&evaluation.results);
    for reference in &config.reference {
        println!(
            " {}: return {:.2}, {:.0} % safe",
            reference.name,
            reference.return_mean,
            100.0 * reference.safe_share
        );
    }
    println!("report: {}", dir.join("report.html").display());
    Ok(())
}

pub fn collect(args: CollectArgs) -> anyhow::Result<()> {
    let mut config = resolve(&args.task, &args.settings.configs, &args.settings.sets)?;
    config.collect.steps = args.steps.unwrap_or(config.collect.steps);
    (config.run.seed, config.run.seeds) = (args.seed, args.seeds);
    config.check()?;
    config.check_warm_up("collect.steps", config.collect.steps)?;
    refuse_existing(&args.out)?;
    let config = folder::create(&args.out, config, &Invocation::Collect, None)?;
    collect_in(&config, &args.out, &args.common)
}

fn collect_in(config: &Config, dir: &Path, common: &Common) -> anyhow::Result<()> {
    let progress = Progress::new(common.quiet);
    let jobs: Vec<Job<'_>> = seeds(config)
        .map(|seed| Job {
            config,
            algorithm: Algorithm::Sac,
            seed,
            round: 0,
            steps: config.collect.steps,
            safety: None,
            stored: Arc::default(),
            run: dir.join(format!("round-0/sac/seed-{seed}")),
            episodes: dir.join(format!("episodes-seed-{seed}")),
        })
        .collect();
    train_all(&jobs, common, &progress)?;
    let stores: Result<Vec<Store>, _> = jobs.iter().map(|job| Store::open(&job.episodes)).collect();
    let stores = stores?;
    let (episodes, steps): (u64, u64) = (stores.iter().map(Store::len).sum(), stores.iter().map(Store::steps).sum());
    if common.json {
        return print_json(&json!({"task": config.name, "episodes": episodes, "steps": steps, "dir": dir}));
    }
    println!("{episodes} episodes, {steps} steps in {}; next: prudence label {}", dir.display(), dir.display());
    Ok(())
}

fn seeds(config: &Config) -> std::ops::Range<u64> {
    config.run.seed..config.run.seed + config.run.seeds
}

fn train_all(jobs: &[Job<'_>], common: &Common, progress: &Progress) -> anyhow::Result<()> {
    stages::stop_at_checkpoint()?;
    pool(common)?.install(|| jobs.par_iter().try_for_each(|job| job.train(progress).map(drop)))
}

pub fn label(args: LabelArgs) -> anyhow::Result<()> {
    let stores = stores(std::slice::from_ref(&args.dir))?;
    let (mut labelled, mut safe, mut labels) = (0, 0, 0);
    for dir in &stores {
        let store = Store::open(dir)?;
        let before = LabelLog::open(&label_path(dir))?.labels().len();
        if let Some(table) = &args.from {
            let new = import_csv(table, &store, "table", &clock::timestamp())?;
            if stores.len() > 1 {
                bail!("--from {}: the folder holds {} stores; name one of them", table.display(), stores.len());
            }
            LabelLog::open(&label_path(dir))?.append(&new)?;
            labelled += new.iter().map(|l| l.episode).collect::<HashSet<_>>().len() as u64;
        } else {
            let signals = &store.schema().signals;
            let (text, extra_starts) = match &args.rule {
                Some(rule) => (rule.clone(), LabelSettings::default().extra_starts),
                None => {
                    let config = settings_of(&args.dir, args.task.as_deref(), dir, &args.settings)?;
                    (config.rule.clone(), config.label.extra_starts)
                }
            };
            let rule = Rule::parse(&text, signals).map_err(|e| anyhow!("rule = {text:?}\n{e}"))?;
            labelled += stages::label(dir, &rule, extra_starts, args.seed)?;
        }
        let log = LabelLog::open(&label_path(dir))?;
        labels += log.labels().len() - before;
        safe += log.labels()[before..].iter().filter(|l| l.start == 0 && l.safe).count();
    }
    if args.common.json {
        return print_json(&json!({"episodes": labelled, "safe": safe, "labels": labels}));
    }
    let dir = args.dir.display();
    match labels {
        0 => println!("every episode in {dir} has this rule's labels already"),
        _ => println!(
            "{labelled} episodes labelled, {safe} of them safe as a whole; {labels} labels with their segments"
        ),
    }
    Ok(())
}

/// The stores in these folders; a folder without any is an error.
fn stores(dirs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for dir in dirs {
        let found = find_stores(dir)?;
        if found.is_empty() {
            bail!("{}: no stored episodes in it; `prudence collect` makes some", dir.display());
        }
        all.extend(found);
    }
    Ok(all)
}

/// The settings stored episodes were made with: a named task's, the folder's own, or those of the task they say they are from.
fn settings_of(dir: &Path, task: Option<&str>, store: &Path, settings: &Settings) -> anyhow::Result<Config> {
    let own = dir.join("config.toml");
    let task = match task {
        Some(task) => task.to_owned(),
        None if own.is_file() => own.to_string_lossy().into_owned(),
        None => Store::open(store)?.schema().task.clone(),
    };
    resolve(&task, &settings.configs, &settings.sets)
        .with_context(|| format!("the task of {} (--task names another task, or its file)", store.display()))
}

pub fn fit(args: FitArgs) -> anyhow::Result<()> {
    let stores = stores(&args.dirs)?;
    let config = settings_of(&args.dirs[0], args.task.as_deref(), &stores[0], &args.settings)?;
    refuse_existing(&args.out)?;
    let progress = Progress::new(args.common.quiet);
    let fit = || stages::fit_model(&config, &stores, &args.out, args.seed, &progress);
    let (_, fitted) = pool(&args.common)?.install(fit)?;
    if args.common.json {
        return print_json(
            &json!({"episodes": fitted.data_episodes, "segments": fitted.data_segments, "held_out": fitted.held_out}),
        );
    }
    println!(
        "{} labelled episodes with {} segments; on those held out of the fit:",
        fitted.data_episodes, fitted.data_segments
    );
    print_quality(&fitted.held_out);
    println!("model: {}", args.out.display());
    Ok(())
}

fn print_quality(q: &Quality) {
    let unless = |missing: bool, value: String| if missing { "-".to_owned() } else { value };
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    let (none, no_safe, no_unsafe) = (q.episodes == 0, q.safe_share <= 0.0, q.safe_share >= 1.0);
    let rows = [
        ("episodes", q.episodes.to_string()),
        ("of them safe", unless(none, percent(q.safe_share))),
        ("called right", unless(none, percent(q.accuracy))),
        ("balanced", unless(none, percent(q.balanced_accuracy))),
        ("safe called unsafe", unless(no_safe, percent(q.safe_called_unsafe))),
        ("unsafe called safe", unless(none || no_unsafe, percent(q.unsafe_called_safe))),
        ("calibration error", unless(none, format!("{:.3}", q.calibration_error))),
        ("mean log P of the safe", unless(no_safe, format!("{:.3}", q.safe_mean_log_prob))),
    ];
    print_table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect());
}

pub fn train(args: TrainArgs) -> anyhow::Result<()> {
    let mut config = resolve(&args.task, &args.settings.configs, &args.settings.sets)?;
    config.run.algo = args.algo.algorithms();
    (config.run.seed, config.run.seeds) = (args.seed, args.seeds);
    config.check()?;
    let data: Result<Vec<PathBuf>, _> = stores(&args.data)?.into_iter().map(std::fs::canonicalize).collect();
    let data = data.with_context(|| "--data")?;
    stages::check_stores(&config, &data)?;
    let model = args.safety.as_deref().map(stages::load_model).transpose()?;
    let env = config.env.build()?;
    let (s, a) = Scaling::new(env.spec()).sizes();
    match &model {
        Some(model) => model.check(s, a)?,
        None if config.run.algo.iter().any(|algo| algo.constraint().is_some()) => {
            bail!("--algo: all but sac need a safety model: pass --safety MODEL (made by `prudence fit`)")
        }
        None => {}
    }
    if data.is_empty() {
        config.check_warm_up("train.steps", config.train.steps)?;
    }
    refuse_existing(&args.out)?;
    let stored = stages::load_episodes(&data)?;
    let invocation = Invocation::Train { data, safety: model.is_some() };
    let config = folder::create(&args.out, config, &invocation, model.as_ref())?;
    train_in(&config, &args.out, model, stored, &args.common)
}

fn train_in(
    config: &Config,
    dir: &Path,
    safety: Option<SafetyModel>,
    stored: Vec<Episode>,
    common: &Common,
) -> anyhow::Result<()> {
    let round = dir.join("round-0");
    let (safety, stored) = (safety.map(Arc::new), Arc::new(stored));
    let progress = Progress::new(common.quiet);
    let jobs: Vec<Job<'_>> = config
        .run
        .algo
        .iter()
        .flat_map(|algorithm| seeds(config).map(move |seed| (*algorithm, seed)))
        .map(|(algorithm, seed)| Job {
            config,
            algorithm,
            seed,
            round: 0,
            steps: config.train.steps,
            safety: safety.clone(),
            stored: stored.clone(),
            run: round.join(algorithm.name()).join(format!("seed-{seed}")),
            episodes: round.join("data").join(format!("{}-seed-{seed}", algorithm.name())),
        })
        .collect();
    train_all(&jobs, common, &progress)?;
    if common.json {
        return print_json(&json!({"run": dir, "agents": jobs.len(), "steps": config.train.steps}));
    }
    let agents = if jobs.len() == 1 { "agent" } else { "agents" };
    println!("trained {} {agents} in {}; next: prudence eval {}", jobs.len(), dir.display(), dir.display());
    Ok(())
}

pub fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let (config, invocation) = folder::open(&args.run)?;
    match invocation {
        Invocation::Run => experiment(&config, &args.run, &args.common),
        Invocation::Collect => collect_in(&config, &args.run, &args.common),
        Invocation::Train { data, safety } => {
            let model = safety.then(|| stages::load_model(&args.run.join("round-0/safety"))).transpose()?;
            train_in(&config, &args.run, model, stages::load_episodes(&data)?, &args.common)
        }
    }
}
