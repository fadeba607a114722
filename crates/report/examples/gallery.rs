//! Draws every figure and a report from synthetic data, for people who work on the figures.
//!
//!     cargo run -p prudence-report --example gallery -- /tmp/gallery

use std::error::Error;
use std::io::Write as _;
use std::path::Path as FilePath;

use prudence_core::random::{Stream, stream};
use prudence_core::{Scene, Zone};
use prudence_report::figure::{self, Curve, MultiplierCurve, Path};
use prudence_report::html::Report;
use prudence_report::records::{AlgoResult, Evaluation, ModelQuality, Reference, Round, SeedResult};
use prudence_safety::Quality;
use rand_core::Rng as _;

const ALGOS: [&str; 4] = ["sac", "safesac-h", "safesac-noh", "safesac-nonlb"];
/// The final return and the final safe share of each algorithm.
const ENDS: [(f64, f64); 4] = [(-51.6, 0.03), (-67.0, 0.955), (-76.5, 0.86), (-70.4, 0.915)];

const START: [f64; 2] = [1.0, 1.0];
const DISC: [f64; 2] = [5.3, 5.9];
const RADIUS: f64 = 1.5;

fn uniform(random: &mut Stream) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// An approximately normal number.
fn noise(random: &mut Stream) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: gallery FOLDER")?;
    let folder = FilePath::new(&folder);
    std::fs::create_dir_all(folder)?;

    let evaluation = evaluation(10);
    let scene = Scene {
        bounds: [0.0, 10.0, 0.0, 10.0],
        zones: vec![Zone::Disc(DISC, RADIUS)],
        marks: vec![("start".into(), START)],
        ..Scene::default()
    };
    let held_out = predictions(400, 0.12, 1.0);
    let own = predictions(300, 0.8, 0.6);
    let series = [("held-out episodes".to_owned(), held_out), ("the agents' own episodes".to_owned(), own)];
    let figures = [
        figure::learning_curves(&curves(), evaluation.target),
        figure::seeds(&evaluation.results, evaluation.target),
        figure::multiplier(&multipliers()),
        figure::rounds(&evaluation.rounds, evaluation.target),
        figure::reliability(&series),
        figure::paths(&scene, &groups()),
    ];
    for figure in &figures {
        write(&folder.join(figure.name).with_extension("svg"), &figure.svg)?;
    }
    let report = Report {
        evaluation: &evaluation,
        figures: &figures,
        config: "task = \"navigation\"\nseeds = 10\nrounds = 2\n\n[agent]\nhidden = [64, 64]\nbatch = 64\ntarget = 0.9\n",
        commands: &["prudence run navigation --algo all --seeds 10 --rounds 2".to_owned()],
        version: env!("CARGO_PKG_VERSION"),
        notes: &["These numbers are synthetic; the gallery shows what a report looks like.".to_owned()],
        foot: "Rule: count(in_danger) <= 1.",
    };
    write(&folder.join("report.html"), &report.to_html())?;
    Ok(())
}

fn write(path: &FilePath, text: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

fn evaluation(seeds: u64) -> Evaluation {
    let result = |i: usize, back: f64| {
        let (return_end, share) = ENDS[i];
        let seed = |seed: u64| {
            let mut random = stream(seed, ALGOS[i], (10.0 * back) as u64);
            let share = share - 0.1 * back + 0.03 * noise(&mut random);
            let level = return_end - 6.0 * back + 3.0 * noise(&mut random);
            let returns = (0..100).map(|_| level + 5.0 * noise(&mut random)).collect();
            SeedResult { seed, returns, safe: (0..100).map(|_| uniform(&mut random) < share).collect() }
        };
        AlgoResult::from_seeds(ALGOS[i], 60_000, &(0..seeds).map(seed).collect::<Vec<_>>())
    };
    let rounds = (0..3).flat_map(|round| {
        let back = 2.0 - round as f64;
        (1..3).map(move |i| Round::new(round, &result(i, back), 0.98, 0.96 - 0.025 * back - 0.01 * i as f64))
    });
    let judged = |n, safe, trust| {
        let log: Vec<_> = predictions(n, safe, trust).iter().map(|(p, safe)| (p.ln(), *safe)).collect();
        Quality::of(&log)
    };
    Evaluation {
        task: "navigation".into(),
        target: 0.9,
        safety_model: ModelQuality {
            held_out: judged(400, 0.12, 1.0),
            own: Some(judged(300, 0.8, 0.6)),
            data_episodes: 4_000,
            data_segments: 52_000,
        },
        results: (0..4).map(|i| result(i, 0.0)).collect(),
        rounds: rounds.collect(),
        references: vec![
            Reference {
                name: "best policy that never enters a zone (dynamic programming)".into(),
                return_mean: -63.2,
                safe_share: 1.0,
            },
            Reference { name: "standing still".into(), return_mean: -141.0, safe_share: 1.0 },
        ],
    }
}

fn curves() -> Vec<Curve> {
    let curve = |i: usize| {
        let seed = |seed: u64| {
            let mut random = stream(seed, "curve", i as u64);
            let (level, share) = (ENDS[i].0 + 3.0 * noise(&mut random), ENDS[i].1 + 0.03 * noise(&mut random));
            (0..=60)
                .map(|k| {
                    let (step, left) = (1000.0 * f64::from(k), (-f64::from(k) / 12.0).exp());
                    let safe = share + (0.3 - share) * left + 0.04 * noise(&mut random);
                    (step, level - 80.0 * left + 1.5 * noise(&mut random), safe.clamp(0.0, 1.0))
                })
                .collect()
        };
        Curve { label: ALGOS[i].into(), seeds: (0..10).map(seed).collect() }
    };
    (0..4).map(curve).collect()
}

fn multipliers() -> Vec<MultiplierCurve> {
    let curve = |i: usize| {
        let seed = |seed: u64| {
            let mut random = stream(seed, "multiplier", i as u64);
            let end = 1.8 + 0.5 * i as f64 + 0.3 * noise(&mut random);
            let mut wander = 0.0;
            (0..=60)
                .map(|k| {
                    wander = 0.9 * wander + 0.05 * noise(&mut random);
                    let lambda = end * (1.0 - (-(f64::from(k) - 5.0).max(0.0) / 10.0).exp()) + wander;
                    (1000.0 * f64::from(k), if k <= 5 { 0.0 } else { lambda.max(0.0) })
                })
                .collect()
        };
        MultiplierCurve { label: ALGOS[i].into(), seeds: (0..5).map(seed).collect() }
    };
    (1..4).map(curve).collect()
}

/// Predictions of a model that is calibrated if `trust` is 1 and overconfident if it is less.
fn predictions(count: u64, safe: f64, trust: f64) -> Vec<(f64, bool)> {
    let mut random = stream(count, "predictions", 0);
    let one = |_| {
        let centre = if uniform(&mut random) < safe { 3.0 } else { -3.5 };
        let logit = centre + 2.0 * noise(&mut random);
        let truth = 1.0 / (1.0 + (-trust * logit).exp());
        (1.0 / (1.0 + (-logit).exp()), uniform(&mut random) < truth)
    };
    (0..count).map(one).collect()
}

/// Episodes in a scene with one zone: paths that bend away from the straight line to the goal, in steps of about 0.9.
fn groups() -> Vec<(String, Vec<Path>)> {
    let path = |bend: f64, index: u64| {
        let mut random = stream(index, "path", (10.0 * bend) as u64);
        let bend = bend + 0.4 * noise(&mut random);
        let mut path = Path { xy: vec![START], blame: vec![], safe: true };
        let mut dangers = 0;
        for k in 1..=20 {
            let t = (f64::from(k) / 13.0).min(1.0);
            let off = bend * (std::f64::consts::PI * t).sin();
            let mean = [START[0] + 7.0 * t + off, START[1] + 8.0 * t - 0.5 * off];
            let place = mean.map(|c| (c + 0.15 * noise(&mut random)).clamp(0.0, 10.0));
            let danger = (place[0] - DISC[0]).hypot(place[1] - DISC[1]) < RADIUS;
            dangers += u32::from(danger);
            path.safe = dangers <= 1;
            path.blame.push(match dangers {
                1 if danger => 0.4 + uniform(&mut random),
                2.. if danger => 3.0 + 4.0 * uniform(&mut random),
                _ => 0.05 * uniform(&mut random),
            });
            path.xy.push(place);
        }
        path
    };
    let group = |label: &str, bend: f64| (label.to_owned(), (0..12).map(|index| path(bend, index)).collect());
    vec![group("sac", 0.2), group("safesac-h", 2.4), group("safesac-noh", 1.6)]
}
