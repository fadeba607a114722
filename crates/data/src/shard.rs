//! One shard of the store: whole episodes as a Parquet file that pandas, polars and DuckDB read.
//!
//! An episode has one row per step and a last row with only the final observation, whose reward, signals and action
//! values are null (the action list itself is not: pyarrow before 26 cannot read a null among lists of fixed size). A
//! row group holds whole episodes, so that some of them can be read without the rest. Everything that is read is
//! checked against the index and the schema, because a shard may come from an untrusted source.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::NullBufferBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field, FieldRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::{Episode, Schema};

/// A row group is closed before it would grow past this.
const GROUP_ROWS: usize = 64 * 1024;
/// The number of columns before the signals.
const FIXED: usize = 6;

/// Encodes episodes, which must fit the schema, as the bytes of a file. Equal episodes give equal bytes.
pub(crate) fn encode(schema: &Schema, first: u64, episodes: &[Episode]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns(schema);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(None)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), columns.clone(), Some(properties))?;
    let (mut start, mut rows) = (0, 0);
    for (i, episode) in episodes.iter().enumerate() {
        if i > start && rows + episode.len() + 1 > GROUP_ROWS {
            writer.write(&batch(schema, &columns, first + start as u64, &episodes[start..i])?)?;
            writer.flush()?;
            (start, rows) = (i, 0);
        }
        rows += episode.len() + 1;
    }
    writer.write(&batch(schema, &columns, first + start as u64, &episodes[start..])?)?;
    writer.into_inner()
}

/// The part of a shard to decode: the shard's first episode and its lengths according to the index, and the episodes
/// wanted, counted from the first. A file that differs from the index is an error.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    pub first: u64,
    pub steps: &'a [u32],
    pub wanted: Range<usize>,
}

/// Decodes episodes, with or without their signals.
pub(crate) fn decode(
    file: &File,
    schema: &Schema,
    part: Part<'_>,
    with_signals: bool,
) -> Result<Vec<Episode>, Unreadable> {
    let columns = if with_signals { 0..FIXED + schema.signals.len() } else { 0..FIXED };
    each_episode(file, schema, part, columns.collect(), |rows| {
        let [_, _, observations, actions, rewards, terminated, signals @ ..] = rows.columns() else {
            return Err("columns are missing".to_owned());
        };
        let steps = rows.num_rows() - 1;
        let list = |column: &ArrayRef, rows: usize| {
            let list = column.slice(0, rows);
            let list = list.as_fixed_size_list_opt().ok_or(TYPED)?;
            let numbers = list.values().as_primitive_opt::<Float32Type>().ok_or(TYPED)?;
            if numbers.null_count() > 0 { Err("a null among the values") } else { Ok(numbers.values().to_vec()) }
        };
        let terminated = terminated.as_boolean_opt().ok_or(TYPED)?;
        if (0..steps - 1).any(|t| terminated.value(t)) {
            return Err("terminated before the last step".to_owned());
        }
        let episode = Episode {
            observation_width: schema.observation_dim,
            action_width: schema.action_dim,
            observations: list(observations, steps + 1)?,
            actions: list(actions, steps)?,
            rewards: rewards.as_primitive_opt::<Float32Type>().ok_or(TYPED)?.values()[..steps].to_vec(),
            signals: interleaved(signals, steps)?,
            terminated: terminated.value(steps - 1),
        };
        schema.check_episode(&episode, signals.len())?;
        Ok(episode)
    })
}

/// Decodes the signals of episodes alone, `[T, signal]` each.
pub(crate) fn decode_signals(file: &File, schema: &Schema, part: Part<'_>) -> Result<Vec<Vec<f64>>, Unreadable> {
    let columns = [0, 1].into_iter().chain(FIXED..FIXED + schema.signals.len()).collect();
    each_episode(file, schema, part, columns, |rows| {
        let signals = interleaved(&rows.columns()[2..], rows.num_rows() - 1)?;
        schema.check_signals(&signals)?;
        Ok(signals)
    })
}

const TYPED: &str = "the type of a column differs from the schema";

/// Decodes some columns, of which the first two are `episode` and `t`, and calls `decode` with the rows of each episode
/// that is wanted.
fn each_episode<T>(
    file: &File,
    schema: &Schema,
    Part { first, steps, wanted }: Part<'_>,
    roots: Vec<usize>,
    decode: impl Fn(&RecordBatch) -> Result<T, String>,
) -> Result<Vec<T>, Unreadable> {
    let options = ArrowReaderOptions::new().with_schema(columns(schema));
    let metadata = ArrowReaderMetadata::load(file, options)?;
    let mut decoded = Vec::new();
    let mut at = 0; // the first episode of the next row group
    for (group, rows) in metadata.metadata().row_groups().iter().map(|group| group.num_rows()).enumerate() {
        let mut held = 0;
        let begin = at;
        while held < rows && at < steps.len() {
            held += i64::from(steps[at]) + 1;
            at += 1;
        }
        if held != rows || held == 0 {
            return Err(format!("row group {group} has {rows} rows; the index says {held}").into());
        }
        let (from, to) = (wanted.start.max(begin), wanted.end.min(at));
        if from >= to {
            continue;
        }
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied()))
            .with_batch_size(held as usize)
            .build()?;
        let mut batches = batches.into_iter();
        let batch = batches.next().ok_or_else(|| format!("row group {group} is empty"))??;
        if batch.num_rows() != held as usize {
            return Err(format!("row group {group} ends after {} of {held} rows", batch.num_rows()).into());
        }
        let mut row = steps[begin..from].iter().map(|steps| *steps as usize + 1).sum();
        for (i, steps) in (from..to).zip(&steps[from..to]) {
            let (id, steps) = (first + i as u64, *steps as usize);
            let rows = batch.slice(row, steps + 1);
            let one = check_rows(&rows, id, steps, roots.len()).and_then(|()| decode(&rows));
            decoded.push(one.map_err(|problem| format!("episode {id}: {problem}"))?);
            row += steps + 1;
        }
    }
    if at != steps.len() {
        return Err(format!("holds {at} episodes; the index says {}", steps.len()).into());
    }
    Ok(decoded)
}

/// Checks that rows are those of an episode: numbered, with nulls only after the last step.
fn check_rows(rows: &RecordBatch, id: u64, steps: usize, columns: usize) -> Result<(), String> {
    if rows.num_columns() != columns {
        return Err("columns are missing".to_owned());
    }
    let ids = rows.column(0).as_primitive_opt::<UInt64Type>().ok_or(TYPED)?;
    let times = rows.column(1).as_primitive_opt::<UInt32Type>().ok_or(TYPED)?;
    if ids.values().iter().any(|i| *i != id) || times.values().iter().zip(0u32..).any(|(t, expected)| *t != expected) {
        return Err("the columns `episode` and `t` do not match the index".to_owned());
    }
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        if field.is_nullable() && (column.null_count() != 1 || column.is_valid(steps)) {
            return Err("nulls in other rows than the one after the last step".to_owned());
        }
    }
    Ok(())
}

/// Columns side by side: `[steps, columns]`.
fn interleaved(columns: &[ArrayRef], steps: usize) -> Result<Vec<f64>, String> {
    let mut numbers = vec![0.0; steps * columns.len()];
    for (s, column) in columns.iter().enumerate() {
        let column = column.as_primitive_opt::<Float64Type>().ok_or(TYPED)?.values();
        numbers.iter_mut().skip(s).step_by(columns.len()).zip(column.iter()).for_each(|(to, from)| *to = *from);
    }
    Ok(numbers)
}

/// Why a shard cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    #[error("{0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Content(String),
}

impl From<String> for Unreadable {
    fn from(problem: String) -> Self {
        Unreadable::Content(problem)
    }
}

fn columns(schema: &Schema) -> arrow_schema::SchemaRef {
    let list = |dim: usize, nullable: bool| DataType::FixedSizeList(number(nullable), dim as i32);
    let mut fields = vec![
        Field::new("episode", DataType::UInt64, false),
        Field::new("t", DataType::UInt32, false),
        Field::new("observation", list(schema.observation_dim, false), false),
        Field::new("action", list(schema.action_dim, true), false),
        Field::new("reward", DataType::Float32, true),
        Field::new("terminated", DataType::Boolean, true),
    ];
    fields.extend(schema.signals.iter().map(|name| Field::new(format!("signal.{name}"), DataType::Float64, true)));
    Arc::new(arrow_schema::Schema::new(fields))
}

fn number(nullable: bool) -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float32, nullable))
}

fn batch(
    schema: &Schema,
    columns: &arrow_schema::SchemaRef,
    first: u64,
    episodes: &[Episode],
) -> Result<RecordBatch, ParquetError> {
    let rows = episodes.iter().map(|episode| episode.len() + 1).sum();
    let mut ids = Vec::with_capacity(rows);
    let mut times = Vec::with_capacity(rows);
    let mut observations = Vec::with_capacity(rows * schema.observation_dim);
    let mut actions = Vec::with_capacity(rows * schema.action_dim);
    let mut rewards = Vec::with_capacity(rows);
    let mut terminated = Vec::with_capacity(rows);
    let mut signals = vec![Vec::with_capacity(rows); schema.signals.len()];
    let mut taken = NullBufferBuilder::new(rows); // null in the last row of an episode
    let mut chosen = NullBufferBuilder::new(rows * schema.action_dim); // the same for the values of the actions
    for (id, episode) in (first..).zip(episodes) {
        let steps = episode.len();
        ids.extend(std::iter::repeat_n(id, steps + 1));
        times.extend(0..=steps as u32);
        observations.extend_from_slice(&episode.observations);
        actions.extend_from_slice(&episode.actions);
        actions.resize(actions.len() + schema.action_dim, 0.0);
        rewards.extend_from_slice(&episode.rewards);
        rewards.push(0.0);
        terminated.extend((1..=steps + 1).map(|t| t == steps && episode.terminated));
        for (s, column) in signals.iter_mut().enumerate() {
            column.extend(episode.signals.iter().skip(s).step_by(schema.signals.len()));
            column.push(0.0);
        }
        taken.append_n_non_nulls(steps);
        taken.append_null();
        chosen.append_n_non_nulls(steps * schema.action_dim);
        chosen.append_n_nulls(schema.action_dim);
    }
    let (taken, chosen) = (taken.finish(), chosen.finish());
    let list = |dim: usize, numbers: Vec<f32>, nullable: bool, nulls| {
        let numbers = Arc::new(Float32Array::try_new(numbers.into(), nulls)?);
        FixedSizeListArray::try_new(number(nullable), dim as i32, numbers, None)
    };
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(ids)),
        Arc::new(UInt32Array::from(times)),
        Arc::new(list(schema.observation_dim, observations, false, None)?),
        Arc::new(list(schema.action_dim, actions, true, chosen)?),
        Arc::new(Float32Array::try_new(rewards.into(), taken.clone())?),
        Arc::new(BooleanArray::new(terminated.into(), taken.clone())),
    ];
    for column in signals {
        arrays.push(Arc::new(Float64Array::try_new(column.into(), taken.clone())?));
    }
    Ok(RecordBatch::try_new(columns.clone(), arrays)?)
}
