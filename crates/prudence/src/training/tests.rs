//! Training a population: each agent writes the same files as when it is trained alone, even if the process is killed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use prudence_core::random::{Stream, stream};
use prudence_core::{BoxSpace, Spec};
use prudence_env::{Env, Error as EnvError, Step};
use prudence_safety::FitSettings;
use prudence_safety::fit::initial_model;
use rand::RngExt as _;

use super::*;
use prudence_data::Label;

use crate::RunFolder;
use crate::session::{Progress, Silent};

/// A walk whose episodes terminate early at random.
struct Walk {
    spec: Spec,
    stream: Stream,
    place: f64,
    steps: usize,
}

impl Walk {
    fn new() -> Self {
        let spec = Spec {
            observation: BoxSpace::uniform(1, -10.0, 10.0),
            action: BoxSpace::uniform(1, -1.0, 1.0),
            signals: vec!["place".into()],
            horizon: 30,
        };
        Self { spec, stream: stream(0, "walk", 0), place: 0.0, steps: 0 }
    }
}

impl Env for Walk {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), EnvError> {
        *self = Self { stream: stream(seed, "walk", 0), ..Self::new() };
        observation[0] = 0.0;
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, EnvError> {
        self.place = (self.place + action[0]).clamp(-10.0, 10.0);
        self.steps += 1;
        observation[0] = self.place;
        let terminated = self.stream.random_range(0.0..1.0) < 0.08;
        Ok(Step { reward: self.place, terminated, truncated: !terminated && self.steps == self.spec.horizon })
    }

    fn signals(&self) -> &[f64] {
        std::slice::from_ref(&self.place)
    }
}

const SEEDS: [u64; 3] = [11, 12, 13];

/// With refits every `refit` steps; 0: without.
fn task(refit: u64) -> Task {
    let every = format!("refit.every={refit}");
    let settings = [
        every.as_str(),
        "refit.steps=3",
        "safety.batch=6",
        "agent.hidden=[8,8]",
        "agent.batch=8",
        "target=0.5",
        "train.steps=900",
        "train.random_steps=100",
        "train.updates_per_step=0.5",
        "train.record_every=150",
        "train.checkpoint_every=200",
        "train.test_episodes=2",
    ];
    Task::with_env("walk", Walk::new, "place < 9").unwrap().with(&settings).unwrap()
}

/// Progress reports that only have bars.
struct Bars(fn() -> Box<dyn Bar>);

impl Progress for Bars {
    fn begin(&self, _: &str, _: u64) -> Box<dyn Bar> {
        self.0()
    }
}

/// Trains these seeds in lockstep, each in its folder of a run, from the start or from its checkpoint.
fn train_in(run: &Path, seeds: &[u64], refit: u64, bar: fn() -> Box<dyn Bar>) {
    let session = Session::new(1).unwrap().with_progress(Arc::new(Bars(bar)));
    train_on(&Cpu::<f32>::new(), run, seeds, refit, &session).into_iter().for_each(|outcome| outcome.unwrap());
}

fn train_on<D: Device>(device: &D, run: &Path, seeds: &[u64], refit: u64, session: &Session) -> Vec<Result<(), Error>> {
    let task = task(refit);
    let fit = FitSettings { hidden: 4, encoder: vec![], decoder: vec![8], ..FitSettings::default() };
    let model = Arc::new(initial_model::<[Episode]>(&[], &[], [1, 1], 30, &fit, 5).unwrap());
    let sources = [Source { data: None, model: Some(model) }];
    let data = Data::new(device, &task, &sources, if refit > 0 { seeds.len() } else { 1 }).unwrap();
    let folder = RunFolder::at(run);
    let job = |seed: &u64| Job {
        replica: 0,
        folder: folder.agent(0, Algorithm::SafesacH, *seed),
        episodes: folder.episodes(0, Algorithm::SafesacH, *seed),
        label_seed: 3,
    };
    let jobs: Vec<Job> = seeds.iter().map(job).collect();
    let plan = Plan { task: &task, data: &data, sources: &sources, steps: task.settings().train.steps };
    plan.train(&jobs, session).unwrap().outcomes
}

/// The bytes of an agent's records, checkpoint and policy, its episodes, and their labels.
fn files(run: &Path, seed: u64) -> (Vec<Vec<u8>>, Vec<Episode>, Vec<Label>) {
    let agent = RunFolder::at(run).agent(0, Algorithm::SafesacH, seed);
    let paths = [agent.metrics(), agent.checkpoint(), agent.policy()];
    let store = Store::open(&RunFolder::at(run).episodes(0, Algorithm::SafesacH, seed)).unwrap();
    let bytes = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let log = LabelLog::open(&label_path(&RunFolder::at(run).episodes(0, Algorithm::SafesacH, seed))).unwrap();
    let labels = log.labels().iter().map(|label| Label { when: String::new(), ..label.clone() }).collect();
    (bytes, store.read(0..store.len()).unwrap(), labels)
}

fn silent() -> Box<dyn Bar> {
    Box::new(Silent)
}

#[test]
fn a_population_writes_what_its_agents_write_alone() {
    for refit in [0, 110] {
        let dir = tempfile::tempdir().unwrap();
        let (together, alone) = (dir.path().join("together"), dir.path().join("alone"));
        train_in(&together, &SEEDS, refit, silent);
        for seed in SEEDS {
            train_in(&alone, &[seed], refit, silent);
            assert!(files(&together, seed) == files(&alone, seed), "seed {seed} differs");
        }
        assert!(files(&alone, 11) != files(&alone, 12), "seeds should give different agents");
    }
}

/// Kills the process at the end of an episode. The agents' checkpoints are then at different steps, or none exist yet.
#[test]
fn a_killed_population_resumes_to_the_same_files() {
    struct Fuse;
    impl Bar for Fuse {
        fn set(&self, step: u64) {
            // It is set to the steps so far, 0 or those of a checkpoint, when the training begins.
            let ended = step > 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 0;
            assert!(!ended, "killed");
        }
    }
    static LEFT: AtomicU64 = AtomicU64::new(0);
    for refit in [0, 110] {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        train_in(&whole, &SEEDS, refit, silent);
        for episodes in [5, 40, 95, 160] {
            let cut = dir.path().join(format!("cut-{episodes}"));
            LEFT.store(episodes, Ordering::Relaxed);
            let killed = catch_unwind(AssertUnwindSafe(|| train_in(&cut, &SEEDS, refit, || Box::new(Fuse))));
            assert!(killed.is_err(), "the training ended before its {episodes}th episode");
            train_in(&cut, &SEEDS, refit, silent);
            for seed in SEEDS {
                assert!(
                    files(&whole, seed) == files(&cut, seed),
                    "seed {seed} differs, killed after {episodes} episodes"
                );
            }
        }
    }
}

/// Requests a stop at the end of an episode, which a refit follows.
#[test]
fn a_training_that_is_stopped_before_a_refit_resumes_to_the_same_files() {
    struct Stop;
    impl Bar for Stop {
        fn set(&self, step: u64) {
            if step >= 110 && LEFT.fetch_sub(1, Ordering::Relaxed) == 0 {
                SESSION.get().unwrap().stop();
            }
        }
    }
    static LEFT: AtomicU64 = AtomicU64::new(0);
    static SESSION: std::sync::OnceLock<Session> = std::sync::OnceLock::new();
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    train_in(&whole, &[11], 110, silent);
    let session = Session::new(1).unwrap().with_progress(Arc::new(Bars(|| Box::new(Stop))));
    let session = SESSION.get_or_init(|| session);
    let outcomes = train_on(&Cpu::<f32>::new(), &cut, &[11], 110, session);
    assert!(matches!(outcomes[..], [Err(Error::Stopped)]));
    let records = std::fs::read_to_string(RunFolder::at(&cut).agent(0, Algorithm::SafesacH, 11).metrics()).unwrap();
    assert!(!records.contains("refits"), "it stopped before the first refit");
    // A stop during the refit that was left to the resumed training leaves it to the next one.
    let outcomes = train_on(&Cpu::<f32>::new(), &cut, &[11], 110, session);
    assert!(session.stopping() && matches!(outcomes[..], [Err(Error::Stopped)]));
    train_in(&cut, &[11], 110, silent);
    assert!(files(&whole, 11) == files(&cut, 11));
    let records = std::fs::read_to_string(RunFolder::at(&cut).agent(0, Algorithm::SafesacH, 11).metrics()).unwrap();
    assert!(records.contains("refits"), "and made them then");
}
