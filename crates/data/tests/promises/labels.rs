use std::fs;

use prudence_data::{Error, LabelLog, files, latest};

use crate::{label, write};

#[test]
fn labels_round_trip_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.jsonl");
    let labels = [label(3, 0, 10, true, None), label(u64::MAX, 2, 9, false, Some(4)), label(0, 0, 5, false, None)];
    let mut log = LabelLog::open(&path).unwrap();
    log.append(&labels[..2]).unwrap();
    log.append(&[]).unwrap();
    log.append(&labels[2..]).unwrap();
    assert_eq!(log.labels(), labels);
    assert_eq!(LabelLog::open(&path).unwrap().labels(), labels);
    assert_eq!(
        fs::read_to_string(&path).unwrap().lines().next().unwrap(),
        r#"{"episode":3,"start":0,"end":10,"safe":true,"by":"anna","when":"2026-11-16T07:00:00Z","check":"da786b14d952a7e0"}"#
    );
}

#[test]
fn a_torn_label_line_is_reported_and_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.jsonl");
    LabelLog::open(&path).unwrap().append(&[label(0, 0, 3, true, None), label(1, 0, 3, true, None)]).unwrap();
    let whole = fs::read(&path).unwrap();
    let mut torn = whole[..whole.len() - 5].to_vec();
    torn.push(0xff); // not even UTF-8
    write(&path, torn);
    let mut log = LabelLog::open(&path).unwrap();
    assert_eq!(log.labels(), [label(0, 0, 3, true, None)]);
    assert_eq!(log.torn(), Some(path.clone()));
    log.append(&[label(1, 0, 3, true, None)]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn the_latest_label_of_a_span_wins() {
    let labels = [
        label(1, 0, 5, true, None),
        label(0, 0, 5, true, None),
        label(1, 0, 5, false, Some(2)),
        label(1, 0, 4, true, None),
        label(1, 0, 5, false, Some(3)),
    ];
    assert_eq!(latest(&labels), [&labels[1], &labels[3], &labels[4]]);
}

#[test]
fn invalid_labels_are_rejected_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.jsonl");
    let mut log = LabelLog::open(&path).unwrap();
    for (bad, problem) in [
        (label(0, 5, 5, true, None), "an empty span"),
        (label(0, 0, 5, true, Some(1)), "at = 1 in a safe span"),
        (label(0, 2, 5, false, Some(1)), "at = 1, expected a step of the span"),
        (label(0, 2, 5, false, Some(5)), "at = 5"),
    ] {
        let message = log.append(&[label(0, 0, 1, true, None), bad]).unwrap_err().to_string();
        assert!(message.contains(problem), "{message}");
    }
    assert!(!path.exists());
    files::write_json_lines(&path, &[label(0, 4, 4, true, None)]).unwrap();
    let message = LabelLog::open(&path).unwrap_err().to_string();
    assert!(message.contains("labels.jsonl, line 1: label of episode 0"), "{message}");
}

#[test]
fn labels_that_another_process_appended_are_not_overlooked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.jsonl");
    let (mut first, mut second) = (LabelLog::open(&path).unwrap(), LabelLog::open(&path).unwrap());
    first.append(&[label(0, 0, 3, true, None)]).unwrap();
    // A lock belongs to an open file, so two logs of one process exclude each other, too.
    assert!(matches!(second.append(&[label(1, 0, 3, true, None)]), Err(Error::Locked { .. })));
    drop(first);
    let message = second.append(&[label(1, 0, 3, true, None)]).unwrap_err().to_string();
    assert!(message.contains("another process appended labels"), "{message}");
    assert_eq!(LabelLog::open(&path).unwrap().labels(), [label(0, 0, 3, true, None)]);
}
