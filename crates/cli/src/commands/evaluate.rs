//! The commands `prudence eval` and `prudence plot`.

use anyhow::bail;
use prudence::{AlgoResult, CurveKind, ReplicaSummary, Task, TestSettings, files, percent};

use super::{print_json, print_table, refuse_existing};
use crate::args::{EvalArgs, FigureName, PlotArgs};
use crate::progress::session;

pub fn eval(args: EvalArgs) -> anyhow::Result<()> {
    let task = Task::open(&args.run)?;
    let settings = TestSettings { episodes: args.episodes, first: args.first, sampled: args.sampled, rules: args.rule };
    let session = session(args.common.threads, args.common.quiet)?;
    let results = prudence::evaluate(&task, &args.run, &settings, &session)?;
    if args.common.json {
        return print_json(&results);
    }
    print_results(&results);
    Ok(())
}

/// Prints the tables of results of `run` and `eval`, one for each rule.
pub fn print_results(results: &[AlgoResult]) {
    for of_rule in results.chunk_by(|a, b| a.rule == b.rule) {
        if let Some(rule) = of_rule.first().and_then(|result| result.rule.as_ref()) {
            println!("by the rule {rule}:");
        }
        print_table(
            &["algorithm", "return", "safe", "share", "95 %", "safe steps", "model accuracy"],
            of_rule.iter().map(row).collect(),
        );
    }
    let several = results.iter().any(|result| !result.per_replica.is_empty());
    if several {
        let row = |result: &AlgoResult, replica: &ReplicaSummary| {
            vec![
                result.algo.clone(),
                replica.replica.to_string(),
                format!("{:.2}", replica.return_mean),
                format!("{}/{}", replica.safe, replica.episodes),
            ]
        };
        let rows = results.iter().flat_map(|result| result.per_replica.iter().map(move |replica| row(result, replica)));
        print_table(&["algorithm", "replica", "return", "safe"], rows.collect());
    }
}

fn row(result: &AlgoResult) -> Vec<String> {
    let mean = format!("{:.2}", result.return_mean);
    // A single seed says nothing about the variation over seeds.
    let returns = if result.seeds == 1 { mean } else { format!("{mean} ± {:.2}", result.return_sd) };
    let interval = match &result.over_replicas {
        Some(over) => Some(over.safe_share.t_interval.map(|share| share.clamp(0.0, 1.0))),
        None if result.per_replica.is_empty() => Some(result.interval),
        None => None, // too few replicas
    };
    let interval = interval.filter(|[low, _]| !low.is_nan()); // all replicas agree
    let interval = interval.map(|limits| limits.map(|share| format!("{:.1}", 100.0 * share)).join("–"));
    let optional = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
    vec![
        result.algo.clone(),
        returns,
        format!("{}/{}", result.safe, result.episodes),
        percent(result.safe_share),
        interval.unwrap_or_else(|| "-".to_owned()),
        optional(result.steps_kept),
        optional(result.model_accuracy),
    ]
}

pub fn plot(args: PlotArgs) -> anyhow::Result<()> {
    if args.out.extension().is_none_or(|extension| extension != "svg") {
        bail!("--out {}: expected a name that ends with .svg", args.out.display());
    }
    refuse_existing("--out", &args.out, args.force)?;
    if let Some(twice) = args.runs.iter().enumerate().find_map(|(i, run)| args.runs[..i].contains(run).then_some(run)) {
        bail!("{}: this run appears twice", twice.display());
    }
    let kind = match args.figure {
        FigureName::LearningCurves => CurveKind::Learning,
        FigureName::Multiplier => CurveKind::Multiplier,
    };
    let figure = prudence::plot(&args.runs, kind)?;
    files::write_atomic(&args.out, figure.svg.as_bytes()).map_err(prudence::Error::from)?;
    println!("figure: {}", args.out.display());
    Ok(())
}
