//! The machine that holds the networks: the CPU or a graphics card.

use std::path::PathBuf;

use prudence_cuda::{Card, Cuda, Missing};
use prudence_data::files;
use serde::Serialize;

use crate::Error;

/// Which machine holds the networks and does the learner's arithmetic.
///
/// ```
/// use prudence::{DeviceName, Session};
///
/// // The card if there is one that can be used, the CPU otherwise.
/// let session = Session::new(0)?.on(DeviceName::Auto)?;
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceName {
    /// The CPU.
    #[default]
    Cpu,
    /// The first NVIDIA graphics card; an error where there is none.
    Cuda,
    /// The first card; the CPU where there is none. A card that cannot be used is an error.
    Auto,
}

/// The devices of this machine.
///
/// ```
/// let devices = prudence::Devices::find();
/// println!("{} cores, {} cards", devices.cores, devices.cards.len());
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Devices {
    /// The CPU's cores.
    pub cores: usize,
    /// The vector extension that the CPU's kernels use.
    pub vectors: &'static str,
    /// The NVIDIA graphics cards.
    pub cards: Vec<CardInfo>,
    /// Why no card can be used, where none can.
    pub problem: Option<String>,
}

/// A graphics card.
///
/// ```
/// for card in prudence::Devices::find().cards {
///     println!("{}: {} multiprocessors", card.name, card.multiprocessors);
/// }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct CardInfo {
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Its compute capability, such as `9.0`.
    pub capability: String,
    /// The number of multiprocessors.
    pub multiprocessors: usize,
    /// The newest version of CUDA that its driver supports.
    pub cuda: String,
}

impl Devices {
    /// Looks for the devices of this machine.
    pub fn find() -> Self {
        let (cards, mut problem) = match prudence_cuda::cards() {
            Ok(cards) => (cards, None),
            Err(missing) => (Vec::new(), Some(missing)),
        };
        if let Some(card) = cards.first() {
            problem = card.check().and_then(|()| card.kernels_key().map(drop)).err();
        }
        let version = |(major, minor): (i32, i32)| format!("{major}.{minor}");
        let info = |card: &Card| CardInfo {
            name: card.name.clone(),
            memory: card.memory,
            capability: version(card.capability),
            multiprocessors: card.multiprocessors,
            cuda: version(card.cuda),
        };
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            vectors: prudence_nn::cpu::Vectors::current().name(),
            cards: cards.iter().map(info).collect(),
            problem: problem.map(|missing| missing.to_string()),
        }
    }
}

/// Opens a device; `None` is the CPU.
pub(crate) fn open(name: DeviceName) -> Result<Option<Cuda>, Error> {
    match name {
        DeviceName::Cpu => Ok(None),
        DeviceName::Cuda => Ok(Some(first_card()?)),
        DeviceName::Auto => match first_card() {
            Ok(card) => Ok(Some(card)),
            Err(Error::Card(Missing::Driver | Missing::Card)) => Ok(None),
            Err(error) => Err(error), // there is a card, and the user would want to know why it is not used
        },
    }
}

fn first_card() -> Result<Cuda, Error> {
    let cards = prudence_cuda::cards()?;
    let card = cards.first().ok_or(Missing::Card)?;
    card.check()?;
    let kernels = kernels(card)?;
    Ok(card.open(&kernels)?)
}

/// The largest file of compiled kernels that is read.
const MAX_KERNELS: u64 = 64 << 20;

/// The card's compiled kernels, from the cache or newly compiled. The file begins with a hash of the rest.
fn kernels(card: &Card) -> Result<Vec<u8>, Error> {
    let Some(folder) = cache() else { return Ok(card.compile_kernels()?) };
    let file = folder.join(format!("{}.cubin", card.kernels_key()?));
    let hash = |kernels: &[u8]| *blake3::hash(kernels).as_bytes();
    if let Ok(bytes) = files::read_limited(&file, MAX_KERNELS)
        && let Some((stored, kernels)) = bytes.split_first_chunk::<32>()
        && *stored == hash(kernels)
    {
        return Ok(kernels.to_vec());
    }
    let kernels = card.compile_kernels()?;
    // A cache that cannot be written costs some seconds at the next start, and nothing else.
    let _ = files::create_dir(&folder)
        .and_then(|()| files::write_atomic(&file, &[hash(&kernels).as_slice(), kernels.as_slice()].concat()));
    Ok(kernels)
}

/// The folder of compiled kernels: `$XDG_CACHE_HOME/prudence/kernels`, otherwise `~/.cache/prudence/kernels`.
fn cache() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")))?;
    Some(base.join("prudence/kernels"))
}
