// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events.

use core::ffi::c_uint;

use crate::abi::shared::cudaIpcEventHandle_t;
use crate::abi::{cudaEvent_t, cudaStream_t};
use crate::pointers::{Out, not_null};
use crate::{driver, state};

api! {
    fn cudaEventCreate(event: *mut cudaEvent_t) {
        not_null(event)?;
        state::context()?;
    } => driver::cuEventCreate(event, 0);

    fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: c_uint) {
        not_null(event)?;
        state::context()?;
    } => driver::cuEventCreate(event, flags);

    fn cudaEventDestroy(event: cudaEvent_t) {
        state::context()?;
    } => driver::cuEventDestroy_v2(event);

    fn cudaEventRecord, cudaEventRecord_ptsz(event: cudaEvent_t, stream: cudaStream_t) per_thread stream {
        state::context()?;
    } => driver::cuEventRecord(event, stream);

    fn cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz(
        event: cudaEvent_t, stream: cudaStream_t, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuEventRecordWithFlags(event, stream, flags);

    fn cudaEventQuery(event: cudaEvent_t) {
        state::context()?;
    } => driver::cuEventQuery(event);

    fn cudaEventSynchronize(event: cudaEvent_t) {
        state::context()?;
    } => driver::cuEventSynchronize(event);

    fn cudaEventElapsedTime / cudaEventElapsedTime_v2(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) {
        not_null(milliseconds)?;
        state::context()?;
    } => driver::cuEventElapsedTime_v2(milliseconds, start, end);

    fn cudaIpcGetEventHandle(handle: Out<cudaIpcEventHandle_t>, event: cudaEvent_t) {
        state::context()?;
        // NVIDIA's runtime checks the event before the pointer.
        let mut found = cudaIpcEventHandle_t { reserved: [0; 64] };
        // SAFETY: `found` is a local; the program promises a live event.
        unsafe { driver::cuIpcGetEventHandle(&mut found, event) }?;
        handle.set(found)
    }

    fn cudaIpcOpenEventHandle(event: *mut cudaEvent_t, handle: cudaIpcEventHandle_t) {
        state::context()?;
    } => driver::cuIpcOpenEventHandle(event, handle);
}
