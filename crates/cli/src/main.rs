//! The binary `prudence`.
mod config;
mod experiment;
mod progress;
mod stages;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = std::path::PathBuf::from(args.next().unwrap());
    let sets: Vec<String> = args.collect();
    let config = config::resolve("navigation", &[], &sets)?;
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("config.toml"), config.to_toml()?)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    let progress = progress::Progress::new(false);
    let watch = prudence_agent::clock::Stopwatch::start();
    let out = experiment::Experiment { config: &config, dir: &dir, pool: &pool, progress: &progress }.run()?;
    for (r, round) in out.rounds.iter().enumerate() {
        let all: Vec<_> = round.agents.iter().flat_map(|a| &a.tests).collect();
        let n = all.len() as f64;
        let own: Vec<(f64, bool)> = all.iter().map(|t| (t.log_prob().unwrap_or(0.0), t.safe)).collect();
        let q = prudence_safety::quality::Quality::of(&own);
        println!("round {r}: safe {:.3} return {:.2} own acc {:.3} heldout {:?}", all.iter().filter(|t| t.safe).count() as f64 / n, all.iter().map(|t| t.total_reward).sum::<f64>() / n, q.accuracy, round.fitted.held_out);
    }
    println!("{:.1} s", watch.seconds());
    Ok(())
}
