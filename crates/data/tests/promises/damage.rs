//! Files that notice damage, and locks.

use prudence_data::{Error, files};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::write;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Document {
    name: String,
    numbers: Vec<f64>,
    nothing: Option<bool>,
}

fn document(i: usize) -> Document {
    Document { name: format!("tab\t\"{i}\""), numbers: vec![0.1 + 0.2, -0.0, 5e-324, 1e300, 3.0], nothing: None }
}

#[test]
fn documents_and_lines_round_trip_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("document.json");
    files::write_json(&path, &document(0)).unwrap();
    let read: Document = files::read_json(&path, 1 << 20).unwrap();
    assert_eq!(read, document(0));
    assert!(read.numbers[1].is_sign_negative());
    let path = dir.path().join("log.jsonl");
    assert_eq!(files::read_json_lines::<Document>(&path, 1 << 20).unwrap().values, []);
    files::append_json_lines(&path, &[document(1), document(2)]).unwrap();
    files::append_json_lines(&path, &[document(3)]).unwrap();
    let read = files::read_json_lines::<Document>(&path, 1 << 20).unwrap();
    assert_eq!((read.values, read.torn), (vec![document(1), document(2), document(3)], false));
}

#[test]
fn every_flipped_bit_of_a_document_or_a_line_is_noticed_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (document_path, log_path) = (dir.path().join("document.json"), dir.path().join("log.jsonl"));
    files::write_json(&document_path, &document(0)).unwrap();
    files::append_json_lines(&log_path, &[document(1), document(2)]).unwrap();
    let (document_bytes, log_bytes) = (std::fs::read(&document_path).unwrap(), std::fs::read(&log_path).unwrap());
    let mut harmless = 0;
    for bit in 0..8 * document_bytes.len() {
        let mut damaged = document_bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        write(&document_path, damaged);
        match files::read_json::<Value>(&document_path, 1 << 20) {
            Err(_) => {}
            Ok(value) => {
                assert_eq!(serde_json::from_value::<Document>(value).unwrap(), document(0), "bit {bit}");
                harmless += 1;
            }
        }
    }
    assert!(harmless < document_bytes.len() / 2, "{harmless}: only white space can change without effect");
    for bit in 0..8 * log_bytes.len() {
        let mut damaged = log_bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        write(&log_path, damaged);
        if let Ok(read) = files::read_json_lines::<Document>(&log_path, 1 << 20) {
            assert!(read.torn || read.values == [document(1), document(2)], "bit {bit}");
        }
    }
}

#[test]
fn a_document_without_a_hash_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("document.json");
    write(&path, json!({ "name": "x" }).to_string());
    let message = files::read_json::<Value>(&path, 1 << 20).unwrap_err().to_string();
    assert!(message.contains("document.json, JSON: the member `blake3` is missing"), "{message}");
    write(&path, "{\"name\":\"x\"}\n");
    let message = files::read_json_lines::<Value>(&path, 1 << 20).unwrap_err().to_string();
    assert!(message.contains("line 1: the member `check` is missing"), "{message}");
}

#[test]
fn a_lock_excludes_others_until_it_is_dropped_and_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".lock");
    let lock = files::lock(&path).unwrap();
    let refused = files::lock(&path).unwrap_err();
    assert!(matches!(&refused, Error::Locked { path, .. } if path == dir.path()));
    assert!(refused.to_string().contains(&format!("in use by process {} on ", std::process::id())), "{refused}");
    drop(lock);
    files::lock(&path).unwrap();
}
