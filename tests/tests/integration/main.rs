// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The daemon and the guest libraries together, without a virtual machine: what happens when processes, workers
//! and the daemon itself come, go and die.

mod environment;
mod library_variables;
mod managed;
mod metrics;
mod nccl;
mod old_root;
mod profilers;
mod shares;
mod static_runtimes;
mod time_limit;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::{Case, MANAGEMENT, ROBUST, case};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::fatbin;
use vhost_cuda_tests::frontend::FakeFrontend;
use vhost_cuda_tests::running::{Ended, Outcome, Running, run};
use vhost_cuda_tests::stack::{Route, SOCKET_VARIABLE, native_runtimes};
use vhost_cuda_tests::suite::{self, Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};
use virtio_cuda_protocol::transport::{PROTOCOL_VERSION, REPLY_VERSION};

/// The maximum time that one program may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The maximum time that a program may take to learn that the daemon or its worker is gone.
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
    suite.test("sigterm_ends_everything", sigterm_ends_everything);
    suite.test("no_daemon", no_daemon);
    suite.test("worker_killed", worker_killed);
    suite.test("daemon_killed_in_a_copy", daemon_killed_in_a_copy);
    suite.test("program_killed_in_a_copy", program_killed_in_a_copy);
    suite.test("program_killed_in_a_host_function", program_killed_in_a_host_function);
    suite.test("illegal_address_harms_nobody_else", illegal_address_harms_nobody_else);
    suite.test("eight_processes_at_once", eight_processes_at_once);
    suite.test("two_hundred_processes_leave_nothing", two_hundred_processes_leave_nothing);
    suite.test("abandoned_memory_is_freed", abandoned_memory_is_freed);
    suite.test("fat_binary_arrives_byte_for_byte", fat_binary_arrives_byte_for_byte);
    suite.test("an_image_crosses_once", an_image_crosses_once);
    suite.test("workers_are_named_by_their_state", workers_are_named_by_their_state);
    suite.test("memory_limit", memory_limit);
    suite.test("memory_limit_is_per_session", memory_limit_is_per_session);
    suite.test("session_limit", session_limit);
    suite.test("other_protocol_version", other_protocol_version);
    suite.test("constant_answers_cost_one_call", constant_answers_cost_one_call);
    suite.test("management_library", management_library);
    suite.test("a_launch_of_a_graph_costs_one_call", a_launch_of_a_graph_costs_one_call);
    suite.test("launches_allocate_nothing", launches_allocate_nothing);
    suite.test("functions_of_graphs_are_forgotten", functions_of_graphs_are_forgotten);
    suite.test("short_copies_are_waited_for_by_a_word", short_copies_are_waited_for_by_a_word);
    suite.test("launches_are_prepared", launches_are_prepared);
    suite.test("streams_do_not_wait_for_copies_of_others", streams_do_not_wait_for_copies_of_others);
    if native_runtimes(&suite.kit().programs).is_empty() {
        suite.skip("nvidias_runtime_is_named", "NVIDIA's libcudart.so.13 is not here");
    } else {
        suite.test("nvidias_runtime_is_named", nvidias_runtime_is_named);
    }
    suite.test("wrong_calls_crash_nothing", wrong_calls_crash_nothing);
    suite.test("broken_rules_are_reported", broken_rules_are_reported);
    environment::collect(suite);
    library_variables::collect(suite);
    managed::collect(suite);
    metrics::collect(suite);
    nccl::collect(suite);
    old_root::collect(suite);
    profilers::collect(suite);
    shares::collect(suite);
    static_runtimes::collect(suite);
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

/// The program does what the table says.
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

fn sigterm_ends_everything(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    let daemon = daemon(&mut route)?;
    let workers = daemon.workers();
    ensure!(!workers.is_empty(), "no worker is running");
    let status = daemon.stop()?;
    ensure!(status.success(), "SIGTERM: {status}\n{}", daemon.log());
    ensure!(!daemon.socket().exists(), "the socket is left behind");
    for worker in workers {
        ensure!(!Path::new(&format!("/proc/{worker}")).exists(), "worker {worker} is left behind");
    }
    let outcome = running.finish(LOSS)?;
    outcome.expect_exit(3)
}

fn no_daemon(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(kit.programs.get("add_one")?);
    command.env("LD_LIBRARY_PATH", kit.stack.guest_libraries());
    command.env(SOCKET_VARIABLE, folder.path().join("nobody"));
    let outcome = run(&mut command, "", LOSS)?;
    outcome.expect_exit(1)?;
    ensure!(outcome.stderr.contains("error 100 (cudaErrorNoDevice)"), "{outcome}");
    let said = run(command.env("VIRTIO_CUDA_LOG", "error"), "", LOSS)?;
    ensure!(said.stderr.contains("nobody"), "the log does not name the socket\n{said}");
    Ok(())
}

/// Properties, attributes, names and versions of a device come from one reply, whatever a program asks.
fn constant_answers_cost_one_call(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("device_query")?);
    let outcome = run(command.env("VIRTIO_CUDA_LOG", "trace"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    // `session_*` rows are the transport's own.
    let is_call = |line: &&str| line.contains("client::call] ") && !line.contains("] session_");
    let calls: Vec<&str> = outcome.stderr.lines().filter(is_call).collect();
    let snapshots = calls.iter().filter(|line| line.contains("device_snapshot")).count();
    ensure!(snapshots == 1, "{snapshots} calls for what is constant\n{outcome}");
    // The others: a context, its free memory and its limits.
    ensure!(calls.len() <= 5, "{} calls\n{outcome}", calls.len());
    Ok(())
}

/// NVML says what CUDA says, of this session's share, and does not start CUDA.
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

/// Parameters of a launch are packed where they cross, and nothing else of a launch needs memory.
fn launches_allocate_nothing(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let outcome = finish(kit, &route, "launch_allocations", &[])?;
    outcome.expect_exit(0)?;
    let expected = "first launches: allocate\n\
                    1000 launches: 0 allocations\n\
                    1000 launches with a long block: 0 allocations\n\
                    sum: 11011\n";
    ensure!(outcome.stdout == expected, "not:\n{expected}\n{outcome}");
    Ok(())
}

fn a_launch_of_a_graph_costs_one_call(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("graphs")?);
    let outcome = run(command.env("VIRTIO_CUDA_LOG", "trace"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    let calls: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("client::call] ")).collect();
    let is_launch = |line: &str| line.contains("cuGraphLaunch");
    let first = calls.iter().position(|line| is_launch(line)).context("no launch of a graph")?;
    // The program launches its first graph of five nodes three times, one right after the other; the functions in
    // it are asked for on another thread, and the executor may have to be woken.
    let aside = |line: &&&str| line.contains("session_next_callback") || line.contains("session_wait");
    let rest = calls[first..].iter().filter(|line| !aside(line));
    let launches = rest.take_while(|line| is_launch(line)).count();
    ensure!(launches == 3, "{launches} launches in a row\n{outcome}");
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

/// A rule that does not hold is reported, with what was expected and what came. A call that crashes does not hide others.
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

fn worker_killed(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    let other = start(kit, &route, "copy_until_error", &[])?;
    other.wait_for_stdout("copying", LIMIT)?;
    let before = daemon(&mut route)?.workers();
    let victim = start(kit, &route, "copy_until_error", &[])?;
    victim.wait_for_stdout("copying", LIMIT)?;
    let workers = daemon(&mut route)?.workers();
    let new: Vec<_> = workers.iter().filter(|pid| !before.contains(pid)).collect();
    ensure!(new.len() == 1, "workers {before:?}, then {workers:?}");
    kill(*new[0]);
    let outcome = victim.finish(LOSS)?;
    outcome.expect_exit(3)?;
    ensure!(!outcome.stdout.contains("then 0"), "a later call did not fail\n{outcome}");
    expect_good(kit, &route, "add_one")?;
    other.signal(libc::SIGTERM);
    ensure!(other.finish(SETTLE)?.ended == Ended::Signal(libc::SIGTERM), "another process was harmed");
    Ok(())
}

fn daemon_killed_in_a_copy(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    thread::sleep(Duration::from_millis(50));
    let workers = daemon(&mut route)?.workers();
    let killed = Instant::now();
    daemon(&mut route)?.kill();
    let outcome = running.finish(LOSS)?;
    outcome.expect_exit(3)?;
    ensure!(killed.elapsed() < LOSS, "it took {:?}", killed.elapsed());
    ensure!(!outcome.stdout.contains("then 0"), "a later call did not fail\n{outcome}");
    for worker in workers {
        wait_until_gone(worker)?;
    }
    daemon(&mut route)?.restart()?;
    expect_good(kit, &route, "add_one")
}

fn program_killed_in_a_copy(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    for _ in 0..3 {
        let running = start(kit, &route, "copy_until_error", &[])?;
        running.wait_for_stdout("copying", LIMIT)?;
        thread::sleep(Duration::from_millis(30));
        running.signal(libc::SIGKILL);
        ensure!(running.finish(SETTLE)?.ended == Ended::Signal(libc::SIGKILL), "not killed");
        daemon(&mut route)?
            .wait_until("its worker has ended", SETTLE, |daemon| daemon.workers().is_empty())?;
    }
    expect_good(kit, &route, "add_one")
}

fn program_killed_in_a_host_function(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    for _ in 0..2 {
        // The GPU waits for a function that never returns.
        let running = start(kit, &route, "host_functions", &["stuck"])?;
        running.wait_for_stdout("stuck", LIMIT)?;
        running.signal(libc::SIGKILL);
        ensure!(running.finish(SETTLE)?.ended == Ended::Signal(libc::SIGKILL), "not killed");
        daemon(&mut route)?
            .wait_until("its worker has ended", SETTLE, |daemon| daemon.workers().is_empty())?;
    }
    expect_good(kit, &route, "add_one")
}

fn illegal_address_harms_nobody_else(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let other = start(kit, &route, "copy_until_error", &[])?;
    other.wait_for_stdout("copying", LIMIT)?;
    expect_good(kit, &route, "illegal_address")?;
    expect_good(kit, &route, "vector_add")?;
    other.signal(libc::SIGTERM);
    ensure!(other.finish(SETTLE)?.ended == Ended::Signal(libc::SIGTERM), "another process was harmed");
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

fn two_hundred_processes_leave_nothing(kit: &Kit) -> Result<()> {
    // With one arena the allocator's mappings do not depend on how many threads met.
    let options =
        DaemonOptions { environment: vec![("MALLOC_ARENA_MAX".into(), "1".into())], ..Default::default() };
    let mut route = route(kit, &options)?;
    for _ in 0..3 {
        expect_good(kit, &route, "add_one")?;
    }
    let settled = daemon(&mut route)?;
    // The last program's worker ends, and a while after it was taken another one is warmed.
    thread::sleep(Duration::from_secs(1));
    settled.wait_until("one warm worker is left", SETTLE, |daemon| daemon.workers().len() == 1)?;
    thread::sleep(Duration::from_millis(200));
    let (files, maps, threads) =
        (settled.open_files(), lines(&settled.mapped_files()), threads(settled.pid()));
    let sockets = sockets_named(&settled.socket());
    for round in 0..200 {
        let name = if round % 10 == 9 { "exit_without_free" } else { "add_one" };
        expect_good(kit, &route, name).with_context(|| format!("process {round}"))?;
    }
    let daemon = daemon(&mut route)?;
    daemon.wait_until("one warm worker is left", SETTLE, |daemon| daemon.workers().len() == 1)?;
    daemon.wait_until("descriptors are closed", SETTLE, |daemon| daemon.open_files() <= files)?;
    daemon.wait_until("threads have ended", SETTLE, |daemon| self::threads(daemon.pid()) <= threads)?;
    let left = lines(&daemon.mapped_files());
    // The allocator may have grown; a leak would be one for each process.
    ensure!(left <= maps + 20, "{maps} mappings before, {left} after");
    ensure!(sockets_named(&daemon.socket()) <= sockets, "sockets are left behind");
    Ok(())
}

/// Memory of processes that did not free it is there for the next.
fn abandoned_memory_is_freed(kit: &Kit) -> Result<()> {
    let options = DaemonOptions {
        environment: vec![("CUDA_EMULATOR_MEMORY".into(), "64M".into())],
        ..Default::default()
    };
    let mut route = route(kit, &options)?;
    for _ in 0..5 {
        let running = start(kit, &route, "copy_until_error", &["40000000"])?;
        running.wait_for_stdout("copying", LIMIT)?;
        running.signal(libc::SIGKILL);
        running.finish(SETTLE)?;
    }
    daemon(&mut route)?
        .wait_until("one warm worker is left", SETTLE, |daemon| daemon.workers().len() == 1)?;
    expect_good(kit, &route, "out_of_memory")
}

/// The program's registered container, as it lies in the executable, is what the worker loads.
fn fat_binary_arrives_byte_for_byte(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    for name in ["vector_add", "double_math"] {
        let program = kit.programs.get(name)?;
        let outcome = run(route.command(&program).env("VIRTIO_CUDA_LOG", "debug"), "", LIMIT)?;
        outcome.expect_exit(0)?;
        let hashes = fatbin::hashes(&program)?;
        let said = hashes.iter().find(|hash| outcome.stderr.contains(*hash));
        let said = said.with_context(|| format!("The guest logs none of {hashes:?}\n{outcome}"))?;
        let log = daemon(&mut route)?.log();
        ensure!(log.contains(said), "the worker's log does not have {said}\n{log}");
    }
    Ok(())
}

/// The first process sends its image of 1 MiB, a later one its digest.
fn an_image_crosses_once(kit: &Kit) -> Result<()> {
    let crossed = |options: &DaemonOptions| -> Result<(f64, f64)> {
        let mut route = route(kit, options)?;
        let mut sent = |run: usize| -> Result<f64> {
            expect_good(kit, &route, "large_image")?;
            let daemon = daemon(&mut route)?;
            let ended = |daemon: &Daemon| megabytes_in(&daemon.log()).len() > run;
            daemon.wait_until("the session is reported", SETTLE, ended)?;
            Ok(megabytes_in(&daemon.log())[run])
        };
        Ok((sent(0)?, sent(1)?))
    };
    let (first, second) = crossed(&DaemonOptions::default())?;
    ensure!(first >= 1.0 && second < 0.1, "{first} MB, then {second} MB");
    let none = DaemonOptions { arguments: vec!["--image-cache".into(), "0".into()], ..Default::default() };
    let (first, second) = crossed(&none)?;
    ensure!(first > 2.0 && second > 2.0, "without a cache: {first} MB, then {second} MB");
    Ok(())
}

/// The input of each session that has ended, from `closed after 9 calls, 1.2 MB in`.
fn megabytes_in(log: &str) -> Vec<f64> {
    let figure = |line: &str| line.split(" MB in").next()?.rsplit(' ').next()?.parse().ok();
    log.lines().filter(|line| line.contains(" MB in")).filter_map(figure).collect()
}

/// One waits; when a session has taken it, the next one is warmed.
fn workers_are_named_by_their_state(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let names = |daemon: &Daemon| {
        let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut names: Vec<_> = daemon.workers().iter().map(|pid| name(pid).trim().to_owned()).collect();
        names.sort();
        names
    };
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
    // What a program is told of its memory is its limit.
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

/// Also those that were put into an executable graph, and those replaced while it ran.
fn functions_of_graphs_are_forgotten(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("exec_functions")?);
    let outcome = run(command.env("VIRTIO_CUDA_LOG", "libcuda::stream::callback=trace"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    let count = |what: &str| outcome.stderr.lines().filter(|line| line.ends_with(what)).count();
    let (kept, forgotten) = (count("is kept"), count("is forgotten"));
    ensure!(kept > 300 && kept == forgotten, "{kept} functions are kept, {forgotten} forgotten\n{outcome}");
    let step = |line: &str| i64::from(line.ends_with("is kept")) - i64::from(line.ends_with("is forgotten"));
    let at_once = outcome.stderr.lines().scan(0, |sum, line| {
        *sum += step(line);
        Some(*sum)
    });
    let at_once = at_once.max();
    ensure!(at_once < Some(150), "{at_once:?} functions are kept at the same time");
    Ok(())
}

/// Runs cases with a daemon that has `variable`, and returns its log.
fn log_of_cases_with(kit: &Kit, (variable, value): (&str, &str), names: &[&str]) -> Result<String> {
    let options =
        DaemonOptions { environment: vec![(variable.into(), value.into())], ..DaemonOptions::default() };
    let mut route = route(kit, &options)?;
    for name in names {
        let case = case(name);
        let outcome = finish(kit, &route, case.program, case.args)?;
        outcome.expect_exit(case.exit)?;
        let expected = case.expected_stdout().context("The case has an expected output")?;
        ensure!(outcome.stdout == expected, "{name} prints something else\n{outcome}");
    }
    Ok(daemon(&mut route)?.log())
}

/// With the emulator only on request; on a GPU every case does so.
fn short_copies_are_waited_for_by_a_word(kit: &Kit) -> Result<()> {
    let names = [
        "pinned_memory",
        "copies",
        "error_semantics",
        "device_printf",
        "capture",
        "forks",
        "copies_in_streams",
        "short_waits",
        "host_functions",
        "threads_share",
        "per_thread_stream",
        "managed_moves",
        "device_assert",
    ];
    let log = log_of_cases_with(kit, ("VHOST_CUDA_SIGNAL", "1"), &names)?;
    ensure!(log.contains("a thread waits by a word"), "nobody waits by a word\n{log}");
    ensure!(!log.contains("cannot write a word"), "the device cannot write it\n{log}");
    Ok(())
}

/// As above. All launches are prepared, from the first one.
fn launches_are_prepared(kit: &Kit) -> Result<()> {
    let names = [
        "repeated_launches",
        "error_semantics",
        "device_printf",
        "device_assert",
        "capture",
        "captured_graphs",
        "device_graphs",
        "dynamic_parallelism",
        "copies_in_streams",
        "green_contexts",
        "texture_references",
        "context_holders",
        "events_streams",
        "threads_share",
        "per_thread_stream",
        "crowds",
        "managed_moves",
        "several_devices",
    ];
    let log = log_of_cases_with(kit, ("VHOST_CUDA_PREPARE", "1"), &names)?;
    ensure!(log.contains("a function is prepared: Ok(())"), "nothing is prepared\n{log}");
    ensure!(!log.contains("does not end"), "the driver refuses to end one\n{log}");
    Ok(())
}

fn streams_do_not_wait_for_copies_of_others(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let outcome = finish(kit, &route, "copies_in_streams", &[])?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stderr.contains("the first stream is still held"), "it was waited for\n{outcome}");
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

fn no_warm_workers() -> Vec<String> {
    vec!["--warm-workers".into(), "0".into()]
}

fn kill(pid: u32) {
    // SAFETY: plain system call; the caller has just seen the process as a child of its own daemon.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

fn wait_until_gone(pid: u32) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        ensure!(Instant::now() < deadline, "worker {pid} outlives its daemon: {}", state());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Unix sockets of that name: the listening one and its connections.
fn sockets_named(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = path.display().to_string();
    table.lines().filter(|line| line.ends_with(&name)).count()
}
