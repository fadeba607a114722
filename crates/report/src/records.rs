//! The results of a run, in the format of `evaluation.json` and of the JSON output.
//!
//! Scripts rely on the keys: new ones may be added, but existing ones keep their names and meanings. A number without a
//! value (a return that diverged, an accuracy over no episodes) is NaN here and `null` in JSON.

use prudence_safety::Quality;
use serde::{Deserialize, Deserializer, Serialize};

use crate::statistics::{
    bootstrap_iqm, bootstrap_mean, clopper_pearson, interquartile_mean, mean, sample_sd, t_interval,
};

/// The seed of all bootstraps, fixed so that a report is always the same.
const BOOTSTRAP_SEED: u64 = 0;

/// All results of a run on one task.
///
/// ```
/// use prudence_report::records::Evaluation;
///
/// let text = r#"{"task": "hvac", "target": 0.9, "results": [],
///     "safety_model": {"accuracy": 0.98, "balanced_accuracy": 0.9, "episodes": 100}}"#; // an `evaluation.json`
/// let evaluation: Evaluation = serde_json::from_str(text)?;
/// assert_eq!(evaluation.safety_model.held_out.accuracy, 0.98);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The name of the task.
    pub task: String,
    /// The share of episodes that should be safe (the paper's d).
    pub target: f64,
    /// How well the safety model distinguishes safe from unsafe episodes.
    pub safety_model: ModelQuality,
    /// The results by the true rule, one entry per algorithm.
    pub results: Vec<AlgoResult>,
    /// The rounds, one entry per round and algorithm, in order.
    #[serde(default)]
    pub rounds: Vec<Round>,
    /// Policies to compare the results with.
    #[serde(default)]
    pub references: Vec<Reference>,
}

/// The test episodes of one algorithm, over all seeds.
///
/// ```
/// use prudence_report::records::{AlgoResult, SeedResult};
///
/// let seeds = [
///     SeedResult { seed: 0, returns: vec![1.0, 3.0], safe: vec![true, true] },
///     SeedResult { seed: 1, returns: vec![4.0, 4.0], safe: vec![true, false] },
/// ];
/// let result = AlgoResult::from_seeds("safesac-h", 40_000, &seeds);
/// assert_eq!((result.safe, result.episodes, result.return_mean), (3, 4, 3.0));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlgoResult {
    /// `sac`, `safesac-h`, `safesac-noh` or `safesac-nonlb`.
    pub algo: String,
    /// The number of seeds that were trained.
    pub seeds: usize,
    /// The number of test episodes of all seeds.
    pub episodes: u64,
    /// How many of these episodes kept the true rule.
    pub safe: u64,
    /// `safe / episodes`.
    #[serde(deserialize_with = "number")]
    pub safe_share: f64,
    /// The two-sided 95 % Clopper-Pearson interval of the share, with all episodes pooled.
    pub interval: [f64; 2],
    /// The 95 % bootstrap interval of the mean of the seeds' shares; it has no width if there is only one seed.
    #[serde(deserialize_with = "pair")]
    pub seed_interval: [f64; 2],
    /// The mean return over all episodes.
    #[serde(deserialize_with = "number")]
    pub return_mean: f64,
    /// The sample standard deviation of the mean returns of the seeds or, with replicas, of the replicas; 0 if there is only
    /// one.
    #[serde(deserialize_with = "number")]
    pub return_sd: f64,
    /// The interquartile mean of the seeds' mean returns.
    #[serde(deserialize_with = "number")]
    pub return_iqm: f64,
    /// The 95 % bootstrap interval of the interquartile mean, over seeds.
    #[serde(deserialize_with = "pair")]
    pub return_iqm_interval: [f64; 2],
    /// The number of environment steps for which each seed was trained.
    pub steps: u64,
    /// The share of all steps in test episodes at which the rule held, which is the paper's second metric.
    #[serde(default)]
    pub steps_kept: Option<f64>,
    /// The safe share of the same number of episodes in which actions are sampled from the policy.
    #[serde(default)]
    pub sampled_safe_share: Option<f64>,
    /// The mean return of these sampled episodes.
    #[serde(default)]
    pub sampled_return_mean: Option<f64>,
    /// The share of the test episodes on which the safety model agrees with the rule; none for an algorithm without one.
    #[serde(default)]
    pub model_accuracy: Option<f64>,
    /// The rule that judged, if it is not the task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The results of each seed.
    #[serde(default)]
    pub per_seed: Vec<SeedSummary>,
    /// The results of each replica; none in a single run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_replica: Vec<ReplicaSummary>,
    /// The statistics over replicas, from [`ENOUGH_REPLICAS`] on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_replicas: Option<OverReplicas>,
}

/// The number of replicas from which on an interval over them is given: below, it would say little.
pub const ENOUGH_REPLICAS: usize = 5;

/// The results of one algorithm in one replica, an independent repetition of the whole run.
///
/// ```
/// use prudence_report::records::{AlgoResult, SeedResult};
///
/// let replica = |returns: Vec<f64>, safe: Vec<bool>| {
///     AlgoResult::from_seeds("sac", 40_000, &[SeedResult { seed: 0, returns, safe }])
/// };
/// let (first, second) = (replica(vec![1.0], vec![true]), replica(vec![3.0], vec![false]));
/// let pooled = AlgoResult::from_replicas("sac", &[(0, &first), (1, &second)]);
/// assert_eq!((pooled.safe_share, pooled.per_replica[1].return_mean), (0.5, 3.0));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaSummary {
    /// The replica's number, which is its first seed.
    pub replica: u64,
    /// The number of test episodes of all its seeds.
    pub episodes: u64,
    /// How many of these episodes kept the true rule.
    pub safe: u64,
    /// `safe / episodes`.
    #[serde(deserialize_with = "number")]
    pub safe_share: f64,
    /// The share of steps at which the rule held.
    #[serde(default)]
    pub steps_kept: Option<f64>,
    /// The mean return over all its episodes.
    #[serde(deserialize_with = "number")]
    pub return_mean: f64,
    /// The share of the test episodes on which the safety model agrees with the rule.
    #[serde(default)]
    pub model_accuracy: Option<f64>,
}

/// Statistics over replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverReplicas {
    /// Of the replicas' safe shares.
    pub safe_share: Spread,
    /// Of the replicas' mean returns.
    pub return_mean: Spread,
}

/// The mean of independent values, with its uncertainty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    #[serde(deserialize_with = "number")]
    pub mean: f64,
    /// The sample standard deviation.
    #[serde(deserialize_with = "number")]
    pub sd: f64,
    /// The 95 % interval of the mean by Student's t distribution; none (NaN) if all values are the same, because then
    /// nothing is known about their variation.
    #[serde(deserialize_with = "pair")]
    pub t_interval: [f64; 2],
    /// The 95 % bootstrap interval of the mean, likewise.
    #[serde(deserialize_with = "pair")]
    pub bootstrap_interval: [f64; 2],
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let same = values.iter().all(|value| *value == values[0]);
        Self {
            mean: mean(values),
            sd: sample_sd(values),
            t_interval: if same { [f64::NAN; 2] } else { t_interval(values) },
            bootstrap_interval: if same { [f64::NAN; 2] } else { bootstrap_mean(values, BOOTSTRAP_SEED) },
        }
    }
}

/// The test episodes of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedResult {
    /// The seed that the agent was trained with.
    pub seed: u64,
    /// The return of each episode.
    pub returns: Vec<f64>,
    /// Whether each episode kept the true rule.
    pub safe: Vec<bool>,
}

/// The statistics of the test episodes of one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedSummary {
    /// The seed that the agent was trained with.
    pub seed: u64,
    /// The number of test episodes.
    pub episodes: u64,
    /// How many of these episodes kept the true rule.
    pub safe: u64,
    /// `safe / episodes`.
    #[serde(deserialize_with = "number")]
    pub safe_share: f64,
    /// The two-sided 95 % Clopper-Pearson interval of the share.
    pub interval: [f64; 2],
    /// The mean return.
    #[serde(deserialize_with = "number")]
    pub return_mean: f64,
}

impl SeedResult {
    fn summary(&self) -> SeedSummary {
        let episodes = self.safe.len() as u64;
        let safe = self.safe.iter().filter(|safe| **safe).count() as u64;
        SeedSummary {
            seed: self.seed,
            episodes,
            safe,
            safe_share: safe as f64 / episodes as f64,
            interval: clopper_pearson(safe, episodes),
            return_mean: mean(&self.returns),
        }
    }
}

impl AlgoResult {
    /// Computes the statistics of `algo`, trained for `steps` environment steps per seed.
    pub fn from_seeds(algo: &str, steps: u64, per_seed: &[SeedResult]) -> Self {
        let summaries: Vec<SeedSummary> = per_seed.iter().map(SeedResult::summary).collect();
        let episodes = summaries.iter().map(|seed| seed.episodes).sum();
        let safe = summaries.iter().map(|seed| seed.safe).sum();
        let shares: Vec<f64> = summaries.iter().map(|seed| seed.safe_share).collect();
        let returns: Vec<f64> = summaries.iter().map(|seed| seed.return_mean).collect();
        let all_returns: Vec<f64> = per_seed.iter().flat_map(|seed| seed.returns.iter().copied()).collect();
        Self {
            algo: algo.to_owned(),
            seeds: per_seed.len(),
            episodes,
            safe,
            safe_share: safe as f64 / episodes as f64,
            interval: clopper_pearson(safe, episodes),
            seed_interval: bootstrap_mean(&shares, BOOTSTRAP_SEED),
            return_mean: mean(&all_returns),
            return_sd: if returns.len() == 1 { 0.0 } else { sample_sd(&returns) },
            return_iqm: interquartile_mean(&returns),
            return_iqm_interval: bootstrap_iqm(&[returns], BOOTSTRAP_SEED),
            steps,
            steps_kept: None,
            sampled_safe_share: None,
            sampled_return_mean: None,
            model_accuracy: None,
            rule: None,
            per_seed: summaries,
            per_replica: Vec::new(),
            over_replicas: None,
        }
    }

    /// Combines the results of one algorithm in several replicas, each with its number.
    pub fn from_replicas(algo: &str, replicas: &[(u64, &AlgoResult)]) -> Self {
        let summary = |(replica, result): &(u64, &AlgoResult)| ReplicaSummary {
            replica: *replica,
            episodes: result.episodes,
            safe: result.safe,
            safe_share: result.safe_share,
            steps_kept: result.steps_kept,
            return_mean: result.return_mean,
            model_accuracy: result.model_accuracy,
        };
        let per_replica: Vec<ReplicaSummary> = replicas.iter().map(summary).collect();
        let per_seed: Vec<SeedSummary> = replicas.iter().flat_map(|(_, result)| result.per_seed.clone()).collect();
        let returns: Vec<f64> = per_replica.iter().map(|replica| replica.return_mean).collect();
        let (episodes, safe) = replicas.iter().fold((0, 0), |(n, k), (_, r)| (n + r.episodes, k + r.safe));
        let weighted = |of: &dyn Fn(&AlgoResult) -> Option<f64>| -> Option<f64> {
            let sum =
                replicas.iter().map(|(_, result)| Some(of(result)? * result.episodes as f64)).sum::<Option<f64>>();
            sum.map(|sum| sum / episodes as f64)
        };
        let over = |of: fn(&ReplicaSummary) -> f64| Spread::of(&per_replica.iter().map(of).collect::<Vec<_>>());
        let enough = per_replica.len() >= ENOUGH_REPLICAS;
        Self {
            algo: algo.to_owned(),
            seeds: per_seed.len(),
            episodes,
            safe,
            safe_share: safe as f64 / episodes as f64,
            // A pooled interval would treat episodes of one replica as independent.
            interval: if enough { clopper_pearson(safe, episodes) } else { [f64::NAN; 2] },
            seed_interval: [f64::NAN; 2],
            return_mean: weighted(&|result| Some(result.return_mean)).unwrap_or(f64::NAN),
            return_sd: if returns.len() == 1 { 0.0 } else { sample_sd(&returns) },
            return_iqm: interquartile_mean(&returns),
            return_iqm_interval: if enough { bootstrap_iqm(&[returns], BOOTSTRAP_SEED) } else { [f64::NAN; 2] },
            steps: replicas.first().map_or(0, |(_, result)| result.steps),
            steps_kept: weighted(&|result| result.steps_kept),
            sampled_safe_share: weighted(&|result| result.sampled_safe_share),
            sampled_return_mean: weighted(&|result| result.sampled_return_mean),
            model_accuracy: weighted(&|result| result.model_accuracy),
            rule: None,
            per_seed,
            over_replicas: enough
                .then(|| OverReplicas { safe_share: over(|r| r.safe_share), return_mean: over(|r| r.return_mean) }),
            per_replica,
        }
    }
}

impl Evaluation {
    /// Combines the evaluations of several replicas, each with its number.
    pub fn from_replicas(replicas: &[(u64, Evaluation)]) -> Option<Self> {
        let (_, first) = replicas.first()?;
        let of_all = |algo: &str| -> Vec<(u64, &AlgoResult)> {
            let all = replicas.iter().flat_map(|(replica, e)| e.results.iter().map(|result| (*replica, result)));
            all.filter(|(_, result)| result.algo == algo).collect()
        };
        let rounds = |round: &Round| {
            let same = |other: &&Round| (other.round, &other.algo) == (round.round, &round.algo);
            let all: Vec<&Round> = replicas.iter().filter_map(|(_, e)| e.rounds.iter().find(same)).collect();
            Round::pooled(&all)
        };
        Some(Self {
            task: first.task.clone(),
            target: first.target,
            safety_model: ModelQuality::pooled(replicas.iter().map(|(_, evaluation)| &evaluation.safety_model)),
            results: first.results.iter().map(|r| AlgoResult::from_replicas(&r.algo, &of_all(&r.algo))).collect(),
            rounds: first.rounds.iter().map(rounds).collect(),
            references: first.references.clone(),
        })
    }
}

/// The data that the safety model was fitted on, and its quality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelQuality {
    /// The quality on held-out episodes of the data.
    #[serde(flatten)]
    pub held_out: Quality,
    /// The quality on the episodes of the agents that were trained with the model.
    #[serde(default)]
    pub own: Option<Quality>,
    /// The number of labelled episodes in the data, including held-out ones.
    #[serde(default)]
    pub data_episodes: u64,
    /// The number of labelled segments in these episodes.
    #[serde(default)]
    pub data_segments: u64,
}

impl ModelQuality {
    /// The models of several replicas together, each on its own episodes.
    fn pooled<'a>(all: impl Iterator<Item = &'a ModelQuality> + Clone) -> Self {
        let own: Option<Vec<Quality>> = all.clone().map(|model| model.own).collect();
        Self {
            held_out: Quality::pooled(&all.clone().map(|model| model.held_out).collect::<Vec<_>>()),
            own: own.map(|own| Quality::pooled(&own)),
            data_episodes: all.clone().map(|model| model.data_episodes).sum(),
            data_segments: all.map(|model| model.data_segments).sum(),
        }
    }
}

/// One algorithm after one round of collect, label, fit, enrich, train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The round, from 0.
    pub round: usize,
    /// The name of the algorithm.
    pub algo: String,
    /// The number of test episodes of all seeds.
    pub episodes: u64,
    /// How many of these episodes kept the true rule.
    pub safe: u64,
    /// `safe / episodes`.
    #[serde(deserialize_with = "number")]
    pub safe_share: f64,
    /// The two-sided 95 % Clopper-Pearson interval of the share; none (NaN) over replicas.
    #[serde(deserialize_with = "pair")]
    pub interval: [f64; 2],
    /// The mean return over all episodes.
    #[serde(deserialize_with = "number")]
    pub return_mean: f64,
    /// The sample standard deviation of the mean returns of the seeds or, with replicas, of the replicas.
    #[serde(deserialize_with = "number")]
    pub return_sd: f64,
    /// The accuracy of the round's safety model on held-out episodes.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
    /// The accuracy of the round's safety model on the algorithm's own test episodes.
    #[serde(deserialize_with = "number")]
    pub own_accuracy: f64,
}

impl Round {
    /// Creates the record of `result` in `round`, whose safety model has these accuracies on held-out episodes and on
    /// the agents' own.
    pub fn new(round: usize, result: &AlgoResult, accuracy: f64, own_accuracy: f64) -> Self {
        Self {
            round,
            algo: result.algo.clone(),
            episodes: result.episodes,
            safe: result.safe,
            safe_share: result.safe_share,
            interval: result.interval,
            return_mean: result.return_mean,
            return_sd: result.return_sd,
            accuracy,
            own_accuracy,
        }
    }
}

impl Round {
    /// The same round and algorithm in several replicas: test episodes pooled, the deviation over replicas.
    fn pooled(all: &[&Round]) -> Self {
        let (episodes, safe) = all.iter().fold((0, 0), |(n, k), round| (n + round.episodes, k + round.safe));
        let returns: Vec<f64> = all.iter().map(|round| round.return_mean).collect();
        let mean_of = |of: fn(&Round) -> f64| {
            mean(&all.iter().map(|round| of(round)).filter(|rate| !rate.is_nan()).collect::<Vec<_>>())
        };
        Self {
            round: all[0].round,
            algo: all[0].algo.clone(),
            episodes,
            safe,
            safe_share: safe as f64 / episodes as f64,
            interval: [f64::NAN; 2],
            return_mean: mean(&returns),
            return_sd: sample_sd(&returns),
            accuracy: mean_of(|round| round.accuracy),
            own_accuracy: mean_of(|round| round.own_accuracy),
        }
    }
}

/// A policy for comparison that was not trained in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// A description of the policy.
    pub name: String,
    /// The mean return of the policy.
    #[serde(deserialize_with = "number")]
    pub return_mean: f64,
    /// The share of safe episodes.
    #[serde(deserialize_with = "number")]
    pub safe_share: f64,
}

/// A number, or `null` for NaN, which is how `serde_json` writes it.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let pair: [Option<f64>; 2] = Deserialize::deserialize(deserializer)?;
    Ok(pair.map(|value| value.unwrap_or(f64::NAN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quality(predictions: &[(f64, bool)]) -> Quality {
        let log: Vec<_> = predictions.iter().map(|(p, safe)| (p.ln(), *safe)).collect();
        Quality::of(&log)
    }

    fn seed(seed: u64, returns: &[f64], safe: &[bool]) -> SeedResult {
        SeedResult { seed, returns: returns.to_vec(), safe: safe.to_vec() }
    }

    fn evaluation(results: Vec<AlgoResult>) -> Evaluation {
        let held_out = quality(&[(0.9, true), (0.2, true), (0.1, false), (0.3, false)]);
        let rounds = results.iter().map(|result| Round::new(0, result, 0.98, f64::NAN)).collect();
        Evaluation {
            task: "navigation".into(),
            target: 0.9,
            safety_model: ModelQuality { held_out, own: None, data_episodes: 40, data_segments: 400 },
            results,
            rounds,
            references: vec![Reference { name: "standing still".into(), return_mean: -9.0, safe_share: 1.0 }],
        }
    }

    #[test]
    fn the_mean_is_over_episodes_and_the_deviation_over_seeds() {
        let seeds = [seed(0, &[1.0, 2.0, 3.0], &[true, true, false]), seed(1, &[10.0], &[true])];
        let result = AlgoResult::from_seeds("safesac-h", 500, &seeds);
        assert_eq!((result.seeds, result.episodes, result.safe, result.steps), (2, 4, 3, 500));
        assert_eq!(result.safe_share, 0.75);
        assert_eq!(result.return_mean, 4.0);
        assert_eq!(result.return_sd, sample_sd(&[2.0, 10.0]));
        assert_eq!(result.interval, clopper_pearson(3, 4));
        assert!((2.0 / 3.0 - result.seed_interval[0]).abs() < 1e-12 && result.seed_interval[1] == 1.0);
        assert_eq!(result.per_seed[0].safe, 2);
    }

    #[test]
    fn json_has_the_keys_that_scripts_read() {
        let result = AlgoResult::from_seeds("sac", 10, &[seed(3, &[1.0], &[true])]);
        let json = serde_json::to_value(evaluation(vec![result])).unwrap();
        for key in ["task", "target", "safety_model", "results", "rounds", "references"] {
            assert!(!json[key].is_null(), "{key}");
        }
        for key in ["accuracy", "balanced_accuracy", "episodes"] {
            assert!(json["safety_model"][key].is_number(), "{key}");
        }
        for key in ["seeds", "episodes", "safe", "safe_share", "return_mean", "return_sd", "steps"] {
            assert!(json["results"][0][key].is_number(), "{key}");
        }
        assert_eq!(json["results"][0]["algo"], "sac");
        assert_eq!(json["results"][0]["seed_interval"], json!([1.0, 1.0]));
        assert!(json["results"][0]["interval"][0].is_number());
    }

    #[test]
    fn an_evaluation_with_nan_round_trips_through_json() {
        let diverged = AlgoResult::from_seeds("sac", 10, &[seed(0, &[f64::NAN], &[false]), seed(1, &[1.0], &[true])]);
        let nothing = AlgoResult::from_seeds("safesac-h", 10, &[]);
        let text = serde_json::to_string(&evaluation(vec![diverged, nothing])).unwrap();
        let back: Evaluation = serde_json::from_str(&text).unwrap();
        assert!(back.results[0].return_mean.is_nan() && back.results[1].seed_interval[0].is_nan());
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn an_evaluation_with_only_required_keys_is_read() {
        let text = r#"{"task":"hvac","target":0.9,"results":[],
            "safety_model":{"accuracy":0.98,"balanced_accuracy":0.9,"episodes":100}}"#;
        let read: Evaluation = serde_json::from_str(text).unwrap();
        assert!(read.safety_model.held_out.safe_share.is_nan() && read.rounds.is_empty());
    }

    #[test]
    fn both_error_rates_are_counted() {
        let verdicts = [(0.9, true), (0.2, true), (0.1, false), (0.3, false), (0.6, false), (f64::NAN, false)];
        let judged = quality(&verdicts);
        assert_eq!(judged.safe_called_unsafe, 0.5);
        assert_eq!(judged.unsafe_called_safe, 0.5, "NaN counts as an error");
        assert_eq!(judged.balanced_accuracy, 0.5);
        assert_eq!(judged.accuracy, 0.5);
        assert!(quality(&[]).accuracy.is_nan());
    }
}
