//! Argument checks that environments share.

use crate::Error;

/// Returns an error if a slice does not have the expected length.
pub fn check_length(what: &'static str, slice: &[f64], expected: usize) -> Result<(), Error> {
    if slice.len() == expected { Ok(()) } else { Err(Error::Length { what, given: slice.len(), expected }) }
}

/// Returns an error if a slice contains a number that is not finite.
pub fn check_finite(what: &'static str, slice: &[f64]) -> Result<(), Error> {
    match slice.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(Error::NotFinite { what, index, value: slice[index] }),
        None => Ok(()),
    }
}
