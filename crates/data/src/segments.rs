//! What a safety model is trained on: labelled spans of episodes, and the split that keeps the test honest.
//!
//! The split is by episodes, and segments are gathered for one side of it: two spans of an episode share steps, so a model
//! trained on one has seen the other.

use std::collections::BTreeMap;

use prudence_core::random::{Stream, stream};
use rand::seq::SliceRandom as _;

use crate::{Episode, Error, Label, Rule, latest};

/// A labelled span of an episode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// The episode's place in the list that the segments were gathered for.
    pub episode: usize,
    /// The first step of the span.
    pub start: usize,
    /// One past its last step.
    pub end: usize,
    /// The verdict on the whole span.
    pub safe: bool,
    /// For an unsafe span whose breaking step is known: the prefix `start..e` is unsafe if and only if `e > at`.
    pub at: Option<usize>,
}

impl Segment {
    /// Whether the first `len` steps of the span are safe, or `None` where nobody said so.
    ///
    /// Every prefix of a safe span is safe. Of an unsafe one the prefixes carry a label only if the breaking step is
    /// known; if not, the whole span does and nothing is guessed. A span has no prefix of 0 or of too many steps.
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

/// The rule's labels of an episode: on the whole of it, and on `extra_starts` segments that start later.
///
/// The starts are distinct and uniform in 1..T (all of them, if there are not more); each segment goes to the episode's
/// end and is judged by the rule from its own start, as if nothing had been before.
pub fn label_by_rule(
    rule: &Rule,
    episode_id: u64,
    episode: &Episode,
    extra_starts: usize,
    rng: &mut Stream,
    when: &str,
) -> Vec<Label> {
    let steps = episode.len();
    let mut later: Vec<usize> = (1..steps).collect();
    let (chosen, _) = later.partial_shuffle(rng, extra_starts);
    chosen.sort_unstable();
    let whole = (steps > 0).then_some(0);
    let starts = whole.into_iter().chain(chosen.iter().copied());
    starts
        .map(|start| {
            let violation = rule.first_violation(&episode.signals, start..steps);
            Label {
                episode: episode_id,
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

/// Splits the episodes 0..`episodes` at random: those to train on, and a share `held_out` (0 to 1) to test on.
///
/// Both are in ascending order. Any share above 0 holds out at least one episode, and at least one is left to train on
/// where there are two.
pub fn split(episodes: u64, held_out: f64, seed: u64) -> (Vec<u64>, Vec<u64>) {
    let mut ids: Vec<u64> = (0..episodes).collect();
    ids.shuffle(&mut stream(seed, "split", 0));
    let most = ids.len().saturating_sub(1);
    let least = usize::from(held_out > 0.0).min(most);
    let test = ((held_out * episodes as f64).round() as usize).clamp(least, most);
    let mut train = ids.split_off(test);
    train.sort_unstable();
    ids.sort_unstable();
    (train, ids)
}

/// The segments of the given episodes, from the latest label of each span; labels of other episodes are left out.
///
/// [`Segment::episode`] is the place in `episodes`. `lengths` are those of the whole store: a label that overruns its
/// episode is an error.
pub fn gather(labels: &[Label], episodes: &[u64], lengths: &[u32]) -> Result<Vec<Segment>, Error> {
    let places: BTreeMap<u64, usize> = episodes.iter().copied().zip(0..).collect();
    let mut segments = Vec::new();
    for label in latest(labels) {
        if let Some(place) = places.get(&label.episode) {
            label.check_in(lengths)?;
            segments.push(Segment {
                episode: *place,
                start: label.start as usize,
                end: label.end as usize,
                safe: label.safe,
                at: label.at.map(|at| at as usize),
            });
        }
    }
    Ok(segments)
}
