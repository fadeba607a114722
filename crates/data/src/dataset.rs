//! The labelled episodes of one or more stores, split for fitting.

use std::path::{Path, PathBuf};

use crate::{Episode, Error, LabelLog, Segment, Store, gather, split};

/// Episodes with their labelled segments, those of held-out episodes apart. Segments point into `episodes`.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// Every episode of the stores, without signals: the learners' view.
    pub episodes: Vec<Episode>,
    /// Segments to train on.
    pub training: Vec<Segment>,
    /// Segments of held-out episodes.
    pub held_out: Vec<Segment>,
    /// Labels found, latest of each span.
    pub labels: usize,
}

impl Dataset {
    /// Reads the stores and their label logs, and splits the labelled episodes of each store.
    pub fn load(stores: &[PathBuf], held_out: f64, seed: u64) -> Result<Self, Error> {
        let mut all = Self::default();
        for dir in stores {
            let store = Store::open(dir)?;
            let log = LabelLog::open(&label_path(dir))?;
            let mut labelled: Vec<u64> = log.labels().iter().map(|label| label.episode).collect();
            labelled.sort_unstable();
            labelled.dedup();
            let ids = |places: Vec<u64>| places.into_iter().map(|i| labelled[i as usize]).collect::<Vec<_>>();
            let (train, test) = split(labelled.len() as u64, held_out, seed);
            let (train, test) = (ids(train), ids(test));
            let first = all.episodes.len();
            for (ids, segments) in [(&train, &mut all.training), (&test, &mut all.held_out)] {
                segments.extend(
                    gather(log.labels(), ids, store.lengths())?
                        .into_iter()
                        .map(|segment| Segment { episode: first + ids[segment.episode] as usize, ..segment }),
                );
            }
            all.episodes.extend(store.read_without_signals(0..store.len())?);
        }
        all.labels = all.training.len() + all.held_out.len();
        Ok(all)
    }
}

/// Where the label log of a store lies.
pub fn label_path(store: &Path) -> PathBuf {
    store.join("labels.jsonl")
}

/// The stores in a folder: itself, or those one level below it, in the order of their names.
pub fn find_stores(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_store = |path: &Path| path.join("store.json").is_file();
    if is_store(dir) {
        return Ok(vec![dir.to_path_buf()]);
    }
    let io = |source| Error::Io { path: dir.to_path_buf(), doing: "list", source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if is_store(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
