//! `prudence run`: every stage in order, in rounds, in one folder that explains itself.
//!
//! Round 0 is the paper's recipe: unconstrained agents collect, the rule labels, a model is fitted, safe agents are trained
//! on the enriched episodes. Each later round labels what the safe agents of the round before lived through, refits on all
//! episodes so far, and trains afresh.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_agent::Algorithm;
use prudence_agent::evaluate::TestEpisode;
use prudence_agent::trainer::Trainer;
use prudence_data::Episode;
use prudence_env::random::subseed;
use prudence_safety::SafetyModel;
use rayon::prelude::*;

use crate::config::Config;
use crate::progress::Progress;
use crate::stages::{Fitted, Job, fit_model, label, load_episodes};

/// Final tests start here, so that they meet other starts than the tests along the way.
const FINAL_TESTS: u64 = 1 << 32;

/// One trained agent, tested.
pub struct Tested {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its seed.
    pub seed: u64,
    /// The step its policy is from: the last that met the constraint as the safety model judges, where one did.
    pub kept_step: Option<u64>,
    /// Final test episodes, the policy's mode acting.
    pub tests: Vec<TestEpisode>,
    /// The same number with drawn actions.
    pub sampled: Vec<TestEpisode>,
}

/// One round.
pub struct RoundResult {
    /// The safety model and how good it is.
    pub model: Arc<SafetyModel>,
    pub fitted: Fitted,
    /// The safe agents.
    pub agents: Vec<Tested>,
}

/// All that a run found.
pub struct Outcome {
    /// The unconstrained agents.
    pub collectors: Vec<Tested>,
    /// The rounds, in order.
    pub rounds: Vec<RoundResult>,
}

/// A run in a folder.
pub struct Experiment<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The run's folder.
    pub dir: &'a Path,
    /// Agents trained at a time.
    pub pool: &'a rayon::ThreadPool,
    /// Progress.
    pub progress: &'a Progress,
}

impl Experiment<'_> {
    /// Does whatever is not done yet.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let config = self.config;
        let rule = config.parsed_rule()?;
        let safe_algorithms: Vec<_> = config.run.algo.iter().copied().filter(|a| a.constraint().is_some()).collect();
        let empty = Arc::new(Vec::new());
        let (collectors, mut new_stores) = self.train(0, &[Algorithm::Sac], config.collect.steps, None, &empty)?;
        let mut stores: Vec<PathBuf> = Vec::new();
        let mut rounds = Vec::new();
        let last = if safe_algorithms.is_empty() { 0 } else { config.run.rounds };
        for round in 0..=last {
            for store in &new_stores {
                label(store, &rule, config.label.extra_starts, config.run.seed)?;
            }
            stores.append(&mut new_stores);
            let out = self.round_dir(round).join("safety");
            let seed = subseed(config.run.seed, "fit", round as u64);
            let (model, fitted) = self.pool.install(|| fit_model(config, &stores, &out, seed, self.progress))?;
            let quality = &fitted.held_out;
            self.progress.say(&format!(
                "round {round}: safety model {:.1} % right on {} held-out episodes ({:.1} % of the safe called unsafe, \
                 {:.1} % of the unsafe called safe)",
                100.0 * quality.accuracy,
                quality.episodes,
                100.0 * quality.safe_called_unsafe,
                100.0 * quality.unsafe_called_safe
            ));
            let model = Arc::new(model);
            let stored = Arc::new(load_episodes(&stores)?);
            let agents;
            (agents, new_stores) =
                self.train(round, &safe_algorithms, config.train.steps, Some(model.clone()), &stored)?;
            rounds.push(RoundResult { model, fitted, agents });
        }
        Ok(Outcome { collectors, rounds })
    }

    fn round_dir(&self, round: usize) -> PathBuf {
        self.dir.join(format!("round-{round}"))
    }

    /// Trains and tests every algorithm and seed; returns the stores of their episodes as well.
    fn train(
        &self,
        round: usize,
        algorithms: &[Algorithm],
        steps: u64,
        safety: Option<Arc<SafetyModel>>,
        stored: &Arc<Vec<Episode>>,
    ) -> anyhow::Result<(Vec<Tested>, Vec<PathBuf>)> {
        let run = &self.config.run;
        let jobs: Vec<_> = algorithms
            .iter()
            .flat_map(|a| (run.seed..run.seed + run.seeds).map(move |seed| (*a, seed)))
            .map(|(algorithm, seed)| Job {
                config: self.config,
                algorithm,
                seed,
                round: round as u64,
                steps,
                safety: safety.clone(),
                stored: stored.clone(),
                run: self.round_dir(round).join(algorithm.name()).join(format!("seed-{seed}")),
                episodes: self.round_dir(round).join("data").join(format!("{}-seed-{seed}", algorithm.name())),
            })
            .collect();
        let test = |job: &Job<'_>| -> anyhow::Result<Tested> {
            let mut trainer: Trainer = job.train(self.progress)?;
            let tests = trainer.test(FINAL_TESTS..FINAL_TESTS + run.episodes, false)?;
            let sampled = trainer.test(FINAL_TESTS..FINAL_TESTS + run.episodes, true)?;
            Ok(Tested { algorithm: job.algorithm, seed: job.seed, kept_step: trainer.kept_step(), tests, sampled })
        };
        let tested = self.pool.install(|| jobs.par_iter().map(test).collect::<anyhow::Result<Vec<_>>>())?;
        for agent in &tested {
            let n = agent.tests.len();
            let safe = agent.tests.iter().filter(|t| t.safe).count();
            let mean = agent.tests.iter().map(|t| t.total_reward).sum::<f64>() / n as f64;
            let drawn = agent.sampled.iter().filter(|t| t.safe).count();
            self.progress.say(&format!(
                "round {round}: {:14} seed {}: return {mean:8.2}, {safe}/{n} safe ({drawn}/{n} with drawn actions)",
                agent.algorithm.name(),
                agent.seed
            ));
        }
        Ok((tested, jobs.into_iter().map(|job| job.episodes).collect()))
    }
}
