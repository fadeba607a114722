//! What rules mean: a table of cases, and a naive evaluator that reads the whole history at every step.

use proptest::prelude::*;
use prudence_data::Rule;

const NAN: f64 = f64::NAN;

/// At which steps the rule holds; signal `a` is given, `b` is 1 throughout.
fn holds(text: &str, a: &[f64]) -> String {
    let rule = Rule::parse(text, &["a", "b"]).unwrap();
    let mut judge = rule.judge();
    let steps: String = a.iter().map(|a| if judge.step(&[*a, 1.0]) { '+' } else { '-' }).collect();
    assert_eq!(judge.safe(), !steps.contains('-'));
    judge.reset();
    let again: String = a.iter().map(|a| if judge.step(&[*a, 1.0]) { '+' } else { '-' }).collect();
    assert_eq!(again, steps, "a judge starts over after a reset");
    let flat: Vec<f64> = a.iter().flat_map(|a| [*a, 1.0]).collect();
    assert_eq!(rule.first_violation(&flat, 0..a.len()), steps.find('-'));
    steps
}

#[test]
fn rules_mean_what_the_table_says() {
    let table: &[(&str, &[f64], &str)] = &[
        ("a <= 2", &[1.0, 2.0, 2.1, 0.0], "++-+"),
        ("a", &[1.0, 0.0, -1.0], "+-+"),
        ("not a", &[1.0, 0.0, 0.5], "-+-"),
        // mean: defined once there are n steps
        ("mean(a, 3) <= 1", &[9.0, 9.0, 0.0, 0.0, 0.0, 3.0, 0.1], "++--++-"),
        ("mean(a, 1) <= 1", &[2.0, 1.0], "-+"),
        ("mean(a, 3) > 100", &[1.0, 1.0], "++"),
        // fraction: divided by n from the first step on
        ("fraction(a, 4) <= 0.25", &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], "+++-+--++"),
        ("fraction(a, 20) <= 0.15", &[1.0, 1.0, 1.0, 1.0], "+++-"),
        ("fraction(a, 20) >= 0.05", &[0.0, 1.0, 0.0], "-++"),
        ("fraction(a > 2 or a < -2, 2) < 1", &[3.0, 0.0, -3.0, 3.0], "+++-"),
        // count, run
        ("count(a) <= 1", &[0.0, 1.0, 0.0, 1.0, 0.0], "+++--"),
        ("count(a, 2) <= 1", &[1.0, 1.0, 0.0, 1.0], "+-++"),
        ("run(a) < 2", &[1.0, 0.0, 1.0, 1.0, 0.0, 1.0], "+++-++"),
        ("run(a) + count(a) < 4", &[1.0, 0.0, 1.0, 1.0], "+++-"),
        // undefined: Kleene's logic, and a rule that is undefined holds
        ("mean(a, 2) > 5 and a > 0", &[1.0, 1.0], "+-"),
        ("mean(a, 2) > 5 and a > 0", &[0.0, 12.0], "-+"),
        ("mean(a, 2) > 5 or a > 0", &[0.0, 0.0], "+-"),
        ("not (mean(a, 2) > 5 or a > 0)", &[1.0, -1.0], "-+"),
        ("not mean(a, 2) > 5", &[9.0, 9.0], "+-"),
        ("abs(mean(a, 2)) + 1 <= max(2, -mean(a, 2))", &[9.0, 9.0, -7.0], "+-+"),
        ("mean(a, 2)", &[0.0, 0.0], "+-"),
        // precedence
        ("a > 0 or a < -1 and b < 0", &[1.0, -2.0], "+-"),
        ("not a > 0 and b > 0", &[1.0, 0.0], "-+"),
        ("not (a > 0 and b < 0)", &[1.0, 0.0], "++"),
        ("1 + a * 2 - 4 / 2 == -a - -1 * 5", &[2.0, 0.0], "+-"),
        ("2 - 1 - 1 == 0 and 8 / 4 / 2 == 1 and -2 * -a == 2 * a", &[3.0], "+"),
        ("a != 2 and a == a", &[1.0, 2.0], "+-"),
        ("min(a, 2) == 2 and max(a, 3) == 3", &[1.0, 2.0, 3.0, 4.0], "-++-"),
    ];
    for (text, a, expected) in table {
        let given = holds(text, a);
        assert_eq!(&given, expected, "{text} over {a:?}");
    }
}

#[test]
fn numbers_that_are_not_finite_make_a_step_unsafe() {
    for bad in [NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for text in
            ["a > 0 or b == 1", "not (a > 0)", "a != 0", "not a", "count(a > 5) <= 9", "b or a", "max(a, 1) >= 1"]
        {
            assert_eq!(holds(text, &[1.0, bad])[1..], *"-", "{text}, {bad}");
        }
        assert_eq!(holds("b == 1", &[bad]), "+", "a signal that the rule does not read");
        assert_eq!(
            holds("mean(a, 2) < 9", &[1.0, bad, 1.0, 1.0]),
            "+--+",
            "a mean is not finite while its window covers the number"
        );
        assert_eq!(holds("mean(a, 3) < 9", &[bad, 1.0, 1.0, 1.0]), "-+-+");
        assert_eq!(holds("fraction(a > 0, 2) <= 1", &[1.0, bad, 1.0]), "+-+");
    }
    assert_eq!(holds("b / a > 0", &[1.0, 0.0]), "+-", "division by zero");
    assert_eq!(holds("a * a > 0", &[1.0, 1e200]), "+-", "overflow");
    let rule = Rule::parse("a < 1", &["a", "b"]).unwrap();
    assert!(!rule.judge().step(&[]), "a missing signal");
    assert_eq!(rule.first_violation(&[0.0; 4], 0..3), Some(2), "a missing row");
}

#[test]
fn numbers_that_left_a_window_do_not_affect_it() {
    // A running sum that subtracts would be left with 5.6e-17 here.
    assert_eq!(holds("mean(a, 4) <= 0", &[0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0]), "+++---++");
    assert_eq!(holds("mean(a, 2) <= 1", &[1e300, 1e300, 1.0, 1.0]), "+--+");
}

#[derive(Clone, Debug)]
enum Expr {
    Number(i8),
    Signal(usize),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    /// name, operand, window
    Aggregate(&'static str, Box<Expr>, Option<usize>),
}
use Expr::{Aggregate, Binary, Number, Signal, Unary};

impl Expr {
    fn text(&self) -> String {
        match self {
            Number(n) => format!("({n})"),
            Signal(s) => ["a", "b"][*s].to_owned(),
            Unary("abs", x) => format!("abs({})", x.text()),
            Unary(op, x) => format!("({op} {})", x.text()),
            Binary(op @ ("min" | "max"), x, y) => format!("{op}({}, {})", x.text(), y.text()),
            Binary(op, x, y) => format!("({} {op} {})", x.text(), y.text()),
            Aggregate(name, x, Some(n)) => format!("{name}({}, {n})", x.text()),
            Aggregate(name, x, None) => format!("{name}({})", x.text()),
        }
    }

    /// The value at the last of these steps; clears `finite` if any part of it is not finite.
    fn value(&self, history: &[[f64; 2]], finite: &mut bool) -> Option<f64> {
        let value = match self {
            Number(n) => Some(f64::from(*n)),
            Signal(s) => Some(history[history.len() - 1][*s]),
            Unary(op, x) => {
                let x = x.value(history, finite);
                match *op {
                    "-" => x.map(|x| -x),
                    "abs" => x.map(f64::abs),
                    _ => x.map(|x| f64::from(x == 0.0)),
                }
            }
            Binary(op, x, y) => {
                let (x, y) = (x.value(history, finite), y.value(history, finite));
                match (*op, x.map(|x| x != 0.0), y.map(|y| y != 0.0)) {
                    ("and", Some(false), _) | ("and", _, Some(false)) => Some(0.0),
                    ("or", Some(true), _) | ("or", _, Some(true)) => Some(1.0),
                    (op, Some(_), Some(_)) => {
                        let (x, y) = (x.unwrap(), y.unwrap());
                        Some(match op {
                            "and" => 1.0,
                            "or" => 0.0,
                            "+" => x + y,
                            "-" => x - y,
                            "*" => x * y,
                            "min" => x.min(y),
                            "max" => x.max(y),
                            "<" => f64::from(x < y),
                            "<=" => f64::from(x <= y),
                            ">" => f64::from(x > y),
                            ">=" => f64::from(x >= y),
                            "==" => f64::from(x == y),
                            _ => f64::from(x != y),
                        })
                    }
                    _ => None,
                }
            }
            Aggregate(name, x, n) => {
                let steps = history.len();
                x.value(history, finite);
                let all: Vec<f64> = (1..=steps).map(|t| x.value(&history[..t], &mut true).unwrap()).collect();
                let last = &all[steps - n.unwrap_or(steps).min(steps)..];
                let count = last.iter().filter(|x| **x != 0.0).count() as f64;
                match (*name, n) {
                    ("mean", Some(n)) => (steps >= *n).then(|| last.iter().sum::<f64>() / *n as f64),
                    ("fraction", Some(n)) => Some(count / *n as f64),
                    ("run", _) => Some(all.iter().rev().take_while(|x| **x != 0.0).count() as f64),
                    _ => Some(count),
                }
            }
        };
        *finite &= value.is_none_or(f64::is_finite);
        value
    }

    fn holds(&self, history: &[[f64; 2]]) -> bool {
        let mut finite = true;
        let value = self.value(history, &mut finite);
        finite && value != Some(0.0)
    }
}

fn leaf() -> BoxedStrategy<Expr> {
    prop_oneof![(-3i8..4).prop_map(Number), (0usize..2).prop_map(Signal)].boxed()
}

fn numbers(leaf: BoxedStrategy<Expr>) -> BoxedStrategy<Expr> {
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (prop::sample::select(vec!["-", "abs"]), inner.clone()).prop_map(|(op, x)| Unary(op, x.into())),
            // No division: sums of thirds are not exact, so one that is 0 in one order may not be in another.
            (prop::sample::select(vec!["+", "-", "*", "min", "max"]), inner.clone(), inner)
                .prop_map(|(op, x, y)| Binary(op, x.into(), y.into())),
        ]
    })
    .boxed()
}

fn conditions(number: BoxedStrategy<Expr>) -> BoxedStrategy<Expr> {
    let comparison = (prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]), number.clone(), number.clone())
        .prop_map(|(op, x, y)| Binary(op, x.into(), y.into()));
    prop_oneof![3 => comparison, 1 => number]
        .prop_recursive(3, 8, 2, |inner| {
            prop_oneof![
                inner.clone().prop_map(|x| Unary("not", x.into())),
                (prop::sample::select(vec!["and", "or"]), inner.clone(), inner).prop_map(|(op, x, y)| Binary(
                    op,
                    x.into(),
                    y.into()
                )),
            ]
        })
        .boxed()
}

/// Rules with aggregates over plain expressions.
fn rules() -> BoxedStrategy<Expr> {
    let mean = (numbers(leaf()), 1usize..9).prop_map(|(x, n)| Aggregate("mean", x.into(), Some(n)));
    let windows = (prop::sample::select(vec!["fraction", "count"]), conditions(numbers(leaf())), 1usize..9)
        .prop_map(|(name, x, n)| Aggregate(name, x.into(), Some(n)));
    let totals = (prop::sample::select(vec!["count", "run"]), conditions(numbers(leaf())))
        .prop_map(|(name, x)| Aggregate(name, x.into(), None));
    conditions(numbers(prop_oneof![leaf(), mean, windows, totals].boxed()))
}

/// Small integers, whose sums are exact in any order, and occasionally a number that is not finite.
fn history(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<[f64; 2]>> {
    let number = || prop_oneof![60 => (-3i8..4).prop_map(f64::from), 1 => Just(NAN), 1 => Just(f64::INFINITY)];
    prop::collection::vec([number(), number()], steps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn judging_step_by_step_equals_evaluating_the_whole_history(expr in rules(), history in history(1..40)) {
        let rule = Rule::parse(&expr.text(), &["a", "b"]).unwrap();
        let mut judge = rule.judge();
        for t in 1..=history.len() {
            prop_assert_eq!(judge.step(&history[t - 1]), expr.holds(&history[..t]), "{} at step {}", rule.text(), t);
        }
    }

    #[test]
    fn first_violation_equals_judging_prefix_by_prefix(
        expr in rules(), history in history(1..24), start in any::<prop::sample::Index>(),
    ) {
        let rule = Rule::parse(&expr.text(), &["a", "b"]).unwrap();
        let start = start.index(history.len());
        let violation = rule.first_violation(history.as_flattened(), start..history.len());
        for end in start + 1..=history.len() {
            let mut judge = rule.judge();
            history[start..end].iter().for_each(|signals| { judge.step(signals); });
            prop_assert_eq!(judge.safe(), violation.is_none_or(|at| end <= at));
            prop_assert_eq!(judge.safe(), (start + 1..=end).all(|e| expr.holds(&history[start..e])));
        }
    }
}
