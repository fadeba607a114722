//! A training run as a folder: records, timing, TensorBoard events, checkpoint; started or resumed, to the same bits.
//!
//! In `dir`: `metrics.jsonl`, `timing.jsonl`, `events.out.tfevents.prudence`, `checkpoint.safetensors`, at the end
//! `policy.safetensors`. The episodes lived through go to a store of their own (`episodes`), a shard a checkpoint, so that
//! the store and the checkpoint always agree.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use prudence_data::files::{append_json_lines, read_json_lines, read_limited, write_atomic};
use prudence_data::{Episode, Schema, Store};
use prudence_nn::weights::Writer;

use crate::clock::{Stopwatch, unix_seconds};
use crate::records::{Record, Timing};
use crate::tensorboard::EventFile;
use crate::trainer::{Setup, Trainer};
use crate::{Error, checkpoint};

/// Where a training run writes.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Records and checkpoints.
    pub run: PathBuf,
    /// The store of its episodes.
    pub episodes: PathBuf,
    /// The task's name, for the store.
    pub task: String,
}

/// What a run tells while it goes on.
pub enum Event<'a> {
    /// An episode was lived through: environment steps so far.
    Step(u64),
    /// A record was written.
    Record(&'a Record),
    /// Something a person should know.
    Warning(String),
}

/// A hash of everything the run depends on but the code.
pub fn setup_hash(setup: &Setup) -> Result<String, Error> {
    let mut hash = blake3::Hasher::new();
    let Setup { algorithm, settings, env, rule, safety, stored, seed } = setup;
    hash.update(format!("{algorithm:?} {settings:?} {} {} {seed}", env.describe(), rule.text()).as_bytes());
    if let Some(model) = safety {
        hash.update(&model.to_bytes()?);
    }
    for episode in stored.iter() {
        hash.update(&[u8::from(episode.terminated)]).update(&episode.len().to_le_bytes());
        let numbers = [&episode.observations, &episode.actions, &episode.rewards];
        for x in numbers.into_iter().flatten() {
            hash.update(&x.to_le_bytes());
        }
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Trains in a folder: from its checkpoint if there is one, else from the start. `stop` ends it at the next episode's end,
/// with a checkpoint.
pub fn train(setup: Setup, folders: &Folders, stop: &AtomicBool, tell: &dyn Fn(Event<'_>)) -> Result<Trainer, Error> {
    let hash = setup_hash(&setup)?;
    let mut trainer = Trainer::new(setup)?;
    let mut run = Run::open(&mut trainer, folders, &hash)?;
    let settings = trainer.setup().settings.train.clone();
    let mut warned = false;
    tell(Event::Step(trainer.counters().step));
    while !trainer.done() {
        let before = trainer.counters().step;
        let episode = trainer.episode()?;
        run.pending.push(episode);
        let after = trainer.counters().step;
        tell(Event::Step(after));
        let passed = |every: u64| before / every != after / every;
        if passed(settings.record_every) || trainer.done() {
            let record = trainer.record()?;
            run.write(&record)?;
            tell(Event::Record(&record));
            if trainer.multiplier_at_limit() && !std::mem::replace(&mut warned, true) {
                let text = "the multiplier reached multiplier.max: the constraint asks for more than the agent can do";
                tell(Event::Warning(text.into()));
            }
        }
        let stopping = stop.load(Ordering::Relaxed);
        if passed(settings.checkpoint_every) || trainer.done() || stopping {
            run.checkpoint(&trainer, &hash)?;
        }
        if stopping && !trainer.done() {
            return Err(Error::Stopped);
        }
    }
    if trainer.setup().algorithm.constraint().is_some() {
        match trainer.kept_step() {
            Some(step) if step == trainer.counters().step => {}
            Some(step) => tell(Event::Warning(format!(
                "policies after step {step} miss the constraint as the safety model judges; that one is kept"
            ))),
            None => {
                let text = "no policy met the constraint as the safety model judges; the last one is kept";
                tell(Event::Warning(text.into()));
            }
        }
    }
    write_policy(&trainer, &folders.run.join("policy.safetensors"))?;
    Ok(trainer)
}

/// The policy to use in a file PyTorch loads.
fn write_policy(trainer: &Trainer, path: &Path) -> Result<(), Error> {
    let mut file = Writer::default();
    file.network("policy.", &trainer.learner.shapes().0.tensors(), trainer.policy());
    file.metadata("algorithm", trainer.setup().algorithm.name().into());
    file.metadata("step", trainer.kept_step().unwrap_or(trainer.counters().step).to_string());
    let bytes = file.finish().map_err(|e| Error::Checkpoint { path: path.into(), problem: e.to_string() })?;
    Ok(write_atomic(path, &bytes)?)
}

/// The open files of a run.
struct Run {
    folder: PathBuf,
    store: Store,
    pending: Vec<Episode>,
    records: usize,
    events: EventFile,
    watch: Stopwatch,
    last: (f64, u64, u64),
}

impl Run {
    fn open(trainer: &mut Trainer, folders: &Folders, hash: &str) -> Result<Self, Error> {
        let folder = folders.run.clone();
        let file = |name: &str| folder.join(name);
        let io = |e: std::io::Error| Error::Io { path: folder.clone(), source: e };
        std::fs::create_dir_all(&folder).map_err(io)?;
        let resumed = file("checkpoint.safetensors").exists();
        let (store, records) = if resumed {
            let header = checkpoint::load(trainer, hash, &file("checkpoint.safetensors"))?;
            let mut store = Store::open(&folders.episodes)?;
            store.truncate(header.counters.episode)?;
            store.read_without_signals(0..store.len())?.iter().for_each(|episode| trainer.remember(episode));
            (store, header.records)
        } else {
            // Nothing was saved: whatever lies here is from a run that died before its first checkpoint.
            if folders.episodes.exists() {
                std::fs::remove_dir_all(&folders.episodes).map_err(io)?;
            }
            (Store::create(&folders.episodes, schema(trainer, &folders.task)?)?, 0)
        };
        for name in ["metrics.jsonl", "timing.jsonl"] {
            keep_lines(&file(name), records)?;
        }
        let last_step = if records == 0 { 0 } else { trainer.counters().step };
        let events = EventFile::open_append(&file("events.out.tfevents.prudence"), last_step).map_err(io)?;
        let counters = trainer.counters();
        let last = (0.0, counters.step, counters.update);
        let watch = Stopwatch::start();
        Ok(Self { folder, store, pending: Vec::new(), records, events, watch, last })
    }

    fn write(&mut self, record: &Record) -> Result<(), Error> {
        let seconds = self.watch.seconds();
        let (before, step, update) = self.last;
        let per_second = |n: u64| n as f64 / (seconds - before).max(1e-9);
        let timing = Timing {
            step: record.step,
            seconds,
            updates_per_second: per_second(record.updates - update),
            steps_per_second: per_second(record.step - step),
        };
        self.last = (seconds, record.step, record.updates);
        append_json_lines(&self.folder.join("metrics.jsonl"), std::slice::from_ref(record))?;
        append_json_lines(&self.folder.join("timing.jsonl"), &[timing])?;
        self.records += 1;
        let io = |e: std::io::Error| Error::Io { path: self.folder.clone(), source: e };
        self.events.scalars(record.step, unix_seconds(), &record.scalars()).map_err(io)?;
        self.events.flush().map_err(io)
    }

    fn checkpoint(&mut self, trainer: &Trainer, hash: &str) -> Result<(), Error> {
        if !self.pending.is_empty() {
            self.store.append(&self.pending)?;
            self.pending.clear();
        }
        checkpoint::save(trainer, hash, self.records, &self.folder.join("checkpoint.safetensors"))
    }
}

/// Cuts a file of records back to those that the checkpoint knows of.
fn keep_lines(path: &Path, lines: usize) -> Result<(), Error> {
    let all: Vec<serde_json::Value> = if path.exists() { read_json_lines(path, 1 << 30)? } else { Vec::new() };
    if all.len() < lines {
        let problem = format!("{} records, but the checkpoint was made after {lines}", all.len());
        return Err(Error::Checkpoint { path: path.into(), problem });
    }
    let text = String::from_utf8(read_limited(path, 1 << 30).unwrap_or_default()).unwrap_or_default();
    let kept: String = text.split_inclusive('\n').take(lines).collect();
    Ok(write_atomic(path, kept.as_bytes())?)
}

fn schema(trainer: &Trainer, task: &str) -> Result<Schema, Error> {
    let env = trainer.setup().env.build()?;
    let spec = env.spec();
    Ok(Schema {
        task: task.into(),
        observation_dim: spec.observation.dim(),
        action_dim: spec.action.dim(),
        signals: spec.signals.clone(),
    })
}
