//! A checkpoint: one safetensors file with all that training goes on from, its counters in the header.
//!
//! The agent's own episodes are not in it: they lie in the run's store, and the checkpoint says how many of them count.

use std::path::Path;

use prudence_data::files::{read_limited, write_atomic};
use prudence_nn::weights::{Reader, Writer};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::multiplier::Multiplier;
use crate::trainer::{Counters, Kept, Trainer};

const FORMAT: &str = "prudence checkpoint 3";
const LIMIT: u64 = 4 << 30;

/// The part of a checkpoint that is no tensor.
#[derive(Serialize, Deserialize)]
pub(crate) struct Header {
    pub format: String,
    /// Hash of everything the run depends on: a checkpoint goes on only under the configuration that made it.
    pub setup: String,
    pub counters: Counters,
    pub multiplier: Multiplier,
    pub optimiser_steps: [u64; 3],
    /// The step of the policy that is kept, where one is.
    pub kept: Option<u64>,
    /// Lines of `metrics.jsonl` that count.
    pub records: usize,
}

/// Writes it, old or new but never half.
pub(crate) fn save(trainer: &Trainer, setup: &str, records: usize, path: &Path) -> Result<(), Error> {
    let learner = &trainer.learner;
    let d = learner.dimensions();
    let (policy, critic) = learner.shapes();
    let mut file = Writer::default();
    file.network("policy.", &policy.tensors(), &learner.policy);
    file.network("averaged_policy.", &policy.tensors(), &learner.averaged_policy);
    if let Some(kept) = &trainer.kept {
        file.network("kept_policy.", &policy.tensors(), &kept.policy);
    }
    for (name, bank) in [("critics", &learner.critics), ("target_critics", &learner.target_critics)] {
        for (i, one) in bank.chunks_exact(critic.parameters()).enumerate() {
            file.network(&format!("{name}.{i}."), &critic.tensors(), one);
        }
    }
    file.tensor("log_temperature", &[d.population], &learner.log_temperature);
    for (name, adam) in ["policy", "critics", "temperature"].iter().zip(&learner.optimisers) {
        for (k, moment) in adam.moments.iter().enumerate() {
            file.tensor(format!("optimiser.{name}.moment{k}"), &[moment.len()], moment);
        }
    }
    let header = Header {
        format: FORMAT.into(),
        setup: setup.into(),
        counters: trainer.counters,
        multiplier: trainer.multiplier.clone(),
        optimiser_steps: [0, 1, 2].map(|i| learner.optimisers[i].steps),
        kept: trainer.kept.as_ref().map(|kept| kept.step),
        records,
    };
    let problem = |problem: String| Error::Checkpoint { path: path.into(), problem };
    file.metadata("prudence", serde_json::to_string(&header).map_err(|e| problem(e.to_string()))?);
    let bytes = file.finish().map_err(|e| problem(e.to_string()))?;
    Ok(write_atomic(path, &bytes)?)
}

/// Puts a fresh trainer where the checkpoint was, except for the episodes of its own.
pub(crate) fn load(trainer: &mut Trainer, setup: &str, path: &Path) -> Result<Header, Error> {
    let bytes = read_limited(path, LIMIT)?;
    let problem = |problem: String| Error::Checkpoint { path: path.into(), problem };
    let file = Reader::new(&bytes).map_err(|e| problem(e.to_string()))?;
    let header = file.metadata("prudence").ok_or_else(|| problem("has no prudence header".into()))?;
    let header: Header = serde_json::from_str(header).map_err(|e| problem(format!("its header: {e}")))?;
    if header.format != FORMAT {
        return Err(problem(format!("its format is `{}`, expected `{FORMAT}`", header.format)));
    }
    if header.setup != setup {
        return Err(problem("was made under another configuration, safety model or data; start a new run".into()));
    }
    let learner = &mut trainer.learner;
    let d = learner.dimensions();
    let (policy, critic) = (learner.shapes().0.tensors(), learner.shapes().1.tensors());
    let read = || -> Result<_, prudence_nn::weights::Error> {
        let bank = |name: &str| -> Result<Vec<f32>, prudence_nn::weights::Error> {
            let one = |i: usize| file.network::<f32>(&format!("{name}.{i}."), &critic);
            Ok((0..d.population * d.critics()).map(one).collect::<Result<Vec<_>, _>>()?.concat())
        };
        Ok((
            file.network("policy.", &policy)?,
            file.network("averaged_policy.", &policy)?,
            bank("critics")?,
            bank("target_critics")?,
            file.tensor("log_temperature", &[d.population])?,
        ))
    };
    (learner.policy, learner.averaged_policy, learner.critics, learner.target_critics, learner.log_temperature) =
        read().map_err(|e| problem(e.to_string()))?;
    let names = ["policy", "critics", "temperature"];
    for ((name, adam), steps) in names.iter().zip(&mut learner.optimisers).zip(header.optimiser_steps) {
        for (k, moment) in adam.moments.iter_mut().enumerate() {
            let name = format!("optimiser.{name}.moment{k}");
            *moment = file.tensor(&name, &[moment.len()]).map_err(|e| problem(e.to_string()))?;
        }
        adam.steps = steps;
    }
    let kept = |step| file.network("kept_policy.", &policy).map(|policy| Kept { step, policy });
    trainer.kept = header.kept.map(kept).transpose().map_err(|e| problem(e.to_string()))?;
    trainer.counters = header.counters;
    trainer.multiplier = header.multiplier.clone();
    Ok(header)
}
