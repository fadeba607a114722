//! What a safety model is trained on: labelled spans of episodes, split into training and held-out episodes.
//!
//! The split is by episode and not by segment: two segments of an episode share steps, so a model trained on one of
//! them has already seen part of the other.

use std::collections::BTreeMap;

use prudence_core::random::Stream;
use rand::seq::SliceRandom as _;

use crate::{Error, Label, Rule, latest};

/// A labelled span of an episode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// An index into the list of episodes that the segments were gathered for.
    pub episode: usize,
    /// The first step of the span.
    pub start: usize,
    /// One past the last step of the span.
    pub end: usize,
    /// The verdict on the whole span.
    pub safe: bool,
    /// The breaking step of an unsafe span, if it is known: the prefix `start..e` is unsafe if and only if `e > at`.
    pub at: Option<usize>,
}

impl Segment {
    /// What a label says, with the episode's place in a list.
    pub fn of(label: &Label, episode: usize) -> Self {
        Self {
            episode,
            start: label.start as usize,
            end: label.end as usize,
            safe: label.safe,
            at: label.at.map(|at| at as usize),
        }
    }

    /// Whether the first `len` steps of the span are safe, or `None` if the label does not say.
    ///
    /// Every prefix of a safe span is safe. The prefixes of an unsafe span have labels only if its breaking step is
    /// known; otherwise only the whole span has one. `None` for a `len` of 0 or beyond the span's end.
    pub fn prefix_label(&self, len: usize) -> Option<bool> {
        let steps = self.end - self.start;
        if len == 0 || len > steps {
            return None;
        }
        match (self.safe, self.at) {
            (true, _) => Some(true),
            (false, Some(at)) => Some(self.start + len <= at),
            (false, None) => (len == steps).then_some(false),
        }
    }
}

/// Labels an episode of `steps` steps by a rule that reads its signals: the whole episode, and `extra_starts` segments that start later.
///
/// The later starts are distinct and drawn uniformly from 1..T (all of them are taken if there are no more). Each
/// segment runs to the end of the episode, and the rule judges it from its own start and ignores what came before.
pub fn label_by_rule(
    rule: &Rule,
    episode: u64,
    signals: &[f64],
    steps: usize,
    extra_starts: usize,
    rng: &mut Stream,
    when: &str,
) -> Vec<Label> {
    let mut later: Vec<usize> = (1..steps).collect();
    let (chosen, _) = later.partial_shuffle(rng, extra_starts);
    chosen.sort_unstable();
    let whole = (steps > 0).then_some(0);
    let starts = whole.into_iter().chain(chosen.iter().copied());
    starts
        .map(|start| {
            let violation = rule.first_violation(signals, start..steps);
            Label {
                episode,
                start: start as u32,
                end: steps as u32,
                safe: violation.is_none(),
                at: violation.map(|at| at as u32),
                by: format!("rule: {}", rule.text()),
                when: when.to_owned(),
            }
        })
        .collect()
}

/// The first of `labelled` episodes, oldest first, to hold out: the newest are held out, a share from 0 to 1 of them.
///
/// Episodes of one training resemble their neighbours. A random choice would test the model on near copies of what it
/// was trained on. At least one episode is left to train on, and if there are two or more, any share above 0 holds out
/// at least one.
pub fn held_out_from(labelled: usize, share: f64) -> usize {
    let most = labelled.saturating_sub(1);
    let least = usize::from(share > 0.0).min(most);
    labelled - ((share * labelled as f64).round() as usize).clamp(least, most)
}

/// Gathers the segments of the given episodes from the latest label of each span; labels of other episodes are ignored.
///
/// [`Segment::episode`] is an index into `episodes`. `lengths` holds the length of every episode of the store: a label
/// that extends past the end of its episode is an error.
pub fn gather(labels: &[Label], episodes: &[u64], lengths: &[u32]) -> Result<Vec<Segment>, Error> {
    let places: BTreeMap<u64, usize> = episodes.iter().copied().zip(0..).collect();
    let mut segments = Vec::new();
    for label in latest(labels) {
        if let Some(place) = places.get(&label.episode) {
            label.check_in(lengths)?;
            segments.push(Segment::of(label, *place));
        }
    }
    Ok(segments)
}
