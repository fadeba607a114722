//! RDDL domains as environments: what is accepted, what is rejected and with which message.

use std::path::Path;

use prudence_env::conformance::{Chance, check};
use prudence_env::rddl::{Rddl, RddlSettings};
use prudence_env::{Env, Error, MakeEnv as _, Settable as _, Snapshots as _};
use serde_json::json;

#[test]
fn hvac_keeps_every_promise() {
    let build = |noise| Rddl::new(&RddlSettings { noise, ..RddlSettings::builtin("hvac") }).unwrap();
    check(&|| Box::new(build(true)), Chance::Steps).unwrap();
    check(&|| Box::new(build(false)), Chance::Nothing).unwrap();
}

/// One step computed by hand: heat through the walls, from the hall and the outside, and from the air.
#[test]
fn hvac_without_noise_is_the_heat_balance() {
    let mut env = Rddl::new(&RddlSettings { noise: false, ..RddlSettings::builtin("hvac") }).unwrap();
    let mut at = [0.0; 3];
    env.reset(0, &mut at).unwrap();
    assert_eq!(at, [10.0; 3]);
    let state = json!({ "temp___server": 20.9, "temp___office": 22.0, "temp___meeting": 19.0 });
    env.set_state(&state, &mut at).unwrap();
    let step = env.step(&[3.0, 0.5, 0.0], &mut at).unwrap();
    let server = 3.0 * 1.006 * (40.0 - 20.9)
        + (22.0 - 20.9) / 1.5
        + (19.0 - 20.9) / 1.5
        + (6.0 - 20.9) / 0.5
        + (10.0 - 20.9) / 2.0;
    let office = 0.5 * 1.006 * (40.0 - 22.0) + (20.9 - 22.0) / 1.5 + (19.0 - 22.0) / 1.5 + (6.0 - 22.0) / 4.0;
    let meeting = (20.9 - 19.0) / 1.5 + (22.0 - 19.0) / 1.5 + (10.0 - 19.0) / 2.0;
    let expected = [20.9 + server / 80.0, 22.0 + office / 80.0, 19.0 + meeting / 80.0];
    at.iter().zip(expected).for_each(|(at, expected)| assert!((at - expected).abs() < 1e-12, "{at} {expected}"));
    let reward = -(2.0 + 0.5 * (0.85 + 0.25 + 2.75) + 0.01 * 3.5);
    assert!((step.reward - reward).abs() < 1e-12, "{} {reward}", step.reward);
    let hot = env.spec().signals.iter().position(|name| name == "hot").unwrap();
    assert_eq!(env.signals()[hot], f64::from(u8::from(expected[0] > 21.0)));
}

/// Every kind of state-fluent, an intermediate and a derived fluent, and an end before the horizon.
const KINDS: &str = "domain kinds {
    types { side : { @left, @right }; lamp : object; };
    pvariables {
        on(lamp) : { state-fluent, bool, default = false };
        count : { state-fluent, int, default = 0 };
        where : { state-fluent, side, default = @right };
        heat : { state-fluent, real, default = 0.5 };
        warm-er : { interm-fluent, real };
        lit : { derived-fluent, int };
        push : { action-fluent, real, default = 0.0 };
    };
    cpfs {
        lit = sum_{?l : lamp} [on(?l)];
        warm-er = heat + 0.1 * push + Normal(0.0, 0.01);
        on'(?l) = Bernoulli(0.5);
        count' = count + 1;
        where' = if (warm-er > 0.5) then @left else @right;
        heat' = max[0.0, min[1.0, warm-er]];
    };
    reward = heat + lit;
    action-preconditions { push >= -1.0; push <= 1.0; };
    state-invariants { heat >= 0.0; heat <= 1.0; count >= 0; count <= 100; };
    termination { TERMINATION };
}
non-fluents n { domain = kinds; objects { lamp : { l-1, l-2 }; }; }
instance i { domain = kinds; non-fluents = n; horizon = 12; discount = 1.0; }
";

fn write(folder: &Path, text: &str) -> RddlSettings {
    let file = folder.join("d.rddl");
    std::fs::write(&file, text).unwrap();
    let file = file.to_string_lossy().into_owned();
    RddlSettings { domain: file.clone(), instance: file, noise: true, horizon: None, scene: None }
}

#[test]
fn every_kind_of_state_and_a_termination_keep_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    for termination in ["count > 7 ^ (exists_{?l : lamp} [on(?l)]);", "count >= 12;", "false;"] {
        let settings = write(folder.path(), &KINDS.replace("TERMINATION", termination));
        check(&|| Box::new(Rddl::new(&settings).unwrap()), Chance::Steps).unwrap();
    }
    // A termination at the horizon is not a truncation.
    let mut env = Rddl::new(&write(folder.path(), &KINDS.replace("TERMINATION", "count >= 12;"))).unwrap();
    let mut at = [0.0; 5];
    env.reset(0, &mut at).unwrap();
    assert_eq!(env.state()["where"], "right");
    assert_eq!(env.spec().signals[5..], ["warm_er", "lit"]);
    let last = (0..12).map(|_| env.step(&[0.0], &mut at).unwrap()).last().unwrap();
    assert_eq!((last.terminated, last.truncated), (true, false));
}

#[test]
fn a_violated_invariant_truncates_the_episode_and_a_number_that_is_not_finite_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = KINDS.replace("TERMINATION", "false;");
    let mut env = Rddl::new(&write(folder.path(), &text.replace("count <= 100", "count <= 2"))).unwrap();
    let mut at = [0.0; 5];
    env.reset(0, &mut at).unwrap();
    let truncated = [(); 3].map(|()| env.step(&[0.0], &mut at).unwrap().truncated);
    assert_eq!(truncated, [false, false, true]);
    let snapshot = env.snapshot();
    env.restore(&snapshot, &mut at).unwrap();

    let mut env = Rddl::new(&write(folder.path(), &text.replace("reward = heat", "reward = ln[count]"))).unwrap();
    env.reset(0, &mut at).unwrap();
    assert_eq!(env.step(&[0.0], &mut at).unwrap_err().to_string(), "step 1: the reward became -inf");
    assert!(matches!(env.step(&[0.0], &mut at), Err(Error::Over)));
}

const DOMAIN: &str = "domain d {
    types { o : object; };
    pvariables { s(o) : { state-fluent, real, default = 0.0 }; a(o) : { action-fluent, RANGE, default = DEFAULT }; };
    cpfs { s'(?o) = CPF; };
    reward = sum_{?o : o} [s(?o)];
    action-preconditions { forall_{?o : o} [a(?o) >= -1.0]; BOUND };
}
non-fluents n { domain = d; objects { o : { p, q }; }; }
instance i { domain = d; non-fluents = n; init-state { s(p) = 0.0; }; HORIZON max-nondef-actions = pos-inf; discount = 1.0; }
";

/// The error of an environment whose text is [`DOMAIN`] with some words replaced.
fn error_of(words: &[(&str, &str)]) -> String {
    let good = [
        ("RANGE", "real"),
        ("DEFAULT", "0.0"),
        ("CPF", "s(?o) + a(?o)"),
        ("BOUND", "forall_{?o : o} [a(?o) <= 1.0];"),
        ("HORIZON", "horizon = 5;"),
    ];
    let text = words.iter().chain(&good).fold(DOMAIN.to_owned(), |text, (from, to)| text.replace(from, to));
    let folder = tempfile::tempdir().unwrap();
    Rddl::new(&write(folder.path(), &text)).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn unsuitable_domains_are_rejected_with_the_name_of_the_fluent() {
    assert_eq!(error_of(&[]), "");
    let contains = |text: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in:\n{text}"));
    };
    contains(error_of(&[("BOUND", "")]), &["a___p", "inf", "action-preconditions"]);
    contains(
        error_of(&[("RANGE", "bool"), ("DEFAULT", "false"), (">= -1.0", "| true"), ("BOUND", "")]),
        &["a___p", "real"],
    );
    contains(error_of(&[("HORIZON", "horizon = pos-inf;")]), &["horizon"]);
    contains(error_of(&[("CPF", "s(?o, ?o)")]), &["d.rddl:4:", "s(?o, ?o)"]);
    contains(
        error_of(&[
            (
                "s(o) :",
                "s-s(o) : { state-fluent, real, default = 0.0 }; s_s(o) : { state-fluent, real, default = 0.0 }; s(o) :",
            ),
            ("cpfs {", "cpfs { s-s'(?o) = 0.0; s_s'(?o) = 0.0;"),
        ]),
        &["s_s___p", "rename"],
    );
    contains(error_of(&[("CPF", "t(?o)")]), &["d.rddl:4:", "`t`"]);
    contains(error_of(&[("BOUND", "forall_{?o : o} [a(?o) <= -2.0];")]), &["`a`", "bounds"]);
}

#[test]
fn settings_are_parsed_and_checked() {
    let read = |text: &str| serde_json::from_str::<RddlSettings>(text).map_err(|error| error.to_string());
    let navigation = |rest: &str| {
        read(&format!(
            r#"{{"domain": "builtin:navigation.rddl", "instance": "builtin:navigation-instance.rddl"{rest}}}"#
        ))
    };
    assert_eq!(navigation("").unwrap(), RddlSettings::builtin("navigation"));
    assert_eq!(navigation("").unwrap().make().unwrap().spec().horizon, 20);
    assert_eq!(navigation(r#", "horizon": 7"#).unwrap().make().unwrap().spec().horizon, 7);
    assert!(navigation(r#", "nose": false"#).unwrap_err().contains("unknown field `nose`"));
    let error = |settings: RddlSettings| settings.make().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error(navigation(r#", "horizon": 0"#).unwrap()).starts_with("env.horizon = 0: "));
    let scene = r#", "scene": {"axes": ["x", "location___y"], "bounds": [0, 1, 0, 1]}"#;
    assert!(
        error(navigation(scene).unwrap())
            .starts_with(r#"env.scene.axes = "x": expected one of the signals location___x"#)
    );
    let missing = RddlSettings { domain: "no-such.rddl".into(), ..RddlSettings::builtin("hvac") };
    assert!(error(missing).starts_with(r#"env.domain = "no-such.rddl": cannot read the file"#));
    assert!(error(RddlSettings::builtin("hvacs")).contains("builtin:hvac.rddl"));
}

#[test]
fn a_changed_text_changes_the_description() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.rddl");
    let domain = file.to_string_lossy().into_owned();
    let settings = RddlSettings { domain, ..RddlSettings::builtin("hvac") };
    let describe = |text: &str| {
        std::fs::write(&file, text).unwrap();
        settings.describe()
    };
    assert_ne!(describe("one"), describe("two"));
}
