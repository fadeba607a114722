//! Texts, places in them, and the error of this crate: what is wrong, where, and what would be accepted.

use std::fmt;

/// One file of RDDL text.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The name that errors show, usually the path.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

impl Source {
    /// Creates a source from a name and a text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    /// Creates a source from the bytes of a file. Old texts have comments in other encodings, so bytes that are not
    /// UTF-8 become replacement characters, which are an error except in comments.
    pub fn decode(name: impl Into<String>, bytes: &[u8]) -> Source {
        Source::new(name, String::from_utf8_lossy(bytes))
    }
}

/// A range of bytes in one of the sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The span from the start of this one to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.end), ..self }
    }
}

/// What is wrong and where, before the sources are available to show it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub message: String,
    pub span: Option<Span>,
}

impl Fault {
    pub fn at(span: Span, message: impl Into<String>) -> Fault {
        Fault { message: message.into(), span: Some(span) }
    }

    /// A fault of the input as a whole.
    pub fn general(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), span: None }
    }

    pub fn show(self, sources: &[Source]) -> Error {
        let place = self.span.and_then(|span| Place::find(span, sources));
        Error { message: self.message, place }
    }
}

/// An error in a text, or a step that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Error {
    /// What is wrong and what would be accepted.
    pub message: String,
    /// The place in the texts, if there is one.
    pub place: Option<Place>,
}

/// A place in a text, as errors show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The name of the source.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line of text, shortened if it is long.
    pub excerpt: String,
    /// The characters of the excerpt at fault: the index of the first, and how many.
    pub marked: (usize, usize),
}

/// How many characters of a long line are shown.
const EXCERPT: usize = 110;

impl Place {
    pub(crate) fn find(span: Span, sources: &[Source]) -> Option<Place> {
        let source = sources.get(span.file as usize)?;
        let start = (span.start as usize).min(source.text.len());
        let before = source.text.get(..start)?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = source.text.get(line_start..)?.split(['\n', '\r']).next().unwrap_or_default();
        let column = before.get(line_start..)?.chars().count();
        let marked = source.text.get(start..(span.end as usize).max(start)).unwrap_or_default();
        let width = marked.split(['\n', '\r']).next().unwrap_or_default().chars().count().max(1);
        let skipped = if column + width > EXCERPT { column.saturating_sub(EXCERPT / 2) } else { 0 };
        let excerpt = line.chars().skip(skipped).take(EXCERPT).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(Place {
            file: source.name.clone(),
            line: before.bytes().filter(|b| *b == b'\n').count() + 1,
            column: column + 1,
            excerpt,
            marked: (column - skipped, width.min(EXCERPT - (column - skipped).min(EXCERPT - 1))),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else { return f.write_str(&self.message) };
        let (indent, width) = place.marked;
        writeln!(f, "{}:{}:{}: {}", place.file, place.line, place.column, self.message)?;
        write!(f, "  {}\n  {:indent$}{}", place.excerpt, "", "^".repeat(width))
    }
}

/// How many names are compared for a suggestion.
const MAX_SUGGESTED: usize = 2000;

/// `; did you mean ...` if one of the names is similar, otherwise the names themselves if they are few.
pub(crate) fn suggest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().take(MAX_SUGGESTED).collect();
    names.sort_unstable();
    names.dedup();
    let near = names.iter().map(|name| (edits(given, name), *name)).min();
    let near = near.filter(|(distance, name)| *distance <= 1 + name.len() / 4);
    match near {
        Some((_, near)) => format!("; did you mean `{near}`?"),
        None if names.is_empty() => "; there are none".to_owned(),
        None if names.len() <= 24 => format!("; expected one of: {}", names.join(", ")),
        None => String::new(),
    }
}

/// The edit (Levenshtein) distance between two words, ignoring case; long words count as far apart.
fn edits(a: &str, b: &str) -> usize {
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
