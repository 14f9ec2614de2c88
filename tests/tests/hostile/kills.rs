// SPDX-License-Identifier: Apache-2.0 OR MIT

//! In each round a process is killed at a random moment: a program, its worker, a warm worker or the daemon. Nothing
//! is leaked, no request is answered twice, and neighbours are hardly affected. On a GPU, no other program may use
//! it.
//!
//! `cargo xtask test` has options for the number of rounds, and for the seed of what happens in them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend, PATIENCE, parse_result};
use vhost_cuda_tests::running::{Ended, Outcome, Running};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};
use virtio_cuda_protocol::transport::{OP_CALL, REPLY_OK, RequestHeader};
use zerocopy::IntoBytes;

use crate::calls::{Session, in_context};
use crate::faults::STALL;

const USUAL_ROUNDS: u64 = 30;
/// Bytes of room for the answer of a neighbour's call, and how long to wait for it at a time.
const ROOM: u32 = 4096;
const LOOK: Duration = Duration::from_millis(100);
/// Calls of a neighbour before anything is killed.
const USUAL_CALLS: usize = 20;
/// A program that has lost its device ends in this time.
const LOSS: Duration = Duration::from_secs(20);
/// The maximum time in microseconds between a program's first copy and the kill.
const MAX_DELAY: u64 = 60_000;
/// Sessions of the neighbour, and a warm worker.
const WORKERS: usize = 2;
/// Descriptors of the daemon that come and go: those of a worker that starts, of a connection that ends.
const SPARE_FILES: usize = 12;
/// Growth of the daemon over all rounds with one daemon, in KiB.
const GROWTH: u64 = 24 << 10;
/// Device memory that a GPU's driver may retain, in bytes. A leaked context has several times as much.
const KEPT_BY_DRIVER: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Program,
    Worker,
    WarmWorker,
    Daemon,
}

/// The resources of a daemon while only the neighbour runs.
struct Baseline {
    files: usize,
    shared: usize,
    resident: u64,
    free: u64,
}

pub fn collect(suite: &mut Suite) {
    suite.test_alone_on_gpu("kills::at_random_moments", kills_at_random_moments);
}

fn kills_at_random_moments(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(USUAL_ROUNDS)?, effort::seed()?.unwrap_or(19));
    let mut random = fastrand::Rng::with_seed(seed);
    let program = kit.programs.get("copy_until_error")?;
    let options = DaemonOptions {
        arguments: ["--log-level", "info"].map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    let mut route = Route::through(&kit.stack, Daemon::start(&kit.stack, &options)?);
    let mut baseline = None;
    let (mut counts, mut worst) = ([0_u64; 4], Duration::ZERO);
    for round in 0..rounds {
        let victim = match random.u32(..10) {
            0..3 => Victim::Program,
            3..6 => Victim::Worker,
            6..8 => Victim::WarmWorker,
            _ => Victim::Daemon,
        };
        let delay = Duration::from_micros(random.u64(..MAX_DELAY));
        let work: &[&str] = if random.bool() { &["1000000"] } else { &["4194304", "managed"] };
        let result = one_round(&mut route, &program, work, victim, delay, &mut baseline);
        let slowest = result.with_context(|| {
            let log = route.daemon.as_ref().map(Daemon::log).unwrap_or_default();
            format!(
                "round {round} of seed {seed}: {victim:?} after {delay:?} of {work:?}\n{}",
                crate::tail(&log)
            )
        })?;
        worst = worst.max(slowest);
        counts[victim as usize] += 1;
    }
    let [programs, workers, warm, daemons] = counts;
    eprintln!(
        "kills: {rounds} rounds of seed {seed}: {programs} programs, {workers} workers, {warm} warm workers, {daemons} \
         daemons; a neighbour waited for {worst:?} at most"
    );
    Ok(())
}

/// Returns the longest time that a neighbour waited for an answer.
fn one_round(
    route: &mut Route,
    program: &Path,
    work: &[&str],
    victim: Victim,
    delay: Duration,
    baseline: &mut Option<Baseline>,
) -> Result<Duration> {
    let daemon = route.daemon.as_ref().context("no daemon")?;
    let mut neighbour = Neighbour::open(daemon)?;
    settle(daemon, WORKERS)?;
    let (before, neighbours) = (daemon.workers(), in_session(daemon));
    let expected = match baseline {
        Some(baseline) => baseline,
        None => baseline.insert(Baseline::of(daemon, &mut neighbour)?),
    };
    let usual = neighbour.slowest(USUAL_CALLS)?;
    let running = Running::start(route.command(program).args(work), "")?;
    running.wait_for_stdout("copying", PATIENCE)?;
    let all = daemon.workers();
    let stop = AtomicBool::new(false);
    let (ended, slowest) = thread::scope(|scope| {
        let waiting = scope.spawn(|| neighbour.work(&stop));
        thread::sleep(delay);
        let ended = strike(victim, daemon, running, [&before, &neighbours]);
        // The neighbour continues during the cleanup.
        if victim != Victim::Daemon && ended.is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        (ended, waiting.join())
    });
    let (mut neighbour, slowest) = slowest.map_err(|_| anyhow::anyhow!("the neighbour panicked"))?;
    let ended = ended?;
    let right = match victim {
        Victim::Program => [Ended::Signal(libc::SIGKILL)].contains(&ended.ended),
        _ => ended.ended == Ended::Exit(3) && !ended.stdout.contains("then 0"),
    };
    ensure!(right, "the program ended otherwise\n{ended}");
    let slowest = if victim == Victim::Daemon {
        for worker in &all {
            let ended = || !Path::new(&format!("/proc/{worker}/exe")).exists();
            let deadline = Instant::now() + PATIENCE;
            while fs::read_link(format!("/proc/{worker}/exe")).is_ok() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            ensure!(ended(), "worker {worker} outlives its daemon");
        }
        drop(neighbour);
        *baseline = None;
        let daemon = route.daemon.as_mut().context("no daemon")?;
        daemon.restart()?;
        let begun = Instant::now();
        FakeFrontend::behave(&daemon.socket()).context("the next daemon does not serve")?;
        begun.elapsed()
    } else {
        let slowest = slowest?;
        settle(daemon, WORKERS)?;
        expected.check(daemon, &mut neighbour)?;
        neighbour.close()?;
        slowest
    };
    // A machine that is busy with other things is slower.
    let allowed = STALL + 10 * usual;
    ensure!(
        slowest < allowed || victim == Victim::Daemon,
        "a neighbour waited for {slowest:?}, and not {allowed:?}"
    );
    Ok(if victim == Victim::Daemon { Duration::ZERO } else { slowest })
}

/// Kills the victim; how the program ended.
fn strike(
    victim: Victim,
    daemon: &Daemon,
    running: Running,
    [before, neighbours]: [&[u32]; 2],
) -> Result<Outcome> {
    let new: Vec<u32> = daemon.workers().into_iter().filter(|pid| !before.contains(pid)).collect();
    match victim {
        Victim::Program => running.signal(libc::SIGKILL),
        Victim::Daemon => kill(daemon.pid()),
        Victim::Worker => kill(worker_of_program(daemon, neighbours)?),
        Victim::WarmWorker => {
            if let Some(&pid) = new.first() {
                kill(pid);
            }
            // The program does not notice. Then its own worker is killed, so that it ends.
            thread::sleep(Duration::from_millis(5));
            kill(worker_of_program(daemon, neighbours)?);
        }
    }
    running.finish(LOSS)
}

/// The worker that has got a session since.
fn worker_of_program(daemon: &Daemon, neighbours: &[u32]) -> Result<u32> {
    let new = in_session(daemon).into_iter().find(|pid| !neighbours.contains(pid));
    new.with_context(|| format!("no worker has the program's session; neighbours have {neighbours:?}"))
}

/// The workers that have a session.
pub fn in_session(daemon: &Daemon) -> Vec<u32> {
    let has_session = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cuda-session")
    };
    daemon.workers().into_iter().filter(has_session).collect()
}

fn kill(pid: u32) {
    // SAFETY: a plain system call; the process is the daemon's or this one's child, and is not reaped by others meanwhile.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

/// Waits until there are as many workers, and none that starts.
pub fn settle(daemon: &Daemon, workers: usize) -> Result<()> {
    daemon.wait_until("workers settle", PATIENCE, |daemon| {
        let starts = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| !["cuda-session", "cuda-warm"].contains(&name.trim()))
        };
        let running = daemon.workers();
        running.len() == workers && !running.iter().any(starts)
    })
}

impl Baseline {
    fn of(daemon: &Daemon, neighbour: &mut Neighbour) -> Result<Self> {
        let free = free_memory(&mut neighbour.session)?;
        Ok(Self {
            files: daemon.open_files(),
            shared: shared_memory(),
            resident: resident(daemon.pid()),
            free,
        })
    }

    fn check(&self, daemon: &Daemon, neighbour: &mut Neighbour) -> Result<()> {
        wait_for_memory(&mut neighbour.session, self.free)?;
        daemon.wait_until("the daemon's descriptors go", PATIENCE, |daemon| {
            daemon.open_files() <= self.files + SPARE_FILES
        })?;
        let shared = shared_memory();
        ensure!(shared <= self.shared, "{shared} files of shared memory, {} at first", self.shared);
        let resident = resident(daemon.pid());
        ensure!(
            resident <= self.resident + GROWTH,
            "the daemon has {resident} KiB, {} at first",
            self.resident
        );
        Ok(())
    }
}

/// Files of shared memory that this project's processes have named.
fn shared_memory() -> usize {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains("cuda")).count()
}

/// KiB of a process's own memory that is in use.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the free bytes of the device's memory.
pub fn free_memory(session: &mut Session) -> Result<u64> {
    let answer = session.expect(&in_context(Opcode::cuMemGetInfo_v2, &[]), &[0])?;
    Ok(u64::from_le_bytes(*answer.results.first_chunk().context("the free bytes")?))
}

/// Waits until as much of the device's memory is free as before.
pub fn wait_for_memory(session: &mut Session, before: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let free = free_memory(session)?;
        if free + KEPT_BY_DRIVER >= before {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} MiB of device memory are not free again (does anything else use the GPU?)",
            (before - free) >> 20
        );
        thread::sleep(LOOK);
    }
}

/// A machine that calls all the time.
struct Neighbour {
    session: Session,
}

impl Neighbour {
    fn open(daemon: &Daemon) -> Result<Self> {
        let mut frontend = FakeFrontend::connect(&daemon.socket())?;
        let id = frontend.open_session()?;
        let mut neighbour = Self { session: Session::on(frontend, id)? };
        neighbour.call()?;
        Ok(neighbour)
    }

    fn call(&mut self) -> Result<()> {
        let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
        let payload = hello.payload(&hello.header());
        let Session { frontend, id, .. } = &mut self.session;
        let payload_bytes = payload.len() as u32;
        let header = RequestHeader { op: OP_CALL, session: *id, payload_bytes, ..Default::default() };
        frontend.submit(0, 0, &[header.as_bytes(), &payload].concat(), ROOM)?;
        let deadline = Instant::now() + PATIENCE;
        let reply = loop {
            if let Some(reply) = frontend.reply(0, LOOK)? {
                break reply;
            }
            ensure!(!frontend.is_disconnected(), "a neighbour has lost its device");
            ensure!(Instant::now() < deadline, "a neighbour's call was not answered");
        };
        ensure!(reply.status == REPLY_OK, "a neighbour's call was answered with {}", reply.status);
        ensure!(parse_result(&reply.payload)?.result == 0, "a neighbour's call failed");
        Ok(())
    }

    /// The maximum time of so many answers.
    fn slowest(&mut self, calls: usize) -> Result<Duration> {
        (0..calls).try_fold(Duration::ZERO, |slowest, _| {
            let begun = Instant::now();
            self.call()?;
            Ok(slowest.max(begun.elapsed()))
        })
    }

    /// Makes calls until it is stopped. Returns the maximum time of an answer.
    fn work(mut self, stop: &AtomicBool) -> (Self, Result<Duration>) {
        let mut slowest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            if let Err(error) = self.call() {
                return (self, Err(error));
            }
            slowest = slowest.max(begun.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        (self, Ok(slowest))
    }

    fn close(mut self) -> Result<()> {
        let Session { frontend, id, .. } = &mut self.session;
        ensure!(frontend.reply(0, Duration::ZERO)?.is_none(), "a request was answered twice");
        frontend.close(*id).map(drop)
    }
}
