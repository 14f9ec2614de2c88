// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Cached answers of the device to queries about a function: its attributes, and the number of its blocks that fit a
//! multiprocessor. Some programs repeat such queries before each launch.

use std::sync::{Mutex, PoisonError};

use cuda_environment::speed;
use virtio_cuda_client::{CudaError, changes};

/// Maximum number of answers that are cached per function. Limits the process's memory.
const MAX_ANSWERS: usize = 64;

/// A query about a function. Its answer changes only with the function's attributes, or with a call that changes launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// `cuFuncGetAttribute`
    Attribute {
        /// The current context.
        context: u64,
        /// `CUfunction_attribute`
        attribute: i32,
    },
    /// `cuKernelGetAttribute`
    KernelAttribute {
        /// The ordinal of the device.
        device: i32,
        /// `CUfunction_attribute`
        attribute: i32,
    },
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`
    ActiveBlocks {
        /// The current context.
        context: u64,
        /// Threads of a block.
        block: i32,
        /// Bytes of dynamic shared memory of a block.
        shared: usize,
        /// `CUoccupancy_flags`
        flags: u32,
    },
}

/// The cached answers about a function.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Stored>);

#[derive(Debug, Default)]
struct Stored {
    known: Vec<(Query, i32)>,
    /// The number of changes of the function's attributes.
    version: u64,
    /// The number of calls that had changed launches ([`changes`]) before the device gave these answers.
    changes: u64,
}

impl Answers {
    /// Returns the cached answer, or that of `ask`, which is cached unless a setting has changed meanwhile.
    pub fn get(&self, query: Query, ask: impl FnOnce() -> Result<i32, CudaError>) -> Result<i32, CudaError> {
        let changes = changes::so_far();
        let version = {
            let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if stored.changes != changes {
                stored.known.clear();
                stored.changes = changes;
            }
            if speed::is_on()
                && let Some((_, answer)) = stored.known.iter().find(|(known, _)| *known == query)
            {
                return Ok(*answer);
            }
            stored.version
        };
        let answer = ask()?;
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if (stored.version, stored.changes) == (version, changes) {
            stored.known.truncate(MAX_ANSWERS - 1);
            stored.known.insert(0, (query, answer));
        }
        Ok(answer)
    }

    /// Removes all answers after a change of the function's attributes.
    pub fn forget(&self) {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.known.clear();
        stored.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: Query = Query::Attribute { context: 1, attribute: 0 };

    #[test]
    fn an_answer_holds_until_an_attribute_changes() {
        let answers = Answers::default();
        let get = |query, answer| answers.get(query, || Ok(answer));
        assert_eq!(get(QUERY, 8), Ok(8));
        assert_eq!(get(QUERY, 7), Ok(8));
        assert_eq!(get(Query::Attribute { context: 2, attribute: 0 }, 6), Ok(6));
        assert_eq!(get(Query::KernelAttribute { device: 1, attribute: 0 }, 5), Ok(5));
        let blocks = Query::ActiveBlocks { context: 1, block: 64, shared: 0, flags: 0 };
        assert_eq!(get(blocks, 16), Ok(16));
        assert_eq!(get(blocks, 15), Ok(16));
        answers.forget();
        assert_eq!(get(QUERY, 4), Ok(4));
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_stored() {
        let answers = Answers::default();
        let changed_meanwhile = || {
            answers.forget();
            Ok(8)
        };
        assert_eq!(answers.get(QUERY, changed_meanwhile), Ok(8));
        assert_eq!(answers.get(QUERY, || Ok(4)), Ok(4));
    }

    #[test]
    fn answers_from_before_other_settings_are_removed() {
        let answers = Answers::default();
        assert_eq!(answers.get(QUERY, || Ok(8)), Ok(8));
        answers.0.lock().unwrap().changes = u64::MAX;
        assert_eq!(answers.get(QUERY, || Ok(4)), Ok(4));
    }

    #[test]
    fn errors_are_not_stored_and_answers_are_bounded() {
        let answers = Answers::default();
        let error = Err(CudaError::INVALID_VALUE);
        assert_eq!(answers.get(QUERY, || error), error);
        for attribute in 0..100 {
            assert_eq!(answers.get(Query::Attribute { context: 1, attribute }, || Ok(1)), Ok(1));
        }
        assert_eq!(answers.0.lock().unwrap().known.len(), MAX_ANSWERS);
    }
}
