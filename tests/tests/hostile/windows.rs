// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory of the guest that is mapped in parts: registering what is not there, twice, or over its end, and taking
//! parts away while the whole is registered.

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::frontend::{CallParts, HIGH, parse_result};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{CALL_IN_INLINE, CallHeader, Opcode, WINDOW_BASE};
use virtio_cuda_protocol::transport::{FLAG_KEEP, MemEntry, OP_CALL, OP_UNPIN, REPLY_OK, RequestHeader};
use zerocopy::IntoBytes;

use crate::calls::{CONTEXT, INVALID_VALUE, Session, in_context};
use crate::{Target, attack};

const PART: u64 = 8192;
const PLACE: u64 = WINDOW_BASE + (1 << 30);

pub fn collect(suite: &mut Suite) {
    attack(suite, "windows::registers_parts", registers_parts);
}

/// Maps a part under a name; its address in the worker.
fn map(session: &mut Session, tag: u64, address: u64) -> Result<u64> {
    let args = [address.to_le_bytes(), PART.to_le_bytes()].concat();
    let parts = CallParts::new(Opcode::window_map, &args).context(CONTEXT);
    // The pages are the request's, so no output is inline.
    let header = CallHeader { flags: CALL_IN_INLINE, bulk_out_bytes: PART, ..parts.header() };
    let keep =
        RequestHeader { op: OP_CALL, session: session.id, flags: FLAG_KEEP, tag, ..Default::default() };
    let pages = [MemEntry { addr: HIGH + (tag % 8) * PART, bytes: PART as u32, reserved: 0 }];
    let reply = session.frontend.request(keep, &parts.payload(&header), [&[], &pages])?;
    let answer = parse_result(&reply.payload)?;
    ensure!(reply.status == REPLY_OK && answer.result == 0, "part {tag}: {reply:?}");
    Ok(u64::from_le_bytes(answer.results[..].try_into().context("An address")?))
}

/// Registers a range; its address on the GPU.
fn register(session: &mut Session, base: u64, bytes: u64, flags: u32) -> Result<Option<u64>> {
    let args = [&base.to_le_bytes()[..], &bytes.to_le_bytes(), &flags.to_le_bytes()].concat();
    let call = CallParts::new(Opcode::window_register, &args).context(CONTEXT);
    let answer = session.expect(&call, &[0, INVALID_VALUE])?;
    Ok((answer.result == 0).then(|| answer.results[..].try_into().map(u64::from_le_bytes)).transpose()?)
}

fn unpin(session: &mut Session, tag: u64) -> Result<()> {
    let header = RequestHeader { op: OP_UNPIN, session: session.id, tag, ..Default::default() };
    ensure!(session.frontend.exchange(header.as_bytes(), 64)?.status == REPLY_OK, "part {tag} stays");
    Ok(())
}

/// Sets all bytes of a range to 1.
fn set(session: &mut Session, address: u64, bytes: u64, allowed: &[i32]) -> Result<()> {
    let args = [&address.to_le_bytes()[..], &1u32.to_le_bytes(), &bytes.to_le_bytes(), &[0; 8]].concat();
    session.expect(&CallParts::new(Opcode::cuMemsetD32Async, &args).context(CONTEXT), allowed)?;
    Ok(())
}

fn registers_parts(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for (tag, offset) in [(1, 0), (2, PART), (3, 2 * PART), (4, 4 * PART)] {
        ensure!(map(&mut session, tag, PLACE + offset)? == PLACE + offset, "part {tag} is elsewhere");
    }
    let bad = [
        (0, 3 * PART, 2),
        (PLACE, 0, 2),
        (PLACE, 3 * PART, u32::MAX),
        (PLACE, PART + 4096, 2),
        (PLACE, 4 * PART, 2),
        (PLACE, 5 * PART, 2),
        (PLACE, u64::MAX, 2),
        (PLACE, u64::MAX - PLACE + 1, 2),
        (PLACE + 4096, PART, 2),
        (PLACE - PART, 2 * PART, 2),
        (WINDOW_BASE, 1 << 40, 2),
        (u64::MAX - 4095, 4096, 2),
    ];
    for (base, bytes, flags) in bad {
        if let Some(at) = register(&mut session, base, bytes, flags)? {
            bail!("{bytes:#x} bytes at {base:#x}, flags {flags:#x}: registered at {at:#x}");
        }
    }
    let all = register(&mut session, PLACE, 3 * PART, 2)?.context("three good parts")?;
    for (base, bytes) in [(PLACE, 3 * PART), (PLACE + PART, PART), (PLACE + PART, 2 * PART)] {
        ensure!(register(&mut session, base, bytes, 2)?.is_none(), "registered twice");
    }
    set(&mut session, all, 3 * PART / 4, &[0])?;
    set(&mut session, all, 3 * PART / 4 + 1, &[INVALID_VALUE])?;
    // With a part all of it goes: nothing of it can be named, and what is left can be registered anew.
    unpin(&mut session, 2)?;
    for offset in [0, PART, 2 * PART] {
        set(&mut session, all + offset, 1, &[INVALID_VALUE])?;
    }
    ensure!(register(&mut session, PLACE, 3 * PART, 2)?.is_none(), "a part is missing");
    let first = register(&mut session, PLACE, PART, 2)?.context("the first part alone")?;
    let last = register(&mut session, PLACE + 2 * PART, PART, 2)?.context("the last part alone")?;
    map(&mut session, 2, PLACE + PART)?;
    set(&mut session, first, 2 * PART / 4, &[INVALID_VALUE])?;
    unpin(&mut session, 1)?;
    set(&mut session, last, PART / 4, &[0])?;
    // The other parts go with their context, or with the session.
    session.expect(&in_context(Opcode::cuCtxSynchronize, &[]), &[0])?;
    for tag in [3, 2, 4, 2] {
        unpin(&mut session, tag)?;
    }
    session.greet()
}
