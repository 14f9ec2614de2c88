// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A worker that a guest has taken over, against the daemon: it does what it likes with its sockets. A session still ends
//! when it is closed, and everything of it is given back. `programs/worker.c` is the worker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use vhost_cuda_common::link;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend};
use vhost_cuda_tests::stack::Stack;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_protocol::transport::{
    OP_CALL, OP_OPEN, Open, PROTOCOL_VERSION, REPLY_NO_RESOURCES, REPLY_OK, RequestHeader,
};
use zerocopy::IntoBytes;

use crate::tail;

/// The time limit for an answer to the driver, independent of the worker: half a second of grace, and a margin for a
/// busy machine.
const PROMPT: Duration = Duration::from_secs(5);
/// Requests that a hostile worker gets.
const REQUESTS: u16 = 7;
const LONG: Duration = Duration::from_secs(20);
/// The time after which an unwanted answer would have come.
const SOON: Duration = Duration::from_secs(1);

pub fn collect(suite: &mut Suite) {
    for attack in [
        "keep_sockets",
        "give_sockets_away",
        "die_and_leave_sockets",
        "half_an_answer",
        "oversized_answer",
        "answer_unread",
        "answer_twice",
        "greet_again",
        "read_nothing",
        "flood",
    ] {
        suite.test(format!("worker::{attack}"), move |kit: &Kit| attacked(&kit.stack, attack, ends_in_time));
    }
    suite.test("worker::never_ready", |kit: &Kit| attacked(&kit.stack, "never_ready", starts_for_long));
    for attack in ["die_at_once", "fail_at_length"] {
        suite
            .test(format!("worker::{attack}"), move |kit: &Kit| attacked(&kit.stack, attack, fails_to_start));
    }
    let name = "worker::programs_that_are_killed_while_workers_start";
    suite.test(name, |kit: &Kit| attacked(&kit.stack, "never_ready", killed_programs));
    suite.test("worker::unread_requests", |kit: &Kit| {
        attacked(&kit.stack, "answer_and_not_read", unread_requests)
    });
}

/// Runs `body` against a daemon whose workers are all hostile; afterwards it ends as asked.
fn attacked(stack: &Stack, attack: &str, body: fn(&mut Daemon) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = compile(attack, folder.path())?;
    let device = library.to_str().context("a path that is no text")?.to_owned();
    let mut daemon = Daemon::start(stack, &DaemonOptions { device, ..Default::default() })?;
    let result = body(&mut daemon).and_then(|()| {
        ensure!(daemon.is_running(), "The daemon has ended");
        let begun = Instant::now();
        daemon.stop()?;
        ensure!(begun.elapsed() < PROMPT, "SIGTERM took {:?}", begun.elapsed());
        Ok(())
    });
    result.map_err(|error| anyhow!("{error:#}\n--- daemon\n{}", tail(&daemon.log())))
}

/// The library in whose constructor the worker is taken over.
fn compile(attack: &str, folder: &Path) -> Result<PathBuf> {
    let (code, library) = (folder.join("worker.c"), folder.join("libcuda.so.1"));
    fs::write(&code, include_str!("programs/worker.c"))?;
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&code)
        .arg(format!("-DATTACK={attack}"))
        .arg(format!("-DLINK_VERSION={}", link::VERSION));
    let output = command.output().context("Cannot run cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(library)
}

/// CLOSE, HELLO and the loss of the front-end end sessions promptly and leave nothing.
fn ends_in_time(daemon: &mut Daemon) -> Result<()> {
    let socket = daemon.socket();
    // One round first, because the daemon keeps the resources that it has from then on.
    session_of(&mut FakeFrontend::connect(&socket)?)?;
    settle(daemon)?;
    let before = Census::of(daemon);

    let mut frontend = FakeFrontend::connect(&socket)?;
    for round in 0..3 {
        let session = session_of(&mut frontend)?;
        provoke(&mut frontend, session)?;
        let begun = Instant::now();
        // A session that the worker has ended meanwhile is closed as one that is lost.
        frontend.close(session)?;
        ensure!(begun.elapsed() < PROMPT, "round {round}: CLOSE took {:?}", begun.elapsed());
        all_are_answered(&mut frontend)?;
    }
    for round in 0..3 {
        let session = session_of(&mut frontend)?;
        provoke(&mut frontend, session)?;
        let begun = Instant::now();
        ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "round {round}: no HELLO");
        ensure!(begun.elapsed() < PROMPT, "round {round}: HELLO took {:?}", begun.elapsed());
        all_are_answered(&mut frontend)?;
    }
    let session = session_of(&mut frontend)?;
    provoke(&mut frontend, session)?;
    let begun = Instant::now();
    frontend.reset().context("a reset")?;
    ensure!(begun.elapsed() < PROMPT, "the reset took {:?}", begun.elapsed());
    drop(frontend);
    for _ in 0..3 {
        let mut frontend = FakeFrontend::connect(&socket)?;
        let session = session_of(&mut frontend)?;
        provoke(&mut frontend, session)?;
    }
    settle(daemon)?;
    daemon
        .wait_until("the daemon has what it had", LONG, |daemon| Census::of(daemon).fits(&before))
        .with_context(|| format!("{:?}, before {before:?}", Census::of(daemon)))
}

/// Opens a session. The worker may end it immediately: it is opened nevertheless.
fn session_of(frontend: &mut FakeFrontend) -> Result<u64> {
    frontend.open_session().context("a session of a hostile worker")
}

/// Sends a few requests for the worker, without waiting for answers.
fn provoke(frontend: &mut FakeFrontend, session: u64) -> Result<()> {
    let parts = CallParts::new(Opcode::session_hello, &[0; 4]);
    let payload = parts.payload(&parts.header());
    let header =
        RequestHeader { op: OP_CALL, session, payload_bytes: payload.len() as u32, ..Default::default() };
    let bytes = [header.as_bytes(), &payload].concat();
    for slot in 0..REQUESTS {
        frontend.submit(1, slot, &bytes, 4096)?;
    }
    // Time for the worker to do its worst.
    thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// The outstanding requests of a session that has ended are answered.
fn all_are_answered(frontend: &mut FakeFrontend) -> Result<()> {
    for number in 0..REQUESTS {
        frontend.reply(1, PROMPT)?.with_context(|| format!("request {number} is not answered"))?;
    }
    Ok(())
}

/// The processes and descriptors of a daemon.
#[derive(Debug)]
struct Census {
    threads: usize,
    files: usize,
}

impl Census {
    fn of(daemon: &Daemon) -> Self {
        let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).map_or(0, Iterator::count);
        Self { threads, files: daemon.open_files() }
    }

    /// Sessions have threads and descriptors by the handful; a warm worker may be starting.
    fn fits(&self, before: &Self) -> bool {
        self.threads <= before.threads + 1 && self.files <= before.files + 8
    }
}

/// Waits until no session is left.
fn settle(daemon: &Daemon) -> Result<()> {
    daemon.wait_until("workers without a session have ended", LONG, |daemon| daemon.workers().len() <= 2)
}

/// A worker that never finishes its start gets a minute, which the test does not wait for. A machine that leaves ends it.
fn starts_for_long(daemon: &mut Daemon) -> Result<()> {
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "no HELLO");
    ensure!(open_within(&mut frontend, SOON)?.is_none(), "OPEN was answered without a worker");
    drop(frontend);
    nothing_is_left(daemon)
}

/// Sessions are refused and not waited for without end, and workers not started without end.
fn fails_to_start(daemon: &mut Daemon) -> Result<()> {
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "no HELLO");
    for _ in 0..4 {
        let status = open_within(&mut frontend, LONG)?.context("OPEN is not answered")?;
        ensure!(status == REPLY_NO_RESOURCES, "OPEN was answered with {status}");
    }
    drop(frontend);
    nothing_is_left(daemon)
}

fn nothing_is_left(daemon: &Daemon) -> Result<()> {
    let bytes = daemon.log().len();
    ensure!(bytes < 32 << 10, "a log of {bytes} bytes");
    daemon.wait_until("nobody's worker has ended", LONG, |daemon| daemon.workers().len() <= 1)
}

/// The status of an OPEN, if it is answered.
fn open_within(frontend: &mut FakeFrontend, limit: Duration) -> Result<Option<u32>> {
    submit_open(frontend)?;
    Ok(frontend.reply(0, limit)?.map(|reply| reply.status))
}

fn submit_open(frontend: &mut FakeFrontend) -> Result<()> {
    let open = Open { pid: 1, uid: 1, charged_uid: 1, name: [b'x'; 16] };
    let header = RequestHeader { op: OP_OPEN, payload_bytes: size_of::<Open>() as u32, ..Default::default() };
    frontend.submit(0, 0, &[header.as_bytes(), open.as_bytes()].concat(), 4096)
}

/// Programs that end while their sessions wait for workers leave no workers starting.
fn killed_programs(daemon: &mut Daemon) -> Result<()> {
    let mut machines = Vec::new();
    for _ in 0..20 {
        let mut frontend = FakeFrontend::connect(&daemon.socket())?;
        submit_open(&mut frontend)?;
        machines.push(frontend);
    }
    daemon.wait_until("a worker starts for each", LONG, |daemon| daemon.workers().len() >= 20)?;
    drop(machines);
    daemon.wait_until("no more than the warm one is left", LONG, |daemon| daemon.workers().len() <= 1)
}

/// A worker that answers and never reads does not make the daemon store the requests.
fn unread_requests(daemon: &mut Daemon) -> Result<()> {
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    let resident = |daemon: &Daemon| -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    session_of(&mut frontend)?;
    let before = resident(daemon)?;
    let payload = vec![0; 60 << 10];
    for _ in 0..4 {
        let session = session_of(&mut frontend)?;
        for _ in 0..10 {
            for slot in 1..60 {
                let header = RequestHeader {
                    op: OP_CALL,
                    session,
                    payload_bytes: payload.len() as u32,
                    ..Default::default()
                };
                frontend.submit(1, slot, &[header.as_bytes(), &payload].concat(), 4096)?;
            }
            for _ in 1..60 {
                frontend.reply(1, PROMPT)?.context("a request was not answered")?;
            }
        }
    }
    let grown = resident(daemon)?.saturating_sub(before);
    ensure!(grown < 32 << 10, "the daemon has grown by {grown} KiB");
    Ok(())
}
