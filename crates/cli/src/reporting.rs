//! From an experiment's outcome to `evaluation.json`, figures and `report.html`.

use std::path::Path;

use prudence_agent::Algorithm;
use prudence_agent::evaluate::TestEpisode;
use prudence_data::files::{read_limited, write_atomic};
use prudence_env::MakeEnv as _;
use prudence_report::figure::{self, Curve, Figure, Label, MultiplierCurve, Path as DrawnPath};
use prudence_report::html::Report;
use prudence_report::records::{AlgoResult, Evaluation, Judgement, Round, SafetyModel, SeedResult};

use crate::config::Config;
use crate::experiment::{Outcome, RoundResult, Tested};
use crate::folder;

/// Test episodes drawn in the plane, an algorithm.
const DRAWN: usize = 30;

/// The statistics of one algorithm's agents.
pub fn result(algorithm: Algorithm, steps: u64, agents: &[&Tested]) -> AlgoResult {
    let seeds = |pick: fn(&Tested) -> &Vec<TestEpisode>| -> Vec<SeedResult> {
        let one = |agent: &&Tested| SeedResult {
            seed: agent.seed,
            returns: pick(agent).iter().map(|t| t.total_reward).collect(),
            safe: pick(agent).iter().map(|t| t.safe).collect(),
        };
        agents.iter().map(one).collect()
    };
    let mut result = AlgoResult::from_seeds(algorithm.name(), steps, &seeds(|agent| &agent.tests));
    let tests = || agents.iter().flat_map(|agent| &agent.tests);
    result.steps_kept = Some(tests().map(|t| t.steps_kept).sum::<f64>() / tests().count() as f64);
    if agents.iter().all(|agent| !agent.sampled.is_empty()) {
        let drawn = AlgoResult::from_seeds(algorithm.name(), steps, &seeds(|agent| &agent.sampled));
        result.sampled_safe_share = Some(drawn.safe_share);
        result.sampled_return_mean = Some(drawn.return_mean);
    }
    result
}

/// The model's P(safe) of each episode, and the truth.
fn own_predictions(agents: &[&Tested]) -> Vec<(f64, bool)> {
    agents.iter().flat_map(|agent| &agent.tests).filter_map(|t| Some((t.log_prob()?.exp(), t.safe))).collect()
}

fn of(algorithm: Algorithm, agents: &[Tested]) -> Vec<&Tested> {
    agents.iter().filter(|agent| agent.algorithm == algorithm).collect()
}

/// Everything a run found out, in numbers.
pub fn evaluation(config: &Config, outcome: &Outcome) -> Option<Evaluation> {
    let last = outcome.rounds.last()?;
    let mut results = Vec::new();
    for algorithm in &config.run.algo {
        let (agents, steps) = match algorithm.constraint() {
            None => (of(*algorithm, &outcome.collectors), config.collect.steps),
            Some(_) => (of(*algorithm, &last.agents), config.train.steps),
        };
        results.push(result(*algorithm, steps, &agents));
    }
    let mut rounds = Vec::new();
    for (index, round) in outcome.rounds.iter().enumerate() {
        for algorithm in config.run.algo.iter().filter(|a| a.constraint().is_some()) {
            let agents = of(*algorithm, &round.agents);
            let own = Judgement::from_predictions(&own_predictions(&agents));
            let result = result(*algorithm, config.train.steps, &agents);
            rounds.push(Round::new(index, &result, round.fitted.held_out.accuracy, own.accuracy));
        }
    }
    Some(Evaluation {
        task: config.name.clone(),
        target: config.target,
        safety_model: safety_model(last),
        results,
        rounds,
        references: config.reference.clone(),
    })
}

fn safety_model(round: &RoundResult) -> SafetyModel {
    let held_out: Vec<_> = round.fitted.predictions.iter().map(|(l, safe)| (l.exp(), *safe)).collect();
    let own = own_predictions(&round.agents.iter().collect::<Vec<_>>());
    SafetyModel {
        held_out: Judgement::from_predictions(&held_out),
        own: (!own.is_empty()).then(|| Judgement::from_predictions(&own)),
        data_episodes: round.fitted.data_episodes,
        data_segments: round.fitted.data_segments,
    }
}

/// Training curves of the agents in a folder.
pub fn curves(dirs: &[impl AsRef<Path>]) -> anyhow::Result<(Vec<Curve>, Vec<MultiplierCurve>)> {
    let mut learning: Vec<Curve> = Vec::new();
    let mut multipliers: Vec<MultiplierCurve> = Vec::new();
    for dir in dirs {
        for agent in folder::agents(dir.as_ref())? {
            let algorithm = agent.algorithm.name().to_owned();
            let run = match dirs.len() {
                1 => String::new(),
                _ => dir.as_ref().display().to_string(),
            };
            let label = Label { algorithm, run };
            let records = agent.records()?;
            let points = records.iter().map(|r| (r.step as f64, r.return_mean, r.safe_share)).collect();
            match learning.iter_mut().find(|c| c.label == label) {
                Some(curve) => curve.seeds.push(points),
                None => learning.push(Curve { label: label.clone(), seeds: vec![points] }),
            }
            if agent.algorithm.constraint().is_some() {
                let points = records.iter().map(|r| (r.step as f64, r.multiplier)).collect();
                match multipliers.iter_mut().find(|c| c.label == label) {
                    Some(curve) => curve.seeds.push(points),
                    None => multipliers.push(MultiplierCurve { label, seeds: vec![points] }),
                }
            }
        }
    }
    Ok((learning, multipliers))
}

/// Paths of test episodes with the last model's blame, for tasks that lie in a plane.
fn drawn_paths(config: &Config, outcome: &Outcome) -> anyhow::Result<Option<Figure>> {
    let env = config.env.build()?;
    let (Some(scene), Some(last)) = (env.scene(), outcome.rounds.last()) else { return Ok(None) };
    let place = |name: &str| env.spec().signals.iter().position(|s| s == name);
    let (Some(x), Some(y)) = (place(&scene.axes[0]), place(&scene.axes[1])) else { return Ok(None) };
    let width = env.spec().signals.len();
    let groups = config.run.algo.iter().map(|algorithm| {
        let agents = if algorithm.constraint().is_some() { &last.agents } else { &outcome.collectors };
        let agents = of(*algorithm, agents);
        let each = DRAWN.div_ceil(agents.len().max(1));
        let tests: Vec<_> = agents.iter().flat_map(|agent| agent.tests.iter().take(each)).collect();
        let episodes: Vec<_> = tests.iter().map(|t| &t.episode).collect();
        let scores = last.model.score(&episodes);
        let paths = tests.iter().zip(scores).map(|(test, scores)| DrawnPath {
            xy: test.episode.signals.chunks_exact(width).map(|s| [s[x], s[y]]).collect(),
            blame: scores.iter().map(|l| f64::from(-l)).collect(),
            safe: test.safe,
        });
        (algorithm.name().to_owned(), paths.collect())
    });
    Ok(Some(figure::paths(&scene, &groups.collect::<Vec<_>>())))
}

/// Writes `evaluation.json`, `figures/*.svg` and `report.html` into the run's folder.
pub fn write(config: &Config, dir: &Path, outcome: &Outcome, evaluation: &Evaluation) -> anyhow::Result<()> {
    write_atomic(&dir.join("evaluation.json"), &serde_json::to_vec_pretty(evaluation)?)?;
    let (learning, multipliers) = curves(&[dir])?;
    let mut figures = vec![figure::learning_curves(&learning, config.target)];
    figures.extend(drawn_paths(config, outcome)?);
    figures.push(figure::seeds(&evaluation.results, config.target));
    figures.push(figure::rounds(&evaluation.rounds, config.target));
    figures.push(figure::multiplier(&multipliers));
    if let Some(last) = outcome.rounds.last() {
        let held_out = last.fitted.predictions.iter().map(|(l, safe)| (l.exp(), *safe)).collect();
        let own = own_predictions(&last.agents.iter().collect::<Vec<_>>());
        let series = [("held-out episodes".to_owned(), held_out), ("the agents' own episodes".to_owned(), own)];
        figures.push(figure::reliability(&series));
    }
    let place = dir.join("figures");
    std::fs::create_dir_all(&place)?;
    for figure in &figures {
        write_atomic(&place.join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
    }
    let settings = read_limited(&dir.join("config.toml"), 1 << 20)?;
    let report = Report {
        evaluation,
        figures: &figures,
        config: &String::from_utf8_lossy(&settings),
        commands: &["prudence run config.toml --out again".to_owned(), "# config.toml: the settings above".to_owned()],
        version: env!("CARGO_PKG_VERSION"),
        notes: &notes(config, outcome, evaluation, &multipliers),
    };
    Ok(write_atomic(&dir.join("report.html"), report.to_html().as_bytes())?)
}

/// What a reader should know before trusting the numbers.
fn notes(config: &Config, outcome: &Outcome, evaluation: &Evaluation, multipliers: &[MultiplierCurve]) -> Vec<String> {
    let mut notes = Vec::new();
    for result in evaluation.results.iter().filter(|r| r.algo != Algorithm::Sac.name()) {
        let missed = result.per_seed.iter().filter(|seed| seed.safe_share < config.target);
        let missed: Vec<_> =
            missed.map(|seed| format!("seed {}: {} of {}", seed.seed, seed.safe, seed.episodes)).collect();
        if !missed.is_empty() {
            let name = figure::display_name(&result.algo);
            notes.push(format!(
                "{name}: safe test episodes of the seeds that missed the target: {}.",
                missed.join("; ")
            ));
        }
    }
    let lambda = &config.multiplier;
    for curve in multipliers.iter().filter(|_| lambda.fixed.is_none()) {
        if curve.seeds.iter().flatten().all(|(_, value)| *value == lambda.initial) {
            let why = match lambda.initial {
                0.0 => "the constraint held all along, or there were",
                _ => "there were",
            };
            notes.push(format!(
                "Lambda of {} never moved from {}: {why} hardly more than multiplier.freeze = {} episodes.",
                figure::display_name(&curve.label.algorithm),
                lambda.initial,
                lambda.freeze
            ));
        }
    }
    for agent in outcome.rounds.last().iter().flat_map(|round| &round.agents) {
        let who = format!("{} seed {}", figure::display_name(agent.algorithm.name()), agent.seed);
        match agent.kept_step {
            None => notes
                .push(format!("{who}: no policy met the constraint as the safety model judges; the last was tested.")),
            Some(step) if step < config.train.steps => {
                notes.push(format!(
                    "{who}: the policy of step {step} was tested; later ones miss the constraint as the safety model judges."
                ));
            }
            Some(_) => {}
        }
    }
    if config.run.algo.contains(&Algorithm::Sac) && config.run.algo.len() > 1 {
        notes.push(
            "SAC learns from its own steps alone: it is what collected the first episodes. The others also start from all \
             episodes collected before them, so at few steps they may earn more than it does."
                .into(),
        );
    }
    if let Some(round) = outcome.rounds.last() {
        let safe = round.fitted.held_out.safe_share;
        notes.push(format!("{:.1} % of the episodes held out of the last fit are safe.", 100.0 * safe));
    }
    notes.push(
        "All seeds and all algorithms of a run share its episodes and its safety models: intervals over seeds do not cover \
         the luck of fitting them, and an algorithm's later rounds profit from the others' episodes."
            .into(),
    );
    notes
}
