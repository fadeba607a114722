//! Labels: verdicts on spans of stored episodes, appended to a log and never changed.
//!
//! A verdict covers the steps `start..end`. An unsafe one may say since when: the prefix `start..e` is unsafe if and only
//! if `e > at`, so `at` is the step that broke it. To change a verdict, append a new one: the latest label of a span counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, files};

const MAX_LOG_BYTES: u64 = 1 << 32;

/// A verdict on the steps `start..end` of an episode.
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
    /// Who said so.
    pub by: String,
    /// When, as the caller writes times.
    pub when: String,
}

impl Label {
    /// Whether span and verdict make sense by themselves.
    fn check(&self) -> Result<(), Error> {
        if self.start >= self.end {
            return Err(self.error("an empty span; expected start < end"));
        }
        match self.at {
            Some(at) if self.safe => Err(self.error(format!("at = {at} in a safe span; only an unsafe one has it"))),
            Some(at) if !(self.start..self.end).contains(&at) => {
                Err(self.error(format!("at = {at}, expected a step of the span")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the label fits the episodes of a store with these lengths.
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
/// Whoever labelled an episode last decides about all of it: labels of its spans by anyone else (or by another rule) are
/// left out, so that two meanings of "safe" never mix.
pub fn latest(labels: &[Label]) -> Vec<&Label> {
    let mut author = HashMap::new();
    let mut sorted: Vec<&Label> =
        labels.iter().rev().filter(|label| *author.entry(label.episode).or_insert(&label.by) == &label.by).collect();
    sorted.sort_by_key(|label| (label.episode, label.start, label.end)); // stable: the latest stays first
    sorted.dedup_by_key(|label| (label.episode, label.start, label.end));
    sorted
}

/// The append-only log of labels: JSON lines, in the order they were given.
#[derive(Debug)]
pub struct LabelLog {
    path: PathBuf,
    labels: Vec<Label>,
}

impl LabelLog {
    /// The log in a file, empty where there is no file yet. A torn last line is left out.
    pub fn open(path: &Path) -> Result<LabelLog, Error> {
        let labels: Vec<Label> = files::read_json_lines(path, MAX_LOG_BYTES)?;
        for (n, label) in labels.iter().enumerate() {
            label.check().map_err(|e| Error::content(path, format!("line {}", n + 1), e.to_string()))?;
        }
        Ok(LabelLog { path: path.to_owned(), labels })
    }

    /// Appends labels: all of them in one write, or none if one makes no sense.
    pub fn append(&mut self, labels: &[Label]) -> Result<(), Error> {
        labels.iter().try_for_each(Label::check)?;
        files::append_json_lines(&self.path, labels)?;
        self.labels.extend_from_slice(labels);
        Ok(())
    }

    /// All labels, the overruled ones too; see [`latest`].
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }
}
