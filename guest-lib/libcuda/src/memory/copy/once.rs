// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Carries out the plan of a copy, and the next one if the device refuses it.

use virtio_cuda_client::protocol::{DevicePtr, StreamId};
use virtio_cuda_client::{CudaError, idle};

use crate::entry::Api;
use crate::memory::copy::plan::{Facts, LinearCopy, Plan, Timing, plan};
use crate::memory::copy::transfer::Transfer;
use crate::memory::copy::{address, cached, pages, program, staged};
use crate::memory::place::Place;

impl Facts for Api {
    fn may_post(&self, stream: StreamId) -> bool {
        Self::may_post(self, stream.0)
    }

    fn owns(&self, address: DevicePtr, bytes: usize) -> bool {
        Self::owns(self, address.0, bytes as u64)
    }

    fn shows_work(&self) -> bool {
        self.driver.memory.shows_work()
    }

    fn delays_copies(&self) -> bool {
        !idle::is_default_stream_idle()
    }

    fn is_broken(&self) -> bool {
        Self::is_broken(self)
    }

    fn can_keep(&self, transfer: Transfer) -> bool {
        // Registering pages during a capture in global mode is refused, and ends the capture.
        !self.driver.captures.any() && cached::can_keep(*self, transfer.host())
    }

    fn threads(&self) -> [usize; 2] {
        staged::threads()
    }

    fn is_mapped(&self, transfer: Transfer) -> bool {
        staged::is_mapped(transfer)
    }
}

impl Api {
    /// Copies in one step. Managed memory has been sent before.
    pub fn copy_at_once(
        &self,
        dst: Place,
        src: Place,
        bytes: usize,
        timing: Timing,
    ) -> Result<(), CudaError> {
        let (stream, waits) = (self.stream_of(timing), timing.waits());
        let copy = LinearCopy { dst, src, bytes, stream, waits };
        let first = plan(&copy, None, self);
        if carry_out(*self, &copy, &first)? { Ok(()) } else { carry_out_next(*self, &copy, first) }
    }
}

/// Tries the plans that follow a refused one.
#[cold]
fn carry_out_next(api: Api, copy: &LinearCopy, mut refused: Plan) -> Result<(), CudaError> {
    loop {
        let next = plan(copy, Some(&refused), &api);
        if carry_out(api, copy, &next)? {
            return Ok(());
        }
        refused = next;
    }
}

/// Executes a plan. Returns false without an effect if another plan is needed.
#[inline(always)]
fn carry_out(api: Api, copy: &LinearCopy, plan: &Plan) -> Result<bool, CudaError> {
    match *plan {
        Plan::DeviceToDevice { dst, src, posted } => address::device_to_device(api, copy, dst, src, posted)?,
        Plan::Address { dst, src, posted } => address::run(api, copy, dst, src, posted)?,
        Plan::AddressAndWait { dst, src } => address::run_and_wait(api, copy, dst, src)?,
        Plan::Program { dst, src } => program::run(api, copy, dst, src)?,
        Plan::Inline { transfer, posted } => {
            api.check_pinned(copy.src, copy.bytes as u64)?;
            pages::run(api, copy, transfer, posted)?;
        }
        Plan::Cached(transfer) => return cached::run(api, copy, transfer),
        Plan::Staged { transfer, division } => return staged::run(api, copy, transfer, division),
        Plan::Pages(transfer) => pages::run(api, copy, transfer, false)?,
    }
    Ok(true)
}
