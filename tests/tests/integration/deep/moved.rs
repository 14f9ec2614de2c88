// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Running programs move between two daemons, as with a virtual machine that is saved and loaded. What they print must be the same as without.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::mover::{Ahead, Moved, Mover, Order};
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::stack::SOCKET_VARIABLE;
use vhost_cuda_tests::suite::{Kit, Suite};

use super::ONE_GPU;
use crate::control::{Controlled, finish};
use crate::{LIMIT, SETTLE, finish_case};

/// Programs that move at random moments.
const PROGRAMS: [&str; 6] =
    ["copies", "four_threads", "threads_share", "pinned_memory", "own_variables", "events_streams"];
/// A program runs until it has moved this often (`--rounds` changes it), at most `RUNS` times for each.
const ENOUGH: u64 = 5;
const RUNS: u64 = 60;
/// The maximum pause between two moves.
const PAUSE: Duration = Duration::from_millis(6);

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("moved::{program}"), move |kit| prints_the_same(kit, program));
    }
    suite.test("moved::sessions_are_as_they_were", sessions_are_as_they_were);
    suite.test("moved::contents_go_ahead", contents_go_ahead);
    suite.test("moved::contents_that_change_go_again", contents_that_change_go_again);
    suite.test("moved::work_that_does_not_end_stays", work_that_does_not_end_stays);
}

/// Two daemons, and what stands between them and programs.
struct Two {
    daemons: [Controlled; 2],
    mover: Mover,
}

impl Two {
    fn start(kit: &Kit, options: &[&str]) -> Result<Self> {
        let options = [&ONE_GPU[..], options].concat();
        let daemons = [Controlled::start(kit, &options, None)?, Controlled::start(kit, &options, None)?];
        let mover = Mover::start(&socket(&daemons[0])?)?;
        Ok(Self { daemons, mover })
    }

    fn program(&self, kit: &Kit, name: &str, arguments: &[&str], stdin: &str) -> Result<Running> {
        let mut command = self.daemons[0].route.command(&kit.programs.get(name)?);
        Running::start(command.args(arguments).env(SOCKET_VARIABLE, self.mover.socket()), stdin)
    }

    fn move_to(&self, number: usize, order: Order) -> Result<Vec<Moved>> {
        self.mover.move_to(&socket(&self.daemons[number])?, order)
    }
}

fn socket(controlled: &Controlled) -> Result<std::path::PathBuf> {
    Ok(controlled.route.daemon.as_ref().context("no daemon")?.socket())
}

/// Runs a program of the table while it moves at random moments.
fn prints_the_same(kit: &Kit, program: &str) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let case = case(program);
    // Compiled before, so that moves begin with the program.
    let expected = finish_case(kit, &two.daemons[0].route, case)?;
    let enough = effort::rounds(ENOUGH)?;
    let (is_over, moves, runs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let moving = scope.spawn(|| -> Result<Vec<Moved>> {
            let mut random = fastrand::Rng::with_seed(7);
            let (mut to, mut refused) = (0, Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                to = 1 - to;
                let begun = Instant::now();
                let order = if random.bool() { Order::StateFirst } else { Order::MemoryFirst };
                for moved in two.move_to(to, order)? {
                    match moved {
                        Moved::There(_) => drop(moves.fetch_add(1, Ordering::Relaxed)),
                        Moved::Stays(_) => refused.push(moved),
                        Moved::TooEarly | Moved::Gone => {}
                    }
                }
                thread::sleep(4 * begun.elapsed() + PAUSE.mul_f64(random.f64()));
            }
            Ok(refused)
        });
        let all = (0..RUNS.saturating_mul(enough)).try_for_each(|run| {
            if run > 0 && moves.load(Ordering::Relaxed) >= enough {
                return Ok(());
            }
            runs.fetch_add(1, Ordering::Relaxed);
            let outcome = two.program(kit, case.program, case.args, case.stdin)?.finish(LIMIT)?;
            outcome.expect_exit(case.exit)?;
            ensure!(outcome.stdout == expected.stdout, "without moves:\n{expected}\nwith them:\n{outcome}");
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let refused = moving.join().ok().context("moves have failed")?;
        all.with_context(|| format!("{moves:?} moves in {runs:?} runs; refused: {refused:?}"))?;
        let moves = moves.load(Ordering::Relaxed);
        ensure!(moves >= enough, "it has moved {moves} times: the test shows nothing; refused: {refused:?}");
        Ok(())
    })
}

/// A program that makes no call, with 16 MiB, moves there and back.
fn sessions_are_as_they_were(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &["16", "idle"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let pid = program.pid();
    let before = two.daemons[0].control.session_of(pid)?;
    for (to, order) in [(1, Order::StateFirst), (0, Order::MemoryFirst), (1, Order::StateFirst)] {
        let moved = two.move_to(to, order)?;
        ensure!(matches!(moved[..], [Moved::There(bytes)] if bytes > 16 << 20), "{moved:?}");
        let there = two.daemons[to].control.session_of(pid)?;
        ensure!(there["state"] == "suspended" && there["program"] == before["program"], "{there}");
        ensure!(
            there["uid"] == before["uid"] && there["suspended_bytes"] == before["on_card_bytes"],
            "{before}, then {there}"
        );
        let left = two.daemons[1 - to].route.daemon.as_ref().context("no daemon")?;
        left.wait_until("it is gone there", SETTLE, |_| {
            two.daemons[1 - to].control.sessions().is_ok_and(|sessions| sessions.is_empty())
        })?;
    }
    // Its next call brings it back.
    finish(program)
}

/// Contents of a program that makes no call go ahead, and are not sent again when it stops: 16 MiB (`--rounds` changes it). A move that was
/// given up changes nothing.
fn contents_go_ahead(kit: &Kit) -> Result<()> {
    let mib = effort::rounds(16)?;
    let all = usize::try_from(mib)? << 20;
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &[&mib.to_string(), "idle"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let (first, second) = (socket(&two.daemons[0])?, socket(&two.daemons[1])?);
    let is_half = |ahead: &Ahead| ahead.bytes() > all / 2;
    let is_all = |ahead: &Ahead| ahead.bytes() > all && ahead.pending == 0;
    two.mover.cancel(is_half)?;
    // On the card at first, and then in host memory.
    for (daemon, order) in [(&second, Order::StateFirst), (&first, Order::MemoryFirst)] {
        let moved = two.mover.move_live(daemon, order, is_all)?;
        println!("{mib} MiB: {moved:?}");
        ensure!(matches!(moved[..], [(Moved::There(state), ..)] if state < all / 4), "{moved:?}");
    }
    two.mover.cancel(is_half)?;
    let moved = two.move_to(1, Order::StateFirst)?;
    ensure!(
        matches!(moved[..], [Moved::There(state)] if state > all),
        "after one that was given up: {moved:?}"
    );
    finish(program)
}

/// A program that computes moves while its contents go ahead. What has changed since goes again.
fn contents_that_change_go_again(kit: &Kit) -> Result<()> {
    const BYTES: usize = 16 << 20;
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &["16", "work"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    for round in 0..effort::rounds(ENOUGH)? {
        let to = socket(&two.daemons[(1 - round % 2) as usize])?;
        // More than all of it: some chunks have changed, and have gone again.
        let moved = two.mover.move_live(&to, Order::StateFirst, |ahead| ahead.bytes() > BYTES * 5 / 4)?;
        ensure!(matches!(moved[..], [(Moved::There(_), ..)]), "round {round}: {moved:?}");
    }
    finish(program)
}

/// A kernel that does not end leaves the program where it is.
fn work_that_does_not_end_stays(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &["--time-limit", "20"])?;
    let program = two.program(kit, "long_work", &["endless"], "")?;
    program.wait_for_stdout("started", LIMIT)?;
    let moved = two.move_to(1, Order::StateFirst)?;
    ensure!(matches!(moved[..], [Moved::Stays(_)]), "{moved:?}");
    let log = two.daemons[0].route.daemon.as_ref().context("no daemon")?.log();
    ensure!(log.contains("cannot go along: "), "{log}");
    program.finish(LIMIT)?.expect_exit(0)
}
