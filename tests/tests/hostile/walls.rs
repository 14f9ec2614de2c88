// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The walls around workers and the daemon, as the host sees them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions, workers_of};
use vhost_cuda_tests::frontend::FakeFrontend;
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

/// The maximum time that a daemon and its worker may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// The namespaces of workers. An unprivileged daemon has a user namespace in which they are made.
const NAMESPACES: [&str; 4] = ["mnt", "pid", "net", "ipc"];
/// A user without privileges.
const NOBODY: u32 = 65534;

pub fn collect(suite: &mut Suite) {
    suite.test("walls::of_workers", of_workers);
    suite.test("walls::lost_namespaces_are_made_again", lost_namespaces);
    let of_root = ["walls::an_unprivileged_user_builds_them", "walls::pages_of_the_pool_serve_one_session"];
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        suite.test(of_root[0], unprivileged_user);
        suite.test(of_root[1], pages_of_the_pool);
    } else {
        suite.skip(of_root[0], "the other tests run as one");
        suite.skip(of_root[1], "only root reads the memory of workers");
    }
}

fn start(kit: &Kit) -> Result<Daemon> {
    let arguments = ["--namespaces", "require"].map(String::from).to_vec();
    // Its folders are in the root of workers, and cargo's are not.
    let environment = vec![("LD_LIBRARY_PATH".into(), String::new())];
    let options =
        DaemonOptions { device: "emulated".into(), arguments, environment, ..DaemonOptions::default() };
    Daemon::start(&kit.stack, &options)
}

/// The first worker that waits for a session, once there is one.
fn worker_of(daemon: u32) -> Result<u32> {
    let deadline = Instant::now() + READY;
    loop {
        let warm = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cuda-warm")
        };
        if let Some(worker) = workers_of(daemon).into_iter().find(warm) {
            return Ok(worker);
        }
        ensure!(Instant::now() < deadline, "no worker is ready within {READY:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn namespace(process: u32, kind: &str) -> Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/{kind}"))?.ino())
}

fn has_walls(daemon: u32, worker: u32) -> Result<()> {
    for kind in NAMESPACES {
        ensure!(namespace(worker, kind)? != namespace(daemon, kind)?, "the worker has the daemon's {kind}");
    }
    let status = fs::read_to_string(format!("/proc/{worker}/status"))?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        let none = format!("{set}:\t0000000000000000");
        ensure!(status.contains(&none), "the worker has capabilities\n{status}");
    }
    let root = fs::read_dir(format!("/proc/{worker}/root"))?;
    for entry in root {
        let name = entry?.file_name();
        ensure!(!["home", "root", "run", "var"].iter().any(|known| name == *known), "{name:?}");
    }
    Ok(())
}

fn of_workers(kit: &Kit) -> Result<()> {
    let daemon = start(kit)?;
    has_walls(daemon.pid(), worker_of(daemon.pid())?)?;
    FakeFrontend::behave(&daemon.socket())?;
    daemon.wait_until("a worker's message names its session", READY, |daemon| {
        daemon.log().contains("session 1: worker: ")
    })
}

/// Kills the process that holds the workers' namespaces, as an administrator or the kernel may who needs memory.
fn lost_namespaces(kit: &Kit) -> Result<()> {
    let mut daemon = start(kit)?;
    let first = worker_of(daemon.pid())?;
    let before = namespace(first, "pid")?;
    // While it is open, no new namespace gets its number.
    let _before = File::open(format!("/proc/{first}/ns/pid"))?;
    // It has its name a moment after its start, which may be later than the worker is ready.
    wait("a process holds the workers' namespaces", || Ok(keeper_of(first).is_ok()))?;
    let keeper = keeper_of(first)?;
    // SAFETY: plain system call on a process that the daemon has started and not waited for.
    ensure!(unsafe { libc::kill(keeper, libc::SIGKILL) } == 0, "the keeper is not there");
    daemon.wait_until("its worker has ended", READY, |daemon| !daemon.workers().contains(&first))?;
    let served = |daemon: &Daemon| FakeFrontend::behave(&daemon.socket()).is_ok();
    daemon.wait_until("sessions are served again", READY, served)?;
    let second = worker_of(daemon.pid())?;
    ensure!(namespace(second, "pid")? != before, "the workers have the old namespace");
    has_walls(daemon.pid(), second)?;
    ensure!(daemon.is_running(), "the daemon has ended");
    Ok(())
}

/// The other child of the daemon, in the same namespace.
fn keeper_of(worker: u32) -> Result<i32> {
    let space = namespace(worker, "pid")?;
    let processes =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut keepers = processes
        .filter(|&pid| name(pid).trim() == "cuda-keeper" && namespace(pid, "pid").ok() == Some(space));
    Ok(keepers.next().context("no process holds the workers' namespaces")? as i32)
}

/// A daemon without any privilege, which is how it should run.
fn unprivileged_user(kit: &Kit) -> Result<()> {
    let arguments = ["--namespaces", "require"].map(String::from).to_vec();
    let environment = vec![("LD_LIBRARY_PATH".into(), String::new())];
    let user = Some(NOBODY);
    let options =
        DaemonOptions { device: "emulated".into(), arguments, environment, user, ..Default::default() };
    let daemon = Daemon::start(&kit.stack, &options)?;
    as_user(daemon.pid(), &daemon.socket()).with_context(|| daemon.log())
}

fn as_user(daemon: u32, socket: &Path) -> Result<()> {
    let worker = worker_of(daemon)?;
    has_walls(daemon, worker)?;
    ensure!(namespace(daemon, "user")? == namespace(worker, "user")?);
    ensure!(namespace(daemon, "user")? != namespace(std::process::id(), "user")?, "no user namespace");
    // The kernel gives root the files of a process that is not dumpable.
    for (process, name) in [(daemon, "daemon"), (worker, "worker")] {
        let owner = fs::metadata(format!("/proc/{process}/environ"))?.uid();
        ensure!(owner == 0, "other processes of user {owner} can read the {name}'s memory");
    }
    FakeFrontend::behave(socket)
}

/// Contents of a session stay in the pages of its worker when they have ended, and never come to another worker.
fn pages_of_the_pool(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let control = Control::at(&folder.path().join("control"));
    // Too little for both programs.
    let pool = ["--suspend-pool", "24M", "--keep-contents", "0"].map(String::from);
    let arguments = control.options().into_iter().chain(pool).collect();
    let options = DaemonOptions { device: "emulated".into(), arguments, ..DaemonOptions::default() };
    let daemon = Daemon::start(&kit.stack, &options)?;
    let pid = daemon.pid();
    let route = Route::through(&kit.stack, daemon);
    wait("control is served", || Ok(control.sessions().is_ok()))?;
    let start = |program: &str, arguments: &[&str], begun: &str| {
        let before = sessions_of(pid);
        let program = Running::start(route.command(&kit.programs.get(program)?).args(arguments), "")?;
        program.wait_for_stdout(begun, READY)?;
        let worker = sessions_of(pid).into_iter().find(|worker| !before.contains(worker));
        anyhow::Ok((program, worker.context("No worker of the program")?))
    };
    let has_ready = |program: &Running, bytes: u64| {
        wait("its pages are ready", || {
            Ok(control.session_of(program.pid())?["ready_bytes"].as_u64() >= Some(bytes))
        })
    };
    let (first, its_worker) = start("suspended", &["8", "idle"], "begun")?;
    has_ready(&first, 8 << 20)?;
    for what in ["suspend", "resume"] {
        let answer = control.ask(&format!("{{\"do\":\"{what}\",\"all\":true}}"))?;
        ensure!(answer["ok"] == true && answer["sessions"][0]["suspensions"] == 1, "{answer}");
    }
    // Words of its device memory (tests/cuda/suspended.cu).
    let word = |place: u32| 1_013_904_223_u32.wrapping_add(place).to_le_bytes();
    let pattern: Vec<u8> = (5000..5016).flat_map(word).collect();
    ensure!(private_memory_has(its_worker, &pattern)?, "contents do not stay: the test shows nothing");
    let (second, other_worker) = start("copy_until_error", &["25165824"], "copying")?;
    has_ready(&second, 2 << 20)?;
    ensure!(!private_memory_has(other_worker, &pattern)?, "another worker has a page of the first one");
    first.signal(libc::SIGTERM);
    first.finish(READY)?.expect_exit(0)?;
    has_ready(&second, 24 << 20)?;
    ensure!(!private_memory_has(other_worker, &pattern)?, "another worker has got a page of the first one");
    second.signal(libc::SIGKILL);
    second.finish(READY).map(drop)
}

/// The workers of the daemon that have a session.
fn sessions_of(daemon: u32) -> Vec<u32> {
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    workers_of(daemon).into_iter().filter(|&pid| name(pid).trim() == "cuda-session").collect()
}

fn wait(what: &str, is_there: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + READY;
    while !is_there()? {
        ensure!(Instant::now() < deadline, "not within {READY:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns whether memory of the process that is no file's contains `pattern`.
fn private_memory_has(process: u32, pattern: &[u8]) -> Result<bool> {
    const PIECE: u64 = 1 << 20;
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut piece = vec![0; PIECE as usize];
    for line in fs::read_to_string(format!("/proc/{process}/maps"))?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some((begin, end)), "rw-p", "0") = (fields[0].split_once('-'), fields[1], fields[4]) else {
            continue;
        };
        let (begin, end) = (u64::from_str_radix(begin, 16)?, u64::from_str_radix(end, 16)?);
        for address in (begin..end).step_by(PIECE as usize) {
            let length = memory.read_at(&mut piece, address).unwrap_or(0);
            // Device memory and its copies begin at multiples of a word.
            if piece[..length].windows(pattern.len()).step_by(4).any(|found| found == pattern) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
