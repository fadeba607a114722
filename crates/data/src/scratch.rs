//! Episodes decoded once into a temporary file, so that they are read by position and need no memory.
//!
//! A row per step holds observation, action and reward, so that a segment is one read; the last row has only the final
//! observation. The signals follow. The file has no name: it is gone as soon as it is closed, however that happens.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Episode, Episodes, Error, Schema, Steps, Store, files};

/// Decoded episodes of one or more stores of one schema.
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    folder: PathBuf,
    schema: Schema,
    episodes: Vec<Place>,
    end: u64,
    hash: blake3::Hasher,
    stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    steps: u32,
    terminated: bool,
}

impl ScratchFile {
    /// An empty file in `folder`, for episodes of a schema.
    ///
    /// Once `stop` is set, reading and adding stores end with [`Error::Stopped`].
    pub fn create(folder: &Path, schema: &Schema, stop: &Arc<AtomicBool>) -> Result<Self, Error> {
        let file = files::temporary(folder)?;
        Ok(Self {
            file,
            folder: folder.to_owned(),
            schema: schema.clone(),
            episodes: Vec::new(),
            end: 0,
            hash: blake3::Hasher::new(),
            stop: stop.clone(),
        })
    }

    /// Decodes all episodes of a store; returns their indices.
    pub fn add(&mut self, store: &Store) -> Result<Range<usize>, Error> {
        if let Some(problem) = self.schema.difference(store.schema()) {
            return Err(Error::Schema(problem));
        }
        let first = self.episodes.len();
        for shard in store.shards() {
            self.check_stop()?;
            self.push(&store.read(shard)?)?;
        }
        Ok(first..self.episodes.len())
    }

    /// Adds episodes of the file's schema.
    pub fn push(&mut self, episodes: &[Episode]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for episode in episodes {
            self.episodes.push(Place {
                at: self.end + bytes.len() as u64,
                steps: episode.len() as u32,
                terminated: episode.terminated,
            });
            let begin = bytes.len();
            encode(episode, &mut bytes);
            self.hash.update(&[u8::from(episode.terminated)]).update(&(episode.len() as u64).to_le_bytes());
            self.hash.update(&bytes[begin..]);
        }
        let written = self.file.seek(SeekFrom::Start(self.end)).and_then(|_| self.file.write_all(&bytes));
        written.map_err(Error::io(&self.folder, "write a temporary file in"))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// A hash of all episodes in their order, however they were divided among shards and stores.
    pub fn fingerprint(&self) -> String {
        self.hash.finalize().to_string()
    }

    /// The number of steps of each of these episodes.
    pub fn lengths(&self, episodes: Range<usize>) -> Vec<u32> {
        self.episodes[episodes].iter().map(|place| place.steps).collect()
    }

    /// The signals of an episode, `[T, signal]`.
    pub fn signals(&self, episode: usize) -> Result<Vec<f64>, Error> {
        let Place { at, steps, .. } = self.episodes[episode];
        let mut bytes = vec![0; 8 * steps as usize * self.schema.signals.len()];
        self.read_at(at + (steps as usize + 1) as u64 * self.row_bytes() as u64, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x)).collect())
    }

    fn check_stop(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    fn row_bytes(&self) -> usize {
        4 * (self.schema.observation_dim + self.schema.action_dim + 1)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.check_stop()?;
        read_exact_at(&self.file, at, bytes).map_err(Error::io(&self.folder, "read a temporary file in"))
    }

    /// Reads rows of an episode and hands each to `row`: observation, action, reward.
    fn rows(
        &self,
        episode: usize,
        rows: Range<usize>,
        bytes: &mut Vec<u8>,
        mut row: impl FnMut(&[[u8; 4]], &[[u8; 4]], [u8; 4]),
    ) -> Result<(), Error> {
        let (s, a, width) = (self.schema.observation_dim, self.schema.action_dim, self.row_bytes());
        bytes.resize(rows.len() * width, 0);
        self.read_at(self.episodes[episode].at + (rows.start * width) as u64, bytes)?;
        for numbers in bytes.as_chunks::<4>().0.chunks_exact(s + a + 1) {
            row(&numbers[..s], &numbers[s..s + a], numbers[s + a]);
        }
        Ok(())
    }
}

fn encode(episode: &Episode, bytes: &mut Vec<u8>) {
    let no_action = vec![0.0f32; episode.action_width];
    for t in 0..=episode.len() {
        let (action, reward) = match episode.rewards.get(t) {
            Some(reward) => (episode.action(t), *reward),
            None => (&no_action[..], 0.0),
        };
        let numbers = episode.observation(t).iter().chain(action).chain([&reward]);
        numbers.for_each(|x| bytes.extend(x.to_le_bytes()));
    }
    episode.signals.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
}

fn extend(to: &mut Vec<f32>, numbers: &[[u8; 4]]) {
    to.extend(numbers.iter().map(|x| f32::from_le_bytes(*x)));
}

#[cfg(unix)]
fn read_exact_at(file: &File, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut at: u64, mut bytes: &mut [u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => (at, bytes) = (at + n as u64, &mut bytes[n..]),
        }
    }
    Ok(())
}

impl Episodes for ScratchFile {
    fn count(&self) -> usize {
        self.episodes.len()
    }

    fn steps(&self, episode: usize) -> usize {
        self.episodes[episode].steps as usize
    }

    fn episode(&self, episode: usize) -> Result<Cow<'_, Episode>, Error> {
        let mut read = Episode::new(self.schema.observation_dim, self.schema.action_dim);
        read.terminated = self.episodes[episode].terminated;
        let steps = self.steps(episode);
        self.rows(episode, 0..steps + 1, &mut Vec::new(), |observation, action, reward| {
            extend(&mut read.observations, observation);
            extend(&mut read.actions, action);
            read.rewards.push(f32::from_le_bytes(reward));
        })?;
        read.actions.truncate(steps * self.schema.action_dim);
        read.rewards.truncate(steps);
        Ok(Cow::Owned(read))
    }

    fn read_steps(&self, episode: usize, steps: Range<usize>, to: &mut Steps) -> Result<(), Error> {
        let Steps { observations, actions, bytes } = to;
        observations.clear();
        actions.clear();
        self.rows(episode, steps, bytes, |observation, action, _| {
            extend(observations, observation);
            extend(actions, action);
        })
    }
}
