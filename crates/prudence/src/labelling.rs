//! Labels stored episodes, by a rule or from a table.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use prudence_core::clock;
use prudence_core::random::stream;
use prudence_data::{
    Label, LabelLog, Rule, ScratchFile, Store, find_stores, import_csv, label_by_rule, label_path, latest,
};
use serde::Serialize;

use crate::folder::lock_around;
use crate::{Error, Task};

/// The source of labels.
///
/// ```
/// use prudence::{Labeller, Task};
///
/// let by_the_task = Labeller::of(&Task::named("navigation")?);
/// let by_people = Labeller::Table("labels.csv".into());
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Labeller {
    /// A rule, which labels whole episodes and also segments of them that start later.
    Rule {
        /// The rule's text, over the signals of the stored episodes.
        rule: String,
        /// The number of such segments per episode.
        extra_starts: usize,
        /// The seed for drawing the starts of the segments.
        seed: u64,
    },
    /// A CSV table with the header `episode,start,end,safe,at`, of which `start`, `end` and `at` are optional.
    Table(PathBuf),
}

impl Labeller {
    /// The rule of a task, with the settings of its section `[label]`.
    pub fn of(task: &Task) -> Self {
        let settings = task.settings();
        Self::Rule { rule: settings.rule.clone(), extra_starts: settings.label.extra_starts, seed: settings.run.seed }
    }
}

/// The result of [`label`].
///
/// ```
/// let labelled = prudence::Labelled { episodes: 10, safe: 4, labels: 40, ..prudence::Labelled::default() };
/// println!("{} of {} episodes are safe", labelled.safe, labelled.episodes);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Labelled {
    /// The number of episodes that were labelled.
    pub episodes: u64,
    /// How many of them are safe as a whole.
    pub safe: u64,
    /// The number of new labels, including those of segments.
    pub labels: u64,
    /// Files whose last line is incomplete, as after a crash; the line does not count.
    #[serde(skip)]
    pub torn: Vec<PathBuf>,
}

impl Labelled {
    /// What is wrong with the labels if all of them are the same: nothing can be learned from them.
    pub fn one_sided(&self) -> Option<String> {
        one_sided(self.episodes, self.safe)
    }
}

/// Finds the stores in folders: each folder itself, or those directly below it. A folder without a store is an error.
///
/// ```
/// use prudence::{Schema, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let episodes = dir.path().join("episodes");
/// let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// Store::create(&episodes.join("mine"), schema)?;
/// assert_eq!(prudence::stores(&[episodes.clone()])?, [episodes.join("mine")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stores(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for dir in dirs {
        let found = find_stores(dir)?;
        if found.is_empty() {
            return Err(Error::content(dir, "no stored episodes in this folder"));
        }
        all.extend(found);
    }
    let mut whole: Vec<PathBuf> = all.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    whole.sort_unstable();
    if let Some(pair) = whole.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::content(&pair[0], "named more than once"));
    }
    Ok(all)
}

/// Labels all episodes of the stores in a folder, except those that the same rule has already labelled.
///
/// ```
/// use prudence::Labeller;
/// # use prudence::{Episode, Schema, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// # let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// # let episode = Episode {
/// #     observations: vec![0.0, 0.5],
/// #     actions: vec![0.5],
/// #     rewards: vec![0.5],
/// #     signals: vec![0.5],
/// #     ..Episode::new(1, 1)
/// # };
/// # Store::create(&path, schema)?.append(&[episode])?;
/// let rule = Labeller::Rule { rule: "speed <= 0.4".into(), extra_starts: 0, seed: 0 };
/// let labelled = prudence::label(&path, &rule)?; // one episode with a speed of 0.5
/// assert_eq!((labelled.episodes, labelled.safe), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn label(dir: &Path, labeller: &Labeller) -> Result<Labelled, Error> {
    let stores = stores(&[dir.to_owned()])?;
    let _locks = lock_around(dir)?;
    let mut total = Labelled::default();
    if let (Labeller::Table(table), 2..) = (labeller, stores.len()) {
        return Err(Error::content(
            table,
            format!("{} has {} stores, but a table is for one; name one of them", dir.display(), stores.len()),
        ));
    }
    for path in &stores {
        let store = Store::open(path)?;
        let mut log = LabelLog::open(&label_path(path))?;
        total.torn.extend(store.torn().into_iter().chain(log.torn()));
        let before = log.labels().len();
        total.episodes += match labeller {
            Labeller::Rule { rule: text, extra_starts, seed } => {
                let rule = Rule::parse(text, &store.schema().signals)
                    .map_err(|problem| Error::Rule { rule: text.clone(), problem })?;
                by_rule(&store, &mut log, &rule, *extra_starts, *seed)?
            }
            Labeller::Table(table) => {
                let new = import_csv(table, &store, "table", &clock::timestamp())?;
                log.append(&new)?;
                new.iter().map(|label| label.episode).collect::<HashSet<_>>().len() as u64
            }
        };
        total.labels += (log.labels().len() - before) as u64;
        total.safe += log.labels()[before..].iter().filter(|label| label.start == 0 && label.safe).count() as u64;
    }
    Ok(total)
}

/// The number of episodes whose labels are appended together.
const CHUNK: usize = 1000;

/// Episodes that a rule labels: their lengths and signals.
pub(crate) trait Signals {
    fn lengths(&self) -> Vec<u32>;
    fn signals(&self, episodes: Range<usize>) -> Result<Vec<Vec<f64>>, Error>;
}

impl Signals for Store {
    fn lengths(&self) -> Vec<u32> {
        self.lengths().to_vec()
    }

    fn signals(&self, episodes: Range<usize>) -> Result<Vec<Vec<f64>>, Error> {
        Ok(self.read_signals(episodes.start as u64..episodes.end as u64)?)
    }
}

/// The episodes of one store in decoded stores.
pub(crate) struct OfStore<'a> {
    pub episodes: &'a ScratchFile,
    pub indices: Range<usize>,
}

impl Signals for OfStore<'_> {
    fn lengths(&self) -> Vec<u32> {
        self.episodes.lengths(self.indices.clone())
    }

    fn signals(&self, episodes: Range<usize>) -> Result<Vec<Vec<f64>>, Error> {
        Ok(episodes.map(|e| self.episodes.signals(self.indices.start + e)).collect::<Result<_, _>>()?)
    }
}

/// Adds the labels that the rule has not given yet and returns the number of episodes that it completed. A log whose
/// last episode was cut off, as by a crash, ends as if it had not been.
pub(crate) fn by_rule(
    episodes: &impl Signals,
    log: &mut LabelLog,
    rule: &Rule,
    extra_starts: usize,
    seed: u64,
) -> Result<u64, Error> {
    let by = format!("rule: {}", rule.text());
    let known: HashSet<(u64, u32)> =
        latest(log.labels()).into_iter().filter(|l| l.by == by).map(|l| (l.episode, l.start)).collect();
    let lengths = episodes.lengths();
    let mut labelled = 0;
    for first in (0..lengths.len()).step_by(CHUNK) {
        let chunk = first..lengths.len().min(first + CHUNK);
        if chunk.clone().all(|id| known.contains(&(id as u64, 0))) {
            continue;
        }
        let mut labels = Vec::new();
        for (id, signals) in chunk.clone().zip(episodes.signals(chunk)?) {
            let (steps, id) = (lengths[id] as usize, id as u64);
            if !known.contains(&(id, 0)) {
                let new = of_episode(rule, id, &signals, steps, extra_starts, seed);
                labels.extend(new.into_iter().filter(|label| !known.contains(&(id, label.start))));
                labelled += 1;
            }
        }
        log.append(&labels)?;
    }
    Ok(labelled)
}

/// The labels that a rule gives to an episode of `steps` steps and to segments of it. That of the whole episode comes last:
/// if it is in a log, so are the others.
pub(crate) fn of_episode(
    rule: &Rule,
    id: u64,
    signals: &[f64],
    steps: usize,
    extra_starts: usize,
    seed: u64,
) -> Vec<Label> {
    let rng = &mut stream(seed, "segments", id);
    let mut labels = label_by_rule(rule, id, signals, steps, extra_starts, rng, &clock::timestamp());
    labels.reverse();
    labels
}

/// What is wrong with labels that are all the same, if they are.
pub(crate) fn one_sided(episodes: u64, safe: u64) -> Option<String> {
    let (verdict, remedy) = match safe {
        _ if episodes == 0 => return None,
        0 => ("unsafe", "less strict, or collect episodes that behave differently"),
        safe if safe == episodes => ("safe", "stricter, or collect for longer"),
        _ => return None,
    };
    Some(format!(
        "all {episodes} labelled episodes are {verdict}, so there is nothing to tell apart: check the rule against the \
         signals, make it {remedy}"
    ))
}
