//! What the rule parser accepts and rejects, and its error messages.

use proptest::prelude::*;
use prudence_data::{Rule, RuleError};

const SIGNALS: [&str; 4] = ["speed", "outside", "in_danger", "x"];

fn parse_error(text: &str) -> RuleError {
    Rule::parse(text, &SIGNALS).expect_err(text)
}

#[test]
fn rules_like_those_of_the_tasks_are_parsed() {
    for text in [
        "mean(speed, 50) <= 2.34",
        "fraction(outside, 20) <= 0.15",
        "count(in_danger) <= 1",
        "run(outside) < 2",
        "fraction(outside or speed > 2, 20) <= 0.15 and not (abs(x) > 3)",
        "  not\n\tin_danger  ",
        "-x < .5e1 and x != 1. and max(x, -speed) >= min ( x , 2 )",
        "count(in_danger, 10) == 0 or count (in_danger) / 2 * 3 - 1 < 4",
        "in_danger",
    ] {
        assert_eq!(Rule::parse(text, &SIGNALS).unwrap().text(), text);
    }
}

#[test]
fn every_error_says_where_and_what_would_be_accepted() {
    let end = "but the rule ends here";
    let table = [
        ("", 0..0, end),
        ("speed <", 7..7, end),
        ("(speed", 6..6, "expected an operator or `)`"),
        ("speed)", 5..6, "expected an operator or the end of the rule"),
        ("speed = 1", 6..7, "expected an operator or the end of the rule"),
        ("speed outside", 6..13, "expected an operator"),
        ("speed < 1 && x", 10..11, "expected an operator"),
        ("< 2", 0..1, "expected a number, a signal, a function, `not`, `-` or `(`"),
        ("and x", 0..3, "expected a number, a signal or `(` before it"),
        ("x < 1 or", 8..8, end),
        ("x + é", 4..6, "expected a number"),
        (
            "sped < 1",
            0..4,
            "no signal is called `sped` (did you mean `speed`?); accepted: speed, outside, in_danger, x",
        ),
        ("mean(sped, 5) < 1", 5..9, "did you mean `speed`?"),
        ("altitude < 1", 0..8, "no signal is called `altitude`; accepted: speed, outside, in_danger, x"),
        (
            "mea(speed, 5) < 1",
            0..3,
            "no function is called `mea` (did you mean `mean`?); accepted: abs, count, fraction",
        ),
        ("0 < x < 1", 6..7, "comparisons take numbers and do not chain"),
        ("(x < 1) == outside", 8..10, "comparisons take numbers"),
        ("1 < (x < 1)", 4..11, "expected a number, but this is a condition"),
        ("(x < 1) + 1 < 2", 0..7, "expected a number, but this is a condition"),
        ("-(not x) < 2", 1..8, "expected a number, but this is a condition"),
        ("abs(x < 1) < 1", 4..9, "expected a number, but this is a condition"),
        ("min(x < 1, 2) < 1", 4..9, "expected a number, but this is a condition"),
        ("mean(x < 1, 2) < 1", 5..10, "use `fraction`"),
        ("min(x) < 1", 5..6, "expected an operator or `,`"),
        ("mean(x) < 1", 6..7, "expected an operator or `,`"),
        ("run(x, 5) < 1", 5..6, "expected an operator or `)`"),
        ("mean(x, 0) < 1", 8..9, "a whole number of steps from 1 to 1000000"),
        ("mean(x, 2.5) < 1", 8..11, "a whole number of steps"),
        ("mean(x, 1000001) < 1", 8..15, "a whole number of steps"),
        ("mean(x, speed) < 1", 8..13, "a whole number of steps"),
        ("mean(x, -3) < 1", 8..9, "a whole number of steps"),
        ("mean(x, 600000) < mean(speed, 600000)", 30..36, "at most 1000000 steps in total"),
        ("mean(count(x), 5) < 1", 5..10, "`count` inside `mean`: aggregates cannot be nested"),
        ("x < 1e999", 4..9, "expected a finite number"),
        ("x < 1 or .", 9..10, "expected a finite number such as 2, 0.5 or 1e-3"),
        ("x\u{a0}< 1", 1..3, "expected an operator"),
    ];
    for (text, span, message) in table {
        let error = parse_error(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.span, span, "{error}");
    }
}

#[test]
fn errors_are_shown_with_carets_under_the_place() {
    assert_eq!(
        parse_error("mean(sped, 50) <= 2").to_string(),
        "rule, column 6: no signal is called `sped` (did you mean `speed`?); accepted: speed, outside, in_danger, x\n  \
         mean(sped, 50) <= 2\n       ^^^^"
    );
    assert_eq!(
        parse_error("x < 1\n and (x").to_string(),
        "rule, column 8: expected an operator or `)`, but the rule ends here\n   and (x\n         ^"
    );
}

#[test]
fn depth_and_length_are_limited() {
    let nested = |open: &str, close: &str, n: usize| format!("{}x{}", open.repeat(n), close.repeat(n));
    for (open, close) in [("(", ")"), ("-", ""), ("not ", ""), ("abs(", ")"), ("min(1,", ")")] {
        Rule::parse(&nested(open, close, 60), &SIGNALS).unwrap();
        let error = parse_error(&nested(open, close, 500));
        assert!(error.message.contains("nested deeper than 64 levels"), "{error}");
    }
    assert!(parse_error(&" ".repeat(5000)).message.contains("the rule has 5000 bytes; at most 4096 are accepted"));
    let chain = vec!["x<1"; 500].join(" or ");
    Rule::parse(&chain, &SIGNALS).expect("long chains are not deep");
}

/// Pieces of rules in any order, which get further into the parser than random text does.
fn fragments() -> impl Strategy<Value = String> {
    let pieces = [
        "speed",
        "x",
        "outside",
        "mean(",
        "fraction(",
        "count(",
        "run(",
        "abs(",
        "min(",
        ")",
        "(",
        ",",
        " ",
        "20",
        "0.5",
        "1e9",
        "<",
        "<=",
        "==",
        "!=",
        "+",
        "-",
        "*",
        "/",
        " and ",
        " or ",
        " not ",
        "é",
        ".",
        "=",
        "\n",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn the_parser_never_panics(text in prop_oneof![any::<String>(), "[ -~\n]{0,200}", fragments()]) {
        match Rule::parse(&text, &SIGNALS) {
            Ok(rule) => { rule.judge().step(&[0.0; 4]); }
            Err(error) => {
                prop_assert!(!error.message.is_empty());
                prop_assert!(text.get(error.span.clone()).is_some(), "{error:?}");
                prop_assert!(error.to_string().contains('^'));
            }
        }
    }
}
