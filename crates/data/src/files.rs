//! The only place that writes files, so that a crash leaves either the old content or the new, never a mixture.
//!
//! A whole file is written under a temporary name, synced and renamed into place. A log (JSON lines) only grows; a
//! crash can leave an incomplete last line, which is never read and which the next append removes.
#![expect(clippy::disallowed_methods, reason = "this is the module that the lint points to")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};

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

/// Replaces the content of a file. Readers see either all of the old content or all of the new.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut file = File::create(&part).map_err(Error::io(&part, "create"))?;
    file.write_all(bytes).map_err(Error::io(&part, "write"))?;
    file.sync_all().map_err(Error::io(&part, "sync"))?;
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

/// Reads the complete lines of a log of JSON objects. A missing file is an empty log.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> Result<Vec<T>, Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut bytes = read_limited(path, max_bytes)?;
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines
        .map(|(n, line)| {
            serde_json::from_slice(line).map_err(|e| Error::content(path, format!("line {}", n + 1), e.to_string()))
        })
        .collect()
}

/// Appends one line of JSON per value in a single write and syncs the file.
pub fn append_json_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<(), Error> {
    append_lines(path, &json_lines(path, values)?)
}

/// One line of JSON per value; `path` appears only in the error.
pub(crate) fn json_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<String, Error> {
    let mut text = String::new();
    for value in values {
        text += &serde_json::to_string(value).map_err(|e| Error::content(path, "a new line", e.to_string()))?;
        text.push('\n');
    }
    Ok(text)
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
