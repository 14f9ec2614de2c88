// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's libraries (cuBLAS, cuDNN, …). The host's own libraries execute the guest's calls.
//!
//! * [`load`] finds a library and its functions when the guest first calls it.
//! * [`handles`] maps the guest's numbers to the handles that a library has given out.
//! * [`environment`] sets the variables of the guest's process that libraries read.
//! * [`describe`] makes the library create descriptors for a call.
//! * [`plans`] compares plans of cuDNN.
//! * [`objects`] finds objects that the library keeps in its caller's memory by their contents.
//! * [`refusal`] has the reasons of a failed call.
//! * [`invoke`] calls a C function whose parameters are known only from its row.

pub(crate) mod describe;
mod environment;
pub(crate) mod handles;
pub(crate) mod invoke;
pub(crate) mod load;
pub(crate) mod objects;
mod plans;
pub(crate) mod refusal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use cuda_library_rows::{COUNT, libraries, library_of};
use parking_lot::Mutex;

use super::gpu::{CuResult, CudaError};
use super::objects::Object;
use super::outstanding::Runs;
use environment::Variables;
use load::Loaded;

/// The libraries of a session.
#[derive(Debug)]
pub struct Vendor {
    /// The folders that are searched first.
    folders: Vec<PathBuf>,
    /// The variables that the guest's process has set for them.
    variables: Variables,
    /// True if they may print text although no call has failed.
    may_print: AtomicBool,
    /// The libraries by number. `None` inside: the host does not have the library.
    loaded: Vec<OnceLock<Option<Loaded>>>,
    /// The libraries that the guest uses, with the major versions that it has asked for.
    used: Mutex<BTreeMap<u32, u32>>,
}

impl Vendor {
    /// Returns the state in which no library is loaded.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self {
            folders,
            variables: Variables::default(),
            may_print: AtomicBool::new(false),
            loaded: (0..COUNT).map(|_| OnceLock::new()).collect(),
            used: Mutex::default(),
        }
    }

    /// Returns the libraries that the guest uses, with the major versions that it has asked for.
    pub fn used(&self) -> Vec<(u32, u32)> {
        self.used.lock().iter().map(|(&number, &major)| (number, major)).collect()
    }

    /// Returns whether libraries may print text although no call has failed.
    pub fn may_print(&self) -> bool {
        self.may_print.load(Ordering::Acquire)
    }

    /// Replaces the variables of the last record by those of this one.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a record with a variable that is not in the list. Nothing is set then.
    pub fn set_variables(&self, record: &[u8]) -> CuResult<()> {
        if self.variables.set(record)? {
            self.will_print();
        }
        Ok(())
    }

    /// Notes that from now on the libraries may print text although no call has failed.
    pub(crate) fn will_print(&self) {
        self.may_print.store(true, Ordering::Release);
    }

    /// Returns the kind of code that their calls run. NVIDIA's own kernels print nothing. Its libraries print only if
    /// a call fails or the program requests it.
    pub fn runs(&self) -> Runs {
        if self.may_print() { Runs::Other } else { Runs::LoadedCode }
    }

    /// Loads a library if it is not loaded yet. `digests` has the digests of the guest's rows, 64 bits each, by the numbers of
    /// the functions. Returns a bit for each, beginning with the lowest of the first byte: 1 if the row here has the same digest.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` for a library that the host does not have, `CUDA_ERROR_INVALID_VALUE` for a digest that
    /// is not complete.
    pub fn load(&self, number: u32, major: u32, digests: &[u8]) -> CuResult<Vec<u8>> {
        let rows = library_of(number as usize).ok_or(CudaError::NOT_FOUND)?;
        let (digests, []) = digests.as_chunks::<8>() else { return Err(CudaError::INVALID_VALUE) };
        let loaded = self.loaded[number as usize].get_or_init(|| Loaded::find(rows, &self.folders, major));
        loaded.as_ref().ok_or(CudaError::NOT_FOUND)?;
        self.used.lock().entry(number).or_insert(major);
        let mut same = vec![0; digests.len().div_ceil(8)];
        for (number, digest) in digests.iter().enumerate() {
            let own = rows.numbered(number as u32).map(|position| rows.functions[position].digest);
            if own == Some(u64::from_le_bytes(*digest)) {
                same[number / 8] |= 1 << (number % 8);
            }
        }
        Ok(same)
    }

    /// Loads all libraries in the operator's folders, while files can still be opened.
    pub fn open_all(&self) {
        for (place, rows) in self.loaded.iter().zip(libraries()) {
            if let Some(loaded) = Loaded::find_in(rows, &self.folders, 0) {
                let _ = place.set(Some(loaded));
            }
        }
    }

    /// Marks all further libraries as absent.
    #[cfg(any(test, fuzzing))]
    pub fn open_none(&self) {
        for place in &self.loaded {
            let _ = place.set(None);
        }
    }

    /// Adds a library whose functions have the addresses that `address` returns for their names. Functions that
    /// destroy handles have no name there.
    #[cfg(any(test, fuzzing))]
    pub fn open_fake(&self, number: usize, address: impl Fn(Option<&str>) -> usize) {
        let _ = self.loaded[number].set(library_of(number).map(|rows| Loaded::fake(rows, address)));
    }

    /// Returns a loaded library.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND`.
    pub(crate) fn get(&self, number: u32) -> CuResult<&Loaded> {
        let place = self.loaded.get(number as usize).and_then(OnceLock::get);
        place.and_then(Option::as_ref).ok_or(CudaError::NOT_FOUND)
    }

    /// Returns the handle of that name without keeping it, if there is one.
    pub fn handle(&self, number: u32, kind: u32, id: u64) -> Option<Weak<Object>> {
        self.get(number).ok()?.handles.kind(kind as usize).ok()?.weak(id)
    }

    /// Destroys a handle, which no call uses any more.
    pub fn end(&self, number: u32, kind: u32, id: u64) {
        if let Ok(loaded) = self.get(number) {
            loaded.handles.end_one(kind as usize, id);
        }
    }

    /// Destroys all handles, which no call uses any more. Their contexts are there still.
    pub fn end_all(&self) {
        for loaded in self.loaded.iter().filter_map(OnceLock::get).flatten() {
            loaded.handles.end_all();
        }
    }

    /// Removes the names of all handles of a context that is about to be destroyed.
    pub fn close_context(&self, context: u64) {
        for loaded in self.loaded.iter().filter_map(OnceLock::get).flatten() {
            loaded.handles.close_context(context);
        }
    }
}
