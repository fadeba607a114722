//! Datasets: stores decoded once into a temporary file, and their labels split for fitting.

use std::path::PathBuf;

use prudence_data::{Dataset, Episode, Episodes as _, Error, LabelLog, Segment, Steps, Store, label_path};

use crate::{episode, label, schema, write};

fn stores(dir: &std::path::Path) -> (Vec<PathBuf>, Vec<Episode>) {
    let lengths: [&[&[usize]]; 2] = [&[&[3, 1, 7], &[2]], &[&[5, 5]]];
    let (mut paths, mut all) = (Vec::new(), Vec::new());
    for (n, shards) in lengths.into_iter().enumerate() {
        paths.push(dir.join(format!("store-{n}")));
        let mut store = Store::create(&paths[n], schema()).unwrap();
        for shard in shards {
            let first = all.len();
            all.extend(shard.iter().enumerate().map(|(i, steps)| episode(*steps, (first + i) as u32)));
            store.append(&all[first..]).unwrap();
        }
    }
    (paths, all)
}

#[test]
fn decoded_episodes_equal_the_stored_ones_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, all) = stores(dir.path());
    let dataset = Dataset::decode(&paths, dir.path(), &Arc::default()).unwrap();
    let places: Vec<_> = dataset.stores().map(|(path, indices)| (path.to_owned(), indices)).collect();
    assert_eq!(places, [(paths[0].clone(), 0..4), (paths[1].clone(), 4..6)]);
    let episodes = &dataset.episodes;
    assert_eq!((episodes.count(), episodes.lengths(1..5)), (6, vec![1, 7, 2, 5]));
    let mut read = Steps::default();
    for (index, exact) in all.iter().enumerate() {
        assert_eq!(*episodes.episode(index).unwrap(), Episode { signals: Vec::new(), ..exact.clone() });
        assert_eq!(episodes.signals(index).unwrap(), exact.signals);
        for (start, end) in (0..=exact.len()).flat_map(|end| (0..=end).map(move |start| (start, end))) {
            episodes.read_steps(index, start..end, &mut read).unwrap();
            assert_eq!(read.observations, exact.observations[2 * start..2 * end]);
            assert_eq!(read.actions, exact.actions[start..end]);
            let mut from_memory = Steps::default();
            all[..].read_steps(index, start..end, &mut from_memory).unwrap();
            assert_eq!((&from_memory.observations, &from_memory.actions), (&read.observations, &read.actions));
        }
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the temporary file has no name: {names:?}");
}

#[test]
fn the_newest_labelled_episodes_of_each_store_are_held_out() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _) = stores(dir.path());
    let mut log = LabelLog::open(&label_path(&paths[0])).unwrap();
    log.append(&[label(2, 0, 7, false, Some(3)), label(2, 4, 7, true, None), label(0, 0, 3, true, None)]).unwrap();
    let mut log = LabelLog::open(&label_path(&paths[1])).unwrap();
    log.append(&[label(0, 0, 5, true, None), label(1, 0, 5, false, None)]).unwrap();
    let segments = Dataset::decode(&paths, dir.path(), &Arc::default()).unwrap().segments(0.1).unwrap();
    let segment = |episode, start, end, safe, at| Segment { episode, start, end, safe, at };
    assert_eq!(segments.training, [segment(0, 0, 3, true, None), segment(4, 0, 5, true, None)]);
    let held_out = [segment(2, 0, 7, false, Some(3)), segment(2, 4, 7, true, None), segment(5, 0, 5, false, None)];
    assert_eq!(segments.held_out, held_out);
    let (labels, index) = (label_path(&paths[1]), paths[1].join("index.jsonl"));
    for (file, cut) in [(labels, 3), (index, 1)] {
        let text = std::fs::read(&file).unwrap();
        write(&file, &text[..text.len() - cut]);
        let torn =
            Dataset::decode(&paths, dir.path(), &Arc::default()).and_then(|dataset| dataset.segments(0.1)).unwrap_err();
        assert!(matches!(&torn, Error::Torn { path } if *path == file), "{torn}");
        write(&file, text);
    }
}

#[test]
fn stores_of_other_shapes_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (mut paths, _) = stores(dir.path());
    paths.push(dir.path().join("other"));
    Store::create(&paths[2], prudence_data::Schema { observation_dim: 3, ..schema() }).unwrap();
    let error = Dataset::decode(&paths, dir.path(), &Arc::default()).unwrap_err();
    assert!(matches!(error, Error::Schema(_)) && error.to_string().contains("3 and 1"), "{error}");
}
