// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The daemon and the guest libraries together, without a virtual machine. Here: options of the daemon, and calls with wrong values.

mod captures;
mod cards;
mod control;
mod costs;
mod deep;
mod endings;
mod environment;
mod errors;
mod kubernetes;
mod kubernetes_claims;
mod library_variables;
mod managed;
mod metrics;
mod nccl;
mod old_root;
mod profilers;
mod profiles;
mod replaced;
mod shares;
mod static_runtimes;
mod sub_libraries;
mod suspended;
mod time_limit;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::{Case, MANAGEMENT, ROBUST, case};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::FakeFrontend;
use vhost_cuda_tests::running::{Outcome, Running, run};
use vhost_cuda_tests::stack::{Route, native_runtimes};
use vhost_cuda_tests::suite::{self, Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};
use virtio_cuda_protocol::transport::{PROTOCOL_VERSION, REPLY_VERSION};

/// The maximum time that one program may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The time limit for a program to notice that the daemon or its worker has ended.
const LOSS: Duration = Duration::from_secs(5);
/// The maximum time that processes and descriptors may take to go.
const SETTLE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    suite::run("integration", |suite| {
        collect(suite);
        Ok(())
    })
}

fn collect(suite: &mut Suite) {
    suite.test("the_daemon_never_opens_the_gpu", daemon_never_opens_the_gpu);
    suite.test("print_capabilities", print_capabilities);
    suite.test("eight_processes_at_once", eight_processes_at_once);
    suite.test("workers_are_named_by_their_state", workers_are_named_by_their_state);
    suite.test("memory_limit", memory_limit);
    suite.test("memory_limit_is_per_session", memory_limit_is_per_session);
    suite.test("session_limit", session_limit);
    suite.test("other_protocol_version", other_protocol_version);
    suite.test("management_library", management_library);
    if native_runtimes(&suite.kit().programs).is_empty() {
        suite.skip("nvidias_runtime_is_named", "NVIDIA's libcudart.so.13 is not here");
    } else {
        suite.test("nvidias_runtime_is_named", nvidias_runtime_is_named);
    }
    suite.test("wrong_calls_crash_nothing", wrong_calls_crash_nothing);
    suite.test("broken_rules_are_reported", broken_rules_are_reported);
    captures::collect(suite);
    cards::collect(suite);
    control::collect(suite);
    costs::collect(suite);
    endings::collect(suite);
    environment::collect(suite);
    errors::collect(suite);
    kubernetes::collect(suite);
    kubernetes_claims::collect(suite);
    library_variables::collect(suite);
    managed::collect(suite);
    metrics::collect(suite);
    nccl::collect(suite);
    old_root::collect(suite);
    profilers::collect(suite);
    profiles::collect(suite);
    replaced::collect(suite);
    shares::collect(suite);
    static_runtimes::collect(suite);
    sub_libraries::collect(suite);
    suspended::collect(suite);
    deep::collect(suite);
    time_limit::collect(suite);
}

fn route(kit: &Kit, options: &DaemonOptions) -> Result<Route> {
    Ok(Route::through(&kit.stack, Daemon::start(&kit.stack, options)?))
}

fn daemon(route: &mut Route) -> Result<&mut Daemon> {
    route.daemon.as_mut().context("This way has a daemon")
}

fn start(kit: &Kit, route: &Route, program: &str, arguments: &[&str]) -> Result<Running> {
    Running::start(route.command(&kit.programs.get(program)?).args(arguments), "")
}

fn finish(kit: &Kit, route: &Route, program: &str, arguments: &[&str]) -> Result<Outcome> {
    start(kit, route, program, arguments)?.finish(LIMIT)
}

/// Expects that the program behaves as in the table.
fn expect_good(kit: &Kit, route: &Route, name: &str) -> Result<()> {
    let case = case(name);
    finish(kit, route, case.program, case.args)?.expect_exit(case.exit)
}

fn daemon_never_opens_the_gpu(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    let daemon = daemon(&mut route)?;
    let maps = daemon.mapped_files();
    ensure!(!maps.is_empty() && !maps.contains("libcuda"), "the daemon itself has loaded libcuda:\n{maps}");
    let workers = daemon.workers();
    let loaded =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().contains("libcuda");
    ensure!(workers.iter().any(loaded), "no worker of {workers:?} has loaded libcuda");
    Ok(())
}

fn print_capabilities(kit: &Kit) -> Result<()> {
    let outcome = run(Command::new(kit.stack.daemon()).arg("--print-capabilities"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.contains("\"type\""), "{outcome}");
    let help = run(Command::new(kit.stack.daemon()).arg("--help"), "", LIMIT)?;
    help.expect_exit(0)?;
    for option in ["--socket-path", "--fd", "--device", "--print-capabilities", "--log-level", "[default: "] {
        ensure!(help.stdout.contains(option), "`{option}` is missing in the help\n{help}");
    }
    Ok(())
}

/// NVML reports the same values as CUDA, for this session's share, and does not start CUDA.
fn management_library(kit: &Kit) -> Result<()> {
    let plain = route(kit, &DaemonOptions::default())?;
    finish(kit, &plain, "nvml_query", &[])?.expect_exit(0)?;
    let arguments = vec!["--memory-limit".into(), "64M".into()];
    let limited = route(kit, &DaemonOptions { arguments, ..Default::default() })?;
    let outcome = finish(kit, &limited, "nvml_query", &[])?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.contains("67108864 bytes"), "not the limit of a session\n{outcome}");
    Ok(())
}

/// Whatever a program passes, neither it nor a worker nor the daemon crashes.
fn wrong_calls_crash_nothing(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    for tables in ROBUST {
        let robust = Case { args: &["robust"], stdin: tables, ..MANAGEMENT };
        verdict::check(&robust, &finish_case(kit, &route, &robust)?, Answering::behind_daemons())?;
    }
    verdict::check(&MANAGEMENT, &finish_case(kit, &route, &MANAGEMENT)?, Answering::behind_daemons())?;
    let log = daemon(&mut route)?.log();
    ensure!(!log.contains("panicked"), "something panicked\n{log}");
    expect_good(kit, &route, "add_one")
}

fn finish_case(kit: &Kit, route: &Route, case: &Case) -> Result<Outcome> {
    let program = kit.programs.get(case.program)?;
    Running::start(route.command(&program).args(case.args), case.stdin)?.finish(LIMIT)
}

/// A rule that does not hold is reported with the expected and the actual result. A call that crashes does not hide
/// others.
fn broken_rules_are_reported(kit: &Kit) -> Result<()> {
    const TABLE: &str = "call cuInit 0\ncuDeviceGetCount out | 0=null:400\ncuDeviceGetName =1 96 0 | :1\n\
                         cuDeviceGet out 0 | 1=-1:101 1=7:999\ncuNothing | :1\n";
    let route = route(kit, &DaemonOptions::default())?;
    let case = Case { stdin: TABLE, args: &[], ..MANAGEMENT };
    let outcome = finish_case(kit, &route, &case)?;
    for line in
        ["cuDeviceGetCount 0=null: expected 400, got 1", "got crash", "1=7: expected 999, got 101", "got -1"]
    {
        ensure!(outcome.stdout.contains(line), "`{line}` is missing\n{outcome}");
    }
    ensure!(outcome.stdout.ends_with("\n5 rules\n"), "rules were left out\n{outcome}");
    ensure!(
        verdict::check(&case, &outcome, Answering::behind_daemons()).is_err(),
        "broken rules are accepted"
    );
    Ok(())
}

fn eight_processes_at_once(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let started = (1..=8).map(|name| {
        let name = name.to_string();
        if name == "8" {
            start(kit, &route, "four_threads", &[])
        } else {
            start(kit, &route, "process", &[&name])
        }
    });
    for running in started.collect::<Result<Vec<_>>>()? {
        running.finish(LIMIT)?.expect_exit(0)?;
    }
    Ok(())
}

/// The names of its workers, which say their states.
fn names(daemon: &Daemon) -> Vec<String> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut names: Vec<_> = daemon.workers().iter().map(|pid| name(pid).trim().to_owned()).collect();
    names.sort();
    names
}

/// One waits; when a session has taken it, the next one is warmed.
fn workers_are_named_by_their_state(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    daemon(&mut route)?.wait_until("one is warm", SETTLE, |daemon| names(daemon) == ["cuda-warm"])?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    let replaced = |daemon: &Daemon| names(daemon) == ["cuda-session", "cuda-warm"];
    daemon(&mut route)?.wait_until("it is replaced", SETTLE, replaced)?;
    running.signal(libc::SIGKILL);
    running.finish(SETTLE)?;
    daemon(&mut route)?.wait_until("the session's is gone", SETTLE, |daemon| names(daemon) == ["cuda-warm"])
}

fn memory_limit(kit: &Kit) -> Result<()> {
    let options =
        DaemonOptions { arguments: vec!["--memory-limit".into(), "16M".into()], ..Default::default() };
    let route = route(kit, &options)?;
    finish(kit, &route, "copy_until_error", &["20000000"])?.expect_exit(1)?;
    let outcome = finish(kit, &route, "copy_until_error", &["20000000"])?;
    ensure!(outcome.stderr.contains("error 2 (cudaErrorMemoryAllocation)"), "{outcome}");
    // The program sees its limit as its memory.
    expect_good(kit, &route, "out_of_memory")?;
    expect_good(kit, &route, "copies")
}

fn memory_limit_is_per_session(kit: &Kit) -> Result<()> {
    let options =
        DaemonOptions { arguments: vec!["--memory-limit".into(), "16M".into()], ..Default::default() };
    let route = route(kit, &options)?;
    let holders = [1, 2].map(|_| start(kit, &route, "copy_until_error", &["12000000"]));
    for holder in holders {
        holder?.wait_for_stdout("copying", LIMIT)?;
    }
    Ok(())
}

/// It needs NVIDIA's private tables, and reports nothing but that a symbol is not found.
fn nvidias_runtime_is_named(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut folders = native_runtimes(&kit.programs);
    folders.push(kit.stack.guest_libraries());
    let mut command = route.command(&kit.programs.get("vector_add")?);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders)?);
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(1)?;
    let named = outcome.stderr.matches("libcudart.so.13 is NVIDIA's CUDA runtime").count();
    ensure!(named == 1, "the runtime is named {named} times\n{outcome}");
    Ok(())
}

/// Sessions are counted for a machine; every virtio-user process is one.
fn session_limit(kit: &Kit) -> Result<()> {
    let options =
        DaemonOptions { arguments: vec!["--max-sessions".into(), "1".into()], ..Default::default() };
    let route = route(kit, &options)?;
    let first = start(kit, &route, "copy_until_error", &[])?;
    first.wait_for_stdout("copying", LIMIT)?;
    expect_good(kit, &route, "add_one")
}

fn other_protocol_version(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let daemon = daemon(&mut route)?;
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    ensure!(frontend.config.protocol_version == PROTOCOL_VERSION, "{:?}", frontend.config);
    let reply = frontend.hello(PROTOCOL_VERSION + 41)?;
    ensure!(reply.status == REPLY_VERSION, "{reply:?}");
    let named = [format!("version {}", PROTOCOL_VERSION + 41), format!("speaks {PROTOCOL_VERSION}")];
    let logged = |daemon: &Daemon| named.iter().all(|text| daemon.log().contains(text));
    daemon.wait_until("the log names both versions", SETTLE, logged)?;
    expect_good(kit, &route, "add_one")
}
