//! The state of an interrupted fit, in the folder of the model. It is removed when the model is written.

use std::path::{Path, PathBuf};

use prudence_data::files::{self, read_limited, write_atomic};
use prudence_data::{Episodes, ScratchFile};
use prudence_nn::Device;
use prudence_nn::weights::{Reader, Writer};
use prudence_safety::{Fit, FitState};
use serde::{Deserialize, Serialize};

use crate::Error;

const FORMAT: &str = "prudence fit 1";
const HEADER: &str = "prudence";
const LIMIT: u64 = 4 << 30;
const PARAMETERS: &str = "parameters";
const MOMENTS: [&str; 2] = ["first_moments", "second_moments"];

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    /// The hash of everything that the fit depends on.
    setup: String,
    step: usize,
    numbers: usize,
}

fn file(out: &Path) -> PathBuf {
    out.join("fit.safetensors")
}

/// Saves the state of a fit: of each replica with its setup and its folder.
pub(crate) fn save<D: Device>(fit: &Fit<'_, D, ScratchFile>, replicas: &[(&str, &Path)]) -> Result<(), Error> {
    for (replica, (setup, out)) in replicas.iter().enumerate() {
        let FitState { step, parameters, moments } = fit.state(replica)?;
        let path = file(out);
        let problem = |problem: String| Error::content(&path, problem);
        let numbers = parameters.len();
        let mut weights = Writer::default();
        weights.tensor(PARAMETERS, &[numbers], &parameters);
        for (name, moments) in MOMENTS.into_iter().zip(&moments) {
            weights.tensor(name, &[numbers], moments);
        }
        let header = Header { format: FORMAT.into(), setup: (*setup).into(), step, numbers };
        weights.metadata(HEADER, serde_json::to_string(&header).map_err(|e| problem(e.to_string()))?);
        let bytes = weights.finish().map_err(|e| problem(e.to_string()))?;
        write_atomic(&path, &bytes)?;
    }
    Ok(())
}

/// Continues from the saved states, if all replicas have one of the same step. Others are of no use and ignored: the process
/// may have been killed while it saved them.
pub(crate) fn restore<D: Device, E: Episodes + ?Sized>(
    fit: &mut Fit<'_, D, E>,
    states: impl Iterator<Item = Option<FitState>>,
) -> Result<(), Error> {
    let Some(states) = states.collect::<Option<Vec<_>>>() else { return Ok(()) };
    if states.windows(2).any(|pair| pair[0].step != pair[1].step) {
        return Ok(());
    }
    Ok(fit.restore(&states)?)
}

/// Reads a replica's saved state, if there is one with this setup.
pub(crate) fn load(setup: &str, out: &Path) -> Result<Option<FitState>, Error> {
    let path = file(out);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = read_limited(&path, LIMIT)?;
    let problem = |problem: String| Error::content(&path, problem);
    let weights = Reader::new(&bytes).map_err(|e| problem(e.to_string()))?;
    let header =
        weights.metadata(HEADER).ok_or_else(|| problem("not the state of a fit (no prudence header)".into()))?;
    let header: Header = serde_json::from_str(header).map_err(|e| problem(format!("invalid header: {e}")))?;
    if header.format != FORMAT || header.setup != setup {
        return Ok(None);
    }
    let tensor = |name: &str| weights.tensor::<f32>(name, &[header.numbers]).map_err(|e| problem(e.to_string()));
    let [first, second] = MOMENTS;
    let moments = [tensor(first)?, tensor(second)?];
    Ok(Some(FitState { step: header.step, parameters: tensor(PARAMETERS)?, moments }))
}

/// Removes the saved state.
pub(crate) fn remove(out: &Path) -> Result<(), Error> {
    Ok(files::remove(&file(out))?)
}
