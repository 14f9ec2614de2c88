// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs that are suspended at random moments while they compute. What they print must be the same as without.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::replaced::REPLACE;
use crate::{LIMIT, finish_case};

/// Programs of the table, with what each one has: threads and streams, events, graphs, a library, textures, pinned memory,
/// memory of `cuMemCreate`, memory that processes share, and pools.
const PROGRAMS: [&str; 12] = [
    "copies",
    "four_threads",
    "threads_share",
    "events_streams",
    "graphs",
    "captured_graphs",
    "blas",
    "textures",
    "pinned_memory",
    "virtual_memory",
    "sharing",
    "device_pools",
];
/// More of them, with random work of several threads in all kinds of memory, and transforms: the emulator takes minutes for that.
const ON_GPUS: [&str; 4] = ["random_streams", "fft", "managed_memory", "managed_moves"];
/// Some of them, for which host memory is ready as well.
const WITH_A_POOL: [&str; 2] = ["four_threads", "virtual_memory"];
/// The maximum pause between two suspensions.
const PAUSE_US: u64 = 6000;
/// A program runs until it has been suspended this often (`--rounds` changes it), at most `RUNS` times for each.
const ENOUGH: u64 = 5;
const RUNS: u64 = 60;

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("suspended::{program}"), move |kit| {
            prints_the_same(kit, program, Asked::Plain, &[])
        });
    }
    for program in ON_GPUS {
        let name = format!("suspended::{program}");
        if is_emulated() {
            suite.skip(name, "it takes minutes with the emulator");
        } else {
            suite.test(name, move |kit| prints_the_same(kit, program, Asked::Plain, &[]));
        }
    }
    for program in WITH_A_POOL {
        let pool = ["--suspend-pool", "16M", "--keep-contents", "0.1"];
        suite.test(format!("suspended::{program}_with_a_pool"), move |kit| {
            prints_the_same(kit, program, Asked::Plain, &pool)
        });
    }
    suite.test("suspended::to_pages_of_the_pool", to_pages_of_the_pool);
    suite.test("suspended::for_lack_of_memory_the_pool_is_given_up", for_lack_of_memory_the_pool_is_given_up);
    suite.test("suspended::work_that_does_not_end_goes_on", work_that_does_not_end_goes_on);
    suite.test("suspended::a_budget_is_kept", a_budget_is_kept);
}

/// The request that a program is suspended by, and what must come of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Its memory leaves the card.
    Plain,
    /// The driver's objects end, too.
    Deep,
    /// The same, where nothing would be lost.
    DeepIfPossible,
    /// Its session goes over to another worker.
    Renewed,
}

/// Runs a program of the table while it is suspended at random moments.
pub fn prints_the_same(kit: &Kit, program: &str, asked: Asked, options: &[&str]) -> Result<()> {
    let controlled = Controlled::start(kit, options, None)?;
    let Controlled { route, control, .. } = &controlled;
    let case = case(program);
    // Compiled before, so that suspensions begin with the program.
    let expected = finish_case(kit, route, case)?;
    let enough = effort::rounds(ENOUGH)?;
    let (is_over, suspensions, runs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let suspending = scope.spawn(|| {
            let mut random = 7_u64;
            let mut last = None;
            let mut counted = HashMap::new();
            while !is_over.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Sessions come and go meanwhile.
                let is_deep = asked != Asked::Plain;
                let request = match asked {
                    Asked::Renewed => r#"{"do":"renew","all":true,"timeout_ms":2000}"#.to_owned(),
                    _ => format!(r#"{{"do":"suspend","all":true,"timeout_ms":2000,"deep":{is_deep}}}"#),
                };
                let asked_at = Instant::now();
                let answer = control.ask(&request);
                let moving = asked_at.elapsed();
                let sessions = answer.ok().and_then(|answer| answer["sessions"].as_array().cloned());
                let new = |session: &Value| match asked {
                    Asked::Deep => u64::from(session["deep"] == true),
                    _ => {
                        let counter = if asked == Asked::Renewed { "renewals" } else { "suspensions" };
                        let all = session[counter].as_u64().unwrap_or_default();
                        let before = counted.insert(session["session"].as_u64(), all);
                        all.saturating_sub(before.unwrap_or_default())
                    }
                };
                let moved = sessions.iter().flatten().map(new).sum();
                suspensions.fetch_add(moved, Ordering::Relaxed);
                last = sessions;
                // The program runs for longer than its moves take, or it would not get on: moves take long beside other programs on a
                // GPU, and deep ones make the driver's objects again.
                let times = if is_deep { 4 } else { 2 };
                thread::sleep(times * moving + Duration::from_micros((random >> 33) % PAUSE_US));
            }
            last
        });
        let all = (0..RUNS.saturating_mul(enough)).try_for_each(|run| {
            if run > 0 && suspensions.load(Ordering::Relaxed) >= enough {
                return Ok(());
            }
            runs.fetch_add(1, Ordering::Relaxed);
            let outcome = finish_case(kit, route, case)?;
            outcome.expect_exit(case.exit)?;
            ensure!(
                outcome.stdout == expected.stdout,
                "without suspensions:\n{expected}\nwith them:\n{outcome}"
            );
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let last = suspending.join();
        all.with_context(|| format!("{suspensions:?} suspensions in {runs:?} runs, the last: {last:?}"))
    })?;
    let (suspensions, runs) = (suspensions.into_inner(), runs.into_inner());
    eprintln!("{program}: {suspensions} suspensions in {runs} runs");
    ensure!(suspensions >= enough, "it was suspended {suspensions} times: the test shows nothing");
    Ok(())
}

/// A kernel that does not end before the time limit leaves the session as it is.
fn work_that_does_not_end_goes_on(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &["--time-limit", "20"], None)?;
    let Controlled { route, control, .. } = &controlled;
    let running = crate::start(kit, route, "long_work", &["endless"])?;
    running.wait_for_stdout("started", LIMIT)?;
    let answer = control.ask(r#"{"do":"suspend","all":true,"timeout_ms":300}"#)?;
    ensure!(answer["ok"] == false && control.state_of(running.pid())? == "running", "{answer}");
    running.finish(LIMIT)?.expect_exit(0)
}

/// A suspension that would take more host memory than allowed leaves the session as it is.
fn a_budget_is_kept(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &["--suspend-memory", "1M"], None)?;
    let Controlled { route, control, .. } = &controlled;
    let running = crate::start(kit, route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    for _ in 0..5 {
        let answer = control.ask(r#"{"do":"suspend","all":true,"timeout_ms":5000}"#)?;
        ensure!(answer["ok"] == false, "{answer}");
        let text = answer.to_string();
        ensure!(text.contains("host memory"), "{answer}");
    }
    ensure!(control.state_of(running.pid())? == "running", "it goes on");
    Ok(())
}

/// Contents go to pages that are ready, which stay with the worker when they end, also while the daemon's program is replaced.
fn to_pages_of_the_pool(kit: &Kit) -> Result<()> {
    let options = ["--suspend-pool", "64M", "--suspend-memory", "64M", "--keep-contents", "0"];
    let mut controlled = Controlled::start_copy(kit, &options)?;
    let program = controlled.program(kit, &["16", "idle"])?;
    let full = |controlled: &mut Controlled| {
        controlled.wait_until("its pages are ready", &program, |session| {
            session["ready_bytes"].as_u64() >= Some(16 << 20)
        })
    };
    full(&mut controlled)?;
    let before = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(
        before["pool_limit"] == 64 << 20 && before["host_memory_used"].as_u64() >= Some(16 << 20),
        "{before}"
    );
    for _ in 0..3 {
        let away = controlled.ask(r#"{"do":"suspend","all":true}"#)?;
        let stored = away["sessions"][0]["stored_bytes"].as_u64().unwrap_or_default();
        let ready = |answer: &Value| answer["pool_ready"].as_u64().unwrap_or_default();
        ensure!(stored >= 16 << 20, "{away}");
        ensure!(ready(&away) + stored == ready(&before), "it took new pages: {before}\n{away}");
        controlled.ask(REPLACE)?;
        let replaced = controlled.ask(r#"{"do":"status"}"#)?;
        for answer in [&away, &replaced] {
            ensure!(answer["host_memory_used"] == before["host_memory_used"], "{before}\n{answer}");
        }
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
        full(&mut controlled)?;
    }
    finish(program)
}

/// A suspension for which there is no host memory beside the pool gets that of the pool.
fn for_lack_of_memory_the_pool_is_given_up(kit: &Kit) -> Result<()> {
    let options = ["--suspend-pool", "32M", "--suspend-memory", "32M"];
    let mut controlled = Controlled::start(kit, &options, None)?;
    let programs = [controlled.program(kit, &["24", "idle"])?, controlled.program(kit, &["24", "idle"])?];
    controlled.wait_until("the pool is divided", &programs[1], |session| {
        session["ready_bytes"].as_u64() >= Some(2 << 20)
    })?;
    let pid = programs[0].pid();
    let session = &controlled.control.session_of(pid)?["session"];
    let answer = controlled.ask(&format!("{{\"do\":\"suspend\",\"session\":{session}}}"))?;
    ensure!(answer["sessions"][0]["state"] == "suspended", "{answer}");
    let used = answer["host_memory_used"].as_u64();
    ensure!(used >= Some(24 << 20) && used <= Some(32 << 20), "{answer}");
    programs.into_iter().try_for_each(finish)
}
