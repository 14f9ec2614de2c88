// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The daemon runs out of address space or threads, or a worker runs out of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend, PATIENCE};
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, CallHeader, Opcode};
use virtio_cuda_protocol::transport::{PROTOCOL_VERSION, REPLY_OK, REPLY_SESSION_LOST};

use super::{limit, quiet, says_hello, starved, threads};
use crate::kills::in_session;
use crate::{Target, attack, attack_with};

/// The rest of the daemon's address space, in KiB: nothing; less than a stack; a stack, but nothing beside it; several.
const LEFT_KIB: [u64; 6] = [0, 1024, 2060, 2072, 4132, 20_000];
/// Folders with the controllers of version 1 of control groups, and that of version 2.
const GROUPS: &str = "/sys/fs/cgroup";
/// The memory that a worker may still take, and the memory that its session then asks for.
const WORKER_ROOM: u64 = 64 << 20;
const TOO_MUCH: u64 = 1 << 30;

pub fn collect(suite: &mut Suite) {
    attack(suite, "exhaustion::no_address_space", no_address_space);
    match Group::new("pids", "probe") {
        Ok(_) => attack(suite, "exhaustion::no_threads", no_threads),
        Err(error) => {
            suite.skip("exhaustion::no_threads", &format!("no control group for threads: {error:#}"))
        }
    }
    let name = "exhaustion::threads_of_a_user";
    match Group::with_children(&["memory", "pids"]) {
        Ok(_) => suite.test(name, threads_of_a_user),
        Err(error) => suite.skip(name, &format!("no control groups of version 2: {error:#}")),
    }
    let name = "exhaustion::a_worker_without_memory";
    match Group::new("memory", "probe") {
        Ok(_) => {
            let options = DaemonOptions { device: "emulated".into(), ..Default::default() };
            attack_with(suite, name, options, worker_without_memory);
        }
        Err(error) => suite.skip(name, &format!("no control group for memory: {error:#}")),
    }
}

/// One user's workers start as many threads as they can. Another user's worker still gets those that it asks for.
fn threads_of_a_user(kit: &Kit) -> Result<()> {
    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    let group = Group::with_children(&["memory", "pids"])?;
    let cgroup = group.path.to_string_lossy().into_owned();
    let limits = ["--cgroup", &cgroup, "--max-sessions", "12", "--max-user-sessions", "10"];
    let options = DaemonOptions {
        device: "emulated".into(),
        arguments: limits.iter().map(|&limit| limit.into()).collect(),
        ..Default::default()
    };
    let daemon = Daemon::start(&kit.stack, &options)?;
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    ensure!(frontend.hello(PROTOCOL_VERSION)?.status == REPLY_OK, "HELLO");
    let mut open = |uid: u32| -> Result<u64> {
        let reply = frontend.open_as(uid)?;
        ensure!(reply.status == REPLY_OK, "user {uid}: OPEN: status {}", reply.status);
        Ok(u64::from_le_bytes(reply.payload.as_slice().try_into().context("a session")?))
    };
    let sessions = (0..9).map(|_| open(ALICE)).collect::<Result<Vec<_>>>()?;
    let victim = open(BOB)?;
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let mut starts = |session: u64, thread: u32| -> Result<bool> {
        let header = CallHeader { thread, ..hello.header() };
        Ok(frontend.carry(session, &hello.payload(&header), [&[], &[]])?.status == REPLY_OK)
    };
    let mut started = 0;
    for &session in &sessions {
        for thread in 0..1000 {
            if !starts(session, thread)? {
                break;
            }
            started += 1;
        }
    }
    ensure!((2000..5000).contains(&started), "a user has {started} threads");
    for thread in 0..100 {
        ensure!(starts(victim, thread)?, "another user has no thread {thread}");
    }
    drop((frontend, daemon));
    Ok(())
}

/// A control group of this test, removed when dropped.
struct Group {
    path: PathBuf,
    /// Version 2 of control groups.
    unified: bool,
}

impl Group {
    fn new(controller: &str, name: &str) -> Result<Self> {
        let separate = Path::new(GROUPS).join(controller);
        let unified = !separate.exists();
        let parent = if unified { PathBuf::from(GROUPS) } else { separate };
        if unified {
            let all = fs::read_to_string(parent.join("cgroup.subtree_control"))
                .context("cgroup.subtree_control")?;
            ensure!(
                all.split_whitespace().any(|one| one == controller),
                "{controller} is not enabled in {GROUPS}"
            );
        }
        let path = parent.join(format!("vhost-cuda-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("{}", path.display()))?;
        Ok(Self { path, unified })
    }

    /// Creates a group of version 2 whose children may have limits.
    fn with_children(controllers: &[&str]) -> Result<Self> {
        let group = Self::new(controllers[0], "parent")?;
        ensure!(group.unified, "control groups are not of version 2");
        for controller in controllers {
            group.set("cgroup.subtree_control", format!("+{controller}"))?;
        }
        Ok(group)
    }

    fn set(&self, file: &str, value: impl ToString) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value.to_string()).with_context(|| format!("{}", path.display()))
    }

    fn number(&self, file: &str) -> Result<u64> {
        Ok(fs::read_to_string(self.path.join(file))?.trim().parse()?)
    }

    fn add(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", pid)
    }

    fn max_memory(&self, bytes: u64) -> Result<()> {
        self.set(if self.unified { "memory.max" } else { "memory.limit_in_bytes" }, bytes)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begun = Instant::now();
        loop {
            // Its processes go to the group above, or have ended. The daemon may start another one meanwhile.
            for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(self.path.with_file_name("cgroup.procs"), pid);
            }
            if fs::remove_dir(&self.path).is_ok() || begun.elapsed() > PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Bytes of a process's address space.
fn address_space(pid: u32) -> Result<u64> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    Ok(pages.split_whitespace().next().context("statm")?.parse::<u64>()? * 4096)
}

/// Address space is limited while the daemon runs. Whatever is left of it, the daemon does not end.
fn no_address_space(target: &mut Target) -> Result<()> {
    let (what, pid) = (libc::RLIMIT_AS, target.daemon.pid());
    for left in LEFT_KIB {
        starved(target, || {
            let before = limit(pid, what, Some(address_space(pid)? + left * 1024))?;
            Ok(move || limit(pid, what, Some(before)).map(drop))
        })
        .with_context(|| format!("{left} KiB are left"))?;
    }
    let log = target.daemon.log();
    ensure!(log.contains("out of address space"), "The log does not say why\n{}", crate::tail(&log));
    Ok(())
}

/// No thread and no process can be started; then a few, so that some of a connection's start and others do not.
fn no_threads(target: &mut Target) -> Result<()> {
    let pid = target.daemon.pid();
    let before = quiet(&target.daemon)?;
    for left in 0..4 {
        let group = Group::new("pids", "threads")?;
        starved(target, || {
            group.add(pid)?;
            group.set("pids.max", group.number("pids.current")? + left)?;
            Ok(|| group.set("pids.max", "max"))
        })
        .with_context(|| format!("{left} threads may be started"))?;
    }
    target.daemon.wait_until("threads of connections end", PATIENCE, |daemon| threads(daemon) <= before)
}

/// A session takes more memory than its worker's group may have: it gets an error or is lost. A neighbour continues.
fn worker_without_memory(target: &mut Target) -> Result<()> {
    let mut neighbour = target.connect()?;
    let other = neighbour.open_session()?;
    says_hello(&mut neighbour, other)?;
    let others = in_session(&target.daemon);
    let mut greedy = target.connect()?;
    let session = greedy.open_session()?;
    // A worker has its name when it sends its first answer.
    says_hello(&mut greedy, session)?;
    let worker = in_session(&target.daemon).into_iter().find(|pid| !others.contains(pid));
    let group = Group::new("memory", "worker")?;
    group.max_memory(WORKER_ROOM)?;
    group.add(worker.context("no worker has the session")?)?;

    let context: u64 = 1 << 45;
    let retain = CallParts::new(
        Opcode::cuDevicePrimaryCtxRetain,
        &[&0_u32.to_le_bytes()[..], &context.to_le_bytes()].concat(),
    );
    ensure!(greedy.call(session, &retain)?.result == 0, "cuDevicePrimaryCtxRetain");
    let allocate = CallParts { context, ..CallParts::new(Opcode::cuMemAlloc_v2, &TOO_MUCH.to_le_bytes()) };
    let allocated = greedy.call(session, &allocate)?;
    let mut refused = allocated.result != 0;
    if !refused {
        // The emulator's memory is the worker's: it is taken when it is written.
        let address: [u8; 8] = allocated.results.as_slice().try_into().context("an address")?;
        let arguments = [&address[..], &[1], &TOO_MUCH.to_le_bytes(), &0_u64.to_le_bytes()].concat();
        let fill = CallParts { context, ..CallParts::new(Opcode::cuMemsetD8Async, &arguments) };
        let synchronize = CallParts { context, ..CallParts::new(Opcode::cuCtxSynchronize, &[]) };
        for parts in [&fill, &synchronize] {
            let payload = parts.payload(&parts.header());
            let status = greedy.carry(session, &payload, [&[], &[]])?.status;
            ensure!([REPLY_OK, REPLY_SESSION_LOST].contains(&status), "answered with {status}");
            refused |= status == REPLY_SESSION_LOST;
            says_hello(&mut neighbour, other).context("A neighbour's session")?;
        }
    }
    ensure!(refused, "{TOO_MUCH} bytes fit into {WORKER_ROOM}");
    ensure!(target.daemon.is_running(), "The daemon has ended");
    drop(group);
    let next = greedy.open_session().context("A new session of the same machine")?;
    says_hello(&mut greedy, next)?;
    says_hello(&mut neighbour, other)
}
