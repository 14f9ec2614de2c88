// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies with the program's CPU.

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::memory::copy::plan::LinearCopy;

/// Copies between host memory, at least one end of which is pageable. First waits for its turn in the stream, as
/// NVIDIA's driver does, also if both ends are pageable.
#[inline(always)]
pub fn run(api: Api, copy: &LinearCopy, dst: u64, src: u64) -> Result<(), CudaError> {
    let bytes = copy.bytes;
    api.check_pinned(copy.dst, bytes as u64)?;
    api.check_pinned(copy.src, bytes as u64)?;
    if !copy.waits || copy.dst.device().or(copy.src.device()).is_some() || !api.is_idle() {
        api.wait_for_turn(copy.stream)?;
    }
    // SAFETY: the program promises that both are its memory, of that length, or they lie in allocations of this
    // library, by the checks above; they may overlap.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, bytes) };
    Ok(())
}
