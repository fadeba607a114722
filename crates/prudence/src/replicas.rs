//! Replicas: whole independent repetitions of a run, each in its own folder, and the statistics over them.
//!
//! Agents of one run share collected episodes and safety models, so they are not independent; replicas are.

use prudence_data::files::read_json;
use prudence_report::records::Evaluation;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use crate::environment::EnvSettings;
use crate::folder::{Invocation, RunFolder};
use crate::provenance::Working;
use crate::run::run_in;
use crate::session::Session;
use crate::{Error, Task, reporting};

const MAX_EVALUATION_BYTES: u64 = 1 << 30;

/// Runs the replicas that have not been completed yet, as many at a time as there are threads. One that fails does not
/// stop the others.
pub(crate) fn run(
    task: &Task,
    folder: &RunFolder,
    session: &Session,
    working: &Working<'_>,
) -> Result<Evaluation, Error> {
    let settings = &task.settings().run;
    let seeds: Vec<u64> = (0..settings.replicas).map(|replica| settings.seed + replica * settings.seeds).collect();
    let one = |seed: &u64| -> Result<(u64, Evaluation), Error> {
        let of_replica = session.labelled(&format!("replica {seed}"));
        let outcome = replica(task, &folder.replica(*seed), *seed, &of_replica);
        outcome.map(|evaluation| (*seed, evaluation)).map_err(|error| {
            if error.is_stop() {
                return error;
            }
            of_replica.progress().say(&format!("failed: {error}"));
            Error::Replica { replica: *seed, source: Box::new(error) }
        })
    };
    let outcomes: Vec<Result<_, Error>> = session.pool().install(|| seeds.par_iter().map(one).collect());
    let replicas: Vec<(u64, Evaluation)> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let evaluation =
        Evaluation::from_replicas(&replicas).ok_or_else(|| Error::content(folder.root(), "the run has no replicas"))?;
    reporting::write_replicas(task, folder, &evaluation, working)?;
    Ok(evaluation)
}

/// One replica: an ordinary run in its own folder, with its own seeds.
fn replica(task: &Task, folder: &RunFolder, seed: u64, session: &Session) -> Result<Evaluation, Error> {
    if folder.evaluation().is_file() {
        return Ok(read_json(&folder.evaluation(), MAX_EVALUATION_BYTES)?);
    }
    let own = task.clone().with(&["run.replicas=1".to_owned(), format!("run.seed={seed}")])?;
    let (folder, own, _lock) = if folder.is_created() {
        RunFolder::open(folder.root())?;
        let lock = folder.lock()?;
        let program = matches!(own.settings().env, EnvSettings::Program { .. });
        (folder.clone(), if program { own } else { Task::open(folder.root())? }, lock)
    } else {
        RunFolder::create(folder.root(), &own, &Invocation::Run, None)?
    };
    run_in(&own, &folder, session)
}
