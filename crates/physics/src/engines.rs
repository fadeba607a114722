//! The physics engines: downloaded once, verified, kept in a cache and loaded at run time.
//!
//! No third-party files are committed, and `cargo build` needs no engine. [`Engines::install`] downloads pinned Python
//! wheels (zip files with the C library and the models; no Python is needed later), compares their SHA-256 with the
//! hashes below, and unpacks only what is needed into a new folder, which is then renamed into place: a crash leaves
//! the old folder, the new one or none, but never an incomplete one. The cache is `$PRUDENCE_ENGINES`, otherwise
//! `$XDG_CACHE_HOME/prudence/engines`, otherwise `~/.cache/prudence/engines`.
#![expect(clippy::disallowed_methods, reason = "the installation writes its own cache, file by file")]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A physics engine and the models of its tasks.
#[derive(Debug)]
pub struct Engine {
    /// The name in the cache's folder, such as `mujoco`.
    pub id: &'static str,
    /// The name for messages, such as `MuJoCo`.
    pub name: &'static str,
    /// The version that the tasks are made for; other versions simulate differently.
    pub version: &'static str,
    /// The tasks that need it.
    pub tasks: &'static [&'static str],
    /// The file name of the library.
    pub library: &'static str,
    wheels: &'static [Wheel],
}

#[derive(Debug)]
struct Wheel {
    requirement: &'static str,
    file: &'static str,
    sha256: &'static str,
    parts: &'static [Part],
}

/// A file that is taken from a wheel.
#[derive(Debug)]
struct Part {
    entry: &'static str,
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
    keep: Keep,
}

/// Which part of a file is kept. It is cut here and not by a tool such as `strip`, so that the result is the same
/// everywhere: its size and SHA-256 are also pinned, and `status` can check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    /// Of a library, the part that is loaded, without the debug symbols after it and without the section table.
    Loaded,
    /// Of a URDF model, the collision shapes, without the visuals, whose meshes are many and large.
    Colliding,
}

impl Part {
    const fn new(entry: &'static str, name: &'static str, bytes: u64, sha256: &'static str) -> Self {
        Self { entry, name, bytes, sha256, keep: Keep::All }
    }

    const fn urdf(entry: &'static str, name: &'static str, bytes: u64, sha256: &'static str) -> Self {
        Self { keep: Keep::Colliding, ..Self::new(entry, name, bytes, sha256) }
    }
}

/// The engine of Hopper, Walker2d and HalfCheetah.
pub static MUJOCO: Engine = Engine {
    id: "mujoco",
    name: "MuJoCo",
    version: "3.3.7",
    tasks: &["hopper", "walker2d", "half-cheetah"],
    library: "libmujoco.so.3.3.7",
    wheels: &[
        Wheel {
            requirement: "mujoco==3.3.7",
            file: "mujoco-3.3.7-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            sha256: "9371506f0df2d82152685fc8d38465843abcea8d371745ea7c125001e8f3f2d8",
            parts: &[Part::new(
                "mujoco/libmujoco.so.3.3.7",
                "libmujoco.so.3.3.7",
                5_075_256,
                "23841520ecf60ad648405674a757f260949f7cf6b44deb284398b9851b3f061d",
            )],
        },
        Wheel {
            requirement: "gymnasium==1.4.0",
            file: "gymnasium-1.4.0-py3-none-any.whl",
            sha256: "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e",
            parts: &[
                Part::new(
                    "gymnasium/envs/mujoco/assets/hopper.xml",
                    "hopper.xml",
                    3_228,
                    "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e",
                ),
                Part::new(
                    "gymnasium/envs/mujoco/assets/walker2d_v5.xml",
                    "walker2d_v5.xml",
                    4_946,
                    "6bed53a6cc3ca73c4fe8ac3486d3b4228927264a6454f4ef16d3eed3c58bc09d",
                ),
                Part::new(
                    "gymnasium/envs/mujoco/assets/half_cheetah.xml",
                    "half_cheetah.xml",
                    5_616,
                    "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494",
                ),
            ],
        },
    ],
};

/// The engine of Ball and Car.
pub static BULLET: Engine = Engine {
    id: "bullet",
    name: "Bullet",
    version: "3.2.7",
    tasks: &["ball-circle", "ball-run", "car-circle", "car-run"],
    library: "pybullet.so",
    wheels: &[
        Wheel {
            requirement: "pybullet==3.2.7",
            file: "pybullet-3.2.7-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            sha256: "5d858abf7c12a21ef3ed351cf81dac1b5e486ec25c9ab59bfc84beb89034edff",
            parts: &[Part {
                entry: "pybullet.cpython-311-x86_64-linux-gnu.so",
                name: "pybullet.so",
                bytes: 8_262_376, // of 139,569,944
                sha256: "95be1236a87bad60ca9dbf716340be8cc789d39562e0d7d6a71e6a73c7144f86",
                keep: Keep::Loaded,
            }],
        },
        Wheel {
            requirement: "bullet-safety-gym==1.4.0",
            file: "bullet_safety_gym-1.4.0-py3-none-any.whl",
            sha256: "26a1f61445bec3c9a5b8027a39e4c652ee7f279ab27fd07ca76ab23eba75c87c",
            parts: &[
                Part::urdf(
                    "bullet_safety_gym/envs/data/plane/plane15.urdf",
                    "plane15.urdf",
                    454,
                    "732341032490e6b416c83189f7a570f2dc74891e9d6e4c1b59e5dc8b15103917",
                ),
                Part::urdf(
                    "bullet_safety_gym/envs/data/plane/plane250.urdf",
                    "plane250.urdf",
                    455,
                    "730c71ce5058c3c9c050da20dfa20af99366c1e7a9120f1e68c7f40440005a28",
                ),
                Part::urdf(
                    "bullet_safety_gym/envs/data/obstacles/octagon_wall.urdf",
                    "octagon_wall.urdf",
                    361,
                    "fc086b61f6ee5b4330c60a4dbcae882fd874523e88c54ff7bd458361aa2decc0",
                ),
                Part::urdf(
                    "bullet_safety_gym/envs/data/robots/ball/ball.urdf",
                    "ball.urdf",
                    576,
                    "e4eb014eae1bb951bc91306b9c89902b479acf6db0fc3adc38979b2d8ea6f84f",
                ),
                Part::urdf(
                    "bullet_safety_gym/envs/data/robots/racecar/racecar_differential.urdf",
                    "racecar_differential.urdf",
                    18_229,
                    "269d34066b68e12c5e92b69f80a4e4cff08fc2929547f6bb1cd6d3c404a7b403",
                ),
                Part::new(
                    "bullet_safety_gym/envs/data/robots/racecar/meshes/chassis_differential.STL",
                    "meshes/chassis_differential.STL",
                    20_284,
                    "0e4b59d808e905ea112400b454f8a344a57ce74de695673266585a16e1a7de39",
                ),
            ],
        },
    ],
};

/// All engines.
pub static ENGINES: [&Engine; 2] = [&MUJOCO, &BULLET];

impl Engine {
    /// The name of the engine's folder in a cache.
    fn folder(&self) -> String {
        format!("{}-{}", self.id, self.version)
    }

    fn parts(&self) -> impl Iterator<Item = &'static Part> {
        self.wheels.iter().flat_map(|wheel| wheel.parts)
    }
}

/// Arguments that make pip select the wheel whose SHA-256 is above, whatever Python it runs on.
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

/// The number of steps that [`Engines::install`] reports: two per wheel.
pub fn install_steps() -> u64 {
    ENGINES.iter().map(|engine| 2 * engine.wheels.len() as u64).sum()
}

/// A cache of engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engines {
    root: PathBuf,
}

/// How much of an engine is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The name of the engine, as in [`Engine::id`].
    pub engine: &'static str,
    /// The version that the tasks need.
    pub version: &'static str,
    /// The tasks that need the engine.
    pub tasks: &'static [&'static str],
    /// The folder of the engine.
    pub path: PathBuf,
    /// Whether all files exist and are the pinned ones.
    pub installed: bool,
    /// The status of each file.
    pub files: Vec<FileStatus>,
}

/// Whether a file of an engine is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileStatus {
    /// The path of the file within the engine's folder.
    pub file: &'static str,
    /// Why the file cannot be used, if it cannot.
    pub problem: Option<String>,
}

impl Engines {
    /// The cache given by the environment variables.
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

    /// The folder of an engine and its models, whether or not it exists.
    pub fn folder(&self, engine: &Engine) -> PathBuf {
        self.root.join(engine.folder())
    }

    /// Checks all files of all engines, which reads and hashes them.
    pub fn status(&self) -> Vec<Status> {
        ENGINES.iter().map(|engine| self.status_of(engine)).collect()
    }

    fn status_of(&self, engine: &'static Engine) -> Status {
        let path = self.folder(engine);
        let files: Vec<_> = engine
            .parts()
            .map(|part| FileStatus { file: part.name, problem: problem(&path.join(part.name), part) })
            .collect();
        let installed = files.iter().all(|file| file.problem.is_none());
        Status { engine: engine.id, version: engine.version, tasks: engine.tasks, path, installed, files }
    }

    /// The path of an engine's file if it is the pinned one, otherwise what is wrong with it.
    pub(crate) fn checked(&self, engine: &Engine, name: &str) -> Result<PathBuf, String> {
        let path = self.folder(engine).join(name);
        let part = engine.parts().find(|part| part.name == name);
        let problem = part.map_or_else(|| Some("not a file of the engine".to_owned()), |part| problem(&path, part));
        match problem {
            None => Ok(path),
            Some(_) if !path.exists() => {
                Err(format!("{} {} is not installed ({} is missing)", engine.name, engine.version, path.display()))
            }
            Some(problem) => Err(format!("{}: {problem}", path.display())),
        }
    }

    /// Installs what is missing and returns whether anything was. Wheels come from the folder `from` or through pip.
    ///
    /// `progress` is called with the number of the current step, of [`install_steps`] in all, and its description.
    pub fn install(&self, from: Option<&Path>, progress: &mut dyn FnMut(u64, &str)) -> Result<bool, Error> {
        let (mut changed, mut steps) = (false, 0);
        for engine in ENGINES {
            changed |= self.install_one(engine, from, &mut |step, what| progress(steps + step, what))?;
            steps += 2 * engine.wheels.len() as u64;
        }
        Ok(changed)
    }

    fn install_one(
        &self,
        engine: &'static Engine,
        from: Option<&Path>,
        progress: &mut dyn FnMut(u64, &str),
    ) -> Result<bool, Error> {
        if self.status_of(engine).installed {
            return Ok(false);
        }
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::Platform { name: engine.name, version: engine.version });
        }
        fs::create_dir_all(&self.root).map_err(Error::io(&self.root, "create the folder"))?;
        // One process installs at a time. The lock ends with the process, so a killed installation blocks no other.
        let lock = self.root.join(".lock");
        let locked =
            OpenOptions::new().create(true).append(true).open(&lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(Error::io(&lock, "lock"))?;
        if self.status_of(engine).installed {
            return Ok(false); // installed by another process in the meantime
        }
        let staging = Staging::new(self.root.join(".staging"))?;
        let (wheels, new) = (staging.0.join("wheels"), staging.0.join(engine.folder()));
        for folder in [&wheels, &new] {
            fs::create_dir(folder).map_err(Error::io(folder, "create the folder"))?;
        }
        for (i, wheel) in (0..).zip(engine.wheels) {
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
        let place = self.folder(engine);
        if place.exists() {
            fs::rename(&place, staging.0.join("old")).map_err(Error::io(&place, "move the damaged folder away"))?;
        }
        fs::rename(&new, &place).map_err(Error::io(&place, "move the new folder into place"))?;
        sync(&self.root)?;
        Ok(true)
    }
}

/// A temporary folder; the remains of a killed installation are removed first.
struct Staging(PathBuf);

impl Staging {
    fn new(path: PathBuf) -> Result<Self, Error> {
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::io(&path, "remove the remains of an interrupted installation"))?;
        }
        fs::create_dir(&path).map_err(Error::io(&path, "create the folder"))?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // if this fails, the next installation removes it
    }
}

/// Why a file is not the pinned one.
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
    if file.is_file() {
        Ok(file)
    } else {
        Err(Error::NoWheel { folder: folder.to_owned(), file: wheel.file, requirement: wheel.requirement })
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
        [] => format!("{}, but there is no file {}", output.status, wheel.file),
        lines => lines[lines.len().saturating_sub(3)..].join("; "),
    }))
}

fn unpack(wheel: &Path, part: &Part, folder: &Path) -> Result<(), Error> {
    let zip = |error: zip::result::ZipError| Error::Zip { path: wheel.to_owned(), why: error.to_string() };
    let file = File::open(wheel).map_err(Error::io(wheel, "open"))?;
    let mut archive = zip::ZipArchive::new(file).map_err(zip)?;
    let entry = archive.by_name(part.entry).map_err(zip)?;
    let mut bytes = Vec::new();
    let limit = match part.keep {
        Keep::All => part.bytes + 1, // so that a longer file does not match
        Keep::Loaded => part.bytes,
        Keep::Colliding => 1 << 20,
    };
    entry.take(limit).read_to_end(&mut bytes).map_err(Error::io(wheel, "unpack"))?;
    match part.keep {
        Keep::All => {}
        Keep::Loaded if bytes.len() < 64 => {}
        Keep::Loaded => {
            // ELF: the offset and the sizes of the section table; only the segment table is needed.
            bytes[40..48].fill(0);
            bytes[58..64].fill(0);
        }
        Keep::Colliding => bytes = without_visuals(&String::from_utf8_lossy(&bytes)).into_bytes(),
    }
    let path = folder.join(part.name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io(parent, "create the folder"))?;
    }
    let write = |mut file: File| file.write_all(&bytes).and_then(|()| file.sync_all());
    OpenOptions::new().write(true).create_new(true).open(&path).and_then(write).map_err(Error::io(&path, "write"))?;
    check_sha256(&path, part.sha256)
}

fn without_visuals(urdf: &str) -> String {
    let mut parts = urdf.split("<visual>");
    let first = parts.next().unwrap_or_default();
    let kept = parts.map(|part| part.split_once("</visual>").map_or("", |(_, after)| after));
    std::iter::once(first).chain(kept).collect()
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

/// Makes new names in a folder survive a power failure.
fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder, "sync the folder"))
}

/// An error of the installation of engines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No environment variable determines the cache.
    #[error("no folder for the engines: PRUDENCE_ENGINES, XDG_CACHE_HOME and HOME are not set; set PRUDENCE_ENGINES")]
    NoPlace,
    /// The pinned library is for another platform.
    #[error("{name} {version} can only be installed on Linux on x86-64")]
    Platform {
        /// The name of the engine.
        name: &'static str,
        /// The version of the engine.
        version: &'static str,
    },
    /// The given folder of wheels does not contain one.
    #[error("{}: there is no {file} in this folder", folder.display())]
    NoWheel {
        /// The folder that was given.
        folder: PathBuf,
        /// The file name of the wheel.
        file: &'static str,
        /// The requirement that pip downloads it by.
        requirement: &'static str,
    },
    /// pip failed to download a wheel.
    #[error("cannot fetch {requirement} with `{python} -m pip download`: {why}")]
    Fetch {
        /// The requirement that was passed to pip.
        requirement: &'static str,
        /// The file name of the wheel.
        file: &'static str,
        /// The interpreter; `$PYTHON` selects another.
        python: String,
        /// The last lines of pip's error output.
        why: String,
    },
    /// A file that is not the pinned one.
    #[error("{}: SHA-256 {found}, expected {expected}; it is not the pinned file", path.display())]
    Hash {
        /// The path of the file.
        path: PathBuf,
        /// The hash of the file.
        found: String,
        /// The pinned hash.
        expected: &'static str,
    },
    /// A wheel that cannot be unpacked.
    #[error("{}: {why}", path.display())]
    Zip {
        /// The path of the wheel.
        path: PathBuf,
        /// What is wrong with the wheel.
        why: String,
    },
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder that was used.
        path: PathBuf,
        /// What was attempted, such as `write`.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }
}
