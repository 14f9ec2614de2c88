// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits until the device has done the session's work. Events are polled: the driver's own wait would not end where a kernel does
//! not end.

use std::thread;
use std::time::{Duration, Instant};

use crate::gpu::{CUcontext, CUevent, CuResult, CudaError, Driver, EVENT_DISABLE_TIMING};

/// The pause between two looks at the events.
const LOOK: Duration = Duration::from_micros(100);

/// An event behind all work of a context.
struct Behind<'a> {
    gpu: &'a Driver,
    event: CUevent,
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        let _ = self.gpu.cuEventDestroy_v2(self.event);
    }
}

/// Waits until all work of `contexts` (addresses of the driver's contexts, which live meanwhile) has ended. No call may start work,
/// and no stream may capture. Returns false if it has not ended at `deadline`.
///
/// Errors: the driver's; `CUDA_ERROR_NOT_SUPPORTED` for drivers before CUDA 12.5.
pub fn wait(gpu: &Driver, contexts: &[usize], deadline: Instant) -> CuResult<bool> {
    let mut events = Vec::with_capacity(contexts.len());
    for &context in contexts {
        let context = context as CUcontext;
        gpu.cuCtxSetCurrent(context)?;
        let (event,) = gpu.cuEventCreate(EVENT_DISABLE_TIMING)?;
        let behind = Behind { gpu, event };
        gpu.cuCtxRecordEvent(context, event)?;
        events.push(behind);
    }
    for behind in &events {
        loop {
            match gpu.cuEventQuery(behind.event) {
                Ok(()) => break,
                Err(CudaError::NOT_READY) if Instant::now() >= deadline => return Ok(false),
                Err(CudaError::NOT_READY) => thread::sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(true)
}
