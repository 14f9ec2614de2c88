// SPDX-License-Identifier: Apache-2.0 OR MIT

//! This release and the one before together: the guest libraries of one run on the daemon of the other, and a daemon of one is
//! replaced by the other's program while programs run. Programs move between daemons of both.

mod moved;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::{CASES, Case, Part, Weight, case};
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{CallParts, FakeFrontend};
use vhost_cuda_tests::running::{Ended, Outcome, Running};
use vhost_cuda_tests::runs;
use vhost_cuda_tests::stack::{Device, Route, Stack, Way};
use vhost_cuda_tests::suite::{self, Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};

/// Time limits for a program, and for a daemon to serve its control socket.
const LIMIT: Duration = Duration::from_secs(120);
const SETTLE: Duration = Duration::from_secs(20);
/// `CUDA_ERROR_NOT_SUPPORTED`, as programs print it.
const NOT_SUPPORTED: &str = "801";
/// The answer of `later_calls` if the driver library has no such function.
const NO_FUNCTION: &str = "is not there";
/// The processor of all tests: the emulator stands for NVIDIA's driver.
const DEVICE: &str = "emulated";

/// Guest libraries of one release, and a daemon of the other.
struct Pair {
    name: &'static str,
    /// The part that is of the release before.
    older: Part,
    stack: Stack,
    /// The version of the call table on which both agree.
    agreed: u32,
}

fn main() -> ExitCode {
    suite::run("pair", |suite| {
        let now = suite.kit().stack.clone();
        let before = now.before()?;
        // Daemon and guest libraries of a release have the same version.
        let agreed = call_table_of(&before)?.min(CALL_TABLE_VERSION);
        let pairs = [
            ("older_guest", Part::Guest, now.with_guest_of(&before)),
            ("older_daemon", Part::Daemon, now.with_daemon_of(&before)),
        ];
        for (name, older, stack) in pairs {
            collect(suite, &Arc::new(Pair { name, older, stack, agreed }));
        }
        moved::collect(suite, &now, &before)?;
        let changes =
            [("newer_daemon_follows", before.clone(), now.clone()), ("older_daemon_follows", now, before)];
        for (name, stack, next) in changes {
            suite.test(name, move |kit| is_replaced(kit, &stack, &next));
        }
        Ok(())
    })
}

fn collect(suite: &mut Suite, pair: &Arc<Pair>) {
    for case in CASES {
        let name = format!("{}::{}", pair.name, case.name);
        let heavy = (case.weight > Weight::Light).then(|| "it transfers more of the same".to_owned());
        let lacks = (case.newer == Some(pair.older))
            .then(|| "that part of the release before lacks it, or has a fault".to_owned());
        match heavy.or(lacks).or_else(|| suite.kit().programs.missing(case.program)) {
            Some(why) => suite.skip(name, &why),
            None => {
                let pair = pair.clone();
                suite.test(name, move |kit| check(kit, &pair, case));
            }
        }
    }
}

/// The version of the call table that a daemon's workers report.
fn call_table_of(stack: &Stack) -> Result<u32> {
    let options = DaemonOptions { device: DEVICE.to_owned(), ..Default::default() };
    let daemon = Daemon::start(stack, &options)?;
    let mut front_end = FakeFrontend::connect(&daemon.socket())?;
    let session = front_end.open_session()?;
    let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
    let answer = front_end.call(session, &hello)?;
    let version = answer.results.first_chunk().context("The answer to a greeting has no version")?;
    Ok(u32::from_le_bytes(*version))
}

/// The case's output is as with one release, or the program learns that a newer call is not supported.
fn check(kit: &Kit, pair: &Pair, case: &'static Case) -> Result<()> {
    let route = Route::open(Way::VirtioUser(Device::Emulated), &pair.stack, &kit.programs)?;
    let outcomes = runs::run(&kit.programs, &route, case)?;
    for outcome in &outcomes {
        let checked = verdict::check(case, outcome, Answering::EmulatedDevice);
        if checked.is_err() && case.since > pair.agreed {
            is_refused(outcome)?;
        } else {
            checked?;
        }
    }
    let log = route.daemon.as_ref().map(Daemon::log).unwrap_or_default();
    ensure!(log.contains("front-end connected"), "no program came to the daemon");
    runs::wait_for_diagnostics(&route, &outcomes, case)
}

fn is_refused(outcome: &Outcome) -> Result<()> {
    let is_told = [NOT_SUPPORTED, NO_FUNCTION].iter().any(|answer| outcome.stdout.contains(answer));
    let has_ended = matches!(outcome.ended, Ended::Exit(0 | 1));
    ensure!(is_told && has_ended, "the program does not learn that the call is not supported\n{outcome}");
    Ok(())
}

/// The program of `next` takes the sessions of a daemon of `stack` over, or refuses them for their version. Either way, they go
/// on, and others come.
fn is_replaced(kit: &Kit, stack: &Stack, next: &Stack) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let control = Control::at(&folder.path().join("control"));
    let device = DEVICE.to_owned();
    let options = DaemonOptions { device, arguments: control.options(), is_copy: true, ..Default::default() };
    let daemon = Daemon::start(stack, &options)?;
    daemon.wait_until("control is served", SETTLE, |_| control.sessions().is_ok())?;
    let route = Route::through(stack, daemon);
    let start = |name: &str, arguments: &[&str]| {
        Running::start(route.command(&kit.programs.get(name)?).args(arguments), "")
    };
    let program = start("suspended", &["2", "work"])?;
    program.wait_for_stdout("begun", LIMIT)?;
    let before = control.session_of(program.pid())?["session"].clone();

    replace(&control, route.daemon.as_ref().context("no daemon")?, next)?;
    ensure!(control.session_of(program.pid())?["session"] == before, "it is another session");
    start("add_one", &[])?.finish(LIMIT)?.expect_exit(case("add_one").exit)?;
    program.signal(libc::SIGTERM);
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(())
}

/// Replaces a daemon by the program of `next`, which takes its sessions over, or refuses them for their version.
fn replace(control: &Control, daemon: &Daemon, next: &Stack) -> Result<()> {
    let installed = daemon.program();
    let new = installed.with_extension("new");
    fs::copy(next.daemon(), &new)?;
    fs::rename(new, installed)?;
    // A program that has no processor for seconds is refused, too: that says nothing about releases.
    let deadline = Instant::now() + LIMIT;
    let answer = loop {
        let answer = control.ask(r#"{"do":"replace"}"#)?;
        let why = answer["error"].as_str().unwrap_or_default();
        if answer["ok"] == true || why.contains("version") || Instant::now() > deadline {
            break answer;
        }
    };
    let runs_new = fs::read_link(format!("/proc/{}/exe", daemon.pid()))? == installed;
    let why = answer["error"].as_str().unwrap_or_default();
    ensure!(runs_new == (answer["ok"] == true), "{answer}");
    ensure!(runs_new || why.contains("version"), "{answer}");
    Ok(())
}
