// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Invalid external memory, parts outside of it, and the quota: memory is charged once in each session that has it.

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::frontend::CallParts;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{AllocationProperties, ArrayDescriptor, Location, Opcode};

use crate::calls::{CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Session, encoded, in_context};
use crate::{Target, attack, attack_with};

const OUT_OF_MEMORY: i32 = 2;
const ALLOCATION: u64 = 0x2000;
const MEMORY: u64 = 0x2010;
const UNIT: u64 = 2 << 20;
/// A session's limit where there is one.
const QUOTA: u64 = 16 << 20;
/// The maximum number of files that the daemon keeps for a user: three quarters of a machine's.
const MAX_LIVE: u64 = 3072;

pub fn collect(suite: &mut Suite) {
    attack(suite, "external::forged_memory_and_parts", forged_memory_and_parts);
    attack(suite, "external::offers_end_with_their_allocations", offers_end_with_their_allocations);
    let quota = DaemonOptions {
        arguments: vec!["--memory-limit".into(), QUOTA.to_string()],
        ..DaemonOptions::default()
    };
    attack_with(suite, "external::memory_counts_once", quota.clone(), memory_counts_once);
    attack_with(suite, "external::blocks_of_small_memory_count", quota, blocks_of_small_memory_count);
}

/// Allocates, and offers that to others.
fn offer(session: &mut Session, name: u64, bytes: u64) -> Result<Vec<u8>> {
    let properties = AllocationProperties {
        kind: 1,
        handle_types: 1,
        location: Location { kind: 1, id: 0 },
        ..AllocationProperties::default()
    };
    let arguments = [&name.to_le_bytes()[..], &bytes.to_le_bytes(), &encoded(&properties)?, &[0; 8]].concat();
    session.expect(&CallParts::new(Opcode::cuMemCreate, &arguments).context(CONTEXT), &[0])?;
    Ok(session.expect(&in_context(Opcode::cuMemExportToShareableHandle, &[name]), &[0])?.results)
}

fn import(session: &mut Session, name: u64, token: &[u8], bytes: u64, allowed: &[i32]) -> Result<()> {
    let arguments = [&name.to_le_bytes()[..], token, &bytes.to_le_bytes()].concat();
    session.expect(&CallParts::new(Opcode::cuImportExternalMemory, &arguments).context(CONTEXT), allowed)?;
    Ok(())
}

fn map(session: &mut Session, name: u64, offset: u64, bytes: u64, allowed: &[i32]) -> Result<u64> {
    let parts = in_context(Opcode::cuExternalMemoryGetMappedBuffer, &[name, offset, bytes]);
    let answer = session.expect(&parts, allowed)?;
    Ok(answer.results.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

fn map_array(
    session: &mut Session,
    offset: u64,
    of: &ArrayDescriptor,
    levels: u32,
    allowed: &[i32],
) -> Result<()> {
    let (name, mipmap) = (MEMORY.to_le_bytes(), 0x3000u64.to_le_bytes());
    let arguments =
        [&name[..], &offset.to_le_bytes(), &encoded(of)?, &levels.to_le_bytes(), &mipmap].concat();
    let opcode = Opcode::cuExternalMemoryGetMappedMipmappedArray;
    session.expect(&CallParts::new(opcode, &arguments).context(CONTEXT), allowed)?;
    Ok(())
}

fn free(session: &mut Session, address: u64, allowed: &[i32]) -> Result<()> {
    session.expect(&in_context(Opcode::cuMemFree_v2, &[address]), allowed)?;
    Ok(())
}

fn forged_memory_and_parts(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let token = offer(&mut session, ALLOCATION, UNIT)?;
    for forged in [vec![0; 16], vec![0xff; 16], token.iter().rev().copied().collect()] {
        import(&mut session, MEMORY, &forged, UNIT, &[INVALID_VALUE])?;
    }
    import(&mut session, MEMORY, &token, 0, &[INVALID_VALUE])?;
    import(&mut session, 3, &token, UNIT, &[INVALID_VALUE])?;
    // The guest's value of its size is ignored.
    import(&mut session, MEMORY, &token, u64::MAX, &[0])?;
    import(&mut session, MEMORY, &token, UNIT, &[INVALID_VALUE])?;

    for name in [0, 3, ALLOCATION, session.memory, u64::MAX] {
        map(&mut session, name, 0, 4096, &[INVALID_VALUE])?;
        session.expect(&in_context(Opcode::cuDestroyExternalMemory, &[name]), &[INVALID_VALUE])?;
    }
    for (offset, bytes) in [
        (0, 0),
        (0, UNIT + 1),
        (UNIT, 1),
        (UNIT - 1, 2),
        (1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (1 << 63, 1 << 63),
    ] {
        map(&mut session, MEMORY, offset, bytes, &[INVALID_VALUE])?;
    }
    let side =
        |width, height| ArrayDescriptor { width, height, depth: 0, format: 0x20, channels: 1, flags: 0 };
    for (offset, of, levels) in [
        (0, side(1024, 1024), 1),
        (0, side(u64::MAX, 1), 1),
        (0, side(1 << 32, 1 << 32), 1),
        (UNIT, side(16, 16), 1),
        (u64::MAX, side(16, 16), 1),
        (0, side(16, 16), 0),
        (0, side(16, 16), u32::MAX),
        (0, ArrayDescriptor { flags: 0x80, ..side(16, 16) }, 1),
        (0, ArrayDescriptor { format: 99, ..side(16, 16) }, 1),
    ] {
        map_array(&mut session, offset, &of, levels, &[INVALID_VALUE])?;
    }

    let at = map(&mut session, MEMORY, 4096, 8192, &[0])?;
    for (address, bytes) in [(at - 1, 1), (at + 8191, 2), (at, 8193)] {
        let read = in_context(Opcode::cuMemcpyDtoH_v2, &[address]).wants(bytes);
        session.expect(&read, &[INVALID_VALUE])?;
    }
    for inside in [at + 1, at + 4096, at - 4096] {
        free(&mut session, inside, &[INVALID_VALUE])?;
    }
    session.expect(&in_context(Opcode::cuMemFreeAsync, &[at, 0]), &[NOT_SUPPORTED])?;
    session.expect(&in_context(Opcode::cuMemUnmap, &[at, 8192]), &[INVALID_VALUE])?;
    session.expect(&in_context(Opcode::cuIpcGetMemHandle, &[at]), &[INVALID_VALUE])?;
    session.expect(&in_context(Opcode::cuDestroyExternalMemory, &[MEMORY]), &[0])?;
    free(&mut session, at, &[0])?;
    free(&mut session, at, &[INVALID_VALUE])?;
    session.expect(&in_context(Opcode::cuDestroyExternalMemory, &[MEMORY]), &[INVALID_VALUE])?;
    session.greet()
}

/// Returns the bytes that the session may still allocate, with the context's own 4096 bytes of it used.
fn free_bytes(session: &mut Session) -> Result<u64> {
    let answer = session.expect(&in_context(Opcode::cuMemGetInfo_v2, &[]), &[0])?;
    Ok(u64::from_le_bytes(*answer.results.first_chunk().context("the free bytes")?))
}

fn memory_counts_once(target: &mut Target) -> Result<()> {
    let mut stranger = Session::open(target)?;
    let mut session = Session::open(target)?;
    let before = free_bytes(&mut session)?;
    let token = offer(&mut session, ALLOCATION, 4 * UNIT)?;
    let used =
        |session: &mut Session, before: u64| Ok::<_, anyhow::Error>((before - free_bytes(session)?) / UNIT);
    ensure!(used(&mut session, before)? == 4, "the allocation does not count");
    // Its own memory counts no second time, …
    import(&mut session, MEMORY, &token, 4 * UNIT, &[0])?;
    let at = map(&mut session, MEMORY, 0, 4 * UNIT, &[0])?;
    ensure!(used(&mut session, before)? == 4, "the session's own memory counts twice");
    // … and for as long as anything keeps it.
    session.expect(&in_context(Opcode::cuMemRelease, &[ALLOCATION]), &[0])?;
    session.expect(&in_context(Opcode::cuDestroyExternalMemory, &[MEMORY]), &[0])?;
    ensure!(used(&mut session, before)? == 4, "mapped memory does not count");
    offer(&mut session, ALLOCATION + 2, UNIT)?;
    ensure!(used(&mut session, before)? == 5, "the second allocation does not count");
    let large = offer(&mut session, ALLOCATION + 1, 2 * UNIT)?;

    import(&mut stranger, MEMORY, &token, 4 * UNIT, &[INVALID_VALUE]).context("in another machine")?;
    let owner = session.open_another()?;
    let start = free_bytes(&mut session)?;
    for name in MEMORY..MEMORY + 3 {
        import(&mut session, name, &token, 4 * UNIT, &[0])?;
    }
    ensure!(used(&mut session, start)? == 4, "memory of another session does not count once");
    offer(&mut session, ALLOCATION, 3 * UNIT)?;
    import(&mut session, MEMORY + 3, &large, 2 * UNIT, &[OUT_OF_MEMORY])?;
    for name in MEMORY..MEMORY + 3 {
        session.expect(&in_context(Opcode::cuDestroyExternalMemory, &[name]), &[0])?;
    }
    ensure!(used(&mut session, start)? == 3, "memory counts that nothing keeps");
    session.greet()?;
    session.id = owner;
    free(&mut session, at, &[0])?;
    ensure!(used(&mut session, before)? == 3, "memory counts that nothing keeps");
    session.greet()
}

/// Small allocations share blocks. One of another process keeps its block, also if the owner has freed all of it.
fn blocks_of_small_memory_count(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let allocate = |session: &mut Session, bytes: u64| -> Result<u64> {
        let answer = session.expect(&in_context(Opcode::cuMemAlloc_v2, &[bytes]), &[0])?;
        Ok(u64::from_le_bytes(*answer.results.first_chunk().context("an address")?))
    };
    // With what the session has from its beginning, these fill a block.
    for bytes in [UNIT / 2, UNIT / 2 - 4096] {
        allocate(&mut session, bytes)?;
    }
    let owner = session.id;
    session.open_another()?;
    let (taker, mut opened) = (session.id, Vec::new());
    for _ in 0..4 * QUOTA / UNIT {
        session.id = owner;
        let at = allocate(&mut session, 512)?;
        let token = session.expect(&in_context(Opcode::cuIpcGetMemHandle, &[at]), &[0])?.results;
        session.id = taker;
        let open =
            CallParts::new(Opcode::cuIpcOpenMemHandle_v2, &[&token[..], &1_u32.to_le_bytes()].concat());
        let answer = session.expect(&open.context(CONTEXT), &[0, OUT_OF_MEMORY])?;
        opened.extend(answer.results.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)));
        session.id = owner;
        free(&mut session, at, &[0])?;
        if answer.result != 0 {
            break;
        }
    }
    ensure!(opened.len() as u64 <= QUOTA / UNIT, "{} blocks were opened", opened.len());
    session.id = taker;
    ensure!(opened.len() > 1, "hardly anything was opened");
    for at in opened {
        session.expect(&in_context(Opcode::cuIpcCloseMemHandle, &[at]), &[0])?;
    }
    allocate(&mut session, QUOTA - 2 * UNIT).context("what was closed counts")?;
    session.greet()
}

/// A program that exports and frees, as PyTorch does, is not refused after a while; and no token outlives its memory.
fn offers_end_with_their_allocations(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let mut last = None;
    for round in 0..1000 {
        let token = offer(&mut session, ALLOCATION, UNIT).with_context(|| format!("round {round}"))?;
        session.expect(&in_context(Opcode::cuMemRelease, &[ALLOCATION]), &[0])?;
        last = Some(token);
    }
    import(&mut session, MEMORY, &last.context("no token")?, UNIT, &[INVALID_VALUE])?;
    // PyTorch has hundreds at once; a user's part of a machine's files is bounded all the same.
    let is_accepted = |name: &u64| offer(&mut session, ALLOCATION + 0x100 * name, UNIT).is_ok();
    let live = (0..=MAX_LIVE).take_while(is_accepted).count() as u64;
    ensure!((600..=MAX_LIVE).contains(&live), "{live} live offers");
    Ok(())
}
