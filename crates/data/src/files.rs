//! The only place that writes files, so that a crash leaves either the old content or the new, never a mixture.
//!
//! A whole file is written under a temporary name, synced and renamed into place. A log (JSON lines) only grows; a
//! crash can leave an incomplete last line, which is reported, never used, and removed by the next append.
//!
//! JSON documents carry a BLAKE3 hash of their content, and each line of a log has its own checksum, so that a damaged file
//! is noticed when it is read. Both are computed from the parsed values, so a change of the formatting alone does not count.
//!
//! ```
//! use prudence_data::files;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("counts.json");
//! files::write_json(&path, &serde_json::json!({ "episodes": 10 }))?; // atomically, with a hash
//! let counts: serde_json::Value = files::read_json(&path, 1 << 20)?; // at most 1 MiB; the hash is verified
//! assert_eq!(counts["episodes"], 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![expect(clippy::disallowed_methods, reason = "this is the module that the lint points to")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::Error;

/// Creates a folder and its parents. A folder that already exists must be empty.
pub fn create_fresh_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io(path, "create the folder"))?;
    if fs::read_dir(path).map_err(Error::io(path, "list the folder"))?.next().is_some() {
        return Err(Error::NotFresh { path: path.to_owned() });
    }
    sync_dir(&parent(path))
}

/// Creates a folder and its parents, unless they exist.
pub fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io(path, "create the folder"))
}

/// The paths in a folder, sorted.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(dir).map_err(Error::io(dir, "list the folder"))?;
    let paths: std::io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(Error::io(dir, "list the folder"))?;
    paths.sort();
    Ok(paths)
}

/// Removes a file, or a folder with everything in it, if it exists.
pub fn remove(path: &Path) -> Result<(), Error> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, "remove")(error)),
        _ => Ok(()),
    }
}

/// Opens a file for reading.
pub fn open(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

/// A new file without a name in `folder`, which is gone as soon as it is closed.
pub(crate) fn temporary(folder: &Path) -> Result<File, Error> {
    tempfile::tempfile_in(folder).map_err(Error::io(folder, "create a temporary file in"))
}

/// Replaces the content of a file. Readers see either all of the old content or all of the new.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut file = File::create(&part).map_err(Error::io(path, "create"))?;
    file.write_all(bytes).map_err(Error::io(path, "write"))?;
    file.sync_all().map_err(Error::io(path, "sync"))?;
    drop(file);
    if let Err(source) = fs::rename(&part, path) {
        let _ = fs::remove_file(&part); // leave no partial file behind
        return Err(Error::io(path, "move the new file into place")(source));
    }
    sync_dir(&parent(path))
}

/// Appends whole lines to a log and syncs it, after removing an incomplete last line. Creates the file if necessary.
pub fn append_lines(path: &Path, lines: &str) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let new = !path.exists();
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(Error::io(path, "open for appending"))?;
    let whole = whole_lines(&mut file).map_err(Error::io(path, "read"))?;
    file.set_len(whole).map_err(Error::io(path, "remove the incomplete last line"))?;
    let end = if lines.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{lines}{end}").as_bytes()).map_err(Error::io(path, "append"))?;
    file.sync_data().map_err(Error::io(path, "sync"))?;
    if new { sync_dir(&parent(path)) } else { Ok(()) }
}

/// Reads a whole file. A file larger than `max_bytes` is an error.
pub fn read_limited(path: &Path, max_bytes: u64) -> Result<Vec<u8>, Error> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > max_bytes {
        return Err(Error::TooLarge { path: path.to_owned(), limit: max_bytes });
    }
    Ok(bytes)
}

/// The member of a JSON document that holds the hash of all others.
const HASH: &str = "blake3";
/// The member of a line of a log that holds the check of all others: the first 16 hexadecimal digits of their hash.
const CHECK: &str = "check";

/// The hash of a JSON object's members.
fn hash_of(members: &Map<String, Value>) -> String {
    blake3::hash(Value::Object(members.clone()).to_string().as_bytes()).to_string()
}

/// The members of a value that serialises as a JSON object.
fn members<T: Serialize>(path: &Path, value: &T) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(value) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Error::content(path, "JSON", "not an object")),
        Err(e) => Err(Error::content(path, "JSON", e.to_string())),
    }
}

/// Replaces a file by a JSON document with its hash.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let mut members = members(path, value)?;
    members.insert(HASH.to_owned(), Value::String(hash_of(&members)));
    let text = serde_json::to_string_pretty(&members).map_err(|e| Error::content(path, "JSON", e.to_string()))?;
    write_atomic(path, format!("{text}\n").as_bytes())
}

/// Reads a JSON document and compares it with its hash.
pub fn read_json<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> Result<T, Error> {
    serde_json::from_value(read_members(path, max_bytes)?.into())
        .map_err(|e| Error::content(path, "JSON", e.to_string()))
}

/// The members of a JSON document whose hash is right.
pub(crate) fn read_members(path: &Path, max_bytes: u64) -> Result<Map<String, Value>, Error> {
    let mut members: Map<String, Value> = serde_json::from_slice(&read_limited(path, max_bytes)?)
        .map_err(|e| Error::content(path, "JSON", e.to_string()))?;
    match members.remove(HASH) {
        Some(Value::String(hash)) if hash == hash_of(&members) => Ok(members),
        Some(_) => Err(Error::Damaged { path: path.to_owned(), place: String::new() }),
        None => Err(Error::content(path, "JSON", format!("the member `{HASH}` is missing"))),
    }
}

/// The complete lines of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines<T> {
    /// The values, one per line.
    pub values: Vec<T>,
    /// Whether an incomplete line follows, as a crash leaves one behind; it does not count.
    pub torn: bool,
}

/// Reads the complete lines of a log of JSON objects and verifies each. A missing file is an empty log.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> Result<Lines<T>, Error> {
    let mut bytes = match read_limited(path, max_bytes) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let tail = bytes.split_off(whole);
    let torn = !tail.is_empty();
    // An interrupted write leaves the beginning of a line, never a complete one with another byte after it.
    if let [complete @ .., _] = &tail[..]
        && serde_json::from_slice::<Map<String, Value>>(complete).is_ok()
    {
        return Err(Error::Damaged { path: path.to_owned(), place: "the end of the last line".to_owned() });
    }
    let line = |(n, line): (usize, &[u8])| {
        let place = || format!("line {}", n + 1);
        let broken = |e: serde_json::Error| Error::content(path, place(), e.to_string());
        let mut members: Map<String, Value> = serde_json::from_slice(line).map_err(broken)?;
        let check = members.remove(CHECK);
        if check.as_ref().and_then(Value::as_str) != Some(&hash_of(&members)[..16]) {
            return Err(match check {
                Some(_) => Error::Damaged { path: path.to_owned(), place: place() },
                None => Error::content(path, place(), format!("the member `{CHECK}` is missing")),
            });
        }
        serde_json::from_value(members.into()).map_err(broken)
    };
    let values: Result<_, Error> = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().map(line).collect();
    Ok(Lines { values: values?, torn })
}

/// Appends one line of JSON per value in a single write and syncs the file.
pub fn append_json_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<(), Error> {
    append_lines(path, &json_lines(path, values)?)
}

/// Replaces a log by these values, one line of JSON each.
pub fn write_json_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<(), Error> {
    write_atomic(path, json_lines(path, values)?.as_bytes())
}

/// One line of JSON per value; `path` appears only in the error.
fn json_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<String, Error> {
    let mut text = String::new();
    for value in values {
        let mut members = members(path, value)?;
        members.insert(CHECK.to_owned(), Value::String(hash_of(&members)[..16].to_owned()));
        text += &Value::Object(members).to_string();
        text.push('\n');
    }
    Ok(text)
}

/// Exclusive use of a folder or file by this process, until it is dropped or the process ends, however that happens.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Takes the lock that the file `path` stands for. If another process has it, the error says which.
pub fn lock(path: &Path) -> Result<Lock, Error> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(Error::io(path, "open"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = (&mut file).take(1024).read_to_string(&mut holder); // the text only helps to find the process
            return Err(Error::Locked { path: parent(path), holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(source)) if source.kind() == std::io::ErrorKind::Unsupported => {
            return Err(Error::NoLocks { path: parent(path) });
        }
        Err(TryLockError::Error(source)) => return Err(Error::io(path, "lock")(source)),
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "this host" } else { host.trim() };
    let text = format!("process {} on {host}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(Error::io(path, "write"))?;
    Ok(Lock { _file: file })
}

/// The offset at which the last complete line ends.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    const CHUNK: u64 = 64 * 1024;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        let mut chunk = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut chunk)?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes a rename or a new file in `dir` survive a power failure. Only Unix can sync a folder; elsewhere this does
/// nothing.
fn sync_dir(dir: &Path) -> Result<(), Error> {
    if cfg!(unix) {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io(dir, "sync the folder"))?;
    }
    Ok(())
}
