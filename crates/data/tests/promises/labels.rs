use std::fs;

use prudence_data::{Label, LabelLog, Store, import_csv, latest};

use crate::{episode, schema, write};

fn label(episode: u64, start: u32, end: u32, safe: bool, at: Option<u32>) -> Label {
    Label { episode, start, end, safe, at, by: "anna".to_owned(), when: "2026-11-16T07:00:00Z".to_owned() }
}

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
        r#"{"episode":3,"start":0,"end":10,"safe":true,"by":"anna","when":"2026-11-16T07:00:00Z"}"#
    );
}

#[test]
fn a_torn_label_line_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labels.jsonl");
    LabelLog::open(&path).unwrap().append(&[label(0, 0, 3, true, None), label(1, 0, 3, true, None)]).unwrap();
    let whole = fs::read(&path).unwrap();
    let mut torn = whole[..whole.len() - 5].to_vec();
    torn.push(0xff); // not even UTF-8
    write(&path, torn);
    let mut log = LabelLog::open(&path).unwrap();
    assert_eq!(log.labels(), [label(0, 0, 3, true, None)]);
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
fn labels_that_make_no_sense_are_refused_and_nothing_is_written() {
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
    write(&path, "{\"episode\":0,\"start\":4,\"end\":4,\"safe\":true,\"by\":\"\",\"when\":\"\"}\n");
    let message = LabelLog::open(&path).unwrap_err().to_string();
    assert!(message.contains("labels.jsonl, line 1: label of episode 0"), "{message}");
}

fn import(table: &str) -> Result<Vec<Label>, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(&dir.path().join("data"), schema()).unwrap();
    store.append(&[episode(10, 0), episode(20, 1)]).unwrap();
    let path = dir.path().join("table.csv");
    write(&path, table);
    import_csv(&path, &store, "anna", "2026-11-16T07:00:00Z").map_err(|e| e.to_string())
}

#[test]
fn tables_of_labels_are_read() {
    assert_eq!(
        import("episode,safe\n0,1\n1,unsafe\n").unwrap(),
        [label(0, 0, 10, true, None), label(1, 0, 20, false, None)]
    );
    assert_eq!(
        import("\u{feff}safe , at,episode,end, start\r\nTrue,,1,,\r\n\r\n0, 7,1,9,5\r\nfalse,,0,,3").unwrap(),
        [label(1, 0, 20, true, None), label(1, 5, 9, false, Some(7)), label(0, 3, 10, false, None)]
    );
}

#[test]
fn faults_in_a_table_name_line_and_column() {
    for (table, problem) in [
        ("", "line 1: empty; expected a header"),
        ("0,1\n", "header: column \"0\", expected some of episode,start,end,safe,at"),
        ("episode,start\n", "header: column \"safe\" is missing"),
        ("episode,safe,safe\n", "header: column \"safe\" stands there twice"),
        ("episode,safe\n", "line 2: no label; expected one a line"),
        ("episode,safe\n0,1\n0,0\n", "line 3, column safe: another verdict on the same steps than in line 2"),
        ("episode,safe\n0,1\n0\n", "line 3: 1 cells, the header has 2"),
        ("episode,safe\n0,1\n\nx,1\n", "line 4, column episode: \"x\", expected a whole number"),
        ("episode,safe\n,1\n", "line 2, column episode: \"\", expected a whole number"),
        ("episode,safe\n0,maybe\n", "line 2, column safe: \"maybe\", expected 1, 0, true"),
        ("episode,safe\n2,1\n", "line 2, column episode: 2; the store holds 2 episodes"),
        ("episode,safe,end\n0,1,11\n", "line 2: label of episode 0, steps 0..11: the episode has 10 steps"),
        ("episode,safe,end\n0,1,9999999999\n", "line 2, column end: \"9999999999\", expected a step"),
        ("episode,safe,at\n0,1,3\n", "line 2: label of episode 0, steps 0..10: at = 3 in a safe span"),
        ("episode,safe,start\n0,1,-1\n", "line 2, column start: \"-1\", expected a whole number"),
    ] {
        let message = import(table).unwrap_err();
        assert!(message.contains(problem), "{message}");
    }
}
