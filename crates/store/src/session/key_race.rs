//! A write that takes a unique key which another transaction takes at the same time.

use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::error::{StoreError, StoreResult};

/// How often a write is repeated because another transaction took the key that it had found free.
const RACES: u32 = 50;

/// Repeats a write that found a key free which another transaction took before the write.
pub(crate) fn repeat_if_key_is_taken<T>(mut write: impl FnMut() -> StoreResult<T>) -> StoreResult<T> {
    let mut races = 0;
    loop {
        match write() {
            Err(StoreError::Database(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)))
                if races < RACES =>
            {
                races += 1;
            }
            other => return other,
        }
    }
}
