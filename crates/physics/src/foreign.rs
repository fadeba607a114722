//! What the engines' loaders share.
#![allow(unsafe_code, reason = "symbols of C libraries have the types that we say")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// # Safety
/// `T` must be the symbol's type: a function pointer, or a pointer to a global.
pub unsafe fn symbol<T: Copy>(file: &libloading::Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    unsafe { file.get::<T>(name) }.map(|symbol| *symbol).map_err(|error| error.to_string())
}

/// For lists that only grow or shrink whole, and so are sound after a panic, too.
pub fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
