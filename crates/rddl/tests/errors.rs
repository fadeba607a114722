//! Every kind of error names its place and what was expected.

mod common;

use common::{DOMAIN, INSTANCE, small, tanks};
use prudence_rddl::{Error, Program, Source};

fn message(replaced: &[(&str, &str)]) -> String {
    match tanks(replaced) {
        Ok(_) => panic!("accepted: {replaced:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_error_shows_file_line_column_excerpt_and_carets() {
    assert_eq!(
        message(&[("RAIN(now)", "RAIN(nov)")]),
        "tanks.rddl:17:67: no pvariable is called `nov`; did you mean `now`?\n          \
         level'(?t) = level(?t) - release(?t) - spilled(?t) + RAIN(nov)\n          \
         \u{20}                                                         ^^^"
    );
}

#[test]
fn each_fault_says_what_was_expected() {
    let cases: &[(&str, &str, &str)] = &[
        // words and blocks
        ("tank : object;", "tank : objekt;", "expected `object` or the values of an enumeration"),
        ("level(?t) - release", "level(?t) -- # release", "`#` has no meaning in RDDL"),
        ("types {", "typs {", "expected a section of the domain or `}`; did you mean `types`?, found `typs`"),
        ("now               : { state-fluent, ", "now : { state, ", "expected a kind of pvariable"),
        ("case @wet : @dry };", "case @wet : @dry }", "expected an operator or `;`, found `}`"),
        ("[abs[level(?t) - 5]]", "[abs[level(?t) - 5)]", "expected an operator or `]`, found `)`"),
        ("horizon = 30", "horizon = terminate-when (now == @dry)", "`terminate-when` is not supported"),
        ("instance first {", "policy p { } instance first {", "policy blocks are not supported"),
        ("horizon = 30", "horizon = 3.5", "expected a whole number of steps"),
        ("reward =", "types { }; reward =", "a second section `types`; expected only one"),
        // names
        ("release(?u) +", "realease(?u) +", "no pvariable is called `realease`; did you mean `release`?"),
        ("case @dry :", "case @dri :", "no object of type `season` is called `dri`; did you mean `dry`?"),
        ("BELOW(?u, ?t)", "BELOW(?v, ?t)", "no variable is called `?v` here"),
        ("max[0.0,", "mux[0.0,", "no function is called `mux`; did you mean `max`?"),
        ("sum_{?u", "som_{?u", "no aggregation is called `som_`; did you mean `sum`?"),
        ("RAIN(@dry) =", "RAIN(@drai) =", "no object of type `season` is called `drai`"),
        ("RAIN(@dry) =", "RAINS(@dry) =", "no non-fluent is called `RAINS`; did you mean `RAIN`?"),
        ("BELOW(t1, t2)", "level(t1)", "no non-fluent is called `level`"),
        ("(?u, ?t) *", "(?u, t1) *", "expressions may only name values of enumerations"),
        ("{?u : tank}", "{?t : tank}", "the variable `?t` is already in use here"),
        ("level(tank)  ", "if(tank)", "`if` is a reserved word"),
        ("now               :", "no__w :", "`__` separates objects"),
        ("spilled(tank)  ", "level(tank)", "the pvariable `level` is declared twice"),
        // arities
        ("spilled(?u))", "spilled(?u, ?t))", "`spilled` has 1 parameter, 2 given"),
        ("spilled(?t) = max", "spilled = max", "`spilled` has 1 parameter, 0 given"),
        ("max[0.0, level", "max[0.0, 1, level", "`max` takes 2 arguments, 3 given"),
        ("BELOW(t1, t2)", "BELOW(t1)", "`BELOW` has 2 parameters, 1 given"),
        ("RAIN(now)", "Normal(1.0)", "`Normal` takes 2 arguments, 1 given"),
        // types
        ("RAIN(now)", "RAIN(?t)", "expected an object of type `season`, found type `tank`"),
        ("RAIN(now)", "now", "expected a number, found an object of type `season`"),
        ("now' = switch", "now' = 1 + switch", "expected a number, found an object of type `season`"),
        ("[level(?t) >= 0]", "[level(?t)]", "expected a condition (bool), found real"),
        ("level(?t) >= 0", "?t >= now", "tank and season cannot be compared like this"),
        ("case @dry : @wet", "case @dry : 1", "the branches have different types: int and season"),
        ("case @dry : @wet, ", "", "no case for `@dry` and no default"),
        ("case @dry : @wet", "case @wet : @wet", "this case appears twice"),
        ("switch (now)", "switch (level(t1))", "expressions may only name values of enumerations"),
        ("= max[0.0,", "= KronDelta(0.5) + max[0.0,", "KronDelta takes bool, int or an object, found real"),
        ("max[0.0,", "div[1.5,", "`div` takes whole numbers, found real"),
        ("default = 10.0", "default = @wet", "expected a number, because the range is real"),
        ("default = false", "default = 1", "expected `true` or `false`, because the range is bool"),
        ("level(t1) = 11.5", "level(t1) = t2", "expected a number, because the range is real"),
        ("default = @wet", "default = 3", "expected an object of type `season`"),
        // missing or given twice
        ("        spilled(?t) = max[0.0, level(?t) - CAPACITY(?t)];\n", "", "expected `spilled = ...;`"),
        ("        now' = ", "        level'(?t) = 1; now' = ", "`level` has a second cpf"),
        ("        now' = ", "        now = ", "`now` is a state-fluent; expected `now'`"),
        ("        now' = ", "        release(?t) = 1; now' = ", "`release` (action-fluent) cannot have a cpf"),
        (", default = 4.0", "", "`level___t2` has no value"),
        ("real, default = 0.0 };", "real };", "the action `release` needs a default"),
        ("objects { tank : {t1, t2}; };", "", "the instance gives no objects of type `tank`"),
        ("{t1, t2}", "{t1, t1}", "`t1` is already an object of type `tank`"),
        ("BELOW(t1, t2);", "RAIN(@dry) = 1.0;", "`RAIN` already has a different value"),
        // which fluents may be read where
        (
            "spilled(?t) = max",
            "spilled(?t) = level'(?t) + max",
            "interm-fluents cannot depend on `level'` (next state)",
        ),
        ("level(?t) > 12", "release(?t) > 12", "terminations cannot depend on `release` (action-fluent)"),
        ("level(?t) >= 0", "Bernoulli(0.5)", "state-invariants must not be random"),
        ("spilled(?t) = max", "spilled(?t) = RAIN'(@dry) + max", "only state-fluents have one"),
        // not supported
        ("max[0.0,", "$foo[0.0,", "external functions (`$name[...]`) are not supported"),
        ("RAIN(now)", "det_{?a : tank, ?b : tank} [1]", "`det` is not supported: this engine has no matrix algebra"),
        (
            "RAIN(now)",
            "MultivariateNormal[?t](a, b)",
            "`MultivariateNormal` is not supported: this engine has no random vectors",
        ),
        // bounds
        ("release(?t) <= CAPACITY(?t) / 2", "release(?t) <= -1", "`release` has no value within its bounds 0 and -1"),
    ];
    for (from, to, expected) in cases {
        let found = message(&[(from, to)]);
        assert!(found.contains(expected), "{from} -> {to}:\n{found}\nexpected: {expected}");
        assert!(found.contains(".rddl:") && found.contains('^'), "no place: {found}");
    }
}

#[test]
fn a_cycle_is_shown_as_a_path() {
    let variables = "p : { interm-fluent, real }; q : { interm-fluent, real };";
    let error = small("", variables, "p = q + 1; q = x * p; x' = p;", "0", "").expect_err("a cycle").to_string();
    assert!(error.contains("a cycle between cpfs: p <- q <- p") && error.contains("d.rddl:3:"), "{error}");
    let error = small("", "", "x' = x' + 1;", "0", "").expect_err("a cycle").to_string();
    assert!(error.contains("a cycle between cpfs: x' <- x'"), "{error}");
}

#[test]
fn texts_without_a_required_block_are_rejected() {
    let load = |text: &str| Program::load(&[Source::new("f", text)]).map(|_| ()).map_err(|e: Error| e.message);
    assert_eq!(load(DOMAIN), Err("the texts have no `instance` block".to_owned()));
    assert_eq!(load(INSTANCE), Err("the texts have no `domain` block".to_owned()));
    assert_eq!(load(""), Err("the texts have no `domain` block".to_owned()));
    assert_eq!(load(&format!("{INSTANCE}{DOMAIN}")), Ok(()));
}

#[test]
fn programs_that_are_too_large_are_rejected_with_the_reason() {
    let objects: Vec<String> = (0..400).map(|i| format!("o{i}")).collect();
    let instance = format!("non-fluents n {{ domain = d; objects {{ t : {{{}}}; }}; }}", objects.join(","));
    let load = |variables: &str, cpf: &str| small("t : object;", variables, cpf, "0", &instance);
    let error =
        load("big(t, t, t) : { state-fluent, bool, default = false };", "").expect_err("64 million").to_string();
    assert!(error.contains("`big` has more than 4000000 groundings"), "{error}");
    let work = "x' = sum_{?a : t, ?b : t, ?c : t, ?d : t} [(?a == ?b) * (?c == ?d)];";
    let error = load("", work).expect_err("25 thousand million").to_string();
    assert!(error.contains("a step would take about") && error.contains("d.rddl:3:"), "{error}");
    let deep = format!("x' = {}x{};", "(".repeat(100_000), ")".repeat(100_000));
    let error = load("", &deep).expect_err("deep").to_string();
    assert!(error.contains("nested more than 250 levels deep"), "{error}");
    let tall = format!("x' = x{};", " + x".repeat(100_000));
    let error = load("", &tall).expect_err("tall").to_string();
    assert!(error.contains("levels high"), "{error}");
    let minus = format!("x' = {}x;", "- ".repeat(100_000));
    let error = load("", &minus).expect_err("many signs").to_string();
    assert!(error.contains("operators in a row"), "{error}");
}

#[test]
fn a_long_line_is_shown_in_part() {
    let text = format!("{}$", "a ".repeat(1_000_000));
    let error = Program::load(&[Source::new("long", format!("domain d {{ {text}"))]).expect_err("garbage").to_string();
    assert!(error.len() < 400, "{}", error.len());
}
