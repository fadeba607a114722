//! RDDL domains as environments: what is accepted, what is refused and in which words.
#![expect(clippy::disallowed_methods, reason = "a test writes the files that a user would")]

use prudence_env::conformance::{Chance, check};
use prudence_env::rddl::{Rddl, Settings};
use prudence_env::{Env, EnvSettings, MakeEnv as _};
use serde_json::json;

#[test]
fn hvac_keeps_every_promise() {
    let build = |noise| Rddl::new(&Settings { noise, ..Settings::builtin("hvac") }).unwrap();
    check(&|| Box::new(build(true)), Chance::Steps).unwrap();
    check(&|| Box::new(build(false)), Chance::Nothing).unwrap();
}

/// One step by hand: heat through walls, from hall and outside, and by the air.
#[test]
fn hvac_without_noise_is_the_heat_balance() {
    let mut env = Rddl::new(&Settings { noise: false, ..Settings::builtin("hvac") }).unwrap();
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

/// The error of an environment of a text made from [`DOMAIN`] by replacing words.
fn refused(words: &[(&str, &str)]) -> String {
    let good = [
        ("RANGE", "real"),
        ("DEFAULT", "0.0"),
        ("CPF", "s(?o) + a(?o)"),
        ("BOUND", "forall_{?o : o} [a(?o) <= 1.0];"),
        ("HORIZON", "horizon = 5;"),
    ];
    let text = words.iter().chain(&good).fold(DOMAIN.to_owned(), |text, (from, to)| text.replace(from, to));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.rddl");
    std::fs::write(&file, text).unwrap();
    let file = file.to_string_lossy().into_owned();
    let settings = Settings { domain: file.clone(), instance: file, noise: true, horizon: None, scene: None };
    Rddl::new(&settings).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_text_of_the_users_own_is_an_environment_or_is_refused_by_name() {
    assert_eq!(refused(&[]), "");
    let contains = |text: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in:\n{text}"));
    };
    contains(refused(&[("BOUND", "")]), &["a___p", "inf", "action-preconditions"]);
    contains(
        refused(&[("RANGE", "bool"), ("DEFAULT", "false"), (">= -1.0", "| true"), ("BOUND", "")]),
        &["a___p", "real"],
    );
    contains(refused(&[("HORIZON", "horizon = pos-inf;")]), &["horizon"]);
    contains(refused(&[("CPF", "s(?o, ?o)")]), &["d.rddl:4:", "s(?o, ?o)"]);
    contains(refused(&[("CPF", "t(?o)")]), &["d.rddl:4:", "`t`"]);
    contains(refused(&[("BOUND", "forall_{?o : o} [a(?o) <= -2.0];")]), &["`a`", "bounds"]);
}

#[test]
fn settings_read_and_refuse() {
    let read = |text: &str| serde_json::from_str::<EnvSettings>(text).map_err(|error| error.to_string());
    let navigation = |rest: &str| {
        read(&format!(
            r#"{{"kind": "rddl", "domain": "builtin:navigation.rddl", "instance": "builtin:navigation-instance.rddl"{rest}}}"#
        ))
    };
    assert_eq!(navigation("").unwrap(), EnvSettings::Rddl(Settings::builtin("navigation")));
    assert_eq!(navigation("").unwrap().build().unwrap().spec().horizon, 20);
    assert_eq!(navigation(r#", "horizon": 7"#).unwrap().build().unwrap().spec().horizon, 7);
    assert!(navigation(r#", "nose": false"#).unwrap_err().contains("unknown field `nose`"));
    let error = |settings: EnvSettings| settings.build().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error(navigation(r#", "horizon": 0"#).unwrap()).starts_with("env.horizon = 0: "));
    let scene = r#", "scene": {"axes": ["x", "location___y"], "bounds": [0, 1, 0, 1]}"#;
    assert!(
        error(navigation(scene).unwrap())
            .starts_with(r#"env.scene.axes = "x": expected one of the signals location___x"#)
    );
    let missing = Settings { domain: "no-such.rddl".into(), ..Settings::builtin("hvac") };
    assert!(error(EnvSettings::Rddl(missing)).starts_with(r#"env.domain = "no-such.rddl": cannot read the file"#));
    assert!(error(EnvSettings::Rddl(Settings::builtin("hvacs"))).contains("builtin:hvac.rddl"));
}

#[test]
fn a_changed_text_is_another_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.rddl");
    let mut settings = EnvSettings::Rddl(Settings { domain: "d.rddl".into(), ..Settings::builtin("hvac") });
    settings.relative_to(folder.path());
    let describe = |text: &str| {
        std::fs::write(&file, text).unwrap();
        settings.describe()
    };
    assert_ne!(describe("one"), describe("another"));
}
