// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Deep suspensions: the driver's objects of a session end, too, and are made again. What programs print must be the same as without.

mod moved;
mod renewed;
mod saved;
mod settings;

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::replaced::REPLACE;
use crate::suspended::{Asked, prints_the_same};
use crate::{LIMIT, LOSS, daemon, expect_good, start};

/// Programs that are suspended deeply at random moments.
const PROGRAMS: [&str; 15] = [
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
    "blas",
    "fft",
    "solver_generic",
    "sparse_vectors",
    "textures",
];
/// Programs with something that is not made again: their sessions are suspended as usual.
const OTHERS: [&str; 4] = ["graphs", "random", "virtual_memory", "symbols"];
const DEEPLY: &str = r#"{"do":"suspend","all":true,"deep":true}"#;
const ROUNDS: u32 = 20;
/// A pause that the times of events must have in them.
const PAUSE: Duration = Duration::from_millis(200);
/// The only one of the program, which a session may use.
pub const ONE_GPU: [&str; 2] = ["--gpus", "0"];

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("deep::{program}"), move |kit| {
            prints_the_same(kit, program, Asked::Deep, &ONE_GPU)
        });
    }
    for program in OTHERS {
        suite.test(format!("deep::{program}"), move |kit| {
            prints_the_same(kit, program, Asked::DeepIfPossible, &ONE_GPU)
        });
    }
    suite.test("deep::nothing_is_left_and_all_comes_back", nothing_is_left_and_all_comes_back);
    suite.test("deep::a_session_without_memory", a_session_without_memory);
    suite.test("deep::arrays", arrays_of_all_shapes);
    suite.test("deep::textures_and_surfaces", textures_and_surfaces);
    let name = "deep::a_plan_outlives_its_descriptors";
    if is_emulated() {
        suite.test(name, a_plan_outlives_its_descriptors);
    } else {
        suite.skip(name, "cuDNN is in no folder of the daemon's");
    }
    suite.test("deep::pools_of_the_driver", |kit| is_made_again(kit, "suspended", &["16", "pool"]));
    let name = "deep::several_devices";
    if is_emulated() {
        suite.test(name, several_devices);
    } else {
        suite.skip(name, "there may be one GPU only");
    }
    suite.test("deep::times_of_events_stay", times_of_events_stay);
    suite.test(
        "deep::a_session_that_would_lose_something_says_so",
        a_session_that_would_lose_something_says_so,
    );
    suite.test("deep::programs_and_workers_end_at_any_moment", programs_and_workers_end_at_any_moment);
    saved::collect(suite);
    settings::collect(suite);
    renewed::collect(suite);
    moved::collect(suite);
}

/// Suspends the only session deeply, and returns its part of the answer.
fn deepen(controlled: &Controlled) -> Result<Value> {
    Ok(controlled.ask(DEEPLY)?["sessions"][0].clone())
}

fn nothing_is_left_and_all_comes_back(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start_copy(kit, &ONE_GPU)?;
    let program = controlled.program(kit, &["16", "idle"])?;
    for round in 0..3 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true && session["not_deep"].is_null(), "{session}");
        ensure!(
            session["state"] == "suspended" && session["suspended_bytes"].as_u64() >= Some(16 << 20),
            "{session}"
        );
        ensure!(deepen(&controlled)?["deep"] == true, "it was before");
        if round == 1 {
            controlled.ask(REPLACE)?;
        }
        if round < 2 {
            controlled.ask(r#"{"do":"resume","all":true}"#)?;
        }
    }
    // Its next call brings it back.
    finish(program)
}

/// It has a context, which a suspension leaves on the card unless it is a deep one.
fn a_session_without_memory(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["0", "idle"])?;
    controlled.ask(r#"{"do":"suspend","all":true}"#)?;
    controlled.expect_state(&program, "running")?;
    for request in ["deep", "renew", "deep"] {
        let session = match request {
            "deep" => deepen(&controlled)?,
            _ => controlled.ask(r#"{"do":"renew","all":true}"#)?["sessions"][0].clone(),
        };
        ensure!(session["state"] == "suspended" && session["error"].is_null(), "{session}");
        ensure!(session["not_deep"].is_null() && session["suspended_bytes"] == 0, "{session}");
    }
    // Its next call brings it back.
    finish(program)
}

fn arrays_of_all_shapes(kit: &Kit) -> Result<()> {
    is_made_again(kit, "kept_arrays", &[])
}

fn textures_and_surfaces(kit: &Kit) -> Result<()> {
    is_made_again(kit, "kept_arrays", &["textures"])
}

/// The program has destroyed the descriptors from which it has made a plan of cuDNN.
fn a_plan_outlives_its_descriptors(kit: &Kit) -> Result<()> {
    is_made_again(kit, "dnn_graph", &["kept"])
}

/// Suspends a program that waits, and gives it other workers.
fn is_made_again(kit: &Kit, program: &str, arguments: &[&str]) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = start(kit, &controlled.route, program, arguments)?;
    program.wait_for_stdout("begun", LIMIT)?;
    for _ in 0..2 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true && session["not_deep"].is_null(), "{session}");
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
        controlled.ask(r#"{"do":"renew","all":true}"#)?;
    }
    finish(program)
}

/// Programs that use the second device, and both.
fn several_devices(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], Some("96M,96M"))?;
    let program = controlled.program(kit, &["16", "idle", "1"])?;
    for _ in 0..2 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true && session["not_deep"].is_null(), "{session}");
        controlled.ask(r#"{"do":"renew","all":true}"#)?;
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
    }
    finish(program)?;
    let program = controlled.program(kit, &["16", "idle", "all"])?;
    for _ in 0..2 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true && session["not_deep"].is_null(), "{session}");
        ensure!(session["suspended_bytes"].as_u64() >= Some(16 << 20), "{session}");
        controlled.ask(r#"{"do":"renew","all":true}"#)?;
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
    }
    finish(program)
}

/// Twice, so that times from before the first suspension are kept by the second one.
fn times_of_events_stay(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["16", "times"])?;
    for _ in 0..2 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true, "{session}");
        thread::sleep(PAUSE);
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
    }
    finish(program)
}

fn a_session_that_would_lose_something_says_so(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = controlled.program(kit, &["16", "link"])?;
    let session = deepen(&controlled)?;
    ensure!(
        session["deep"] == false && session["not_deep"] == "links are not followed until they end",
        "{session}"
    );
    // A call of the program may have begun to bring it back.
    ensure!(session["suspensions"] == 1, "{session}");
    let mut command = Command::new(kit.stack.daemon());
    let command = command.arg("ctl").arg("--control").arg(controlled.socket());
    let shown = run(command.args(["suspend", "--all", "--deep"]), "", LIMIT)?;
    shown.expect_exit(0)?;
    ensure!(shown.stdout.contains("NOT deep: links are not followed until they end"), "{shown}");
    finish(program)
}

fn programs_and_workers_end_at_any_moment(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[&ONE_GPU[..], &["--warm-workers", "0"]].concat(), None)?;
    let mut random = fastrand::Rng::with_seed(55);
    for round in 0..ROUNDS {
        let program = start(kit, &controlled.route, "suspended", &["16", "work"])?;
        program.wait_for_stdout("begun", LIMIT)?;
        let control = controlled.control.clone();
        let moving = thread::spawn(move || {
            // Until the session has ended.
            while control.ask(DEEPLY).is_ok_and(|answer| answer["sessions"] != Value::Array(vec![])) {
                let _ = control.ask(r#"{"do":"resume","all":true}"#);
            }
        });
        thread::sleep(Duration::from_micros(random.u64(..200_000)));
        if round % 2 == 0 {
            program.signal(libc::SIGKILL);
        } else {
            for worker in daemon(&mut controlled.route)?.workers() {
                // SAFETY: a plain system call; a worker that has ended is not there.
                unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
            }
        }
        let outcome = program.finish(LOSS)?;
        ensure!(!outcome.stdout.contains("right"), "{outcome}");
        moving.join().ok().context("the client has failed")?;
        ensure!(daemon(&mut controlled.route)?.is_running(), "the daemon has ended");
    }
    let answer = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(answer["host_memory_used"] == 0, "{answer}");
    expect_good(kit, &controlled.route, "add_one")
}
