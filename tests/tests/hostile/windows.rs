// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory of the guest that is mapped in parts: registering missing memory, twice, or over its end, and removing
//! parts while the whole is registered. Addresses that join the window: claiming those of others, and yielding those
//! in use.

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::frontend::{CallParts, HIGH, parse_result};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, CALL_IN_INLINE, CallHeader, FIRST_HANDLE, Location, Opcode, RESERVATIONS_BASE,
    WINDOW_BASE, WINDOW_BYTES,
};
use virtio_cuda_protocol::transport::{FLAG_KEEP, MemEntry, OP_CALL, OP_UNPIN, REPLY_OK, RequestHeader};
use zerocopy::IntoBytes;

use crate::calls::{CONTEXT, INVALID_VALUE, Session, encoded, in_context};
use crate::{Target, attack};

const PART: u64 = 8192;
const PLACE: u64 = WINDOW_BASE + (1 << 30);
const OUT_OF_MEMORY: i32 = 2;
/// The address of a claim, and of reservations at requested addresses.
const CLAIM: u64 = RESERVATIONS_BASE + (1 << 40) / 2;
const CLAIMED: u64 = 32 << 20;
/// The unit of device memory in bytes, and the name of an allocation of that size.
const UNIT: u64 = 2 << 20;
const ALLOCATION: u64 = FIRST_HANDLE + 77;

pub fn collect(suite: &mut Suite) {
    attack(suite, "windows::registers_parts", registers_parts);
    attack(suite, "windows::claims_addresses", claims_addresses);
    attack(suite, "windows::claims_reserved_addresses", claims_reserved_addresses);
    attack(suite, "windows::claims_more_than_it_may", claims_more_than_it_may);
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
    // With a part all of it ends: it cannot be used any more, and the rest can be registered again.
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

/// Calls a row of two words without results. Returns its result code.
fn call(session: &mut Session, opcode: Opcode, base: u64, bytes: u64) -> Result<i32> {
    let args = [base.to_le_bytes(), bytes.to_le_bytes()].concat();
    let answer = session.expect(&CallParts::new(opcode, &args), &[0, INVALID_VALUE, OUT_OF_MEMORY])?;
    Ok(answer.result)
}

fn claims_addresses(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let claim = |session: &mut Session, base, bytes| call(session, Opcode::window_claim, base, bytes);
    let give_up = |session: &mut Session, base, bytes| call(session, Opcode::window_yield, base, bytes);
    for (base, bytes) in [
        (CLAIM, 0),
        (CLAIM, u64::MAX),
        (CLAIM, 4095),
        (CLAIM + 1, 4096),
        (0, 4096),
        (session.memory / 4096 * 4096, 4096),
        (WINDOW_BASE, 4096),
        (PLACE, CLAIMED),
        (RESERVATIONS_BASE - 4096, 8192),
        (RESERVATIONS_BASE + WINDOW_BYTES - 4096, 8192),
        (u64::MAX - 4095, 4096),
    ] {
        let claimed = claim(&mut session, base, bytes)?;
        ensure!(claimed == INVALID_VALUE, "{bytes:#x} bytes at {base:#x}: {claimed}");
    }
    // Pages go elsewhere until the addresses are claimed.
    ensure!(map(&mut session, 1, CLAIM)? != CLAIM, "mapped where nothing is claimed");
    unpin(&mut session, 1)?;
    ensure!(claim(&mut session, CLAIM, CLAIMED)? == 0, "free addresses");
    for (base, bytes) in [(CLAIM, CLAIMED), (CLAIM + PART, PART), (CLAIM - PART, 2 * PART)] {
        let again = claim(&mut session, base, bytes)?;
        ensure!(again == OUT_OF_MEMORY, "claimed twice: {again}");
    }
    let last = CLAIM + CLAIMED - PART;
    ensure!(map(&mut session, 1, last)? == last, "inside the claim");
    ensure!(map(&mut session, 2, last + PART / 2)? != last + PART / 2, "over the end of the claim");
    ensure!(map(&mut session, 3, last)? != last, "where something is");
    let at = register(&mut session, last, PART, 2)?.context("a good part")?;
    set(&mut session, at, PART / 4, &[0])?;
    // Addresses in use stay, and so do the addresses around them.
    for (base, bytes) in [(CLAIM, CLAIMED), (last, PART), (CLAIM, PART), (CLAIM, u64::MAX), (CLAIM + PART, 0)]
    {
        let given_up = give_up(&mut session, base, bytes)?;
        ensure!(given_up == INVALID_VALUE, "{bytes:#x} bytes at {base:#x} given up in use: {given_up}");
    }
    set(&mut session, at, PART / 4, &[0])?;
    // The driver's reservations and claims keep off each other.
    let reserve = [CLAIMED.to_le_bytes(), [0; 8], CLAIM.to_le_bytes(), [0; 8]].concat();
    let reserve = CallParts::new(Opcode::cuMemAddressReserve, &reserve);
    let reserved = session.expect(&reserve, &[0])?;
    let reserved: u64 = u64::from_le_bytes(reserved.results[..].try_into().context("An address")?);
    ensure!(reserved.abs_diff(CLAIM) >= CLAIMED, "a reservation at {reserved:#x} of claimed addresses");
    unpin(&mut session, 1)?;
    set(&mut session, at, 1, &[INVALID_VALUE])?;
    ensure!(give_up(&mut session, CLAIM, CLAIMED)? == 0, "nothing is there any more");
    ensure!(give_up(&mut session, CLAIM, CLAIMED)? == INVALID_VALUE, "given up twice");
    ensure!(map(&mut session, 1, last)? != last, "mapped where nothing is claimed any more");
    let again = session.expect(&reserve, &[0])?;
    let again = u64::from_le_bytes(again.results[..].try_into().context("An address")?);
    for (base, bytes) in [(again - PART, 2 * PART), (again + CLAIMED - PART, 2 * PART)] {
        let claimed = claim(&mut session, base, bytes)?;
        ensure!(claimed != 0, "{base:#x} reaches out of the reservation at {again:#x}");
    }
    // The session ends with a claim in use.
    ensure!(claim(&mut session, CLAIM - CLAIMED, CLAIMED)? == 0, "other addresses");
    ensure!(map(&mut session, 4, CLAIM - CLAIMED)? == CLAIM - CLAIMED, "inside the claim");
    session.greet()
}

/// Claims addresses inside a reservation, which stays the driver's.
fn claims_reserved_addresses(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let claim = |session: &mut Session, base, bytes| call(session, Opcode::window_claim, base, bytes);
    let give_up = |session: &mut Session, base, bytes| call(session, Opcode::window_yield, base, bytes);
    let reserve = [CLAIMED.to_le_bytes(), [0; 8], CLAIM.to_le_bytes(), [0; 8]].concat();
    let reserved = session.expect(&CallParts::new(Opcode::cuMemAddressReserve, &reserve), &[0])?;
    let base = u64::from_le_bytes(reserved.results[..].try_into().context("An address")?);
    let properties = AllocationProperties {
        kind: 1,
        location: Location { kind: 1, id: 0 },
        ..AllocationProperties::default()
    };
    let create =
        [&ALLOCATION.to_le_bytes()[..], &UNIT.to_le_bytes(), &encoded(&properties)?, &[0; 8]].concat();
    session.expect(&CallParts::new(Opcode::cuMemCreate, &create), &[0])?;
    let map_memory = |session: &mut Session, at: u64| -> Result<i32> {
        let args = [at, UNIT, 0, ALLOCATION, 0].map(u64::to_le_bytes).concat();
        Ok(session.expect(&CallParts::new(Opcode::cuMemMap, &args), &[0, INVALID_VALUE])?.result)
    };
    ensure!(map_memory(&mut session, base)? == 0, "device memory");
    let place = base + UNIT;
    for (at, bytes) in
        [(base, UNIT), (base + UNIT - PART, 2 * PART), (base, CLAIMED), (place, 0), (place, 4095)]
    {
        let claimed = claim(&mut session, at, bytes)?;
        ensure!(claimed != 0, "{bytes:#x} bytes at {at:#x} claimed");
    }
    ensure!(claim(&mut session, place, UNIT)? == 0, "free reserved addresses");
    ensure!(claim(&mut session, place + PART, PART)? == OUT_OF_MEMORY, "claimed twice");
    ensure!(map(&mut session, 1, place)? == place, "inside the claim");
    let at = register(&mut session, place, PART, 2)?.context("a good part")?;
    set(&mut session, at, PART / 4, &[0])?;
    // Device memory, the reservation's end, and the driver's unmapping keep off pages in use.
    for at in [place, base + PART] {
        ensure!(map_memory(&mut session, at)? == INVALID_VALUE, "device memory at {at:#x}");
    }
    for (opcode, at, bytes) in [
        (Opcode::cuMemAddressFree, base, CLAIMED),
        (Opcode::cuMemUnmap, place, UNIT),
        (Opcode::cuMemUnmap, base, CLAIMED),
        (Opcode::window_yield, place, UNIT),
        (Opcode::window_yield, base, CLAIMED),
    ] {
        let done = call(&mut session, opcode, at, bytes)?;
        ensure!(done == INVALID_VALUE, "{opcode:?} of {bytes:#x} bytes at {at:#x}: {done}");
    }
    set(&mut session, at, PART / 4, &[0])?;
    unpin(&mut session, 1)?;
    ensure!(give_up(&mut session, place, UNIT)? == 0, "nothing is there any more");
    ensure!(give_up(&mut session, place, UNIT)? == INVALID_VALUE, "given up twice");
    ensure!(map(&mut session, 1, place)? != place, "mapped where nothing is claimed any more");
    ensure!(call(&mut session, Opcode::cuMemUnmap, base, UNIT)? == 0, "device memory");
    // Device memory can be mapped at addresses that are given up, and they can be claimed again after it.
    ensure!(map_memory(&mut session, place)? == 0, "device memory in place of pages");
    ensure!(claim(&mut session, place, UNIT)? == OUT_OF_MEMORY, "device memory is there");
    ensure!(call(&mut session, Opcode::cuMemUnmap, place, UNIT)? == 0, "device memory");
    ensure!(claim(&mut session, place, UNIT)? == 0 && give_up(&mut session, place, UNIT)? == 0, "lent again");
    ensure!(call(&mut session, Opcode::cuMemAddressFree, base, CLAIMED)? == 0, "the reservation");
    session.greet()
}

fn claims_more_than_it_may(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut claims = 0;
    while call(&mut session, Opcode::window_claim, CLAIM + claims * 8192, 4096)? == 0 {
        claims += 1;
        ensure!(claims <= 1 << 14, "claims have no limit");
    }
    ensure!(claims >= 1024, "only {claims} claims");
    ensure!(call(&mut session, Opcode::window_yield, CLAIM, 4096)? == 0, "the first one");
    ensure!(call(&mut session, Opcode::window_claim, CLAIM, 4096)? == 0, "room again");
    session.greet()
}
