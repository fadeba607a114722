use std::collections::BTreeSet;

use proptest::prelude::*;
use prudence_core::random::{Stream, stream};
use prudence_data::{Episode, Label, Rule, Segment, gather, held_out_from, label_by_rule};

use crate::episode;

fn episode_with(a: &[f64]) -> Episode {
    let signals = a.iter().flat_map(|a| [*a, 0.0]).collect();
    Episode { signals, ..episode(a.len(), 0) }
}

fn labels_of(rule: &Rule, id: u64, episode: &Episode, extra: usize, rng: &mut Stream, when: &str) -> Vec<Label> {
    label_by_rule(rule, id, &episode.signals, episode.len(), extra, rng, when)
}

#[test]
fn prefixes_have_labels_only_where_they_are_known() {
    let segment = Segment { episode: 0, start: 10, end: 14, safe: true, at: None };
    let labels = |segment: Segment| (0..=5).map(|len| segment.prefix_label(len)).collect::<Vec<_>>();
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(labels(segment), [None, yes, yes, yes, yes, None]);
    assert_eq!(labels(Segment { safe: false, ..segment }), [None, None, None, None, no, None]);
    assert_eq!(labels(Segment { safe: false, at: Some(10), ..segment }), [None, no, no, no, no, None]);
    assert_eq!(labels(Segment { safe: false, at: Some(12), ..segment }), [None, yes, yes, no, no, None]);
    assert_eq!(labels(Segment { safe: false, at: Some(13), ..segment }), [None, yes, yes, yes, no, None]);
}

#[test]
fn the_rule_judges_each_segment_from_its_own_start() {
    let rule = Rule::parse("count(a) <= 1", &["a", "b"]).unwrap();
    let episode = episode_with(&[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let labels = labels_of(&rule, 7, &episode, 99, &mut stream(0, "labels", 7), "now");
    let spans: Vec<_> = labels.iter().map(|l| (l.start, l.end, l.safe, l.at)).collect();
    assert_eq!(
        spans,
        [
            (0, 6, false, Some(2)),
            (1, 6, false, Some(4)),
            (2, 6, false, Some(4)),
            (3, 6, true, None),
            (4, 6, true, None),
            (5, 6, true, None)
        ]
    );
    assert!(labels.iter().all(|l| l.episode == 7 && l.by == "rule: count(a) <= 1" && l.when == "now"));
}

#[test]
fn later_starts_are_distinct_reproducible_and_as_many_as_requested() {
    let rule = Rule::parse("a < 9", &["a", "b"]).unwrap();
    let episode = episode(200, 3);
    let draw = |seed| labels_of(&rule, 0, &episode, 20, &mut stream(seed, "labels", 0), "");
    let starts: BTreeSet<u32> = draw(1).iter().map(|label| label.start).collect();
    assert_eq!(starts.len(), 21);
    assert!(starts.contains(&0) && starts.iter().all(|start| *start < 200));
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    assert_eq!(labels_of(&rule, 0, &crate::episode(1, 0), 5, &mut stream(1, "labels", 0), "").len(), 1);
    assert_eq!(labels_of(&rule, 0, &Episode::new(2, 1), 5, &mut stream(1, "labels", 0), "").len(), 0);

    let mut counts = [0usize; 10];
    for seed in 0..9000 {
        let labels = labels_of(&rule, 0, &crate::episode(10, 0), 3, &mut stream(seed, "labels", 0), "");
        labels.iter().for_each(|label| counts[label.start as usize] += 1);
    }
    assert_eq!(counts[0], 9000);
    assert!(counts[1..].iter().all(|n| (2800..3200).contains(n)), "uniform in 1..T: {counts:?}");
}

#[test]
fn the_newest_episodes_are_held_out() {
    for (labelled, share, first) in
        [(1000, 0.1, 900), (0, 0.1, 0), (1, 0.1, 1), (3, 0.1, 2), (3, 1.0, 1), (3, 0.0, 3), (15, 0.1, 13)]
    {
        assert_eq!(held_out_from(labelled, share), first, "{share} of {labelled}");
    }
}

proptest! {
    #[test]
    fn held_out_episodes_never_leak_through_their_segments(
        episodes in 1u64..60, held_out in 0.0f64..1.0, seed in any::<u64>(), extra in 0usize..6,
    ) {
        let rule = Rule::parse("fraction(a > 0, 4) <= 0.5", &["a", "b"]).unwrap();
        let lengths = vec![8; episodes as usize];
        let labels: Vec<Label> = (0..episodes)
            .flat_map(|id| labels_of(&rule, id, &episode(8, id as u32), extra, &mut stream(seed, "labels", id), ""))
            .collect();
        let all: Vec<u64> = (0..episodes).collect();
        let (train, test) = all.split_at(held_out_from(all.len(), held_out));
        let set = |side: &[u64]| side.iter().copied().collect::<BTreeSet<u64>>();
        let (train_set, test_set) = (set(train), set(test));
        prop_assert!(train_set.is_disjoint(&test_set));
        prop_assert_eq!(train_set.len() + test_set.len(), episodes as usize);
        let ids = |side: &[u64]| -> Vec<u64> {
            gather(&labels, side, &lengths).unwrap().iter().map(|segment| side[segment.episode]).collect()
        };
        let (trained, tested) = (ids(train), ids(test));
        prop_assert!(trained.iter().all(|id| train_set.contains(id)));
        prop_assert!(tested.iter().all(|id| test_set.contains(id)));
        prop_assert_eq!(trained.len() + tested.len(), labels.len());
    }
}

#[test]
fn gather_takes_the_latest_label_and_rejects_one_beyond_its_episode() {
    let label =
        |episode, end, safe| Label { episode, start: 0, end, safe, at: None, by: String::new(), when: String::new() };
    let segment = |episode, end, safe| Segment { episode, start: 0, end, safe, at: None };
    let labels = [label(5, 4, true), label(2, 3, true), label(5, 4, false), label(1, 99, true)];
    let lengths = [3, 3, 3, 3, 3, 4];
    assert_eq!(gather(&labels, &[5, 2], &lengths).unwrap(), [segment(1, 3, true), segment(0, 4, false)]);
    let message = gather(&labels, &[1], &lengths).unwrap_err().to_string();
    assert!(message.contains("label of episode 1, steps 0..99: the episode has 3 steps"), "{message}");
    assert!(gather(&labels, &[5], &lengths[..5]).is_err());
}
