//! Helpers that the loaders of both engines share.
#![allow(unsafe_code, reason = "the types of symbols in C libraries cannot be checked")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Looks up a symbol in a library.
///
/// # Safety
/// `T` must be the type of the symbol: a function pointer, or a pointer to a global.
pub unsafe fn symbol<T: Copy>(file: &libloading::Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller guarantees the type.
    unsafe { file.get::<T>(name) }.map(|symbol| *symbol).map_err(|error| error.to_string())
}

/// Locks a mutex, also after a panic. For lists that are only changed as a whole and so are always valid.
pub fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
