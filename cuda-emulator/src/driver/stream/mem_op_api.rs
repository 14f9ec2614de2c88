// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuStreamWaitValue*, cuStreamWriteValue* and cuStreamBatchMemOp.

use super::mem_op::{MemOp, WAIT_32, WAIT_64, WRITE_32, WRITE_64, read, run};
use crate::driver::capture;
use crate::driver::device::CUdeviceptr;
use crate::driver::ffi::In;
use crate::driver::graph::Work;
use crate::driver::result::CuResult;
use crate::driver::stream::CUstream;

fn submit(stream: CUstream, operations: Vec<MemOp>) -> CuResult<()> {
    let (context, stream) = capture::place_work(stream)?;
    if !capture::add(&stream, || Ok(Work::MemOps(operations.clone().into())))? {
        context.submit_work(&stream, move |_| operations.iter().try_for_each(run));
    }
    Ok(())
}

fn submit_one(stream: CUstream, operation: MemOp) -> CuResult<()> {
    operation.check()?;
    submit(stream, vec![operation])
}

fn wait_value_32(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CuResult<()> {
    submit_one(stream, MemOp::new(WAIT_32, address, value.into(), flags))
}

fn wait_value_64(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CuResult<()> {
    submit_one(stream, MemOp::new(WAIT_64, address, value, flags))
}

fn write_value_32(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) -> CuResult<()> {
    submit_one(stream, MemOp::new(WRITE_32, address, value.into(), flags))
}

fn write_value_64(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CuResult<()> {
    submit_one(stream, MemOp::new(WRITE_64, address, value, flags))
}

fn batch(stream: CUstream, count: u32, operations: In<MemOp>, flags: u32) -> CuResult<()> {
    submit(stream, read(operations, count, flags)?)
}

crate::driver::ffi::entries! { after_init
    cuStreamWaitValue32_v2 + cuStreamWaitValue32_v2_ptsz => wait_value_32(
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    cuStreamWaitValue64_v2 + cuStreamWaitValue64_v2_ptsz => wait_value_64(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
    cuStreamWriteValue32_v2 + cuStreamWriteValue32_v2_ptsz => write_value_32(
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    cuStreamWriteValue64_v2 + cuStreamWriteValue64_v2_ptsz => write_value_64(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
    cuStreamBatchMemOp_v2 + cuStreamBatchMemOp_v2_ptsz => batch(
        stream: CUstream, count: u32, operations: In<MemOp>, flags: u32);
    cuStreamWaitValue32 + cuStreamWaitValue32_ptsz => wait_value_32(
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    cuStreamWaitValue64 + cuStreamWaitValue64_ptsz => wait_value_64(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
    cuStreamWriteValue32 + cuStreamWriteValue32_ptsz => write_value_32(
        stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    cuStreamWriteValue64 + cuStreamWriteValue64_ptsz => write_value_64(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
    cuStreamBatchMemOp + cuStreamBatchMemOp_ptsz => batch(
        stream: CUstream, count: u32, operations: In<MemOp>, flags: u32);
}
