//! Refits: in the middle of a training, an agent's safety model is fitted again, to the agent's own episodes, too.
//!
//! An agent goes where its safety model was never trained. So every `refit.every` steps its new episodes are labelled,
//! and the model continues from where it is on batches of which half are stored segments, a quarter the agent's own, and
//! a quarter its newest. What a refit uses depends only on the agent's seed and episodes, so a resumed training repeats it.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use prudence_agent::population::{Judged, Population, Refits};
use prudence_core::random::subseed;
use prudence_data::{Episode, Episodes, Error as DataError, Label, Schema, ScratchFile, Segment, Steps};
use prudence_nn::Device;
use prudence_safety::fit::labelled_prefixes;
use prudence_safety::{Fit, FitSettings, RefitData, SafetyModel};

use crate::session::Session;
use crate::{Error, RefitSettings, SafetyError, Task, labelling};

/// An agent's own labelled episodes.
pub(super) struct OwnEpisodes {
    /// Those before the last refit.
    fitted: ScratchFile,
    /// Those since then.
    new: Vec<Episode>,
    /// The segments of all of them; an episode is named by its number.
    segments: Vec<Segment>,
    /// Segments of the episodes before the last refit.
    fitted_segments: usize,
    /// Labels that have not been written to the log yet.
    pub unwritten: Vec<Label>,
}

impl OwnEpisodes {
    /// None so far. A temporary file in `folder` will hold them.
    pub(super) fn create(folder: &Path, schema: &Schema, session: &Session) -> Result<Self, Error> {
        Ok(Self {
            fitted: ScratchFile::create(folder, schema, session.stop_flag())?,
            new: Vec::new(),
            segments: Vec::new(),
            fitted_segments: 0,
            unwritten: Vec::new(),
        })
    }

    /// Adds the episodes of a checkpoint, which were labelled before. Those before the last refit come first.
    pub(super) fn restore(&mut self, task: &Task, seed: u64, episodes: Vec<Episode>, fitted: u64) -> Result<(), Error> {
        for (number, episode) in episodes.into_iter().enumerate() {
            if number as u64 == fitted {
                self.mark_fitted()?;
            }
            self.add(task, seed, episode)?;
        }
        if self.len() as u64 == fitted {
            self.mark_fitted()?;
        }
        self.unwritten.clear();
        Ok(())
    }

    fn len(&self) -> usize {
        self.fitted.count() + self.new.len()
    }

    /// Labels an episode and adds it; `seed` is that of the segments.
    pub(super) fn add(&mut self, task: &Task, seed: u64, episode: Episode) -> Result<(), Error> {
        let (number, starts) = (self.len(), task.settings().label.extra_starts);
        let labels = labelling::of_episode(task.rule(), number as u64, &episode.signals, episode.len(), starts, seed);
        self.segments.extend(labels.iter().rev().map(|label| Segment::of(label, number)));
        self.unwritten.extend(labels);
        self.new.push(episode);
        Ok(())
    }

    fn mark_fitted(&mut self) -> Result<(), Error> {
        self.fitted.push(&self.new)?;
        self.new.clear();
        self.fitted_segments = self.segments.len();
        Ok(())
    }

    /// The number of labelled episodes, and of safe ones.
    pub(super) fn verdicts(&self) -> (usize, usize) {
        let verdicts = self.verdicts_from(0);
        (verdicts.len(), verdicts.iter().filter(|safe| **safe).count())
    }

    /// Whether each episode from number `first` on was safe.
    fn verdicts_from(&self, first: usize) -> Vec<bool> {
        self.segments.iter().filter(|s| s.start == 0 && s.episode >= first).map(|s| s.safe).collect()
    }
}

/// Whether a refit is due for an agent that is between two of its episodes.
pub(super) fn is_due<D: Device>(population: &Population<D>, agent: usize, settings: &RefitSettings) -> bool {
    let constrained = population.setup().algorithm.constraint().is_some();
    let counters = population.counters(agent);
    let passed = settings.every > 0 && counters.step / settings.every > counters.refits.step / settings.every;
    constrained && passed && !population.done(agent)
}

/// What an agent's model is fitted to again.
pub(super) struct RefitJob<'a> {
    pub agent: usize,
    /// The agent's seed.
    pub seed: u64,
    /// The stored episodes that its replica starts from.
    pub stored: Option<&'a ScratchFile>,
    /// The segments of these that its first model was fitted to.
    pub segments: &'a [Segment],
    pub own: &'a mut OwnEpisodes,
}

/// Refits the models of these agents together and continues with them. Returns an outcome for each; nothing has changed
/// where it is an error.
pub(super) fn refit<D: Device>(
    device: &D,
    task: &Task,
    population: &mut Population<D>,
    jobs: &mut [RefitJob<'_>],
    session: &Session,
) -> Result<Vec<Result<(), Error>>, Error> {
    let settings = task.settings();
    let fit_settings = FitSettings {
        steps: settings.refit.steps,
        learning_rate: settings.refit.learning_rate,
        ..settings.safety.clone()
    };
    let mut models: Vec<Arc<SafetyModel>> = Vec::with_capacity(jobs.len());
    let mut refits: Vec<Refits> = Vec::with_capacity(jobs.len());
    for job in &mut *jobs {
        let Some(model) = population.model(job.agent) else { return Ok(Vec::new()) };
        models.push(model.clone());
        refits.push(job.refits(population, settings.safety.prefix_every));
    }
    let fitted = {
        let all: Vec<_> = jobs.iter().map(|job| job.episodes()).collect();
        let own: Vec<Vec<Segment>> = jobs.iter().map(RefitJob::own_segments).collect();
        let data = jobs.iter().zip(&all).zip(&own).zip(models.iter().zip(&refits));
        let data = data.map(|(((job, episodes), own), (model, refits))| RefitData {
            model: model.as_ref(),
            episodes,
            pools: vec![job.segments, job.segments, own, &own[job.own.fitted_segments..]],
            seed: subseed(job.seed, "refit", refits.count),
        });
        let data: Vec<_> = data.collect();
        session.pool().install(|| fit(device, data, &fit_settings, session))?
    };
    let mut outcomes = Vec::with_capacity(jobs.len());
    for ((job, model), refits) in jobs.iter_mut().zip(fitted).zip(refits) {
        let outcome = model.map_err(Error::from).and_then(|model| {
            population.refit(job.agent, Arc::new(model))?;
            population.set_refits(job.agent, refits);
            job.own.mark_fitted()
        });
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Fits until the end, or until a stop is requested.
fn fit<D: Device>(
    device: &D,
    data: Vec<RefitData<'_, StoredAndOwn<'_>>>,
    settings: &FitSettings,
    session: &Session,
) -> Result<Vec<Result<SafetyModel, SafetyError>>, Error> {
    let replicas = data.len();
    let mut fit = Fit::again(device, data, settings)?;
    while !fit.done() {
        if session.stopping() {
            return Err(Error::Stopped);
        }
        match fit.step() {
            Ok(()) => {}
            Err(SafetyError::Diverged { .. }) => break, // all of them, and each says so below
            Err(error) => return Err(error.into()),
        }
    }
    Ok((0..replicas).map(|replica| fit.model(replica)).collect())
}

impl RefitJob<'_> {
    fn episodes(&self) -> StoredAndOwn<'_> {
        StoredAndOwn { stored: self.stored, fitted: &self.own.fitted, new: &self.own.new }
    }

    /// The agent's own segments, with their episodes' places after the stored ones.
    fn own_segments(&self) -> Vec<Segment> {
        let stored = self.stored.map_or(0, Episodes::count);
        self.own.segments.iter().map(|s| Segment { episode: stored + s.episode, ..*s }).collect()
    }

    /// The counts after this refit.
    fn refits<D: Device>(&self, population: &Population<D>, prefix_every: usize) -> Refits {
        let counters = population.counters(self.agent);
        let mut verdicts = self.own.verdicts_from(self.own.fitted.count());
        let sums = population.recent_sums(self.agent, verdicts.len());
        verdicts.drain(..verdicts.len() - sums.len()); // those that the replay has forgotten
        let newest = sums.into_iter().zip(verdicts);
        Refits {
            count: counters.refits.count + 1,
            step: counters.step,
            episode: counters.episode,
            labels: self.own.segments.len() as u64,
            verdicts: self.own.segments.iter().map(|s| labelled_prefixes(s, prefix_every) as u64).sum(),
            judged: Judged::of(newest.clone()),
            sums: {
                let mut sums = counters.refits.sums.clone();
                newest.for_each(|(sum, safe)| sums.add(sum, safe));
                sums
            },
        }
    }
}

/// Stored episodes, then an agent's own.
struct StoredAndOwn<'a> {
    stored: Option<&'a ScratchFile>,
    fitted: &'a ScratchFile,
    new: &'a [Episode],
}

/// A place among [`StoredAndOwn`].
enum Place<'a> {
    InFile(&'a ScratchFile, usize),
    New(usize),
}

impl StoredAndOwn<'_> {
    fn place(&self, episode: usize) -> Place<'_> {
        let mut index = episode;
        for file in self.stored.into_iter().chain([self.fitted]) {
            match index.checked_sub(file.count()) {
                None => return Place::InFile(file, index),
                Some(rest) => index = rest,
            }
        }
        Place::New(index)
    }
}

impl Episodes for StoredAndOwn<'_> {
    fn count(&self) -> usize {
        self.stored.map_or(0, Episodes::count) + self.fitted.count() + self.new.len()
    }

    fn steps(&self, episode: usize) -> usize {
        match self.place(episode) {
            Place::InFile(file, index) => file.steps(index),
            Place::New(index) => self.new.steps(index),
        }
    }

    fn episode(&self, episode: usize) -> Result<Cow<'_, Episode>, DataError> {
        match self.place(episode) {
            Place::InFile(file, index) => file.episode(index),
            Place::New(index) => self.new.episode(index),
        }
    }

    fn read_steps(&self, episode: usize, steps: Range<usize>, to: &mut Steps) -> Result<(), DataError> {
        match self.place(episode) {
            Place::InFile(file, index) => file.read_steps(index, steps, to),
            Place::New(index) => self.new.read_steps(index, steps, to),
        }
    }
}
