//! The commands `prudence eval` and `prudence plot`.

use anyhow::bail;
use prudence::{AlgoResult, CurveKind, RunFolder, Task, TestSettings, files};

use super::{print_json, print_table, refuse_existing};
use crate::args::{EvalArgs, FigureName, PlotArgs};
use crate::progress::session;

pub fn eval(args: EvalArgs) -> anyhow::Result<()> {
    RunFolder::open(&args.run)?;
    let task = Task::open(&args.run)?;
    let settings = TestSettings { episodes: args.episodes, first: args.first, sampled: args.sampled };
    let session = session(args.common.threads, args.common.quiet)?;
    let results = prudence::evaluate(&task, &args.run, settings, &session)?;
    if args.common.json {
        return print_json(&results);
    }
    print_results(&results);
    Ok(())
}

/// Prints the table of results of `run` and `eval`.
pub fn print_results(results: &[AlgoResult]) {
    let percent = |x: f64| format!("{:.1}", 100.0 * x);
    let row = |r: &AlgoResult| {
        let mean = format!("{:.2}", r.return_mean);
        let [low, high] = r.seed_interval.map(percent);
        // A single seed says nothing about the variation over seeds.
        let (returns, over_seeds) = if r.seeds == 1 {
            (mean, "-".to_owned())
        } else {
            (format!("{mean} ± {:.2}", r.return_sd), format!("{low}–{high}"))
        };
        vec![
            r.algo.clone(),
            r.seeds.to_string(),
            returns,
            format!("{}/{}", r.safe, r.episodes),
            format!("{} %", percent(r.safe_share)),
            format!("{}–{}", percent(r.interval[0]), percent(r.interval[1])),
            over_seeds,
        ]
    };
    let headings = ["algorithm", "seeds", "return", "safe", "share", "95 % interval", "over seeds"];
    print_table(&headings, results.iter().map(row).collect());
}

pub fn plot(args: PlotArgs) -> anyhow::Result<()> {
    if args.out.extension().is_none_or(|extension| extension != "svg") {
        bail!("--out {}: expected a name that ends with .svg", args.out.display());
    }
    refuse_existing("--out", &args.out)?;
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
