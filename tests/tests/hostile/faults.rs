// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Faults: workers that hang in the kernel, front-ends that remove their memory, programs that are killed, and
//! descriptors that run out. The daemon answers in time, and continues to serve others.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_common::parts;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend, PATIENCE, SLOTS};
use vhost_cuda_tests::ring::{Descriptor, WRITE};
use vhost_cuda_tests::suite::{Kit, Suite};
use vhost_cuda_tests::tracer::HeldInExit;
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, FIRST_HANDLE, Opcode};
use virtio_cuda_protocol::transport::{
    Hello, OP_CLOSE, OP_HELLO, OP_OPEN, Open, Opened, PROTOCOL_VERSION, REPLY_NO_RESOURCES, REPLY_OK,
    REPLY_SESSION_LOST, RequestHeader,
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Target, attack_with};

/// The names of workers (`vhost-cuda/worker/src/start.rs`).
pub const SESSION: &str = "cuda-session";
const WARM: &str = "cuda-warm";
/// Maximum time of a reset and of SIGTERM where a worker does not end (`END_PATIENCE`), on a busy machine.
const BOUND: Duration = Duration::from_secs(9);
/// The time after which an unwanted event would have happened.
const SOON: Duration = Duration::from_secs(1);
/// The limit of open files for one machine with 16 sessions, and hardly another machine.
const FEW_FILES: u64 = 576;
/// States with a wrong bit, one after the other.
const WRONG_BITS: u64 = 60;
/// States that lie, one after the other.
const LIES: u64 = 40;
/// The names of a context and an event.
const CONTEXT: u64 = FIRST_HANDLE + 4;
const EVENT: u64 = FIRST_HANDLE + 32;
/// The maximum time for which others may stall.
pub const STALL: Duration = Duration::from_secs(2);

pub fn collect(suite: &mut Suite) {
    let emulated = |arguments: &[&str]| DaemonOptions {
        device: "emulated".into(),
        arguments: arguments.iter().map(|&argument| argument.into()).collect(),
        ..DaemonOptions::default()
    };
    attack_with(suite, "faults::a_worker_that_hangs_keeps_its_pages", emulated(&[]), hanging_worker);
    attack_with(suite, "faults::a_reset_with_a_worker_that_hangs", emulated(&[]), reset_with_hanging_worker);
    suite.test("faults::an_end_with_a_worker_that_hangs", |kit: &Kit| end_with_hanging_worker(kit));
    attack_with(suite, "faults::greetings_without_end", emulated(&[]), greetings_without_end);
    attack_with(suite, "faults::memory_that_is_cut_short", emulated(&[]), memory_cut_short);
    attack_with(suite, "faults::memory_that_changes_all_the_time", emulated(&[]), changing_memory);
    attack_with(suite, "faults::a_warm_worker_that_dies", emulated(&[]), warm_worker_dies);
    attack_with(
        suite,
        "faults::messages_that_a_guest_repeats",
        emulated(&["--log-level", "info"]),
        repeated_messages,
    );
    attack_with(suite, "faults::saving_with_sessions", emulated(&["--gpus", "0"]), saving_with_sessions);
    attack_with(
        suite,
        "faults::saving_that_loses_sessions",
        emulated(&["--lose-sessions", "--gpus", "0"]),
        saving_that_loses_sessions,
    );
    attack_with(suite, "faults::states_that_lie", emulated(&["--gpus", "0"]), states_that_lie);
    attack_with(suite, "faults::states_with_damage", emulated(&["--gpus", "0"]), states_with_damage);
    attack_with(suite, "faults::transfers_without_end", emulated(&["--gpus", "0"]), transfers_without_end);
    let few_files = DaemonOptions { open_files: Some(FEW_FILES), ..emulated(&["--max-sessions", "16"]) };
    attack_with(suite, "faults::descriptors_run_out", few_files, descriptors_run_out);
    suite.test("faults::options_that_do_not_fit", |kit: &Kit| options_that_do_not_fit(kit));
}

/// The processes of workers with that name.
pub fn workers_named(daemon: &Daemon, name: &str) -> Vec<u32> {
    let named =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    daemon.workers().into_iter().filter(named).collect()
}

/// A session whose worker will not end, and the machine that has it.
fn hanging(daemon: &Daemon) -> Result<(FakeFrontend, u64, HeldInExit)> {
    daemon.wait_until("the workers of earlier sessions have ended", PATIENCE, |daemon| {
        workers_named(daemon, SESSION).is_empty()
    })?;
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    let session = frontend.open_session()?;
    // It has its name once it has read its first frame.
    daemon.wait_until("the worker has a session", PATIENCE, |daemon| {
        !workers_named(daemon, SESSION).is_empty()
    })?;
    let held = HeldInExit::new(workers_named(daemon, SESSION)[0])?;
    Ok((frontend, session, held))
}

pub fn control(op: u32, session: u64, payload: &[u8]) -> Vec<u8> {
    let header = RequestHeader { op, session, payload_bytes: payload.len() as u32, ..Default::default() };
    [header.as_bytes(), payload].concat()
}

fn hello() -> Vec<u8> {
    control(OP_HELLO, 0, Hello { protocol_version: PROTOCOL_VERSION }.as_bytes())
}

/// Others get a session, and in time: `usual` is what it takes while nothing hangs, which depends on what else the machine does.
fn others_are_served(daemon: &Daemon, usual: Duration, when: &str) -> Result<()> {
    let taken = usual_time(daemon).with_context(|| format!("others, {when}"))?;
    ensure!(taken < STALL + 4 * usual, "others waited for {taken:?}, {when}, and for {usual:?} before");
    Ok(())
}

fn usual_time(daemon: &Daemon) -> Result<Duration> {
    let begun = Instant::now();
    FakeFrontend::behave(&daemon.socket())?;
    Ok(begun.elapsed())
}

/// CLOSE and HELLO wait: after them the guest would give memory back that the worker may write.
fn hanging_worker(target: &mut Target) -> Result<()> {
    let usual = usual_time(&target.daemon)?;
    let (mut frontend, session, held) = hanging(&target.daemon)?;
    frontend.submit(0, 1, &control(OP_CLOSE, session, &[]), 64)?;
    frontend.submit(0, 2, &hello(), 64)?;
    ensure!(frontend.reply(0, SOON)?.is_none(), "CLOSE or HELLO was answered");
    others_are_served(&target.daemon, usual, "while a worker hangs")?;
    drop(held);
    for _ in 0..2 {
        let reply = frontend.reply(0, PATIENCE)?.context("no answer after the worker has ended")?;
        ensure!(reply.status == REPLY_OK, "status {}", reply.status);
    }
    Ok(())
}

fn reset_with_hanging_worker(target: &mut Target) -> Result<()> {
    let usual = usual_time(&target.daemon)?;
    let (mut frontend, session, held) = hanging(&target.daemon)?;
    let begun = Instant::now();
    // The device may part with its front-end before that has its answer.
    let _ = frontend.reset();
    ensure!(begun.elapsed() < BOUND, "the reset took {:?}", begun.elapsed());
    target.daemon.wait_until("a device that was not reset ends", PATIENCE, |_| frontend.is_disconnected())?;
    others_are_served(&target.daemon, usual, "after the reset")?;

    // The same machine reconnects. Its driver must not get an answer after which it frees memory.
    let memory = frontend.memory.clone();
    drop(frontend);
    let mut again = FakeFrontend::connect_again(&target.daemon.socket(), memory)?;
    again.submit(0, 1, &hello(), 64)?;
    again.submit(0, 2, &control(OP_CLOSE, session, &[]), 64)?;
    ensure!(again.reply(0, SOON)?.is_none(), "HELLO or CLOSE was answered on the next connection");
    others_are_served(&target.daemon, usual, "while the machine waits")?;
    drop(held);
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.push(again.reply(0, PATIENCE)?.context("no answer after the worker has ended")?.status);
    }
    answers.sort_unstable();
    let mut expected = [REPLY_OK, REPLY_SESSION_LOST];
    expected.sort_unstable();
    ensure!(answers == expected, "{answers:?}");
    again.open_session().context("a session after all")?;
    ensure!(target.daemon.log().contains("cannot be reset"), "the log does not say so");
    Ok(())
}

/// SIGTERM ends the daemon; the next one on its socket waits for the worker.
fn end_with_hanging_worker(kit: &Kit) -> Result<()> {
    let options = DaemonOptions { device: "emulated".into(), ..Default::default() };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    let usual = usual_time(&daemon)?;
    let (frontend, _, held) = hanging(&daemon)?;
    let begun = Instant::now();
    daemon.stop()?;
    ensure!(begun.elapsed() < BOUND, "SIGTERM took {:?}", begun.elapsed());
    drop(frontend);
    daemon.start_again()?;
    daemon.wait_until("it says that it waits", PATIENCE, |daemon| {
        daemon.log().contains("waiting for the workers of an earlier daemon")
    })?;
    ensure!(!daemon.socket().exists(), "a daemon serves while a worker of the last one runs");
    drop(held);
    daemon.wait_until_listening()?;
    others_are_served(&daemon, usual, "by the next daemon")
}

/// HELLO after HELLO while a session is ending: each costs a place in a list, and no thread.
fn greetings_without_end(target: &mut Target) -> Result<()> {
    let usual = usual_time(&target.daemon)?;
    let (mut frontend, _, held) = hanging(&target.daemon)?;
    let threads =
        |daemon: &Daemon| fs::read_dir(format!("/proc/{}/task", daemon.pid())).map_or(0, Iterator::count);
    let before = threads(&target.daemon);
    frontend.submit(0, 1, &hello(), 64)?;
    // The same chain repeatedly, which no good driver sends; at most as many at once as the queue holds.
    let (from, to) = (frontend.readable(0, 2), frontend.writable(0, 2));
    frontend.memory.write_slice(&hello(), GuestAddress(from))?;
    let chain = [
        Descriptor { addr: from, len: hello().len() as u32, ..Default::default() },
        Descriptor { addr: to, len: 64, flags: WRITE, next: 0 },
    ];
    let mut refused = 0;
    let until = Instant::now() + PATIENCE;
    while refused <= 1000 && Instant::now() < until {
        for _ in 0..SLOTS - 4 {
            frontend.offer_chain(0, 2, &chain)?;
        }
        thread::sleep(Duration::from_millis(20));
        while let Some(reply) = frontend.reply(0, Duration::ZERO)? {
            refused += u32::from(reply.status == REPLY_NO_RESOURCES);
        }
    }
    ensure!(refused > 1000, "only {refused} greetings were refused");
    let after = threads(&target.daemon);
    // One may end the session, and others start a worker. Far more greetings wait.
    ensure!(after <= before + 4, "{after} threads, {before} before");
    others_are_served(&target.daemon, usual, "in a flood of greetings")?;
    drop(held);
    // All that wait are answered, in any order.
    ensure!(frontend.reply(0, PATIENCE)?.is_some(), "no greeting was answered");
    Ok(())
}

/// A front-end takes its memory away: it is parted with, and its neighbour notices nothing.
fn memory_cut_short(target: &mut Target) -> Result<()> {
    let mut neighbour = target.connect()?;
    let session = neighbour.open_session()?;
    let mut frontend = target.connect()?;
    frontend.open_session()?;
    let mappings = |daemon: &Daemon| {
        fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).map_or(0, |maps| maps.lines().count())
    };
    let before = mappings(&target.daemon);
    // The first slots stay. The rest of a chain lies in memory that no longer exists.
    let kept = 64 << 20;
    frontend.truncate_memory(kept)?;
    let lost = vhost_cuda_tests::frontend::LOW + kept;
    for slot in 0..60 {
        let at = lost + u64::from(slot) * 4 * 8192;
        let chain: Vec<_> =
            (0..4).map(|page| Descriptor { addr: at + page * 8192, len: 64, ..Default::default() }).collect();
        frontend.offer_chain(0, slot, &chain)?;
    }
    target.daemon.wait_until("the front-end is dropped", PATIENCE, |_| frontend.is_disconnected())?;
    let after = mappings(&target.daemon);
    ensure!(after < before + 50, "{after} mappings, {before} before");
    let parts =
        CallParts::new(Opcode::session_hello, &virtio_cuda_protocol::cuda::CALL_TABLE_VERSION.to_le_bytes());
    ensure!(neighbour.call(session, &parts)?.result == 0, "the neighbour's session");
    ensure!(target.daemon.log().contains("cut short"), "the log does not say so");
    Ok(())
}

/// Tables of memory that come while sessions open, and while one does not read: the worker has the last one.
fn changing_memory(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "HELLO");
    let files = target.daemon.open_files();
    for _ in 0..5 {
        let open = Open { pid: 1, uid: 1, charged_uid: 1, name: [b'x'; 16] };
        frontend.submit(0, 3, &control(OP_OPEN, 0, open.as_bytes()), 64)?;
        let deadline = Instant::now() + PATIENCE;
        let reply = loop {
            frontend.show_memory_again()?;
            if let Some(reply) = frontend.reply(0, Duration::ZERO)? {
                break reply;
            }
            ensure!(Instant::now() < deadline, "no session");
        };
        ensure!(reply.status == REPLY_OK, "status {}", reply.status);
        let session = u64::from_le_bytes(*reply.payload.first_chunk().context("a short reply")?);
        for _ in 0..100 {
            frontend.show_memory_again()?;
        }
        let parts = CallParts::new(
            Opcode::session_hello,
            &virtio_cuda_protocol::cuda::CALL_TABLE_VERSION.to_le_bytes(),
        );
        ensure!(frontend.call(session, &parts)?.result == 0, "a call");
        ensure!(frontend.close(session)?.status == REPLY_OK, "CLOSE");
    }
    target
        .daemon
        .wait_until("descriptors of tables are closed", PATIENCE, |daemon| daemon.open_files() <= files + 16)
}

fn warm_worker_dies(target: &mut Target) -> Result<()> {
    let warm = |daemon: &Daemon| workers_named(daemon, WARM);
    target.daemon.wait_until("a worker is warm", PATIENCE, |daemon| !warm(daemon).is_empty())?;
    thread::sleep(Duration::from_millis(2100));
    for round in 0..3 {
        let first = warm(&target.daemon)[0];
        // SAFETY: a plain system call; the process is a worker of this test's daemon.
        unsafe { libc::kill(first as libc::pid_t, libc::SIGKILL) };
        target.daemon.wait_until("another worker is warm", PATIENCE, |daemon| {
            warm(daemon).iter().any(|&pid| pid != first)
        })?;
        let zombie = fs::metadata(format!("/proc/{first}")).is_ok();
        ensure!(!zombie, "round {round}: the dead worker was not reaped");
    }
    Ok(())
}

/// A guest's sessions, broken lanes and reconnections lead to a log of bounded size.
fn repeated_messages(target: &mut Target) -> Result<()> {
    FakeFrontend::behave(&target.daemon.socket())?;
    let rounds = |target: &mut Target, count: usize| -> Result<usize> {
        for _ in 0..count {
            crate::lanes::corrupt_once(target)?;
            let mut frontend = target.connect()?;
            let session = frontend.open_session()?;
            frontend.exchange(&[0xff; 40], 64)?;
            frontend.close(session)?;
        }
        Ok(target.daemon.log().len())
    };
    let first = rounds(target, 40)?;
    let begin = Instant::now();
    let second = rounds(target, 40)?;
    // A message has its limit for each 10 s.
    let allowed = (4 << 10) * (1 + begin.elapsed().as_secs() as usize / 10);
    ensure!(first < 32 << 10, "{first} bytes after 40 rounds");
    ensure!(second - first < allowed, "{} bytes more after another 40 rounds", second - first);
    ensure!(!target.daemon.log().contains("corrupt"), "{}", target.daemon.log());
    Ok(())
}

/// Sessions and connections are refused before descriptors run out, and served again when there are some.
fn descriptors_run_out(target: &mut Target) -> Result<()> {
    let mut machines = Vec::new();
    let mut refused = 0;
    for _ in 0..10 {
        let Ok(mut frontend) = target.connect() else {
            refused += 1;
            continue;
        };
        for _ in 0..16 {
            let reply = if machines.is_empty() { frontend.open()? } else { break };
            ensure!([REPLY_OK, REPLY_NO_RESOURCES].contains(&reply.status), "status {}", reply.status);
        }
        machines.push(frontend);
    }
    ensure!(refused > 0 && !machines.is_empty(), "{refused} refused, {} served", machines.len());
    let files = target.daemon.open_files();
    ensure!((files as u64) < FEW_FILES, "{files} files of {FEW_FILES}");
    let lines = target.daemon.log().lines().filter(|line| line.contains("ERROR")).count();
    ensure!(lines < 8, "{lines} errors in the log");
    drop(machines);
    target.daemon.wait_until("descriptors have come back", PATIENCE, |daemon| {
        FakeFrontend::connect(&daemon.socket()).is_ok() && daemon.workers().len() <= 2
    })
}

fn options_that_do_not_fit(kit: &Kit) -> Result<()> {
    let options = DaemonOptions {
        device: "emulated".into(),
        arguments: vec!["--max-sessions".into(), "1024".into()],
        open_files: Some(1024),
        ..Default::default()
    };
    let error = Daemon::start(&kit.stack, &options).err().context("it starts")?.to_string();
    ensure!(error.contains("--max-sessions 1024") && error.contains("the limit is 1024"), "{error}");
    Ok(())
}

/// A snapshot would lose the sessions of running programs.
/// A session with memory that another process may open, which does not go along.
fn offering(frontend: &mut FakeFrontend) -> Result<u64> {
    let session = with_memory(frontend)?;
    let event = [EVENT.to_le_bytes().as_slice(), &6_u32.to_le_bytes()].concat();
    let calls = [(Opcode::cuEventCreate, &event[..]), (Opcode::cuIpcGetEventHandle, &EVENT.to_le_bytes())];
    for (opcode, arguments) in calls {
        let answer = frontend.call(session, &CallParts::new(opcode, arguments).context(CONTEXT))?;
        ensure!(answer.result == 0, "{opcode:?} answered {}", answer.result);
    }
    Ok(session)
}

/// A session with device memory.
fn with_memory(frontend: &mut FakeFrontend) -> Result<u64> {
    let session = frontend.open_session()?;
    let retain = [0_u32.to_le_bytes().as_slice(), &CONTEXT.to_le_bytes()].concat();
    let calls = [
        CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes()),
        CallParts::new(Opcode::cuDevicePrimaryCtxRetain, &retain),
        CallParts::new(Opcode::cuMemAlloc_v2, &4096_u64.to_le_bytes()).context(CONTEXT),
    ];
    for call in calls {
        let answer = frontend.call(session, &call)?;
        ensure!(answer.result == 0, "call {:#x} answered {}", call.opcode, answer.result);
    }
    Ok(session)
}

fn saving_with_sessions(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = with_memory(&mut frontend)?;
    let with_session = frontend.save()?;
    ensure!(frontend.call(session, &allocation())?.result == 0, "the session does not go on");
    let closed = frontend.close(session)?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {} after saving", closed.status);
    frontend.load(&with_session)?;
    ensure!(frontend.call(session, &allocation())?.result == 0, "the loaded session does not go on");
    let closed = frontend.close(session)?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {} after loading", closed.status);

    let session = offering(&mut frontend)?;
    ensure!(frontend.save().is_err(), "a session was saved that cannot go along");
    target.daemon.wait_until("the reason is in the log", PATIENCE, |daemon| {
        daemon.log().contains("(fake-frontend 4711) cannot go along: ")
    })?;
    let closed = frontend.close(session)?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {} after the refusal", closed.status);
    ensure!(!frontend.save()?.is_empty(), "nothing was saved");
    Ok(())
}

fn saving_that_loses_sessions(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let lost = offering(&mut frontend)?;
    let opened = frontend.open()?;
    let kept = Opened::read_from_bytes(&opened.payload[..]).ok().context("no second session")?.session;
    let state = frontend.save()?;
    for session in [lost, kept] {
        let closed = frontend.close(session)?;
        ensure!(closed.status == REPLY_OK, "close was answered with status {} after saving", closed.status);
    }
    frontend.load(&state)?;
    let closed = [lost, kept].map(|session| frontend.close(session).map(|reply| reply.status));
    let closed = closed.into_iter().collect::<Result<Vec<_>>>()?;
    ensure!(closed == [REPLY_SESSION_LOST, REPLY_OK], "close was answered with {closed:?} after loading");
    Ok(())
}

fn allocation() -> CallParts {
    CallParts::new(Opcode::cuMemAlloc_v2, &4096_u64.to_le_bytes()).context(CONTEXT)
}

/// Changes some part of a state, whose digest is right again, or cuts it.
fn changed(state: &[u8], random: &mut fastrand::Rng) -> Result<Vec<u8>> {
    let (head, mut from) = state.split_at(12);
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    while let Ok(kind) = parts::read(&mut from, &mut part) {
        parts.push((kind, part.clone()));
    }
    let mut changed = head.to_vec();
    for _ in 0..random.u32(1..4) {
        let at = random.usize(..parts.len());
        let (kind, part) = &mut parts[at];
        match random.u32(..6) {
            0 => drop(parts.remove(at)),
            1 => *kind = random.u16(..64),
            2 => part.truncate(random.usize(..=part.len())),
            3 => {
                let copy = parts[random.usize(..parts.len())].clone();
                parts.insert(at, copy);
            }
            _ if part.is_empty() => {}
            _ => {
                let place = random.usize(..part.len());
                part[place] = random.u8(..);
            }
        }
    }
    for (kind, part) in &parts {
        parts::write(&mut changed, *kind, &[part])?;
    }
    if random.u32(..8) == 0 {
        changed.truncate(random.usize(..changed.len()));
    }
    Ok(changed)
}

/// Whatever a state says, the daemon refuses it or has a session, and serves others.
fn states_that_lie(target: &mut Target) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(effort::seed()?.unwrap_or(55));
    let mut frontend = target.connect()?;
    let session = with_memory(&mut frontend)?;
    let state = frontend.save()?;
    let usual = usual_time(&target.daemon)?;
    let mut loaded = 0;
    for round in 0..effort::rounds(LIES)? {
        loaded += u32::from(frontend.load(&changed(&state, &mut random)?).is_ok());
        if round % 8 == 0 {
            others_are_served(&target.daemon, usual, "after a state that lies")?;
        }
        if frontend.is_disconnected() {
            frontend = target.connect()?;
        }
    }
    frontend.load(&state).with_context(|| format!("after {loaded} others"))?;
    let closed = frontend.close(session)?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {} in the end", closed.status);
    Ok(())
}

/// A state that is cut between two parts, or has one wrong bit, is refused as a whole.
fn states_with_damage(target: &mut Target) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(effort::seed()?.unwrap_or(55));
    let mut frontend = target.connect()?;
    let session = with_memory(&mut frontend)?;
    let state = frontend.save()?;
    let (_, mut from) = state.split_at(12);
    let (mut damaged, mut part) = (vec![state[..12].to_vec()], Vec::new());
    while parts::read(&mut from, &mut part).is_ok() && !from.is_empty() {
        damaged.push(state[..state.len() - from.len()].to_vec());
    }
    let cuts = damaged.len();
    ensure!(cuts > 5, "the state has {cuts} parts: the test shows nothing");
    for _ in 0..effort::rounds(WRONG_BITS)? {
        let mut copy = state.clone();
        copy[random.usize(..state.len())] ^= 1 << random.u32(..8);
        damaged.push(copy);
    }
    for (number, state) in damaged.iter().enumerate() {
        let begun = Instant::now();
        ensure!(frontend.load(state).is_err(), "state {number} was loaded, of which {cuts} are cut");
        ensure!(begun.elapsed() < BOUND, "state {number} was refused after {:?}", begun.elapsed());
    }
    let nothing = |daemon: &Daemon| workers_named(daemon, SESSION).is_empty();
    target.daemon.wait_until("no session is left", PATIENCE, nothing)?;
    frontend.load(&state)?;
    let closed = frontend.close(session)?;
    ensure!(closed.status == REPLY_OK, "close was answered with status {} in the end", closed.status);
    Ok(())
}

/// The pipes of a front-end that has gone may be held open by others. Its sessions end, and so do its transfers, of which there is one.
fn transfers_without_end(target: &mut Target) -> Result<()> {
    FakeFrontend::behave(&target.daemon.socket())?;
    target
        .daemon
        .wait_until("one worker is warm", PATIENCE, |daemon| !workers_named(daemon, WARM).is_empty())?;
    thread::sleep(SOON);
    let files = target.daemon.open_files();
    let mut frontend = target.connect()?;
    with_memory(&mut frontend)?;
    let _held = frontend.begin_to_load()?;
    ensure!(frontend.begin_to_load().is_err(), "two transfers at once");
    drop(frontend);
    target.daemon.wait_until("nothing is left", PATIENCE, |daemon| {
        workers_named(daemon, SESSION).is_empty() && daemon.open_files() <= files
    })
}
