// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a recording that has ended: driver calls and allocations of launches are those of before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::Ordering;

use vhost_cuda_common::link::{Frame, ToWorker};
use vhost_cuda_common::recording::{CALL, START, STOP};
use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CallHeader, FIRST_HANDLE, FunctionId, LAUNCH_COOPERATIVE, LaunchShape, Opcode, StreamId,
    Wire, Writer,
};
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::IntoBytes;

use super::requests;
use crate::call::ThreadState;
use crate::fuzz::session::FuzzSession;
use crate::gpu::null;
use crate::serve::execute::{execute, execute_posted};
use crate::trace::fake;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // The thread's own data may have ended.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: this function's contract.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: this function's contract.
        unsafe { System.realloc(address, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONTEXT: u64 = FIRST_HANDLE + 4;
const MODULE: u64 = FIRST_HANDLE + 8;
const FUNCTION: u64 = FIRST_HANDLE + 12;
const LAUNCHES: u32 = 1024;

/// A guest process that launches a kernel.
struct Guest {
    session: FuzzSession,
    thread: ThreadState,
}

impl Guest {
    fn new() -> Self {
        let session = FuzzSession::with_trace(|trace| trace.open_fake());
        let mut guest = Self { session, thread: ThreadState::default() };
        guest.call(Opcode::cuDevicePrimaryCtxRetain, &[&0_u32.to_le_bytes(), &CONTEXT.to_le_bytes()], &[]);
        guest.call(Opcode::cuModuleLoadData, &[&MODULE.to_le_bytes()], &[1; 64]);
        let names = [MODULE.to_le_bytes(), FUNCTION.to_le_bytes()].concat();
        guest.call(Opcode::cuModuleGetFunction, &[&names], b"kernel\0");
        guest
    }

    fn frame(opcode: Opcode, arguments: &[u8], bulk: &[u8]) -> Frame {
        let header = CallHeader {
            opcode: opcode as u32,
            thread: 1,
            context: CONTEXT,
            flags: CALL_IN_INLINE,
            args_bytes: arguments.len() as u32,
            bulk_in_bytes: bulk.len() as u64,
            bulk_out_bytes: 0,
        };
        let payload = [header.as_bytes(), arguments, bulk].concat();
        Frame::of_payload(ToWorker { reply_room: 0x8000, ..ToWorker::default() }, payload)
    }

    fn call(&mut self, opcode: Opcode, arguments: &[&[u8]], bulk: &[u8]) {
        let mut frame = Self::frame(opcode, &arguments.concat(), bulk);
        let (status, reply) = execute(self.session.state, &mut self.thread, &mut frame);
        assert_eq!((status, &reply[..4]), (REPLY_OK, &[0; 4][..]), "{opcode:?}");
    }

    /// A launch that is never prepared: whether others are depends on how many threads are awake.
    fn launch(&mut self) {
        let mut arguments = [0; 256];
        let mut writer = Writer::new(&mut arguments);
        FunctionId(FUNCTION).put(&mut writer).unwrap();
        StreamId(0).put(&mut writer).unwrap();
        let shape =
            LaunchShape { grid: [1; 3], block: [1; 3], flags: LAUNCH_COOPERATIVE, ..LaunchShape::default() };
        shape.put(&mut writer).unwrap();
        let used = writer.used();
        let mut frame = Self::frame(Opcode::cuLaunchKernel, &arguments[..used], &[7; 32]);
        execute_posted(self.session.state, &mut self.thread, &mut frame).unwrap();
    }

    /// Returns the driver calls and the allocations of [`LAUNCHES`] launches.
    fn cost(&mut self) -> (u32, u64) {
        // The first ones fill tables.
        (0..LAUNCHES).for_each(|_| self.launch());
        null::script(0, u32::MAX, 0);
        let before = ALLOCATIONS.get();
        (0..LAUNCHES).for_each(|_| self.launch());
        (u32::MAX - null::calls_until_failure(), ALLOCATIONS.get() - before)
    }

    fn profile(&mut self, request: u32) {
        let session = self.session.state;
        let request = request.to_ne_bytes();
        let (status, _) = requests::execute(&session.profile, &session.trace, &session.gpu, &request);
        assert_eq!(status, REPLY_OK);
    }
}

/// One test, because the numbers of the fake CUPTI are those of the process.
#[test]
fn a_recording_that_has_ended_costs_nothing() {
    let mut guest = Guest::new();
    let session = guest.session.state;
    let before = guest.cost();
    assert!(before.0 >= LAUNCHES, "each launch is a call of the driver: {before:?}");
    for round in 1..=3 {
        guest.profile(START);
        assert!(session.trace.is_active() && fake::ENABLED.load(Ordering::Relaxed) > 0);
        let during = guest.cost();
        assert_eq!(during.0, before.0, "records need no call of the driver");
        let calls =
            session.profile.waiting.lock().records.iter().filter(|record| record.kind == CALL).count();
        assert_eq!(calls as u32, 2 * LAUNCHES);
        guest.profile(STOP);
        assert!(!session.trace.is_active());
        assert_eq!(fake::ENABLED.load(Ordering::Relaxed), 0);
        assert_eq!(guest.cost(), before, "round {round}");
    }
}
