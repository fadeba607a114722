//! The episodes of one or more stores, decoded once, with their labels split for fitting.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Error, LabelLog, ScratchFile, Segment, Store, files, gather, held_out_from};

/// Episodes of labelled stores. [`Segment::episode`] is an index into `episodes`.
#[derive(Debug)]
pub struct Dataset {
    /// Every episode of the stores.
    pub episodes: ScratchFile,
    stores: Vec<(PathBuf, Range<usize>)>,
}

/// The labelled segments of a dataset, split by episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segments {
    /// Segments to train on.
    pub training: Vec<Segment>,
    /// Segments of the held-out episodes: the newest labelled ones of each store.
    pub held_out: Vec<Segment>,
}

impl Dataset {
    /// Decodes stores, which must have the same shapes, into a temporary file in `folder`.
    /// Once `stop` is set, this and everything that reads the episodes ends with [`Error::Stopped`].
    pub fn decode(stores: &[PathBuf], folder: &Path, stop: &Arc<AtomicBool>) -> Result<Self, Error> {
        let [first, ..] = stores else { return Err(Error::content(folder, "dataset", "no stores to decode")) };
        let episodes = ScratchFile::create(folder, Store::open(first)?.schema(), stop)?;
        let mut dataset = Self { episodes, stores: Vec::new() };
        stores.iter().try_for_each(|store| dataset.add(store))?;
        Ok(dataset)
    }

    /// Decodes one more store. An index that ends with an incomplete line is an error, because a shard may be lost.
    pub fn add(&mut self, path: &Path) -> Result<(), Error> {
        let store = Store::open(path)?;
        store.torn().map_or(Ok(()), |path| Err(Error::Torn { path }))?;
        let indices = self.episodes.add(&store)?;
        self.stores.push((path.to_owned(), indices));
        Ok(())
    }

    /// The stores and the indices of their episodes.
    pub fn stores(&self) -> impl Iterator<Item = (&Path, Range<usize>)> {
        self.stores.iter().map(|(path, indices)| (path.as_path(), indices.clone()))
    }

    /// Reads the label logs of the stores, and holds out a share of each store's labelled episodes. A log that ends with an
    /// incomplete line is an error, because a label may be lost.
    pub fn segments(&self, held_out: f64) -> Result<Segments, Error> {
        let mut all = Segments::default();
        for (path, indices) in self.stores() {
            let log = LabelLog::open(&label_path(path))?;
            log.torn().map_or(Ok(()), |path| Err(Error::Torn { path }))?;
            let mut labelled: Vec<u64> = log.labels().iter().map(|label| label.episode).collect();
            labelled.sort_unstable();
            labelled.dedup();
            let lengths = self.episodes.lengths(indices.clone());
            let first_held_out = held_out_from(labelled.len(), held_out);
            for segment in gather(log.labels(), &labelled, &lengths)? {
                let side = if segment.episode < first_held_out { &mut all.training } else { &mut all.held_out };
                let episode = indices.start + labelled[segment.episode] as usize;
                side.push(Segment { episode, ..segment });
            }
        }
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
