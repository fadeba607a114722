//! The labelled episodes of one or more stores, split for fitting.

use std::path::{Path, PathBuf};

use crate::{Episode, Error, LabelLog, Segment, Store, files, gather, split};

/// Episodes and their labelled segments, split by episode. [`Segment::episode`] is an index into `episodes`.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// Every episode of the stores, without the signals, which learners never read.
    pub episodes: Vec<Episode>,
    /// Segments of the episodes to train on.
    pub training: Vec<Segment>,
    /// Segments of the held-out episodes.
    pub held_out: Vec<Segment>,
    /// The number of labels in use: the latest of each span.
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

/// The path of a store's label log.
pub fn label_path(store: &Path) -> PathBuf {
    store.join("labels.jsonl")
}

/// Finds the stores in a folder: the folder itself, or those directly inside it, sorted by name.
pub fn find_stores(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_store = |path: &Path| path.join("store.json").is_file();
    if is_store(dir) {
        return Ok(vec![dir.to_path_buf()]);
    }
    Ok(files::list(dir)?.into_iter().filter(|path| is_store(path)).collect())
}
