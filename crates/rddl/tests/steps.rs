//! Stepping, compared with numbers computed by hand.

mod common;

use common::{simulator, small, tanks};
use prudence_rddl::{Keyed, Kind, Law, Noiseless, Random, Range, SimulatedStep};

#[test]
fn tanks_step_as_computed_by_hand() {
    let mut tanks = simulator(tanks(&[]));
    assert_eq!(tanks.state(), [11.5, 4.0, 1.0]); // level, level, now = @wet
    let step = tanks.step(&[2.0, 1.0], &mut Noiseless).expect("a step");
    // t1: 11.5 - 2 - 1.5 spilled + 0.5; t2: 4 - 1 + 0.5 + (2 + 1.5) from above
    assert_eq!(tanks.state(), [8.5, 7.0, 0.0]);
    assert_eq!(step, SimulatedStep { reward: -7.5, terminated: false }); // from the levels before the step: |11.5 - 5| + |4 - 5|
    assert_eq!(tanks.values()[tanks.program().ground(Kind::Interm)[0].slot], 1.5);
    let step = tanks.step(&[0.0, -9.0], &mut Noiseless).expect("a step");
    // dry: no rain; t2: 7 + 9 - 1 spilled
    assert_eq!(tanks.state(), [8.5, 15.0, 1.0]);
    assert_eq!(step, SimulatedStep { reward: -5.5, terminated: true });
    assert_eq!(tanks.steps(), 2);
    tanks.reset();
    assert_eq!((tanks.state(), tanks.steps()), (&[11.5, 4.0, 1.0][..], 0));
}

#[test]
fn ground_names_bounds_and_instance_equal_those_of_pyrddlgym() {
    let program = tanks(&[]).expect("a program");
    let actions = program.ground(Kind::Action);
    let names: Vec<_> = actions.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["release___t1", "release___t2"]);
    assert_eq!((actions[0].bounds, actions[1].bounds), ((0.0, 5.0), (0.0, 3.0)));
    assert_eq!(program.ground(Kind::State)[1].bounds, (0.0, f64::INFINITY));
    assert_eq!(program.ground(Kind::State)[2].bounds, (0.0, 1.0));
    let below: Vec<_> = program.ground(Kind::NonFluent).into_iter().filter(|g| g.name.starts_with("BELOW")).collect();
    assert_eq!(below[1].name, "BELOW___t1__t2");
    assert_eq!((below[0].initial, below[1].initial), (0.0, 1.0));
    assert_eq!((program.horizon(), program.discount(), program.max_nondef_actions()), (Some(30), 0.9, None));
    assert_eq!((program.domain(), program.instance()), ("tanks", "first"));
    assert_eq!(program.ground(Kind::State)[2].range, Range::Object(1));
    assert_eq!(program.objects(1), ["dry", "wet"]);
}

#[test]
fn strict_bounds_move_inwards_and_other_conditions_are_ignored() {
    let strict = "release(?t) > -1 & 2 > release(?t) & release(?t) <= level(?t) & (release(?t) < 1 | true)";
    let program = tanks(&[("release(?t) >= 0 ^ release(?t) <= CAPACITY(?t) / 2", strict)]).expect("a program");
    assert_eq!(program.ground(Kind::Action)[0].bounds, (-1.0 + 1e-5, 2.0 - 1e-5));
}

#[test]
fn preconditions_and_invariants_are_checked_on_request_only() {
    let mut tanks = simulator(tanks(&[]));
    assert_eq!(tanks.preconditions_hold(&[5.0, 3.0]), Ok(true));
    assert_eq!(tanks.preconditions_hold(&[5.0, 3.1]), Ok(false));
    assert_eq!(tanks.invariants_hold(), Ok(true));
    assert!(tanks.set_state(&[-0.1, 4.0, 0.0]).is_ok());
    assert_eq!(tanks.invariants_hold(), Ok(false));
    assert!(tanks.step(&[0.0], &mut Noiseless).is_err());
    assert!(tanks.set_state(&[0.0]).is_err());
}

#[test]
fn arithmetic_equals_that_of_numpy() {
    // an expression, and its value with n = -7, m = 2, b = true, y = 2.5
    let cases = [
        ("div[n, m]", -4.0),
        ("mod[n, m]", 1.0),
        ("mod[n, -3]", -1.0),
        ("div[n, 0] + mod[n, 0]", 0.0),
        ("fmod[-y, 2]", 1.5),
        ("fmod[y, -2]", -1.5),
        ("round[y] + round[3.5] + round[-0.5]", 6.0),
        ("floor[-y] + 10 * ceil[y]", 27.0),
        ("sgn[-y] + sgn[0.0] + 10 * sgn[m]", 9.0),
        ("n / m", -3.5),
        ("1 / (0 * n)", f64::INFINITY), // an integer zero has no sign
        ("1 / -(0.0 * y)", f64::NEG_INFINITY),
        ("b + b * m", 3.0),
        ("-b", -1.0),
        ("b == 1", 1.0),
        ("3 > 2 > 1", 0.0),
        ("(1 > 2) * ln[0.0]", 0.0), // the second factor is not evaluated
        ("min[y, m] + max[b, m]", 4.0),
        ("pow[m, 3] + pow[y, 2] + pow[4.0, 0.5]", 16.25),
        ("log[8, m]", 3.0),
        ("hypot[3, 4]", 5.0),
        ("abs[n] - -n", 0.0),
        ("if (b) then 1 else y", 1.0),
        ("1e-1 + .5 + 2.5E0", 3.1),
        ("sqrt[-1.0]", f64::NAN),
        ("- m - - m + 2 * - 3", -6.0),
    ];
    for (text, expected) in cases {
        let variables = "n : { state-fluent, int, default = -7 }; m : { state-fluent, int, default = 2 };
            b : { state-fluent, bool, default = true }; y : { state-fluent, real, default = 2.5 };";
        // Once with fluents and once with constants, which are folded.
        for variables in [variables.to_owned(), variables.replace("state-fluent", "non-fluent")] {
            let cpfs = if variables.contains("state") { "x' = x; n' = n; m' = m; b' = b; y' = y;" } else { "x' = x;" };
            let mut simulator = simulator(small("", &variables, cpfs, text, ""));
            let reward = simulator.step(&[0.0], &mut Noiseless).expect("a step").reward;
            let same = reward == expected || (reward - expected).abs() < 1e-15 || reward.is_nan() && expected.is_nan();
            assert!(same, "{text}: {reward}, expected {expected}");
        }
    }
}

/// Triples of thirty objects, too many to unroll.
#[test]
fn loops_compute_their_aggregates() {
    const N: usize = 30;
    let (c, next) = (|i: usize| (i * 7 % 11) as f64 + 0.5, |i: usize| i * 7 % N);
    let objects: Vec<String> = (0..N).map(|i| format!("o{i}")).collect();
    let values: String = (0..N).map(|i| format!("C(o{i}) = {}; NEXT(o{i}) = o{}; ", c(i), next(i))).collect();
    let instance = format!(
        "non-fluents n {{ domain = d; objects {{ t : {{{}}}; }}; non-fluents {{ {values} }}; }}",
        objects.join(",")
    );
    let variables = "C(t) : { non-fluent, real }; NEXT(t) : { non-fluent, t };
        s(t) : { state-fluent, real, default = 1.0 }; at : { state-fluent, t, default = o3 };
        m(t, t, t) : { interm-fluent, real }; best : { interm-fluent, t }; worst : { interm-fluent, t };
        all : { interm-fluent, bool }; any : { interm-fluent, bool }; drawn : { interm-fluent, t };";
    let cpfs = "m(?a, ?b, ?c) = C(?a) * 100 + C(?b) * 10 + C(?c) + s(?a) * s(NEXT(?b)) + (if (?a == ?c) then 0.25 else 0);
        best = argmax_{?a : t} [sum_{?b : t, ?c : t} [m(?b, ?a, ?c) * (?b ~= ?c)]];
        worst = argmin_{?a : t} [sum_{?b : t, ?c : t} [m(?a, at, ?c) - C(?b)]];
        all = forall_{?a : t, ?b : t, ?c : t} [m(?a, ?b, ?c) >= 56.5];
        any = exists_{?a : t, ?b : t, ?c : t} [m(?a, ?b, ?c) > 1168.0];
        drawn = Discrete_{?a : t} [if ((sum_{?b : t, ?c : t, ?d : t} [?a == ?b ^ ?c == ?d]) > 29 ^ ?a == NEXT(at)) then 1 else 0];
        s'(?a) = s(?a) + 1; at' = NEXT(at);
        x' = (avg_{?a : t, ?b : t, ?c : t} [m(?a, ?b, ?c)]) + (max_{?a : t, ?b : t, ?c : t} [m(?a, ?b, ?c)])
            - (min_{?a : t, ?b : t, ?c : t} [m(?c, ?b, ?a)]) * (prod_{?a : t, ?b : t, ?c : t} [1 + 0 * m(?c, ?b, ?a)]);";
    let mut simulator = simulator(small("t : object;", variables, cpfs, "all + 2 * any", &instance));
    let mut at = 3;
    for t in 0..3 {
        let s = f64::from(t) + 1.0;
        let m =
            |a: usize, b: usize, d: usize| c(a) * 100.0 + c(b) * 10.0 + c(d) + s * s + if a == d { 0.25 } else { 0.0 };
        let triples: Vec<(usize, usize, usize)> = (0..N * N * N).map(|i| (i / (N * N), i / N % N, i % N)).collect();
        let all: Vec<f64> = triples.iter().map(|(a, b, d)| m(*a, *b, *d)).collect();
        let step = simulator.step(&[0.0], &mut Random::seeded(1)).expect("a step");
        let program = simulator.program();
        let slot = |name: &str| program.fluents().iter().find(|f| f.name == name).expect("a fluent").slot;
        let values = simulator.values();
        assert_eq!(values[slot("m")..slot("m") + N * N * N], all[..]);
        let pairs = |f: &dyn Fn(usize, usize) -> f64| (0..N * N).map(|i| f(i / N, i % N)).sum::<f64>();
        let first_best = |scores: Vec<f64>| {
            let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores.iter().position(|score| *score == best).expect("a best one") as f64
        };
        let best = (0..N).map(|a| pairs(&|b, d| if b == d { 0.0 } else { m(b, a, d) })).collect();
        assert_eq!(values[slot("best")], first_best(best));
        let worst = (0..N).map(|a| -pairs(&|b, d| m(a, at, d) - c(b))).collect();
        assert_eq!(values[slot("worst")], first_best(worst));
        let fold = |op: fn(f64, f64) -> f64| all.iter().copied().reduce(op).expect("numbers");
        let x = all.iter().sum::<f64>() / all.len() as f64 + fold(f64::max) - fold(f64::min);
        assert!((values[slot("x")] - x).abs() < 1e-9, "{} {x}", values[slot("x")]);
        let holds = |p: bool| f64::from(u8::from(p));
        assert_eq!(step.reward, holds(all.iter().all(|m| *m >= 56.5)) + 2.0 * holds(all.iter().any(|m| *m > 1168.0)));
        assert_eq!(values[slot("drawn")], next(at) as f64);
        at = next(at);
        assert_eq!(values[slot("at")], at as f64);
    }
}

#[test]
fn keyed_draws_follow_the_key() {
    let uniforms: Vec<f64> = (1..1000).map(|i| f64::from(i) / 1000.0).collect();
    let draw = |key: &str| {
        let hash = key
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        uniforms[(hash % uniforms.len() as u64) as usize]
    };
    let variables = "n(t, u) : { state-fluent, real, default = 0.0 };";
    let cpfs = "x' = Uniform(0, 1) + Normal(0, Exponential(2.0));
        n'(?t, ?u) = KronDelta(1) * Uniform(0, 1) + (sum_{?v : u} [Uniform(0, 10)]);";
    let instance = "non-fluents f { domain = d; objects { t : {a, b}; u : {c, d, e}; }; }";
    let mut simulator = simulator(small("t : object; u : object;", variables, cpfs, "Bernoulli(0.5) * 8", instance));
    let mut keyed = Keyed::new(uniforms.clone()).expect("uniforms");
    for t in 0..3 {
        let step = simulator.step(&[0.0], &mut keyed).expect("a step");
        let key = |cpf: &str, site: usize, index: usize| draw(&format!("{t}|{cpf}|{site}|{index}"));
        let variance = Law::Exponential.quantile(key("x", 2, 0), 2.0, 0.0);
        assert_eq!(simulator.state()[0], key("x", 0, 0) + Law::Normal.quantile(key("x", 1, 0), 0.0, variance));
        assert_eq!(step.reward, if key("reward", 0, 0) < 0.5 { 8.0 } else { 0.0 });
        for (i, value) in simulator.state()[1..].iter().enumerate() {
            let sum: f64 = (0..3).map(|v| 10.0 * key("n", 1, 3 * i + v)).sum();
            assert!((value - (key("n", 0, i) + sum)).abs() < 1e-12, "{i}");
        }
    }
    assert!(Keyed::new(vec![]).is_none() && Keyed::new(vec![0.0]).is_none() && Keyed::new(vec![1.0]).is_none());
}

#[test]
fn a_seed_determines_every_draw() {
    let run = |seed| {
        let mut simulator = simulator(small("", "", "x' = x + Normal(0, 1);", "x'", ""));
        let mut draws = Random::seeded(seed);
        (0..20).map(|_| simulator.step(&[0.0], &mut draws).expect("a step").reward).collect::<Vec<_>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn without_noise_a_normal_gives_its_mean_and_other_laws_are_rejected() {
    let mut quiet = simulator(small("", "", "x' = x + Normal(1.5, 4);", "0", ""));
    assert_eq!(quiet.program().check_noiseless(), Ok(()));
    quiet.step(&[0.0], &mut Noiseless).expect("a step");
    assert_eq!(quiet.state(), [1.5]);
    let program = small("", "", "x' = x + Normal(1.5, 4) + Uniform(0, 1);", "0", "").expect("a program");
    let error = program.check_noiseless().expect_err("a Uniform").to_string();
    assert!(error.contains("not Uniform") && error.contains("d.rddl:3:"), "{error}");
}

#[test]
fn a_law_with_invalid_parameters_fails_with_its_place_and_only_if_it_is_evaluated() {
    let mut simulator = simulator(small("", "", "x' = if (a > 0) then Normal(0, a - 2) else a;", "0", ""));
    assert!(simulator.step(&[-5.0], &mut Random::seeded(0)).is_ok());
    let error = simulator.step(&[1.0], &mut Random::seeded(0)).expect_err("variance -1").to_string();
    assert!(error.contains("step 1: the variance of a Normal must not be negative; it is -1"), "{error}");
    assert!(error.contains("d.rddl:3:"), "{error}");
    assert_eq!((simulator.state(), simulator.steps()), (&[-5.0][..], 1));
    assert!(simulator.step(&[3.0], &mut Random::seeded(0)).is_ok());
}

/// A value that was computed before is reused without being moved from its slot.
#[test]
fn a_value_used_twice_stays_in_its_slot() {
    let variables = "s : { state-fluent, real, default = 1.0 }; u : { state-fluent, real, default = 1.0 };";
    let same = "((s + u + s + u) > 1)";
    let (left, right) = (same, format!("(exists_{{?a : t}} [{same}])"));
    let one = "if (Discrete(t, @p : s / u, @q : 1 - s / u) == @p) then 10 else 0";
    let cpfs = format!("x' = {left} + {right}; s' = s; u' = u;");
    let reward = format!("(s / u) + ({one})");
    let mut simulator = simulator(small("t : { @p, @q };", variables, &cpfs, &reward, ""));
    let step = simulator.step(&[0.0], &mut Random::seeded(1)).expect("a step");
    let x = simulator.program().ground(Kind::State)[0].slot;
    assert_eq!((simulator.values()[x], step.reward), (2.0, 11.0));
}
