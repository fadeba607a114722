//! The trajectory store: a folder of Parquet shards that only ever grows, or is cut back to a checkpoint.
//!
//! `store.json` holds the schema, `shard-00000.parquet` and so on the episodes, and `index.jsonl` one line a shard: its
//! first episode, the episodes' lengths, its BLAKE3 hash. A shard counts once its line stands in the index, so a crash
//! before that leaves a store without the shard, and the next append writes over it. Opening reads and never writes.
//! One process at a time may append.

use std::fs::{self, File};
use std::io::Seek as _;
use std::ops::Range;
use std::panic;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Episode, Error, Schema, files, shard};

const FORMAT: u32 = 2; // 1: the last row had a null list for its action
const MAX_SCHEMA_BYTES: u64 = 1 << 20;
const MAX_INDEX_BYTES: u64 = 1 << 28;

/// An open store.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    schema: Schema,
    shards: Vec<Shard>,
    lengths: Vec<u32>, // of all episodes
}

/// What the index says of a shard, without the lengths.
#[derive(Debug)]
struct Shard {
    episodes: Range<u64>,
    blake3: String,
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
    /// An empty store in a new or empty folder.
    pub fn create(dir: &Path, schema: Schema) -> Result<Store, Error> {
        schema.check().map_err(Error::Schema)?;
        files::create_fresh_dir(dir)?;
        let path = dir.join("store.json");
        let manifest = Manifest { format: FORMAT, schema };
        let text =
            serde_json::to_string_pretty(&manifest).map_err(|e| Error::content(&path, "schema", e.to_string()))?;
        files::write_atomic(&path, format!("{text}\n").as_bytes())?;
        Ok(Store { dir: dir.to_owned(), schema: manifest.schema, shards: Vec::new(), lengths: Vec::new() })
    }

    /// The store in a folder. Its shards must be there; their content is checked when it is read.
    pub fn open(dir: &Path) -> Result<Store, Error> {
        let path = dir.join("store.json");
        let manifest: serde_json::Value = serde_json::from_slice(&files::read_limited(&path, MAX_SCHEMA_BYTES)?)
            .map_err(|e| Error::content(&path, "JSON", e.to_string()))?;
        if manifest["format"] != FORMAT {
            let problem = format!("{}; this version of prudence reads {FORMAT}", manifest["format"]);
            return Err(Error::content(&path, "format", problem));
        }
        let manifest: Manifest =
            serde_json::from_value(manifest).map_err(|e| Error::content(&path, "schema", e.to_string()))?;
        manifest.schema.check().map_err(|problem| Error::content(&path, "schema", problem))?;

        let mut store = Store { dir: dir.to_owned(), schema: manifest.schema, shards: Vec::new(), lengths: Vec::new() };
        let index = store.index();
        for (n, line) in files::read_json_lines::<Line>(&index, MAX_INDEX_BYTES)?.into_iter().enumerate() {
            store.check_line(n, &line).map_err(|problem| Error::content(&index, format!("line {}", n + 1), problem))?;
            if !store.shard_path(n).is_file() {
                return Err(store.broken(n, line.first, "missing"));
            }
            store.take(line.steps, line.blake3);
        }
        Ok(store)
    }

    /// What all episodes have in common.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The number of episodes.
    pub fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Whether there is no episode.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The number of steps of all episodes.
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

    /// Appends episodes as one shard and gives their numbers. If one does not fit the schema, nothing is written.
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
        self.take(line.steps, line.blake3);
        Ok(first..self.len())
    }

    /// The episodes of a range, with their signals.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<Episode>, Error> {
        self.read_columns(range, true)
    }

    /// The episodes of a range as learners see them: the signals are left empty.
    pub fn read_without_signals(&self, range: Range<u64>) -> Result<Vec<Episode>, Error> {
        self.read_columns(range, false)
    }

    /// Drops the episodes from `len` on, to go back to a checkpoint; `len` must lie between two shards.
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
        files::write_atomic(&index, files::json_lines(&index, &lines)?.as_bytes())?;
        let dropped = keep..self.shards.len();
        self.shards.truncate(keep);
        self.lengths.truncate(len as usize);
        for path in dropped.map(|n| self.shard_path(n)) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&path, "remove")(e)),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_columns(&self, range: Range<u64>, with_signals: bool) -> Result<Vec<Episode>, Error> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::Range { start: range.start, end: range.end, len: self.len() });
        }
        let mut episodes = Vec::with_capacity((range.end - range.start) as usize);
        for (n, Shard { episodes: held, .. }) in self.shards.iter().enumerate() {
            let (from, to) = (range.start.max(held.start), range.end.min(held.end));
            if from < to {
                let wanted = (from - held.start) as usize..(to - held.start) as usize;
                episodes.extend(self.read_shard(n, wanted, with_signals)?);
            }
        }
        Ok(episodes)
    }

    /// Checks a shard against its hash, then decodes a part of it.
    fn read_shard(&self, n: usize, wanted: Range<usize>, with_signals: bool) -> Result<Vec<Episode>, Error> {
        let path = self.shard_path(n);
        let Shard { episodes: held, blake3 } = &self.shards[n];
        let steps = &self.lengths[held.start as usize..held.end as usize];
        let broken = |problem: &str| self.broken(n, held.start, problem);

        let mut file = File::open(&path).map_err(|e| broken(&format!("cannot open: {e}")))?;
        let size = file.metadata().map_err(Error::io(&path, "look at"))?.len();
        if size > largest_shard(&self.schema, steps) {
            return Err(broken(&format!("{size} bytes, more than its episodes can take")));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file).map_err(Error::io(&path, "read"))?;
        if hasher.finalize().to_string() != *blake3 {
            return Err(broken("does not have the hash that the index says"));
        }
        file.rewind().map_err(Error::io(&path, "read"))?;
        // The Parquet reader asserts some of what files claim; a forged one must not take the program down.
        let decode = || shard::decode(&file, &self.schema, held.start, steps, wanted, with_signals);
        match panic::catch_unwind(panic::AssertUnwindSafe(decode)) {
            Ok(episodes) => episodes.map_err(|e| broken(&e.to_string())),
            Err(_) => Err(broken("the Parquet reader gave up on it")),
        }
    }

    /// Whether line `n` of the index goes on where the one before it ends.
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
        self.shards.push(Shard { episodes: first..self.len(), blake3 });
    }

    fn line(&self, n: usize) -> Line {
        let Shard { episodes, blake3 } = &self.shards[n];
        let steps = self.lengths[episodes.start as usize..episodes.end as usize].to_vec();
        Line { shard: shard_name(n), first: episodes.start, steps, blake3: blake3.clone() }
    }

    fn broken(&self, n: usize, first: u64, problem: &str) -> Error {
        Error::Shard { path: self.shard_path(n), problem: problem.to_owned(), first }
    }

    fn index(&self) -> PathBuf {
        self.dir.join("index.jsonl")
    }

    fn shard_path(&self, n: usize) -> PathBuf {
        self.dir.join(shard_name(n))
    }
}

fn shard_name(n: usize) -> String {
    format!("shard-{n:05}.parquet")
}

/// A generous bound for the size of a shard: its numbers, twice, and some for the frame.
fn largest_shard(schema: &Schema, steps: &[u32]) -> u64 {
    let row = 4 * (schema.observation_dim + schema.action_dim) + 8 * schema.signals.len() + 32;
    let rows: u64 = steps.iter().map(|steps| u64::from(*steps) + 1).sum();
    rows.saturating_mul(2 * row as u64).saturating_add(1 << 20)
}
