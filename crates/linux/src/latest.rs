//! The latest value of a kind, published by one thread and read by others.

use std::sync::{Arc, Mutex, PoisonError};

/// A slot for the latest value. Readers share the value instead of waiting for the next one.
#[derive(Debug, Default)]
pub(crate) struct Latest<T>(Arc<Mutex<Arc<T>>>);

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Latest<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// Replaces the value.
    pub(crate) fn publish(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }

    /// The value that was published last.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
