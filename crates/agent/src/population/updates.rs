//! Updates: which agents make one, with which transitions and which noise.

use prudence_core::random::StreamId;
use prudence_nn::Device;
use prudence_nn::work::{Batch, Room};

use super::{Member, Population};
use crate::Error;
use crate::multiplier::UPDATES_PER_MOVE;
use crate::safesac::{Networks, Steering};
use crate::settings::TrainingSettings;

/// The inputs of an update.
pub(super) struct Updates<D: Device> {
    batch: Batch<D>,
    /// `[P, B]`
    rows: Vec<u32>,
    rows_on_device: D::Rows,
    /// `[P, 6]`: the addresses of the noise, for actions at s' and at s
    addresses: [Vec<u32>; 2],
    next_noise: D::Rows,
    noise: D::Rows,
}

impl<D: Device> Updates<D> {
    pub(super) fn new(device: &D, networks: &Networks, batch: usize) -> Room<Self> {
        let p = networks.population;
        Ok(Self {
            batch: Batch::new(device, p, batch, networks.state, networks.action)?,
            rows: vec![0; p * batch],
            rows_on_device: device.rows(p * batch)?,
            addresses: [vec![0; p * 6], vec![0; p * 6]],
            next_noise: device.rows(p * 6)?,
            noise: device.rows(p * 6)?,
        })
    }
}

impl<D: Device> Population<D> {
    /// Makes the pending updates of the active agents.
    pub(super) fn update(&mut self, active: &[bool]) -> Result<(), Error> {
        loop {
            let pending = |agent: usize| active[agent] && self.members[agent].counters.pending_updates >= 1.0;
            let updating: Vec<bool> = (0..self.members.len()).map(pending).collect();
            if !updating.contains(&true) {
                return Ok(());
            }
            let unread = |(member, updating): (&Member, &bool)| member.unread_metrics && !updating;
            if self.members.iter().zip(&updating).any(unread) {
                self.read_metrics()?; // the update overwrites the measurements of every agent
            }
            self.draw(&updating);
            for (agent, updating) in updating.iter().copied().enumerate() {
                let steering = updating.then(|| self.prepare(agent));
                self.learner.steer(agent, steering.as_ref());
            }
            let (d, work, width) = (&self.device, &mut self.updates, self.setup.spec.action.dim());
            d.write_rows(&mut work.rows_on_device, 0, &work.rows);
            d.write_rows(&mut work.next_noise, 0, &work.addresses[0]);
            d.write_rows(&mut work.noise, 0, &work.addresses[1]);
            d.gather(&self.replay.tables(), &work.rows_on_device, &mut work.batch);
            let each = work.batch.size * width;
            d.normals(&work.next_noise, each, &mut work.batch.next_noise);
            d.normals(&work.noise, each, &mut work.batch.noise);
            self.learner.update(&work.batch)?;
            let moves = |agent: &usize| {
                updating[*agent] && self.members[*agent].counters.update.is_multiple_of(UPDATES_PER_MOVE)
            };
            let moving: Vec<usize> = (0..self.members.len()).filter(moves).collect();
            self.move_multipliers(&moving);
        }
    }

    /// Draws the transitions of the updating agents.
    fn draw(&mut self, updating: &[bool]) {
        let stream = |(member, updating): (&Member, &bool)| {
            updating.then(|| StreamId::new(member.seed, "batch", member.counters.update))
        };
        let streams: Vec<Option<StreamId>> = self.members.iter().zip(updating).map(stream).collect();
        let (replay, work) = (&self.replay, &mut self.updates);
        let own_share = self.setup.settings.train.own_share;
        let mut rows: Vec<&mut [u32]> = work.rows.chunks_exact_mut(work.batch.size).collect();
        self.setup.parallel.threads.map(&mut rows, |agent, rows| {
            if let Some(stream) = streams[agent] {
                replay.draw(agent, rows, own_share, stream);
            }
        });
    }

    /// Counts an agent's next update, sets the addresses of its noise, and says what it does.
    fn prepare(&mut self, agent: usize) -> Steering {
        let TrainingSettings { agent: settings, train, .. } = &self.setup.settings;
        let (member, work) = (&mut self.members[agent], &mut self.updates);
        for (addresses, purpose) in work.addresses.iter_mut().zip(["next-actions", "new-actions"]) {
            let stream = StreamId::new(member.seed, purpose, member.counters.update);
            addresses[agent * 6..][..6].copy_from_slice(&stream.address(0));
        }
        member.counters.pending_updates -= 1.0;
        member.counters.update += 1;
        member.unread_metrics = true;
        let progress = (member.counters.step as f64 / train.steps as f64).min(1.0);
        Steering {
            rate: settings.learning_rate * (1.0 - (1.0 - settings.final_rate) * progress),
            update: member.counters.update,
            multipliers: if self.setup.constrained() { vec![member.multiplier.value()] } else { Vec::new() },
        }
    }

    /// Reads what the last update measured, where that has not been done yet.
    pub(super) fn read_metrics(&mut self) -> Result<(), Error> {
        if !self.members.iter().any(|member| member.unread_metrics) {
            return Ok(());
        }
        for (member, metrics) in self.members.iter_mut().zip(self.learner.metrics()?) {
            if std::mem::take(&mut member.unread_metrics) {
                member.counters.metrics = metrics;
            }
        }
        Ok(())
    }
}
