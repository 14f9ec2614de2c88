// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Running programs move between two daemons, as with a virtual machine that is saved and loaded. What they print must be the same as without.

mod killed;

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::cases::{CASES, Case, Weight, case};
use vhost_cuda_tests::daemon::{end_of_log, is_emulated};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::mover::{Ahead, Moved, Mover, Order};
use vhost_cuda_tests::random_moves::{Moments, Moves, while_moving};
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::stack::SOCKET_VARIABLE;
use vhost_cuda_tests::suite::{Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};

use super::ONE_GPU;
use crate::control::{Controlled, finish};
use crate::{LIMIT, finish_case};

/// Programs that move at random moments.
const PROGRAMS: [&str; 7] = [
    "copies",
    "four_threads",
    "threads_share",
    "pinned_memory",
    "own_variables",
    "copied_symbols",
    "events_streams",
];
/// A program runs until it has moved this often (`--rounds` changes it), at most `RUNS` times for each.
const ENOUGH: u64 = 5;
const RUNS: u64 = 60;
/// Moves of all programs of the table together (`--rounds` changes it), and how often each of them runs at most.
const ENOUGH_OF_ALL: u64 = 12;
const PASSES: u64 = 5;
/// Programs that start processes, with which they share memory.
const SEVERAL_PROCESSES: [&str; 4] = ["nccl_ranks", "sharing", "shared_rounds", "external_memory"];
/// Its session is lost in some moves: docs/migration.md.
const LOST: &str = "virtual_host_memory";
/// The time for a program with much memory, and that after which contents that change go with the stop.
const LONG: Duration = Duration::from_secs(100);
const CONVERGES: Duration = Duration::from_secs(20);
const CHUNK_BYTES: u64 = 2 << 20;
/// The maximum pause between two moves.
const PAUSE: Duration = Duration::from_millis(6);

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("moved::{program}"), move |kit| prints_the_same(kit, program));
    }
    suite.test("moved::programs_of_the_table", programs_of_the_table);
    suite.test("moved::sessions_are_as_they_were", sessions_are_as_they_were);
    suite.test("moved::textures_and_surfaces", textures_and_surfaces);
    let name = "moved::several_devices";
    if is_emulated() {
        suite.test(name, several_devices);
    } else {
        suite.skip(name, "there may be one GPU only");
    }
    suite.test("moved::contents_are_in_files", contents_are_in_files);
    suite.test("moved::contents_go_ahead", contents_go_ahead);
    suite.test("moved::contents_that_change_go_again", contents_that_change_go_again);
    suite.test("moved::contents_go_ahead_amid_other_moves", contents_go_ahead_amid_other_moves);
    suite.test("moved::contents_of_a_training", contents_of_a_training);
    suite.test("moved::work_that_does_not_end_stays", work_that_does_not_end_stays);
    killed::collect(suite);
}

/// Two daemons, and what stands between them and programs.
pub struct Two {
    daemons: [Controlled; 2],
    mover: Mover,
}

impl Two {
    pub fn start(kit: &Kit, options: &[&str]) -> Result<Self> {
        Self::start_with(kit, &[&ONE_GPU[..], options].concat(), None)
    }

    fn start_with(kit: &Kit, options: &[&str], cards: Option<&str>) -> Result<Self> {
        let daemons = [Controlled::start(kit, options, cards)?, Controlled::start(kit, options, cards)?];
        let mover = Mover::start(&socket(&daemons[0])?)?;
        Ok(Self { daemons, mover })
    }

    pub fn program(&self, kit: &Kit, name: &str, arguments: &[&str], stdin: &str) -> Result<Running> {
        let mut command = self.daemons[0].route.command(&kit.programs.get(name)?);
        Running::start(command.args(arguments).env(SOCKET_VARIABLE, self.mover.socket()), stdin)
    }

    fn move_to(&self, number: usize, order: Order) -> Result<Vec<Moved>> {
        Ok(self.mover.move_to(&socket(&self.daemons[number])?, order))
    }

    /// Moves the programs as [`Self::move_to`] does, and again as long as a daemon says to repeat it: a session that has just come does not go yet.
    pub fn move_surely(&self, number: usize, order: Order) -> Result<Vec<Moved>> {
        let begun = Instant::now();
        loop {
            let moved = self.move_to(number, order)?;
            if !moved.iter().any(|one| matches!(one, Moved::Stays(_))) || begun.elapsed() > LIMIT {
                return Ok(moved);
            }
            thread::sleep(PAUSE);
        }
    }

    /// See [`Mover::move_live_surely`].
    fn move_live(
        &self,
        number: usize,
        order: Order,
        is_enough: impl Fn(&Ahead) -> bool,
    ) -> Result<(usize, usize, Duration)> {
        let moved = self.mover.move_live_surely(&socket(&self.daemons[number])?, order, LIMIT, is_enough);
        moved.with_context(|| self.logs())
    }

    /// Moves the programs to a daemon that refuses them, until its log has this reason.
    fn expect_refusal(&self, by: &Controlled, reason: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let moved = self.mover.move_to(&socket(by)?, Order::StateFirst);
            ensure!(matches!(moved[..], [Moved::Stays(_)]), "{moved:?}");
            let log = by.route.daemon.as_ref().context("no daemon")?.log();
            if log.contains(reason) {
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "{log}\n{}", self.logs());
            thread::sleep(PAUSE);
        }
    }

    /// Runs `body` while programs move at random moments, and counts the moves in `moves`.
    fn while_moving(&self, moves: &Moves, seed: u64, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let sockets = [socket(&self.daemons[0])?, socket(&self.daemons[1])?];
        let moments = Moments { seed, times: 4, pause: PAUSE, most: u64::MAX };
        while_moving(&self.mover, &sockets, moments, moves, body)
    }

    /// The end of the logs of both daemons.
    pub fn logs(&self) -> String {
        let end = |controlled: &Controlled| {
            let log = controlled.route.daemon.as_ref().map(|daemon| daemon.log());
            end_of_log(&log.unwrap_or_default())
        };
        self.daemons.iter().map(|daemon| format!("--- a daemon\n{}\n", end(daemon))).collect()
    }
}

fn socket(controlled: &Controlled) -> Result<PathBuf> {
    Ok(controlled.route.daemon.as_ref().context("no daemon")?.socket())
}

/// Runs a program of the table while it moves at random moments.
fn prints_the_same(kit: &Kit, program: &str) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let case = case(program);
    // Compiled before, so that moves begin with the program.
    let expected = finish_case(kit, &two.daemons[0].route, case)?;
    expected.expect_exit(case.exit).with_context(|| two.logs())?;
    let enough = effort::rounds(ENOUGH)?;
    let (moves, mut runs) = (Moves::default(), 0);
    let all = two.while_moving(&moves, effort::seed()?.unwrap_or(7), || {
        while runs == 0 || (moves.count() < enough && runs < RUNS.saturating_mul(enough)) {
            runs += 1;
            let outcome = two.program(kit, case.program, case.args, case.stdin)?.finish(LIMIT)?;
            outcome.expect_exit(case.exit)?;
            ensure!(outcome.stdout == expected.stdout, "without moves:\n{expected}\nwith them:\n{outcome}");
        }
        Ok(())
    });
    all.with_context(|| format!("{moves:?} in {runs} runs\n{}", two.logs()))?;
    ensure!(moves.count() >= enough, "the test shows nothing: {moves:?}");
    Ok(())
}

/// Programs of the table in random order, each of which moves at random moments, or stays where it is because something of it cannot go
/// along. Either way, it does what it does without.
fn programs_of_the_table(kit: &Kit) -> Result<()> {
    let (enough, seed) = (effort::rounds(ENOUGH_OF_ALL)?, effort::seed()?.unwrap_or(55));
    let mut random = fastrand::Rng::with_seed(seed);
    let two = Two::start(kit, &[])?;
    let mut cases: Vec<&Case> = CASES.iter().filter(|case| can_run(kit, case)).collect();
    let mut count = 0;
    for _ in 0..PASSES {
        random.shuffle(&mut cases);
        for case in &cases {
            if count >= enough {
                return Ok(());
            }
            let moves = Moves::default();
            let all = two.while_moving(&moves, random.u64(..), || {
                let outcome = two.program(kit, case.program, case.args, case.stdin)?.finish(LIMIT)?;
                verdict::check(case, &outcome, Answering::behind_daemons())
            });
            all.with_context(|| format!("{} with seed {seed}: {moves:?}\n{}", case.name, two.logs()))?;
            eprintln!("{}: {moves:?}", case.name);
            count += moves.count();
        }
    }
    ensure!(count >= enough, "they have moved {count} times: the test shows nothing");
    Ok(())
}

fn can_run(kit: &Kit, case: &Case) -> bool {
    let is_here = is_emulated() || (case.not_on_gpus.is_none() && case.library.is_empty());
    // Each process is a machine here, so that processes that share something may not part.
    let is_alone = case.at_once == 1 && !SEVERAL_PROCESSES.contains(&case.program);
    let is_kept = case.program != LOST;
    is_here
        && is_alone
        && is_kept
        && case.weight == Weight::Light
        && kit.programs.missing(case.program).is_none()
}

/// A program that makes no call, with 16 MiB, moves there and back.
fn sessions_are_as_they_were(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &["16", "idle"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let pid = program.pid();
    let before = two.daemons[0].control.session_of(pid)?;
    for (to, order) in [(1, Order::StateFirst), (0, Order::MemoryFirst), (1, Order::StateFirst)] {
        let moved = two.move_surely(to, order)?;
        ensure!(matches!(moved[..], [Moved::There(bytes)] if bytes > 16 << 20), "{moved:?}");
        let there = two.daemons[to].control.session_of(pid)?;
        ensure!(there["state"] == "suspended" && there["program"] == before["program"], "{there}");
        ensure!(
            there["uid"] == before["uid"] && there["suspended_bytes"] == before["on_card_bytes"],
            "{before}, then {there}"
        );
        let left = two.daemons[1 - to].route.daemon.as_ref().context("no daemon")?;
        left.wait_until("it is gone there", LIMIT, |_| {
            two.daemons[1 - to].control.sessions().is_ok_and(|sessions| sessions.is_empty())
        })?;
    }
    // Its next call brings it back.
    finish(program)
}

/// In the other worker their numbers must be the same.
fn textures_and_surfaces(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "kept_arrays", &["textures"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let moved = two.move_surely(1, Order::StateFirst)?;
    ensure!(matches!(moved[..], [Moved::There(_)]), "{moved:?}");
    finish(program)
}

/// The contexts of both devices have access to each other's memory. A host with other devices refuses the program.
fn several_devices(kit: &Kit) -> Result<()> {
    let cards = Some("96M,96M");
    let other = Controlled::start(kit, &[], Some("96M,96M,96M"))?;
    for program in [["peer_access", "work", "300000"], ["peer_pools", "work", ""]] {
        let two = Two::start_with(kit, &[], cards)?;
        let program = two.program(kit, program[0], &program[1..], "")?;
        program.wait_for_stdout("begun", LIMIT)?;
        for (to, order) in [(1, Order::StateFirst), (0, Order::MemoryFirst)] {
            let moved = two.move_surely(to, order)?;
            ensure!(matches!(moved[..], [Moved::There(_)]), "{moved:?}\n{}", two.logs());
        }
        two.expect_refusal(&other, "it sees other devices than those of this host")?;
        finish(program)?;
    }
    Ok(())
}

/// The contents of a program with 16 MiB stay in files beside the state. A daemon that does not know the folder refuses it, and a file that
/// was cut is an error.
fn contents_are_in_files(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = || -> Result<Vec<PathBuf>> {
        let files: io::Result<Vec<_>> = fs::read_dir(folder.path())?.map(|file| Ok(file?.path())).collect();
        Ok(files?)
    };
    let path = folder.path().to_str().context("a folder with another name")?;
    let two = Two::start(kit, &["--contents", path])?;
    let other = Controlled::start(kit, &ONE_GPU, None)?;
    let program = two.program(kit, "suspended", &["16", "work"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    for to in [1, 0] {
        for old in files()? {
            // The session has it mapped.
            fs::remove_dir_all(old)?;
        }
        let moved = two.move_surely(to, Order::StateFirst)?;
        ensure!(matches!(moved[..], [Moved::There(bytes)] if bytes < 1 << 20), "{moved:?}");
        let [saved] = &files()?[..] else { bail!("{:?}", files()?) };
        let lengths = fs::read_dir(saved)?.map(|file| Ok(file?.metadata()?.len()));
        let lengths: Vec<u64> = lengths.collect::<io::Result<_>>()?;
        let is_whole = lengths.iter().all(|length| length.is_multiple_of(2 << 20));
        ensure!(is_whole && lengths.iter().sum::<u64>() >= 16 << 20, "{lengths:?}");
    }
    // All are in the file, too, where a front-end has them go ahead nevertheless.
    let moved = two.move_live(1, Order::StateFirst, |ahead| ahead.bytes() > 16 << 20)?;
    ensure!(moved.0 < 1 << 20, "{moved:?}");
    two.expect_refusal(&other, "its contents are in a file beside the state")?;
    finish(program)?;
    let two = Two::start(kit, &["--contents", path])?;
    let program = two.program(kit, "suspended", &["16", "idle"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    for old in files()? {
        fs::remove_dir_all(old)?;
    }
    let moved = two.move_surely(1, Order::StateFirst)?;
    ensure!(matches!(moved[..], [Moved::There(_)]), "{moved:?}");
    for file in files()?.iter().map(fs::read_dir).collect::<io::Result<Vec<_>>>()?.into_iter().flatten() {
        fs::File::options().write(true).open(file?.path())?.set_len(0)?;
    }
    // Once its machine runs.
    let (begun, control) = (Instant::now(), &two.daemons[1].control);
    loop {
        let back = control.ask(r#"{"do":"resume","all":true}"#)?;
        if back["sessions"][0]["error"].as_str().is_some_and(|error| error.contains("304")) {
            break;
        }
        ensure!(begun.elapsed() < LIMIT, "{back}");
        thread::sleep(PAUSE);
    }
    let there = two.daemons[1].control.session_of(program.pid())?;
    ensure!(there["state"] == "suspended", "{there}");
    Ok(())
}

/// Contents of a program that makes no call go ahead, and are not sent again when it stops: 16 MiB (`--rounds` changes it). A move that was
/// given up changes nothing.
fn contents_go_ahead(kit: &Kit) -> Result<()> {
    let mib = effort::rounds(16)?;
    let all = usize::try_from(mib)? << 20;
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &[&mib.to_string(), "idle"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let is_half = |ahead: &Ahead| ahead.bytes() > all / 2;
    let is_all = |ahead: &Ahead| ahead.bytes() > all && ahead.pending == 0;
    two.mover.cancel(is_half)?;
    // On the card at first, and then in host memory.
    for (daemon, order) in [(1, Order::StateFirst), (0, Order::MemoryFirst)] {
        let moved = two.move_live(daemon, order, is_all)?;
        println!("{mib} MiB: {moved:?}");
        ensure!(moved.0 < all / 4, "{moved:?}");
    }
    two.mover.cancel(is_half)?;
    let moved = two.move_surely(1, Order::StateFirst)?;
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
        let to = (1 - round % 2) as usize;
        // More than all of it: some chunks have changed, and have gone again.
        let moved = two.move_live(to, Order::StateFirst, |ahead| ahead.bytes() > BYTES * 5 / 4);
        moved.with_context(|| format!("round {round}"))?;
    }
    finish(program)
}

/// A session is suspended, brought back and renewed while its contents go ahead, and moves then. Of a program that ends meanwhile nothing
/// is left.
fn contents_go_ahead_amid_other_moves(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, "suspended", &["32", "work"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let (seen, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let has_come = |bytes: usize| -> Result<()> {
        let begun = Instant::now();
        while seen.load(Ordering::Relaxed) < bytes {
            ensure!(begun.elapsed() < LIMIT, "{bytes} bytes do not go ahead");
            thread::sleep(PAUSE);
        }
        Ok(())
    };
    let is_enough = |ahead: &Ahead| {
        seen.store(ahead.bytes(), Ordering::Relaxed);
        is_over.load(Ordering::Relaxed)
    };
    let moved = thread::scope(|scope| {
        let moving = scope.spawn(|| two.move_live(1, Order::StateFirst, is_enough));
        let mut asked = Ok(());
        for (command, number) in [("suspend", 1), ("resume", 2), ("renew", 3)] {
            asked = asked.and_then(|()| has_come(number * (8 << 20)));
            let answer = two.daemons[0].control.ask(&format!(r#"{{"do":"{command}","all":true}}"#));
            asked = asked.and_then(|()| answer.map(|answer| eprintln!("{command}: {answer}")));
        }
        is_over.store(true, Ordering::Relaxed);
        let moved = moving.join().ok().context("the move has failed")?;
        asked.and(moved)
    });
    moved.with_context(|| two.logs())?;
    let there = &two.daemons[1].control;
    ensure!(there.session_of(program.pid())?["program"] == "suspended");
    let begun = AtomicBool::new(false);
    let back = socket(&two.daemons[0])?;
    let is_enough = |ahead: &Ahead| {
        begun.fetch_or(ahead.bytes() > 4 << 20, Ordering::Relaxed);
        false
    };
    thread::scope(|scope| {
        let moving = scope.spawn(|| two.mover.move_live(&back, Order::StateFirst, is_enough));
        let waited = Instant::now();
        while !begun.load(Ordering::Relaxed) && waited.elapsed() < LIMIT {
            thread::sleep(PAUSE);
        }
        program.signal(libc::SIGKILL);
        moving.join().ok().context("the move has failed").map(drop)
    })?;
    for one in &two.daemons {
        let daemon = one.route.daemon.as_ref().context("no daemon")?;
        daemon.wait_until("nothing is left", LIMIT, |_| {
            let status = one.control.ask(r#"{"do":"status"}"#).unwrap_or_default();
            status["host_memory_used"] == 0
                && status["sessions"].as_array().is_some_and(|sessions| sessions.is_empty())
        })?;
    }
    Ok(())
}

/// A training moves when what has changed in a pass is little: 64 MiB (`--rounds` changes it), of which it changes 5 % per second on a GPU.
/// Prints how long it stood still.
fn contents_of_a_training(kit: &Kit) -> Result<()> {
    let mib = effort::rounds(64)?;
    let all = mib << 20;
    let little = (all / 50).max(4 * CHUNK_BYTES);
    let two = Two::start(kit, &[])?;
    let percent = if is_emulated() { "50" } else { "5" };
    let program = two.program(kit, "training", &[&mib.to_string(), percent], "")?;
    program.wait_for_stdout("begun", LONG)?;
    let begun = Instant::now();
    // The bytes to come, and those at the beginning of a pass.
    let (last, whole) = (Cell::new(0), Cell::new(u64::MAX));
    let is_enough = |ahead: &Ahead| {
        if ahead.pending > last.replace(ahead.pending) {
            whole.set(ahead.pending);
        }
        ahead.bytes() as u64 > all && (whole.get() <= little || begun.elapsed() > CONVERGES)
    };
    let (state, ahead, time) = two.move_live(1, Order::StateFirst, is_enough)?;
    let took = begun.elapsed();
    println!(
        "{mib} MiB: {ahead} bytes ahead in {took:?}, {} in the last pass, {state} at the stop; moved in {time:?}",
        whole.get()
    );
    ensure!((state as u64) < all / 2, "nothing has gone ahead: {state}");
    let there = two.daemons[1].route.daemon.as_ref().context("no daemon")?;
    there.wait_until("it runs there", LONG, |_| {
        two.daemons[1].control.sessions().is_ok_and(|all| all.iter().any(|one| one["state"] == "running"))
    })?;
    program.signal(libc::SIGTERM);
    let outcome = program.finish(LONG)?;
    outcome.expect_exit(0).with_context(|| two.logs())?;
    print!("{}", outcome.stdout);
    // Each pass, and the move.
    let logs = two.daemons.iter().filter_map(|one| one.route.daemon.as_ref()).map(|daemon| daemon.log());
    let is_of_moves = |line: &&str| {
        ["went ahead", "worker: suspended", "worker: running", "come ahead"]
            .iter()
            .any(|text| line.contains(text))
    };
    logs.for_each(|log| log.lines().filter(is_of_moves).for_each(|line| println!("{line}")));
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(())
}

/// A kernel that does not end leaves the program where it is.
fn work_that_does_not_end_stays(kit: &Kit) -> Result<()> {
    let two = Two::start(kit, &["--time-limit", "20"])?;
    let program = two.program(kit, "long_work", &["endless"], "")?;
    program.wait_for_stdout("started", LIMIT)?;
    let source = two.daemons[0].route.daemon.as_ref().context("no daemon")?;
    let begun = Instant::now();
    // At first another reason may keep it.
    while !source.log().contains("cannot go along: ") {
        ensure!(begun.elapsed() < LIMIT, "{}", source.log());
        let moved = two.move_to(1, Order::StateFirst)?;
        ensure!(matches!(moved[..], [Moved::Stays(_)]), "{moved:?}");
    }
    program.finish(LIMIT)?.expect_exit(0)
}
