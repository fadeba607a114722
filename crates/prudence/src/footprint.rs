//! The memory that a training or a fit will need, from its settings, so that a setting with too many zeros is an error
//! and not a killed process.

use prudence_agent::safesac::{Head, Networks};
use prudence_cuda::Cuda;
use prudence_data::files::read_limited;
use prudence_safety::ModelShape;

use crate::provenance::count;
use crate::{Algorithm, Error, Task};

/// Bytes of a number on a device.
const NUMBER: u128 = 4;

/// An estimate of the memory for one purpose, with the settings that it depends on.
struct Part {
    what: String,
    bytes: u128,
}

/// The memory of the device that does the work.
pub(crate) struct Memory {
    /// In messages: nothing, or ` on the graphics card`.
    place: &'static str,
    /// Bytes.
    available: u64,
    /// How many rows a replay buffer takes for each one in use. A ring has room for episodes of a single step, but on a CPU
    /// only the rows that are used take memory.
    rows_per_row: u128,
    /// Whether replay buffers can be in files.
    has_files: bool,
}

impl Memory {
    /// That of the card, or of this machine where there is none.
    pub(crate) fn of(card: Option<&Cuda>) -> Result<Self, Error> {
        Ok(match card {
            None => Self { place: "", available: available(), rows_per_row: 1, has_files: true },
            Some(card) => {
                let free = card.free_memory().map_err(prudence_agent::Error::from)?;
                Self { place: " on the graphics card", available: free as u64, rows_per_row: 2, has_files: false }
            }
        })
    }
}

/// Refuses settings under which `agents` agents at a time would not fit into memory, each training for `steps` steps from
/// `stored` transitions that they share.
pub(crate) fn training(
    task: &Task,
    algorithms: &[Algorithm],
    agents: usize,
    steps: u64,
    stored: u128,
    memory_of: &Memory,
) -> Result<(), Error> {
    let settings = task.settings();
    let (agent, train) = (&settings.agent, &settings.train);
    let (s, a) = (task.spec().observation.dim(), task.spec().action.dim());
    let constrained = algorithms.iter().any(|algorithm| algorithm.constraint().is_some());
    let memory = if constrained { settings.safety.ensemble * settings.safety.hidden + 1 } else { 0 };
    let mut heads = vec![Head::reward(!constrained)];
    heads.extend(constrained.then(|| Head::safety(agent.score_floor)));
    let networks = Networks::new(1, s + memory, a, &agent.hidden, heads);
    let (state, batch, agents) = (u128::from((s + memory) as u64), agent.batch as u128, agents as u128);
    let critics = networks.critics_per_agent() as u128;
    // Values, gradients, two moments, and a target network or an average.
    let parameters =
        5 * (networks.policy.shape.parameters() as u128 + critics * networks.critics.shape.parameters() as u128);
    let units: u128 = agent.hidden.iter().map(|n| *n as u128).sum::<u128>() + 2 * a as u128;
    let update = batch * (2 * units * (1 + critics) + 2 * state + 5 * a as u128 + 8);
    let row = (s + memory + a + 3) as u128;
    let rows = u128::from(steps.min(train.capacity.max(task.spec().horizon) as u64));
    let own = (rows + rows / 10) * row * memory_of.rows_per_row;
    // Each agent whose model is refitted has its own scores of the stored episodes.
    let safe = algorithms.iter().filter(|algorithm| algorithm.constraint().is_some()).count() as u128;
    let seeds = u128::from(settings.run.seeds);
    let stored = match (settings.refit.every > 0, memory_of.has_files) {
        (false, _) => stored,
        (true, true) => stored * (1 + agents.min(safe * seeds)),
        (true, false) => stored * seeds * (1 + safe), // on a card all agents train at the same time
    };
    let hidden = format!("agent.hidden = {:?}", agent.hidden);
    let those = count(agents as usize, "agent");
    let in_memory = if train.replay.in_file() && memory_of.has_files { 0 } else { 1 };
    let remedy = if memory_of.has_files { "; they can be in files: train.replay = \"file\"" } else { "" };
    memory_of.check(vec![
        Part { what: format!("the networks of {those} ({hidden})"), bytes: agents * parameters * NUMBER },
        Part {
            what: format!("the updates of {those} (agent.batch = {}, {hidden})", agent.batch),
            bytes: agents * update * NUMBER,
        },
        Part {
            what: format!(
                "the replay buffers of {those} ({} steps, train.capacity = {}{remedy})",
                steps, train.capacity
            ),
            bytes: in_memory * (agents * own + stored * row) * NUMBER,
        },
    ])
}

/// Refuses settings under which a fit to segments of up to `steps` steps would not fit into memory.
pub(crate) fn fit(task: &Task, steps: usize, memory: &Memory) -> Result<(), Error> {
    let settings = &task.settings().safety;
    let (s, a) = (task.spec().observation.dim(), task.spec().action.dim());
    let shape = ModelShape::new(s, a, &settings.encoder, settings.hidden, &settings.decoder);
    let layers = |sizes: &[usize]| sizes.iter().map(|n| *n as u128).sum::<u128>();
    // Activations and their gradients of each layer; the gates and the memory of the GRU.
    let per_step =
        2 * (layers(&settings.encoder) + layers(&settings.decoder) + (s + a) as u128) + 12 * settings.hidden as u128;
    let members = settings.ensemble as u128;
    memory.check(vec![
        Part {
            what: format!(
                "the batches of the fit (safety.batch = {}, safety.ensemble = {members}, segments of up to {steps} steps)",
                settings.batch
            ),
            bytes: members * settings.batch as u128 * steps as u128 * per_step * NUMBER,
        },
        Part {
            what: format!("the safety model (safety.ensemble = {members})"),
            bytes: 6 * members * shape.parameters() as u128 * NUMBER,
        },
    ])
}

impl Memory {
    /// The share of each of `parts` equal parts.
    pub(crate) fn divided_by(self, parts: usize) -> Self {
        Self { available: self.available / parts.max(1) as u64, ..self }
    }

    fn check(&self, parts: Vec<Part>) -> Result<(), Error> {
        let Self { place, available, .. } = *self;
        let needed = parts.iter().map(|part| part.bytes).sum::<u128>();
        match parts.into_iter().max_by_key(|part| part.bytes) {
            Some(Part { what, .. }) if needed > u128::from(available) => {
                Err(Error::TooMuchMemory { place, what, needed, available })
            }
            _ => Ok(()),
        }
    }
}

/// The memory that this process can still take without swapping: what the system has, or what the limit of its control
/// group leaves (in a container); where nothing says, half of the address space.
fn available() -> u64 {
    let text = |path: &str| String::from_utf8(read_limited(path.as_ref(), 1 << 16).ok()?).ok();
    let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
    let left = |limit: &str, used: &str| Some(number(limit)?.saturating_sub(number(used)?));
    let system = text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    });
    let groups = [
        left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        left("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ];
    groups.into_iter().chain([system]).flatten().min().unwrap_or(1 << 62)
}
