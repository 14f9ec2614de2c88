// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs make no more calls, copy no more bytes, use no more memory and wait no more often than necessary.

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::fatbin;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, SETTLE, daemon, expect_good, finish, route};

pub fn collect(suite: &mut Suite) {
    suite.test("constant_answers_cost_one_call", constant_answers_cost_one_call);
    suite.test("a_launch_of_a_graph_costs_one_call", a_launch_of_a_graph_costs_one_call);
    suite.test("equal_tensor_maps_are_encoded_once", equal_tensor_maps_are_encoded_once);
    suite.test("launches_allocate_nothing", launches_allocate_nothing);
    suite.test("functions_of_graphs_are_forgotten", functions_of_graphs_are_forgotten);
    suite.test("short_copies_are_waited_for_by_a_word", short_copies_are_waited_for_by_a_word);
    suite.test("launches_are_prepared", launches_are_prepared);
    suite.test("nothing_is_faster_on_request", nothing_is_faster_on_request);
    suite.test("streams_do_not_wait_for_copies_of_others", streams_do_not_wait_for_copies_of_others);
    suite.test("fat_binary_arrives_byte_for_byte", fat_binary_arrives_byte_for_byte);
    suite.test("an_image_crosses_once", an_image_crosses_once);
}

/// Properties, attributes, names and versions of a device come from one reply, independent of the program's queries.
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

/// The program encodes two maps a hundred times, besides some thirty others.
fn equal_tensor_maps_are_encoded_once(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("tensor_copies")?);
    let outcome = run(command.env("VIRTIO_CUDA_LOG", "trace"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    let calls = outcome.stderr.matches("] cuTensorMapEncodeTiled:").count();
    ensure!((1..60).contains(&calls), "{calls} calls encode maps\n{outcome}");
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

/// Also those that were put into an executable graph, and those replaced while it ran.
fn functions_of_graphs_are_forgotten(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("exec_functions")?);
    let outcome = run(command.env("VIRTIO_CUDA_LOG", "libcuda::state::callbacks=trace"), "", LIMIT)?;
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

/// Runs cases with a daemon that has these arguments, and returns its log.
fn log_of_cases(kit: &Kit, arguments: &[&str], names: &[&str]) -> Result<String> {
    let arguments = arguments.iter().map(|&argument| argument.into()).collect();
    let mut route = route(kit, &DaemonOptions { arguments, ..DaemonOptions::default() })?;
    for name in names {
        let case = case(name);
        let outcome = finish(kit, &route, case.program, case.args)?;
        outcome.expect_exit(case.exit)?;
        let expected = case.expected_stdout().context("The case has an expected output")?;
        ensure!(outcome.stdout == expected, "{name} prints something else\n{outcome}");
    }
    Ok(daemon(&mut route)?.log())
}

fn short_copies_are_waited_for_by_a_word(kit: &Kit) -> Result<()> {
    let names = [
        "pinned_memory",
        "copies",
        "error_semantics",
        "device_printf",
        "capture",
        "forks",
        "copies_in_streams",
        "implicit_order",
        "random_streams",
        "short_waits",
        "host_functions",
        "threads_share",
        "per_thread_stream",
        "managed_moves",
        "device_assert",
    ];
    let log = log_of_cases(kit, &[], &names)?;
    ensure!(log.contains("a thread waits by a word"), "nobody waits by a word\n{log}");
    ensure!(!log.contains("cannot write a word"), "the device cannot write it\n{log}");
    Ok(())
}

/// With the emulator all launches are, from the first one.
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
    let log = log_of_cases(kit, &[], &names)?;
    ensure!(log.contains("a function is prepared: Ok(())"), "nothing is prepared\n{log}");
    ensure!(!log.contains("does not end"), "the driver refuses to end one\n{log}");
    Ok(())
}

fn nothing_is_faster_on_request(kit: &Kit) -> Result<()> {
    let log = log_of_cases(kit, &["--speed", "off"], &["repeated_launches", "short_waits"])?;
    for text in ["a function is prepared", "a thread waits by a word"] {
        ensure!(!log.contains(text), "`{text}` with --speed off\n{log}");
    }
    Ok(())
}

fn streams_do_not_wait_for_copies_of_others(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let outcome = finish(kit, &route, "copies_in_streams", &[])?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stderr.contains("the first stream is still held"), "it was waited for\n{outcome}");
    Ok(())
}

/// The worker loads the program's registered container exactly as it lies in the executable.
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
