use std::fs;
use std::path::Path;

use proptest::prelude::*;
use prudence_data::{Episode, Error, Store};

use crate::{episode, schema, write};

fn store_of(dir: &Path, shards: &[&[usize]]) -> (Store, Vec<Episode>) {
    let mut store = Store::create(dir, schema()).unwrap();
    let mut all = Vec::new();
    for shard in shards {
        let episodes: Vec<Episode> =
            shard.iter().enumerate().map(|(i, steps)| episode(*steps, (all.len() + i) as u32)).collect();
        store.append(&episodes).unwrap();
        all.extend(episodes);
    }
    (store, all)
}

fn bits(episode: &Episode) -> (Vec<u32>, Vec<u32>, Vec<u32>, Vec<u64>, bool) {
    let f32s = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let signals = episode.signals.iter().map(|x| x.to_bits()).collect();
    (f32s(&episode.observations), f32s(&episode.actions), f32s(&episode.rewards), signals, episode.terminated)
}

#[test]
fn appended_episodes_are_read_back_before_and_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let (store, all) = store_of(dir.path(), &[&[3, 1, 7], &[2], &[5, 5]]);
    let reopened = Store::open(dir.path()).unwrap();
    for store in [store, reopened] {
        assert_eq!((store.len(), store.steps(), store.lengths()), (6, 23, [3, 1, 7, 2, 5, 5].as_slice()));
        assert_eq!(store.schema(), &schema());
        assert_eq!(store.shards().collect::<Vec<_>>(), [0..3, 3..4, 4..6]);
        assert_eq!(store.read(0..6).unwrap(), all);
        assert_eq!(store.read(2..5).unwrap(), all[2..5]);
        assert_eq!(store.read(4..4).unwrap(), []);
        assert!(matches!(store.read(4..7), Err(Error::Range { start: 4, end: 7, len: 6 })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn episodes_round_trip_bit_for_bit(
        steps in prop::collection::vec(1usize..40, 1..6),
        pool in prop::collection::vec(any::<f32>().prop_filter("finite", |x| x.is_finite()), 50),
        wide in prop::collection::vec(any::<f64>().prop_filter("finite", |x| x.is_finite()), 50),
        terminated in any::<bool>(),
    ) {
        // With signed zeros and subnormals, which an encoding that compares by value would lose.
        let pool: Vec<f32> = pool.into_iter().chain([0.0, -0.0, f32::from_bits(1), f32::MAX]).collect();
        let wide: Vec<f64> = wide.into_iter().chain([0.0, -0.0, f64::from_bits(1), f64::MIN]).collect();
        let (mut narrow, mut broad) = (pool.iter().cycle().copied(), wide.iter().cycle().copied());
        let mut take = |n: usize| narrow.by_ref().take(n).collect::<Vec<f32>>();
        let episodes: Vec<Episode> = steps
            .iter()
            .map(|t| Episode {
                observations: take(2 * (t + 1)),
                actions: take(*t),
                rewards: take(*t),
                signals: broad.by_ref().take(2 * t).collect(),
                terminated,
                ..Episode::new(2, 1)
            })
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path(), schema()).unwrap();
        store.append(&episodes).unwrap();
        let read = Store::open(dir.path()).unwrap().read(0..episodes.len() as u64).unwrap();
        prop_assert_eq!(read.iter().map(bits).collect::<Vec<_>>(), episodes.iter().map(bits).collect::<Vec<_>>());
    }
}

#[test]
fn episodes_longer_than_a_row_group_are_not_split() {
    let dir = tempfile::tempdir().unwrap();
    let (store, all) = store_of(dir.path(), &[&[10, 70_000, 40_000, 20_000, 5_530, 3]]);
    assert_eq!(store.read(0..6).unwrap(), all);
    assert_eq!(store.read(2..4).unwrap(), all[2..4]);
    assert_eq!(store.read(5..6).unwrap(), all[5..]);
}

#[test]
fn equal_episodes_give_equal_files() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    store_of(a.path(), &[&[20, 30], &[4]]);
    store_of(b.path(), &[&[20, 30], &[4]]);
    for file in ["store.json", "index.jsonl", "shard-00000.parquet", "shard-00001.parquet"] {
        assert_eq!(fs::read(a.path().join(file)).unwrap(), fs::read(b.path().join(file)).unwrap(), "{file}");
    }
}

#[test]
fn read_without_signals_leaves_the_signals_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut all) = store_of(dir.path(), &[&[3, 4]]);
    all.iter_mut().for_each(|episode| episode.signals.clear());
    assert_eq!(store.read_without_signals(0..2).unwrap(), all);
}

#[test]
fn a_store_without_signals_works() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), prudence_data::Schema { signals: Vec::new(), ..schema() }).unwrap();
    let episode = Episode { signals: Vec::new(), ..episode(5, 0) };
    store.append(std::slice::from_ref(&episode)).unwrap();
    assert_eq!(store.read(0..1).unwrap(), [episode]);
}

#[test]
fn an_incomplete_index_line_is_ignored_and_removed_by_the_next_append() {
    let dir = tempfile::tempdir().unwrap();
    let (_, all) = store_of(dir.path(), &[&[3], &[4], &[5]]);
    let index = dir.path().join("index.jsonl");
    let whole = fs::read(&index).unwrap();
    let second_ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 1;
    for torn in [second_ends + 1, second_ends + 30, whole.len() - 1] {
        write(&index, &whole[..torn]);
        let mut store = Store::open(dir.path()).unwrap();
        assert_eq!(store.read(0..store.len()).unwrap(), all[..2]);
        assert_eq!(fs::read(&index).unwrap(), &whole[..torn], "opening a store does not write");
        store.append(&all[2..]).unwrap();
        assert_eq!(fs::read(&index).unwrap(), whole);
        assert_eq!(Store::open(dir.path()).unwrap().read(0..3).unwrap(), all);
    }
}

#[test]
fn a_crash_between_shard_and_index_leaves_the_store_without_the_shard() {
    let dir = tempfile::tempdir().unwrap();
    let (_, all) = store_of(dir.path(), &[&[3], &[4]]);
    let index = dir.path().join("index.jsonl");
    let lines = fs::read_to_string(&index).unwrap();
    write(&index, lines.split_inclusive('\n').next().unwrap());
    write(dir.path().join("shard-00002.parquet.part"), "half");
    let mut store = Store::open(dir.path()).unwrap();
    assert_eq!(store.len(), 1);
    let other = episode(9, 77);
    assert_eq!(store.append(std::slice::from_ref(&other)).unwrap(), 1..2);
    assert_eq!(Store::open(dir.path()).unwrap().read(0..2).unwrap(), [all[0].clone(), other]);
}

#[test]
fn a_store_without_its_index_is_not_an_empty_store() {
    let dir = tempfile::tempdir().unwrap();
    store_of(dir.path(), &[&[3]]);
    fs::remove_file(dir.path().join("index.jsonl")).unwrap();
    let message = Store::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("index.jsonl, index: missing"), "{message}");
}

#[test]
fn truncate_drops_whole_shards_and_appending_continues_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, all) = store_of(dir.path(), &[&[3, 1], &[2, 2], &[5]]);
    let before = fs::read(dir.path().join("index.jsonl")).unwrap();
    assert!(matches!(store.truncate(3), Err(Error::Cut { len: 3, before: 2, after: 4 })));
    assert!(matches!(store.truncate(6), Err(Error::Range { .. })));
    store.truncate(5).unwrap();
    assert_eq!(
        fs::read(dir.path().join("index.jsonl")).unwrap(),
        before,
        "truncating to the current length changes nothing"
    );
    store.truncate(2).unwrap();
    assert_eq!((store.len(), store.steps()), (2, 4));
    assert!(!dir.path().join("shard-00001.parquet").exists());
    store.append(&all[2..4]).unwrap();
    store.append(&all[4..]).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().read(0..5).unwrap(), all);
    assert_eq!(
        fs::read(dir.path().join("index.jsonl")).unwrap(),
        before,
        "a resumed store equals an uninterrupted one"
    );
    store.truncate(0).unwrap();
    assert!(Store::open(dir.path()).unwrap().is_empty());
}

#[test]
fn episodes_of_the_wrong_shape_are_rejected_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), schema()).unwrap();
    type Damage = fn(&mut Episode);
    let cases: [(Damage, &str); 8] = [
        (|e| *e = Episode::new(2, 1), "0 steps"),
        (|e| e.observations.truncate(6), "observations has 6 numbers, expected 4 x 2 for 3 steps"),
        (|e| e.actions.push(0.0), "actions has 4 numbers, expected 3 x 1"),
        (|e| e.signals.clear(), "signals has 0 numbers, expected 3 x 2"),
        (|e| e.observations[3] = f32::NAN, "observations[1][1] is NaN"),
        (|e| e.actions[1] = f32::INFINITY, "actions[1][0] is inf"),
        (|e| e.rewards[2] = f32::NEG_INFINITY, "rewards[2][0] is -inf"),
        (|e| e.signals[5] = f64::NAN, "signals[2][1] is NaN"),
    ];
    for (damage, problem) in cases {
        let mut bad = episode(3, 0);
        damage(&mut bad);
        let message = store.append(&[episode(3, 1), bad]).unwrap_err().to_string();
        assert!(message.contains("episode 1") && message.contains(problem), "{message}");
    }
    assert_eq!(store.append(&[]).unwrap(), 0..0);
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let files: std::collections::BTreeSet<_> = files.into_iter().collect();
    assert_eq!(files, ["index.jsonl", "store.json"].map(Into::into).into());
}

#[test]
fn a_store_is_not_created_in_a_folder_with_other_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path().join("thesis.tex"), "");
    assert!(matches!(Store::create(dir.path(), schema()), Err(Error::NotFresh { .. })));
    Store::create(&dir.path().join("a/b/c"), schema()).unwrap();
}

#[test]
fn invalid_schemas_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let rejected = |change: fn(&mut prudence_data::Schema), problem: &str| {
        let mut schema = schema();
        change(&mut schema);
        let message = Store::create(&dir.path().join("s"), schema).unwrap_err().to_string();
        assert!(message.contains(problem), "{message}");
    };
    rejected(|s| s.observation_dim = 0, "observation_dim = 0");
    rejected(|s| s.action_dim = 1 << 20, "action_dim = 1048576");
    rejected(|s| s.signals[1] = "a".to_owned(), "twice");
    rejected(|s| s.signals[1] = "a b".to_owned(), "a word");
    assert!(!dir.path().join("s").exists());
}

#[test]
fn append_lines_keeps_every_whole_line_of_a_long_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let long = "x".repeat(200_000); // longer than the chunks that are searched for its end
    write(&path, format!("first\n{long}"));
    prudence_data::files::append_lines(&path, "second\nthird\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\nthird\n");
}
