//! Stores from an untrusted source or a damaged disk: errors that say what to do, never a panic.

use std::fs;
use std::path::Path;

use prudence_core::random::stream;
use prudence_data::{Error, Store, files};
use rand::RngExt as _;
use serde_json::{Value, json};

use crate::{episode, schema, write};

fn store(dir: &Path) {
    let mut store = Store::create(dir, schema()).unwrap();
    store.append(&[episode(30, 0), episode(20, 1)]).unwrap();
}

/// The only line of the index.
fn index_line(dir: &Path) -> Value {
    files::read_json_lines(&dir.join("index.jsonl"), 1 << 20).unwrap().values.remove(0)
}

/// Replaces the shard and updates its hash in the index.
fn forge(dir: &Path, shard: &[u8]) {
    write(dir.join("shard-00000.parquet"), shard);
    let mut line = index_line(dir);
    line["blake3"] = blake3::hash(shard).to_string().into();
    files::write_json_lines(&dir.join("index.jsonl"), &[line]).unwrap();
}

#[test]
fn a_missing_shard_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    fs::remove_file(dir.path().join("shard-00000.parquet")).unwrap();
    let message = Store::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("shard-00000.parquet: missing; restore the file from a backup"), "{message}");
}

#[test]
fn a_shard_with_a_flipped_bit_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let path = dir.path().join("shard-00000.parquet");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    write(&path, bytes);
    let message = Store::open(dir.path()).unwrap().read(1..2).unwrap_err().to_string();
    assert!(message.contains("its BLAKE3 hash differs from the one in the index; restore"), "{message}");
}

#[test]
fn garbage_and_foreign_parquet_shards_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let good = fs::read(dir.path().join("shard-00000.parquet")).unwrap();
    let mut other = tempfile::tempdir().unwrap().path().to_owned();
    other.push("other");
    let wider = prudence_data::Schema { observation_dim: 3, ..schema() };
    let mut wide = episode(2, 0);
    wide.observations.resize(9, 0.0);
    Store::create(&other, wider).unwrap().append(&[wide]).unwrap();
    let foreign = fs::read(other.join("shard-00000.parquet")).unwrap();
    for shard in [
        b"".as_slice(),
        b"PAR1",
        b"garbage that is long enough to have a footer PAR1",
        &good[..good.len() / 2],
        &foreign,
    ] {
        forge(dir.path(), shard);
        assert!(matches!(Store::open(dir.path()).unwrap().read(0..2), Err(Error::Shard { .. })));
    }
    forge(dir.path(), &vec![0; 2 << 20]);
    let message = Store::open(dir.path()).unwrap().read(0..2).unwrap_err().to_string();
    assert!(message.contains("too many for its episodes"), "{message}");
}

#[test]
fn an_index_that_disagrees_with_its_shard_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let index = dir.path().join("index.jsonl");
    let line = index_line(dir.path());
    let forge = |key: &str, value: Value| {
        let mut line = line.clone();
        line[key] = value;
        files::write_json_lines(&index, &[line]).unwrap();
    };
    for steps in
        [json!([30]), json!([20, 30]), json!([30, 20, 1]), json!([29, 21]), json!([51]), json!([4000000, 4000000])]
    {
        forge("steps", steps.clone());
        let store = Store::open(dir.path()).unwrap();
        assert!(matches!(store.read(0..store.len()), Err(Error::Shard { .. })), "{steps}");
    }
    for (key, value, problem) in [
        ("steps", json!([]), "line 1: no episodes"),
        ("steps", json!([0]), "line 1: 0 steps"),
        ("steps", json!([4_000_000_000u32]), "line 1: 4000000000 steps"),
        ("steps", json!([99_999_999_999u64]), "line 1: invalid value"),
        ("first", json!(1), "line 1: first = 1, expected 0"),
        ("shard", json!("../../etc/passwd"), "line 1: shard"),
        ("extra", json!(1), "line 1: unknown field"),
    ] {
        forge(key, value);
        let message = Store::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains(problem), "{message}");
    }
    write(&index, "[]\n");
    assert!(Store::open(dir.path()).unwrap_err().to_string().contains("line 1:"));
}

#[test]
fn a_manifest_with_an_unknown_format_or_shape_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let path = dir.path().join("store.json");
    let good: Value = files::read_json(&path, 1 << 20).unwrap();
    for (place, value, problem) in [
        ("/format", 2, "format: 2; this version of prudence reads 3"),
        ("/schema/observation_dim", 99_999_999, "observation_dim = 99999999"),
    ] {
        let mut forged = good.clone();
        *forged.pointer_mut(place).unwrap() = value.into();
        files::write_json(&path, &forged).unwrap();
        let message = Store::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains(problem), "{message}");
    }
    write(&path, "[");
    assert!(Store::open(dir.path()).unwrap_err().to_string().contains("JSON"));
    fs::remove_file(&path).unwrap();
    assert!(Store::open(dir.path()).unwrap_err().to_string().contains("store.json: cannot open"));
}

#[test]
fn a_forged_shard_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let good = fs::read(dir.path().join("shard-00000.parquet")).unwrap();
    for case in 0..500 {
        let mut rng = stream(case, "forge", 0);
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..5) {
            let place = rng.random_range(0..bytes.len());
            bytes[place] = rng.random();
        }
        forge(dir.path(), &bytes);
        if let Ok(episodes) = Store::open(dir.path()).unwrap().read(0..2) {
            assert_eq!((episodes[0].len(), episodes[1].len()), (30, 20), "case {case}");
        }
    }
}
