//! Weights on disk: safetensors, under the names PyTorch gives them.

use std::collections::BTreeMap;
use std::collections::HashMap;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::Scalar;

/// What can be wrong with a file of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a safetensors file.
    #[error("not a safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    /// A tensor is not there.
    #[error("tensor `{0}` is missing")]
    Missing(String),
    /// A tensor has another shape or type than the program expects.
    #[error("tensor `{name}` is {given}, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// What the file has.
        given: String,
        /// What it should have.
        expected: String,
    },
    /// A tensor holds a number that is not finite.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
}

/// A file of weights in the making.
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

    /// Adds a network whose tensors lie one after the other in `parameters`, matrices transposed.
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

    /// Adds a line to the header.
    pub fn metadata(&mut self, key: &str, value: String) {
        self.metadata.insert(key.into(), value);
    }

    /// The file's bytes; the same content gives the same bytes.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        let views: Result<Vec<_>, _> = self
            .tensors
            .iter()
            .map(|(name, (dtype, shape, bytes))| Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?)))
            .collect();
        let views = views.map_err(|e: safetensors::SafeTensorError| Error::Format(e))?;
        let file = safetensors::serialize(views, None)?;
        match self.metadata.is_empty() {
            true => Ok(file),
            false => with_metadata(&file, &self.metadata),
        }
    }
}

/// The transpose of `[rows, cols]`.
pub fn transposed<T: Scalar>(data: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..rows * cols).map(|i| data[i % rows * cols + i / rows]).collect()
}

/// The file with these lines in its header. The library would write them in an order that changes from call to call, and
/// files are compared and hashed.
fn with_metadata(file: &[u8], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error> {
    let (length, _) = SafeTensors::read_metadata(file)?;
    let (tensors, data) = file[8..].split_at(length);
    let lines = serde_json::to_vec(metadata).map_err(safetensors::SafeTensorError::from)?;
    let tensors = tensors.trim_ascii_end(); // `{...}`
    let comma: &[u8] = if tensors == b"{}" { b"" } else { b"," };
    let mut header = [b"{\"__metadata__\":", &lines[..], comma, &tensors[1..]].concat();
    header.resize(header.len().next_multiple_of(8), b' '); // numbers begin at a multiple of 8
    Ok([&(header.len() as u64).to_le_bytes(), &header[..], data].concat())
}

/// A file of weights, opened.
pub struct Reader<'a> {
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> Reader<'a> {
    /// Checks the header; the numbers stay where they are.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Self { tensors: SafeTensors::deserialize(bytes)?, metadata })
    }

    /// A line of the header.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// One tensor of this very shape, every number finite.
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

    /// A network's tensors, one after the other, matrices transposed.
    pub fn network<T: Scalar>(&self, prefix: &str, tensors: &[(String, Vec<usize>)]) -> Result<Vec<T>, Error> {
        let mut parameters = Vec::new();
        for (name, shape) in tensors {
            let data: Vec<T> = self.tensor(&format!("{prefix}{name}"), shape)?;
            match shape[..] {
                [rows, cols] => parameters.extend(transposed(&data, rows, cols)),
                _ => parameters.extend(data),
            }
        }
        Ok(parameters)
    }
}
