// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs that are suspended at random moments while they compute. What they print must be the same as without.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::Controlled;
use crate::{LIMIT, finish_case};

/// Programs of the table, with what each one has: threads and streams, events, graphs, a library, textures, pinned memory,
/// memory of `cuMemCreate`, and memory that processes share.
const PROGRAMS: [&str; 11] = [
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
];
/// The maximum pause between two suspensions.
const PAUSE_US: u64 = 6000;
/// A program runs until it has been suspended this often, at most `ROUNDS` times.
const ENOUGH: u64 = 5;
const ROUNDS: u32 = 20;

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("suspended::{program}"), move |kit| prints_the_same(kit, program, Asked::Plain));
    }
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
}

/// Runs a program of the table while it is suspended at random moments.
pub fn prints_the_same(kit: &Kit, program: &str, asked: Asked) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let Controlled { route, control, .. } = &controlled;
    let case = case(program);
    // Compiled before, so that suspensions begin with the program.
    let expected = finish_case(kit, route, case)?;
    let (is_over, suspensions) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 7_u64;
            while !is_over.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Sessions come and go meanwhile.
                let is_deep = asked != Asked::Plain;
                let request = format!(r#"{{"do":"suspend","all":true,"timeout_ms":2000,"deep":{is_deep}}}"#);
                let answer = control.ask(&request);
                let sessions = answer.ok().and_then(|answer| answer["sessions"].as_array().cloned());
                let counts = |session: &Value| match asked {
                    Asked::Deep => session["deep"] == true,
                    _ => session["suspensions"].as_u64() > Some(0),
                };
                let moved = sessions.iter().flatten().any(counts);
                suspensions.fetch_add(moved.into(), Ordering::Relaxed);
                thread::sleep(Duration::from_micros((random >> 33) % PAUSE_US));
            }
        });
        let all = (0..ROUNDS).try_for_each(|round| {
            if round > 0 && suspensions.load(Ordering::Relaxed) >= ENOUGH {
                return Ok(());
            }
            let outcome = finish_case(kit, route, case)?;
            outcome.expect_exit(case.exit)?;
            ensure!(
                outcome.stdout == expected.stdout,
                "without suspensions:\n{expected}\nwith them:\n{outcome}"
            );
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        all
    })?;
    let suspensions = suspensions.into_inner();
    ensure!(suspensions >= ENOUGH, "it was suspended {suspensions} times: the test shows nothing");
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
