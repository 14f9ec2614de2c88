// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The system calls that a worker may make, even if a guest controls it.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend};
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};

use crate::{Target, attack_with};

/// The maximum time that a worker may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// The variable that makes the emulator report access to pageable memory.
const PAGEABLE: &str = "CUDA_EMULATOR_PAGEABLE";
/// The name of a worker that waits for a session (`vhost-cuda/worker/src/start.rs`).
const WARM: &str = "cuda-warm";
/// The name of the threads that serve the daemon's queues.
const QUEUE: &str = "vring_worker";
/// Threads of the daemon that read bytes of guests or workers, and threads that start workers or other threads.
const FILTERED: [&str; 5] = [QUEUE, "session-", "image-cache", "exchange", "worker-messages"];
const UNFILTERED: [&str; 2] = ["outside", "worker-pool"];

pub fn collect(suite: &mut Suite) {
    let emulated = |arguments: &[&str]| DaemonOptions {
        device: "emulated".into(),
        arguments: arguments.iter().map(|&argument| argument.into()).collect(),
        ..DaemonOptions::default()
    };
    attack_with(suite, "sandbox::workers_are_filtered", emulated(&[]), |target| has_filters(target, 3));
    let refused = emulated(&["--sandbox", "refuse"]);
    attack_with(suite, "sandbox::filters_may_refuse", refused, |target| has_filters(target, 3));
    let logged = emulated(&["--sandbox", "log"]);
    attack_with(suite, "sandbox::filters_may_log_only", logged, |target| has_filters(target, 1));
    let off = emulated(&["--sandbox", "off"]);
    attack_with(suite, "sandbox::filters_may_be_off", off, |target| has_filters(target, 0));
    attack_with(suite, "sandbox::threads_of_the_daemon_are_filtered", emulated(&[]), threads_are_filtered);
    for kind in ["hmm", "ats"] {
        suite.test(format!("sandbox::a_gpu_with_{kind}_is_refused"), move |kit| pageable_memory(kit, kind));
    }
    let served = DaemonOptions {
        environment: vec![(PAGEABLE.into(), "hmm".into())],
        ..emulated(&["--allow-pageable-access"])
    };
    attack_with(suite, "sandbox::a_gpu_with_hmm_is_served_on_demand", served, |target| {
        target.connect()?.open_session().map(drop)
    });
    suite.test("sandbox::root_is_refused", root_is_refused);
}

/// No session is opened on a GPU whose kernels can access all memory of the worker, and the log contains advice.
fn pageable_memory(kit: &Kit, kind: &str) -> Result<()> {
    let options = DaemonOptions {
        device: "emulated".into(),
        environment: vec![(PAGEABLE.into(), kind.into())],
        ..DaemonOptions::default()
    };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    ensure!(FakeFrontend::behave(&daemon.socket()).is_err(), "a session was opened\n{}", daemon.log());
    let said = ["reaches pageable memory", "uvm_disable_hmm=1", "--allow-pageable-access"];
    let advice = |daemon: &Daemon| said.iter().all(|text| daemon.log().contains(text));
    daemon.wait_until("the log says why and what to do", READY, advice)?;
    ensure!(daemon.is_running(), "the daemon has ended\n{}", daemon.log());
    Ok(())
}

/// The daemon runs as the host's root only with the option for it.
fn root_is_refused(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    // SAFETY: plain system call.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(kit.stack.daemon());
    command.arg("--socket-path").arg(&socket).args(["--device", "emulated", "--warm-workers", "0"]);
    command.env("VHOST_CUDA_EMULATOR", kit.stack.emulator()).stderr(Stdio::piped());
    if !root {
        // There is nothing to refuse: it listens.
        let mut child = command.spawn()?;
        thread::sleep(Duration::from_millis(500));
        let running = child.try_wait()?.is_none();
        child.kill()?;
        child.wait()?;
        ensure!(running, "an ordinary user cannot start the daemon");
        return Ok(());
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("--allow-root"), "{}: {said}", output.status);
    ensure!(!socket.exists(), "it listened");
    Ok(())
}

/// As many filters as there are programs in `vhost-cuda/worker/src/sandbox/filter.rs`.
fn has_filters(target: &mut Target, count: u32) -> Result<()> {
    let status = warm_worker(target)?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        value.with_context(|| format!("no {name} in\n{status}"))
    };
    ensure!(field("NoNewPrivs:")? == 1, "the worker may get new privileges\n{status}");
    // 2: a filter, 0: none.
    ensure!(field("Seccomp:")? == if count > 0 { 2 } else { 0 }, "{status}");
    ensure!(field("Seccomp_filters:")? == count, "{status}");
    Ok(())
}

/// The daemon's threads that read what guests and workers send have filters; those that start workers have none.
fn threads_are_filtered(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    ensure!(frontend.call(session, &hello)?.result == 0, "session_hello");
    // Some of them confine themselves, a moment after they were started.
    let deadline = Instant::now() + READY;
    loop {
        match filters_are_right(target.daemon.pid()) {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

fn filters_are_right(daemon: u32) -> Result<()> {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task"))?;
    let mut left: Vec<_> = FILTERED.iter().chain(&UNFILTERED).collect();
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, status) = (read("comm"), read("status"));
        let is_filtered = status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n");
        for (names, filtered) in [(&FILTERED[..], true), (&UNFILTERED[..], false)] {
            let Some(known) = names.iter().find(|known| name.starts_with(**known)) else { continue };
            // One queue of a new connection has had no event yet.
            ensure!(is_filtered == filtered || *known == QUEUE, "the thread {name}{status}");
            left.retain(|other| *other != known || is_filtered != filtered);
        }
    }
    ensure!(left.is_empty(), "these threads were not found: {left:?}");
    Ok(())
}

/// Returns the kernel's status of a worker that is ready.
fn warm_worker(target: &mut Target) -> Result<String> {
    let deadline = Instant::now() + READY;
    loop {
        for worker in target.daemon.workers() {
            let read = |file: &str| fs::read_to_string(format!("/proc/{worker}/{file}")).unwrap_or_default();
            if read("comm").trim() == WARM {
                return Ok(read("status"));
            }
        }
        ensure!(Instant::now() < deadline, "no worker is ready within {READY:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
