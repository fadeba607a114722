//! Writes `evaluation.json`, the figures and `report.html` from the outcome of a run.

use std::path::{Path, PathBuf};

use prudence_data::files::{create_dir, read_limited, write_atomic, write_json};
use prudence_nn::Cpu;
use prudence_report::figure::{self, Curve, CurveLabel, Figure, MultiplierCurve, Path as DrawnPath};
use prudence_report::html::Report;
use prudence_report::records::{AlgoResult, Evaluation, ModelQuality, Round, SeedResult};
use prudence_safety::{Quality, Scorer};

use crate::folder::RunFolder;
use crate::provenance::{self, Working};
use crate::run::{Outcome, RoundResult, Tested};
use crate::{Algorithm, Error, Task, TestEpisode};

/// The number of test episodes per algorithm whose paths are drawn in the plane.
const DRAWN: usize = 30;

/// The statistics of one algorithm's agents.
pub(crate) fn result(algorithm: Algorithm, steps: u64, agents: &[&Tested]) -> AlgoResult {
    let seeds = |pick: fn(&Tested) -> &Vec<TestEpisode>| -> Vec<SeedResult> {
        let one = |agent: &&Tested| SeedResult {
            seed: agent.seed,
            returns: pick(agent).iter().map(|t| t.total_reward).collect(),
            safe: pick(agent).iter().map(|t| t.safe).collect(),
        };
        agents.iter().map(one).collect()
    };
    let mut result = AlgoResult::from_seeds(algorithm.name(), steps, &seeds(|agent| &agent.tests));
    let own = Quality::of(&own_predictions(agents));
    result.model_accuracy = (own.episodes > 0).then_some(own.accuracy);
    let tests = || agents.iter().flat_map(|agent| &agent.tests);
    let length = |t: &TestEpisode| t.episode.len() as f64;
    let kept = tests().map(|t| t.steps_kept * length(t)).sum::<f64>();
    result.steps_kept = Some(kept / tests().map(length).sum::<f64>());
    if agents.iter().all(|agent| !agent.sampled.is_empty()) {
        let drawn = AlgoResult::from_seeds(algorithm.name(), steps, &seeds(|agent| &agent.sampled));
        result.sampled_safe_share = Some(drawn.safe_share);
        result.sampled_return_mean = Some(drawn.return_mean);
    }
    result
}

/// The model's log P(safe) of each episode, and the truth.
pub(crate) fn own_predictions(agents: &[&Tested]) -> Vec<(f64, bool)> {
    agents.iter().flat_map(|agent| &agent.tests).filter_map(|t| Some((t.log_prob()?, t.safe))).collect()
}

/// A share in percent, or `no cases` if it is one of nothing.
///
/// ```
/// assert_eq!(prudence::percent(0.9), "90.0 %");
/// assert_eq!(prudence::percent(f64::NAN), "no cases");
/// ```
pub fn percent(share: f64) -> String {
    if share.is_nan() { "no cases".to_owned() } else { format!("{:.1} %", 100.0 * share) }
}

fn probabilities(predictions: &[(f64, bool)]) -> Vec<(f64, bool)> {
    predictions.iter().map(|(log_prob, safe)| (log_prob.exp(), *safe)).collect()
}

fn of(algorithm: Algorithm, agents: &[Tested]) -> Vec<&Tested> {
    agents.iter().filter(|agent| agent.algorithm == algorithm).collect()
}

/// The results of a run.
fn evaluation(task: &Task, outcome: &Outcome, last: &RoundResult) -> Evaluation {
    let config = task.settings();
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
            let own = Quality::of(&own_predictions(&agents));
            let result = result(*algorithm, config.train.steps, &agents);
            rounds.push(Round::new(index, &result, round.fitted.held_out.accuracy, own.accuracy));
        }
    }
    Evaluation {
        task: config.name.clone(),
        target: config.target,
        safety_model: safety_model(last),
        results,
        rounds,
        references: config.reference.clone(),
    }
}

fn safety_model(round: &RoundResult) -> ModelQuality {
    let own = own_predictions(&round.agents.iter().collect::<Vec<_>>());
    ModelQuality {
        held_out: round.fitted.held_out,
        own: (!own.is_empty()).then(|| Quality::of(&own)),
        data_episodes: round.fitted.data_episodes,
        data_segments: round.fitted.data_segments,
    }
}

/// A kind of training curves to plot.
///
/// ```no_run
/// let figure = prudence::plot(&["runs/navigation-1".into()], prudence::CurveKind::Multiplier)?;
/// println!("{}", figure.svg);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveKind {
    /// Return and safe share over environment steps.
    Learning,
    /// The multiplier lambda over environment steps.
    Multiplier,
}

/// Draws the training curves of the agents in one or more folders.
pub fn plot(dirs: &[PathBuf], kind: CurveKind) -> Result<Figure, Error> {
    let mut target = f64::NAN;
    for dir in dirs {
        RunFolder::open(dir)?;
        target = crate::TaskSettings::from_file(&RunFolder::at(dir).config())?.target;
    }
    let (learning, multipliers) = curves(dirs)?;
    Ok(match kind {
        CurveKind::Learning => figure::learning_curves(&learning, target),
        CurveKind::Multiplier => figure::multiplier(&multipliers),
    })
}

/// Reads the training curves of the agents in these folders.
fn curves(dirs: &[impl AsRef<Path>]) -> Result<(Vec<Curve>, Vec<MultiplierCurve>), Error> {
    let mut learning: Vec<Curve> = Vec::new();
    let mut multipliers: Vec<MultiplierCurve> = Vec::new();
    for dir in dirs {
        let agents = RunFolder::at(dir.as_ref()).agents()?;
        let rounds = agents.iter().map(|agent| agent.round + 1).max().unwrap_or(0);
        for agent in agents {
            let algorithm = agent.algorithm.name().to_owned();
            let run = match dirs.len() {
                1 => String::new(),
                _ => dir.as_ref().display().to_string(),
            };
            let label = CurveLabel { algorithm, run, round: (rounds > 1).then_some(agent.round) };
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

/// Draws the paths of test episodes with the last model's blame, for tasks in a plane.
fn drawn_paths(task: &Task, outcome: &Outcome, last: &RoundResult) -> Result<Option<Figure>, Error> {
    let Some(scene) = task.scene() else { return Ok(None) };
    let place = |name: &str| task.spec().signals.iter().position(|s| s == name);
    let (Some(x), Some(y)) = (place(&scene.axes[0]), place(&scene.axes[1])) else { return Ok(None) };
    let width = task.spec().signals.len();
    let floor = task.settings().agent.score_floor;
    let scorer = Scorer::new(&Cpu::<f32>::new(), std::slice::from_ref(&last.model), floor)?;
    let mut groups = Vec::new();
    for algorithm in &task.settings().run.algo {
        let agents = if algorithm.constraint().is_some() { &last.agents } else { &outcome.collectors };
        let agents = of(*algorithm, agents);
        let each = DRAWN.div_ceil(agents.len().max(1));
        let tests: Vec<_> = agents.iter().flat_map(|agent| agent.tests.iter().take(each)).collect();
        let episodes: Vec<_> = tests.iter().map(|t| &t.episode).collect();
        let paths = tests.iter().zip(scorer.score(&episodes)?).map(|(test, scores)| DrawnPath {
            xy: test
                .start
                .chunks_exact(width)
                .chain(test.episode.signals.chunks_exact(width))
                .map(|s| [s[x], s[y]])
                .collect(),
            blame: scores.log_prob.iter().map(|l| f64::from(-l)).collect(),
            safe: test.safe,
        });
        groups.push((algorithm.name().to_owned(), paths.collect()));
    }
    Ok(Some(figure::paths(scene, &groups)))
}

/// Writes `evaluation.json`, `figures/*.svg` and `report.html` into a run's folder and returns the results.
pub(crate) fn write(
    task: &Task,
    folder: &RunFolder,
    outcome: &Outcome,
    working: &Working<'_>,
) -> Result<Evaluation, Error> {
    let Some(last) = outcome.rounds.last() else { return Err(Error::content(folder.root(), "the run has no round")) };
    let evaluation = evaluation(task, outcome, last);
    let target = task.settings().target;
    let (learning, multipliers) = curves(&[folder.root()])?;
    let mut figures = vec![figure::learning_curves(&learning, target)];
    figures.extend(drawn_paths(task, outcome, last)?);
    figures.push(figure::seeds(&evaluation.results, target));
    figures.push(figure::rounds(&evaluation.rounds, target));
    figures.push(figure::multiplier(&multipliers));
    let own = own_predictions(&last.agents.iter().collect::<Vec<_>>());
    figures.push(figure::reliability(&[
        ("held-out episodes".to_owned(), probabilities(&last.fitted.predictions)),
        ("the agents' own episodes".to_owned(), probabilities(&own)),
    ]));
    let notes = notes(task, outcome, &evaluation);
    write_files(folder, &evaluation, &figures, &notes, &provenance::foot(task, folder, working))?;
    Ok(evaluation)
}

/// The same for a folder of replicas.
pub(crate) fn write_replicas(
    task: &Task,
    folder: &RunFolder,
    evaluation: &Evaluation,
    working: &Working<'_>,
) -> Result<(), Error> {
    let target = task.settings().target;
    let (learning, multipliers) = curves(&[folder.root()])?;
    let figures = [
        figure::learning_curves(&learning, target),
        figure::seeds(&evaluation.results, target),
        figure::rounds(&evaluation.rounds, target),
        figure::multiplier(&multipliers),
    ];
    let notes = ["Each replica has its own report in its folder, with the notes on its agents.".to_owned()];
    write_files(folder, evaluation, &figures, &notes, &provenance::foot(task, folder, working))
}

fn write_files(
    folder: &RunFolder,
    evaluation: &Evaluation,
    figures: &[Figure],
    notes: &[String],
    foot: &str,
) -> Result<(), Error> {
    create_dir(&folder.figures())?;
    for figure in figures {
        write_atomic(&folder.figures().join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
    }
    let settings = read_limited(&folder.config(), 1 << 20)?;
    let report = Report {
        evaluation,
        figures,
        config: &String::from_utf8_lossy(&settings),
        commands: &["prudence run config.toml --out again".to_owned(), "# config.toml: the settings above".to_owned()],
        version: env!("CARGO_PKG_VERSION"),
        notes,
        foot,
    };
    write_atomic(&folder.report(), report.to_html().as_bytes())?;
    // Last, because it marks a replica as complete.
    Ok(write_json(&folder.evaluation(), evaluation)?)
}

/// What a reader should know before trusting the numbers.
fn notes(task: &Task, outcome: &Outcome, evaluation: &Evaluation) -> Vec<String> {
    let config = task.settings();
    let mut notes = Vec::new();
    for result in evaluation.results.iter().filter(|r| r.algo != Algorithm::Sac.name()) {
        let missed = result.per_seed.iter().filter(|seed| seed.safe_share < config.target);
        let missed: Vec<_> =
            missed.map(|seed| format!("seed {}: {} of {}", seed.seed, seed.safe, seed.episodes)).collect();
        if !missed.is_empty() {
            let name = figure::display_name(&result.algo);
            notes.push(format!(
                "{name}: seeds that miss the target, with their safe test episodes: {}.",
                missed.join("; ")
            ));
        }
    }
    for agent in outcome.rounds.last().iter().flat_map(|round| &round.agents) {
        let who = format!("{} seed {}", figure::display_name(agent.algorithm.name()), agent.seed);
        match agent.selected_step {
            None => notes.push(format!(
                "{who}: no policy met the constraint according to the safety model; the last one was tested."
            )),
            Some(step) if step < config.train.steps => {
                notes.push(format!(
                    "{who}: the policy of step {step} was tested; none that was recorded later was selected."
                ));
            }
            Some(_) => {}
        }
    }
    if config.run.algo.contains(&Algorithm::Sac) && config.run.algo.len() > 1 {
        notes.push(
            "SAC learns only from its own steps, because it collected the first episodes. The other algorithms also \
             start from all episodes collected before them, so with few steps their return may be higher than SAC's."
                .into(),
        );
    }
    if let Some(round) = outcome.rounds.last() {
        let safe = round.fitted.held_out.safe_share;
        if safe.is_nan() {
            notes.push("No episode was held out of the last fit.".to_owned());
        } else {
            notes.push(format!("{} of the held-out episodes of the last fit are safe.", percent(safe)));
        }
    }
    notes.push(
        "All seeds and algorithms of a run share its episodes and safety models. Intervals over seeds therefore do not \
         include the variance of fitting the models, and in later rounds an algorithm benefits from the episodes of \
         the others."
            .into(),
    );
    notes
}
