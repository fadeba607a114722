//! Labels: verdicts on spans of stored episodes, appended to a log and never changed.
//!
//! A verdict covers the steps `start..end`. An unsafe one may say since when: the prefix `start..e` is unsafe if and only
//! if `e > at`, so `at` is the step that broke it. Who changes their mind appends again; the latest label of a span counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Store, files};

const MAX_LOG_BYTES: u64 = 1 << 32;
const MAX_TABLE_BYTES: u64 = 1 << 28;

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
/// Who labels an episode last has the say on all of it: spans that only someone else (or another rule) labelled before are
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

/// Labels from a table: a header and plain commas, columns `episode,safe` and, where wanted, `start`, `end`, `at`.
///
/// A missing or empty start or end means the whole episode; `safe` is 1/0, true/false or safe/unsafe. `by` and `when`
/// go into every label.
pub fn import_csv(path: &Path, store: &Store, by: &str, when: &str) -> Result<Vec<Label>, Error> {
    let bytes = files::read_limited(path, MAX_TABLE_BYTES)?;
    let text = std::str::from_utf8(&bytes).map_err(|e| Error::content(path, "text", format!("not UTF-8: {e}")))?;
    let mut lines = (1..).zip(text.trim_start_matches('\u{feff}').lines()).filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or_else(|| Error::content(path, "line 1", "empty; expected a header"))?;
    let columns = Columns::parse(header).map_err(|problem| Error::content(path, "header", problem))?;
    let mut verdicts = HashMap::new();
    let labels: Vec<Label> = lines
        .map(|(line, text)| {
            let place = |column: &str| match column {
                "" => format!("line {line}"),
                column => format!("line {line}, column {column}"),
            };
            let row = columns.row(text).map_err(|(column, problem)| Error::content(path, place(column), problem))?;
            let steps = usize::try_from(row.episode).ok().and_then(|episode| store.lengths().get(episode)).copied();
            let steps = steps.ok_or_else(|| {
                Error::content(
                    path,
                    place("episode"),
                    format!("{}; the store holds {} episodes", row.episode, store.len()),
                )
            })?;
            let label = Label {
                episode: row.episode,
                start: row.start.unwrap_or(0),
                end: row.end.unwrap_or(steps),
                safe: row.safe,
                at: row.at,
                by: by.to_owned(),
                when: when.to_owned(),
            };
            label.check_in(store.lengths()).map_err(|e| Error::content(path, place(""), e.to_string()))?;
            let span = (label.episode, label.start, label.end);
            match verdicts.insert(span, (label.safe, label.at, line)) {
                Some((safe, at, first)) if (safe, at) != (label.safe, label.at) => Err(Error::content(
                    path,
                    place("safe"),
                    format!("another verdict on the same steps than in line {first}"),
                )),
                _ => Ok(label),
            }
        })
        .collect::<Result<_, _>>()?;
    match labels.is_empty() {
        true => Err(Error::content(path, "line 2", "no label; expected one a line")),
        false => Ok(labels),
    }
}

const COLUMNS: [&str; 5] = ["episode", "start", "end", "safe", "at"];

/// Where each of [`COLUMNS`] stands in the table.
struct Columns {
    places: [Option<usize>; 5],
    count: usize,
}

struct Row {
    episode: u64,
    start: Option<u32>,
    end: Option<u32>,
    safe: bool,
    at: Option<u32>,
}

impl Columns {
    fn parse(header: &str) -> Result<Columns, String> {
        let mut columns = Columns { places: [None; 5], count: 0 };
        for (place, name) in header.split(',').map(str::trim).enumerate() {
            let column = COLUMNS.iter().position(|column| *column == name);
            let column = column.ok_or_else(|| format!("column {name:?}, expected some of {}", COLUMNS.join(",")))?;
            if columns.places[column].replace(place).is_some() {
                return Err(format!("column {name:?} stands there twice"));
            }
            columns.count += 1;
        }
        for needed in ["episode", "safe"] {
            if !COLUMNS.iter().zip(columns.places).any(|(name, place)| *name == needed && place.is_some()) {
                return Err(format!("column {needed:?} is missing"));
            }
        }
        Ok(columns)
    }

    /// A row, or the column at fault and what is wrong with it.
    fn row(&self, line: &str) -> Result<Row, (&'static str, String)> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != self.count {
            return Err(("", format!("{} cells, the header has {}", cells.len(), self.count)));
        }
        let cell = |column: usize| self.places[column].map(|place| cells[place]).filter(|cell| !cell.is_empty());
        let number = |column: usize| {
            let number = cell(column).map(|cell| cell.parse::<u64>().map_err(|_| not(column, cell, "a whole number")));
            number.transpose()
        };
        let step = |column: usize| {
            let step = number(column)?.map(|n| u32::try_from(n).map_err(|_| not(column, n, "a step")));
            step.transpose()
        };
        let safe = match cell(3).unwrap_or("").to_ascii_lowercase().as_str() {
            "1" | "true" | "safe" => true,
            "0" | "false" | "unsafe" => false,
            other => return Err(not(3, other, "1, 0, true, false, safe or unsafe")),
        };
        let episode = number(0)?.ok_or_else(|| not(0, "", "a whole number"))?;
        Ok(Row { episode, start: step(1)?, end: step(2)?, safe, at: step(4)? })
    }
}

fn not(column: usize, given: impl std::fmt::Display, expected: &str) -> (&'static str, String) {
    (COLUMNS[column], format!("\"{given}\", expected {expected}"))
}
