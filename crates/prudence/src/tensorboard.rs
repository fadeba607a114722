//! TensorBoard event files with scalars. There is no maintained Rust crate for writing them.
//!
//! A file is a sequence of TFRecords (length, masked CRC-32C of the length, payload, masked CRC-32C of the payload); a
//! payload is a protobuf `Event`. TensorBoard reads files whose name contains `tfevents`. The caller passes the time.
#![expect(clippy::disallowed_methods, reason = "an event file is truncated and continued in place")]

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use prost::Message;

/// The fields of `tensorflow.Event` that scalars need.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `tensorflow.Summary.Value`. The value is a `oneof` there, so 0 must be written explicitly.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// An event file open for writing.
#[derive(Debug)]
pub struct EventFile {
    file: BufWriter<File>,
    /// Whether the format record has not been written yet; it gets the time of the first scalars.
    empty: bool,
}

impl EventFile {
    /// Creates a file, replacing an existing one.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Self { file: BufWriter::new(file), empty: true })
    }

    /// Continues a file on resume from `last_step`. Records of later steps, and a record left incomplete by a crash,
    /// are removed. A missing file is created.
    pub fn open_append(path: &Path, last_step: u64) -> io::Result<Self> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(path),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut kept = 0;
        while let Some((event, end)) = record_at(&bytes, kept)
            && u64::try_from(event.step).is_ok_and(|step| step <= last_step)
        {
            kept = end;
        }
        file.set_len(kept as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file: BufWriter::new(file), empty: kept == 0 })
    }

    /// Writes the named scalars of one step; `wall_time` is in seconds since 1970.
    pub fn scalars(&mut self, step: u64, wall_time: f64, scalars: &[(&str, f32)]) -> io::Result<()> {
        if self.empty {
            self.write(&Event { wall_time, file_version: Some("brain.Event:2".to_owned()), ..Event::default() })?;
            self.empty = false;
        }
        let value = |(tag, number): &(&str, f32)| Value { tag: (*tag).to_owned(), simple_value: Some(*number) };
        let summary = Some(Summary { value: scalars.iter().map(value).collect() });
        let step = i64::try_from(step).map_err(io::Error::other)?;
        self.write(&Event { wall_time, step, summary, ..Event::default() })
    }

    /// Passes everything written so far to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let payload = event.encode_to_vec();
        let length = (payload.len() as u64).to_le_bytes();
        self.file.write_all(&length)?;
        self.file.write_all(&masked_crc(&length).to_le_bytes())?;
        self.file.write_all(&payload)?;
        self.file.write_all(&masked_crc(&payload).to_le_bytes())
    }
}

/// The record that starts at `start`, if it is complete and undamaged, and the position where it ends.
fn record_at(bytes: &[u8], start: usize) -> Option<(Event, usize)> {
    let (length, rest) = bytes.get(start..)?.split_first_chunk::<8>()?;
    let (length_crc, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*length_crc) != masked_crc(length) {
        return None;
    }
    let size = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (payload, rest) = rest.split_at_checked(size)?;
    let payload_crc = rest.first_chunk::<4>()?;
    if u32::from_le_bytes(*payload_crc) != masked_crc(payload) {
        return None;
    }
    Some((Event::decode(payload).ok()?, start + 16 + size))
}

/// The masked checksum of TFRecord: an unmasked CRC of data that contains CRCs is a poor checksum.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), which is not the CRC-32 of zip files.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn events(path: &Path) -> Vec<Event> {
        let bytes = std::fs::read(path).unwrap();
        let mut start = 0;
        let mut events = Vec::new();
        while let Some((event, end)) = record_at(&bytes, start) {
            events.push(event);
            start = end;
        }
        assert_eq!(start, bytes.len(), "a record is damaged");
        events
    }

    /// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
    #[test]
    fn crc32c_agrees_with_published_vectors() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    /// The two records as TensorBoard 2.21's own `RecordWriter` writes them.
    #[test]
    fn records_are_byte_for_byte_those_of_tensorboard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.0");
        let mut file = EventFile::create(&path).unwrap();
        file.scalars(5, 11.0, &[("return", -70.5), ("lambda", 0.0)]).unwrap();
        file.flush().unwrap();
        let hex: String = std::fs::read(&path).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let theirs = "1800000000000000a37f4b220900000000000026401a0d627261696e2e4576656e743a32ab5f5018\
                      2b00000000000000861bc34b09000000000000264010052a1e0a0d0a0672657475726e1500008dc2\
                      0a0d0a066c616d626461150000000054eb1bd4";
        assert_eq!(hex, theirs);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.0");
        let mut file = EventFile::create(&path).unwrap();
        file.scalars(5, 11.0, &[("return", -70.5), ("lambda", 0.0)]).unwrap();
        file.flush().unwrap();
        let events = events(&path);
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        assert_eq!((events[1].step, events[1].wall_time), (5, 11.0));
        let values = &events[1].summary.as_ref().unwrap().value;
        assert_eq!((values[0].tag.as_str(), values[0].simple_value), ("return", Some(-70.5)));
        assert_eq!((values[1].tag.as_str(), values[1].simple_value), ("lambda", Some(0.0)));
    }

    #[test]
    fn resume_cuts_later_steps_and_torn_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.0");
        let write = |file: &mut EventFile, steps: &[u64]| {
            steps.iter().for_each(|step| file.scalars(*step, 0.0, &[("x", *step as f32)]).unwrap());
            file.flush().unwrap();
        };
        write(&mut EventFile::create(&path).unwrap(), &[1, 2, 3, 4]);
        let whole = std::fs::read(&path).unwrap();
        let mut torn = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        torn.write_all(&whole[..whole.len() - 3]).unwrap();
        write(&mut EventFile::open_append(&path, 2).unwrap(), &[3, 4]);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn resume_without_a_file_starts_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.0");
        let mut file = EventFile::open_append(&path, 9).unwrap();
        file.scalars(10, 0.0, &[("x", 1.0)]).unwrap();
        file.flush().unwrap();
        assert_eq!(events(&path).len(), 2);
    }
}
