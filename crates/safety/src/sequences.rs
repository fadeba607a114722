//! Forward and backward passes of a bank of models over batches of spans, with time as the leading axis.

use std::ops::Range;

use prudence_data::{Episodes, Steps};
use prudence_nn::Device;
use prudence_nn::work::{Columns, GruPass, Input, Normalise, Pass, Room};

use crate::model::Networks;
use crate::{Error, ModelShape};

/// Consecutive steps of an episode, which is named by its index.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub episode: usize,
    pub steps: Range<usize>,
}

/// The parameters and the normalisation of a bank's networks, on a device.
pub(crate) struct Weights<'a, D: Device> {
    /// `[G, parameters]`
    pub parameters: &'a D::Buf,
    /// `[G / share, s + a]`
    pub centre: &'a D::Buf,
    pub scale: &'a D::Buf,
}

/// Where the steps of spans are read: `E` on the host has one entry per replica. Groups are divided among the replicas in
/// order.
pub(crate) enum Source<'a, D: Device, E: ?Sized> {
    Host(&'a [&'a E]),
    Device(&'a OnDevice<D>),
}

/// The episodes of all replicas on a device, one row per step.
pub(crate) struct OnDevice<D: Device> {
    observation: D::Buf,
    action: D::Buf,
    /// The first row of each episode, per replica.
    first_rows: Vec<Vec<u32>>,
}

impl<D: Device> OnDevice<D> {
    pub(crate) fn new<E: Episodes + ?Sized>(device: &D, shape: &ModelShape, replicas: &[&E]) -> Result<Self, Error> {
        let steps = |episodes: &&E| (0..episodes.count()).map(|e| episodes.steps(e)).sum::<usize>();
        let rows: usize = replicas.iter().map(steps).sum();
        let mut observation = device.buffer(rows * shape.observation)?;
        let mut action = device.buffer(rows * shape.action)?;
        let (mut read, mut row) = (Steps::default(), 0);
        let mut first_rows = Vec::with_capacity(replicas.len());
        for episodes in replicas {
            let mut of_replica = Vec::with_capacity(episodes.count());
            for episode in 0..episodes.count() {
                let steps = episodes.steps(episode);
                episodes.read_steps(episode, 0..steps, &mut read)?;
                device.write(&mut observation, row * shape.observation, &read.observations);
                device.write(&mut action, row * shape.action, &read.actions);
                of_replica.push(row as u32);
                row += steps;
            }
            first_rows.push(of_replica);
        }
        Ok(Self { observation, action, first_rows })
    }
}

/// The buffers of a pass over N spans per group. `share` consecutive members read the same spans.
pub(crate) struct Sequences<D: Device> {
    groups: usize,
    share: usize,
    rows: usize,
    steps: usize,
    capacity: usize,
    inputs: usize,
    observation_width: usize,
    action_width: usize,
    hidden_width: usize,
    /// `[G / share, T, N, ·]`: observations and actions on the host
    host: [Vec<f32>; 2],
    /// The span that is being read.
    read: Steps,
    /// `[G / share, N, 2]`: the first row and the number of steps of each span
    host_places: Vec<u32>,
    places: D::Rows,
    observation: D::Buf,
    action: D::Buf,
    /// `[G / share, T, N, s + a]`, normalised
    input: D::Buf,
    encoder: Option<Pass<D>>,
    gru: GruPass<D>,
    pub(crate) decoder: Pass<D>,
    /// `[G, T + 1, N, H]`
    hidden_gradient: D::Buf,
}

impl<D: Device> Sequences<D> {
    /// Allocates buffers for `rows` spans per group, of up to `steps` steps.
    pub(crate) fn new(
        device: &D,
        shape: &ModelShape,
        nets: &Networks,
        share: usize,
        rows: usize,
        steps: usize,
    ) -> Room<Self> {
        let (groups, all) = (nets.gru.groups, steps * rows);
        let distinct = groups / share * all;
        Ok(Self {
            groups,
            share,
            rows,
            steps,
            capacity: steps,
            inputs: shape.inputs(),
            observation_width: shape.observation,
            action_width: shape.action,
            hidden_width: shape.gru.hidden,
            host: [vec![0.0; distinct * shape.observation], vec![0.0; distinct * shape.action]],
            read: Steps::default(),
            host_places: vec![0; groups / share * rows * 2],
            places: device.rows(groups / share * rows * 2)?,
            observation: device.buffer(distinct * shape.observation)?,
            action: device.buffer(distinct * shape.action)?,
            input: device.buffer(distinct * shape.inputs())?,
            encoder: nets.encoder.as_ref().map(|net| Pass::new(device, net, all)).transpose()?,
            gru: GruPass::new(device, &nets.gru, steps, rows)?,
            decoder: Pass::new(device, &nets.decoder, all)?,
            hidden_gradient: device.buffer(groups * (all + rows) * shape.gru.hidden)?,
        })
    }

    /// `[G, T + 1, N, H]`
    pub(crate) fn hidden(&self) -> &D::Buf {
        self.gru.hidden()
    }

    /// Changes the number of steps; only growing beyond the largest so far allocates.
    pub(crate) fn set_steps(&mut self, device: &D, shape: &ModelShape, nets: &Networks, steps: usize) -> Room<()> {
        if steps > self.capacity {
            *self = Self::new(device, shape, nets, self.share, self.rows, steps)?;
        }
        self.steps = steps;
        self.gru.set_steps(device, &nets.gru, steps)?;
        if let (Some(pass), Some(net)) = (&mut self.encoder, &nets.encoder) {
            pass.set_rows(device, net, steps * self.rows)?;
        }
        self.decoder.set_rows(device, &nets.decoder, steps * self.rows)
    }

    /// Runs the bank over these spans, at most N per distinct group, and leaves the logits `[G, T, N]` in the decoder's
    /// pass. Values after the end of a span are meaningless.
    pub(crate) fn forward<E: Episodes + ?Sized>(
        &mut self,
        device: &D,
        nets: &Networks,
        weights: &Weights<'_, D>,
        source: &Source<'_, D, E>,
        spans: &[Vec<Span>],
    ) -> Result<(), Error> {
        match source {
            Source::Host(episodes) => self.read(device, episodes, spans)?,
            Source::Device(episodes) => self.gather(device, episodes, spans),
        }
        self.run(device, nets, weights);
        Ok(())
    }

    /// Copies the steps of the spans on the device.
    fn gather(&mut self, device: &D, episodes: &OnDevice<D>, spans: &[Vec<Span>]) {
        self.host_places.fill(0); // no steps
        for (group, of_group) in spans.iter().enumerate() {
            let first_rows = &episodes.first_rows[group * episodes.first_rows.len() / spans.len()];
            for (n, Span { episode, steps }) in of_group.iter().enumerate() {
                let place = [first_rows[*episode] + steps.start as u32, steps.len() as u32];
                self.host_places[2 * (group * self.rows + n)..][..2].copy_from_slice(&place);
            }
        }
        device.write_rows(&mut self.places, 0, &self.host_places);
        let (steps, rows) = (self.steps, self.rows);
        device.spans(&episodes.observation, self.observation_width, &self.places, [steps, rows], &mut self.observation);
        device.spans(&episodes.action, self.action_width, &self.places, [steps, rows], &mut self.action);
    }

    /// Reads the steps of the spans and copies them to the device.
    fn read<E: Episodes + ?Sized>(&mut self, device: &D, episodes: &[&E], spans: &[Vec<Span>]) -> Result<(), Error> {
        let (steps, rows, s, a) = (self.steps, self.rows, self.observation_width, self.action_width);
        let all = steps * rows;
        for (group, of_group) in spans.iter().enumerate() {
            let episodes = episodes[group * episodes.len() / spans.len()];
            for (n, Span { episode, steps }) in of_group.iter().enumerate() {
                episodes.read_steps(*episode, steps.clone(), &mut self.read)?;
                let observations = self.read.observations.chunks_exact(s);
                for (t, (observation, action)) in observations.zip(self.read.actions.chunks_exact(a)).enumerate() {
                    let at = group * all + t * rows + n;
                    self.host[0][at * s..][..s].copy_from_slice(observation);
                    self.host[1][at * a..][..a].copy_from_slice(action);
                }
            }
        }
        let distinct = self.groups / self.share;
        device.write(&mut self.observation, 0, &self.host[0][..distinct * all * s]);
        device.write(&mut self.action, 0, &self.host[1][..distinct * all * a]);
        Ok(())
    }

    /// Runs the bank over the steps on the device.
    fn run(&mut self, device: &D, nets: &Networks, weights: &Weights<'_, D>) {
        let (rows, s, a) = (self.rows, self.observation_width, self.action_width);
        let (all, distinct) = (self.steps * rows, self.groups / self.share);
        let n = Normalise {
            observation: &self.observation,
            action: &self.action,
            observation_width: s,
            action_width: a,
            centre: weights.centre,
            scale: weights.scale,
            replicas: distinct,
            rows: all,
        };
        device.normalise(n, &mut self.input);
        let input = Columns::new(&self.input, all, self.inputs, self.share);
        let features = match (&nets.encoder, &mut self.encoder) {
            (Some(net), Some(pass)) => {
                device.forward(net, weights.parameters, Input { first: input, second: None }, pass);
                Columns::new(pass.output(), all, net.shape.outputs(), 1)
            }
            _ => input,
        };
        device.gru_forward(&nets.gru, weights.parameters, features, &mut self.gru);
        let input = decoder_input(&self.input, &self.gru, all, self.inputs, self.hidden_width, self.share, rows);
        device.forward(&nets.decoder, weights.parameters, input, &mut self.decoder);
    }

    /// Turns the gradient of the logits in the decoder's pass into those of all parameters, which are overwritten.
    pub(crate) fn backward(&mut self, device: &D, nets: &Networks, weights: &Weights<'_, D>, gradients: &mut D::Buf) {
        let (rows, h) = (self.rows, self.hidden_width);
        let all = self.steps * rows;
        let input = decoder_input(&self.input, &self.gru, all, self.inputs, h, self.share, rows);
        device.backward(&nets.decoder, weights.parameters, input, &mut self.decoder, gradients);
        let stride = (all + rows) * h;
        let net = &nets.decoder;
        device.input_gradient(net, weights.parameters, &self.decoder, self.inputs, &mut self.hidden_gradient, stride);
        for group in 0..self.groups {
            // The memory after the last step is not used.
            device.fill(&mut self.hidden_gradient, group * stride + all * h, rows * h, 0.0);
        }
        let input = Columns::new(&self.input, all, self.inputs, self.share);
        match (&nets.encoder, &mut self.encoder) {
            (Some(net), Some(pass)) => {
                let width = net.shape.outputs();
                let (features, dx) = pass.output_and_gradient();
                let features = Columns::new(features, all, width, 1);
                device.gru_backward(
                    &nets.gru,
                    weights.parameters,
                    features,
                    &self.hidden_gradient,
                    &mut self.gru,
                    gradients,
                    Some(dx),
                );
                device.backward(net, weights.parameters, Input { first: input, second: None }, pass, gradients);
            }
            _ => device.gru_backward(
                &nets.gru,
                weights.parameters,
                input,
                &self.hidden_gradient,
                &mut self.gru,
                gradients,
                None,
            ),
        }
    }
}

/// `(s_t, a_t)` and `h_t`, the memory before step t.
fn decoder_input<'a, D: Device>(
    input: &'a D::Buf,
    gru: &'a GruPass<D>,
    all: usize,
    inputs: usize,
    hidden: usize,
    share: usize,
    rows: usize,
) -> Input<'a, D> {
    let memory = Columns { buffer: gru.hidden(), width: hidden, share: 1, stride: (all + rows) * hidden };
    Input { first: Columns::new(input, all, inputs, share), second: Some(memory) }
}
