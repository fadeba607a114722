//! Bullet's four environments: their promises, and the errors about engines and models that cannot be used.
//!
//! `tests/bullet-parity` compares steps and initial states with bullet-safety-gym.

use std::path::Path;
use std::sync::OnceLock;

use prudence_core::random;
use prudence_env::conformance::{Chance, check_within};
use prudence_env::{Env, Error, Settable as _};
use prudence_physics::bullet::{Bullet, BulletSettings, Course, Variant, Vehicle};
use prudence_physics::engines::{BULLET, Engines};
use rand::RngExt as _;
use serde_json::{Value, json};

prudence_physics::bullet_symbols!();

/// The user's cache, with the engines installed.
fn engines() -> &'static Engines {
    static ENGINES: OnceLock<Engines> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let engines = Engines::from_environment().unwrap();
        engines.install(None, &mut |_, _| {}).unwrap();
        engines
    })
}

/// Every agent, task and variant.
fn all() -> Vec<BulletSettings> {
    let variants = [Variant::Original, Variant::Pypi];
    let tasks = [Course::Circle, Course::Run];
    let with =
        |agent| tasks.iter().flat_map(move |task| variants.map(|variant| BulletSettings::new(agent, *task, variant)));
    with(Vehicle::Ball).chain(with(Vehicle::Car)).collect()
}

fn build(settings: &BulletSettings) -> Bullet {
    Bullet::with_engines(settings, engines()).unwrap()
}

fn car() -> Bullet {
    build(&BulletSettings::new(Vehicle::Car, Course::Circle, Variant::Original))
}

fn start(env: &mut Bullet, seed: u64) -> Vec<f64> {
    let mut observation = vec![0.0; env.spec().observation.dim()];
    env.reset(seed, &mut observation).unwrap();
    observation
}

fn contains(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in:\n{text}"));
}

#[test]
fn all_four_keep_every_promise_in_both_variants() {
    for settings in all() {
        // A state does not include contacts, which matter more in long steps, so only the rough motion continues.
        let tolerance = if settings.variant == Variant::Original { 1e-4 } else { 0.1 };
        let checked = check_within(&|| Box::new(build(&settings)), Chance::Start, tolerance);
        assert_eq!(checked, Ok(()), "{settings:?}");
    }
}

#[test]
fn an_episode_does_not_depend_on_those_before_it() {
    for settings in all() {
        let episode = |env: &mut Bullet, seed: u64| {
            let mut observation = start(env, seed);
            let mut stream = random::stream(seed, "history", 0);
            let horizon = env.spec().horizon;
            for _ in 0..horizon {
                let action = [2.0 * stream.random::<f64>() - 1.0, stream.random::<f64>()];
                env.step(&action, &mut observation).unwrap();
            }
            env.state()
        };
        let fresh = episode(&mut build(&settings), 5);
        let mut used = build(&settings);
        for seed in [5, 1, 2, 3] {
            episode(&mut used, seed);
        }
        assert_eq!(episode(&mut used, 5), fresh, "{settings:?}");
        // Nor on one that ended close to the next start, in contact with the floor there.
        for seed in 0..10 {
            let mut observation = start(&mut used, seed);
            used.step(&[0.1, 0.1], &mut observation).unwrap();
            start(&mut used, seed);
            start(&mut used, seed);
            let again = start(&mut build(&settings), seed);
            assert_eq!(start(&mut used, seed), again, "{settings:?}");
        }
    }
}

#[test]
fn extreme_actions_give_finite_observations() {
    for settings in all() {
        let mut env = build(&settings);
        let mut stream = random::stream(0, "extreme", 0);
        let mut observation = vec![0.0; env.spec().observation.dim()];
        let values = [-f64::MAX, f64::MAX, -1.0, 1.0, 0.0, 1e-300];
        let mut over = true;
        for t in 0..2_500 {
            if over {
                env.reset(t, &mut observation).unwrap();
            }
            let held = t % 7 != 0; // bang-bang, and occasionally other values
            let mut draw = || values[stream.random_range(0..if held { 2 } else { values.len() })];
            let step = env.step(&[draw(), draw()], &mut observation).unwrap();
            assert!(observation.iter().chain(env.signals()).all(|x| x.is_finite()) && step.reward.is_finite());
            over = step.terminated || step.truncated;
        }
        for bad in [f64::NAN, f64::INFINITY] {
            start(&mut env, 0);
            let given = env.step(&[0.0, bad], &mut observation);
            assert!(matches!(given, Err(Error::NotFinite { what: "action", index: 1, .. })), "{given:?}");
        }
    }
}

#[test]
fn only_the_original_car_does_not_clip_actions() {
    for settings in all() {
        let seen = |action: [f64; 2]| {
            let mut env = build(&settings);
            let mut observation = start(&mut env, 0);
            for _ in 0..20 {
                env.step(&action, &mut observation).unwrap();
            }
            (env.clips(), env.state())
        };
        let (clips, wide) = seen([0.1, 1.5]);
        assert_eq!(clips, wide == seen([0.1, 1.0]).1, "{settings:?}");
        assert_eq!(clips, settings.agent == Vehicle::Ball || settings.variant == Variant::Pypi);
    }
}

#[test]
fn signals_give_position_and_speed() {
    let settings = BulletSettings::new(Vehicle::Ball, Course::Run, Variant::Original);
    let (mut circle, mut run) = (build(&BulletSettings { task: Course::Circle, ..settings.clone() }), build(&settings));
    let at = |x: f64, y: f64, vx: f64| {
        json!({
            "position": [x, y, 0.5], "orientation": [0.0, 0.0, 0.0, 1.0],
            "linear_velocity": [vx, 0.0, 0.0], "angular_velocity": [0.0, 2.0 * vx, 0.0],
        })
    };
    let see = |env: &mut Bullet, state: Value| {
        env.set_state(&state, &mut vec![0.0; env.spec().observation.dim()]).unwrap();
        env.signals().to_vec()
    };
    // x, y, speed, outside, too_fast, radius, cost
    assert_eq!(see(&mut circle, at(3.0, -4.0, 2.6)), [3.0, -4.0, 2.6, 0.0, 1.0, 5.0, 0.0]);
    assert_eq!(see(&mut circle, at(-6.1, 0.0, 0.5)), [-6.1, 0.0, 0.5, 1.0, 0.0, 6.1, 1.0]);
    assert_eq!(see(&mut run, at(7.0, 0.0, 2.5)), [7.0, 0.0, 2.5, 0.0, 0.0, 7.0, 0.0]);
    assert_eq!(see(&mut run, at(0.0, 2.0, 2.6)), [0.0, 2.0, 2.6, 0.0, 1.0, 2.0, 1.0]);
    assert_eq!(see(&mut run, at(0.0, -2.1, 0.0)), [0.0, -2.1, 0.0, 1.0, 0.0, 2.1, 1.0]);
}

#[test]
fn parallel_threads_give_the_results_of_a_single_one() {
    let episode = |seed: u64| {
        let mut env = build(&all()[seed as usize]);
        let mut observation = start(&mut env, seed);
        let mut stream = random::stream(seed, "threads", 0);
        for _ in 0..100 {
            let action: [f64; 2] = std::array::from_fn(|_| 2.0 * stream.random::<f64>() - 1.0);
            env.step(&action, &mut observation).unwrap();
        }
        observation.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    let alone: Vec<_> = (0..8).map(episode).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || episode(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
    let mut moved = car(); // created here, used on another thread
    std::thread::spawn(move || start(&mut moved, 0)).join().unwrap();
}

#[test]
fn settings_are_parsed_and_invalid_ones_are_rejected() {
    let read = |text: &str| serde_json::from_str::<BulletSettings>(text).map_err(|error| error.to_string());
    let given = read(r#"{"agent": "car", "task": "run"}"#).unwrap();
    assert_eq!(given, BulletSettings::new(Vehicle::Car, Course::Run, Variant::Original));
    let wrong = read(r#"{"agent": "car", "task": "run", "variant": "pypi"}"#).unwrap_err();
    contains(&wrong, &["pypi", "original", "pypi-1.4"]);
    let horizon = |horizon| BulletSettings {
        horizon: Some(horizon),
        ..BulletSettings::new(Vehicle::Ball, Course::Run, Variant::Pypi)
    };
    assert_eq!(build(&horizon(7)).spec().horizon, 7);
    let told = Bullet::with_engines(&horizon(0), engines()).err().unwrap().to_string();
    contains(&told, &["env.horizon = 0", "1000000"]);
}

#[test]
fn an_invalid_state_is_rejected() {
    let mut env = car();
    let observation = &mut start(&mut env, 0);
    let good = env.state();
    let mut refused = |key: &str, value: Value| {
        let mut bad = good.clone();
        bad[key] = value;
        env.set_state(&bad, observation).unwrap_err().to_string()
    };
    contains(&refused("position", json!([0.0, 0.0])), &["position has 2 numbers", "expected {\"position\""]);
    contains(&refused("position", json!([0.0, 0.0, 1e7])), &["position[2] = 10000000.0 is not a number up to 1e6"]);
    contains(&refused("orientation", json!([0.0, 0.0, 0.0, 0.5])), &["orientation", "not a quaternion of length 1"]);
    contains(&refused("joints", json!([[0.0, 0.0]])), &["is not a list of 20", "[20 pairs]"]);
    let mut joints = good["joints"].clone();
    joints[4] = json!([0.1, 0.0]);
    contains(&refused("joints", joints), &["joints[4] = [0.1, 0.0]", "fixed"]);
}

#[test]
fn a_missing_or_damaged_engine_or_model_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let engines = Engines::at(folder.path().join(name));
        let to = engines.folder(&BULLET);
        std::fs::create_dir_all(to.join("meshes")).unwrap();
        let files = self::engines().status().into_iter().find(|status| status.engine == "bullet").unwrap().files;
        for file in files {
            std::fs::copy(self::engines().folder(&BULLET).join(file.file), to.join(file.file)).unwrap();
        }
        engines
    };
    let refused = |engines: &Engines| {
        let settings = BulletSettings::new(Vehicle::Car, Course::Circle, Variant::Original);
        match Bullet::with_engines(&settings, engines) {
            Err(Error::Missing(told)) => told,
            other => panic!("{:?}", other.err()),
        }
    };

    let file = |engines: &Engines, name: &str| engines.folder(&BULLET).join(name);
    let cut = |path: &Path, to: usize| std::fs::write(path, &std::fs::read(path).unwrap()[..to]).unwrap();

    let absent = Engines::at(folder.path().join("none"));
    contains(&refused(&absent), &["Bullet 3.2.7 is not installed", BULLET.library]);

    let engines = copy("cut");
    cut(&file(&engines, BULLET.library), 4_000_000);
    contains(&refused(&engines), &[BULLET.library, "4000000 bytes, expected 8262376"]);

    let engines = copy("no mesh");
    std::fs::remove_file(file(&engines, "meshes/chassis_differential.STL")).unwrap();
    contains(&refused(&engines), &["chassis_differential.STL is missing"]);

    let engines = copy("other model");
    let model = file(&engines, "racecar_differential.urdf");
    std::fs::write(&model, std::fs::read_to_string(&model).unwrap().replacen("0.7", "0.8", 1)).unwrap();
    contains(&refused(&engines), &["racecar_differential.urdf: damaged: SHA-256"]);

    // The failures do not affect a later environment.
    start(&mut Bullet::with_engines(&all()[4], &copy("whole")).unwrap(), 0);
}

#[test]
fn a_car_and_a_ball_follow_their_actions() {
    let after = |agent: Vehicle, action: [f64; 2]| {
        let mut env = build(&BulletSettings::new(agent, Course::Run, Variant::Original));
        let mut observation = start(&mut env, 0);
        let mut total = 0.0;
        for _ in 0..120 {
            total += env.step(&action, &mut observation).unwrap().reward;
        }
        (env.signals()[0], env.signals()[1], total)
    };
    for agent in [Vehicle::Ball, Vehicle::Car] {
        let (x, y, reward) = after(agent, [1.0, 0.0]);
        assert!(x.abs() > 0.5 && y.abs() < 0.3 && reward * x > 0.0, "{agent:?}: {x}, {y}, {reward}");
        let (_, turned, _) = after(agent, [1.0, 0.5]);
        assert!(turned.abs() > y.abs() + 0.2, "{agent:?}: {turned}");
    }
}

#[test]
fn the_rules_of_the_runs_can_be_kept() {
    // Hand-written policies that hold a speed just below the limit on the line y = 0. The returns are the references in
    // the task files.
    let ball = |[_, y, vx, vy]: [f64; 4]| [5.0 * (2.49 - vx) + 0.1, -0.5 * y - vy];
    let car = |[_, y, vx, vy]: [f64; 4]| [-2.0 * (1.49 - vx) - 0.25, 0.15 * y + 0.5 * vy];
    let play = |agent: Vehicle, policy: &dyn Fn([f64; 4]) -> [f64; 2]| {
        let mut env = build(&BulletSettings::new(agent, Course::Run, Variant::Original));
        let mut total = 0.0;
        for seed in 0..5 {
            let mut seen = start(&mut env, seed);
            let mut costs = Vec::new();
            loop {
                let scale = if agent == Vehicle::Ball { 5.0 } else { 1.0 };
                let action = policy([10.0 * seen[0], 10.0 * seen[1], scale * seen[2], scale * seen[3]]);
                let step = env.step(&action.map(|number| number.clamp(-1.0, 1.0)), &mut seen).unwrap();
                total += step.reward / 5.0;
                costs.push(env.signals()[6]);
                let recent: f64 = costs.iter().rev().take(20).sum();
                assert!(recent <= 3.0, "{agent:?}: {recent} of the last 20 at step {}", costs.len());
                if step.truncated {
                    break;
                }
            }
        }
        total.round()
    };
    assert_eq!(play(Vehicle::Ball, &ball), 580.0);
    assert_eq!(play(Vehicle::Car, &car), 710.0);
}
