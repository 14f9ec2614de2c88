// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of GPU work, for a profiler in the guest and for the operator's. The host's CUPTI measures.
//!
//! * [`library`] finds CUPTI and calls it.
//! * [`store`] keeps CUPTI's records until the guest reads them.
//!
//! A call of the guest contains the low bits of the number of the program's API call. That number is CUPTI's
//! *external correlation id* of all driver calls that the executor makes meanwhile. Calls that one of NVIDIA's libraries makes
//! have it once more, as an id of another kind: natively the program would have made them, so the guest gets their records.

mod library;
mod store;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use cuda_abi::TraceWork;
use log::{debug, warn};
use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::{CALL_CORRELATION_BITS, CALL_CORRELATION_SHIFT};

use super::gpu::{CuResult, CudaError};
use library::Cupti;
#[cfg(test)]
pub use library::fake;
pub use store::Read;

/// The bits of a call's flags with the number of the program's API call.
pub const CORRELATION: u32 = ((1 << CALL_CORRELATION_BITS) - 1) << CALL_CORRELATION_SHIFT;

/// Returns the number of the program's API call from a call's flags; 0 if no profiler wants it.
pub const fn api_call(flags: u32) -> u32 {
    (flags & CORRELATION) >> CALL_CORRELATION_SHIFT
}

/// Who makes calls of the driver or runtime API for a request: the kind of CUPTI's external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Caller {
    /// The worker's own code (`CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0`).
    Worker = 3,
    /// A function of one of NVIDIA's libraries (`CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1`).
    Library = 4,
}

/// The length of a piece of work on the wire, in bytes.
pub const WORK_BYTES: usize = size_of::<TraceWork>();
/// The maximum number of pieces of work in one answer (480 KiB), because a guest may offer room for any number.
const MAX_PIECES: u64 = 1 << 12;

/// Those who want measurements.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    guest: bool,
    operator: bool,
    /// True once a profiler in the guest has started: it may ask for names at any time.
    had_guest: bool,
}

impl Users {
    fn kinds(self) -> &'static [u32] {
        match self {
            Self { guest: true, .. } => library::WITH_CALLS,
            Self { operator: true, .. } => library::WORK,
            _ => &[],
        }
    }
}

/// The measurements of a session.
#[derive(Debug)]
pub struct Trace {
    /// The operator's folders, which are searched first. A guest cannot choose a file.
    folders: Vec<PathBuf>,
    /// `None` inside: the host has no CUPTI.
    cupti: OnceLock<Option<Cupti>>,
    active: AtomicBool,
    /// Those who want measurements. Locked while one of them starts or stops.
    users: Mutex<Users>,
    /// Logs a refusal only once, because a guest can repeat it.
    refused: Once,
}

impl Trace {
    /// Returns the state in which nothing is measured.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self {
            folders,
            cupti: OnceLock::new(),
            active: AtomicBool::new(false),
            users: Mutex::default(),
            refused: Once::new(),
        }
    }

    /// Loads CUPTI from the operator's folders, while files can still be opened.
    pub fn open(&self, driver_version: i32) {
        if let Some(cupti) = Cupti::find_in(&self.folders, library::names(driver_version)) {
            let _ = self.cupti.set(Some(cupti));
        }
    }

    /// Marks CUPTI as absent.
    #[cfg(any(test, fuzzing))]
    pub fn open_none(&self) {
        let _ = self.cupti.set(None);
    }

    /// Sets a CUPTI that measures nothing.
    #[cfg(test)]
    pub fn open_fake(&self) {
        let _ = self.cupti.set(Some(library::fake::cupti()));
    }

    /// Returns CUPTI if a start has loaded it.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND`.
    fn loaded(&self) -> CuResult<&Cupti> {
        self.cupti.get().and_then(Option::as_ref).ok_or(CudaError::NOT_FOUND)
    }

    /// Loads CUPTI and begins to measure for a profiler in the guest.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` if the host has no CUPTI, `CUDA_ERROR_NOT_SUPPORTED` if CUPTI refuses. The
    /// reason is logged once.
    pub fn start(&self, driver_version: i32) -> CuResult<()> {
        let mut users = self.users.lock();
        let wanted = Users { guest: true, had_guest: true, ..*users };
        self.measure(&mut users, wanted, driver_version).inspect_err(|error| {
            self.refused.call_once(|| match *error {
                CudaError::NOT_FOUND => warn!(
                    "a profiler in the guest wants {}, which this host does not have: install NVIDIA's package of it, or name \
                     its folder with --libraries",
                    library::names(driver_version).join(" or ")
                ),
                _ => warn!("a profiler in the guest cannot be served: CUPTI refuses (--log-level debug)"),
            });
        })?;
        store::collect_for_guest(true);
        Ok(())
    }

    /// Begins to measure for the operator.
    ///
    /// Errors: as [`Self::start`].
    pub fn start_for_operator(&self, driver_version: i32) -> CuResult<()> {
        let mut users = self.users.lock();
        let wanted = Users { operator: true, ..*users };
        store::collect_for_operator(true);
        self.measure(&mut users, wanted, driver_version).inspect_err(|_| store::collect_for_operator(false))
    }

    fn measure(&self, users: &mut Users, wanted: Users, driver_version: i32) -> CuResult<()> {
        let names = library::names(driver_version);
        let cupti = self.cupti.get_or_init(|| Cupti::find(&self.folders, names)).as_ref();
        let cupti = cupti.ok_or(CudaError::NOT_FOUND)?;
        cupti.measure(users.kinds(), wanted.kinds()).map_err(|error| {
            debug!("a profiler is refused: {error}");
            CudaError::NOT_SUPPORTED
        })?;
        self.active.store(!wanted.kinds().is_empty(), Ordering::Relaxed);
        *users = wanted;
        Ok(())
    }

    /// Returns whether work is being measured.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Stops measuring for the guest, if it was active. What it has not read is kept.
    pub fn stop(&self) {
        let mut users = self.users.lock();
        let wanted = Users { guest: false, ..*users };
        if users.guest && self.measure(&mut users, wanted, 0).is_ok() {
            store::collect_for_guest(false);
        }
    }

    /// Stops measuring for the operator, and forgets what was not read.
    pub fn stop_for_operator(&self) {
        let mut users = self.users.lock();
        let wanted = Users { operator: false, ..*users };
        let _ = self.measure(&mut users, wanted, 0);
        store::collect_for_operator(false);
        if !users.had_guest {
            store::forget();
        }
    }

    /// Takes up to `count` pieces of completed work for the operator, without the program's calls.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` before a start.
    pub fn read_for_operator(&self, count: usize) -> CuResult<Read> {
        let cupti = self.loaded()?;
        Ok(store::read_for_operator(count, || cupti.flush()))
    }

    /// Returns the time of CUPTI's clock.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` before a start, `CUDA_ERROR_UNKNOWN` if CUPTI does not answer.
    pub fn clock(&self) -> CuResult<u64> {
        self.loaded()?.clock().map_err(|_| CudaError::UNKNOWN)
    }

    /// Takes completed work of up to `room` bytes. Returns it, the number of pieces that are left, and the number of those
    /// that were lost since the last read.
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` before a start.
    pub fn read(&self, room: u64) -> CuResult<(Vec<TraceWork>, u64, u64)> {
        let cupti = self.loaded()?;
        let count = (room / WORK_BYTES as u64).min(MAX_PIECES) as usize;
        let Read { work, left, dropped } = store::read(count, || cupti.flush());
        Ok((work, left as u64, dropped))
    }

    /// Returns the number of a function's name for [`Self::name`]; 0 if there are too many.
    pub fn number_of(&self, name: &str) -> u32 {
        store::number_of(name.as_bytes())
    }

    /// Returns the name of a kernel or function.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an unknown number.
    pub fn name(&self, number: u32) -> CuResult<Arc<[u8]>> {
        store::name(number).ok_or(CudaError::INVALID_VALUE)
    }

    /// Executes a call. The work that it starts belongs to the program's API call with that number.
    pub fn during<T>(&self, number: u32, caller: Caller, call: impl FnOnce() -> T) -> T {
        if number == 0 || !self.active.load(Ordering::Relaxed) {
            return call();
        }
        let Ok(cupti) = self.loaded() else { return call() };
        let pushed = cupti.push(caller, number);
        let value = call();
        if pushed {
            cupti.pop(caller);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_cupti_refuses_and_goes_on() {
        let trace = Trace::new(Vec::new());
        assert_eq!(trace.clock(), Err(CudaError::NOT_FOUND));
        trace.open_none();
        for _ in 0..2 {
            assert_eq!(trace.start(13_000), Err(CudaError::NOT_FOUND));
        }
        trace.stop();
        assert_eq!(trace.read(1).map(|(_, left, _)| left), Err(CudaError::NOT_FOUND));
        assert_eq!(trace.during(5, Caller::Worker, || 7), 7);
    }
}
