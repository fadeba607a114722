//! A checkpoint: one safetensors file with all that an agent's training continues from, its counters in the header.
//!
//! The agent's own episodes are not in it: they are in the run's store, and the checkpoint says how many of them count.
//! Reading builds the whole state before anything is changed.

use std::path::Path;
use std::sync::Arc;

use prudence_agent::multiplier::Multiplier;
use prudence_agent::population::{AgentState, Counters, SelectedPolicy};
use prudence_agent::safesac::Networks;
use prudence_data::files::{read_limited, write_atomic};
use prudence_nn::Mlp;
use prudence_nn::weights::{self, Reader, Writer};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::Error;

const FORMAT: &str = "prudence checkpoint 5";
const LIMIT: u64 = 4 << 30;
/// The header line with everything that is not a tensor.
const HEADER: &str = "prudence";
/// What the names of the safety model's tensors begin with.
const SAFETY: &str = "safety.";
const SELECTED: &str = "selected_policy";
const SELECTED_SAFETY: &str = "selected_safety.";

/// The part of a checkpoint that is not a tensor.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    /// Hash of everything the run depends on: a checkpoint continues only under the configuration that made it.
    setup: String,
    counters: Counters,
    multiplier: Multiplier,
    /// The step of the selected policy, where there is one.
    selected: Option<u64>,
    /// Whether that policy was selected by another safety model than the present one.
    selected_safety: bool,
    /// Whether there is a safety model.
    safety: bool,
    /// Lines of `metrics.jsonl` that count.
    records: usize,
}

/// What a tensor of an agent's state is made of: the names and shapes of networks, or a plain row of numbers.
fn parts(networks: &Networks, name: &str, length: usize) -> Vec<(String, Vec<usize>)> {
    let named = |prefix: String, net: &Mlp| -> Vec<_> {
        net.tensors().into_iter().map(|(tensor, shape)| (format!("{prefix}.{tensor}"), shape)).collect()
    };
    match name {
        "policy" | "averaged_policy" | SELECTED => named(name.to_owned(), &networks.policy.shape),
        "critics" | "target_critics" => {
            let heads = networks.heads.iter().flat_map(|head| (0..head.networks).map(|i| (head.name, i)));
            heads.flat_map(|(head, i)| named(format!("{name}.{head}.{i}"), &networks.critics.shape)).collect()
        }
        _ => vec![(name.to_owned(), vec![length])],
    }
}

/// Writes it: old or new, never half.
pub(crate) fn save(
    state: &AgentState,
    networks: &Networks,
    setup: &str,
    records: usize,
    path: &Path,
) -> Result<(), Error> {
    let mut file = Writer::default();
    for (name, numbers) in &state.tensors {
        file.network("", &parts(networks, name, numbers.len()), numbers);
    }
    let mut selected_safety = false;
    if let Some(selected) = &state.selected {
        file.network("", &parts(networks, SELECTED, 0), &selected.policy);
        selected_safety = state.model.as_ref() != Some(&selected.model);
        if selected_safety {
            selected.model.write(&mut file, SELECTED_SAFETY);
        }
    }
    if let Some(model) = &state.model {
        model.write(&mut file, SAFETY);
    }
    let header = Header {
        format: FORMAT.into(),
        setup: setup.into(),
        counters: state.counters.clone(),
        multiplier: state.multiplier.clone(),
        selected: state.selected.as_ref().map(|selected| selected.step),
        selected_safety,
        safety: state.model.is_some(),
        records,
    };
    let problem = |problem: String| Error::content(path, problem);
    file.metadata(HEADER, serde_json::to_string(&header).map_err(|e| problem(e.to_string()))?);
    let bytes = file.finish().map_err(|e| problem(e.to_string()))?;
    Ok(write_atomic(path, &bytes)?)
}

/// Reads an agent's state, whose tensors have these names and lengths, and how many lines of records count with it.
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
    let value: serde_json::Value = serde_json::from_str(header).map_err(|e| problem(format!("its header: {e}")))?;
    if value["format"] != FORMAT {
        return Err(problem(format!("its format is {}, expected \"{FORMAT}\"", value["format"])));
    }
    let header: Header = serde_json::from_value(value).map_err(|e| problem(format!("its header: {e}")))?;
    if header.setup != setup {
        return Err(problem("made under another configuration, safety model or data; start a new run".into()));
    }
    let read = |name: &str, length: usize| file.network::<f32>("", &parts(networks, name, length)).map_err(broken);
    let tensors = sizes.iter().map(|(name, length)| Ok((*name, read(name, *length)?))).collect::<Result<_, Error>>()?;
    let model = |prefix: &str| SafetyModel::read(&file, prefix).map(Arc::new).map_err(|e| problem(e.to_string()));
    let present = header.safety.then(|| model(SAFETY)).transpose()?;
    let selected = |step: u64| -> Result<_, Error> {
        let model = match &present {
            Some(present) if !header.selected_safety => present.clone(),
            _ => model(SELECTED_SAFETY)?,
        };
        Ok(SelectedPolicy { step, policy: read(SELECTED, 0)?, model })
    };
    let state = AgentState {
        counters: header.counters,
        multiplier: header.multiplier,
        tensors,
        selected: header.selected.map(selected).transpose()?,
        model: present.clone(),
    };
    Ok((state, header.records))
}
