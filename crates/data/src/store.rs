//! The trajectory store: a folder of Parquet shards that only grows, except when it is truncated to a checkpoint.
//!
//! `store.json` holds the schema, `shard-00000.parquet` and its successors hold the episodes, and `index.jsonl` has one
//! line per shard: its first episode, the episodes' lengths and its BLAKE3 hash. A shard belongs to the store once its
//! line is in the index, so a crash before that leaves the store without the shard, and the next append overwrites it.
//! Opening a store never writes. Only one process at a time may append.

use std::fs::File;
use std::io::Seek as _;
use std::ops::Range;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::files::{self, Lines};
use crate::{Episode, Error, Label, Schema, shard};

const FORMAT: u32 = 3; // 1: the last row had a null list for its action; 2: no hashes in store.json and index.jsonl
const INDEX: &str = "index.jsonl";
const MAX_SCHEMA_BYTES: u64 = 1 << 20;
const MAX_INDEX_BYTES: u64 = 1 << 28;

/// An open trajectory store: its schema and index are in memory, its episodes on disk.
///
/// ```
/// use prudence_data::{Episode, Schema, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// let episode = Episode {
///     observations: vec![0.0, 0.5],
///     actions: vec![0.5],
///     rewards: vec![0.5],
///     signals: vec![0.5],
///     ..Episode::new(1, 1)
/// };
/// let mut store = Store::create(&path, schema)?;
/// assert_eq!(store.append(&[episode.clone()])?, 0..1); // the numbers of the new episodes
/// assert_eq!(Store::open(&path)?.read(0..1)?, [episode]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    schema: Schema,
    shards: Vec<Shard>,
    lengths: Vec<u32>, // of all episodes
    torn: bool,
}

/// The index entry of a shard, without the episodes' lengths.
#[derive(Debug)]
struct Shard {
    episodes: Range<u64>,
    blake3: String,
    /// Whether the file was compared with its hash since the store was opened.
    verified: AtomicBool,
}

/// `store.json`
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    schema: Schema,
}

/// A line of `index.jsonl`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    shard: String,
    first: u64,
    steps: Vec<u32>,
    blake3: String,
}

impl Store {
    /// Creates an empty store in a new or empty folder.
    pub fn create(dir: &Path, schema: Schema) -> Result<Store, Error> {
        schema.check().map_err(Error::Schema)?;
        files::create_fresh_dir(dir)?;
        let path = dir.join("store.json");
        let manifest = Manifest { format: FORMAT, schema };
        files::write_json_lines::<Line>(&dir.join(INDEX), &[])?;
        files::write_json(&path, &manifest)?;
        Ok(Store { dir: dir.to_owned(), schema: manifest.schema, shards: Vec::new(), lengths: Vec::new(), torn: false })
    }

    /// Opens the store in a folder. All its shards must exist; their content is checked when it is read.
    pub fn open(dir: &Path) -> Result<Store, Error> {
        let path = dir.join("store.json");
        let manifest = files::read_members(&path, MAX_SCHEMA_BYTES)?;
        let format = manifest.get("format").cloned().unwrap_or_default();
        if format != FORMAT {
            let problem = format!("{format}; this version of prudence reads {FORMAT}");
            return Err(Error::content(&path, "format", problem));
        }
        let manifest: Manifest =
            serde_json::from_value(manifest.into()).map_err(|e| Error::content(&path, "schema", e.to_string()))?;
        manifest.schema.check().map_err(|problem| Error::content(&path, "schema", problem))?;

        let mut store = Store {
            dir: dir.to_owned(),
            schema: manifest.schema,
            shards: Vec::new(),
            lengths: Vec::new(),
            torn: false,
        };
        let index = store.index();
        if !index.is_file() {
            return Err(Error::content(&index, "index", "missing; restore it from a backup"));
        }
        let Lines { values, torn } = files::read_json_lines::<Line>(&index, MAX_INDEX_BYTES)?;
        store.torn = torn;
        for (n, line) in values.into_iter().enumerate() {
            store.check_line(n, &line).map_err(|problem| Error::content(&index, format!("line {}", n + 1), problem))?;
            if !store.shard_path(n).is_file() {
                return Err(store.broken(n, line.first, "missing"));
            }
            store.take(line.steps, line.blake3);
        }
        Ok(store)
    }

    /// The index, if it ends with an incomplete line, as a crash leaves one behind; the line's shard does not count.
    pub fn torn(&self) -> Option<PathBuf> {
        self.torn.then(|| self.index())
    }

    /// The task and the shapes that all episodes share.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Checks that labels are of episodes of this store, and within them.
    pub fn check_labels(&self, labels: &[Label]) -> Result<(), Error> {
        labels.iter().try_for_each(|label| label.check_in(&self.lengths))
    }

    /// Checks that the folder has no shards that are not in the index.
    pub fn check_no_others(&self) -> Result<(), Error> {
        let known: Vec<PathBuf> = (0..self.shards.len()).map(|n| self.shard_path(n)).collect();
        let is_shard = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "parquet");
        match files::list(&self.dir)?.into_iter().find(|path| is_shard(path) && !known.contains(path)) {
            Some(other) => {
                Err(Error::content(&other, "shard", "not in the index; an interrupted append leaves one behind"))
            }
            None => Ok(()),
        }
    }

    /// The number of episodes.
    pub fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Whether the store holds no episodes.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The total number of steps of all episodes.
    pub fn steps(&self) -> u64 {
        self.lengths.iter().map(|steps| u64::from(*steps)).sum()
    }

    /// The number of steps of each episode.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// The episodes of each shard, for reading the store piece by piece.
    pub fn shards(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.shards.iter().map(|shard| shard.episodes.clone())
    }

    /// Appends episodes as one shard and returns their numbers. If one does not fit the schema, nothing is written.
    pub fn append(&mut self, episodes: &[Episode]) -> Result<Range<u64>, Error> {
        let first = self.len();
        for (index, episode) in episodes.iter().enumerate() {
            self.schema
                .check_episode(episode, self.schema.signals.len())
                .map_err(|problem| Error::Episode { index, problem })?;
        }
        if episodes.is_empty() {
            return Ok(first..first);
        }
        let n = self.shards.len();
        let path = self.shard_path(n);
        let bytes = shard::encode(&self.schema, first, episodes)
            .map_err(|e| Error::content(&path, "Parquet", e.to_string()))?;
        let line = Line {
            shard: shard_name(n),
            first,
            steps: episodes.iter().map(|episode| episode.len() as u32).collect(),
            blake3: blake3::hash(&bytes).to_string(),
        };
        files::write_atomic(&path, &bytes)?;
        files::append_json_lines(&self.index(), std::slice::from_ref(&line))?;
        self.torn = false;
        self.take(line.steps, line.blake3);
        Ok(first..self.len())
    }

    /// Reads a range of episodes, with their signals.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<Episode>, Error> {
        self.read_columns(range, true)
    }

    /// Reads a range of episodes without their signals, as learners see them.
    pub fn read_without_signals(&self, range: Range<u64>) -> Result<Vec<Episode>, Error> {
        self.read_columns(range, false)
    }

    /// Reads the signals alone of a range of episodes, `[T, signal]` each, as a rule judges them.
    pub fn read_signals(&self, range: Range<u64>) -> Result<Vec<Vec<f64>>, Error> {
        self.each_shard(range, |file, part| shard::decode_signals(file, &self.schema, part))
    }

    /// Drops the episodes from `len` on, to return to a checkpoint. `len` must be a boundary between shards.
    pub fn truncate(&mut self, len: u64) -> Result<(), Error> {
        if len > self.len() {
            return Err(Error::Range { start: len, end: len, len: self.len() });
        }
        let keep = self.shards.partition_point(|shard| shard.episodes.end <= len);
        if let Some(Shard { episodes, .. }) = self.shards.get(keep)
            && episodes.start < len
        {
            return Err(Error::Cut { len, before: episodes.start, after: episodes.end });
        }
        let index = self.index();
        let lines: Vec<Line> = (0..keep).map(|n| self.line(n)).collect();
        files::write_json_lines(&index, &lines)?;
        let dropped = keep..self.shards.len();
        self.shards.truncate(keep);
        self.lengths.truncate(len as usize);
        dropped.map(|n| self.shard_path(n)).try_for_each(|path| files::remove(&path))
    }

    fn read_columns(&self, range: Range<u64>, with_signals: bool) -> Result<Vec<Episode>, Error> {
        self.each_shard(range, |file, part| shard::decode(file, &self.schema, part, with_signals))
    }

    /// Decodes the shards of a range of episodes, each verified when it is first read.
    fn each_shard<T>(
        &self,
        range: Range<u64>,
        decode: impl Fn(&File, shard::Part<'_>) -> Result<Vec<T>, shard::Unreadable>,
    ) -> Result<Vec<T>, Error> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::Range { start: range.start, end: range.end, len: self.len() });
        }
        let mut all = Vec::with_capacity((range.end - range.start) as usize);
        for (n, Shard { episodes: held, .. }) in self.shards.iter().enumerate() {
            let (from, to) = (range.start.max(held.start), range.end.min(held.end));
            if from < to {
                let wanted = (from - held.start) as usize..(to - held.start) as usize;
                let steps = &self.lengths[held.start as usize..held.end as usize];
                let (file, part) = (self.open_shard(n)?, shard::Part { first: held.start, steps, wanted });
                let broken = |problem: &str| self.broken(n, held.start, problem);
                // The Parquet reader panics on some invalid files; a corrupt one must not end the program.
                match panic::catch_unwind(panic::AssertUnwindSafe(|| decode(&file, part))) {
                    Ok(decoded) => all.extend(decoded.map_err(|e| broken(&e.to_string()))?),
                    Err(_) => return Err(broken("the Parquet reader panicked on it")),
                }
            }
        }
        Ok(all)
    }

    /// Opens a shard and, if it is the first time, compares it with its hash.
    fn open_shard(&self, n: usize) -> Result<File, Error> {
        let path = self.shard_path(n);
        let Shard { episodes: held, blake3, verified } = &self.shards[n];
        let steps = &self.lengths[held.start as usize..held.end as usize];
        let broken = |problem: &str| self.broken(n, held.start, problem);
        let mut file = files::open(&path).map_err(|e| broken(&format!("cannot open: {e}")))?;
        let size = file.metadata().map_err(Error::io(&path, "read the size"))?.len();
        if size > largest_shard(&self.schema, steps) {
            return Err(broken(&format!("{size} bytes, too many for its episodes")));
        }
        if !verified.load(Ordering::Relaxed) {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(&file).map_err(Error::io(&path, "read"))?;
            if hasher.finalize().to_string() != *blake3 {
                return Err(broken("its BLAKE3 hash differs from the one in the index"));
            }
            file.rewind().map_err(Error::io(&path, "read"))?;
            verified.store(true, Ordering::Relaxed);
        }
        Ok(file)
    }

    /// Checks that line `n` of the index continues where the line before it ends.
    fn check_line(&self, n: usize, line: &Line) -> Result<(), String> {
        if line.shard != shard_name(n) {
            return Err(format!("shard {:?}, expected {:?}", line.shard, shard_name(n)));
        }
        if line.first != self.len() {
            return Err(format!("first = {}, expected {}", line.first, self.len()));
        }
        if line.steps.is_empty() {
            return Err("no episodes".to_owned());
        }
        line.steps.iter().try_for_each(|steps| Schema::check_steps(*steps as usize))
    }

    fn take(&mut self, steps: Vec<u32>, blake3: String) {
        let first = self.len();
        self.lengths.extend(steps);
        self.shards.push(Shard { episodes: first..self.len(), blake3, verified: AtomicBool::new(false) });
    }

    fn line(&self, n: usize) -> Line {
        let Shard { episodes, blake3, .. } = &self.shards[n];
        let steps = self.lengths[episodes.start as usize..episodes.end as usize].to_vec();
        Line { shard: shard_name(n), first: episodes.start, steps, blake3: blake3.clone() }
    }

    fn broken(&self, n: usize, first: u64, problem: &str) -> Error {
        Error::Shard { path: self.shard_path(n), problem: problem.to_owned(), first }
    }

    fn index(&self) -> PathBuf {
        self.dir.join(INDEX)
    }

    fn shard_path(&self, n: usize) -> PathBuf {
        self.dir.join(shard_name(n))
    }
}

fn shard_name(n: usize) -> String {
    format!("shard-{n:05}.parquet")
}

/// A generous upper bound on a shard's size: twice its numbers, plus room for Parquet's metadata.
fn largest_shard(schema: &Schema, steps: &[u32]) -> u64 {
    let row = 4 * (schema.observation_dim + schema.action_dim) + 8 * schema.signals.len() + 32;
    let rows: u64 = steps.iter().map(|steps| u64::from(*steps) + 1).sum();
    rows.saturating_mul(2 * row as u64).saturating_add(1 << 20)
}
