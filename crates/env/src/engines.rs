//! The physics engines: fetched once, checked, kept in a cache, opened at run time.
//!
//! Nothing third-party is committed and `cargo build` needs no engine. [`Engines::install`] fetches pinned Python wheels
//! (they are zip files that hold the C library and the models; no Python runs later), compares their SHA-256 with the
//! ones below, and unpacks only what is needed into a new folder that is then renamed into place: a crash leaves the old,
//! the new or none, never half. The cache is `$PRUDENCE_ENGINES`, else `$XDG_CACHE_HOME/prudence/engines`, else
//! `~/.cache/prudence/engines`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The version of MuJoCo that tasks are made for: later ones move differently.
pub const MUJOCO: &str = "3.3.7";
/// The engine's library in its folder.
pub const MUJOCO_LIBRARY: &str = "libmujoco.so.3.3.7";
/// The engine's folder in the cache.
const FOLDER: &str = "mujoco-3.3.7";

struct Wheel {
    requirement: &'static str,
    file: &'static str,
    sha256: &'static str,
    parts: &'static [Part],
}

/// What is taken from a wheel.
struct Part {
    entry: &'static str,
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
}

const WHEELS: [Wheel; 2] = [
    Wheel {
        requirement: "mujoco==3.3.7",
        file: "mujoco-3.3.7-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        sha256: "9371506f0df2d82152685fc8d38465843abcea8d371745ea7c125001e8f3f2d8",
        parts: &[Part {
            entry: "mujoco/libmujoco.so.3.3.7",
            name: MUJOCO_LIBRARY,
            bytes: 5_075_256,
            sha256: "23841520ecf60ad648405674a757f260949f7cf6b44deb284398b9851b3f061d",
        }],
    },
    Wheel {
        requirement: "gymnasium==1.4.0",
        file: "gymnasium-1.4.0-py3-none-any.whl",
        sha256: "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e",
        parts: &[
            Part {
                entry: "gymnasium/envs/mujoco/assets/hopper.xml",
                name: "hopper.xml",
                bytes: 3_228,
                sha256: "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e",
            },
            Part {
                entry: "gymnasium/envs/mujoco/assets/walker2d_v5.xml",
                name: "walker2d_v5.xml",
                bytes: 4_946,
                sha256: "6bed53a6cc3ca73c4fe8ac3486d3b4228927264a6454f4ef16d3eed3c58bc09d",
            },
            Part {
                entry: "gymnasium/envs/mujoco/assets/half_cheetah.xml",
                name: "half_cheetah.xml",
                bytes: 5_616,
                sha256: "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494",
            },
        ],
    },
];

/// Which wheel pip shall take, whatever Python it runs on: the one whose SHA-256 is above.
const PIP: [&str; 15] = [
    "-m",
    "pip",
    "download",
    "--quiet",
    "--no-input",
    "--disable-pip-version-check",
    "--no-deps",
    "--only-binary=:all:",
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_27_x86_64",
    "--platform=manylinux2014_x86_64",
    "--dest",
];

/// Steps that [`Engines::install`] tells of.
pub const INSTALL_STEPS: u64 = 2 * WHEELS.len() as u64;

/// A cache of engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engines {
    root: PathBuf,
}

/// What is there of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The engine's name.
    pub engine: &'static str,
    /// The version that tasks need.
    pub version: &'static str,
    /// The tasks that need it.
    pub tasks: [&'static str; 3],
    /// Its folder.
    pub path: PathBuf,
    /// Whether every file is there and is the one it should be.
    pub installed: bool,
    /// Each file.
    pub files: Vec<FileStatus>,
}

/// What is there of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileStatus {
    /// Its name in the engine's folder.
    pub file: &'static str,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

impl Engines {
    /// The cache that the environment variables name.
    pub fn from_environment() -> Result<Self, Error> {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let below = |base: OsString, rest: &str| Path::new(&base).join(rest);
        let root = given("PRUDENCE_ENGINES")
            .map(PathBuf::from)
            .or_else(|| given("XDG_CACHE_HOME").map(|base| below(base, "prudence/engines")))
            .or_else(|| given("HOME").map(|base| below(base, ".cache/prudence/engines")))
            .ok_or(Error::NoPlace)?;
        Ok(Self { root })
    }

    /// A cache in this folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where MuJoCo and its models are, or would be.
    pub fn mujoco(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    /// What is there, file by file; reads and hashes all of it.
    pub fn status(&self) -> Status {
        let path = self.mujoco();
        let parts = WHEELS.iter().flat_map(|wheel| wheel.parts);
        let files: Vec<_> =
            parts.map(|part| FileStatus { file: part.name, problem: problem(&path.join(part.name), part) }).collect();
        let installed = files.iter().all(|file| file.problem.is_none());
        let tasks = ["hopper", "walker2d", "half-cheetah"];
        Status { engine: "mujoco", version: MUJOCO, tasks, path, installed, files }
    }

    /// Installs what is missing and says whether anything was. Wheels come from the folder `from` or through pip.
    ///
    /// `progress` hears what is being done, and which of [`INSTALL_STEPS`] steps that is.
    pub fn install(&self, from: Option<&Path>, progress: &mut dyn FnMut(u64, &str)) -> Result<bool, Error> {
        if self.status().installed {
            return Ok(false);
        }
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::Platform);
        }
        fs::create_dir_all(&self.root).map_err(Error::io(&self.root, "create the folder"))?;
        // One installs at a time; the lock goes with the process, so a killed install blocks nobody.
        let lock = self.root.join(".lock");
        let locked =
            OpenOptions::new().create(true).append(true).open(&lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(Error::io(&lock, "lock"))?;
        if self.status().installed {
            return Ok(false); // by the one before us
        }
        let staging = Staging::new(self.root.join(".staging"))?;
        let (wheels, new) = (staging.0.join("wheels"), staging.0.join(FOLDER));
        for folder in [&wheels, &new] {
            fs::create_dir(folder).map_err(Error::io(folder, "create the folder"))?;
        }
        for (i, wheel) in (0..).zip(&WHEELS) {
            progress(2 * i, &format!("fetching {}", wheel.requirement));
            let file = match from {
                Some(folder) => given_wheel(folder, wheel)?,
                None => download(wheel, &wheels)?,
            };
            progress(2 * i + 1, &format!("unpacking {}", wheel.requirement));
            check_sha256(&file, wheel.sha256)?;
            wheel.parts.iter().try_for_each(|part| unpack(&file, part, &new))?;
        }
        sync(&new)?;
        let place = self.mujoco();
        if place.exists() {
            fs::rename(&place, staging.0.join("old")).map_err(Error::io(&place, "move the damaged folder away"))?;
        }
        fs::rename(&new, &place).map_err(Error::io(&place, "move the new folder into place"))?;
        sync(&self.root)?;
        Ok(true)
    }
}

/// A folder for work in progress; what a killed install left is removed first.
struct Staging(PathBuf);

impl Staging {
    fn new(path: PathBuf) -> Result<Self, Error> {
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::io(&path, "remove what an interrupted install left"))?;
        }
        fs::create_dir(&path).map_err(Error::io(&path, "create the folder"))?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the next install does it otherwise
    }
}

/// Why a file is not the one it should be.
fn problem(path: &Path, part: &Part) -> Option<String> {
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some("missing".to_owned()),
        Err(error) => return Some(error.to_string()),
    };
    if length != part.bytes {
        return Some(format!("damaged: {length} bytes, expected {}", part.bytes));
    }
    match sha256(path) {
        Ok(found) if found == part.sha256 => None,
        Ok(found) => Some(format!("damaged: SHA-256 {found}, expected {}", part.sha256)),
        Err(error) => Some(error.to_string()),
    }
}

fn given_wheel(folder: &Path, wheel: &Wheel) -> Result<PathBuf, Error> {
    let file = folder.join(wheel.file);
    match file.is_file() {
        true => Ok(file),
        false => Err(Error::NoWheel { folder: folder.to_owned(), file: wheel.file, requirement: wheel.requirement }),
    }
}

fn download(wheel: &Wheel, folder: &Path) -> Result<PathBuf, Error> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| OsString::from("python3"));
    let fail = |why: String| Error::Fetch {
        requirement: wheel.requirement,
        file: wheel.file,
        python: python.to_string_lossy().into_owned(),
        why,
    };
    let mut command = Command::new(&python);
    command.args(PIP).args([folder.as_os_str(), OsStr::new(wheel.requirement)]).stdin(Stdio::null());
    let output = command.output().map_err(|error| fail(error.to_string()))?;
    let file = folder.join(wheel.file);
    if output.status.success() && file.is_file() {
        return Ok(file);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = told.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(fail(match last.as_slice() {
        [] => format!("{}, and no file {}", output.status, wheel.file),
        lines => lines[lines.len().saturating_sub(3)..].join("; "),
    }))
}

fn unpack(wheel: &Path, part: &Part, folder: &Path) -> Result<(), Error> {
    let zip = |error: zip::result::ZipError| Error::Zip { path: wheel.to_owned(), why: error.to_string() };
    let file = File::open(wheel).map_err(Error::io(wheel, "open"))?;
    let mut archive = zip::ZipArchive::new(file).map_err(zip)?;
    let entry = archive.by_name(part.entry).map_err(zip)?;
    let mut bytes = Vec::new();
    entry.take(part.bytes + 1).read_to_end(&mut bytes).map_err(Error::io(wheel, "unpack"))?;
    let path = folder.join(part.name);
    let write = |mut file: File| file.write_all(&bytes).and_then(|()| file.sync_all());
    OpenOptions::new().write(true).create_new(true).open(&path).and_then(write).map_err(Error::io(&path, "write"))?;
    check_sha256(&path, part.sha256)
}

fn check_sha256(path: &Path, expected: &'static str) -> Result<(), Error> {
    let found = sha256(path).map_err(Error::io(path, "read"))?;
    if found == expected { Ok(()) } else { Err(Error::Hash { path: path.to_owned(), found, expected }) }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes new names in a folder survive a power cut.
fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder, "sync the folder"))
}

/// What can go wrong with an installation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No variable says where the cache is.
    #[error("no place for the engines: set PRUDENCE_ENGINES to a folder (HOME and XDG_CACHE_HOME are not set)")]
    NoPlace,
    /// The pinned library is for another machine.
    #[error("MuJoCo {MUJOCO} can be installed on Linux on x86-64 only")]
    Platform,
    /// `--from` names a folder without a wheel.
    #[error("{}: there is no {file} in it; fetch it where there is a network: python3 -m pip download --no-deps --only-binary=:all: --python-version=3.11 --abi=cp311 --platform=manylinux_2_28_x86_64 {requirement}", folder.display())]
    NoWheel {
        /// The folder.
        folder: PathBuf,
        /// The wheel's name.
        file: &'static str,
        /// What pip calls it.
        requirement: &'static str,
    },
    /// pip did not bring the wheel.
    #[error(
        "cannot fetch {requirement} with `{python} -m pip download`: {why}\nwithout a network: prudence engines install --from DIR, with {file} in DIR"
    )]
    Fetch {
        /// What pip was asked for.
        requirement: &'static str,
        /// The wheel's name.
        file: &'static str,
        /// The interpreter; `$PYTHON` chooses another.
        python: String,
        /// What it said.
        why: String,
    },
    /// A file that is not the pinned one.
    #[error("{}: SHA-256 {found}, expected {expected}; it is not the pinned file", path.display())]
    Hash {
        /// The file.
        path: PathBuf,
        /// Its hash.
        found: String,
        /// The pinned one.
        expected: &'static str,
    },
    /// A wheel that cannot be unpacked.
    #[error("{}: {why}", path.display())]
    Zip {
        /// The wheel.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }
}
