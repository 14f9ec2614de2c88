// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Numbers of blocks that fit a multiprocessor, as far as the device has told them. Programs ask for the same ones before
//! each launch.

use std::sync::{Mutex, PoisonError};

use virtio_cuda_client::CudaError;

/// Maximum number of answers that are stored per function.
const MAX_ANSWERS: usize = 16;

/// The arguments of an occupancy query, and what its answer depends on beside the function's own attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The current context.
    pub context: u64,
    /// Threads of a block.
    pub block: i32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// `CUoccupancy_flags`.
    pub flags: u32,
    /// Calls so far that change launches ([`virtio_cuda_client::changes`]).
    pub changes: u64,
}

/// The stored answers of a function.
#[derive(Debug, Default)]
pub struct Residency(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    known: Vec<(Question, i32)>,
    /// Changes of the function's attributes.
    version: u64,
}

impl Residency {
    /// Returns the stored answer, or that of `ask`, and stores it unless an attribute has changed meanwhile.
    pub fn get(
        &self,
        question: Question,
        ask: impl FnOnce() -> Result<i32, CudaError>,
    ) -> Result<i32, CudaError> {
        let version = {
            let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, blocks)) = answers.known.iter().find(|(known, _)| *known == question) {
                return Ok(*blocks);
            }
            answers.version
        };
        let blocks = ask()?;
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.version == version {
            answers.known.truncate(MAX_ANSWERS - 1);
            answers.known.insert(0, (question, blocks));
        }
        Ok(blocks)
    }

    /// Removes all answers after a change of the function's attributes.
    pub fn forget(&self) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.known.clear();
        answers.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question { context: 1, block: 128, shared: 0, flags: 0, changes: 0 };

    #[test]
    fn an_answer_holds_until_something_changes() {
        let residency = Residency::default();
        let get = |question, blocks| residency.get(question, || Ok(blocks));
        assert_eq!(get(QUESTION, 8), Ok(8));
        assert_eq!(get(QUESTION, 7), Ok(8));
        assert_eq!(get(Question { block: 64, ..QUESTION }, 16), Ok(16));
        assert_eq!(get(Question { context: 2, ..QUESTION }, 6), Ok(6));
        assert_eq!(get(Question { changes: 1, ..QUESTION }, 5), Ok(5));
        residency.forget();
        assert_eq!(get(QUESTION, 4), Ok(4));
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_stored() {
        let residency = Residency::default();
        let changed_meanwhile = || {
            residency.forget();
            Ok(8)
        };
        assert_eq!(residency.get(QUESTION, changed_meanwhile), Ok(8));
        assert_eq!(residency.get(QUESTION, || Ok(4)), Ok(4));
    }

    #[test]
    fn errors_are_not_stored_and_answers_are_bounded() {
        let residency = Residency::default();
        let error = Err(CudaError::INVALID_VALUE);
        assert_eq!(residency.get(QUESTION, || error), error);
        for block in 0..100 {
            assert_eq!(residency.get(Question { block, ..QUESTION }, || Ok(1)), Ok(1));
        }
        assert_eq!(residency.0.lock().unwrap().known.len(), MAX_ANSWERS);
    }
}
