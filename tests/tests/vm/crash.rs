// SPDX-License-Identifier: Apache-2.0 OR MIT

//! QEMU is killed at random moments, while a program of its guest copies, or takes turns with kernels at managed memory. Nothing of
//! the machine is left, and the daemon, or the next one on its socket, serves another machine.
//!
//! `cargo xtask test` has options for the number of rounds, and for the seed of the moments.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use vhost_cuda_tests::daemon::workers_of;
use vhost_cuda_tests::effort;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::vm::Survivor;

use crate::boot_after;
use crate::life::{Copying, expect_good, wait_until};

const USUAL_ROUNDS: u64 = 10;
/// The maximum time in microseconds between the first copy of the guest's program and the kill of QEMU.
const MAX_DELAY: u64 = 200_000;
/// In every so manieth round the daemon is killed, too.
const DAEMON_AS_WELL: u64 = 4;
/// The name of the file of a guest's memory (qemu: backends/hostmem-memfd.c).
const GUEST_MEMORY: &str = "memory-backend-memfd";
/// Descriptors of the daemon that come and go: those of a worker that starts.
const SPARE_FILES: usize = 6;
/// The program's arguments in even and odd rounds.
const WORKS: [&[&str]; 2] = [&[], &["4194304", "managed"]];

pub fn collect(suite: &mut Suite) {
    suite.test("crash::qemu_killed_at_random_moments", qemu_killed);
}

fn qemu_killed(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(USUAL_ROUNDS)?, effort::seed()?.unwrap_or(19));
    let mut random = fastrand::Rng::with_seed(seed);
    let paths = Paths::discover()?;
    let (mut survivor, mut files) = (None, None);
    for round in 0..rounds {
        let delay = Duration::from_micros(random.u64(..MAX_DELAY));
        let restart = round % DAEMON_AS_WELL == DAEMON_AS_WELL - 1;
        let work = WORKS[round as usize % WORKS.len()];
        let outcome = one_round(kit, &paths, survivor.take(), Moment { work, delay, restart }, &mut files);
        survivor = Some(outcome.with_context(|| {
            format!(
                "round {round} of seed {seed}: {work:?} killed after {delay:?}, the daemon as well: {restart}"
            )
        })?);
    }
    let vm = boot_after(&paths, "crash", survivor, |_| {})?;
    expect_good(kit, &vm, "add_one")?;
    vm.shut_down()?;
    eprintln!("crash: {rounds} rounds of seed {seed}");
    Ok(())
}

/// The work of a round, and how it ends.
struct Moment {
    /// The arguments of the guest's program.
    work: &'static [&'static str],
    /// The time from its first copy to the end of its machine.
    delay: Duration,
    /// The daemon is killed, too.
    restart: bool,
}

fn one_round(
    kit: &Kit,
    paths: &Paths,
    survivor: Option<Survivor>,
    Moment { work, delay, restart }: Moment,
    files: &mut Option<usize>,
) -> Result<Survivor> {
    let vm = boot_after(paths, "crash", survivor, |_| {})?;
    // The program ends with its machine, so its result is ignored.
    let _copying = Copying::start_with(kit, &vm, work)?;
    thread::sleep(delay);
    let all = vm.daemon().id().map(workers_of).unwrap_or_default();
    let mut survivor = vm.crash()?;
    if restart {
        survivor.daemon.kill()?;
        wait_until("the workers end with their daemon", || Ok(!all.iter().any(|pid| runs(*pid))))?;
        survivor.daemon.restart()?;
        *files = None;
        return Ok(survivor);
    }
    survivor.daemon.check()?;
    let daemon = survivor.daemon.id().context("the daemon has ended")?;
    wait_until("only a warm worker is left", || {
        let left = workers_of(daemon);
        Ok(left.len() <= 1 && !left.iter().any(|pid| name(*pid) == "cuda-session"))
    })?;
    wait_until("nobody has the guest's memory", || {
        Ok(workers_of(daemon).into_iter().chain([daemon]).all(|pid| !has_guest_memory(pid)))
    })?;
    // Once a worker is warm again the number of descriptors is that of any round.
    wait_until("a worker is warm", || Ok(workers_of(daemon).iter().any(|pid| name(*pid) == "cuda-warm")))?;
    let before = *files.get_or_insert(open_files(daemon));
    wait_until("the machine's descriptors go", || Ok(open_files(daemon) <= before + SPARE_FILES))?;
    Ok(survivor)
}

fn runs(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns whether a process has mapped memory of a guest, or has its file: its pages would stay in use.
fn has_guest_memory(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let named = |path: &Path| path.to_string_lossy().contains(GUEST_MEMORY);
    maps.contains(GUEST_MEMORY)
        || files.filter_map(|file| fs::read_link(file.path()).ok()).any(|path| named(&path))
}
