//! What can go wrong with files, episodes and labels; a rule has its own [`RuleError`](crate::RuleError).

use std::path::{Path, PathBuf};

/// An error of the store, the label log or the files under them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{}: cannot {doing}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file larger than anything that makes sense in its place.
    #[error("{}: more than {limit} bytes; no such file can be that large", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// A new folder was asked for where something lies already.
    #[error("{}: exists and is not empty; choose another folder or remove it", .path.display())]
    NotFresh {
        /// The folder.
        path: PathBuf,
    },
    /// A file that does not hold what it should.
    #[error("{}, {place}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where in it: a line, a column, an episode.
        place: String,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// A shard that is missing or is not what the index says.
    #[error(
        "{}: {problem}; restore the file from a copy, or keep only the {first} episodes before it by deleting its line \
         and all later ones from index.jsonl",
        .path.display()
    )]
    Shard {
        /// The shard.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// The shard's first episode.
        first: u64,
    },
    /// A schema no store can have.
    #[error("schema: {0}")]
    Schema(String),
    /// An episode that does not fit the store; nothing was written.
    #[error("episode {index} of those to append: {problem}")]
    Episode {
        /// Its place among the given episodes.
        index: usize,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// Episodes that are not there.
    #[error("episodes {start}..{end} of a store that holds {len}")]
    Range {
        /// The first asked for.
        start: u64,
        /// One past the last asked for.
        end: u64,
        /// How many there are.
        len: u64,
    },
    /// A cut that would split a shard.
    #[error("cannot cut the store at {len} episodes: shards begin at {before} and {after}")]
    Cut {
        /// The length asked for.
        len: u64,
        /// The nearest possible cut below.
        before: u64,
        /// The nearest possible cut above.
        after: u64,
    },
    /// A label that makes no sense.
    #[error("label of episode {episode}, steps {start}..{end}: {problem}")]
    Label {
        /// The episode.
        episode: u64,
        /// The span's first step.
        start: u32,
        /// One past the span's last step.
        end: u32,
        /// What is wrong and what would be accepted.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: the system's error, with the path and what was tried.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { path: path.to_owned(), doing, source }
    }

    /// A file whose content is wrong at `place`.
    pub(crate) fn content(path: &Path, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Content { path: path.to_owned(), place: place.into(), problem: problem.into() }
    }
}
