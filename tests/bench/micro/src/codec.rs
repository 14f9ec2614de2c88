// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls on the wire, as guest library and worker write and read them.

use std::hint::black_box;

use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CallHeader, DevicePtr, FunctionId, LaunchShape, Opcode, Reader, ResultHeader, StreamId,
    Wire, Writer,
};
use virtio_cuda_protocol::transport::{MemEntry, OP_CALL, RequestHeader};
use zerocopy::{FromBytes, IntoBytes};

use super::Work;

const HEADER: usize = size_of::<CallHeader>();
/// Packed parameters of the kernel.
const PARAMETERS: usize = 64;
const COPY: usize = 4096;

fn put(room: &mut [u8], opcode: Opcode, arguments: impl FnOnce(&mut Writer<'_>), bulk: &[u8]) -> usize {
    let (head, rest) = room.split_at_mut(HEADER);
    let mut writer = Writer::new(rest);
    arguments(&mut writer);
    let args_bytes = writer.used();
    rest[args_bytes..args_bytes + bulk.len()].copy_from_slice(bulk);
    let header = CallHeader {
        opcode: opcode as u32,
        thread: 1,
        context: 1,
        args_bytes: args_bytes as u32,
        flags: CALL_IN_INLINE,
        bulk_in_bytes: bulk.len() as u64,
        bulk_out_bytes: 0,
    };
    head.copy_from_slice(header.as_bytes());
    HEADER + args_bytes + bulk.len()
}

fn put_launch(room: &mut [u8], parameters: &[u8]) -> usize {
    let shape = LaunchShape { grid: [1000, 1, 1], block: [256, 1, 1], ..LaunchShape::default() };
    let arguments = |writer: &mut Writer<'_>| {
        FunctionId(0x1010).put(writer).expect("room");
        StreamId(0).put(writer).expect("room");
        black_box(shape).put(writer).expect("room");
    };
    put(room, Opcode::cuLaunchKernel, arguments, parameters)
}

fn put_copy(room: &mut [u8], bytes: &[u8]) -> usize {
    let arguments = |writer: &mut Writer<'_>| {
        black_box(DevicePtr(0x7f00_0000)).put(writer).expect("room");
        StreamId(0).put(writer).expect("room");
    };
    put(room, Opcode::cuMemcpyHtoD_v2, arguments, bytes)
}

/// Returns the head of a payload and the rest.
fn open(payload: &[u8]) -> (Opcode, &[u8], &[u8]) {
    let (header, rest) = CallHeader::read_from_prefix(payload).expect("a header");
    let (arguments, bulk) = rest.split_at_checked(header.args_bytes as usize).expect("arguments");
    assert_eq!(bulk.len() as u64, header.bulk_in_bytes);
    (Opcode::from_u32(header.opcode).expect("a row"), arguments, bulk)
}

/// A launch with 64 bytes of parameters.
pub fn encode_launch() -> Work {
    let (mut room, parameters) = ([0; 512], [7; PARAMETERS]);
    Box::new(move || {
        black_box(put_launch(black_box(&mut room), black_box(&parameters)));
    })
}

/// The same, read by the worker.
pub fn decode_launch() -> Work {
    let mut room = vec![0; 512];
    let bytes = put_launch(&mut room, &[7; PARAMETERS]);
    Box::new(move || {
        let (opcode, arguments, bulk) = open(black_box(&room[..bytes]));
        let mut reader = Reader::new(arguments);
        let function = FunctionId::take(&mut reader).expect("a function");
        let stream = StreamId::take(&mut reader).expect("a stream");
        let shape = LaunchShape::take(&mut reader).expect("a shape");
        reader.finish().expect("nothing left");
        black_box((opcode, function, stream, shape, bulk));
    })
}

/// A copy of 4 KiB to the device that carries its bytes.
pub fn encode_copy() -> Work {
    let (mut room, bytes) = (vec![0; 2 * COPY], vec![7; COPY]);
    Box::new(move || {
        black_box(put_copy(black_box(&mut room), black_box(&bytes)));
    })
}

/// The same, read by the worker.
pub fn decode_copy() -> Work {
    let mut room = vec![0; 2 * COPY];
    let bytes = put_copy(&mut room, &[7; COPY]);
    Box::new(move || {
        let (opcode, arguments, bulk) = open(black_box(&room[..bytes]));
        let mut reader = Reader::new(arguments);
        let address = DevicePtr::take(&mut reader).expect("an address");
        let stream = StreamId::take(&mut reader).expect("a stream");
        reader.finish().expect("nothing left");
        black_box((opcode, address, stream, bulk));
    })
}

/// The reply to a call with one result.
pub fn decode_result() -> Work {
    let header = ResultHeader { results_bytes: 8, ..ResultHeader::default() };
    let mut reply = header.as_bytes().to_vec();
    reply.extend_from_slice(&0x7f00_0000_u64.to_le_bytes());
    Box::new(move || {
        let (header, rest) = ResultHeader::read_from_prefix(black_box(&reply)).expect("a header");
        let mut reader = Reader::new(rest.get(..header.results_bytes as usize).expect("results"));
        let address = DevicePtr::take(&mut reader).expect("an address");
        reader.finish().expect("nothing left");
        black_box((header.result, address));
    })
}

/// The head of a request and a list of 1024 pages.
pub fn decode_request() -> Work {
    let header = RequestHeader { op: OP_CALL, session: 1, in_entries: 1024, ..RequestHeader::default() };
    let mut request = header.as_bytes().to_vec();
    for page in 0..1024 {
        request.extend_from_slice(MemEntry { addr: page << 13, bytes: 4096, reserved: 0 }.as_bytes());
    }
    Box::new(move || {
        let (header, rest) = RequestHeader::read_from_prefix(black_box(&request)).expect("a header");
        let mut sum = 0;
        for entry in rest.chunks_exact(size_of::<MemEntry>()) {
            let entry = MemEntry::read_from_bytes(entry).expect("an entry");
            sum += u64::from(entry.bytes);
        }
        assert_eq!(sum, u64::from(header.in_entries) * 4096);
    })
}
