// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls libraries that accept anything, and counts the calls that reach them.

use std::cell::Cell;

use cuda_library_rows::library;
use vhost_cuda_common::link::{Frame, ToWorker};
use virtio_cuda_protocol::cuda::{CALL_IN_INLINE, CALL_OUT_INLINE, CallHeader, Opcode, ResultHeader};
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::{FromBytes, IntoBytes};

use crate::call::ThreadState;
use crate::fuzz::session::FuzzSession;
use crate::gpu::CudaError;
use crate::serve::execute::execute;

thread_local! {
    /// The calls that have reached a library.
    pub static CALLS: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn create(place: *mut u64) -> i32 {
    // SAFETY: the worker gives a place for a handle.
    unsafe { place.write(0x5000) };
    0
}

extern "C" fn accept() -> i32 {
    CALLS.set(CALLS.get() + 1);
    0
}

/// Calls of libraries by a guest.
pub struct Calls {
    session: FuzzSession,
    /// The thread that calls.
    pub thread: ThreadState,
}

impl Calls {
    /// Opens libraries. `function` returns the addresses of functions that do more than to accept all.
    pub fn of(libraries: &[&str], function: impl Fn(&str) -> Option<usize>) -> Self {
        let session = FuzzSession::with(false, true, |vendor| {
            for name in libraries {
                let (number, _) = library(name).expect("known");
                vendor.open_fake(number as usize, |name| match name {
                    Some(name) if function(name).is_some() => function(name).unwrap_or_default(),
                    Some(name) if name.contains("Create") => create as *const () as usize,
                    _ => accept as *const () as usize,
                });
            }
        });
        Self { session, thread: ThreadState::default() }
    }

    /// Calls a function. Returns its status and answers, or a CUDA error.
    pub fn call(
        &mut self,
        function: &str,
        slots: &[u64],
        data: &[u64],
    ) -> Result<(u64, Vec<u64>), CudaError> {
        let names = ["cusparse", "cusolver", "cudnn", "cufft", "nccl"];
        let name = names.into_iter().find(|name| function.starts_with(name)).expect("known");
        let (number, rows) = library(name).expect("known");
        let function = rows.functions.iter().find(|known| known.name == function).expect(function);
        let block: Vec<u8> = slots.iter().chain(data).flat_map(|word| word.to_le_bytes()).collect();
        let args = [number.to_le_bytes(), function.number.to_le_bytes()].concat();
        let header = CallHeader {
            opcode: Opcode::vendor_call as u32,
            thread: 1,
            args_bytes: args.len() as u32,
            flags: CALL_IN_INLINE | CALL_OUT_INLINE,
            bulk_in_bytes: block.len() as u64,
            bulk_out_bytes: 0x1000,
            ..CallHeader::default()
        };
        let payload = [header.as_bytes(), &args, &block].concat();
        let to_worker = ToWorker { reply_room: 0x8000, ..ToWorker::default() };
        let frame = &mut Frame::of_payload(to_worker, payload);
        let (status, reply) = execute(self.session.state, &mut self.thread, frame);
        assert_eq!(status, REPLY_OK);
        let (head, rest) = ResultHeader::read_from_prefix(&reply).expect("a head");
        if head.result != 0 {
            return Err(CudaError(head.result));
        }
        let words: Vec<u64> = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok((words[0], words[1..].to_vec()))
    }
}
