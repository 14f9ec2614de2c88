// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sessions that the operator suspends and resumes, and those that make room for others.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::control::Control;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions, is_emulated};
use vhost_cuda_tests::running::{Running, run};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::replaced::REPLACE;
use crate::{LIMIT, LOSS, SETTLE, daemon, expect_good, route, start};

/// A pause in which a session that is not held would have come back.
const MOMENT: Duration = Duration::from_millis(500);
/// Suspensions of a program that works.
const SUSPENSIONS: u64 = 100;
/// Workers that are killed while they move.
const KILLS: u64 = 12;

pub fn collect(suite: &mut Suite) {
    suite.test("suspended_by_the_operator", suspended_by_the_operator);
    suite.test("suspended_again", suspended_again);
    suite.test("suspended_while_it_works", suspended_while_it_works);
    suite.test("suspended_workers_are_killed", suspended_workers_are_killed);
    suite.test("recipes_of_sessions", recipes_of_sessions);
    let for_others = ["suspended_to_make_room", "suspended_in_part", "suspended_for_another_daemon"];
    if is_emulated() {
        suite.test(for_others[0], suspended_to_make_room);
        suite.test(for_others[1], suspended_in_part);
        suite.test(for_others[2], suspended_for_another_daemon);
    } else {
        let why = "the size of the card's memory is chosen with the emulator only";
        for_others.iter().for_each(|name| suite.skip(*name, why));
    }
}

/// A daemon with a control socket.
pub struct Controlled {
    /// The way to it.
    pub route: Route,
    /// Its control socket.
    pub control: Control,
    folder: TempDir,
}

impl Controlled {
    /// Starts one with `more` options, and with the emulator's `memory`: a size for each of its devices, with commas between them.
    pub fn start(kit: &Kit, more: &[&str], memory: Option<&str>) -> Result<Self> {
        Self::start_with(kit, more, memory, false)
    }

    /// Starts one from a copy of its program, which can be replaced.
    pub fn start_copy(kit: &Kit, more: &[&str]) -> Result<Self> {
        Self::start_with(kit, more, None, true)
    }

    fn start_with(kit: &Kit, more: &[&str], memory: Option<&str>, is_copy: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let control = Control::at(&folder.path().join("control"));
        let more = more.iter().copied().map(str::to_owned);
        let arguments = control.options().into_iter().chain(more).collect();
        // One size for each device.
        let devices = memory.map(|sizes| sizes.split(',').count().to_string());
        let of = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
        let memory = of("CUDA_EMULATOR_MEMORY", memory.map(str::to_owned));
        let environment = [memory, of("CUDA_EMULATOR_DEVICES", devices)].into_iter().flatten().collect();
        let options = DaemonOptions { arguments, environment, is_copy, ..Default::default() };
        let mut route = route(kit, &options)?;
        daemon(&mut route)?.wait_until("control is served", SETTLE, |_| control.sessions().is_ok())?;
        Ok(Self { route, control, folder })
    }

    /// Waits until no session is left.
    pub fn wait_for_end(&mut self) -> Result<()> {
        let is_empty = || self.control.sessions().is_ok_and(|sessions| sessions.is_empty());
        daemon(&mut self.route)?.wait_until("no session is left", SETTLE, |_| is_empty())
    }

    /// The path of its control socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Starts the program, and waits until it has begun.
    pub fn program(&self, kit: &Kit, arguments: &[&str]) -> Result<Running> {
        let program = start(kit, &self.route, "suspended", arguments)?;
        program.wait_for_stdout("begun", LIMIT)?;
        Ok(program)
    }

    /// Sends a request that must be carried out.
    pub fn ask(&self, line: &str) -> Result<Value> {
        let answer = self.control.ask(line)?;
        ensure!(answer["ok"] == true, "{line}: {answer}");
        Ok(answer)
    }

    /// Waits until the daemon says of the program's session what `is_there` looks for.
    pub fn wait_until(
        &mut self,
        what: &str,
        program: &Running,
        is_there: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let (control, pid) = (&self.control, program.pid());
        daemon(&mut self.route)?
            .wait_until(what, SETTLE, |_| control.session_of(pid).is_ok_and(|session| is_there(&session)))
    }

    /// Checks the state of the program's session.
    pub fn expect_state(&self, program: &Running, state: &str) -> Result<()> {
        let now = self.control.state_of(program.pid())?;
        ensure!(now == state, "the session is {now} and not {state}");
        Ok(())
    }
}

/// Ends a program that must find its memory as it was.
pub fn finish(program: Running) -> Result<()> {
    program.end_right(LIMIT)
}

fn suspended_by_the_operator(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["16", "idle"])?;
    let answer = controlled.ask(r#"{"do":"suspend","all":true,"hold":true}"#)?;
    let session = &answer["sessions"][0];
    let least = 16 << 20;
    ensure!(session["suspended_bytes"].as_u64() >= Some(least), "{answer}");
    controlled.expect_state(&program, "held")?;
    let socket = controlled.socket();
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(kit.stack.daemon());
        run(command.arg("ctl").arg("--control").arg(&socket).args(arguments), "", LIMIT)
    };
    let shown = ctl(&["status"])?;
    shown.expect_exit(0)?;
    ensure!(shown.stdout.contains(" held ") && shown.stdout.contains(" suspended "), "{shown}");
    ctl(&["suspend", "--session", "999"])?.expect_exit(1)?;

    // Its next call waits until the operator lets it go on.
    program.signal(libc::SIGTERM);
    controlled.wait_until("a call waits", &program, |session| session["wanted"] == true)?;
    thread::sleep(MOMENT);
    controlled.expect_state(&program, "held")?;
    ctl(&["resume", "--connection", "1"])?.expect_exit(0)?;
    finish(program)?;
    controlled.wait_for_end()?;

    // A program that is killed while it is suspended leaves nothing.
    let program = controlled.program(kit, &["16", "idle"])?;
    controlled.ask(r#"{"do":"suspend","all":true,"hold":true}"#)?;
    program.signal(libc::SIGKILL);
    program.finish(LOSS)?;
    controlled.wait_for_end()?;
    let Controlled { control, route, .. } = &mut controlled;
    ensure!(control.ask(r#"{"do":"status"}"#)?["host_memory_used"] == 0, "its host memory counts");
    daemon(route)?.stop()?;
    ensure!(!socket.exists(), "the control socket is left behind");
    Ok(())
}

/// Contents that have not changed are copied once.
fn suspended_again(kit: &Kit) -> Result<()> {
    let mut copies = Vec::new();
    for keep in ["600", "0"] {
        let controlled = Controlled::start(kit, &["--keep-contents", keep], None)?;
        // Half of its memory was never written.
        let program = controlled.program(kit, &["16", "greedy"])?;
        program.wait_for_stdout("more: 0", LIMIT)?;
        let mut stored = None;
        for _ in 0..3 {
            let answer = controlled.ask(r#"{"do":"suspend","all":true}"#)?;
            let bytes = |name: &str| answer["sessions"][0][name].as_u64().context("a figure");
            let all = (bytes("suspended_bytes")?, bytes("stored_bytes")?);
            ensure!(all.0 >= 32 << 20 && all.1 >= 16 << 20 && all.1 <= all.0 - (16 << 20), "{answer}");
            ensure!(*stored.get_or_insert(all.1) == all.1, "{answer}");
            copies.push(bytes("copied_bytes")?.min(16 << 20) >> 20);
            let answer = controlled.ask(r#"{"do":"resume","all":true}"#)?;
            let kept = if keep == "0" { 0 } else { all.1 };
            ensure!(answer["host_memory_used"] == kept, "{answer}");
        }
        finish(program)?;
    }
    ensure!(copies == [16, 0, 0, 16, 16, 16], "{copies:?} MiB were copied");
    Ok(())
}

fn suspended_while_it_works(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["8", "work"])?;
    let mut random = fastrand::Rng::with_seed(35);
    for _ in 0..SUSPENSIONS {
        controlled.ask(r#"{"do":"suspend","all":true}"#)?;
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
    }
    let sessions = controlled.control.sessions()?;
    let session = sessions.first().context("the session has ended")?;
    // A request for a session that is suspended already is not counted.
    ensure!(session["suspensions"].as_u64() >= Some(SUSPENSIONS / 4), "{session}");
    ensure!(session["failures"] == 0, "{session}");
    finish(program)
}

fn suspended_workers_are_killed(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &["--warm-workers", "0"], None)?;
    let mut random = fastrand::Rng::with_seed(54);
    for _ in 0..KILLS {
        let program = controlled.program(kit, &["16", "work"])?;
        let control = controlled.control.clone();
        let moving = thread::spawn(move || {
            // Until the session has ended.
            while control
                .ask(r#"{"do":"suspend","all":true}"#)
                .is_ok_and(|answer| answer["sessions"] != Value::Array(vec![]))
            {}
        });
        thread::sleep(Duration::from_micros(random.u64(..100_000)));
        for worker in daemon(&mut controlled.route)?.workers() {
            // SAFETY: a plain system call; a worker that has ended is not there.
            unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
        }
        let outcome = program.finish(LOSS)?;
        ensure!(!outcome.stdout.contains("right"), "{outcome}");
        ensure!(moving.join().is_ok(), "the client has failed");
        ensure!(daemon(&mut controlled.route)?.is_running(), "the daemon has ended");
    }
    let answer = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(answer["host_memory_used"] == 0, "{answer}");
    expect_good(kit, &controlled.route, "add_one")
}

fn suspended_to_make_room(kit: &Kit) -> Result<()> {
    // With the emulator each process has a card of its own: the greedy one finds no room whatever is suspended for it.
    let arguments = ["--single=false", "--suspend-after", "0.3"];
    let mut controlled = Controlled::start(kit, &arguments, Some("96M"))?;
    let idle = controlled.program(kit, &["48", "idle"])?;
    let busy = controlled.program(kit, &["8", "work"])?;
    controlled.wait_until("it is idle", &idle, |session| session["idle_ms"].as_u64() >= Some(300))?;
    let greedy = controlled.program(kit, &["56", "greedy"])?;
    greedy.wait_for_stdout("more: 2", LIMIT)?;
    controlled.expect_state(&idle, "suspended")?;
    controlled.expect_state(&busy, "running")?;
    for program in [idle, busy, greedy] {
        finish(program)?;
    }
    Ok(())
}

/// With host memory for a half of its contents, a session makes as much room as it can, and has all of them when it goes on.
fn suspended_in_part(kit: &Kit) -> Result<()> {
    let arguments = ["--single=false", "--suspend-after", "0.3", "--suspend-memory", "25M"];
    let mut controlled = Controlled::start(kit, &arguments, Some("96M"))?;
    let idle = controlled.program(kit, &["48", "idle"])?;
    controlled.wait_until("it is idle", &idle, |session| session["idle_ms"].as_u64() >= Some(300))?;
    let greedy = controlled.program(kit, &["56", "greedy"])?;
    greedy.wait_for_stdout("more: 2", LIMIT)?;
    let session = controlled.control.session_of(idle.pid())?;
    let suspended = session["suspended_bytes"].as_u64().unwrap_or_default();
    ensure!(session["state"] == "suspended" && (16 << 20..48 << 20).contains(&suspended), "{session}");
    ensure!(session["on_card_bytes"].as_u64() >= Some((48 << 20) - suspended), "{session}");
    controlled.ask(REPLACE)?;
    let replaced = controlled.control.session_of(idle.pid())?;
    for figure in ["state", "suspended_bytes", "stored_bytes", "on_card_bytes"] {
        ensure!(session[figure] == replaced[figure], "{figure} is not kept: {session}, then {replaced}");
    }
    let answer = controlled.control.ask(r#"{"do":"suspend","all":true}"#)?;
    ensure!(answer["ok"] == false && answer.to_string().contains("host memory"), "{answer}");
    for program in [idle, greedy] {
        finish(program)?;
    }
    let answer = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(answer["host_memory_used"].as_u64() <= Some(25 << 20), "{answer}");
    Ok(())
}

/// Daemons of the same GPU make room for each other, if they are connected to one arbiter and have the option.
fn suspended_for_another_daemon(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let shared = arbiter.options(100)?;
    let shared = shared.iter().map(String::as_str);
    let daemon = |connected: bool, after: Option<&str>| {
        let after = after.into_iter().flat_map(|after| ["--suspend-after", after]);
        let options: Vec<&str> = shared.clone().filter(|_| connected).chain(after).collect();
        Controlled::start(kit, &options, Some("96M"))
    };
    let mut idle = [daemon(true, Some("0.3"))?, daemon(true, None)?, daemon(false, Some("0.3"))?];
    let mut programs = Vec::new();
    for of in &mut idle {
        let program = of.program(kit, &["48", "idle"])?;
        of.wait_until("it is idle", &program, |session| session["idle_ms"].as_u64() >= Some(300))?;
        programs.push(program);
    }
    // A replaced daemon connects to the arbiter again, and its sessions have been idle for as long as before.
    idle[0].ask(REPLACE)?;
    let since = idle[0].control.session_of(programs[0].pid())?["idle_ms"].clone();
    ensure!(since.as_u64() >= Some(300), "idle for {since} ms");
    let connected = |of: &Daemon| of.log().matches("GPU time is shared by").count() >= 2;
    crate::daemon(&mut idle[0].route)?.wait_until("it is connected again", SETTLE, connected)?;
    let greedy = daemon(true, Some("0.3"))?;
    let program = greedy.program(kit, &["56", "greedy"])?;
    program.wait_for_stdout("more: 2", LIMIT)?;
    idle[0].expect_state(&programs[0], "suspended")?;
    idle[1].expect_state(&programs[1], "running")?;
    idle[2].expect_state(&programs[2], "running")?;
    programs.push(program);
    programs.into_iter().try_for_each(finish)
}

fn recipes_of_sessions(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let programs = [controlled.program(kit, &["16", "idle"])?, controlled.program(kit, &["16", "link"])?];
    let told = |program: &Running| -> Result<Value> {
        let session = controlled.control.session_of(program.pid())?["session"].clone();
        let answer = controlled.ask(&format!(r#"{{"do":"recipe","session":{session}}}"#))?;
        Ok(answer["sessions"][0]["recipe"].clone())
    };
    let [complete, with_link] = [told(&programs[0])?, told(&programs[1])?];
    // A context, a module or library with its kernel, and two streams for each of two blocks.
    ensure!(complete["calls"].as_u64() >= Some(7) && complete["obstacle"].is_null(), "{complete}");
    ensure!(with_link["obstacle"] == "links are not followed until they end", "{with_link}");
    let mut command = Command::new(kit.stack.daemon());
    let shown = run(
        command.arg("ctl").arg("--control").arg(controlled.socket()).args(["recipe", "--all"]),
        "",
        LIMIT,
    )?;
    shown.expect_exit(0)?;
    let lines = |end: &str| shown.stdout.lines().filter(|line| line.ends_with(end)).count();
    ensure!(lines(" yes") == 1 && lines(" no: links are not followed until they end") == 1, "{shown}");
    // Nothing of it needs the memory.
    controlled.ask(r#"{"do":"suspend","all":true,"hold":true}"#)?;
    ensure!(told(&programs[0])? == complete, "it was suspended");
    controlled.ask(r#"{"do":"resume","all":true}"#)?;
    programs.into_iter().try_for_each(finish)
}
