//! MuJoCo's three environments: Gymnasium's semantics, and the errors about engines and models that cannot be used.
//!
//! `tests/mujoco-parity` compares steps with Gymnasium.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use prudence_core::random;
use prudence_env::conformance::{Chance, check};
use prudence_env::{Drawable as _, Env, Error, Settable as _, Snapshots as _};
use prudence_physics::engines::{Engines, MUJOCO};
use prudence_physics::mujoco::{Model, Mujoco, MujocoSettings};
use rand::RngExt as _;
use serde_json::json;

const MODELS: [Model; 3] = [Model::Hopper, Model::Walker2d, Model::HalfCheetah];

/// The user's cache, with the engines installed.
fn engines() -> &'static Engines {
    static ENGINES: OnceLock<Engines> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let engines = Engines::from_environment().unwrap();
        engines.install(None, &mut |_, _| {}).unwrap();
        engines
    })
}

fn build(settings: &MujocoSettings) -> Result<Mujoco, Error> {
    Mujoco::with_engines(settings, engines())
}

fn plain(model: Model) -> Mujoco {
    build(&MujocoSettings::new(model)).unwrap()
}

/// Settings without termination.
fn enduring(model: Model) -> MujocoSettings {
    let terminate_when_unhealthy = (model != Model::HalfCheetah).then_some(false);
    MujocoSettings { terminate_when_unhealthy, ..MujocoSettings::new(model) }
}

fn refused(settings: &MujocoSettings, engines: &Engines) -> String {
    Mujoco::with_engines(settings, engines).err().map(|error| error.to_string()).unwrap_or_default()
}

fn contains(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in:\n{text}"));
}

#[test]
fn all_three_keep_every_promise() {
    for model in MODELS {
        check(&|| Box::new(plain(model)), Chance::Start).unwrap();
        check(&|| Box::new(build(&enduring(model)).unwrap()), Chance::Start).unwrap();
        let still = MujocoSettings { reset_noise_scale: Some(0.0), ..MujocoSettings::new(model) };
        check(&|| Box::new(build(&still).unwrap()), Chance::Nothing).unwrap();
    }
}

#[test]
fn extreme_actions_give_finite_observations() {
    for model in MODELS {
        let mut env = build(&enduring(model)).unwrap();
        let mut stream = random::stream(0, "extreme", 0);
        let mut observation = vec![0.0; env.spec().observation.dim()];
        let values = [-f64::MAX, f64::MAX, -1.0, 1.0, 0.0, 1e-300];
        let mut over = true;
        for t in 0..10_000 {
            if over {
                env.reset(t, &mut observation).unwrap();
            }
            let held = t % 7 != 0; // bang-bang, and occasionally other values
            let mut draw = || values[stream.random_range(0..if held { 2 } else { values.len() })];
            let action: Vec<f64> = (0..env.spec().action.dim()).map(|_| draw()).collect();
            let step = env.step(&action, &mut observation).unwrap();
            assert!(observation.iter().chain(env.signals()).all(|x| x.is_finite()) && step.reward.is_finite());
            over = step.terminated || step.truncated;
        }
        for bad in [f64::NAN, f64::INFINITY] {
            let action = vec![bad; env.spec().action.dim()];
            assert!(matches!(env.step(&action, &mut observation), Err(Error::NotFinite { what: "action", .. })));
        }
    }
}

#[test]
fn an_unstable_start_is_an_error_with_the_message_of_the_engine() {
    let mut env = build(&enduring(Model::Hopper)).unwrap();
    let mut observation = vec![0.0; 11];
    let state = json!({ "qpos": [0.0, 1.25, 0.0, 0.0, 0.0, 0.0], "qvel": [0.0, 0.0, 1e9, -1e9, 1e9, 0.0] });
    env.set_state(&state, &mut observation).unwrap();
    let error = (0..100).find_map(|_| env.step(&[0.0; 3], &mut observation).err()).expect("the simulation is unstable");
    contains(&error.to_string(), &["step 1: MuJoCo: ", "unstable"]);
    assert!(matches!(env.step(&[0.0; 3], &mut observation), Err(Error::Over)));
    env.reset(0, &mut observation).unwrap();
    env.step(&[0.0; 3], &mut observation).unwrap();
}

#[test]
fn a_solver_without_memory_is_an_error_with_the_message_of_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.xml");
    let good = std::fs::read_to_string(engines().folder(&MUJOCO).join("hopper.xml")).unwrap();
    std::fs::write(&file, good.replace("</mujoco>", "<size memory=\"4000\"/></mujoco>")).unwrap();
    let settings = MujocoSettings { xml_file: Some(text_of(&file)), ..MujocoSettings::new(Model::Hopper) };
    contains(&refused(&settings, engines()), &["step 0: MuJoCo: Too many contacts", "arena"]);
}

#[test]
fn parallel_threads_give_the_results_of_a_single_one() {
    let episode = |seed: u64| {
        let mut env = build(&enduring(Model::Walker2d)).unwrap();
        let mut observation = vec![0.0; 17];
        env.reset(seed, &mut observation).unwrap();
        let mut stream = random::stream(seed, "threads", 0);
        for _ in 0..300 {
            let action: [f64; 6] = std::array::from_fn(|_| 2.0 * stream.random::<f64>() - 1.0);
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
}

#[test]
fn invalid_snapshots_never_crash_restore_or_the_steps_after_it() {
    let mut stream = random::stream(0, "bytes", 0);
    for model in MODELS {
        let mut env = build(&enduring(model)).unwrap();
        let mut observation = vec![0.0; env.spec().observation.dim()];
        let action = vec![1.0; env.spec().action.dim()];
        env.reset(0, &mut observation).unwrap();
        env.step(&action, &mut observation).unwrap();
        let good = env.snapshot();
        let mut taken = 0;
        for _ in 0..2000 {
            let mut bytes = good.clone();
            for _ in 0..stream.random_range(1..4) {
                let at = stream.random_range(0..bytes.len());
                bytes[at] = stream.random();
            }
            if env.restore(&bytes, &mut observation).is_ok() {
                taken += 1;
                let _ = env.step(&action, &mut observation).and_then(|_| env.step(&action, &mut observation));
            }
        }
        assert!(taken > 500, "{model:?}: only {taken} snapshots were accepted");
        env.restore(&good, &mut observation).unwrap();
        env.step(&action, &mut observation).unwrap();
    }
    let snapshot = |model: Model| {
        let mut env = plain(model);
        env.reset(0, &mut vec![0.0; env.spec().observation.dim()]).unwrap();
        env.snapshot()
    };
    let foreign = plain(Model::Walker2d).restore(&snapshot(Model::HalfCheetah), &mut [0.0; 17]);
    assert!(matches!(foreign, Err(Error::State(_))), "a different model with the same sizes: {foreign:?}");
}

/// The Kolmogorov-Smirnov distance between samples and a distribution.
fn distance(samples: &mut [f64], cdf: impl Fn(f64) -> f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    let gap = |(i, x): (usize, &f64)| (cdf(*x) - i as f64 / n).abs().max((cdf(*x) - (i + 1) as f64 / n).abs());
    samples.iter().enumerate().map(gap).fold(0.0, f64::max)
}

/// The normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn normal_cdf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * poly;
    if x >= 0.0 { 1.0 - tail } else { tail }
}

#[test]
fn initial_states_have_the_distribution_of_gymnasium() {
    for (model, scale, normal) in
        [(Model::Hopper, 5e-3, false), (Model::Walker2d, 5e-3, false), (Model::HalfCheetah, 0.1, true)]
    {
        let settings =
            MujocoSettings { exclude_current_positions_from_observation: Some(false), ..MujocoSettings::new(model) };
        let mut env = build(&settings).unwrap();
        let size = env.spec().observation.dim();
        let mut observation = vec![0.0; size];
        let mut columns = vec![Vec::new(); size];
        for seed in 0..10_000 {
            env.reset(seed, &mut observation).unwrap();
            columns.iter_mut().zip(&observation).for_each(|(column, x)| column.push(*x));
        }
        let middle = |i: usize| if i == 1 && model != Model::HalfCheetah { 1.25 } else { 0.0 };
        for (i, column) in columns.iter_mut().enumerate() {
            let noise = |x: f64| (x - middle(i)) / scale;
            let is_normal = normal && i >= size / 2;
            let found = if is_normal {
                distance(column, |x| normal_cdf(noise(x)))
            } else {
                distance(column, |x| ((noise(x) + 1.0) / 2.0).clamp(0.0, 1.0))
            };
            // 1.95 / sqrt(n) is exceeded with probability 0.001; the seeds are fixed, so the result never changes.
            assert!(found < 1.95 / 100.0, "{model:?}, number {i}: distance {found}");
            let mean = column.iter().copied().map(noise).sum::<f64>() / 1e4;
            let variance = column.iter().copied().map(|x| noise(x).powi(2)).sum::<f64>() / 1e4;
            let expected = if is_normal { 1.0 } else { 1.0 / 3.0 };
            assert!(mean.abs() < 0.04 && (variance - expected).abs() < 0.05, "{model:?} {i}: {mean} {variance}");
        }
    }
}

#[test]
fn settings_have_the_effects_of_gymnasiums() {
    let mut observation = vec![0.0; 11];
    let mut first = |settings: &MujocoSettings| {
        let mut env = build(settings).unwrap();
        env.reset(3, &mut observation).unwrap();
        let step = env.step(&[1.0, -1.0, 0.5], &mut observation).unwrap();
        (step, env.signals().to_vec())
    };
    let hopper = MujocoSettings::new(Model::Hopper);
    let (plain, signals) = first(&hopper);
    assert!((plain.reward - (signals[0] + 1.0 - 1e-3 * 2.25)).abs() < 1e-15);
    let weighed = MujocoSettings {
        forward_reward_weight: Some(2.0),
        ctrl_cost_weight: Some(0.5),
        healthy_reward: Some(7.0),
        ..hopper.clone()
    };
    assert!((first(&weighed).0.reward - (2.0 * signals[0] + 7.0 - 0.5 * 2.25)).abs() < 1e-14);
    let fallen = MujocoSettings { healthy_z_range: Some([2.0, 3.0]), ..hopper.clone() };
    let (step, signals) = first(&fallen);
    assert!(step.terminated && !step.truncated && signals[3] == 0.0);
    assert!((step.reward - (signals[0] - 1e-3 * 2.25)).abs() < 1e-15, "no healthy reward");
    assert!(!first(&MujocoSettings { terminate_when_unhealthy: Some(false), ..fallen }).0.terminated);
    assert!(first(&MujocoSettings { healthy_angle_range: Some([0.5, 1.0]), ..hopper.clone() }).0.terminated);
    assert!(first(&MujocoSettings { healthy_state_range: Some([-1e-9, 1e-9]), ..hopper.clone() }).0.terminated);
    assert!(first(&MujocoSettings { horizon: Some(1), ..hopper.clone() }).0.truncated);
    assert_ne!(first(&MujocoSettings { frame_skip: Some(2), ..hopper.clone() }).0, plain);
    let whole = MujocoSettings { exclude_current_positions_from_observation: Some(false), ..hopper };
    assert_eq!(build(&whole).unwrap().spec().observation.dim(), 12);
}

#[test]
fn settings_out_of_range_are_rejected_by_name() {
    let refused = |settings: MujocoSettings| refused(&settings, engines());
    let hopper = || MujocoSettings::new(Model::Hopper);
    contains(&refused(MujocoSettings { frame_skip: Some(0), ..hopper() }), &["env.frame_skip = 0"]);
    contains(&refused(MujocoSettings { horizon: Some(0), ..hopper() }), &["env.horizon = 0"]);
    contains(&refused(MujocoSettings { reset_noise_scale: Some(-1.0), ..hopper() }), &["env.reset_noise_scale = -1"]);
    contains(
        &refused(MujocoSettings { ctrl_cost_weight: Some(f64::NAN), ..hopper() }),
        &["env.ctrl_cost_weight = NaN"],
    );
    contains(&refused(MujocoSettings { healthy_z_range: Some([2.0, 1.0]), ..hopper() }), &["env.healthy_z_range"]);
    let walker = MujocoSettings { healthy_state_range: Some([0.0, 1.0]), ..MujocoSettings::new(Model::Walker2d) };
    contains(&refused(walker), &["env.healthy_state_range", "no such setting"]);
    let cheetah = MujocoSettings { terminate_when_unhealthy: Some(false), ..MujocoSettings::new(Model::HalfCheetah) };
    contains(&refused(cheetah), &["env.terminate_when_unhealthy", "no such setting"]);
    let read = |text: &str| serde_json::from_str::<MujocoSettings>(text).map_err(|error| error.to_string());
    let given = read(r#"{"model": "half-cheetah", "reset_noise_scale": 0.2}"#).unwrap();
    let expected = MujocoSettings { reset_noise_scale: Some(0.2), ..MujocoSettings::new(Model::HalfCheetah) };
    assert_eq!(given, expected);
    contains(&read(r#"{"model": "hoper"}"#).unwrap_err(), &["hoper", "half-cheetah"]);
    contains(&read(r#"{"model": "hopper", "gravity": 1}"#).unwrap_err(), &["gravity"]);
}

#[test]
fn an_invalid_model_is_rejected_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, text: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        refused(&MujocoSettings { xml_file: Some(text_of(&file)), ..MujocoSettings::new(Model::Hopper) }, engines())
    };
    let good = std::fs::read(engines().folder(&MUJOCO).join("hopper.xml")).unwrap();
    assert_eq!(with("good.xml", &good), "");
    contains(&with("cut.xml", &good[..good.len() / 2]), &["cut.xml", "XML"]);
    contains(&with("empty.xml", b""), &["empty.xml"]);
    contains(&with("garbage.xml", &[0xff, 0, 1, 2]), &["garbage.xml"]);
    contains(
        &with("typo.xml", String::from_utf8_lossy(&good).replace("joint=\"thigh_joint", "joint=\"tigh").as_bytes()),
        &["typo.xml"],
    );
    contains(&with("still.xml", b"<mujoco/>"), &["still.xml", "[0, 0, 0, 0]", "[6, 6, 3, 0]"]);
    let other = std::fs::read(engines().folder(&MUJOCO).join("walker2d_v5.xml")).unwrap();
    contains(&with("other.xml", &other), &["other.xml", "[9, 9, 6, 0]", "[6, 6, 3, 0]"]);
    let missing = MujocoSettings { xml_file: Some("no-such.xml".into()), ..MujocoSettings::new(Model::Hopper) };
    contains(&refused(&missing, engines()), &["no-such.xml", "No such file"]);
    for place in ["/dev/zero", "/"] {
        let none = MujocoSettings { xml_file: Some(place.into()), ..MujocoSettings::new(Model::Hopper) };
        contains(&refused(&none, engines()), &[place, "expected a file of at most"]);
    }
}

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A cache with this file as the engine's library.
fn with_library(root: &Path, bytes: &[u8]) -> Engines {
    let engines = Engines::at(root);
    std::fs::create_dir_all(engines.folder(&MUJOCO)).unwrap();
    std::fs::write(engines.folder(&MUJOCO).join(MUJOCO.library), bytes).unwrap();
    engines
}

#[test]
fn an_engine_that_cannot_be_used_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let hopper = MujocoSettings::new(Model::Hopper);
    let path = |name: &str| folder.path().join(name);

    contains(&refused(&hopper, &Engines::at(path("none"))), &["MuJoCo 3.3.7 is not installed", MUJOCO.library]);
    contains(&refused(&hopper, &with_library(&path("text"), b"hello")), &["not a shared library"]);
    let good = std::fs::read(engines().folder(&MUJOCO).join(MUJOCO.library)).unwrap();
    for share in [1, 2, 3] {
        let cut = with_library(&path(&format!("cut-{share}")), &good[..good.len() * share / 4]);
        contains(&refused(&hopper, &cut), &["truncated"]);
    }
    let source = path("other.c");
    std::fs::write(
        &source,
        "int mj_version(void) { return 350; } const char* mj_versionString(void) { return \"3.5.0\"; }",
    )
    .unwrap();
    let built = path("other.so");
    let compiler = Command::new("cc").arg("-shared").arg("-fPIC").arg("-o").args([&built, &source]).status().unwrap();
    assert!(compiler.success());
    let other = with_library(&path("other"), &std::fs::read(&built).unwrap());
    contains(&refused(&hopper, &other), &["MuJoCo 3.5.0", "3.3.7", MUJOCO.library]);
}

/// `[[x, z], [x, z], radius]`, as `tests/golden/make_limbs.py` writes it.
type Capsule = ([f64; 2], [f64; 2], f64);

#[derive(serde::Deserialize)]
struct Pose {
    qpos: Vec<f64>,
    limbs: Vec<Capsule>,
}

#[test]
fn limbs_have_the_positions_of_the_engine() {
    let poses: std::collections::BTreeMap<String, Pose> =
        serde_json::from_str(include_str!("../../../tests/golden/limbs.json")).unwrap();
    for (model, name) in MODELS.into_iter().zip(["hopper", "walker2d", "half-cheetah"]) {
        let mut env = plain(model);
        let mut observation = vec![0.0; env.spec().observation.dim()];
        let Pose { qpos, limbs: theirs } = &poses[name];
        env.set_state(&json!({ "qpos": qpos, "qvel": vec![0.0; qpos.len()] }), &mut observation).unwrap();
        let ours = env.limbs().unwrap();
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (ours, (from, to, radius)) in ours.iter().zip(theirs) {
            let same = |ours: [f64; 2], theirs: &[f64; 2]| ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-9);
            let turned = same(ours.ends[1], from) && same(ours.ends[0], to);
            assert!(turned || same(ours.ends[0], from) && same(ours.ends[1], to), "{name}: {ours:?} {from:?} {to:?}");
            assert_eq!(ours.radius, *radius, "{name}");
        }
    }
}

#[test]
fn a_robot_that_cannot_be_drawn_correctly_runs_but_is_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.xml");
    let text = std::fs::read_to_string(engines().folder(&MUJOCO).join("hopper.xml")).unwrap();
    for (from, to, told) in [
        (r#"<body name="thigh" pos="0 0 "#, r#"<body name="thigh" pos="0 0.1 "#, "body thigh: pos"),
        ("<geom conaffinity", r#"<geom quat="1 0 0.1 0" conaffinity"#, "quat"),
        ("<worldbody>", r#"<compiler angle="radian"/><worldbody>"#, "compiler"),
        ("<worldbody>", r#"<worldbody><geom name="step" type="box" size="1 1 0.1"/>"#, "geom step"),
        (r#"name="floor" pos="0 0 0""#, r#"name="floor" pos="0 0 -1""#, "geom floor"),
        (r#"<body name="foot""#, r#"<frame/><body name="foot""#, "frame"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let env =
            build(&MujocoSettings { xml_file: Some(text_of(&file)), ..MujocoSettings::new(Model::Hopper) }).unwrap();
        contains(&env.limbs().unwrap_err().to_string(), &["other.xml", told]);
    }
}

#[test]
fn a_model_is_one_file_of_bounded_size() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.xml");
    let text = std::fs::read_to_string(engines().folder(&MUJOCO).join("hopper.xml")).unwrap();
    for (added, told) in [
        (r#"<include file="more.xml"/>"#, "one file"),
        (r#"<asset><mesh file="/etc/passwd" name="m"/></asset>"#, "one file"),
        (r#"<size nuserdata="2000000"/>"#, "more than 1048576 numbers"),
    ] {
        std::fs::write(&file, text.replace("</mujoco>", &format!("{added}</mujoco>"))).unwrap();
        let settings = MujocoSettings { xml_file: Some(text_of(&file)), ..MujocoSettings::new(Model::Hopper) };
        contains(&refused(&settings, engines()), &["other.xml", told]);
    }
}
