// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Well-formed calls with malformed contents: images, names, kernel parameters and memory to keep.

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::frontend::{CallParts, HIGH, parse_result};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{CALL_IN_INLINE, CallHeader, Opcode, WINDOW_BASE};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, MemEntry, OP_CALL, OP_UNPIN, REPLY_INVALID, REPLY_OK, RequestHeader,
};
use zerocopy::IntoBytes;

use crate::calls::{CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Session, in_context};
use crate::{Target, attack};

/// Codes for a refused image: invalid image, no binary for the GPU, invalid PTX, unsupported PTX version, invalid
/// source, not supported, and NVIDIA's driver's code for some (unknown).
const BAD_IMAGE: &[i32] = &[200, 209, 218, 222, 300, 801, 999];

/// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES.
const OUT_OF_RESOURCES: i32 = 701;

pub fn collect(suite: &mut Suite) {
    attack(suite, "contents::images_and_names", images_and_names);
    attack(suite, "contents::kernel_parameters", kernel_parameters);
    attack(suite, "contents::kept_memory", kept_memory);
}

fn images_and_names(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut random = fastrand::Rng::with_seed(21);
    let fatbin = |fat_bytes: u64, kind: u16, entry_header: u32, payload: u64| {
        let mut bytes = 0xba55_ed50_u32.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend(fat_bytes.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend([1, 1]);
        bytes.extend(entry_header.to_le_bytes());
        bytes.extend(payload.to_le_bytes());
        bytes.resize(400, 0x41);
        bytes
    };
    let mut images = vec![
        Vec::new(),
        vec![0],
        b"\x7fELF".to_vec(),
        [b"\x7fELF\x02\x01\x01".as_slice(), &[0xff; 200]].concat(),
        b".version 9.9\n.target sm_90\n.address_size 64\n".to_vec(),
        b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() { .reg .b64 %rd<4000000000>; ret; }".to_vec(),
        b".version 7.8\n.target sm_90\n.address_size 64\n.global .b8 big[99999999999999];".to_vec(),
        [b"{".repeat(30_000), b"}".repeat(30_000)].concat(),
        fatbin(384, 1, 64, 320),
        fatbin(u64::MAX, 1, 64, 320),
        fatbin(384, 1, u32::MAX, 320),
        fatbin(384, 1, 0, 0),
        fatbin(384, 2, 64, u64::MAX),
        fatbin(384, 1, 64, u64::MAX - 63),
        fatbin(8, 1, 64, 320),
    ];
    images.extend((0..30).map(|_| std::iter::repeat_with(|| random.u8(..)).take(500).collect()));
    for (index, image) in (0u64..).zip(images) {
        for opcode in [Opcode::cuModuleLoadData, Opcode::cuLibraryLoadData] {
            let parts = in_context(opcode, &[0x4000 + index]).bulk(&image);
            let answer =
                session.frontend.call(session.id, &parts).with_context(|| format!("image {index}"))?;
            let refused = BAD_IMAGE.contains(&answer.result) || answer.result == INVALID_VALUE;
            // A module without kernels is no error, and its variables may be too large for the device.
            ensure!(refused || answer.result == 0 || answer.result == 2, "image {index}: {}", answer.result);
        }
    }
    let module = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry known() { ret; }\0";
    session.expect(&in_context(Opcode::cuModuleLoadData, &[0x6000]).bulk(module), &[0])?;
    let long = [b'a'; 50_000];
    for name in [&b""[..], b"\0", b"unknown", b"known\0more", b"\xff\xfe\xfd", b"../../known", &long] {
        let parts = in_context(Opcode::cuModuleGetFunction, &[0x6000, 0x6001]).bulk(name);
        session.expect(&parts, &[INVALID_VALUE, 500])?;
    }
    session.expect(&in_context(Opcode::cuModuleGetFunction, &[0x6000, 0x6001]).bulk(b"known"), &[0])?;
    session.greet()
}

fn kernel_parameters(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let module = b".version 7.8\n.target sm_90\n.address_size 64\n\
        .visible .entry store(.param .u64 out, .param .u32 value)\n{\n.reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n\
        ld.param.u64 %rd1, [out];\nld.param.u32 %r1, [value];\ncvta.to.global.u64 %rd2, %rd1;\n\
        st.global.u32 [%rd2], %r1;\nret;\n}\0";
    session.expect(&in_context(Opcode::cuModuleLoadData, &[0x6000]).bulk(module), &[0])?;
    session.expect(&in_context(Opcode::cuModuleGetFunction, &[0x6000, 0x6001]).bulk(b"store"), &[0])?;
    let launch = |grid: u32, block: u32, shared: u32, flags: u32, parameters: &[u8]| {
        let shape = [grid, 1, 1, block, 1, 1, shared, flags, 0, 0, 0, 0];
        let shape: Vec<u8> = shape.iter().flat_map(|word| word.to_le_bytes()).collect();
        let args = [&0x6001u64.to_le_bytes()[..], &0u64.to_le_bytes(), &shape].concat();
        CallParts::new(Opcode::cuLaunchKernel, &args).context(CONTEXT).bulk(parameters)
    };
    let parameters = [&session.memory.to_le_bytes()[..], &77u32.to_le_bytes()].concat();
    session.expect(&launch(1, 1, 0, 0, &parameters), &[0])?;
    // More than the kernel takes is not read, if the driver takes it at all.
    for bytes in [parameters.len() + 1, parameters.len() + 4, 4096] {
        let mut longer = parameters.clone();
        longer.resize(bytes, 0xff);
        session.expect(&launch(1, 1, 0, 0, &longer), &[0, INVALID_VALUE, OUT_OF_RESOURCES])?;
    }
    session.expect(&launch(1, 1, 0, 0, &[0; 50_000]), &[INVALID_VALUE])?;
    for (grid, block, shared) in [
        (0, 1, 0),
        (1, 0, 0),
        (1, 2048, 0),
        (u32::MAX, 1, 0),
        (1, u32::MAX, 0),
        (1, 1, 1 << 20),
        (1, 1, u32::MAX),
    ] {
        session.expect(&launch(grid, block, shared, 0, &parameters), &[INVALID_VALUE, OUT_OF_RESOURCES])?;
    }
    session.expect(&launch(1, 1, 0, 0x8000_0000, &parameters), &[INVALID_VALUE, NOT_SUPPORTED])?;
    session.expect(&in_context(Opcode::cuCtxSynchronize, &[]), &[0])?;
    let seen = session.expect(&in_context(Opcode::cuMemcpyDtoH_v2, &[session.memory]).wants(4), &[0])?;
    ensure!(seen.bulk == 77u32.to_le_bytes(), "{seen:?}");
    // Fewer: whatever the kernel then stores to, it is this session's own affair.
    for bytes in 0..parameters.len() {
        let parts = launch(1, 1, 0, 0, &parameters[..bytes]);
        session.frontend.call(session.id, &parts).with_context(|| format!("{bytes} bytes of parameters"))?;
    }
    session.frontend.call(session.id, &in_context(Opcode::cuCtxSynchronize, &[]))?;
    session.greet()
}

fn kept_memory(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let id = session.id;
    let register = |address: u64, bytes: u64| {
        let args = [&address.to_le_bytes()[..], &bytes.to_le_bytes(), &2u32.to_le_bytes()].concat();
        let parts = CallParts::new(Opcode::cuMemHostRegister_v2, &args).context(CONTEXT);
        // The pages are the request's, so no output is inline.
        let header = CallHeader { flags: CALL_IN_INLINE, bulk_out_bytes: bytes, ..parts.header() };
        parts.payload(&header)
    };
    let keep =
        |tag: u64| RequestHeader { op: OP_CALL, session: id, flags: FLAG_KEEP, tag, ..Default::default() };
    let pages = [MemEntry { addr: HIGH, bytes: 8192, reserved: 0 }];
    // Addresses where nothing may be mapped, lengths that are not the pages', and no pages at all.
    let bad: [(u64, u64, &[MemEntry]); 7] = [
        (0x40_0000, 8192, &pages),
        (WINDOW_BASE - 4096, 8192, &pages),
        (WINDOW_BASE + (1 << 40) - 4096, 8192, &pages),
        (WINDOW_BASE + 1, 8192, &pages),
        (WINDOW_BASE, 4096, &pages),
        (WINDOW_BASE, 1 << 40, &pages),
        (WINDOW_BASE, 8192, &[]),
    ];
    for (tag, (address, bytes, entries)) in (10u64..).zip(bad) {
        let what = format!("{bytes:#x} bytes at {address:#x}, {} entries", entries.len());
        let reply = session.frontend.request(keep(tag), &register(address, bytes), [&[], entries])?;
        match reply.status {
            REPLY_INVALID => {}
            REPLY_OK => {
                let answer = parse_result(&reply.payload)?;
                // The worker may map pages elsewhere in the window if it cannot map them there.
                let moved = answer.result == 0 && entries.len() == 1 && bytes == 8192;
                ensure!(moved || answer.result == INVALID_VALUE, "{what}: {answer:?}");
                if moved {
                    let place = u64::from_le_bytes(answer.results[..].try_into().context("An address")?);
                    ensure!(
                        (WINDOW_BASE..WINDOW_BASE + (1 << 40)).contains(&place),
                        "{what}: mapped at {place:#x}"
                    );
                }
            }
            status => bail!("{what}: status {status}"),
        }
    }
    session.greet()?;
    // Good ones, one over the other, then away, twice.
    let reply = session.frontend.request(keep(1), &register(WINDOW_BASE + (1 << 30), 8192), [&[], &pages])?;
    ensure!(
        reply.status == REPLY_OK && parse_result(&reply.payload)?.result == 0,
        "a good registration: {reply:?}"
    );
    let again =
        session.frontend.request(keep(2), &register(WINDOW_BASE + (1 << 30) + 4096, 8192), [&[], &pages])?;
    ensure!([REPLY_OK, REPLY_INVALID].contains(&again.status), "an overlapping registration: {again:?}");
    let same = session.frontend.request(keep(1), &register(WINDOW_BASE + (2 << 30), 8192), [&[], &pages])?;
    ensure!(same.status != REPLY_OK || parse_result(&same.payload)?.result != 0, "a tag was used twice");
    let unpin = RequestHeader { op: OP_UNPIN, session: session.id, tag: 1, ..Default::default() };
    ensure!(session.frontend.exchange(unpin.as_bytes(), 64)?.status == REPLY_OK, "unpin");
    // Nothing is mapped under that name, and the reply contains only this.
    ensure!(session.frontend.exchange(unpin.as_bytes(), 64)?.status == REPLY_OK, "unpinned twice");
    // The driver marks it as read-only. The process does not, and requests a copy to it.
    let read = RequestHeader { flags: FLAG_KEEP | FLAG_READ, ..keep(3) };
    let at = WINDOW_BASE + (3 << 30);
    let reply = session.frontend.request(read, &register(at, 8192), [&[], &pages])?;
    let answer = parse_result(&reply.payload)?;
    ensure!(reply.status == REPLY_OK && answer.result == 0, "memory to be read: {reply:?}");
    let on_gpu = u64::from_le_bytes(answer.results[..].try_into().context("An address")?);
    for (dst, src) in [(on_gpu, on_gpu + 4096), (on_gpu + 4096, on_gpu)] {
        let copy = in_context(Opcode::memcpy_wait, &[dst, src, 4096, 0]);
        let answer = session.frontend.call(id, &copy)?;
        ensure!(answer.result == INVALID_VALUE, "a copy to memory to be read: {answer:?}");
        session.expect(&in_context(Opcode::cuMemcpyDtoD_v2, &[dst, src, 4096]), &[INVALID_VALUE])?;
    }
    session.greet()
}
