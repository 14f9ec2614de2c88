// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sessions that get another worker while their programs run. What programs print must be the same as without.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::running::{Running, run};
use vhost_cuda_tests::suite::{Kit, Suite};

use super::ONE_GPU;
use crate::control::{Controlled, finish};
use crate::library_variables::compile;
use crate::replaced::REPLACE;
use crate::suspended::{Asked, prints_the_same};
use crate::{LIMIT, LOSS, daemon, expect_good};

/// Programs that get other workers at random moments.
const PROGRAMS: [&str; 12] = [
    "copies",
    "four_threads",
    "threads_share",
    "pinned_memory",
    "own_variables",
    "copied_symbols",
    "events_streams",
    "kept_graphs",
    "kept_library_graphs",
    "kept_random",
    "shared_rounds",
    "shared_rounds_events",
];
const RENEW: &str = r#"{"do":"renew","all":true}"#;
/// A cuRAND with generators, which it makes or, with a `STATUS`, does not.
const LIBRARY: &str = r#"
#include <stdlib.h>
int curandCreateGenerator(void **generator, int type) { *generator = malloc(1); return STATUS; }
int curandDestroyGenerator(void *generator) { free(generator); return 0; }
int curandSetPseudoRandomGeneratorSeed(void *generator, unsigned long long seed) { return 0; }
"#;
/// Makes a generator, and uses it when it is told to end.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
int main(void) {
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW), *library = dlopen("libcurand.so.10", RTLD_NOW);
    if (!runtime || !library) return 1;
    int (*release)(void *) = (int (*)(void *))dlsym(runtime, "cudaFree");
    int (*create)(void **, int) = (int (*)(void **, int))dlsym(library, "curandCreateGenerator");
    int (*set)(void *, unsigned long long) = (int (*)(void *, unsigned long long))dlsym(library, "curandSetPseudoRandomGeneratorSeed");
    sigset_t end;
    int got;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, 0);
    void *generator = 0;
    if (release(0) || create(&generator, 100)) return 2;
    puts("begun");
    fflush(stdout);
    sigwait(&end, &got);
    if (set(generator, 5)) return 3;
    puts("right");
    return 0;
}
"#;
const STATUS: &str = r#"{"do":"status"}"#;
const TIMES: u64 = 3;
const ROUNDS: u32 = 12;

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("renewed::{program}"), move |kit| {
            prints_the_same(kit, program, Asked::Renewed, &ONE_GPU)
        });
    }
    suite.test("renewed::sessions_are_as_they_were", sessions_are_as_they_were);
    suite.test("renewed::memory_of_reservations", memory_of_reservations);
    suite.test("renewed::text_of_device_code", text_of_device_code);
    suite.test("renewed::with_the_daemons_program", with_the_daemons_program);
    suite.test("renewed::a_session_that_cannot_leave_goes_on", a_session_that_cannot_leave_goes_on);
    suite.test(
        "renewed::a_session_that_cannot_be_made_again_goes_on",
        a_session_that_cannot_be_made_again_goes_on,
    );
    suite.test("renewed::programs_and_workers_end_at_any_moment", programs_and_workers_end_at_any_moment);
    let name = "renewed::memory_is_charged_once";
    if is_emulated() {
        suite.test(name, memory_is_charged_once);
    } else {
        suite.skip(name, "a context of the card takes more than its limits");
    }
}

/// The only session, as the daemon describes it.
fn session(controlled: &Controlled, request: &str) -> Result<Value> {
    Ok(controlled.ask(request)?["sessions"][0].clone())
}

/// The processes of workers that have a session.
fn workers(controlled: &mut Controlled) -> Result<Vec<u32>> {
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut workers = daemon(&mut controlled.route)?.workers();
    workers.retain(|pid| name(pid).trim() == "cuda-session");
    Ok(workers)
}

fn sessions_are_as_they_were(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["16", "idle"])?;
    let before = session(&controlled, STATUS)?;
    let mut seen = workers(&mut controlled)?;
    ensure!(seen.len() == 1, "{seen:?}");
    for state in ["running", "suspended", "held"] {
        if state != "running" {
            let hold = state == "held";
            controlled.ask(&format!(r#"{{"do":"suspend","all":true,"hold":{hold}}}"#))?;
        }
        let mut command = Command::new(kit.stack.daemon());
        let command = command.arg("ctl").arg("--control").arg(controlled.socket());
        run(command.args(["renew", "--all"]), "", LIMIT)?.expect_exit(0)?;
        controlled.expect_state(&program, state)?;
        let now = workers(&mut controlled)?;
        ensure!(now.len() == 1 && !seen.contains(&now[0]), "{now:?} after {seen:?}");
        seen.extend(now);
    }
    controlled.ask(r#"{"do":"resume","all":true}"#)?;
    let after = session(&controlled, STATUS)?;
    ensure!(after["renewals"] == TIMES && after["failures"] == 0, "{after}");
    ensure!(before["on_card_bytes"] == after["on_card_bytes"], "{before}, then {after}");
    finish(program)
}

/// Memory of `cuMemCreate` stays on the card, and is mapped at the same addresses by each worker, although the program has not asked
/// for files of it.
fn memory_of_reservations(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["32", "created"])?;
    for count in 1..=TIMES {
        let renewed = session(&controlled, RENEW)?;
        ensure!(renewed["renewals"] == count && renewed["copied_bytes"] == 0, "{renewed}");
    }
    finish(program)
}

/// The program fetches it from a worker that has not printed it.
fn text_of_device_code(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["16", "prints"])?;
    for count in 1..=TIMES {
        let renewed = session(&controlled, RENEW)?;
        ensure!(renewed["renewals"] == count, "{renewed}");
    }
    program.signal(libc::SIGTERM);
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == "begun\nprinted by the device\nright\n", "{outcome}");
    Ok(())
}

/// After a replacement of the daemon's program, sessions go over to workers of that program; and the other way round.
fn with_the_daemons_program(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start_copy(kit, &ONE_GPU)?;
    let program = controlled.program(kit, &["16", "work"])?;
    for count in 1..=TIMES {
        controlled.ask(REPLACE)?;
        let renewed = session(&controlled, RENEW)?;
        ensure!(renewed["renewals"] == count, "{renewed}");
    }
    // At the same time. Either may have to be repeated.
    let control = controlled.control.clone();
    let replacing = thread::spawn(move || (0..TIMES).filter(|_| control.ask(REPLACE).is_ok()).count());
    let renewed = (0..2 * TIMES).filter(|_| controlled.ask(RENEW).is_ok()).count();
    let replaced = replacing.join().ok().context("the client has failed")?;
    ensure!(renewed + replaced > 0, "neither was done");
    controlled.ask(RENEW)?;
    finish(program)
}

fn a_session_that_cannot_leave_goes_on(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["16", "link"])?;
    let before = workers(&mut controlled)?;
    let answer = controlled.control.ask(RENEW)?;
    let session = &answer["sessions"][0];
    ensure!(answer["ok"] == false && session["error"] == "links are not followed until they end", "{answer}");
    ensure!(session["state"] == "running" && workers(&mut controlled)? == before, "{answer}");
    finish(program)
}

/// Its worker keeps it if the other one cannot make its objects: here that one has another library.
fn a_session_that_cannot_be_made_again_goes_on(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("libraries");
    std::fs::create_dir(&path)?;
    let library = |status: &str| -> Result<()> {
        compile(folder.path(), "curand", LIBRARY, &["-shared", "-fPIC", &format!("-DSTATUS={status}")])?;
        Ok(std::fs::rename(folder.path().join("curand"), path.join("libcurand.so.10"))?)
    };
    library("0")?;
    compile(folder.path(), "program", PROGRAM, &["-ldl"])?;
    // A worker that is ready has opened the library before.
    let arguments = ["--warm-workers", "0", "--libraries", path.to_str().context("a path")?];
    let mut controlled = Controlled::start(kit, &[&ONE_GPU[..], &arguments].concat(), None)?;
    let program = Running::start(&mut controlled.route.command(&folder.path().join("program")), "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let before = workers(&mut controlled)?;
    // CURAND_STATUS_ARCH_MISMATCH
    library("204")?;
    for _ in 0..2 {
        let answer = controlled.control.ask(RENEW)?;
        let session = &answer["sessions"][0];
        let error = session["error"].as_str().unwrap_or_default();
        ensure!(answer["ok"] == false && error.contains("cannot be made again there"), "{answer}");
        ensure!(session["state"] == "running" && workers(&mut controlled)? == before, "{answer}");
    }
    library("0")?;
    let renewed = session(&controlled, RENEW)?;
    ensure!(renewed["renewals"] == 1 && workers(&mut controlled)? != before, "{renewed}");
    finish(program)
}

/// The machine has less memory than the session takes twice.
fn memory_is_charged_once(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[&ONE_GPU[..], &["--memory", "24M"]].concat(), None)?;
    let program = controlled.program(kit, &["16", "greedy"])?;
    for count in 1..=TIMES {
        let renewed = session(&controlled, RENEW)?;
        ensure!(renewed["renewals"] == count, "{renewed}");
    }
    finish(program)?;
    // All of it is free again.
    finish(controlled.program(kit, &["16", "idle"])?)
}

fn programs_and_workers_end_at_any_moment(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let mut random = fastrand::Rng::with_seed(56);
    let mut renewals = 0;
    let program = controlled.program(kit, &["16", "work"])?;
    let begun = Instant::now();
    controlled.ask(RENEW)?;
    let once = begun.elapsed().as_micros() as u64;
    finish(program)?;
    for round in 0..ROUNDS {
        let program = controlled.program(kit, &["16", "work"])?;
        let control = controlled.control.clone();
        let renewing = thread::spawn(move || {
            let mut count = 0;
            // Until the session has ended.
            while let Ok(answer) = control.ask(RENEW)
                && answer["sessions"] != Value::Array(vec![])
            {
                count = answer["sessions"][0]["renewals"].as_u64().unwrap_or(count);
            }
            count
        });
        thread::sleep(Duration::from_micros(random.u64(..3 * once)));
        // The program, or its workers: the old one, the fresh one, or both.
        match round % 3 {
            0 => program.signal(libc::SIGKILL),
            some => {
                let mut found = workers(&mut controlled)?;
                while found.is_empty() {
                    found = workers(&mut controlled)?;
                }
                let killed = if some == 1 { &found[..] } else { &found[found.len() - 1..] };
                for &worker in killed {
                    // SAFETY: a plain system call; a worker that has ended is not there.
                    unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
                }
            }
        }
        if round % 3 == 2 {
            // It goes on if that was the fresh one.
            program.signal(libc::SIGTERM);
        }
        let outcome = program.finish(LOSS)?;
        ensure!(round % 3 == 2 || !outcome.stdout.contains("right"), "{outcome}");
        renewals += renewing.join().ok().context("the client has failed")?;
        ensure!(daemon(&mut controlled.route)?.is_running(), "the daemon has ended");
    }
    controlled.wait_for_end()?;
    let answer = controlled.ask(STATUS)?;
    ensure!(answer["host_memory_used"] == 0, "{answer}");
    ensure!(workers(&mut controlled)?.is_empty(), "a worker is left");
    eprintln!("{renewals} renewals in {ROUNDS} rounds");
    ensure!(renewals > 0, "no session has got another worker: the test shows nothing");
    expect_good(kit, &controlled.route, "add_one")
}
