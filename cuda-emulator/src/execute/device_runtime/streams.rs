// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams and events of kernels. Everything that a grid launches is run in the order of the launches, which is an order
//! that all of them allow: what remains is that their handles are good.

use super::caller::{Caller, End, with_status};
use crate::code::{Handler, Instr};
use crate::execute::state::{Flow, Machine};
use crate::nested::error::RuntimeError;

/// cudaStreamNonBlocking, cudaEventDisableTiming: kernels can make no others.
const NON_BLOCKING: u64 = 1;
const DISABLE_TIMING: u64 = 2;

pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "StreamCreateWithFlags" => (stream_create, 2),
        "StreamDestroy" => (destroy, 1),
        "StreamWaitEvent" => (stream_wait_event, 3),
        "EventCreateWithFlags" => (event_create, 2),
        "EventRecord" => (event_record, 2),
        "EventRecordWithFlags" => (event_record_with_flags, 3),
        "EventDestroy" => (destroy, 1),
        _ => return None,
    })
}

impl Caller<'_, '_> {
    /// Creates a stream or an event and stores it where the first argument says.
    fn create(&mut self, flags: u64) -> Result<(), End> {
        let (place, given) = (self.argument(0), self.argument(1));
        if given != flags {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let name = self.machine.grid.children.new_name();
        self.store(place, name.to_le_bytes())
    }

    fn require(&self, good: bool) -> Result<(), End> {
        if good { Ok(()) } else { Err(RuntimeError::INVALID_RESOURCE_HANDLE.into()) }
    }

    fn is_name(&mut self, index: usize) -> bool {
        let handle = self.argument(index);
        self.machine.grid.children.is_name(handle)
    }

    fn is_stream(&mut self, index: usize) -> bool {
        let handle = self.argument(index);
        self.machine.grid.children.is_stream(handle)
    }
}

/// `cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)`
unsafe fn stream_create(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| caller.create(NON_BLOCKING))
}

/// `cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)`
unsafe fn event_create(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| caller.create(DISABLE_TIMING))
}

/// `cudaError_t cudaStreamDestroy(cudaStream_t stream)`, `cudaError_t cudaEventDestroy(cudaEvent_t event)`
unsafe fn destroy(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let good = caller.is_name(0);
        caller.require(good)
    })
}

/// `cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)`
unsafe fn stream_wait_event(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let good = caller.is_stream(0) && caller.is_name(1);
        caller.require(good)
    })
}

/// `cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)`
unsafe fn event_record(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let good = caller.is_name(0) && caller.is_stream(1);
        caller.require(good)
    })
}

/// `cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)`
unsafe fn event_record_with_flags(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `event_record`; the flags say nothing that matters here.
    unsafe { event_record(machine, instr) }
}
