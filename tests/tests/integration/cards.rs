// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sessions that use several devices: their memory moves on all of them, or on the one that needs room.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::{LIMIT, finish_case, start};

/// The memory of two devices, and of three.
const TWO: &str = "96M,96M";
const THREE: &str = "96M,96M,96M";
const MIB: u64 = 1 << 20;
/// Suspensions of programs that use peer access, and the maximum pause between two of them.
const SUSPENSIONS: u64 = 30;
const PAUSE_US: u64 = 30_000;
/// How often a program is suspended deeply, and gets another worker.
const MADE_AGAIN: u64 = 4;
const DEEPLY: &str = r#"{"do":"suspend","all":true,"deep":true,"timeout_ms":20000}"#;
/// The length of an array: each one has a unit of physical memory of its own.
const ELEMENTS: &str = "300000";
const SUSPEND: &str = r#"{"do":"suspend","all":true,"timeout_ms":20000}"#;
const HOLD: &str = r#"{"do":"suspend","all":true,"hold":true}"#;

/// A test of this file.
type Test = fn(&Kit) -> Result<()>;

/// Tests for any devices.
const TESTS: [(&str, Test); 7] = [
    ("cards::peers_are_as_documented", peers_are_as_documented),
    ("cards::access_without_leave_is_an_error", access_without_leave_is_an_error),
    ("cards::suspended_while_peers_work", suspended_while_peers_work),
    ("cards::suspended_while_pools_of_peers_are_used", suspended_while_pools_of_peers_are_used),
    ("cards::made_again_while_peers_work", made_again_while_peers_work),
    ("cards::made_again_while_pools_of_peers_are_used", made_again_while_pools_of_peers_are_used),
    ("cards::memory_of_all_cards_moves_together", memory_of_all_cards_moves_together),
];
/// Tests that choose the size of the devices' memory.
const EMULATED: [(&str, Test); 2] = [
    ("cards::room_is_made_on_the_card_that_needs_it", room_is_made_on_the_card_that_needs_it),
    ("cards::daemons_make_room_on_the_named_card", daemons_make_room_on_the_named_card),
];

pub fn collect(suite: &mut Suite) {
    let has_several =
        is_emulated() || fs::read_dir("/proc/driver/nvidia/gpus").is_ok_and(|all| all.count() > 1);
    for (name, test) in TESTS {
        match has_several {
            true => suite.test(name, test),
            false => suite.skip(name, "there is one GPU"),
        }
    }
    for (name, test) in EMULATED {
        match is_emulated() {
            true => suite.test(name, test),
            false => suite.skip(name, "the size of the card's memory is chosen with the emulator only"),
        }
    }
}

fn bytes(session: &Value, figure: &str) -> u64 {
    session[figure].as_u64().unwrap_or_default()
}

fn is_idle(session: &Value) -> bool {
    bytes(session, "idle_ms") >= 300
}

fn peers_are_as_documented(kit: &Kit) -> Result<()> {
    for cards in [TWO, THREE] {
        let controlled = Controlled::start(kit, &[], Some(cards))?;
        for name in ["peer_access", "peer_pools", "several_devices"] {
            let case = vhost_cuda_tests::cases::case(name);
            let outcome = finish_case(kit, &controlled.route, case)?;
            outcome.expect_exit(case.exit)?;
            ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
        }
    }
    Ok(())
}

fn access_without_leave_is_an_error(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], Some(TWO))?;
    for program in ["peer_access", "peer_pools"] {
        let outcome = start(kit, &controlled.route, program, &["illegal"])?.finish(LIMIT)?;
        outcome.expect_exit(0)?;
        ensure!(outcome.stdout == "cudaErrorIllegalAddress\n", "{outcome}");
    }
    Ok(())
}

/// Three arrays on each device, in units of 2 MiB.
fn suspended_while_peers_work(kit: &Kit) -> Result<()> {
    suspended_while_it_works(kit, &["peer_access", "work", ELEMENTS], 3 * MIB)
}

/// A pool on each device, of which one keeps no more than it needs.
fn suspended_while_pools_of_peers_are_used(kit: &Kit) -> Result<()> {
    suspended_while_it_works(kit, &["peer_pools", "work"], 16 * MIB)
}

/// Contexts of all devices end and are made again, with their access to each other's memory.
fn made_again_while_peers_work(kit: &Kit) -> Result<()> {
    made_again_while_it_works(kit, &["peer_access", "work", ELEMENTS])
}

fn made_again_while_pools_of_peers_are_used(kit: &Kit) -> Result<()> {
    made_again_while_it_works(kit, &["peer_pools", "work"])
}

/// Suspends a program with several devices deeply at random moments, and gives it other workers.
fn made_again_while_it_works(kit: &Kit, program: &[&str]) -> Result<()> {
    for cards in [TWO, THREE] {
        let controlled = Controlled::start(kit, &[], Some(cards))?;
        let program = start(kit, &controlled.route, program[0], &program[1..])?;
        program.wait_for_stdout("begun", LIMIT)?;
        let mut random = fastrand::Rng::with_seed(58);
        let (mut deep, begun) = (0, Instant::now());
        let session = loop {
            deep += u64::from(controlled.ask(DEEPLY)?["sessions"][0]["deep"] == true);
            thread::sleep(Duration::from_micros(random.u64(..PAUSE_US)));
            let session = controlled.ask(r#"{"do":"renew","all":true}"#)?["sessions"][0].clone();
            if deep >= MADE_AGAIN && bytes(&session, "renewals") >= MADE_AGAIN {
                break session;
            }
            ensure!(begun.elapsed() < LIMIT, "{deep} times deeply: {session}");
            thread::sleep(Duration::from_micros(random.u64(..PAUSE_US)));
        };
        ensure!(session["failures"] == 0, "{session}");
        finish(program)?;
    }
    Ok(())
}

/// Suspends a program with several devices at random moments. At least `expected` bytes of each device must move once.
fn suspended_while_it_works(kit: &Kit, program: &[&str], expected: u64) -> Result<()> {
    for cards in [TWO, THREE] {
        let controlled = Controlled::start(kit, &[], Some(cards))?;
        let program = start(kit, &controlled.route, program[0], &program[1..])?;
        program.wait_for_stdout("begun", LIMIT)?;
        let mut random = fastrand::Rng::with_seed(57);
        let (mut moved, begun) = (0, Instant::now());
        let session = loop {
            let answer = controlled.ask(SUSPEND)?;
            // A call of it may have brought it back already, or none may have come yet.
            let session = &answer["sessions"][0];
            moved = bytes(session, "suspended_bytes").max(moved);
            if bytes(session, "suspensions") >= SUSPENSIONS {
                break session.clone();
            }
            ensure!(begun.elapsed() < LIMIT, "{session}");
            thread::sleep(Duration::from_micros(random.u64(..PAUSE_US)));
        };
        ensure!(session["failures"] == 0, "{session}");
        let devices = cards.split(',').count() as u64;
        ensure!(moved >= expected * devices, "{moved} bytes moved: {session}");
        finish(program)?;
    }
    Ok(())
}

fn memory_of_all_cards_moves_together(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], Some(TWO))?;
    let program = controlled.program(kit, &["64", "idle", "all"])?;
    for _ in 0..3 {
        let answer = controlled.ask(HOLD)?;
        let session = &answer["sessions"][0];
        ensure!(bytes(session, "suspended_bytes") >= 64 * MIB, "{answer}");
        ensure!(bytes(session, "on_card_bytes") < 16 * MIB, "{answer}");
        let answer = controlled.ask(r#"{"do":"resume","all":true}"#)?;
        ensure!(answer["sessions"][0]["state"] == "running", "{answer}");
    }
    let session = controlled.control.session_of(program.pid())?;
    ensure!(session["copied_bytes"] == 0, "nothing has changed: {session}");
    finish(program)
}

fn idle_programs(controlled: &mut Controlled, kit: &Kit, arguments: &[[&str; 3]]) -> Result<Vec<Running>> {
    let mut programs = Vec::new();
    for arguments in arguments {
        let program = controlled.program(kit, arguments)?;
        controlled.wait_until("it is idle", &program, is_idle)?;
        programs.push(program);
    }
    Ok(programs)
}

fn room_is_made_on_the_card_that_needs_it(kit: &Kit) -> Result<()> {
    let arguments = ["--single=false", "--suspend-after", "0.3"];
    let mut controlled = Controlled::start(kit, &arguments, Some(TWO))?;
    let mut programs = idle_programs(
        &mut controlled,
        kit,
        &[["32", "idle", "0"], ["32", "idle", "1"], ["64", "idle", "all"]],
    )?;
    // Whatever is suspended, it finds no room on its own card.
    let greedy = controlled.program(kit, &["56", "greedy", "1"])?;
    greedy.wait_for_stdout("more: 2", LIMIT)?;
    controlled.expect_state(&programs[0], "running")?;
    controlled.expect_state(&programs[1], "suspended")?;
    let session = controlled.control.session_of(programs[2].pid())?;
    ensure!(session["state"] == "suspended", "{session}");
    // The half of it that is on the second card.
    let suspended = bytes(&session, "suspended_bytes");
    ensure!((32 * MIB..48 * MIB).contains(&suspended), "{session}");
    ensure!(bytes(&session, "on_card_bytes") >= 32 * MIB, "{session}");
    programs.push(greedy);
    let greedy = controlled.program(kit, &["56", "greedy", "0"])?;
    greedy.wait_for_stdout("more: 2", LIMIT)?;
    controlled.expect_state(&programs[0], "suspended")?;
    let session = controlled.control.session_of(programs[2].pid())?;
    ensure!(bytes(&session, "suspended_bytes") >= 64 * MIB, "the rest, too: {session}");
    programs.push(greedy);
    programs.into_iter().try_for_each(finish)
}

fn daemons_make_room_on_the_named_card(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let shared = arbiter.options(100)?;
    let options: Vec<&str> =
        shared.iter().map(String::as_str).chain(["--single=false", "--suspend-after", "0.3"]).collect();
    let mut idle = Controlled::start(kit, &options, Some(TWO))?;
    let mut programs = idle_programs(&mut idle, kit, &[["32", "idle", "0"], ["32", "idle", "1"]])?;
    let other = Controlled::start(kit, &options, Some(TWO))?;
    for (device, states) in [("1", ["running", "suspended"]), ("0", ["suspended", "suspended"])] {
        let greedy = other.program(kit, &["56", "greedy", device])?;
        greedy.wait_for_stdout("more: 2", LIMIT)?;
        for (program, state) in programs.iter().zip(states) {
            idle.expect_state(program, state)?;
        }
        programs.push(greedy);
    }
    programs.into_iter().try_for_each(finish)
}
