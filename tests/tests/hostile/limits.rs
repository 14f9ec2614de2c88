// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Limits that a guest tries to get around: each case takes more than it is given, in a way of its own.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend, LOW, PATIENCE, parse_result};
use vhost_cuda_tests::suite::Suite;
use vhost_cuda_tests::tracer::HeldInExit;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, CALL_OUT_INLINE, CallHeader, JitOptions, Location, Opcode, PoolProperties,
};
use virtio_cuda_protocol::transport::{MemEntry, OP_CLOSE, REPLY_NO_RESOURCES, REPLY_OK};

use crate::calls::{CONTEXT, INVALID_VALUE, Session, begin_link, encoded, in_context};
use crate::faults::{SESSION, control, workers_named};
use crate::{Target, attack, attack_with};

const OUT_OF_MEMORY: i32 = 2;
const INVALID_IMAGE: i32 = 200;
const MIB: u64 = 1 << 20;
/// The memory that a context counts as (`CONTEXT_BYTES` of the daemon).
const CONTEXT_MIB: u64 = 600;
/// Names of the first stream and of a pool.
const STREAM: u64 = 0x5000;
const POOL: u64 = 0x5100;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_JIT_INPUT_PTX` and `CU_JIT_INPUT_OBJECT`.
const INPUT_PTX: u32 = 1;
const INPUT_OBJECT: u32 = 3;

pub fn collect(suite: &mut Suite) {
    let with = |arguments: &[&str]| DaemonOptions {
        arguments: arguments.iter().map(|&argument| argument.into()).collect(),
        ..DaemonOptions::default()
    };
    let small = || with(&["--session-memory", "16M"]);
    attack_with(suite, "limits::variables_of_modules", small(), variables_of_modules);
    attack_with(suite, "limits::limits_of_contexts", small(), limits_of_contexts);
    attack_with(suite, "limits::contexts", with(&["--session-memory", "2G"]), contexts);
    attack(suite, "limits::contexts_without_a_limit", contexts_without_a_limit);
    attack_with(suite, "limits::released_but_exported", small(), released_but_exported);
    // A pool of NVIDIA's driver allocates 32 MiB at a time.
    let of_pools = with(&["--session-memory", "256M"]);
    attack_with(suite, "limits::freed_in_a_blocked_stream", of_pools, freed_in_a_blocked_stream);
    attack_with(suite, "limits::pool_destroyed_before_its_memory", small(), pool_destroyed);
    attack_with(suite, "limits::sizes_just_above_a_block", small(), sizes_just_above_a_block);
    attack_with(suite, "limits::scattered_small_allocations", small(), scattered_small_allocations);
    attack_with(suite, "limits::old_name_of_the_option", with(&["--memory-limit", "16M"]), old_name);
    attack_with(suite, "limits::sessions_of_a_machine", with(&["--memory", "700M"]), sessions_of_a_machine);
    attack_with(suite, "limits::many_sessions_of_a_machine", with(&["--memory", "700M"]), many_sessions);
    let slow = with(&["--max-sessions", "2", "--session-rate", "1"]);
    attack_with(suite, "limits::sessions_have_a_rate", slow, sessions_have_a_rate);
    // A worker of a GPU must not be traced.
    let ending = DaemonOptions { device: "emulated".into(), ..with(&["--memory", "700M"]) };
    attack_with(suite, "limits::memory_of_a_session_that_is_ending", ending, memory_of_an_ending_session);
    attack(suite, "limits::refused_inputs_of_links", refused_inputs_of_links);
    attack(suite, "limits::inputs_of_links", inputs_of_links);
    attack(suite, "limits::workers_die_before_others", workers_die_before_others);
    // `attack_with` connects others meanwhile.
    suite.test("limits::one_front_end_at_a_time", move |kit| {
        let daemon = vhost_cuda_tests::daemon::Daemon::start(&kit.stack, &with(&["--single"]))?;
        one_front_end(&mut Target { daemon })
    });
}

/// A call whose answer has one 64-bit result.
fn number(session: &mut Session, parts: &CallParts, allowed: &[i32]) -> Result<u64> {
    let answer = session.expect(parts, allowed)?;
    Ok(answer.results.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

fn allocate(session: &mut Session, bytes: u64, allowed: &[i32]) -> Result<u64> {
    number(session, &in_context(Opcode::cuMemAlloc_v2, &[bytes]), allowed)
}

fn free(session: &mut Session, address: u64) -> Result<()> {
    session.expect(&in_context(Opcode::cuMemFree_v2, &[address]), &[0]).map(drop)
}

/// Free and total memory.
fn memory(session: &mut Session) -> Result<(u64, u64)> {
    let answer = session.expect(&in_context(Opcode::cuMemGetInfo_v2, &[]), &[0])?;
    let word = |at: usize| answer.results.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    let (free, total) = (word(0).context("free")?, word(8).context("total")?);
    Ok((u64::from_le_bytes(free), u64::from_le_bytes(total)))
}

fn module_of(variables: &str) -> Vec<u8> {
    format!(".version 7.8\n.target sm_80\n.address_size 64\n{variables}\n.visible .entry k() {{ ret; }}\0")
        .into()
}

fn variables_of_modules(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    let huge = module_of(".visible .global .align 8 .b8 big[1073741824];");
    for opcode in [Opcode::cuModuleLoadData, Opcode::cuLibraryLoadData] {
        session.expect(&in_context(opcode, &[0x4000]).bulk(&huge), &[OUT_OF_MEMORY])?;
    }
    // Strings hide nothing, and variables that are not counted are refused.
    let big = ".global .b8 big[1073741824];";
    for (variables, result) in [
        (format!(".pragma \"/*\"; {big} .pragma \"*/\";"), OUT_OF_MEMORY),
        (format!(".file 1 \"a=b\"\n{big}"), OUT_OF_MEMORY),
        (format!(".file 1 \"x .func y\"\n{big}"), OUT_OF_MEMORY),
        (".global .b64 a<1000000>;".to_owned(), INVALID_IMAGE),
    ] {
        let load = in_context(Opcode::cuModuleLoadData, &[0x4000]).bulk(&module_of(&variables));
        session.expect(&load, &[result]).context(variables)?;
    }
    // Each takes a page of the emulator at least.
    let names: Vec<String> = (0..9000).map(|index| format!("v{index}")).collect();
    let many = format!(".global .b8 {};", names.join(","));
    if is_emulated() {
        for opcode in [Opcode::cuModuleLoadData, Opcode::cuLibraryLoadData] {
            session.expect(&in_context(opcode, &[0x4000]).bulk(&module_of(&many)), &[OUT_OF_MEMORY])?;
        }
    }
    let options = encoded(&JitOptions::default())?;
    let with_options = [&0x4000u64.to_le_bytes()[..], &options].concat();
    let parts = CallParts::new(Opcode::cuModuleLoadDataEx, &with_options).context(CONTEXT).bulk(&huge);
    session.expect(&parts, &[OUT_OF_MEMORY])?;

    // Two that fit one by one, and not both.
    let half = module_of(".global .align 4 .f32 half[2097152];");
    let load = |name: u64| in_context(Opcode::cuModuleLoadData, &[name]).bulk(&half);
    session.expect(&load(0x4000), &[0])?;
    session.expect(&load(0x4010), &[OUT_OF_MEMORY])?;
    ensure!(memory(&mut session)?.0 < 8 * MIB, "cuMemGetInfo does not count variables");
    session.expect(&in_context(Opcode::cuModuleUnload, &[0x4000]), &[0])?;
    session.expect(&load(0x4010), &[0])?;
    session.greet()
}

fn set_limit(session: &mut Session, limit: i32, value: u64, allowed: &[i32]) -> Result<()> {
    let arguments = [&limit.to_le_bytes()[..], &value.to_le_bytes()].concat();
    session.expect(&CallParts::new(Opcode::cuCtxSetLimit, &arguments).context(CONTEXT), allowed)?;
    Ok(())
}

fn limits_of_contexts(target: &mut Target) -> Result<()> {
    const STACK: i32 = 0;
    const PRINTF: i32 = 1;
    const HEAP: i32 = 2;
    let mut session = Session::open(target)?;
    for (limit, value) in [(HEAP, 16 << 30), (HEAP, u64::MAX), (PRINTF, 1 << 30), (STACK, 64 << 10)] {
        set_limit(&mut session, limit, value, &[OUT_OF_MEMORY])?;
    }
    // A raised limit is charged, a lowered one is not.
    let before = memory(&mut session)?.0;
    set_limit(&mut session, HEAP, 16 * MIB, &[0])?;
    let raised = memory(&mut session)?.0;
    ensure!(raised <= before - 8 * MIB, "{before} bytes were free, then {raised}");
    set_limit(&mut session, HEAP, 8 * MIB, &[0])?;
    ensure!(memory(&mut session)?.0 == before, "a lower limit does not give memory back");
    session.greet()
}

fn create_context(session: &mut Session, name: u64, allowed: &[i32]) -> Result<()> {
    let arguments = [&name.to_le_bytes()[..], &0u32.to_le_bytes(), &0u32.to_le_bytes()].concat();
    session.expect(&CallParts::new(Opcode::cuCtxCreate_v2, &arguments), allowed).map(drop)
}

/// 2 GiB are three contexts besides the session's own.
fn contexts(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for name in 1..=2048 / CONTEXT_MIB {
        create_context(&mut session, 0x8000 + name, &[0])?;
    }
    create_context(&mut session, 0x9000, &[OUT_OF_MEMORY])?;
    session.expect(&CallParts::new(Opcode::cuCtxDestroy_v2, &0x8001u64.to_le_bytes()), &[0])?;
    create_context(&mut session, 0x9000, &[0])?;
    session.greet()
}

fn contexts_without_a_limit(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    for name in 1..=8 {
        create_context(&mut session, 0x8000 + name, &[0])?;
    }
    create_context(&mut session, 0x9000, &[OUT_OF_MEMORY])?;
    session.greet()
}

/// A process with the token can import the memory, which must count as long as that is so.
fn released_but_exported(target: &mut Target) -> Result<()> {
    const BYTES: u64 = 12 * MIB;
    let (mut session, mut other) = (Session::open(target)?, Session::open(target)?);
    let properties = AllocationProperties {
        kind: 1,
        handle_types: 1,
        location: Location { kind: 1, id: 0 },
        ..AllocationProperties::default()
    };
    let mut create = |name: u64, allowed: &[i32]| -> Result<Option<Vec<u8>>> {
        let words = [&name.to_le_bytes()[..], &BYTES.to_le_bytes(), &encoded(&properties)?, &[0; 8]].concat();
        let made = session.expect(&CallParts::new(Opcode::cuMemCreate, &words).context(CONTEXT), allowed)?;
        if made.result != 0 {
            return Ok(None);
        }
        let token = session.expect(&in_context(Opcode::cuMemExportToShareableHandle, &[name]), &[0])?.results;
        session.expect(&in_context(Opcode::cuMemRelease, &[name]), &[0])?;
        Ok(Some(token))
    };
    let token = create(0x2000, &[0])?.context("no token")?;
    if create(0x2010, &[0, OUT_OF_MEMORY])?.is_none() {
        return Ok(());
    }
    // It was no longer charged, so it must have ended.
    let deadline = Instant::now() + Duration::from_secs(5);
    let import = [&0x3000u64.to_le_bytes()[..], &token].concat();
    let import = CallParts::new(Opcode::cuMemImportFromShareableHandle, &import).context(CONTEXT);
    while other.expect(&import, &[0, INVALID_VALUE])?.result == 0 {
        other.expect(&in_context(Opcode::cuMemRelease, &[0x3000]), &[0])?;
        ensure!(Instant::now() < deadline, "24 MiB of 16 are alive");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A stream that does nothing until the guest has run a function. The ticket of that comes from `session_next_callback`.
fn blocked_stream(session: &mut Session) -> Result<()> {
    let arguments = [&STREAM.to_le_bytes()[..], &NON_BLOCKING.to_le_bytes(), &[0; 4]].concat();
    let create = CallParts::new(Opcode::cuStreamCreateWithPriority, &arguments).context(CONTEXT);
    session.expect(&create, &[0])?;
    session.expect(&in_context(Opcode::cuLaunchHostFunc, &[STREAM, 0x7000]), &[0]).map(drop)
}

/// Lets the stream go on, and waits until it is through.
fn unblock(session: &mut Session) -> Result<()> {
    let next = |done: u64| CallParts { thread: 2, ..in_context(Opcode::session_next_callback, &[done]) };
    let ticket = number(session, &next(0), &[0])?;
    ensure!(ticket != 0, "no function is due");
    // Answered when the next one is due, or after a while.
    session.expect(&next(ticket), &[0])?;
    session.expect(&in_context(Opcode::cuStreamSynchronize, &[STREAM]), &[0]).map(drop)
}

fn freed_in_a_blocked_stream(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    blocked_stream(&mut session)?;
    for allocated in [Opcode::cuMemAllocAsync, Opcode::cuMemAlloc_v2] {
        let words: &[u64] =
            if allocated == Opcode::cuMemAlloc_v2 { &[96 * MIB] } else { &[96 * MIB, STREAM] };
        let address = number(&mut session, &in_context(allocated, words), &[0])?;
        session.expect(&in_context(Opcode::cuMemFreeAsync, &[address, STREAM]), &[0])?;
    }
    // 2 MiB belong to the session itself, and both of them still exist.
    allocate(&mut session, 96 * MIB, &[OUT_OF_MEMORY])?;
    session.expect(&in_context(Opcode::cuMemAllocAsync, &[96 * MIB, STREAM]), &[OUT_OF_MEMORY])?;
    unblock(&mut session)?;
    allocate(&mut session, 224 * MIB, &[0])?;
    session.greet()
}

fn pool_destroyed(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    blocked_stream(&mut session)?;
    let properties =
        PoolProperties { kind: 1, location: Location { kind: 1, id: 0 }, ..PoolProperties::default() };
    let create = [&POOL.to_le_bytes()[..], &encoded(&properties)?].concat();
    session.expect(&CallParts::new(Opcode::cuMemPoolCreate, &create).context(CONTEXT), &[0])?;
    let from_pool = in_context(Opcode::cuMemAllocFromPoolAsync, &[12 * MIB, POOL, STREAM]);
    let address = number(&mut session, &from_pool, &[0])?;
    session.expect(&in_context(Opcode::cuMemFreeAsync, &[address, STREAM]), &[0])?;
    session.expect(&in_context(Opcode::cuMemPoolDestroy, &[POOL]), &[0])?;
    allocate(&mut session, 12 * MIB, &[OUT_OF_MEMORY])?;
    unblock(&mut session)?;
    allocate(&mut session, 12 * MIB, &[0])?;
    session.greet()
}

/// Each takes two megabytes of a GPU.
fn sizes_just_above_a_block(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    // One of eight blocks has the session's own memory.
    let first = allocate(&mut session, MIB + 1, &[0])?;
    for _ in 1..7 {
        allocate(&mut session, MIB + 1, &[0])?;
    }
    allocate(&mut session, MIB + 1, &[OUT_OF_MEMORY])?;
    let (free_bytes, total) = memory(&mut session)?;
    ensure!((free_bytes, total) == (0, 16 * MIB), "{free_bytes} of {total} bytes are free");
    let used = session.expect(&CallParts::new(Opcode::nvml_memory, &0u32.to_le_bytes()), &[0])?.results;
    let all = [16 * MIB, 16 * MIB].map(u64::to_le_bytes).concat();
    ensure!(used == all, "NVML says {used:?}");
    free(&mut session, first)?;
    allocate(&mut session, 2 * MIB, &[0])?;
    session.greet()
}

/// Small ones share blocks, but one that stays keeps its block.
fn scattered_small_allocations(target: &mut Target) -> Result<()> {
    const BYTES: u64 = 512 << 10;
    let mut session = Session::open(target)?;
    let mut all = Vec::new();
    while let Ok(address) = allocate(&mut session, BYTES, &[0]) {
        all.push(address);
        ensure!(all.len() <= 32, "{} of half a megabyte in 16 MiB", all.len());
    }
    ensure!(all.len() >= 24, "only {} of half a megabyte in 16 MiB", all.len());
    all.sort_unstable();
    // One of each block stays.
    let mut kept = None;
    for address in all {
        if kept == Some(address >> 21) {
            free(&mut session, address)?;
        }
        kept = Some(address >> 21);
    }
    allocate(&mut session, 4 * MIB, &[OUT_OF_MEMORY])?;
    session.greet()
}

fn old_name(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    allocate(&mut session, 15 * MIB, &[OUT_OF_MEMORY])?;
    allocate(&mut session, 14 * MIB, &[0])?;
    session.greet()
}

/// All sessions together: 700 MiB, of which the second one's context takes 600.
fn sessions_of_a_machine(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let first = frontend.open_session()?;
    let second = open_another(&mut frontend)?.context("the second session is refused")?;
    let mut first = Session::on(frontend, first)?;
    let (free_bytes, total) = memory(&mut first)?;
    ensure!((free_bytes, total) == (98 * MIB, 700 * MIB), "{free_bytes} of {total} bytes are free");
    let large = allocate(&mut first, 60 * MIB, &[0])?;
    // The other session of the same machine.
    let first_id = std::mem::replace(&mut first.id, second);
    let mut session = first;
    session.begin()?;
    ensure!(memory(&mut session)? == (36 * MIB, 700 * MIB), "{:?}", memory(&mut session)?);
    allocate(&mut session, 40 * MIB, &[OUT_OF_MEMORY])?;
    let other = allocate(&mut session, 36 * MIB, &[0])?;
    ensure!(open_another(&mut session.frontend)?.is_none(), "a third context has no room");
    free(&mut session, other)?;
    // Another machine has its own memory.
    let mut stranger = Session::open(target)?;
    allocate(&mut stranger, 690 * MIB, &[0])?;
    // The resources of a session are free when its end is reported.
    let closed = session.frontend.close(first_id)?;
    ensure!(closed.status == REPLY_OK && large != 0, "close was answered with status {}", closed.status);
    allocate(&mut session, 690 * MIB, &[0])?;
    session.greet()
}

/// Who finds no memory waits for the sessions that are ending, which may have it.
fn memory_of_an_ending_session(target: &mut Target) -> Result<()> {
    const DELAY: Duration = Duration::from_millis(300);
    let mut frontend = target.connect()?;
    let first = frontend.open_session()?;
    target.daemon.wait_until("the first worker has a session", PATIENCE, |daemon| {
        !workers_named(daemon, SESSION).is_empty()
    })?;
    let worker = workers_named(&target.daemon, SESSION)[0];
    let second = open_another(&mut frontend)?.context("the second session is refused")?;
    let mut session = Session::on(frontend, first)?;
    allocate(&mut session, 60 * MIB, &[0])?;
    session.id = second;
    session.begin()?;
    // No session is ending: there is no memory.
    allocate(&mut session, 60 * MIB, &[OUT_OF_MEMORY])?;
    let held = HeldInExit::new(worker)?;
    // In the other queue: its answer must not be taken for that of a call.
    session.frontend.submit(1, 1, &control(OP_CLOSE, first, &[]), 64)?;
    target.daemon.wait_until("the worker is held in its exit", PATIENCE, |_| {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('t'))
    })?;
    let begun = Instant::now();
    let release = thread::spawn(move || {
        thread::sleep(DELAY);
        drop(held);
    });
    let allocated = allocate(&mut session, 600 * MIB, &[0]);
    let waited = begun.elapsed();
    release.join().map_err(|_| anyhow!("the thread that releases the worker"))?;
    allocated?;
    ensure!(waited >= DELAY, "memory of a session that had not ended, after {waited:?}");
    let closed = session.frontend.reply(1, PATIENCE)?.context("the close is not answered")?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {}", closed.status);
    session.greet()
}

/// `None`: there is no room.
fn open_another(frontend: &mut FakeFrontend) -> Result<Option<u64>> {
    let reply = frontend.open()?;
    match reply.status {
        REPLY_OK => Ok(reply.payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))),
        REPLY_NO_RESOURCES => Ok(None),
        status => bail!("open was answered with status {status}"),
    }
}

/// Sessions that end by themselves leave no charge in the machine's account.
fn many_sessions(target: &mut Target) -> Result<()> {
    for round in 0..10 {
        let mut session = Session::open(target)?;
        allocate(&mut session, 600 * MIB, &[0]).with_context(|| format!("round {round}"))?;
        let id = session.id;
        let closed = session.frontend.close(id)?;
        ensure!(closed.status == REPLY_OK, "close was answered with status {}", closed.status);
        session.id = session.frontend.open_session()?;
        session.begin()?;
        allocate(&mut session, 600 * MIB, &[0]).with_context(|| format!("round {round}, again"))?;
    }
    Ok(())
}

/// Two at once, and one more per second.
fn sessions_have_a_rate(target: &mut Target) -> Result<()> {
    let begin = Instant::now();
    let mut session = Session::open(target)?;
    for _ in 0..3 {
        let closed = session.frontend.close(session.id)?;
        ensure!(closed.status == REPLY_OK, "close was answered with status {}", closed.status);
        session.id = session.frontend.open_session()?;
    }
    let taken = begin.elapsed();
    ensure!(taken >= Duration::from_secs(2), "four sessions were opened in {taken:?}");
    target.daemon.wait_until("a message", PATIENCE, |daemon| daemon.log().contains("--session-rate"))
}

/// Adds an input of `bytes` bytes to a link; they lie in guest memory, as long ones do.
fn add_input(session: &mut Session, link: u64, kind: u32, bytes: u32) -> Result<i32> {
    const AT: u64 = LOW + (64 << 20);
    let name = [&link.to_le_bytes()[..], &kind.to_le_bytes(), &0u32.to_le_bytes()].concat();
    let parts = CallParts::new(Opcode::cuLinkAddData_v2, &[name, encoded(&JitOptions::default())?].concat());
    let parts = parts.context(CONTEXT);
    let header = CallHeader { flags: CALL_OUT_INLINE, bulk_in_bytes: bytes.into(), ..parts.header() };
    let pages = [MemEntry { addr: AT, bytes, reserved: 0 }];
    let reply = session.frontend.carry(session.id, &parts.payload(&header), [&pages, &[]])?;
    ensure!(reply.status == REPLY_OK, "cuLinkAddData was answered with status {}", reply.status);
    Ok(parse_result(&reply.payload)?.result)
}

fn write_text(session: &Session, text: &[u8], bytes: usize) -> Result<()> {
    use vm_memory::{Bytes, GuestAddress};
    let mut padded = text.to_vec();
    padded.resize(bytes, b'\n');
    Ok(session.frontend.memory.write_slice(&padded, GuestAddress(LOW + (64 << 20)))?)
}

/// The largest resident memory of a worker, in bytes.
fn largest_worker(target: &Target) -> u64 {
    let resident = |worker: u32| {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
    };
    target.daemon.workers().into_iter().map(resident).max().unwrap_or(0)
}

/// An input that the driver refuses is not kept.
fn refused_inputs_of_links(target: &mut Target) -> Result<()> {
    const BYTES: u32 = 32 << 20;
    let mut session = Session::open(target)?;
    write_text(&session, b"neither an object nor anything else", BYTES as usize)?;
    begin_link(&mut session, 0x4000)?;
    let before = largest_worker(target);
    for round in 0..24 {
        let result = add_input(&mut session, 0x4000, INPUT_OBJECT, BYTES)?;
        ensure!(result != 0 && result != OUT_OF_MEMORY, "round {round}: {result}");
    }
    let grown = largest_worker(target).saturating_sub(before);
    ensure!(grown < 256 * MIB, "the worker has grown by {} MiB", grown / MIB);
    session.greet()
}

/// The memory of links is bounded, over all links.
fn inputs_of_links(target: &mut Target) -> Result<()> {
    const BYTES: u32 = 32 << 20;
    let mut session = Session::open(target)?;
    write_text(&session, b".version 7.8\n.target sm_80\n.address_size 64\n", BYTES as usize)?;
    let mut kept = 0;
    for link in 0..24u64 {
        begin_link(&mut session, 0x4000 + link)?;
        match add_input(&mut session, 0x4000 + link, INPUT_PTX, BYTES)? {
            0 => kept += 1,
            OUT_OF_MEMORY => break,
            result => bail!("input {link}: {result}"),
        }
    }
    ensure!(kept > 0 && kept * u64::from(BYTES) <= 256 * MIB, "{kept} inputs of 32 MiB are kept");
    session
        .expect(&CallParts::new(Opcode::cuLinkDestroy, &0x4000u64.to_le_bytes()).context(CONTEXT), &[0])?;
    let result = add_input(&mut session, 0x4001, INPUT_PTX, BYTES)?;
    ensure!(result == 0, "after a link has ended: {result}");
    session.greet()
}

fn workers_die_before_others(target: &mut Target) -> Result<()> {
    let _session = Session::open(target)?;
    let in_use = |worker: &u32| {
        fs::read_to_string(format!("/proc/{worker}/comm")).is_ok_and(|name| name.trim() == "cuda-session")
    };
    let workers: Vec<u32> = target.daemon.workers().into_iter().filter(in_use).collect();
    ensure!(!workers.is_empty(), "the session has no worker");
    for worker in workers {
        let score = fs::read_to_string(format!("/proc/{worker}/oom_score_adj"))?;
        ensure!(score.trim() == "1000", "worker {worker} has {score}");
    }
    Ok(())
}

fn one_front_end(target: &mut Target) -> Result<()> {
    let mut first = Session::open(target)?;
    ensure!(target.connect().is_err(), "a second front-end is served");
    first.greet()?;
    drop(first);
    // A machine that is restarted connects at once.
    let mut next = Session::open(target)?;
    next.greet()?;
    drop(next);
    FakeFrontend::behave(&target.daemon.socket())?;
    ensure!(target.daemon.is_running(), "the daemon has ended");
    target.daemon.wait_until("a message", PATIENCE, |daemon| daemon.log().contains("--single=false"))
}
