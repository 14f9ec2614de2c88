// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A word of this process that the GPU writes once a stream has reached a position. Watching it is half a microsecond to one
//! microsecond quicker than the driver's own wait.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use log::debug;
use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::Opcode;

use super::cores;
use crate::gpu::{
    CUdeviceptr, CUstream, CuResult, CudaError, Driver, HOST_PORTABLE_MAPPED, with_capture_relaxed,
};
use crate::outstanding::Runs;

/// The maximum bytes of a copy that is waited for in this way. For longer copies the gain does not matter.
pub const MAX_BYTES: u64 = 4 << 20;
/// The time to watch before the driver waits.
const WATCH: Duration = Duration::from_micros(150);
const PAGE: usize = 4096;
/// The maximum number of pages that could not be given back. Then no new ones are made.
const MAX_LEFT: usize = 64;
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CudaError = CudaError(713);

/// Returns the code that a call of the driver runs, if only the driver's own waiting ends it: the driver prints the text of
/// device code, and finds that a capture forbids waiting.
pub fn runs(opcode: Opcode) -> Option<Runs> {
    match opcode {
        Opcode::cuStreamBeginCapture_v2 | Opcode::cuStreamBeginCaptureToGraph => Some(Runs::Other),
        opcode => opcode.facts().is_work().then_some(Runs::LoadedCode),
    }
}

/// The signal by which a thread waits.
#[derive(Debug, Default)]
pub struct Signal {
    page: Option<Page>,
    value: u32,
    /// True if it is not possible here.
    refused: bool,
}

/// # Invariants
///
/// `base` is the address of a mapping of one page, which is this value's. The GPU writes the first word of it only.
#[derive(Debug)]
struct Page {
    base: usize,
    /// Its address on the GPU, and the epoch of contexts in which the address is valid.
    registered: Option<(CUdeviceptr, u64)>,
}

impl Page {
    fn new() -> Option<Self> {
        if LEFT.load(Ordering::Relaxed) >= MAX_LEFT {
            return None;
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        (base != libc::MAP_FAILED).then_some(Self { base: base as usize, registered: None })
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is this value's (invariant), and zeroed at first; the GPU writes to it at any time,
        // which is why it is atomic.
        unsafe { &*(self.base as *const AtomicU32) }
    }

    /// Returns the word's address for the GPU. In another epoch, the context in which it was registered may have ended.
    fn device(&mut self, gpu: &Driver, epoch: u64) -> CuResult<CUdeviceptr> {
        if let Some((device, then)) = self.registered
            && then == epoch
        {
            return Ok(device);
        }
        self.unregister(gpu)?;
        let base = self.base as *mut _;
        // A capture in global mode that another thread has begun meanwhile goes on.
        // SAFETY: the mapping is this value's, and stays until its registration has ended.
        with_capture_relaxed(gpu, || unsafe { gpu.cuMemHostRegister_v2(base, PAGE, HOST_PORTABLE_MAPPED) })?;
        // SAFETY: registered just now.
        let (device,) = unsafe { gpu.cuMemHostGetDevicePointer_v2(base, 0) }.inspect_err(|_| {
            // SAFETY: nothing uses it yet.
            let _ = unsafe { gpu.cuMemHostUnregister(base) };
        })?;
        debug!("a thread waits by a word at {device:#x}");
        self.registered = Some((device, epoch));
        Ok(device)
    }

    fn unregister(&mut self, gpu: &Driver) -> CuResult<()> {
        if self.registered.is_some() {
            // SAFETY: the page was registered; what the GPU writes to it was waited for, or the driver refuses.
            match with_capture_relaxed(gpu, || unsafe { gpu.cuMemHostUnregister(self.base as *mut _) }) {
                Ok(()) | Err(NOT_REGISTERED | CudaError::INVALID_VALUE) => self.registered = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.registered.is_some() {
            // The GPU may still write to it: it stays.
            LEFT.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // SAFETY: the mapping is this value's (invariant).
        unsafe { libc::munmap(self.base as *mut _, PAGE) };
    }
}

impl Signal {
    /// Waits until all work in `stream` of the current context is done. `epoch` is that of the contexts.
    ///
    /// Errors: the driver's, also those of the work.
    pub fn wait(&mut self, gpu: &Driver, epoch: u64, stream: CUstream) -> CuResult<()> {
        if !self.refused {
            match self.send(gpu, epoch, stream) {
                Ok(()) if self.arrives() => return Ok(()),
                Ok(()) => {}
                Err(error) => {
                    // The error of earlier work is that of the wait.
                    gpu.cuStreamSynchronize(stream)?;
                    debug!("the GPU cannot write a word: {error:?}");
                    self.refused = true;
                    return Ok(());
                }
            }
        }
        gpu.cuStreamSynchronize(stream)
    }

    fn send(&mut self, gpu: &Driver, epoch: u64, stream: CUstream) -> CuResult<()> {
        if self.page.is_none() {
            self.page = Page::new();
        }
        let page = self.page.as_mut().ok_or(CudaError::OUT_OF_MEMORY)?;
        let device = page.device(gpu, epoch)?;
        self.value = self.value.wrapping_add(1);
        // SAFETY: the word is this value's, and registered.
        unsafe { gpu.cuStreamWriteValue32_v2(stream, device, self.value, 0) }
    }

    fn arrives(&self) -> bool {
        let Some(page) = &self.page else { return false };
        // Acquire: earlier writes of the stream are visible.
        cores::watch(WATCH, || page.word().load(Ordering::Acquire) == self.value)
    }

    /// Ends the registration, where many sessions follow each other in a process.
    #[cfg(any(test, fuzzing))]
    pub fn end(&mut self, gpu: &Driver) {
        if let Some(mut page) = self.page.take() {
            let _ = page.unregister(gpu);
        }
    }
}

/// Signals of threads that have ended, for others. A registration does not end with its thread: no context is current there any
/// more, and the driver would wait for all work. Their number is at most the maximum number of simultaneous threads.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<Signal>>);

impl Spares {
    /// Returns a signal for a thread that begins.
    pub fn take(&self) -> Signal {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Keeps the signal of a thread that ends. Its numbers continue: the new thread does not wait for a number that the GPU still
    /// writes for the old one.
    pub fn keep(&self, signal: Signal) {
        if signal.page.is_some() && !signal.refused {
            self.0.lock().push(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_the_signal_of_one_that_has_ended() {
        let spares = Spares::default();
        spares.keep(Signal::default());
        assert!(spares.take().page.is_none(), "there was none to keep");
        spares.keep(Signal { page: Page::new(), value: 7, refused: false });
        let signal = spares.take();
        assert_eq!(signal.value, 7, "its numbers go on");
        assert!(signal.page.is_some() && spares.take().page.is_none());
        spares.keep(Signal { refused: true, ..signal });
        assert!(spares.take().page.is_none(), "it is of no use here");
    }

    #[test]
    fn captures_count_even_where_no_code_prints() {
        for opcode in [Opcode::cuMemcpyAsync, Opcode::cuModuleLoadData] {
            assert_eq!(runs(opcode), None, "neither runs code");
        }
        for opcode in [Opcode::cuLaunchKernel, Opcode::cuLaunchKernelEx, Opcode::cuGraphLaunch] {
            assert_eq!(runs(opcode), Some(Runs::LoadedCode));
        }
        assert_eq!(runs(Opcode::cuStreamBeginCapture_v2), Some(Runs::Other));
    }
}
