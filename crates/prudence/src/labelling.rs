//! Labels stored episodes, by a rule or from a table.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use prudence_core::clock;
use prudence_core::random::stream;
use prudence_data::{LabelLog, Rule, Store, find_stores, import_csv, label_by_rule, label_path, latest};
use serde::Serialize;

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
/// let labelled = prudence::Labelled { episodes: 10, safe: 4, labels: 40 };
/// println!("{} of {} episodes are safe", labelled.safe, labelled.episodes);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Labelled {
    /// The number of episodes that were labelled.
    pub episodes: u64,
    /// How many of them are safe as a whole.
    pub safe: u64,
    /// The number of new labels, including those of segments.
    pub labels: u64,
}

/// Finds the stores in folders: each folder itself, or those directly below it. A folder without a store is an error.
pub fn stores(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for dir in dirs {
        let found = find_stores(dir)?;
        if found.is_empty() {
            return Err(Error::content(dir, "no stored episodes in this folder"));
        }
        all.extend(found);
    }
    Ok(all)
}

/// Labels all episodes of the stores in a folder, except those that the same rule has already labelled.
pub fn label(dir: &Path, labeller: &Labeller) -> Result<Labelled, Error> {
    let stores = stores(&[dir.to_owned()])?;
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

/// Labels the episodes that the rule has not labelled yet and returns their number.
pub(crate) fn by_rule(
    store: &Store,
    log: &mut LabelLog,
    rule: &Rule,
    extra_starts: usize,
    seed: u64,
) -> Result<u64, Error> {
    let by = format!("rule: {}", rule.text());
    let known: HashSet<u64> =
        latest(log.labels()).into_iter().filter(|l| l.by == by && l.start == 0).map(|l| l.episode).collect();
    let when = clock::timestamp();
    let mut labelled = 0;
    for shard in store.shards().collect::<Vec<_>>() {
        let mut labels = Vec::new();
        for (id, episode) in shard.clone().zip(store.read(shard)?) {
            if !known.contains(&id) {
                let rng = &mut stream(seed, "segments", id);
                // The label of the whole episode comes last: if it is in the log, so are those of the segments.
                labels.extend(label_by_rule(rule, id, &episode, extra_starts, rng, &when).into_iter().rev());
                labelled += 1;
            }
        }
        log.append(&labels)?;
    }
    Ok(labelled)
}
