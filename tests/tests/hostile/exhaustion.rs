// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A resource of the host is exhausted: descriptors, disk space, a steady clock. Requests that need it are refused,
//! running sessions continue, and the daemon recovers.

mod starvation;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend, PATIENCE};
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};
use virtio_cuda_protocol::transport::{REPLY_NO_RESOURCES, REPLY_OK};

use crate::kills::settle;
use crate::{Target, attack, attack_with};

/// Sessions that are asked for while nothing is left.
const ATTEMPTS: usize = 4;
/// The time limit of a refusal: three attempts to start a worker, at intervals of one second, and a margin for a busy
/// machine.
const PROMPT: Duration = Duration::from_secs(15);

/// The beginnings of the names of threads that serve a machine or a session.
const SERVING: [&str; 6] = ["connection-", "relay-", "vring_worker", "session", "image-cache", "exchange"];

/// The time that a machine has to connect.
const MOMENT: Duration = Duration::from_millis(300);

pub fn collect(suite: &mut Suite) {
    attack(suite, "exhaustion::no_descriptors", no_descriptors);
    let full = DaemonOptions { log: Some("/dev/full".into()), ..emulated() };
    attack_with(suite, "exhaustion::the_disk_of_the_log_is_full", full, full_disk);
    starvation::collect(suite);
    suite.test("exhaustion::a_clock_that_jumps", jumping_clock);
}

fn emulated() -> DaemonOptions {
    DaemonOptions { device: "emulated".into(), ..Default::default() }
}

/// A limit of a process that runs. Returns the one before.
fn limit(pid: u32, what: libc::__rlimit_resource_t, value: Option<u64>) -> Result<u64> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let pid = pid as libc::pid_t;
    // SAFETY: the structures live across the calls.
    let done = unsafe {
        libc::prlimit(pid, what, std::ptr::null(), &raw mut old) == 0
            && value.is_none_or(|value| {
                let new = libc::rlimit { rlim_cur: value, ..old };
                libc::prlimit(pid, what, &raw const new, std::ptr::null_mut()) == 0
            })
    };
    ensure!(done, "prlimit: {}", std::io::Error::last_os_error());
    Ok(old.rlim_cur)
}

/// A call that the worker executes.
fn says_hello(frontend: &mut FakeFrontend, session: u64) -> Result<()> {
    let parts = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let answer = frontend.call(session, &parts)?;
    ensure!(answer.result == 0, "session_hello answers {}", answer.result);
    Ok(())
}

/// The daemon may open no more files, and has more than the limit.
fn no_descriptors(target: &mut Target) -> Result<()> {
    let (what, pid) = (libc::RLIMIT_NOFILE, target.daemon.pid());
    starved(target, || {
        let before = limit(pid, what, Some(8))?;
        Ok(move || limit(pid, what, Some(before)).map(drop))
    })
}

fn threads(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/task", daemon.pid())).map_or(0, Iterator::count)
}

/// Waits until no thread of the daemon serves a machine or a session. Returns the number of those that serve all.
fn quiet(daemon: &Daemon) -> Result<usize> {
    // The first session starts them.
    FakeFrontend::behave(&daemon.socket())?;
    daemon.wait_until("threads of earlier machines have ended", PATIENCE, |daemon| {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).into_iter().flatten().flatten();
        let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        !names.any(|name| SERVING.iter().any(|begin| name.starts_with(begin)))
    })?;
    Ok(threads(daemon))
}

fn errors(daemon: &Daemon) -> usize {
    daemon.log().lines().filter(|line| line.contains("ERROR")).count()
}

/// `starve` takes a resource from the daemon, and returns the function that restores it. Sessions that need it are
/// refused meanwhile, and an existing session continues. Afterwards sessions are opened again.
fn starved<G: FnOnce() -> Result<()>>(target: &mut Target, starve: impl FnOnce() -> Result<G>) -> Result<()> {
    let (begun, errors_before) = (Instant::now(), errors(&target.daemon));
    quiet(&target.daemon)?;
    let mut neighbour = target.connect()?;
    let session = neighbour.open_session()?;
    says_hello(&mut neighbour, session)?;
    let mut asking = target.connect()?;
    let running = threads(&target.daemon);
    let first = asking.open_session()?;
    asking.close(first)?;
    settle(&target.daemon, 2)?;
    // Threads that end later would give back enough for another session to begin.
    target.daemon.wait_until("the threads of a closed session have ended", PATIENCE, |daemon| {
        threads(daemon) <= running
    })?;

    let give_back = starve()?;
    let outcome = (|| {
        let mut refused = 0;
        for _ in 0..ATTEMPTS {
            let begun = Instant::now();
            let reply = asking.open()?;
            ensure!([REPLY_OK, REPLY_NO_RESOURCES].contains(&reply.status), "OPEN answers {}", reply.status);
            ensure!(begun.elapsed() < PROMPT, "a refusal took {:?}", begun.elapsed());
            refused += usize::from(reply.status == REPLY_NO_RESOURCES);
            says_hello(&mut neighbour, session).context("A neighbour's session")?;
        }
        ensure!(refused > 0, "nothing was refused");
        Ok(())
    })();
    // A new machine is refused, or waits: it must not end the daemon.
    let socket = target.daemon.socket();
    let machine = thread::spawn(move || FakeFrontend::connect(&socket).map(drop));
    thread::sleep(MOMENT);
    let unharmed = says_hello(&mut neighbour, session).context("A neighbour's session");
    give_back()?;
    outcome.and(unharmed)?;
    let _ = machine.join();
    ensure!(target.daemon.is_running(), "The daemon has ended");
    says_hello(&mut neighbour, session)?;
    neighbour.close(session)?;
    let given_back = Instant::now();
    while asking.open()?.status != REPLY_OK {
        ensure!(given_back.elapsed() < PATIENCE, "There is no session after the limit is gone");
        thread::sleep(Duration::from_millis(50));
    }
    FakeFrontend::behave(&target.daemon.socket()).context("A new machine, after the limit is gone")?;
    // Each of a few messages comes a few times at once, and then once in ten seconds or less often.
    let (errors, allowed) = (errors(&target.daemon) - errors_before, 20 + begun.elapsed().as_secs() / 5);
    ensure!(errors as u64 <= allowed, "{errors} errors in the log, and not {allowed}");
    Ok(())
}

/// Not a line of the log can be written.
fn full_disk(target: &mut Target) -> Result<()> {
    for _ in 0..3 {
        let mut frontend = target.connect()?;
        let session = frontend.open_session()?;
        says_hello(&mut frontend, session)?;
        frontend.close(session)?;
    }
    Ok(())
}

/// The wall clock jumps to another year each time that the daemon or a worker reads it.
fn jumping_clock(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = compile_clock(folder.path())?;
    let preload = ("LD_PRELOAD".to_owned(), library);
    let arguments = ["--memory", "1G", "--session-memory", "512M"];
    let options = DaemonOptions {
        environment: vec![preload],
        arguments: arguments.map(str::to_owned).to_vec(),
        ..emulated()
    };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    for _ in 0..3 {
        let mut frontend = FakeFrontend::connect(&daemon.socket())?;
        let session = frontend.open_session()?;
        says_hello(&mut frontend, session)?;
        let begun = Instant::now();
        frontend.close(session)?;
        ensure!(begun.elapsed() < PROMPT, "CLOSE took {:?}", begun.elapsed());
    }
    let log = daemon.log();
    let years: HashSet<&str> = log.lines().filter_map(|line| line.strip_prefix('[')?.get(..4)).collect();
    ensure!(years.len() > 1, "The clock does not jump: {years:?}");
    let begun = Instant::now();
    ensure!(daemon.stop()?.success(), "The daemon has failed");
    ensure!(begun.elapsed() < PROMPT, "SIGTERM took {:?}", begun.elapsed());
    Ok(())
}

/// A library in front of the C library's clocks.
fn compile_clock(folder: &Path) -> Result<String> {
    let (code, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&code, include_str!("programs/clock.c"))?;
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&code);
    let output = command.output().context("Cannot run cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(library.to_str().context("a path that is no text")?.to_owned())
}
