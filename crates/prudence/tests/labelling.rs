//! Labels are given once, however often a log is cut off.

use prudence::{Episode, Label, LabelLog, Labeller, Schema, Store};

/// A store of a few episodes whose only signal is a speed.
fn store(path: &std::path::Path) {
    let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
    let episode = |id: usize| Episode {
        observations: vec![0.0; 21],
        actions: vec![0.0; 20],
        rewards: vec![0.0; 20],
        signals: (0..20).map(|t| ((id + 1) * t) as f64).collect(),
        ..Episode::new(1, 1)
    };
    Store::create(path, schema).unwrap().append(&[episode(0), episode(1), episode(2)]).unwrap();
}

#[test]
fn a_log_that_was_cut_off_anywhere_ends_as_if_it_had_not_been() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("episodes");
    store(&path);
    let rule = Labeller::Rule { rule: "speed <= 30".into(), extra_starts: 3, seed: 5 };
    let verdicts = || {
        let log = LabelLog::open(&path.join("labels.jsonl")).unwrap();
        log.labels().iter().map(|label| Label { when: String::new(), ..label.clone() }).collect::<Vec<_>>()
    };
    let labelled = prudence::label(&path, &rule).unwrap();
    assert_eq!((labelled.episodes, labelled.labels), (3, 12));
    let (bytes, whole) = (std::fs::read(path.join("labels.jsonl")).unwrap(), verdicts());
    for cut in (0..=bytes.len()).step_by(7) {
        std::fs::write(path.join("labels.jsonl"), &bytes[..cut]).unwrap();
        prudence::label(&path, &rule).unwrap();
        assert_eq!(verdicts(), whole, "cut off after {cut} of {} bytes", bytes.len());
    }
}
