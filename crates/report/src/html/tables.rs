//! The tables of the report.

use crate::figure::{colour, display_name};
use prudence_safety::Quality;

use crate::records::{AlgoResult, ENOUGH_REPLICAS, Evaluation, OverReplicas, ReplicaSummary, Round};
use crate::statistics::within_0_1;

use super::words::{
    NOTHING, Verdict, escape, mean_sd, number, percent, percent_range, range, short_percent, thousands,
};

/// A table. A column is a heading and whether it holds numbers, which are right-aligned; cells are finished HTML.
fn table(columns: &[(&str, bool)], rows: &[Vec<String>]) -> String {
    let class = |i: usize| if columns.get(i).is_some_and(|column| column.1) { " class=\"n\"" } else { "" };
    let head: String =
        columns.iter().enumerate().map(|(i, (name, _))| format!("<th scope=\"col\"{}>{name}</th>", class(i))).collect();
    let row = |cells: &Vec<String>| -> String {
        let cells: String = cells.iter().enumerate().map(|(i, cell)| format!("<td{}>{cell}</td>", class(i))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"wide\">\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n"
    )
}

/// The name of an algorithm with its colour in the figures.
fn algorithm(algo: &str) -> String {
    let (colour, name) = (colour(algo), escape(display_name(algo)));
    format!("<span class=\"algo\"><span class=\"chip\" style=\"background:{colour}\"></span>{name}</span>")
}

/// A share with its interval on a second line.
fn share(share: f64, interval: [f64; 2]) -> String {
    if interval[0].is_nan() {
        return percent(share);
    }
    format!("{} <small>{}</small>", percent(share), percent_range(interval))
}

fn has_replicas(evaluation: &Evaluation) -> bool {
    evaluation.results.iter().any(|result| !result.per_replica.is_empty())
}

pub(super) fn results(evaluation: &Evaluation) -> String {
    let target = format!("Target {}", short_percent(evaluation.target));
    let over = if has_replicas(evaluation) { "replicas" } else { "seeds" };
    let returns = format!("Return <small>mean ± sd over {over}</small>");
    let quartiles = format!("Return, IQM <small>95\u{a0}% interval over {over}</small>");
    let columns = [
        ("Algorithm", false),
        (returns.as_str(), true),
        (quartiles.as_str(), true),
        ("Safe", true),
        ("Safe share <small>95\u{a0}% interval</small>", true),
        ("Over seeds <small>95\u{a0}% interval</small>", true),
        ("Safe steps", true),
        ("Model accuracy <small>own episodes</small>", true),
        (target.as_str(), false),
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for result in &evaluation.results {
        let several = result.seeds > 1;
        let over_seeds = |text: String| if several { text } else { NOTHING.to_owned() };
        let (class, verdict) = match Verdict::of(result, evaluation.target) {
            _ if result.episodes == 0 => ("", NOTHING),
            Verdict::Shown => ("met", "met"),
            Verdict::Reached => ("open", "reached, not significant"),
            Verdict::Missed => ("missed", "missed"),
            Verdict::Same if result.safe_share >= evaluation.target => ("met", "met by every replica"),
            Verdict::Same => ("missed", "missed by every replica"),
            Verdict::TooFew => ("open", "too few replicas to say"),
        };
        let interval = match &result.over_replicas {
            Some(over) => within_0_1(over.safe_share.t_interval),
            None if result.per_replica.is_empty() => result.interval,
            None => [f64::NAN; 2],
        };
        rows.push(vec![
            algorithm(&result.algo),
            mean_sd(result.return_mean, if several { result.return_sd } else { f64::NAN }),
            over_seeds(format!("{} <small>{}</small>", number(result.return_iqm), range(result.return_iqm_interval))),
            format!("{}/{}", thousands(result.safe), thousands(result.episodes)),
            share(result.safe_share, interval),
            over_seeds(percent_range(result.seed_interval)),
            result.steps_kept.map_or_else(|| NOTHING.to_owned(), percent),
            result.model_accuracy.map_or_else(|| NOTHING.to_owned(), percent),
            format!("<span class=\"{class}\">{verdict}</span>"),
        ]);
    }
    for reference in &evaluation.references {
        rows.push(vec![
            format!("<i>{}</i>", escape(&reference.name)),
            number(reference.return_mean),
            String::new(),
            String::new(),
            percent(reference.safe_share),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut effort = String::new();
    if let Some(first) = evaluation.results.first() {
        let same = evaluation.results.iter().all(|result| (result.seeds, result.steps) == (first.seeds, first.steps));
        if same {
            let plural = if first.seeds == 1 { "" } else { "s" };
            effort = format!(" {} seed{plural}, {} environment steps each.", first.seeds, thousands(first.steps));
        }
    }
    let replicas = if has_replicas(evaluation) {
        " With replicas, deviations and intervals are over replicas: t-intervals, cut off at 0 and 100\u{a0}%, from five \
         replicas on."
    } else {
        ""
    };
    let references = if evaluation.references.is_empty() { "" } else { " References (in italics) were not trained." };
    format!(
        "{}<p class=\"about\">Test episodes are judged by the true rule, which neither agents nor models see.{effort} The \
         interval of the safe share is the Clopper-Pearson interval over all episodes; the one over seeds is a bootstrap \
         interval. \u{201c}Safe steps\u{201d} is the share of steps at which the rule holds; \u{201c}model accuracy\u{201d} \
         is the share of the test episodes on which the safety model agrees with the rule.{replicas}{references}</p>\n",
        table(&columns, &rows),
    )
}

/// One row per replica and one column per algorithm, and the statistics over replicas.
pub(super) fn replicas(evaluation: &Evaluation) -> String {
    let Some(first) = evaluation.results.iter().find(|result| !result.per_replica.is_empty()) else {
        return String::new();
    };
    let names: Vec<String> = evaluation.results.iter().map(|result| algorithm(&result.algo)).collect();
    let columns: Vec<(&str, bool)> =
        std::iter::once(("Replica", false)).chain(names.iter().map(|name| (name.as_str(), true))).collect();
    let cell = |result: &AlgoResult, i: usize| {
        let Some(replica) = result.per_replica.get(i) else { return String::new() };
        let below = if replica.safe_share < evaluation.target { "missed" } else { "" };
        let (share, gain) = (percent(replica.safe_share), number(replica.return_mean));
        format!(
            "<span class=\"{below}\">{share}</span> <small>{}/{}, return {gain}</small>",
            thousands(replica.safe),
            thousands(replica.episodes)
        )
    };
    let row = |(i, replica): (usize, &ReplicaSummary)| -> Vec<String> {
        let cells = evaluation.results.iter().map(|result| cell(result, i));
        std::iter::once(replica.replica.to_string()).chain(cells).collect()
    };
    let mut rows: Vec<Vec<String>> = first.per_replica.iter().enumerate().map(row).collect();
    type Of = fn(&OverReplicas) -> String;
    let over: [(&str, Of); 3] = [
        ("mean", |over| {
            let returns = mean_sd(over.return_mean.mean, over.return_mean.sd);
            format!("{} <small>return {returns}</small>", percent(over.safe_share.mean))
        }),
        ("95\u{a0}% t-interval", |over| {
            let (shares, returns) = (over.safe_share.t_interval, range(over.return_mean.t_interval));
            format!("{} <small>return {returns}</small>", percent_range(within_0_1(shares)))
        }),
        ("95\u{a0}% bootstrap interval", |over| {
            let (shares, returns) = (over.safe_share.bootstrap_interval, range(over.return_mean.bootstrap_interval));
            format!("{} <small>return {returns}</small>", percent_range(shares))
        }),
    ];
    if evaluation.results.iter().any(|result| result.over_replicas.is_some()) {
        for (name, of) in over {
            let cells = evaluation.results.iter().map(|r| r.over_replicas.as_ref().map_or(String::new(), of));
            rows.push(std::iter::once(format!("<i>{name}</i>")).chain(cells).collect());
        }
    }
    let few = first.per_replica.len() < ENOUGH_REPLICAS;
    let intervals = if few { " With fewer than five replicas, an interval over them would say little." } else { "" };
    table(&columns, &rows)
        + &format!(
            "<p class=\"about\">A replica is an independent repetition of the whole run: its own collected episodes, \
             labels, safety models and agents.{intervals}</p>\n"
        )
}

/// One row per seed and one column per algorithm, so that the algorithms can be compared at each seed.
pub(super) fn seeds(evaluation: &Evaluation) -> String {
    let mut seeds: Vec<u64> = evaluation.results.iter().flat_map(|r| r.per_seed.iter().map(|seed| seed.seed)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    if seeds.is_empty() {
        return String::new();
    }
    let names: Vec<String> = evaluation.results.iter().map(|result| algorithm(&result.algo)).collect();
    let columns: Vec<(&str, bool)> =
        std::iter::once(("Seed", false)).chain(names.iter().map(|name| (name.as_str(), true))).collect();
    let cell = |result: &AlgoResult, seed: u64| {
        let Some(seed) = result.per_seed.iter().find(|summary| summary.seed == seed) else {
            return String::new();
        };
        let below = if seed.safe_share < evaluation.target { "missed" } else { "" };
        let (share, interval, gain) =
            (percent(seed.safe_share), percent_range(seed.interval), number(seed.return_mean));
        format!("<span class=\"{below}\">{share}</span> <small>{interval}</small><small>return {gain}</small>")
    };
    let row = |seed: &u64| -> Vec<String> {
        let cells = evaluation.results.iter().map(|result| cell(result, *seed));
        std::iter::once(seed.to_string()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = seeds.iter().map(row).collect();
    table(&columns, &rows)
        + "<p class=\"about\">Share of safe test episodes, its 95\u{a0}% Clopper-Pearson interval, and the mean return. Shares \
           below the target are in bold red-brown.</p>\n"
}

pub(super) fn rounds(evaluation: &Evaluation) -> String {
    if evaluation.rounds.is_empty() {
        return String::new();
    }
    let over = if has_replicas(evaluation) { "replicas" } else { "seeds" };
    let returns = format!("Return <small>mean ± sd over {over}</small>");
    let columns = [
        ("Round", true),
        ("Algorithm", false),
        (returns.as_str(), true),
        ("Safe", true),
        ("Safe share <small>95\u{a0}% interval</small>", true),
        ("Model accuracy <small>held-out</small>", true),
        ("Model accuracy <small>own episodes</small>", true),
    ];
    let row = |round: &Round| {
        vec![
            round.round.to_string(),
            algorithm(&round.algo),
            mean_sd(round.return_mean, round.return_sd),
            format!("{}/{}", thousands(round.safe), thousands(round.episodes)),
            share(round.safe_share, round.interval),
            percent(round.accuracy),
            percent(round.own_accuracy),
        ]
    };
    let rows: Vec<Vec<String>> = evaluation.rounds.iter().map(row).collect();
    table(&columns, &rows)
        + "<p class=\"about\">After each round the agents' own episodes are labelled, the safety model is refitted and new \
           agents are trained, because agents visit states that the model was not trained on.</p>\n"
}

pub(super) fn safety_model(evaluation: &Evaluation) -> String {
    let columns = [
        ("Evaluated on", false),
        ("Episodes", true),
        ("Accuracy", true),
        ("Balanced accuracy", true),
        ("Truly safe", true),
        ("Safe called unsafe", true),
        ("Unsafe called safe", true),
    ];
    let row = |name: &str, judged: &Quality| {
        vec![
            name.to_owned(),
            thousands(judged.episodes),
            percent(judged.accuracy),
            percent(judged.balanced_accuracy),
            percent(judged.safe_share),
            percent(judged.safe_called_unsafe),
            percent(judged.unsafe_called_safe),
        ]
    };
    let model = &evaluation.safety_model;
    let mut rows = vec![row("held-out episodes of the data", &model.held_out)];
    if let Some(own) = &model.own {
        rows.push(row("the agents' own episodes", own));
    }
    let data = match (model.data_episodes, model.data_segments) {
        (0, _) => String::new(),
        (episodes, 0) => format!("Fitted on {} labelled episodes. ", thousands(episodes)),
        (episodes, segments) => format!(
            "Fitted on {} labelled episodes with {} labelled segments. ",
            thousands(episodes),
            thousands(segments)
        ),
    };
    format!(
        "{}<p class=\"about\">{data}If most episodes are of one class, accuracy alone is misleading; consider both error \
         rates. \u{201c}Unsafe called safe\u{201d} is the dangerous error, \u{201c}safe called unsafe\u{201d} the costly \
         one.</p>\n",
        table(&columns, &rows)
    )
}
