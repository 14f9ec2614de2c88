// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables of libraries that the guest copies by their names: it has a number of each, and no address.

use std::collections::HashMap;
use std::ffi::CString;

use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::{ContextId, FIRST_VARIABLE, LibraryId, VARIABLE_STEP, VariableId};

use super::MAX_OBJECTS;
use crate::gpu::{CuResult, CudaError};

/// The maximum length of all names, in bytes. Bounds the host memory of a guest that names the same variables again and again.
const MAX_NAMES: usize = 64 << 20;

/// A variable that has a number.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its library.
    pub library: LibraryId,
    /// The context that was current.
    pub context: ContextId,
    /// Its name in the library.
    pub name: CString,
}

/// The variables that have numbers. They stay while objects are away in a deep suspension.
#[derive(Debug, Default)]
pub struct NamedVariables(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: HashMap<u64, Named>,
    /// The length of all names.
    bytes: usize,
}

impl NamedVariables {
    /// Returns a variable.
    pub fn get(&self, id: u64) -> Option<Named> {
        self.0.lock().all.get(&id).cloned()
    }

    /// Returns the names of those of a library.
    pub fn names_of(&self, library: u64) -> Vec<CString> {
        let state = self.0.lock();
        let of_it = state.all.values().filter(|named| named.library.0 == library);
        of_it.map(|named| named.name.clone()).collect()
    }

    /// Forgets those of a library that ends.
    pub fn forget(&self, library: LibraryId) {
        let mut state = self.0.lock();
        state.all.retain(|_, named| named.library != library);
        state.bytes = state.all.values().map(|named| named.name.as_bytes().len()).sum();
    }

    /// Adds a variable.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for what is no number of a variable, `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn add(&self, id: VariableId, named: Named) -> CuResult<()> {
        if id.0 < FIRST_VARIABLE || !id.0.is_multiple_of(VARIABLE_STEP) {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut state = self.0.lock();
        let before = state.all.get(&id.0).map_or(0, |before| before.name.as_bytes().len());
        let bytes = state.bytes - before + named.name.as_bytes().len();
        if state.all.len() >= MAX_OBJECTS || bytes > MAX_NAMES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        state.bytes = bytes;
        state.all.insert(id.0, named);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_bounded() {
        let variables = NamedVariables::default();
        let of = |library, bytes| Named {
            library: LibraryId(library),
            context: ContextId(7),
            name: CString::new(vec![b'x'; bytes]).unwrap(),
        };
        for bad in [0, FIRST_VARIABLE - VARIABLE_STEP, FIRST_VARIABLE + 1] {
            assert_eq!(variables.add(VariableId(bad), of(1, 1)), Err(CudaError::INVALID_VALUE));
        }
        let id = |number: u64| VariableId(FIRST_VARIABLE + number * VARIABLE_STEP);
        variables.add(id(0), of(1, MAX_NAMES)).unwrap();
        assert_eq!(variables.add(id(1), of(2, 1)), Err(CudaError::OUT_OF_MEMORY));
        // The same one again, as after a deep suspension.
        variables.add(id(0), of(1, MAX_NAMES - 1)).unwrap();
        variables.add(id(1), of(2, 1)).unwrap();
        variables.forget(LibraryId(1));
        assert!(variables.get(id(0).0).is_none() && variables.names_of(2).len() == 1);
        variables.add(id(2), of(2, MAX_NAMES - 1)).unwrap();
    }
}
