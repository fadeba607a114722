//! Spans of episodes run through the networks together, time leading; and the way back.

use prudence_data::Episode;
use prudence_nn::{GruWork, MlpWork, Scalar, loss};

use crate::SafetyModel;

/// B spans at a time, and all that a pass over them keeps.
pub(crate) struct Sequences<T> {
    batch: usize,
    /// `[T, B, s + a]`, normalised; zeros past a span's end.
    input: Vec<T>,
    /// `[T, B, s + a + h]`
    rows: Vec<T>,
    /// `[T, B]`
    log_prob: Vec<T>,
    pair: Vec<T>,
    encoder: Option<MlpWork<T>>,
    gru: GruWork<T>,
    pub(crate) decoder: MlpWork<T>,
    /// `[T + 1, B, h]`
    hidden_gradient: Vec<T>,
}

impl<T: Scalar> Sequences<T> {
    /// Room for `batch` spans.
    pub(crate) fn new(model: &SafetyModel<T>, batch: usize) -> Self {
        Self {
            batch,
            input: Vec::new(),
            rows: Vec::new(),
            log_prob: Vec::new(),
            pair: Vec::new(),
            encoder: model.encoder.as_ref().map(|shape| MlpWork::new(shape, 1, batch)),
            gru: GruWork::new(&model.gru, 1, batch),
            decoder: model.decoder_work(batch),
            hidden_gradient: Vec::new(),
        }
    }

    /// B
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// `log P` of each step, `[T, B]`, T being the longest span; at most B spans fill the first columns.
    pub(crate) fn log_prob(&mut self, model: &SafetyModel<T>, spans: &[(&Episode, usize, usize)]) -> &[T] {
        let (batch, inputs, hidden, width) = (self.batch, model.inputs(), model.gru.hidden, model.decoder.inputs());
        let steps = spans.iter().map(|(_, start, end)| end - start).max().unwrap_or(0);
        let rows = steps * batch;
        self.input.clear();
        self.input.resize(rows * inputs, T::ZERO);
        for (b, (episode, start, end)) in spans.iter().enumerate() {
            let s = episode.observations.len() / (episode.len() + 1);
            let a = episode.actions.len() / episode.len();
            for t in *start..*end {
                self.pair.clear();
                self.pair.extend(episode.observations[t * s..][..s].iter().map(|x| T::of(f64::from(*x))));
                self.pair.extend(episode.actions[t * a..][..a].iter().map(|x| T::of(f64::from(*x))));
                let (observation, action) = self.pair.split_at(s);
                model.normalise(observation, action, &mut self.input[((t - start) * batch + b) * inputs..][..inputs]);
            }
        }
        let (encoder, gru, decoder) = model.split();
        self.gru.set_steps(steps);
        match (&model.encoder, &mut self.encoder) {
            (Some(shape), Some(work)) => {
                work.set_batch(rows);
                shape.forward(encoder, &self.input, 1, work);
                model.gru.forward(gru, work.output(), &mut self.gru);
            }
            _ => model.gru.forward(gru, &self.input, &mut self.gru),
        }
        self.rows.resize(rows * width, T::ZERO);
        let known = self.input.chunks_exact(inputs).zip(self.gru.hidden().chunks_exact(hidden));
        for (row, (input, memory)) in self.rows.chunks_exact_mut(width).zip(known) {
            row[..inputs].copy_from_slice(input);
            row[inputs..].copy_from_slice(memory); // h_t, the memory before step t
        }
        self.decoder.set_batch(rows);
        model.decoder.forward(decoder, &self.rows, 1, &mut self.decoder);
        self.log_prob.resize(rows, T::ZERO);
        loss::log_sigmoid(self.decoder.output(), &mut self.log_prob);
        &self.log_prob
    }

    /// `log P` of the last pass and the room for its gradient, `[T, B]` both.
    pub(crate) fn log_prob_and_gradient(&mut self) -> (&[T], &mut [T]) {
        (&self.log_prob, self.decoder.output_gradient())
    }

    /// From the gradient by the logits, in `decoder`, to the gradient by all parameters, overwritten.
    pub(crate) fn backward(&mut self, model: &SafetyModel<T>, gradients: &mut [T]) {
        let (encoder, gru, decoder) = model.split();
        let (encoder_gradients, rest) = gradients.split_at_mut(encoder.len());
        let (gru_gradients, decoder_gradients) = rest.split_at_mut(gru.len());
        let (rows, hidden) = (self.log_prob.len(), model.gru.hidden);
        model.decoder.backward(decoder, &self.rows, 1, &mut self.decoder, decoder_gradients);
        // The last memory is read by nobody: its gradient is zero.
        self.hidden_gradient.clear();
        self.hidden_gradient.resize((rows + self.batch) * hidden, T::ZERO);
        let by_hidden = &mut self.hidden_gradient[..rows * hidden];
        model.decoder.input_gradient(decoder, &self.decoder, model.inputs(), by_hidden);
        match (&model.encoder, &mut self.encoder) {
            (Some(shape), Some(work)) => {
                model.gru.backward(gru, work.output(), &self.hidden_gradient, &mut self.gru, gru_gradients);
                model.gru.input_gradient(gru, &self.gru, work.output_gradient());
                shape.backward(encoder, &self.input, 1, work, encoder_gradients);
            }
            _ => model.gru.backward(gru, &self.input, &self.hidden_gradient, &mut self.gru, gru_gradients),
        }
    }
}
