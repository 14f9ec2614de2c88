// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies whose calls transfer the host memory. Short copies are inside the record or request. For longer ones the
//! worker reads and writes the program's pages directly.

use virtio_cuda_client::protocol::{Opcode, StreamId};
use virtio_cuda_client::transport::Pieces;
use virtio_cuda_client::{CudaError, calls, idle, order, trace};

use crate::api::PER_THREAD;
use crate::entry::Api;
use crate::memory::copy::pieces::each_piece;
use crate::memory::copy::plan::LinearCopy;
use crate::memory::copy::transfer::Transfer;

/// Runs the copy. Returns once the source may be reused, or the bytes are in the destination.
pub fn run(api: Api, copy: &LinearCopy, transfer: Transfer, posted: bool) -> Result<(), CudaError> {
    let context = api.context()?;
    // `None` stands for the legacy default stream.
    let stream = (!copy.waits || copy.stream == StreamId(PER_THREAD)).then_some(copy.stream);
    let pieces = divide(api, copy, transfer)?;
    let traced = trace::flags();
    each_piece(copy.bytes, pieces, |offset, bytes| {
        let piece = transfer.piece(offset, bytes);
        api.with_room(|| {
            let mut call = api.call_in(context).traced(traced);
            // A lane is not worth its cost for threads that exist for one copy only.
            if pieces.at_once > 1 {
                call = call.direct();
            }
            match piece {
                Transfer::ToDevice { dst, src } => {
                    // SAFETY: a piece of the source, which the program promises to be readable until the copy returns.
                    let mut call = unsafe { call.input_at(src) }.posted_if(posted);
                    if copy.waits {
                        let before = idle::so_far();
                        calls::cuMemcpyHtoD_v2(&mut call, dst, copy.stream)?;
                        if !posted && stream.is_none() {
                            idle::default_stream_done(before);
                        }
                        Ok(())
                    } else {
                        calls::cuMemcpyHtoDAsync_v2(&mut call, dst, copy.stream)
                    }
                }
                Transfer::FromDevice { dst, src } => {
                    // SAFETY: a piece of the destination, which the program promises to be writable until the copy
                    // returns.
                    let mut call = unsafe { call.output_at(dst) };
                    match stream {
                        None => {
                            let before = idle::so_far();
                            calls::cuMemcpyDtoH_v2(&mut call, src)?;
                            idle::default_stream_done(before);
                            Ok(())
                        }
                        Some(stream) => {
                            let (before, captures) = (idle::so_far(), api.driver.captures.any());
                            calls::cuMemcpyDtoHAsync_v2(&mut call, src, stream)?;
                            if !captures {
                                idle::waited_for(Opcode::cuMemcpyDtoHAsync_v2, context, stream, before);
                            }
                            Ok(())
                        }
                    }
                }
            }
        })
    })
}

/// Divides a copy into pieces. If several are sent at once, they run after all earlier calls.
fn divide(api: Api, copy: &LinearCopy, transfer: Transfer) -> Result<Pieces, CudaError> {
    let pieces = api.driver.session.transport().pieces(transfer.host());
    // Other threads cannot use this thread's per-thread default stream.
    if copy.bytes <= pieces.piece_bytes || copy.stream == StreamId(PER_THREAD) {
        return Ok(Pieces { at_once: 1, ..pieces });
    }
    // Orders the pieces after earlier calls, from whichever thread they are sent.
    order::before_copy(api.driver.session, api.caller(), api.context()?, copy.stream)?;
    Ok(pieces)
}
