// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs move between a daemon of this release and one of the release before, there and back, as with a virtual machine. Their contents
//! go ahead, or into a file, which the other release reads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions, end_of_log};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::mover::{Ahead, Moved, Mover, Order};
use vhost_cuda_tests::random_moves::{Moments, Moves, while_moving};
use vhost_cuda_tests::running::{Running, run};
use vhost_cuda_tests::stack::{Route, SOCKET_VARIABLE, Stack};
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::CALL_TABLE_VERSION;

use crate::{DEVICE, LIMIT, SETTLE, call_table_of, replace};

/// Programs that move at random moments, each until it has done so this often (`--rounds` changes it), in at most `RUNS` runs.
const PROGRAMS: [&str; 6] =
    ["copies", "four_threads", "own_variables", "events_streams", "pinned_memory", "textures"];
const ENOUGH: u64 = 2;
const RUNS: u64 = 60;
/// The maximum pause between two moves.
const PAUSE: Duration = Duration::from_millis(6);
/// The contents of a program in MiB.
const MIB: usize = 16;
/// An option that only daemons have whose sessions go with their machine.
const OF_MOVES: &str = "--contents";
/// The test that has no move where the release before refuses it.
const NEWER: &str = "moved::newer_libraries";
/// The reasons for which it does: the version of the state, or that of the calls.
const REASONS: [&str; 2] = ["the state has version", "of the call table"];

pub fn collect(suite: &mut Suite, now: &Stack, before: &Stack) -> Result<()> {
    let mut help = Command::new(before.daemon());
    let moves = run(help.arg("--help"), "", LIMIT)?.stdout.contains(OF_MOVES);
    type Test = fn(&Kit, &Stack, &Stack) -> Result<()>;
    let tests: [(&str, Test); 4] = [
        ("moved::at_random_moments", at_random_moments),
        ("moved::contents_go_ahead", contents_go_ahead),
        (NEWER, newer_libraries),
        ("moved::contents_in_a_file", contents_in_a_file),
    ];
    for (name, test) in tests {
        let (now, before) = (now.clone(), before.clone());
        if moves || name == NEWER {
            suite.test(name, move |kit| test(kit, &now, &before));
        } else {
            suite.skip(name, "sessions of the release before do not move");
        }
    }
    Ok(())
}

/// A daemon with a control socket.
struct Controlled {
    daemon: Daemon,
    control: Control,
    folder: TempDir,
}

impl Controlled {
    fn start(stack: &Stack, is_copy: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let control = Control::at(&folder.path().join("control"));
        let device = DEVICE.to_owned();
        let options = DaemonOptions { device, arguments: control.options(), is_copy, ..Default::default() };
        let daemon = Daemon::start(stack, &options)?;
        daemon.wait_until("control is served", SETTLE, |_| control.sessions().is_ok())?;
        Ok(Self { daemon, control, folder })
    }

    fn log(&self) -> String {
        end_of_log(&self.daemon.log())
    }
}

/// A daemon of each release, with programs that begin at the first one, and have the guest libraries of `guest`.
struct Two {
    guest: Route,
    daemons: [Controlled; 2],
    mover: Mover,
}

impl Two {
    fn start(guest: &Stack, first: &Stack, second: &Stack) -> Result<Self> {
        let daemons = [Controlled::start(first, false)?, Controlled::start(second, false)?];
        let mover = Mover::start(&daemons[0].daemon.socket())?;
        Ok(Self { guest: Route::to(guest), daemons, mover })
    }

    fn program(&self, kit: &Kit, name: &str, arguments: &[&str], stdin: &str) -> Result<Running> {
        let mut command = self.guest.command(&kit.programs.get(name)?);
        Running::start(command.args(arguments).env(SOCKET_VARIABLE, self.mover.socket()), stdin)
    }

    fn sockets(&self) -> [PathBuf; 2] {
        self.daemons.each_ref().map(|one| one.daemon.socket())
    }

    fn logs(&self) -> String {
        self.daemons.each_ref().map(|one| format!("--- a daemon\n{}\n", one.log())).concat()
    }
}

/// Programs with guest libraries of the release before print what they print without moves.
fn at_random_moments(kit: &Kit, now: &Stack, before: &Stack) -> Result<()> {
    let (enough, seed) = (effort::rounds(ENOUGH)?, effort::seed()?.unwrap_or(55));
    let two = Two::start(before, before, now)?;
    for name in PROGRAMS {
        let case = case(name);
        let start = || two.program(kit, case.program, case.args, case.stdin);
        let expected = start()?.finish(LIMIT)?;
        expected.expect_exit(case.exit)?;
        let (moves, mut runs) = (Moves::default(), 0);
        let moments = Moments { seed, times: 4, pause: PAUSE, most: u64::MAX };
        let all = while_moving(&two.mover, &two.sockets(), moments, &moves, || {
            while runs == 0 || (moves.count() < enough && runs < RUNS.saturating_mul(enough)) {
                runs += 1;
                let outcome = start()?.finish(LIMIT)?;
                outcome.expect_exit(case.exit)?;
                ensure!(
                    outcome.stdout == expected.stdout,
                    "without moves:\n{expected}\nwith them:\n{outcome}"
                );
            }
            Ok(())
        });
        all.with_context(|| format!("{name} with seed {seed}: {moves:?} in {runs} runs\n{}", two.logs()))?;
        ensure!(moves.count() >= enough, "{name}: the test shows nothing: {moves:?}");
        println!("{name}: {moves:?} in {runs} runs");
    }
    Ok(())
}

/// Contents of a program go ahead of it to the other release, in both directions.
fn contents_go_ahead(kit: &Kit, now: &Stack, before: &Stack) -> Result<()> {
    let two = Two::start(before, before, now)?;
    let program = two.program(kit, "suspended", &[&MIB.to_string(), "work"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let [first, second] = two.sockets();
    for to in [&second, &first, &second] {
        let has_all = |ahead: &Ahead| ahead.bytes() > MIB << 20;
        let moved = two.mover.move_live_surely(to, Order::StateFirst, LIMIT, has_all);
        moved.with_context(|| two.logs())?;
    }
    program.end_right(LIMIT).with_context(|| two.logs())
}

/// A program with guest libraries of this release goes to the release before, if that one knows all calls that it may make. Otherwise it is
/// refused for a version, and goes on where it was.
fn newer_libraries(kit: &Kit, now: &Stack, before: &Stack) -> Result<()> {
    let knows_all = call_table_of(before)? >= CALL_TABLE_VERSION;
    let is_refused = |logs: String| REASONS.iter().any(|reason| logs.contains(reason));
    let two = Two::start(now, now, before)?;
    let program = two.program(kit, "suspended", &["2", "work"], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    let to = two.sockets()[1].clone();
    let begun = Instant::now();
    loop {
        let moved = two.mover.move_to(&to, Order::StateFirst);
        match &moved[..] {
            [Moved::There(_)] if knows_all => break,
            [Moved::Stays(_)] if !knows_all && is_refused(two.logs()) => break,
            // It may have just come, or a call be under way.
            [Moved::Stays(_)] if begun.elapsed() < SETTLE => thread::sleep(PAUSE),
            _ => bail!("{moved:?}\n{}", two.logs()),
        }
    }
    program.end_right(LIMIT).with_context(|| two.logs())
}

/// A file that one release has saved is restored by the other, in both directions. A daemon is replaced by the program of the other release meanwhile.
fn contents_in_a_file(kit: &Kit, now: &Stack, before: &Stack) -> Result<()> {
    for (first, second) in [(before, now), (now, before)] {
        let controlled = Controlled::start(first, true)?;
        let mut command = Route::to(before).command(&kit.programs.get("suspended")?);
        command.args([&MIB.to_string(), "idle"]).env(SOCKET_VARIABLE, controlled.daemon.socket());
        let program = Running::start(&mut command, "")?;
        program.wait_for_stdout("begun", LIMIT)?;
        let session = controlled.control.session_of(program.pid())?["session"].to_string();
        let file = controlled.folder.path().join("saved");
        let file = file.to_str().context("a folder with another name")?;
        let ctl = |stack: &Stack, words: &[&str]| {
            let mut ctl = Command::new(stack.daemon());
            ctl.arg("ctl").args(controlled.control.options()).args(words);
            run(&mut ctl, "", LIMIT)?.expect_exit(0).with_context(|| controlled.log())
        };
        ctl(second, &["save", "--session", &session, file])?;
        replace(&controlled.control, &controlled.daemon, second)?;
        ensure!(controlled.control.state_of(program.pid())? == "saved", "{}", controlled.log());
        ctl(first, &["restore", file])?;
        ensure!(!Path::new(file).exists(), "the file is left");
        program.end_right(LIMIT).with_context(|| controlled.log())?;
    }
    Ok(())
}
