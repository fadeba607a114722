//! Updates: which agents make one, with which transitions and which noise.

use prudence_core::random::StreamId;
use prudence_nn::Device;
use prudence_nn::work::{Batch, Room};

use super::Population;
use crate::Error;
use crate::safesac::{Networks, Steering};
use crate::settings::TrainingSettings;

/// The inputs of an update.
pub(super) struct Updates<D: Device> {
    batch: Batch<D>,
    /// `[P, B]`
    rows: Vec<u32>,
    rows_on_device: D::Rows,
    /// `[P, 6]`: the addresses of the noise, for actions at s' and at s
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
            for (agent, updating) in updating.into_iter().enumerate() {
                if updating {
                    self.prepare(agent);
                } else {
                    self.read_metrics(agent)?; // the next update overwrites the measurements of every agent
                    self.learner.steer(agent, None);
                }
            }
            let (d, work, width) = (&self.device, &mut self.updates, self.setup.spec.action.dim());
            d.write_rows(&mut work.rows_on_device, 0, &work.rows);
            d.gather(&self.replay.tables(), &work.rows_on_device, &mut work.batch);
            let each = work.batch.size * width;
            d.normals(&work.next_noise, each, &mut work.batch.next_noise);
            d.normals(&work.noise, each, &mut work.batch.noise);
            self.learner.update(&work.batch)?;
        }
    }

    /// Draws an agent's transitions, sets the addresses of its noise, and its part in the next update.
    fn prepare(&mut self, agent: usize) {
        let TrainingSettings { agent: settings, train, .. } = &self.setup.settings;
        let (member, work) = (&mut self.members[agent], &mut self.updates);
        let stream = |purpose: &str| StreamId::new(member.seed, purpose, member.counters.update);
        let b = work.batch.size;
        self.replay.draw(agent, &mut work.rows[agent * b..][..b], stream("batch"));
        for (addresses, purpose) in [(&mut work.next_noise, "next-actions"), (&mut work.noise, "new-actions")] {
            self.device.write_rows(addresses, agent * 6, &stream(purpose).address(0));
        }
        member.counters.pending_updates -= 1.0;
        member.counters.update += 1;
        member.unread_metrics = true;
        let progress = (member.counters.step as f64 / train.steps as f64).min(1.0);
        let steering = Steering {
            rate: settings.learning_rate * (1.0 - (1.0 - settings.final_rate) * progress),
            update: member.counters.update,
            multipliers: if self.setup.constrained() { vec![member.multiplier.value()] } else { Vec::new() },
        };
        self.learner.steer(agent, Some(&steering));
    }

    /// Reads what an agent's last update measured, where that has not been done yet.
    pub(super) fn read_metrics(&mut self, agent: usize) -> Result<(), Error> {
        let member = &mut self.members[agent];
        if std::mem::take(&mut member.unread_metrics) {
            member.counters.metrics = self.learner.metrics(agent)?;
        }
        Ok(())
    }
}
