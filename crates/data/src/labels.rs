//! Labels: verdicts on spans of stored episodes, appended to a log and never changed.
//!
//! A verdict covers the steps `start..end`. An unsafe one may name the step that broke the rule, `at`: the prefix
//! `start..e` is unsafe if and only if `e > at`. To change a verdict, append a new one: the latest label of a span counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files::{self, Lines};

const MAX_LOG_BYTES: u64 = 1 << 32;

/// A verdict on the steps `start..end` of an episode.
///
/// ```
/// use prudence_data::Label;
///
/// let label = Label {
///     episode: 7,
///     start: 0,
///     end: 20,
///     safe: false,
///     at: Some(12), // the step that broke the rule
///     by: "Ada".into(),
///     when: "2026-11-16T08:30:00Z".into(),
/// };
/// assert!(serde_json::to_string(&label)?.starts_with(r#"{"episode":7,"start":0,"end":20,"safe":false,"at":12"#));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The episode's number in the store.
    pub episode: u64,
    /// The first step of the span.
    pub start: u32,
    /// One past its last step.
    pub end: u32,
    /// The verdict.
    pub safe: bool,
    /// For an unsafe span whose breaking step is known: the prefix `start..e` is unsafe if and only if `e > at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u32>,
    /// The annotator: `rule: ...`, `table`, or a name.
    pub by: String,
    /// When the verdict was given, in UTC.
    pub when: String,
}

impl Label {
    /// Checks the span and the verdict by themselves.
    fn check(&self) -> Result<(), Error> {
        if self.start >= self.end {
            return Err(self.error("an empty span; expected start < end"));
        }
        match self.at {
            Some(at) if self.safe => Err(self.error(format!("at = {at} in a safe span; only unsafe spans have it"))),
            Some(at) if !(self.start..self.end).contains(&at) => {
                Err(self.error(format!("at = {at}, expected a step of the span")))
            }
            _ => Ok(()),
        }
    }

    /// Checks the label against the episodes of a store with these lengths.
    pub(crate) fn check_in(&self, lengths: &[u32]) -> Result<(), Error> {
        self.check()?;
        match usize::try_from(self.episode).ok().and_then(|episode| lengths.get(episode)) {
            None => Err(self.error(format!("the store holds {} episodes", lengths.len()))),
            Some(steps) if self.end > *steps => Err(self.error(format!("the episode has {steps} steps"))),
            Some(_) => Ok(()),
        }
    }

    fn error(&self, problem: impl Into<String>) -> Error {
        Error::Label { episode: self.episode, start: self.start, end: self.end, problem: problem.into() }
    }
}

/// The latest label of each span, in the order of episodes, starts and ends.
///
/// The last annotator of an episode decides about all of it: labels of its spans by other annotators (or rules) are left
/// out, so that two meanings of "safe" never mix.
pub fn latest(labels: &[Label]) -> Vec<&Label> {
    let mut author = HashMap::new();
    let mut sorted: Vec<&Label> =
        labels.iter().rev().filter(|label| *author.entry(label.episode).or_insert(&label.by) == &label.by).collect();
    sorted.sort_by_key(|label| (label.episode, label.start, label.end)); // stable: the latest stays first
    sorted.dedup_by_key(|label| (label.episode, label.start, label.end));
    sorted
}

/// The append-only log of labels: JSON lines, in the order in which they were given.
///
/// ```
/// use prudence_data::{Label, LabelLog, latest};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("labels.jsonl");
/// # let (by, when) = (String::from("Ada"), String::from("2026-11-16T08:30:00Z"));
/// let mut log = LabelLog::open(&path)?; // a missing file is an empty log
/// let label = Label { episode: 7, start: 0, end: 20, safe: false, at: None, by, when };
/// log.append(&[label.clone()])?;
/// log.append(&[Label { safe: true, ..label }])?; // a later verdict on the same steps
/// assert_eq!(log.labels().len(), 2);
/// assert!(latest(log.labels())[0].safe);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LabelLog {
    path: PathBuf,
    labels: Vec<Label>,
    torn: bool,
    lock: Option<files::Lock>,
}

impl LabelLog {
    /// Reads the log in a file; a missing file is an empty log.
    pub fn open(path: &Path) -> Result<LabelLog, Error> {
        let Lines { values: labels, torn } = files::read_json_lines::<Label>(path, MAX_LOG_BYTES)?;
        for (n, label) in labels.iter().enumerate() {
            label.check().map_err(|e| Error::content(path, format!("line {}", n + 1), e.to_string()))?;
        }
        Ok(LabelLog { path: path.to_owned(), labels, torn, lock: None })
    }

    /// Appends labels: all of them in one write, or none if one is invalid. From the first append on, no other process
    /// can append.
    pub fn append(&mut self, labels: &[Label]) -> Result<(), Error> {
        labels.iter().try_for_each(Label::check)?;
        if self.lock.is_none() {
            let lock = files::lock(&self.path.with_extension("lock"))?;
            let now = LabelLog::open(&self.path)?;
            if now.labels != self.labels {
                return Err(Error::content(&self.path, "log", "another process appended labels; start again"));
            }
            self.lock = Some(lock);
        }
        files::append_json_lines(&self.path, labels)?;
        self.labels.extend_from_slice(labels);
        self.torn = false;
        Ok(())
    }

    /// Drops the labels of the episodes from `episodes` on, to return to a checkpoint, and any incomplete line.
    pub fn truncate(&mut self, episodes: u64) -> Result<(), Error> {
        let before = self.labels.len();
        self.labels.retain(|label| label.episode < episodes);
        if self.torn || self.labels.len() < before {
            files::write_json_lines(&self.path, &self.labels)?;
            self.torn = false;
        }
        Ok(())
    }

    /// All labels, including overruled ones; see [`latest`].
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The file, if it ends with an incomplete line, which does not count.
    pub fn torn(&self) -> Option<PathBuf> {
        self.torn.then(|| self.path.clone())
    }
}
