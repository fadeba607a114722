//! The settings of a safety model and its fit.

use prudence_core::SettingError;
use serde::{Deserialize, Serialize};

/// Section `[safety]` of a task file.
///
/// ```
/// use prudence_safety::FitSettings;
///
/// let settings = FitSettings { ensemble: 3, steps: 12_000, ..FitSettings::default() };
/// settings.check()?;
/// let wrong = FitSettings { steps: 0, ..settings };
/// assert_eq!(wrong.check().unwrap_err().to_string(), "safety.steps = 0: must be 1 or more");
/// # Ok::<(), prudence_core::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// Layers between `(s, a)` and the GRU, the last one linear. Empty: the GRU reads `(s, a)` itself, as in the paper.
    pub encoder: Vec<usize>,
    /// Width of the memory h of the GRU.
    pub hidden: usize,
    /// Hidden layers of the decoder.
    pub decoder: Vec<usize>,
    /// Members of the ensemble. The log P of a step is the minimum over the members.
    pub ensemble: usize,
    /// Initial learning rate, which decreases to 0 along a cosine.
    pub learning_rate: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// The norm to which each member's gradient is clipped.
    pub clip: f64,
    /// Segments per step.
    pub batch: usize,
    /// Steps of gradient descent.
    pub steps: usize,
    /// Prefixes whose length is a multiple of this enter the loss; the whole segment always does.
    pub prefix_every: usize,
    /// Share of the episodes that are held out for testing.
    pub held_out: f64,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            encoder: vec![64, 32],
            hidden: 16,
            decoder: vec![64, 64],
            ensemble: 1,
            learning_rate: 5e-3,
            weight_decay: 1e-4,
            clip: 1.0,
            batch: 128,
            steps: 8000,
            prefix_every: 1,
            held_out: 0.1,
        }
    }
}

impl FitSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let layers = |layers: &[usize]| layers.iter().all(|n| (1..=8192).contains(n));
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let unless = SettingError::unless;
        unless(
            layers(&self.encoder),
            "safety.encoder",
            &format!("{:?}", self.encoder),
            "must be layers of 1 to 8192 units, or empty",
        )?;
        unless(
            !self.decoder.is_empty() && layers(&self.decoder),
            "safety.decoder",
            &format!("{:?}", self.decoder),
            "must be layers of 1 to 8192 units",
        )?;
        unless((1..=1024).contains(&self.hidden), "safety.hidden", &self.hidden, "must be 1 to 1024")?;
        unless((1..=64).contains(&self.ensemble), "safety.ensemble", &self.ensemble, "must be 1 to 64")?;
        unless(self.batch > 0, "safety.batch", &self.batch, "must be 1 or more")?;
        unless(self.steps > 0, "safety.steps", &self.steps, "must be 1 or more")?;
        unless(self.prefix_every > 0, "safety.prefix_every", &self.prefix_every, "must be 1 or more")?;
        let share = self.held_out > 0.0 && self.held_out <= 0.9;
        unless(share, "safety.held_out", &self.held_out, "must be above 0 and at most 0.9")?;
        unless(positive(self.learning_rate), "safety.learning_rate", &self.learning_rate, "must be above 0")?;
        unless(positive(self.clip), "safety.clip", &self.clip, "must be above 0")?;
        let decay = self.weight_decay >= 0.0 && self.weight_decay.is_finite();
        unless(decay, "safety.weight_decay", &self.weight_decay, "must be finite and 0 or more")
    }
}
