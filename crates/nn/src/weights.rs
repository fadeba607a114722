//! Weights on disk: safetensors files with PyTorch's names.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ops::Range;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::Scalar;

/// An invalid file of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a safetensors file.
    #[error("not a safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    Missing(String),
    /// A tensor's shape or type differs from the expected one.
    #[error("tensor `{name}` is {given}, expected {expected}")]
    Shape {
        /// The name of the tensor.
        name: String,
        /// The type and shape in the file.
        given: String,
        /// The expected type and shape.
        expected: String,
    },
    /// The content differs from the hash in the header.
    #[error("the content does not match its hash; the file was damaged, restore it from a backup")]
    Damaged,
    /// The header has no hash.
    #[error("the header has no hash `{HASH}`; not written by prudence, or damaged")]
    NoHash,
    /// A tensor holds a number that is not finite.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
}

/// The header entry with the BLAKE3 hash of the whole file, taken while [`NO_HASH`] stood in its place.
const HASH: &str = "blake3";
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Where a file's header has this hash.
fn hash_place(file: &[u8], hash: &str) -> Option<Range<usize>> {
    let entry = format!("\"{HASH}\":\"{hash}\"");
    let length = usize::try_from(u64::from_le_bytes(*file.first_chunk()?)).ok()?;
    let header = file.get(8..)?.get(..length)?;
    let start = 8 + header.windows(entry.len()).position(|bytes| bytes == entry.as_bytes())?;
    let end = start + entry.len() - 1;
    Some(end - NO_HASH.len()..end)
}

/// Builds a file of weights.
#[derive(Default)]
pub struct Writer {
    tensors: BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>,
    metadata: BTreeMap<String, String>,
}

impl Writer {
    /// Adds one tensor.
    pub fn tensor<T: Scalar>(&mut self, name: impl Into<String>, shape: &[usize], data: &[T]) {
        let mut bytes = Vec::with_capacity(size_of_val(data));
        data.iter().for_each(|x| x.write(&mut bytes));
        self.tensors.insert(name.into(), (T::DTYPE, shape.to_vec(), bytes));
    }

    /// Adds the tensors of a network, which follow one another in `parameters` with matrices transposed.
    pub fn network<T: Scalar>(&mut self, prefix: &str, tensors: &[(String, Vec<usize>)], parameters: &[T]) {
        let mut rest = parameters;
        for (name, shape) in tensors {
            let (data, after) = rest.split_at(shape.iter().product());
            let name = format!("{prefix}{name}");
            match shape[..] {
                [rows, cols] => self.tensor(name, shape, &transposed(data, cols, rows)),
                _ => self.tensor(name, shape, data),
            }
            rest = after;
        }
    }

    /// Adds a header entry.
    pub fn metadata(&mut self, key: &str, value: String) {
        self.metadata.insert(key.into(), value);
    }

    /// The file's bytes. The same content always gives the same bytes.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        let views: Result<Vec<_>, _> = self
            .tensors
            .iter()
            .map(|(name, (dtype, shape, bytes))| Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?)))
            .collect();
        let views = views.map_err(|e: safetensors::SafeTensorError| Error::Format(e))?;
        let file = safetensors::serialize(views, None)?;
        let mut metadata = self.metadata;
        metadata.insert(HASH.to_owned(), NO_HASH.to_owned());
        let mut file = with_metadata(&file, &metadata)?;
        let place = hash_place(&file, NO_HASH).ok_or(Error::NoHash)?;
        let hash = blake3::hash(&file).to_string();
        file[place].copy_from_slice(hash.as_bytes());
        Ok(file)
    }
}

/// The transpose of `[rows, cols]`.
pub fn transposed<T: Scalar>(data: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..rows * cols).map(|i| data[i % rows * cols + i / rows]).collect()
}

/// The parameters of a network in our layout, from PyTorch's: its tensors one after another, with matrices transposed.
pub fn from_pytorch<T: Scalar>(tensors: &[(String, Vec<usize>)], parameters: &[T]) -> Vec<T> {
    let mut own = Vec::with_capacity(parameters.len());
    for (_, shape) in tensors {
        let data = &parameters[own.len()..][..shape.iter().product()];
        match shape[..] {
            [rows, cols] => own.extend(transposed(data, rows, cols)),
            _ => own.extend_from_slice(data),
        }
    }
    own
}

/// Adds entries to a file's header in a fixed order. The library's own order changes from call to call, but files are
/// compared and hashed.
fn with_metadata(file: &[u8], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error> {
    let (length, _) = SafeTensors::read_metadata(file)?;
    let (tensors, data) = file[8..].split_at(length);
    let lines = serde_json::to_vec(metadata).map_err(safetensors::SafeTensorError::from)?;
    let tensors = tensors.trim_ascii_end(); // `{...}`
    let comma: &[u8] = if tensors == b"{}" { b"" } else { b"," };
    let mut header = [b"{\"__metadata__\":", &lines[..], comma, &tensors[1..]].concat();
    header.resize(header.len().next_multiple_of(8), b' '); // the data begins at a multiple of 8
    Ok([&(header.len() as u64).to_le_bytes(), &header[..], data].concat())
}

/// Reads a file of weights.
pub struct Reader<'a> {
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> Reader<'a> {
    /// Parses and checks the header and compares the file with its hash; the tensors are not copied.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let mut metadata = header.metadata().clone().unwrap_or_default();
        let hash = metadata.remove(HASH).filter(|hash| hash.len() == NO_HASH.len()).ok_or(Error::NoHash)?;
        let place = hash_place(bytes, &hash).ok_or(Error::Damaged)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes[..place.start]).update(NO_HASH.as_bytes()).update(&bytes[place.end..]);
        if hasher.finalize().to_string() != hash {
            return Err(Error::Damaged);
        }
        Ok(Self { tensors: SafeTensors::deserialize(bytes)?, metadata })
    }

    /// A header entry.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// A tensor, which must have exactly this shape and only finite numbers.
    pub fn tensor<T: Scalar>(&self, name: &str, shape: &[usize]) -> Result<Vec<T>, Error> {
        let view = self.tensors.tensor(name).map_err(|_| Error::Missing(name.into()))?;
        if view.dtype() != T::DTYPE || view.shape() != shape {
            return Err(Error::Shape {
                name: name.into(),
                given: format!("{:?} {:?}", view.dtype(), view.shape()),
                expected: format!("{:?} {shape:?}", T::DTYPE),
            });
        }
        let data: Vec<T> = view.data().chunks_exact(size_of::<T>()).map(T::read).collect();
        match data.iter().all(|x| x.finite()) {
            true => Ok(data),
            false => Err(Error::NotFinite(name.into())),
        }
    }

    /// The tensors of a network, one after another, with matrices transposed.
    pub fn network<T: Scalar>(&self, prefix: &str, tensors: &[(String, Vec<usize>)]) -> Result<Vec<T>, Error> {
        let mut parameters = Vec::new();
        for (name, shape) in tensors {
            parameters.extend(self.tensor::<T>(&format!("{prefix}{name}"), shape)?);
        }
        Ok(from_pytorch(tensors, &parameters))
    }
}
