// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Profiles that the operator and the user take of programs that were not prepared for it, and of programs that the user starts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_profile::event::{Batch, Event, Kind};
use vhost_cuda_profile::reader;
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::{LIMIT, SETTLE, daemon, route};

/// The kernel of the program that is recorded.
const KERNEL: &str = "change";
/// The difference of two clocks that show the same time, at most, in nanoseconds: a comparison may be interrupted for that long.
const NEAR: u64 = 10_000_000_000;
/// Times that `ctl trace` is tried until the program has made calls meanwhile: a busy machine may take long for one.
const TRIES: u32 = 20;

pub fn collect(suite: &mut Suite) {
    if is_emulated() {
        suite.test(
            "profiles::tables_and_timeline_of_a_running_program",
            tables_and_timeline_of_a_running_program,
        );
        suite.test("profiles::moves_and_gates", moves_and_gates);
        suite.test("profiles::in_the_guest", in_the_guest);
        suite.test("profiles::attached_in_the_guest", attached_in_the_guest);
        suite.test("profiles::ranges_of_nvtx", ranges_of_nvtx);
        suite.test("profiles::a_profiler_of_the_users_own", a_profiler_of_the_users_own);
    } else {
        suite.skip("profiles", "it has not run on a GPU");
    }
}

/// A recording, by a client of the control socket.
struct Recorder {
    lines: BufReader<UnixStream>,
    /// All that has come so far.
    events: Vec<Event>,
}

impl Recorder {
    fn start(controlled: &Controlled, request: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(controlled.socket())?;
        stream.set_read_timeout(Some(LIMIT))?;
        writeln!(stream, "{request}")?;
        Ok(Self { lines: BufReader::new(stream), events: Vec::new() })
    }

    /// Reads until an event is the one that is looked for. It may be one that came earlier.
    fn wait_for(&mut self, what: &str, is_there: impl Fn(&Event) -> bool) -> Result<Event> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(event) = self.events.iter().find(|event| is_there(event)) {
                return Ok(event.clone());
            }
            // The daemon sends a line at least once per second.
            ensure!(Instant::now() < deadline, "no sign of {what}");
            let mut line = String::new();
            self.lines.read_line(&mut line).with_context(|| format!("waiting for {what}"))?;
            let batch: Batch = serde_json::from_str(&line).with_context(|| format!("{what}: {line}"))?;
            ensure!(batch.no_gpu.is_none(), "{batch:?}");
            self.events.extend(batch.events);
        }
    }
}

fn tables_and_timeline_of_a_running_program(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let programs = [controlled.program(kit, &["1", "work"])?, controlled.program(kit, &["1", "work"])?];
    let folder = tempfile::tempdir()?;
    let (socket, file) = (controlled.socket(), folder.path().join("all.pftrace"));
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(kit.stack.daemon());
        run(command.arg("ctl").arg("--control").arg(&socket).arg("trace").args(arguments), "", LIMIT)
    };
    ctl(&["--session", "999"])?.expect_exit(1)?;
    for _ in 0..TRIES {
        let outcome = ctl(&["--all", "--seconds", "0.5", "--trace", &file.display().to_string()])?;
        outcome.expect_exit(0)?;
        let slices = reader::slices(&fs::read(&file)?).map_err(anyhow::Error::msg)?;
        let kernels: Vec<_> = slices.iter().filter(|slice| slice.name == KERNEL).collect();
        let processes: BTreeSet<_> = kernels.iter().map(|slice| slice.pid).collect();
        if processes.len() < programs.len() {
            continue;
        }
        let pids: BTreeSet<_> = programs.iter().map(|program| program.pid().cast_signed()).collect();
        ensure!(processes == pids, "{processes:?}, {pids:?}");
        for kernel in kernels {
            ensure!(
                kernel.row.starts_with("GPU 0, stream ") && kernel.time[1] > kernel.time[0],
                "{kernel:?}"
            );
        }
        let call = slices.iter().find(|slice| slice.name == "cuLaunchKernel").context("no launches")?;
        ensure!(call.row.starts_with("lane ") && call.category == "call", "{call:?}");
        let lines: Vec<_> = outcome.stdout.lines().collect();
        ensure!(lines.first() == Some(&"Kernels:"), "{outcome}");
        ensure!(lines.iter().any(|line| line.ends_with("  change")), "{outcome}");
        ensure!(lines.contains(&"Calls in the worker:"), "{outcome}");
        let csv = ctl(&["--all", "--seconds", "0.1", "--csv"])?;
        ensure!(csv.stdout.starts_with("table,share,total_ns,count,"), "{csv}");
        return programs.into_iter().try_for_each(finish);
    }
    bail!("{TRIES} profiles without a kernel of each program")
}

fn moves_and_gates(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["1", "work"])?;
    let session = controlled.control.session_of(program.pid())?["session"].clone();
    let request = format!(r#"{{"do":"trace","session":{session},"time_ms":600000}}"#);
    let mut recorder = Recorder::start(&controlled, &request)?;
    recorder.wait_for("a kernel", |event| event.kind == Kind::Kernel && event.name == KERNEL)?;
    // A second one gets the same events.
    let mut second = Recorder::start(&controlled, &request)?;
    second.wait_for("a kernel in the second recording", |event| event.name == KERNEL)?;
    drop(second);
    controlled.ask(&format!(r#"{{"do":"suspend","session":{session},"timeout_ms":60000}}"#))?;
    let out = recorder.wait_for("a move", |event| event.kind == Kind::Move)?;
    ensure!(out.name == "to host memory" && out.bytes >= 1 << 20, "{out:?}");
    // Its next call brings it back, and has waited.
    let gate = recorder.wait_for("a wait", |event| event.kind == Kind::Gate && event.end > out.end)?;
    ensure!(gate.name == "suspended" && gate.end > gate.begin, "{gate:?}");
    recorder.wait_for("calls after it", |event| event.kind == Kind::Call && event.begin > gate.end)?;
    // A client that hangs up ends the recording, and its thread in the worker.
    drop(recorder);
    daemon(&mut controlled.route)?.wait_until(
        "the recording has ended",
        SETTLE.max(Duration::from_secs(30)),
        |daemon| daemon.workers().into_iter().map(profile_threads).sum::<usize>() == 0,
    )?;
    finish(program)
}

/// Returns the number of threads of a worker that record.
fn profile_threads(pid: u32) -> usize {
    let names = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.filter(|name| name.trim() == "profile").count()
}

/// `vhost-cuda-prof`, over virtio-user.
fn profiled(
    kit: &Kit,
    route: &Route,
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> Result<Outcome> {
    let mut command = route.command(&kit.stack.profiler());
    run(command.args(options).arg(program).args(arguments), "", LIMIT)
}

fn in_the_guest(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let (folder, program) = (tempfile::tempdir()?, kit.programs.get("copies")?);
    let [tables, trace] = ["tables", "trace"].map(|name| folder.path().join(name));
    let plain = run(&mut route.command(&program), "", LIMIT)?;
    let options =
        ["--csv", "--output", &tables.display().to_string(), "--trace", &trace.display().to_string()];
    let outcome = profiled(kit, &route, &options, &program, &[])?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == plain.stdout && outcome.stderr == plain.stderr, "{outcome}");
    let tables = fs::read_to_string(&tables)?;
    // Copies of pageable memory may be split, so only names count here.
    for begin in ["Copies,", "API calls,"] {
        ensure!(tables.lines().any(|line| line.starts_with(begin)), "{tables}");
    }
    for name in ["\"cudaMemcpy\"", "\"host to device\"", "\"device to host\""] {
        ensure!(tables.lines().any(|line| line.ends_with(name)), "no {name}:\n{tables}");
    }
    let slices = reader::slices(&fs::read(&trace)?).map_err(anyhow::Error::msg)?;
    let call = slices.iter().find(|slice| slice.name == "cudaMemcpy").context("no calls in the timeline")?;
    ensure!(call.row.starts_with("API, thread ") && call.process == "copies", "{call:?}");
    let work = slices.iter().find(|slice| slice.category == "copy").context("no copies in the timeline")?;
    ensure!(work.row.starts_with("GPU 0, stream "), "{work:?}");
    let call = slices.iter().find(|slice| slice.category == "call").context("no lanes in the timeline")?;
    ensure!(call.row.starts_with("lane ") && call.process == "copies", "{call:?}");
    ensure!(!slices.iter().any(|slice| slice.name.starts_with("profile_")), "{slices:?}");
    // All are on one clock: work and lanes lie within the program's time, and the clocks of other machines elsewhere.
    let api = || slices.iter().filter(|slice| slice.category == "api").map(|slice| slice.time);
    let begin = api().map(|[begin, _]| begin).min().context("no calls")?.saturating_sub(NEAR);
    let end = api().map(|[_, end]| end).max().context("no calls")? + NEAR;
    let outside = slices.iter().find(|slice| slice.time[0] < begin || slice.time[1] > end);
    ensure!(outside.is_none(), "{outside:?} is not within {begin} and {end}");

    profiled(kit, &route, &[], Path::new("/bin/sh"), &["-c", "exit 3"])?.expect_exit(3)?;
    profiled(kit, &route, &[], Path::new("/no/such/program"), &[])?.expect_exit(127)
}

/// `vhost-cuda-prof --pid`, of a program that was not started by it.
fn attached_in_the_guest(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["1", "work"])?;
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace");
    let attach = |pid: u32, options: &[&str]| {
        let mut command = controlled.route.command(&kit.stack.profiler());
        command.arg("--pid").arg(pid.to_string()).args(["--seconds", "0.5"]).args(options);
        run(&mut command, "", LIMIT)
    };
    let unknown = attach(1, &[])?;
    unknown.expect_exit(125)?;
    ensure!(unknown.stderr.contains("Process 1 has no session"), "{unknown}");
    for _ in 0..TRIES {
        let outcome = attach(program.pid(), &["--trace", &trace.display().to_string()])?;
        outcome.expect_exit(0)?;
        let slices = reader::slices(&fs::read(&trace)?).map_err(anyhow::Error::msg)?;
        let Some(kernel) = slices.iter().find(|slice| slice.name == KERNEL) else { continue };
        ensure!(kernel.pid == program.pid().cast_signed(), "{kernel:?}");
        ensure!(slices.iter().any(|slice| slice.category == "call"), "no calls: {slices:?}");
        ensure!(outcome.stderr.contains("Calls in the worker:"), "{outcome}");
        // Nothing is left of the recording, and the profiler's session has ended.
        daemon(&mut controlled.route)?.wait_until("the recording has ended", SETTLE, |daemon| {
            daemon.workers().into_iter().map(profile_threads).sum::<usize>() == 0
        })?;
        return finish(program);
    }
    bail!("{TRIES} profiles without a kernel")
}

fn ranges_of_nvtx(kit: &Kit) -> Result<()> {
    let (folder, program) = (tempfile::tempdir()?, kit.programs.get("ranges")?);
    let (trace, route) = (folder.path().join("trace"), route(kit, &DaemonOptions::default())?);
    let outcome = profiled(kit, &route, &["--trace", &trace.display().to_string()], &program, &[])?;
    outcome.expect_exit(0)?;
    for line in [
        "Ranges:",
        "  training:inner?",
        "  outer",
        "Ranges that were started and ended:",
        "  training:second",
    ] {
        ensure!(outcome.stderr.lines().any(|told| told.ends_with(line)), "no {line}: {outcome}");
    }
    let slices = reader::slices(&fs::read(&trace)?).map_err(anyhow::Error::msg)?;
    let range = |name: &str, row: &str| {
        let found = slices.iter().find(|slice| slice.name == name && slice.row.starts_with(row));
        found.with_context(|| format!("no range {name}: {slices:?}"))
    };
    let (outer, inner) = (range("outer", "NVTX, thread ")?, range("inner?", "NVTX training, thread ")?);
    ensure!(outer.time[0] <= inner.time[0] && outer.time[1] <= inner.time[1], "{outer:?}, {inner:?}");
    let mark = range("launch", "NVTX, thread ")?.time;
    ensure!(
        outer.time[0] <= mark[0] && mark[0] == mark[1] && mark[1] <= outer.time[1],
        "{outer:?}, {mark:?}"
    );
    let (first, second) = (range("first", "NVTX ranges")?, range("second", "NVTX training ranges")?);
    ensure!(first.time[0] <= second.time[0] && first.time[1] <= second.time[1], "{first:?}, {second:?}");
    ensure!(inner.notes == notes(&[("category", "data"), ("payload", "-42")]), "{inner:?}");
    ensure!(second.notes == notes(&[("category", "7")]), "{second:?}");
    ensure!(slices.iter().filter(|slice| slice.category == "span").count() == 2, "{slices:?}");
    let kernel = slices.iter().find(|slice| slice.category == "kernel").context("no kernel")?;
    ensure!(kernel.name == "add_one", "{kernel:?}");
    Ok(())
}

fn notes(notes: &[(&str, &str)]) -> Vec<(String, String)> {
    notes.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// A profiler of the user's own, in the ways of parcagpu: `cuInit` loads it, and it asks CUPTI for launches, contexts and modules, and
/// for kernels. It takes ranges from NVTX, too. Its words go to standard error when the program ends.
const INJECTED: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static void *cupti;
static int launches, kernels, pushed, popped, contexts, modules;
static char symbol[64], range[64];
typedef int (*Call)();
static Call find(const char *name) {
    void *found = dlsym(cupti, name);
    if (!found) fprintf(stderr, "no %s\n", name), exit(1);
    return (Call)found;
}
static void request(uint8_t **buffer, size_t *bytes, size_t *records) {
    *bytes = 1 << 16, *records = 0, *buffer = aligned_alloc(8, *bytes);
}
static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
    uint8_t *record = 0;
    while (!find("cuptiActivityGetNextRecord")(buffer, valid, &record)) kernels += *(uint32_t *)record == 10;
    free(buffer);
}
struct Data { int site; const char *function; const void *parameters; void *result; const char *symbol; };
static void called(void *user, int domain, uint32_t id, const struct Data *data) {
    if (domain == 3) contexts += id == 1, modules += id == 6;
    if (domain == 2 && data->site == 1) launches++;
    if (domain == 2 && data->symbol) snprintf(symbol, sizeof symbol, "%s", data->symbol);
}
static void at_exit(void) {
    find("cuptiActivityFlushAll")(1);
    fprintf(stderr, "launches %d of %s, kernels %d, contexts %d, modules %s\n", launches, symbol, kernels, contexts, modules ? "some" : "none");
    fprintf(stderr, "ranges %d %d, the last one is %s\n", pushed, popped, range);
}
int InitializeInjection(void) {
    void *subscriber;
    cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (!cupti) return 0;
    int errors = find("cuptiSubscribe")(&subscriber, called, NULL);
    errors |= find("cuptiEnableCallback")(1, subscriber, 2, 211);
    errors |= find("cuptiEnableDomain")(1, subscriber, 3);
    errors |= find("cuptiActivityRegisterCallbacks")(request, complete);
    errors |= find("cuptiActivityEnable")(10);
    if (errors) fprintf(stderr, "CUPTI refuses: %d\n", errors);
    atexit(at_exit);
    return !errors;
}
static int push(const char *text) { return snprintf(range, sizeof range, "%s", text), pushed++; }
static int pop(void) { return popped++, 0; }
struct Callbacks { size_t bytes; int (*table)(uint32_t, void ****, unsigned *); };
int InitializeInjectionNvtx2(const struct Callbacks *(*export)(uint32_t)) {
    void ***table;
    unsigned length;
    if (!export(1)->table(1, &table, &length) || length < 12) return 0;
    *table[9] = push, *table[11] = pop;
    return 1;
}
"#;

fn a_profiler_of_the_users_own(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [source, library] = ["profiler.c", "libprofiler.so"].map(|name| folder.path().join(name));
    fs::write(&source, INJECTED)?;
    let mut cc = Command::new("cc");
    cc.args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    run(&mut cc, "", LIMIT)?.expect_exit(0)?;
    let route = route(kit, &DaemonOptions::default())?;
    let mut command = route.command(&kit.programs.get("ranges")?);
    command.env("CUDA_INJECTION64_PATH", &library).env("NVTX_INJECTION64_PATH", &library);
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(0)?;
    let told = "launches 1 of _Z7add_onePi, kernels 1, contexts 1, modules some\nranges 1 1, the last one is outer\n";
    ensure!(outcome.stdout == "42\n" && outcome.stderr == told, "{outcome}");
    Ok(())
}
