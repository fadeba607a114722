//! Errors about files, episodes and labels. A rule has its own [`RuleError`](crate::RuleError).

use std::path::{Path, PathBuf};

/// An error of the store, the label log or the files under them.
///
/// ```
/// use prudence_data::{Error, Store};
///
/// let error: Error = Store::open("no-such-folder".as_ref()).unwrap_err();
/// assert!(error.to_string().starts_with("no-such-folder"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user asked to stop.
    #[error("stopped")]
    Stopped,
    /// The operating system reported an error.
    #[error("{}: cannot {doing}: {source}", .path.display())]
    Io {
        /// The file or folder that was used.
        path: PathBuf,
        /// What was attempted, such as `open`.
        doing: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file that is larger than any valid file of its kind.
    #[error("{}: larger than {limit} bytes, the most that such a file can have", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest size that is read, in bytes.
        limit: u64,
    },
    /// A folder to be created already exists and is not empty.
    #[error("{}: exists and is not empty; choose another folder or remove it", .path.display())]
    NotFresh {
        /// The folder.
        path: PathBuf,
    },
    /// A file whose content is invalid.
    #[error("{}, {place}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where in the file: a line, a column or an episode.
        place: String,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// A file whose content differs from the hash in it: damaged, or edited.
    #[error("{}{}{place}: its content does not match its hash; it was damaged or edited, restore it from a backup",
        .path.display(), if .place.is_empty() { "" } else { ", " })]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file, such as a line; may be empty.
        place: String,
    },
    /// A folder that another process is writing.
    #[error("{}: in use by {}", .path.display(), if .holder.is_empty() { "another process" } else { holder })]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The other process, as far as it is known.
        holder: String,
    },
    /// A folder on a file system that cannot lock files.
    #[error("{}: this file system cannot lock files, so two processes could write the folder; choose one on a local disk",
        .path.display())]
    NoLocks {
        /// The folder.
        path: PathBuf,
    },
    /// A log whose last line is incomplete, as a crash leaves it behind.
    #[error("{}: the last line is incomplete", .path.display())]
    Torn {
        /// The file.
        path: PathBuf,
    },
    /// A shard that is missing or does not match the index.
    #[error(
        "{}: {problem}; restore the file from a backup, or keep only the {first} episodes before it by deleting its \
         line and all later lines from index.jsonl",
        .path.display()
    )]
    Shard {
        /// The shard.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// The number of the shard's first episode.
        first: u64,
    },
    /// An invalid schema.
    #[error("schema: {0}")]
    Schema(String),
    /// An episode that does not fit the store; nothing was written.
    #[error("episode {index} of those to append: {problem}")]
    Episode {
        /// Its index among the episodes to append.
        index: usize,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// A range of episodes that the store does not hold.
    #[error("episodes {start}..{end} requested, but the store holds {len}")]
    Range {
        /// The first episode requested.
        start: u64,
        /// One past the last episode requested.
        end: u64,
        /// How many episodes the store holds.
        len: u64,
    },
    /// A truncation that would split a shard.
    #[error(
        "cannot truncate the store to {len} episodes, which would split a shard; possible lengths nearby are {before} \
         and {after}"
    )]
    Cut {
        /// The length requested.
        len: u64,
        /// The nearest possible length below.
        before: u64,
        /// The nearest possible length above.
        after: u64,
    },
    /// An invalid label.
    #[error("label of episode {episode}, steps {start}..{end}: {problem}")]
    Label {
        /// The number of the episode.
        episode: u64,
        /// The first step of the span.
        start: u32,
        /// One past the last step of the span.
        end: u32,
        /// What is wrong and what would be accepted.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: adds the path and what was attempted to an I/O error.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { path: path.to_owned(), doing, source }
    }

    /// An error about the content of a file at `place`.
    pub(crate) fn content(path: &Path, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Content { path: path.to_owned(), place: place.into(), problem: problem.into() }
    }
}
