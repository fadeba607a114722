//! Labels are given once, however often a log is cut off.

use prudence::{Algorithm, Episode, Label, LabelLog, Labeller, RunFolder, Schema, Session, Store, Task, TaskSettings};

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

/// Where people gave the labels, the task's rule is not asked about the agents' own episodes.
#[test]
fn a_training_from_the_labels_of_others_asks_no_rule() {
    let dir = tempfile::tempdir().unwrap();
    let [episodes, model, by_rule, by_others] =
        ["episodes", "model", "by-rule", "by-others"].map(|name| dir.path().join(name));
    let small = [
        "run.seeds=1",
        "run.algo=[\"safesac-h\"]",
        "agent.hidden=[8,8]",
        "collect.steps=400",
        "train.steps=400",
        "train.random_steps=100",
        "train.test_episodes=2",
        "safety.steps=10",
        "refit.every=100",
        "refit.steps=2",
        "rule=\"distance > 8\"",
    ];
    let task = Task::named("navigation").unwrap().with(&small).unwrap();
    let session = Session::new(1).unwrap();
    let collected = prudence::collect(&task, &episodes, &session).unwrap();
    prudence::label(&episodes, &Labeller::of(&task)).unwrap();
    let (model, _) = prudence::fit(&task, &collected.stores, &model, 0, &session).unwrap();
    let labels_of = |run: &std::path::Path| {
        prudence::train(&task, Some(&model), &collected.stores, run, &session).unwrap();
        let store = RunFolder::at(run).episodes(0, Algorithm::SafesacH, 0);
        let log = LabelLog::open(&store.join("labels.jsonl")).unwrap();
        log.labels().len()
    };
    assert!(labels_of(&by_rule) > 0);
    let mut log = LabelLog::open(&collected.stores[0].join("labels.jsonl")).unwrap();
    let label = log.labels().iter().find(|label| label.start == 0).unwrap().clone();
    log.append(&[Label { by: "Ada".into(), at: None, ..label }]).unwrap();
    assert_eq!(labels_of(&by_others), 0);
    let settings = TaskSettings::from_file(&by_others.join("config.toml")).unwrap();
    assert_eq!((settings.refit.every, settings.train.accept_episodes), (0, 0));
}
