//! `prudence eval` and `prudence plot`: what trained agents are worth.

use std::path::Path;

use anyhow::bail;
use prudence_agent::Algorithm;
use prudence_agent::evaluate::test;
use prudence_data::files::write_atomic;
use prudence_report::figure;
use prudence_report::records::AlgoResult;
use rayon::prelude::*;

use super::{pool, print_json, print_table};
use crate::args::{EvalArgs, FigureName, PlotArgs};
use crate::config::Config;
use crate::experiment::Tested;
use crate::folder::{self, AgentFolder, refuse_existing};
use crate::progress::Progress;
use crate::{reporting, stages};

/// `eval` starts its test episodes here: neither those along the way nor those of the report.
const FIRST: u64 = 1 << 40;

pub fn eval(args: EvalArgs) -> anyhow::Result<()> {
    let (config, _) = folder::open(&args.run)?;
    let agents = folder::agents(&args.run)?;
    let progress = Progress::new(args.common.quiet);
    let bar = progress.bar("testing", agents.len() as u64);
    let one = |agent: &AgentFolder| -> anyhow::Result<Tested> {
        let tested = test_agent(&config, &args.run, agent, &args);
        bar.advance();
        tested
    };
    let tested: Vec<Tested> =
        pool(&args.common)?.install(|| agents.par_iter().map(one).collect::<anyhow::Result<Vec<_>>>())?;
    drop(bar);
    let mut results = Vec::new();
    for algorithm in Algorithm::ALL {
        let of: Vec<&Tested> = tested.iter().filter(|t| t.algorithm == algorithm).collect();
        if !of.is_empty() {
            let first = agents.iter().find(|agent| agent.algorithm == algorithm);
            let records = first.map(AgentFolder::records).transpose()?.unwrap_or_default();
            let steps = records.last().map_or(0, |record| record.step);
            results.push(reporting::result(algorithm, steps, &of));
        }
    }
    if args.common.json {
        return print_json(&results);
    }
    print_results(&results);
    Ok(())
}

/// The table of results, as `run` and `eval` print it.
pub fn print_results(results: &[AlgoResult]) {
    let percent = |x: f64| format!("{:.1}", 100.0 * x);
    let row = |r: &AlgoResult| {
        let mean = format!("{:.2}", r.return_mean);
        let [low, high] = r.seed_interval.map(percent);
        let (returns, over_seeds) = match r.seeds {
            1 => (mean, "-".into()), // one seed tells nothing of others
            _ => (format!("{mean} ± {:.2}", r.return_sd), format!("{low}–{high}")),
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

fn test_agent(config: &Config, run: &Path, agent: &AgentFolder, args: &EvalArgs) -> anyhow::Result<Tested> {
    let (mut player, policy) = stages::load_agent(config, run, agent)?;
    let first = FIRST + args.first;
    let rule = config.parsed_rule()?;
    let tests = test(&mut player, &rule, &policy, first..first + args.episodes, agent.seed, args.sampled)?;
    Ok(Tested { algorithm: agent.algorithm, seed: agent.seed, kept_step: None, tests, sampled: Vec::new() })
}

pub fn plot(args: PlotArgs) -> anyhow::Result<()> {
    if args.out.extension().is_none_or(|extension| extension != "svg") {
        bail!("--out {}: expected a name that ends with .svg", args.out.display());
    }
    refuse_existing(&args.out)?;
    if let Some(twice) = args.runs.iter().enumerate().find_map(|(i, run)| args.runs[..i].contains(run).then_some(run)) {
        bail!("{}: given twice", twice.display());
    }
    let mut target = f64::NAN;
    for run in &args.runs {
        target = folder::open(run)?.0.target;
    }
    let (learning, multipliers) = reporting::curves(&args.runs)?;
    let figure = match args.figure {
        FigureName::LearningCurves => figure::learning_curves(&learning, target),
        FigureName::Multiplier => figure::multiplier(&multipliers),
    };
    write_atomic(&args.out, figure.svg.as_bytes())?;
    println!("figure: {}", args.out.display());
    Ok(())
}
