//! The command `prudence data`: what is stored, whether it is sound, and one episode of it.

use std::path::{Path, PathBuf};

use anyhow::bail;
use prudence::files::write_atomic;
use prudence::{Error, StoreInfo, StoredEpisode, load_model, percent};
use prudence_report::film::Pose;
use serde_json::{Map, Value, json};

use super::rollout::{drawing, pose};
use super::{print_json, print_table, refuse_existing};
use crate::args::DataCommand;

pub fn data(command: DataCommand) -> anyhow::Result<()> {
    match command {
        DataCommand::Info { dir, json } => info(dir, json),
        DataCommand::Check { dir, json } => check(&dir, json),
        DataCommand::Show { store, episode, safety, out, force, json } => {
            let model = safety.as_deref().map(load_model).transpose()?;
            let drawn = StoredEpisode::read(&store, episode, model)?;
            match out {
                Some(out) => draw(&drawn, &store, &out, force),
                None => show(&drawn, json),
            }
        }
    }
}

fn info(dir: PathBuf, json: bool) -> anyhow::Result<()> {
    let stores = prudence::stores(&[dir])?;
    let infos = stores.iter().map(|path| StoreInfo::of(path)).collect::<Result<Vec<_>, _>>()?;
    if json {
        return print_json(&infos);
    }
    for info in &infos {
        let share = |part: u64, all: u64| format!("{part} ({})", percent(part as f64 / all as f64));
        let range = |range: &prudence::Summary| format!("{:.2} to {:.2}, mean {:.2}", range.min, range.max, range.mean);
        let mut rows = vec![
            ("task", info.task.clone()),
            ("observation, action", format!("{}, {} dimensions", info.observation, info.action)),
            ("signals", info.signals.join(", ")),
            ("episodes", info.episodes.to_string()),
            ("steps", info.steps.to_string()),
            ("length", range(&info.lengths)),
            ("return", range(&info.returns)),
            ("terminated", share(info.terminated, info.episodes)),
            ("labelled", share(info.labelled, info.episodes)),
            ("safe, of the labelled", share(info.safe, info.labelled)),
            ("labelled segments", info.segments.to_string()),
        ];
        rows.extend(info.annotators.iter().map(|(by, labels)| ("labels by", format!("{by}: {labels}"))));
        println!("{}", info.store.display());
        print_table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect());
        for path in &info.torn {
            println!("{}: the last line is incomplete, as after a crash; it does not count", path.display());
        }
    }
    Ok(())
}

fn check(dir: &Path, json: bool) -> anyhow::Result<()> {
    let checked = prudence::check_files(dir)?;
    let damaged: Vec<_> = checked.iter().filter(|file| file.problem.is_some()).collect();
    if json {
        let line = |file: &prudence::FileCheck| json!({"path": file.path, "problem": file.problem.as_ref().map(ToString::to_string)});
        print_json(&checked.iter().map(line).collect::<Vec<_>>())?;
    } else {
        for problem in damaged.iter().filter_map(|file| file.problem.as_ref()) {
            println!("{problem}");
        }
        println!("{} files checked, {} damaged", checked.len(), damaged.len());
    }
    if !damaged.is_empty() {
        bail!("{} of {} files are damaged", damaged.len(), checked.len());
    }
    Ok(())
}

fn show(shown: &StoredEpisode, json: bool) -> anyhow::Result<()> {
    let StoredEpisode { number, signals: names, episode, label, log_probs } = shown;
    let width = names.len();
    if json {
        let signals = |t: usize| -> Map<String, Value> {
            let values = episode.signals[t * width..][..width].iter();
            names.iter().cloned().zip(values.map(|x| json!(x))).collect()
        };
        let step = |t: usize| {
            json!({
                "t": t + 1,
                "observation": episode.observation(t),
                "action": episode.action(t),
                "reward": episode.rewards[t],
                "signals": signals(t),
                "log_prob": log_probs.get(t),
            })
        };
        return print_json(&json!({
            "episode": number,
            "return": episode.total_reward(),
            "terminated": episode.terminated,
            "safe": label.as_ref().map(|label| label.safe),
            "at": label.as_ref().and_then(|label| label.at),
            "steps": (0..episode.len()).map(step).collect::<Vec<_>>(),
            "final_observation": episode.observation(episode.len()),
        }));
    }
    let verdict = match label {
        None => "not labelled".to_owned(),
        Some(label) if label.safe => format!("safe, by {}", label.by),
        Some(label) => {
            let since = label.at.map_or(String::new(), |at| format!(" from step {}", at + 1));
            format!("unsafe{since}, by {}", label.by)
        }
    };
    println!("episode {number}: {} steps, return {:.2}, {verdict}", episode.len(), episode.total_reward());
    let numbered = |name: &str, n: usize| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>();
    let mut headings = vec!["t".to_owned()];
    headings.extend(numbered("s", episode.observation_width));
    headings.extend(numbered("a", episode.action_width));
    headings.push("reward".to_owned());
    headings.extend(names.iter().cloned());
    if !log_probs.is_empty() {
        headings.push("log P".to_owned());
    }
    let row = |t: usize| -> Vec<String> {
        let short = |x: &f32| format!("{x:.3}");
        let mut row = vec![(t + 1).to_string()];
        row.extend(episode.observation(t).iter().chain(episode.action(t)).chain([&episode.rewards[t]]).map(short));
        row.extend(episode.signals[t * width..][..width].iter().map(|x| format!("{x:.3}")));
        row.extend(log_probs.get(t).map(short));
        row
    };
    print_table(&headings.iter().map(String::as_str).collect::<Vec<_>>(), (0..episode.len()).map(row).collect());
    Ok(())
}

fn draw(shown: &StoredEpisode, store: &Path, out: &Path, force: bool) -> anyhow::Result<()> {
    refuse_existing("--out", out, force)?;
    let bytes = if out.extension().is_some_and(|extension| extension == "svg") {
        shown.figure().svg.into_bytes()
    } else {
        let draw = match drawing("--out", out) {
            Ok(draw) => draw,
            Err(_) => bail!("--out {}: expected a name that ends with .svg, .gif or .png", out.display()),
        };
        let (at, mut poses): (_, Vec<Pose>) = (shown.label.as_ref().and_then(|label| label.at), Vec::new());
        let task = shown.replay(store, |env, t| -> anyhow::Result<()> {
            poses.push(pose(env, at.is_none_or(|at| t <= at as usize))?);
            Ok(())
        })?;
        draw(&poses, task.scene())?
    };
    write_atomic(out, &bytes).map_err(Error::from)?;
    println!("picture: {}", out.display());
    Ok(())
}
