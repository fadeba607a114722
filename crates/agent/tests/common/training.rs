//! Trainings, and comparisons of what they give.

use std::fmt::Debug;

use prudence_agent::Error;
use prudence_agent::population::{AgentState, Ended, Population, Setup};
use prudence_agent::records::Record;
use prudence_data::Episode;

use super::Device;

/// What an agent's training gave so far.
#[derive(Default)]
pub struct Trace {
    pub episodes: Vec<Episode>,
    pub records: Vec<Record>,
    pub error: Option<Error>,
}

/// A population in training, with a record at every fourth episode of each agent.
pub struct Training {
    pub population: Population<Device>,
    pub traces: Vec<Trace>,
}

impl Training {
    pub fn new(setup: Setup<Device>, seeds: &[u64]) -> Self {
        let population = Population::new(&Device::new(), setup, seeds).unwrap();
        Self { population, traces: seeds.iter().map(|_| Trace::default()).collect() }
    }

    /// A training that has ended.
    pub fn complete(setup: Setup<Device>, seeds: &[u64]) -> Self {
        let mut training = Self::new(setup, seeds);
        training.run();
        training
    }

    /// One lockstep; the agents whose episodes ended.
    pub fn lockstep(&mut self) -> Vec<usize> {
        let ended = self.population.lockstep().unwrap();
        let agents = ended.iter().map(|ended| ended.agent).collect();
        for Ended { agent, episode } in ended {
            let trace = &mut self.traces[agent];
            match episode {
                Err(error) => trace.error = Some(error),
                Ok(episode) => {
                    trace.episodes.push(episode);
                    if trace.episodes.len().is_multiple_of(4) {
                        let mut records = self.population.record(&[agent]).unwrap();
                        trace.records.push(records.remove(0).unwrap());
                    }
                }
            }
        }
        agents
    }

    pub fn over(&self, agent: usize) -> bool {
        self.population.done(agent) && self.between_episodes(agent) || self.traces[agent].error.is_some()
    }

    pub fn between_episodes(&self, agent: usize) -> bool {
        self.traces[agent].episodes.len() as u64 == self.population.counters(agent).episode
            && self.traces[agent].episodes.iter().map(|e| e.len() as u64).sum::<u64>()
                == self.population.counters(agent).step
    }

    pub fn run(&mut self) {
        while !(0..self.traces.len()).all(|agent| self.over(agent)) {
            self.lockstep();
        }
    }

    pub fn state(&self, agent: usize) -> AgentState {
        self.population.state(agent).unwrap()
    }
}

/// The same value to the bit: floats are printed so that different bits give different texts.
#[track_caller]
pub fn assert_same(one: &impl Debug, other: &impl Debug, what: &str) {
    let (one, other) = (format!("{one:?}"), format!("{other:?}"));
    let differs = one.bytes().zip(other.bytes()).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()));
    let part =
        |text: &str| text.get(differs.saturating_sub(200)..(differs + 80).min(text.len())).unwrap_or("").to_owned();
    assert!(one == other, "{what}:\n{}\nis not\n{}", part(&one), part(&other));
}

/// The same training to the bit: episodes, records, and everything that the agent is at its end.
#[track_caller]
pub fn assert_same_agent(one: &Training, agent: usize, other: &Training, other_agent: usize, what: &str) {
    let (a, b) = (&one.traces[agent], &other.traces[other_agent]);
    assert_same(&a.episodes, &b.episodes, &format!("{what}: episodes"));
    assert_same(&a.records, &b.records, &format!("{what}: records"));
    assert_same(&a.error, &b.error, &format!("{what}: errors"));
    let (a, b) = (one.state(agent), other.state(other_agent));
    assert_same(&a.counters, &b.counters, &format!("{what}: counters"));
    assert_same(&a.multiplier, &b.multiplier, &format!("{what}: multiplier"));
    for (a, b) in a.tensors.iter().zip(&b.tensors) {
        assert_same(a, b, what);
    }
    assert_same(&a, &b, what);
    let policy = |training: &Training, agent: usize| training.population.policy(agent).unwrap();
    assert_same(&policy(one, agent), &policy(other, other_agent), &format!("{what}: policy"));
}

/// Trains agents together and each alone, and compares them to the bit.
pub fn assert_as_alone(setup: Setup<Device>, seeds: &[u64], what: &str) -> Training {
    let together = Training::complete(setup.clone(), seeds);
    for (agent, seed) in seeds.iter().enumerate() {
        let alone = Training::complete(setup.clone(), &[*seed]);
        assert_same_agent(&together, agent, &alone, 0, &format!("{what}, agent {agent}"));
    }
    together
}

/// An agent's state at the end of one of its episodes, with its episodes and the number of its records so far.
pub struct Checkpoint {
    pub state: AgentState,
    pub episodes: Vec<Episode>,
    pub records: usize,
}

/// Trains until every agent has a checkpoint, each at the end of its own episode `at`; then the training is lost.
pub fn killed(setup: Setup<Device>, seeds: &[u64], at: &[u64]) -> Vec<Checkpoint> {
    let mut training = Training::new(setup, seeds);
    let mut checkpoints: Vec<Option<Checkpoint>> = seeds.iter().map(|_| None).collect();
    while checkpoints.iter().any(Option::is_none) {
        for agent in training.lockstep() {
            if training.population.counters(agent).episode == at[agent] {
                let trace = &training.traces[agent];
                let (episodes, records) = (trace.episodes.clone(), trace.records.len());
                checkpoints[agent] = Some(Checkpoint { state: training.state(agent), episodes, records });
            }
        }
    }
    checkpoints.into_iter().flatten().collect()
}

/// Episodes as they are read from a store on resume.
pub fn without_signals(episodes: &[Episode]) -> Vec<Episode> {
    episodes.iter().map(|episode| Episode { signals: Vec::new(), ..episode.clone() }).collect()
}

/// Compares a training that was killed after these episodes of its agents, and resumed, with an uninterrupted one.
pub fn assert_resumes(setup: Setup<Device>, seeds: &[u64], at: &[u64], what: &str) {
    let whole = Training::complete(setup.clone(), seeds);
    let checkpoints = killed(setup.clone(), seeds, at);
    let steps: Vec<u64> = checkpoints.iter().map(|c| c.state.counters.step).collect();
    assert!(steps.windows(2).all(|pair| pair[0] != pair[1]), "agents are at different steps: {steps:?}");
    let mut resumed = Training::new(setup, seeds);
    for (agent, Checkpoint { state, episodes, records }) in checkpoints.into_iter().enumerate() {
        resumed.population.restore(agent, state, &without_signals(&episodes)).unwrap();
        resumed.traces[agent].records = whole.traces[agent].records[..records].to_vec();
        resumed.traces[agent].episodes = episodes;
    }
    resumed.run();
    for agent in 0..seeds.len() {
        assert_same_agent(&resumed, agent, &whole, agent, &format!("{what}, agent {agent}"));
    }
}
