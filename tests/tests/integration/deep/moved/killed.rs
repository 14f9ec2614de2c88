// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A daemon, the link or the front-end ends at a random moment of a move. Afterwards one daemon has the program, with everything, or it is
//! lost as a whole. Nothing is left of it in the other one.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vhost_cuda_tests::daemon::Daemon;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::mover::{Ahead, Cut, Moved, Order};
use vhost_cuda_tests::running::Ended;
use vhost_cuda_tests::suite::{Kit, Suite};

use super::{Two, socket};
use crate::control::Controlled;
use crate::{LIMIT, expect_good, names};

/// Moves in which something ends.
const ROUNDS: u64 = 12;
/// Programs that compute until SIGTERM, and compare everything.
const PROGRAMS: [(&str, &[&str]); 3] =
    [("suspended", &["4", "work"]), ("moved", &["2"]), ("moved", &["1", "managed"])];
/// The length of a state in bytes, and the time for a move, before the first one.
const FIRST_LENGTH: usize = 8 << 20;
const FIRST_TIME: Duration = Duration::from_millis(60);

/// The bytes after which no more contents go ahead.
const AHEAD_BYTES: usize = 6 << 20;

/// The looks at the open files of a daemon, and the time before each.
const SAMPLES: u32 = 20;
const SAMPLE: Duration = Duration::from_millis(50);

/// The part that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Source,
    Destination,
    SavingLink,
    LoadingLink,
    SavingFrontEnd,
    LoadingFrontEnd,
}

const VICTIMS: [Victim; 6] = [
    Victim::Source,
    Victim::Destination,
    Victim::SavingLink,
    Victim::LoadingLink,
    Victim::SavingFrontEnd,
    Victim::LoadingFrontEnd,
];

pub fn collect(suite: &mut Suite) {
    suite.test("moved::parts_end_at_random_moments", parts_end_at_random_moments);
}

/// The open files of a daemon without sessions, whose worker is ready.
fn files_of(kit: &Kit, two: &Two, number: usize) -> Result<usize> {
    let Controlled { route, .. } = &two.daemons[number];
    expect_good(kit, route, "add_one")?;
    let daemon = two.daemon(number)?;
    daemon.wait_until("one worker is warm", LIMIT, |daemon| names(daemon) == ["cuda-warm"])?;
    // It has its name before the daemon has all of its files.
    let samples = (0..SAMPLES).map(|_| {
        thread::sleep(SAMPLE);
        daemon.open_files()
    });
    samples.max().context("no samples")
}

/// A move in which something ends.
struct Round {
    victim: Victim,
    source: usize,
    delay: Duration,
    cut: Option<Cut>,
    order: Order,
    /// Contents go ahead.
    is_live: bool,
}

fn parts_end_at_random_moments(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(ROUNDS)?, effort::seed()?.unwrap_or(55));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut two = Two::start(kit, &[])?;
    let files = [files_of(kit, &two, 0)?, files_of(kit, &two, 1)?];
    let (mut length, mut time, mut source) = (FIRST_LENGTH, FIRST_TIME, 0);
    let mut outcomes = [0_u64; 3];
    for number in 0..rounds {
        let victim = VICTIMS[random.usize(..VICTIMS.len())];
        let at = random.usize(..=length + length / 8);
        let cut = match victim {
            Victim::Source | Victim::Destination => None,
            Victim::SavingLink => Some(Cut::Save(at)),
            Victim::LoadingLink => Some(Cut::Load(at)),
            Victim::SavingFrontEnd => Some(Cut::KilledInSave(at)),
            Victim::LoadingFrontEnd => Some(Cut::KilledInLoad(at)),
        };
        let delay = time.mul_f64(1.5 * random.f64());
        let order = if random.bool() { Order::StateFirst } else { Order::MemoryFirst };
        let is_live = cut.is_none() && random.bool();
        let round = Round { victim, source, delay, cut, order, is_live };
        let program = PROGRAMS[random.usize(..PROGRAMS.len())];
        let context = || {
            format!("round {number} of seed {seed}: {victim:?} at {at} bytes or {delay:?}, live {is_live}")
        };
        let begun = Instant::now();
        let moved = run(kit, &two, &round, program, &mut random)
            .with_context(|| format!("{}\n{}", context(), two.logs()))?;
        match moved {
            Moved::There(bytes) => {
                (length, time) = (bytes, begun.elapsed().min(FIRST_TIME * 8));
                outcomes[0] += 1;
            }
            Moved::Stays(_) => outcomes[1] += 1,
            _ => outcomes[2] += 1,
        }
        source = two.settle(&round, files).with_context(|| format!("{}\n{}", context(), two.logs()))?;
    }
    let [there, stayed, lost] = outcomes;
    eprintln!("{rounds} moves of seed {seed}: {there} went, {stayed} stayed, {lost} were lost");
    Ok(())
}

/// Returns whether some contents have gone ahead, or the program has none.
fn is_enough(ahead: &Ahead) -> bool {
    ahead.bytes() > AHEAD_BYTES || (ahead.bytes() > 0 && ahead.pending == 0)
}

/// Moves a program while something ends. It must go on where it is then, or be lost where its daemon or its machine has ended.
fn run(
    kit: &Kit,
    two: &Two,
    round: &Round,
    (name, arguments): (&str, &[&str]),
    random: &mut fastrand::Rng,
) -> Result<Moved> {
    let destination = 1 - round.source;
    let program = two.program(kit, name, arguments, "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    thread::sleep(Duration::from_micros(random.u64(..30_000)));
    let victim = match round.victim {
        Victim::Source => Some(two.daemon(round.source)?),
        Victim::Destination => Some(two.daemon(destination)?),
        _ => None,
    };
    let workers = victim.map(Daemon::workers).unwrap_or_default();
    let to = socket(&two.daemons[destination])?;
    let moved = thread::scope(|scope| {
        let moving = scope.spawn(|| match round.is_live {
            // One that ends meanwhile gives up the move, or refuses the rest.
            true => two.mover.move_live(&to, round.order, is_enough).into_iter().map(|one| one.0).collect(),
            false => two.mover.try_to_move(&to, round.order, round.cut),
        });
        if let Some(daemon) = victim {
            thread::sleep(round.delay);
            // SAFETY: a plain system call. The daemon is this process's child, and not waited for yet.
            unsafe { libc::kill(daemon.pid() as libc::pid_t, libc::SIGKILL) };
        }
        moving.join()
    });
    let mut moved = moved.ok().context("the move has failed")?;
    // Those of rounds before.
    moved.retain(|moved| *moved != Moved::Gone);
    ensure!(moved.len() == 1, "{moved:?}");
    let moved = moved.remove(0);
    let has_ended = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    };
    let deadline = Instant::now() + LIMIT;
    while !workers.iter().all(has_ended) {
        ensure!(Instant::now() < deadline, "workers of a daemon that has ended are left: {workers:?}");
        thread::sleep(Duration::from_millis(5));
    }
    let is_lost = match (&moved, round.victim) {
        (Moved::There(_), Victim::Destination) | (Moved::Stays(_), Victim::Source) => true,
        (Moved::There(_) | Moved::Stays(_), _) => false,
        (Moved::Lost(_), Victim::Source | Victim::SavingFrontEnd | Victim::LoadingFrontEnd) => true,
        _ => return Err(anyhow::anyhow!("{moved:?}")),
    };
    if is_lost {
        let outcome = program.finish(LIMIT)?;
        let is_told = !matches!(outcome.ended, Ended::TimedOut | Ended::Exit(0));
        ensure!(is_told, "{moved:?}: the program has not learned that it is lost\n{outcome}");
    } else {
        program.signal(libc::SIGTERM);
        let outcome = program.finish(LIMIT)?;
        outcome.expect_exit(0).with_context(|| format!("{moved:?}"))?;
        ensure!(outcome.stdout.contains("right"), "{moved:?}\n{outcome}");
    }
    Ok(moved)
}

impl Two {
    fn daemon(&self, number: usize) -> Result<&Daemon> {
        self.daemons[number].route.daemon.as_ref().context("no daemon")
    }

    /// Starts a daemon that was killed again, and waits until nothing of the program is left. Returns the daemon to which programs come.
    fn settle(&mut self, round: &Round, files: [usize; 2]) -> Result<usize> {
        let killed = match round.victim {
            Victim::Source => Some(round.source),
            Victim::Destination => Some(1 - round.source),
            _ => None,
        };
        for (number, files) in files.into_iter().enumerate() {
            let controlled = &mut self.daemons[number];
            let control = controlled.control.clone();
            let daemon = controlled.route.daemon.as_mut().context("no daemon")?;
            if killed == Some(number) {
                daemon.restart()?;
            }
            ensure!(daemon.is_running(), "a daemon has ended\n{}", daemon.log());
            let left = |daemon: &Daemon| {
                let status = control.ask(r#"{"do":"status"}"#).unwrap_or_default();
                (status, names(daemon), daemon.open_files())
            };
            let nothing = |(status, workers, open): (Value, Vec<String>, usize)| {
                let has_sessions = status["sessions"].as_array().is_none_or(|sessions| !sessions.is_empty());
                !has_sessions && status["host_memory_used"] == 0 && workers == ["cuda-warm"] && open <= files
            };
            daemon
                .wait_until("nothing is left", LIMIT, |daemon| nothing(left(daemon)))
                .with_context(|| format!("{:?}, where {files} were open", left(daemon)))?;
            ensure!(!daemon.log().contains("panicked"), "{}", daemon.log());
        }
        Ok(1 - round.source)
    }
}
