//! Replicas: whole independent repetitions of a run, each in its own folder, and the statistics over them.
//!
//! Agents of one run share collected episodes and safety models, so they are not independent; replicas are.

use prudence_data::files::{Lock, read_json};
use prudence_report::records::Evaluation;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use crate::environment::EnvSettings;
use crate::folder::{Invocation, RunFolder};
use crate::provenance::Working;
use crate::run::{Replica, run_in, run_stages};
use crate::session::Session;
use crate::{Error, Task, reporting};

const MAX_EVALUATION_BYTES: u64 = 1 << 30;

/// Runs the replicas that have not been completed yet: on the CPU as many at a time as there are threads, on a graphics
/// card all of them together. One that fails does not stop the others.
pub(crate) fn run(
    task: &Task,
    folder: &RunFolder,
    session: &Session,
    working: &Working<'_>,
) -> Result<Evaluation, Error> {
    let settings = &task.settings().run;
    let seeds = (0..settings.replicas).map(|replica| settings.seed + replica * settings.seeds);
    let opened = seeds.map(|seed| (seed, open(task, &folder.replica(seed), seed)));
    let opened: Vec<(u64, Result<Opened, Error>)> = opened.collect();
    let labelled = |seed: u64| session.labelled(&format!("replica {seed}"));
    let mut running = Vec::new();
    for (seed, opened) in &opened {
        match opened {
            Ok(Opened::Running { folder, task, .. }) => {
                running.push(Replica { task, folder, session: labelled(*seed) });
            }
            Ok(Opened::Done(_)) => {}
            Err(error) => say_failed(&labelled(*seed), error),
        }
    }
    let outcomes: Vec<Result<Evaluation, Error>> = if session.card().is_none() {
        let one = |Replica { task, folder, session }: Replica<'_>| {
            let outcome = run_in(task, folder, &session);
            outcome.inspect_err(|error| say_failed(&session, error))
        };
        session.pool().install(|| running.into_par_iter().map(one).collect())
    } else {
        let folders: Vec<(&Task, &RunFolder)> = running.iter().map(|one| (one.task, one.folder)).collect();
        let working: Vec<Working<'_>> = folders.iter().map(|(_, folder)| Working::on(folder, session)).collect();
        let mut evaluations = Vec::with_capacity(folders.len());
        for (outcome, ((task, folder), working)) in
            run_stages(running, session)?.into_iter().zip(folders.into_iter().zip(&working))
        {
            evaluations.push(outcome.and_then(|outcome| reporting::write(task, folder, &outcome, working)));
        }
        evaluations
    };
    let mut outcomes = outcomes.into_iter();
    let mut replicas = Vec::with_capacity(opened.len());
    for (seed, opened) in opened {
        let evaluation = match opened {
            Ok(Opened::Done(evaluation)) => Ok(*evaluation),
            Ok(Opened::Running { .. }) => outcomes.next().unwrap_or(Err(Error::Stopped)),
            Err(error) => Err(error),
        };
        replicas.push((seed, evaluation));
    }
    let failed = |seed: u64, error: Error| {
        if error.is_stop() { error } else { Error::Replica { replica: seed, source: Box::new(error) } }
    };
    let replicas: Vec<(u64, Evaluation)> = replicas
        .into_iter()
        .map(|(seed, outcome)| outcome.map(|evaluation| (seed, evaluation)).map_err(|error| failed(seed, error)))
        .collect::<Result<_, _>>()?;
    let evaluation =
        Evaluation::from_replicas(&replicas).ok_or_else(|| Error::content(folder.root(), "the run has no replicas"))?;
    reporting::write_replicas(task, folder, &evaluation, working)?;
    Ok(evaluation)
}

/// Says at once that a replica failed; the others go on.
pub(crate) fn say_failed(session: &Session, error: &Error) {
    if !error.is_stop() {
        session.progress().say(&format!("failed: {error}"));
    }
}

/// A replica's folder.
enum Opened {
    /// With its results.
    Done(Box<Evaluation>),
    /// Locked, to be continued.
    Running { folder: RunFolder, task: Box<Task>, _lock: Lock },
}

/// Opens a replica's folder, or creates it: that of an ordinary run with its own seeds.
fn open(task: &Task, folder: &RunFolder, seed: u64) -> Result<Opened, Error> {
    if folder.evaluation().is_file() {
        return Ok(Opened::Done(Box::new(read_json(&folder.evaluation(), MAX_EVALUATION_BYTES)?)));
    }
    let own = task.clone().with(&["run.replicas=1".to_owned(), format!("run.seed={seed}")])?;
    let (folder, own, lock) = if folder.is_created() {
        RunFolder::open(folder.root())?;
        let lock = folder.lock()?;
        let program = matches!(own.settings().env, EnvSettings::Program { .. });
        (folder.clone(), if program { own } else { Task::open(folder.root())? }, lock)
    } else {
        RunFolder::create(folder.root(), &own, &Invocation::Run, None)?
    };
    Ok(Opened::Running { folder, task: Box::new(own), _lock: lock })
}
