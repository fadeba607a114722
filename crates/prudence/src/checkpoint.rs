//! A checkpoint: a safetensors file with everything that an agent's training needs to continue, counters in its header.
//!
//! The agent's own episodes are in the run's store; the checkpoint records how many of them it includes. Reading builds
//! the whole state before anything is changed.

use std::path::Path;
use std::sync::Arc;

use prudence_agent::AgentUnits;
use prudence_agent::multiplier::Multiplier;
use prudence_agent::population::{AgentState, Counters, SelectedPolicy};
use prudence_agent::safesac::Networks;
use prudence_data::files::{read_limited, write_atomic};
use prudence_nn::weights::{self, Reader, Writer};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::Error;

const FORMAT: &str = "prudence checkpoint 6";
const LIMIT: u64 = 4 << 30;
/// The header entry with everything that is not a tensor.
const HEADER: &str = "prudence";
/// The prefix of the names of the safety model's tensors.
const SAFETY: &str = "safety.";
/// The prefix of the names of a selected policy's tensors and of those of its model, with its number.
fn selected_name(number: usize) -> [String; 2] {
    [format!("selected.{number}.policy"), format!("selected.{number}.safety.")]
}

/// The part of a checkpoint that is not a tensor.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    /// A hash of everything that the training depends on: a checkpoint can be resumed only with the same configuration.
    setup: String,
    counters: Counters,
    multiplier: Multiplier,
    units: AgentUnits,
    /// The steps of the selected policies.
    selected: Vec<u64>,
    /// Whether there is a safety model.
    safety: bool,
    /// The number of lines of `metrics.jsonl` at this checkpoint.
    records: usize,
}

/// Writes a checkpoint atomically.
pub(crate) fn save(
    state: &AgentState,
    networks: &Networks,
    setup: &str,
    records: usize,
    path: &Path,
) -> Result<(), Error> {
    let mut file = Writer::default();
    for (name, numbers) in &state.tensors {
        file.network("", &networks.tensors(name, numbers.len()), numbers);
    }
    for (number, selected) in state.selected.iter().enumerate() {
        let [policy, safety] = selected_name(number);
        file.network("", &networks.policy_tensors(&policy), &selected.policy);
        selected.model.write(&mut file, &safety);
    }
    if let Some(model) = &state.model {
        model.write(&mut file, SAFETY);
    }
    let header = Header {
        format: FORMAT.into(),
        setup: setup.into(),
        counters: state.counters.clone(),
        multiplier: state.multiplier.clone(),
        units: state.units.clone(),
        selected: state.selected.iter().map(|selected| selected.step).collect(),
        safety: state.model.is_some(),
        records,
    };
    let problem = |problem: String| Error::content(path, problem);
    file.metadata(HEADER, serde_json::to_string(&header).map_err(|e| problem(e.to_string()))?);
    let bytes = file.finish().map_err(|e| problem(e.to_string()))?;
    Ok(write_atomic(path, &bytes)?)
}

/// Reads an agent's state, whose tensors have these names and lengths, and the number of records at the checkpoint.
pub(crate) fn load(
    networks: &Networks,
    sizes: &[(&'static str, usize)],
    setup: &str,
    path: &Path,
) -> Result<(AgentState, usize), Error> {
    let bytes = read_limited(path, LIMIT)?;
    let problem = |problem: String| Error::content(path, problem);
    let broken = |e: weights::Error| problem(e.to_string());
    let file = Reader::new(&bytes).map_err(broken)?;
    let header = file.metadata(HEADER).ok_or_else(|| problem("not a checkpoint (no prudence header)".into()))?;
    let value: serde_json::Value = serde_json::from_str(header).map_err(|e| problem(format!("invalid header: {e}")))?;
    if value["format"] != FORMAT {
        return Err(problem(format!("the format is {}, expected \"{FORMAT}\"", value["format"])));
    }
    let header: Header = serde_json::from_value(value).map_err(|e| problem(format!("invalid header: {e}")))?;
    if header.setup != setup {
        return Err(problem("made with other settings, another safety model or other data; start a new run".into()));
    }
    let read = |tensors: &[(String, Vec<usize>)]| file.network::<f32>("", tensors).map_err(broken);
    let tensor = |(name, length): &(&'static str, usize)| Ok((*name, read(&networks.tensors(name, *length))?));
    let tensors = sizes.iter().map(tensor).collect::<Result<_, Error>>()?;
    let model = |prefix: &str| SafetyModel::read(&file, prefix).map(Arc::new).map_err(|e| problem(e.to_string()));
    let present = header.safety.then(|| model(SAFETY)).transpose()?;
    let selected = |(number, step): (usize, &u64)| -> Result<_, Error> {
        let [policy, safety] = selected_name(number);
        Ok(SelectedPolicy { step: *step, policy: read(&networks.policy_tensors(&policy))?, model: model(&safety)? })
    };
    let selected = header.selected.iter().enumerate().map(selected).collect::<Result<_, _>>()?;
    let state = AgentState {
        counters: header.counters,
        multiplier: header.multiplier,
        units: header.units,
        tensors,
        selected,
        model: present,
    };
    Ok((state, header.records))
}
