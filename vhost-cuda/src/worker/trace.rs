// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What GPUs do and when, for a profiler in the guest. The host's CUPTI measures it; the guest's library asks for it.
//!
//! * [`library`] finds CUPTI and calls it.
//! * [`store`] keeps what CUPTI has measured until the guest reads it.
//!
//! A call of the guest carries the low bits of the number of the program's API call. That number is CUPTI's *external
//! correlation id* of all that the executor calls meanwhile.

mod library;
mod store;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_abi::TraceWork;
use log::warn;
use virtio_cuda_protocol::cuda::{CALL_CORRELATION_BITS, CALL_CORRELATION_SHIFT};

use super::gpu::{CuResult, CudaError};
use library::Cupti;
pub use store::Read;

/// The bits of a call's flags that are the number of the program's API call.
pub const CORRELATION: u32 = ((1 << CALL_CORRELATION_BITS) - 1) << CALL_CORRELATION_SHIFT;

/// Measurements of a session.
#[derive(Debug)]
pub struct Trace {
    /// Where CUPTI is looked for first.
    folders: Vec<PathBuf>,
    /// `None` in it: the host has none.
    cupti: OnceLock<Option<Cupti>>,
    active: AtomicBool,
}

impl Trace {
    /// Nothing is measured yet.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, cupti: OnceLock::new(), active: AtomicBool::new(false) }
    }

    /// Loads CUPTI from the operator's folders, while files can still be opened.
    pub fn open(&self) {
        if let Some(cupti) = Cupti::find_in(&self.folders) {
            let _ = self.cupti.set(Some(cupti));
        }
    }

    /// The host has no CUPTI.
    #[cfg(any(test, fuzzing))]
    pub fn open_none(&self) {
        let _ = self.cupti.set(None);
    }

    /// CUPTI, loaded if it is not yet.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` if the host has none, which the log says once.
    fn find(&self) -> CuResult<&Cupti> {
        let find = || {
            let found = Cupti::find(&self.folders);
            if found.is_none() {
                warn!(
                    "a profiler in the guest wants {}, which this host does not have: install NVIDIA's package of it, or name \
                     its folder with --libraries",
                    library::NAMES.join(" or ")
                );
            }
            found
        };
        self.cupti.get_or_init(find).as_ref().ok_or(CudaError::NOT_FOUND)
    }

    /// Begins to measure.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` without CUPTI; `CUDA_ERROR_NOT_SUPPORTED` if CUPTI refuses, which the log explains.
    pub fn start(&self) -> CuResult<()> {
        let cupti = self.find()?;
        if self.active.load(Ordering::Relaxed) {
            return Ok(());
        }
        cupti.start().map_err(|error| {
            warn!("a profiler in the guest cannot be served: {error}");
            CudaError::NOT_SUPPORTED
        })?;
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// No longer measures.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` without CUPTI.
    pub fn stop(&self) -> CuResult<()> {
        let cupti = self.find()?;
        if self.active.swap(false, Ordering::Relaxed) {
            cupti.stop();
        }
        Ok(())
    }

    /// CUPTI's clock.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` without CUPTI, `CUDA_ERROR_UNKNOWN` if CUPTI does not answer.
    pub fn clock(&self) -> CuResult<u64> {
        self.find()?.clock().map_err(|_| CudaError::UNKNOWN)
    }

    /// Up to `count` pieces of work that are done.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` without CUPTI.
    pub fn read(&self, count: usize) -> CuResult<Read> {
        let cupti = self.find()?;
        Ok(store::read(count, || cupti.flush()))
    }

    /// The name of a kernel.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a number that no work has.
    pub fn name(&self, number: u32) -> CuResult<Vec<u8>> {
        store::name(number).ok_or(CudaError::INVALID_VALUE)
    }

    /// Executes a call. What it has GPUs do belongs to the API call that its flags tell.
    pub fn during<T>(&self, flags: u32, call: impl FnOnce() -> T) -> T {
        let number = (flags & CORRELATION) >> CALL_CORRELATION_SHIFT;
        if number == 0 || !self.active.load(Ordering::Relaxed) {
            return call();
        }
        let Some(cupti) = self.cupti.get().and_then(Option::as_ref) else { return call() };
        let pushed = cupti.push(number);
        let value = call();
        if pushed {
            cupti.pop();
        }
        value
    }
}

/// Bytes of a piece of work.
pub const WORK_BYTES: usize = size_of::<TraceWork>();

/// The files of a library in some folders.
fn files<'a>(folders: &'a [PathBuf], names: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .filter(|path: &PathBuf| Path::is_file(path))
}
