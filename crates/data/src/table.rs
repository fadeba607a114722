//! Reads labels from a table: CSV with a header, with or without quotes.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use crate::{Error, Label, Store, files};

const MAX_BYTES: u64 = 1 << 28;
const COLUMNS: [&str; 5] = ["episode", "start", "end", "safe", "at"];

#[derive(Deserialize)]
struct Row<'a> {
    episode: u64,
    start: Option<u32>,
    end: Option<u32>,
    safe: &'a str,
    at: Option<u32>,
}

/// Reads labels from a CSV table with the columns `episode` and `safe` and, optionally, `start`, `end` and `at`.
///
/// A missing or empty start or end means the whole episode; `safe` is 1/0, true/false or safe/unsafe. `by` and `when`
/// go into every label.
pub fn import_csv(path: &Path, store: &Store, by: &str, when: &str) -> Result<Vec<Label>, Error> {
    let bytes = files::read_limited(path, MAX_BYTES)?;
    let text = std::str::from_utf8(&bytes).map_err(|e| Error::content(path, "text", format!("not UTF-8: {e}")))?;
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| unreadable(path, text, &e))?.clone();
    check_header(&header).map_err(|problem| Error::content(path, "header", problem))?;
    let mut labels = Vec::new();
    let mut verdicts = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(|e| unreadable(path, text, &e))?;
        let at = record.position().map_or(0, csv::Position::byte);
        let refuse = |column, problem| Error::content(path, place(line(text, at), column), problem);
        let label = label(&record, &header, store, by, when).map_err(|(column, problem)| refuse(column, problem))?;
        label.check_in(store.lengths()).map_err(|e| refuse(None, e.to_string()))?;
        let first = verdicts.entry((label.episode, label.start, label.end)).or_insert((label.safe, label.at, at));
        if (first.0, first.1) != (label.safe, label.at) {
            let problem = format!("contradicts line {}, which is about the same steps", line(text, first.2));
            return Err(refuse(Some("safe"), problem));
        }
        labels.push(label);
    }
    if labels.is_empty() {
        return Err(Error::content(path, "line 2", "no labels; expected one per line"));
    }
    Ok(labels)
}

fn check_header(header: &csv::StringRecord) -> Result<(), String> {
    if header.is_empty() {
        return Err(format!("empty; expected columns among {}", COLUMNS.join(",")));
    }
    for (place, name) in header.iter().enumerate() {
        if !COLUMNS.contains(&name) {
            return Err(format!("unknown column {name:?}; expected columns among {}", COLUMNS.join(",")));
        }
        if header.iter().take(place).any(|earlier| earlier == name) {
            return Err(format!("column {name:?} appears twice"));
        }
    }
    match ["episode", "safe"].iter().find(|needed| !header.iter().any(|name| name == **needed)) {
        Some(needed) => Err(format!("column {needed:?} is missing")),
        None => Ok(()),
    }
}

/// The label in a row, or the column that is wrong and why.
fn label<'a>(
    record: &csv::StringRecord,
    header: &'a csv::StringRecord,
    store: &Store,
    by: &str,
    when: &str,
) -> Result<Label, (Option<&'a str>, String)> {
    let row: Row<'_> = record.deserialize(Some(header)).map_err(|error| bad_cell(&error, record, header))?;
    let safe = match row.safe.to_ascii_lowercase().as_str() {
        "1" | "true" | "safe" => true,
        "0" | "false" | "unsafe" => false,
        other => {
            let problem = format!("{other:?}, expected 1, 0, true, false, safe or unsafe");
            return Err((Some("safe"), problem));
        }
    };
    let steps = usize::try_from(row.episode).ok().and_then(|episode| store.lengths().get(episode)).copied();
    let steps = steps.ok_or_else(|| {
        let problem = format!("{} does not exist; the store holds {} episodes", row.episode, store.len());
        (Some("episode"), problem)
    })?;
    Ok(Label {
        episode: row.episode,
        start: row.start.unwrap_or(0),
        end: row.end.unwrap_or(steps),
        safe,
        at: row.at,
        by: by.to_owned(),
        when: when.to_owned(),
    })
}

fn bad_cell<'a>(
    error: &csv::Error,
    record: &csv::StringRecord,
    header: &'a csv::StringRecord,
) -> (Option<&'a str>, String) {
    let field = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.field().and_then(|field| usize::try_from(field).ok()),
        _ => None,
    };
    match field.and_then(|field| Some((header.get(field)?, record.get(field)?))) {
        Some((column, cell)) => {
            let most = if column == "episode" { u64::MAX } else { u64::from(u32::MAX) };
            (Some(column), format!("{cell:?}, expected a whole number from 0 to {most}"))
        }
        None => (None, error.to_string()),
    }
}

/// The number of the line in which a row begins; the position of a row may be that of blank lines before it.
fn line(text: &str, at: u64) -> usize {
    let (before, after) = text.split_at(usize::try_from(at).unwrap_or(text.len()).min(text.len()));
    let blank = after.len() - after.trim_start_matches(['\r', '\n']).len();
    1 + before.matches('\n').count() + after[..blank].matches('\n').count()
}

fn place(line: usize, column: Option<&str>) -> String {
    match column {
        Some(column) => format!("line {line}, column {column}"),
        None => format!("line {line}"),
    }
}

/// An error about a table that is not CSV, or a row whose length differs from that of the header.
fn unreadable(path: &Path, text: &str, error: &csv::Error) -> Error {
    let line = line(text, error.position().map_or(0, csv::Position::byte));
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells; the header has {expected_len}")
        }
        _ => error.to_string(),
    };
    Error::content(path, place(line, None), problem)
}
