// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The daemon's program is replaced while programs run. They notice nothing.

use std::fs::{self, Permissions};
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_common::link;
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::FakeFrontend;
use vhost_cuda_tests::running::Ended;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::transport::{Opened, PROTOCOL_VERSION, REPLY_OK};
use zerocopy::FromBytes;

use crate::control::{Controlled, finish};
use crate::{LIMIT, SETTLE, daemon, expect_good, finish_case};

/// Programs of the table, with what each one has: threads, streams, graphs, a library, textures, pinned memory, memory of
/// `cuMemCreate`, memory that processes share, and copies through queues.
const PROGRAMS: [&str; 9] = [
    "copies",
    "four_threads",
    "events_streams",
    "graphs",
    "blas",
    "textures",
    "pinned_memory",
    "virtual_memory",
    "sharing",
];
/// Replacements of a daemon with programs, and those that leave nothing behind.
const REPLACEMENTS: u64 = 20;
const MANY: u64 = 100;
/// A program of the table runs until the daemon was replaced this often under its sessions, at most `ROUNDS` times.
const ENOUGH: u64 = 5;
const ROUNDS: u32 = 100;
/// The pauses between two replacements: a daemon that is always being replaced serves nobody.
const PAUSE_US: std::ops::Range<u64> = 10_000..80_000;
/// A user without privileges.
const NOBODY: u32 = 65534;
/// The request.
pub const REPLACE: &str = r#"{"do":"replace"}"#;

pub fn collect(suite: &mut Suite) {
    for program in PROGRAMS {
        suite.test(format!("replaced::{program}"), move |kit| prints_the_same(kit, program));
    }
    suite.test("replaced::sessions_stay", sessions_stay);
    suite.test("replaced::suspended_sessions_stay", suspended_sessions_stay);
    suite.test("replaced::nothing_is_left_behind", nothing_is_left_behind);
    suite.test("replaced::a_front_end_goes_on", a_front_end_goes_on);
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } == 0 {
        suite.test("replaced::an_unprivileged_daemon", an_unprivileged_daemon);
    } else {
        suite.skip("replaced::an_unprivileged_daemon", "the other tests run as one");
    }
    suite.test("replaced::a_queue_keeps_its_position", a_queue_keeps_its_position);
    suite.test("replaced::a_recording_ends", a_recording_ends);
    suite.test("replaced::a_program_that_fails_leaves_the_old_one", a_program_that_fails_leaves_the_old_one);
    suite.test("replaced::a_program_that_fails_late_goes_back", a_program_that_fails_late_goes_back);
    suite.test("replaced::a_program_that_hangs_late_ends", a_program_that_hangs_late_ends);
    suite.test("replaced::other_versions_are_refused", other_versions_are_refused);
    suite.test("replaced::options_that_cannot_change_are_refused", options_that_cannot_change_are_refused);
}

fn prints_the_same(kit: &Kit, program: &str) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let Controlled { route, control, .. } = &controlled;
    let case = case(program);
    // Compiled before.
    let expected = finish_case(kit, route, case)?;
    let (is_over, replacements) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(36);
            while !is_over.load(Ordering::Relaxed) {
                // A daemon with requests under way for long may refuse.
                let is_replaced = control.ask(REPLACE).is_ok_and(|answer| answer["ok"] == true);
                let has_sessions = control.sessions().is_ok_and(|sessions| !sessions.is_empty());
                replacements.fetch_add((is_replaced && has_sessions).into(), Ordering::Relaxed);
                thread::sleep(Duration::from_micros(random.u64(PAUSE_US)));
            }
        });
        let all = (0..ROUNDS).try_for_each(|round| {
            if round > 0 && replacements.load(Ordering::Relaxed) >= ENOUGH {
                return Ok(());
            }
            let outcome = finish_case(kit, route, case)?;
            outcome.expect_exit(case.exit)?;
            ensure!(
                outcome.stdout == expected.stdout,
                "without replacements:\n{expected}\nwith them:\n{outcome}"
            );
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        all
    })?;
    let replacements = replacements.into_inner();
    ensure!(replacements >= ENOUGH, "it was replaced {replacements} times: the test shows nothing");
    Ok(())
}

/// Programs that work go on in their sessions, and with the same workers.
fn sessions_stay(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let programs: Vec<_> = (0..4).map(|_| controlled.program(kit, &["2", "work"])).collect::<Result<_>>()?;
    let numbers = |controlled: &Controlled| -> Result<Vec<_>> {
        let sessions = controlled.control.sessions()?;
        let number = |session: &serde_json::Value| session["session"].as_u64().zip(session["pid"].as_u64());
        Ok(sessions.iter().filter_map(number).collect())
    };
    let before = numbers(&controlled)?;
    ensure!(before.len() == 4, "{before:?}");
    let daemon_pid = daemon(&mut controlled.route)?.pid();
    for _ in 0..REPLACEMENTS {
        controlled.ask(REPLACE)?;
        ensure!(numbers(&controlled)? == before, "the sessions are others");
        // A new session can be opened, too.
        expect_good(kit, &controlled.route, "add_one")?;
    }
    for program in programs {
        finish(program)?;
    }
    let daemon = daemon(&mut controlled.route)?;
    ensure!(daemon.is_running() && daemon.pid() == daemon_pid, "the process is another one");
    let log = daemon.log();
    ensure!(!log.contains("lost"), "{log}");
    daemon.stop().map(drop)
}

/// Sessions whose memory is in host memory stay there, and are held as before.
fn suspended_sessions_stay(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["16", "idle"])?;
    let before = controlled.ask(r#"{"do":"suspend","all":true,"hold":true}"#)?;
    for _ in 0..3 {
        controlled.ask(REPLACE)?;
    }
    let after = controlled.ask(r#"{"do":"status"}"#)?;
    for figure in ["state", "suspended_bytes", "stored_bytes", "suspensions"] {
        let [before, after] = [&before, &after].map(|answer| &answer["sessions"][0][figure]);
        ensure!(before == after, "{figure}: {before} before, {after} after");
    }
    ensure!(before["host_memory_used"] == after["host_memory_used"], "{before}\n{after}");
    controlled.ask(r#"{"do":"resume","all":true}"#)?;
    finish(program)
}

/// Neither descriptors nor processes become more.
fn nothing_is_left_behind(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["2", "work"])?;
    let daemon = daemon(&mut controlled.route)?;
    // One worker is ready beside that of the program.
    daemon.wait_until("a worker is ready", SETTLE, |daemon| daemon.workers().len() == 2)?;
    let before = daemon.workers();
    controlled.control.ask(REPLACE)?;
    // The worker of the program is the one that stays. It has descriptors, too.
    let stays = |worker: &&u32| before.contains(worker);
    let worker = daemon.workers().iter().find(stays).copied().context("its worker has ended")?;
    let counts = |daemon: &Daemon| (daemon.workers().len(), daemon.open_files() + files_of(worker));
    let settled = |daemon: &Daemon| -> Result<usize> {
        daemon.wait_until("a worker is ready", SETTLE, |daemon| counts(daemon).0 == 2)?;
        daemon.wait_until("it has greeted", SETTLE, |daemon| {
            daemon.log().matches("CUDA driver").count() >= 2
        })?;
        Ok(counts(daemon).1)
    };
    let before = settled(daemon)?;
    let (mut replaced, mut refused) = (0, Vec::new());
    while replaced < MANY {
        let answer = controlled.control.ask(REPLACE).with_context(|| daemon.log())?;
        match answer["ok"] == true {
            true => replaced += 1,
            // A machine that is very busy does not let it stop its threads in time.
            false => refused.push(answer.to_string()),
        }
        ensure!(refused.len() < MANY as usize, "{replaced} replacements, and refusals: {refused:?}");
    }
    daemon.wait_until("as many descriptors as before", SETTLE, |daemon| counts(daemon) == (2, before))?;
    let zombies = fs::read_dir("/proc")?.flatten().filter(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&daemon.pid().to_string().as_str())
    });
    ensure!(zombies.count() == 0, "processes were not waited for");
    finish(program).context("the program")
}

/// The number of descriptors of a process.
fn files_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A front-end that speaks vhost-user, as a VMM does: its queues, sessions and memory are there, and it can change them.
fn a_front_end_goes_on(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let socket = daemon(&mut controlled.route)?.socket();
    let mut front_end = FakeFrontend::connect(&socket)?;
    front_end.hello(PROTOCOL_VERSION)?;
    let mut sessions = vec![open(&mut front_end)?];
    for _ in 0..5 {
        controlled.ask(REPLACE)?;
        sessions.push(open(&mut front_end)?);
        front_end.show_memory_again()?;
    }
    ensure!(controlled.control.sessions()?.len() == sessions.len(), "sessions are lost");
    for &session in &sessions {
        let reply = front_end.close(session)?;
        ensure!(reply.status == REPLY_OK, "{session}: {reply:?}");
    }
    open(&mut front_end)?;
    controlled.ask(REPLACE)?;
    front_end.reset()?;
    ensure!(controlled.control.sessions()?.is_empty(), "a session has survived the reset");
    // With a queue that is stopped.
    controlled.ask(REPLACE)?;
    front_end.show_memory_again()?;
    ensure!(!front_end.is_disconnected(), "it was disconnected");
    FakeFrontend::behave(&socket)
}

/// A daemon without privileges keeps the rights of its user namespace: new workers are in the namespaces of those before.
fn an_unprivileged_daemon(kit: &Kit) -> Result<()> {
    let options = DaemonOptions {
        device: "emulated".into(),
        arguments: ["--namespaces", "require"].map(String::from).to_vec(),
        // Its folders are in the root of workers, and cargo's are not.
        environment: vec![("LD_LIBRARY_PATH".into(), String::new())],
        user: Some(NOBODY),
        ..Default::default()
    };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    let mut front_end = FakeFrontend::connect(&daemon.socket())?;
    front_end.hello(PROTOCOL_VERSION)?;
    let mut sessions = vec![open(&mut front_end)?];
    let count = |daemon: &Daemon, what: &str| daemon.log().matches(what).count();
    let (done, refused) = ("in the place of release", "not replaced: ");
    while count(&daemon, done) < 3 {
        let before = count(&daemon, done) + count(&daemon, refused);
        ensure!(count(&daemon, refused) < 10, "it is refused: {}", daemon.log());
        // SAFETY: a plain system call; the daemon is a child that was not waited for.
        unsafe { libc::kill(daemon.pid() as libc::pid_t, libc::SIGHUP) };
        daemon.wait_until("it is replaced or says why not", LIMIT, |daemon| {
            count(daemon, done) + count(daemon, refused) > before
        })?;
        sessions.push(open(&mut front_end)?);
    }
    let log = daemon.log();
    ensure!(!log.contains("new workers cannot be started in the namespaces"), "{log}");
    for session in sessions {
        ensure!(front_end.close(session)?.status == REPLY_OK, "{session} is lost");
    }
    daemon.stop().map(drop)
}

/// A queue that has not run since the last replacement is where it was.
fn a_queue_keeps_its_position(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let socket = daemon(&mut controlled.route)?.socket();
    let mut front_end = FakeFrontend::connect(&socket)?;
    front_end.hello(PROTOCOL_VERSION)?;
    let session = open(&mut front_end)?;
    let position = front_end.stop_queue(0)?;
    ensure!(position >= 2, "two requests were taken, and not {position}");
    for round in 0..3 {
        controlled.ask(REPLACE)?;
        let now = front_end.stop_queue(0)?;
        ensure!(now == position, "after {round} replacements: {now} and not {position}");
    }
    front_end.start_queue(0, position)?;
    ensure!(front_end.close(session)?.status == REPLY_OK, "its session is lost");
    Ok(())
}

/// The client is told why its recording has ended. Another one can begin.
fn a_recording_ends(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["2", "work"])?;
    let mut lines = controlled.control.send(r#"{"do":"trace","all":true,"time_ms":600000}"#)?.lines();
    // It is being recorded.
    lines.next().context("no line")??;
    controlled.ask(REPLACE)?;
    let last = lines.last().context("it has just ended")??;
    ensure!(last.contains("being replaced"), "{last}");
    let lines = controlled.control.send(r#"{"do":"trace","all":true,"time_ms":0}"#)?.lines();
    let answer = lines.map_while(Result::ok).find(|line| line.contains("\"ok\":")).context("no answer")?;
    ensure!(answer.contains("\"ok\":true"), "{answer}");
    finish(program)
}

/// Opens a session beside the others.
fn open(front_end: &mut FakeFrontend) -> Result<u64> {
    let reply = front_end.open()?;
    ensure!(reply.status == REPLY_OK, "{reply:?}");
    Ok(Opened::read_from_bytes(&reply.payload).ok().context("a malformed reply")?.session)
}

/// Puts another program in the place of the daemon's.
fn install(daemon: &Daemon, text: &str) -> Result<()> {
    let new = daemon.program().with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    Ok(fs::rename(new, daemon.program())?)
}

/// Expects that the daemon refuses to be replaced, for a reason with `word`.
fn expect_refusal(controlled: &Controlled, word: &str) -> Result<()> {
    let answer = controlled.control.ask(REPLACE)?;
    let error = answer["error"].as_str().unwrap_or_default();
    ensure!(answer["ok"] == false && error.contains(word), "not {word}: {answer}");
    Ok(())
}

fn a_program_that_fails_leaves_the_old_one(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start_copy(kit, &[])?;
    let program = controlled.program(kit, &["2", "work"])?;
    let before = controlled.control.session_of(program.pid())?["session"].clone();
    let other_state = "it is of release 9.9";
    let programs = [
        ("no program", "cannot be executed"),
        ("#!/nonexistent\n", "cannot be executed"),
        ("#!/bin/sh\necho options are bad >&2\nexit 2\n", "options are bad"),
        ("#!/bin/sh\nkill -SEGV $$\n", "signal"),
        ("#!/bin/sh\nexec sleep 60\n", "within 5 s"),
        // The first check has no front-end.
        (
            "#!/bin/sh\ngrep -q '\"devices\":\\[\\]' || { echo it is of release 9.9 >&2; exit 1; }\n",
            other_state,
        ),
    ];
    for (text, word) in programs {
        install(daemon(&mut controlled.route)?, text)?;
        expect_refusal(&controlled, word)?;
        ensure!(
            controlled.control.session_of(program.pid())?["session"] == before,
            "{word}: it is another session"
        );
        expect_good(kit, &controlled.route, "add_one")?;
    }
    fs::remove_file(daemon(&mut controlled.route)?.program())?;
    expect_refusal(&controlled, "cannot be executed")?;
    finish(program)
}

/// A program that passes the check, and then does not start as a daemon, gives everything back.
fn a_program_that_fails_late_goes_back(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start_copy(kit, &[])?;
    let program = controlled.program(kit, &["2", "work"])?;
    let real = kit.stack.daemon();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--check-take-over*) exit 0;; esac\nexec {} \"$@\" --device /nonexistent\n",
        real.display()
    );
    install(daemon(&mut controlled.route)?, &text)?;
    for _ in 0..3 {
        expect_refusal(&controlled, "/nonexistent")?;
        ensure!(controlled.control.state_of(program.pid())? == "running", "the session is lost");
        expect_good(kit, &controlled.route, "add_one")?;
    }
    // The next one is good again.
    fs::copy(real, daemon(&mut controlled.route)?.program().with_extension("new"))?;
    let installed = daemon(&mut controlled.route)?.program().to_path_buf();
    fs::rename(installed.with_extension("new"), &installed)?;
    controlled.ask(REPLACE)?;
    finish(program)
}

/// A program that passes the check, and then neither serves nor ends, is ended: the programs get an error instead of waiting.
fn a_program_that_hangs_late_ends(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start_copy(kit, &[])?;
    let program = controlled.program(kit, &["2", "work"])?;
    let text = "#!/bin/sh\ncase \"$*\" in *--check-take-over*) exit 0;; esac\nexec sleep 600\n";
    install(daemon(&mut controlled.route)?, text)?;
    ensure!(controlled.control.ask(REPLACE).is_err(), "a program that hangs has answered");
    let outcome = program.finish(LIMIT)?;
    ensure!(!outcome.stdout.contains("right") && outcome.ended != Ended::Exit(0), "{outcome}");
    let daemon = daemon(&mut controlled.route)?;
    let status = daemon.stop()?;
    ensure!(status.signal() == Some(libc::SIGALRM), "it has ended with {status}");
    let log = daemon.log();
    ensure!(log.contains("which ends with all sessions if it does not serve within"), "{log}");
    // The next daemon serves.
    fs::copy(kit.stack.daemon(), daemon.program().with_extension("new"))?;
    fs::rename(daemon.program().with_extension("new"), daemon.program())?;
    daemon.restart()?;
    expect_good(kit, &controlled.route, "add_one")
}

/// The new program refuses a state, and workers, of versions that it does not know, before anything stops.
fn other_versions_are_refused(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start_copy(kit, &[])?;
    let program = controlled.program(kit, &["2", "work"])?;
    let before = controlled.control.session_of(program.pid())?["session"].clone();
    let real = kit.stack.daemon();
    let of_worker = |version: u32| format!("\"worker\":{{\"version\":{version}");
    let newer = link::VERSION + 1;
    let versions = [
        (of_worker(link::VERSION), of_worker(newer), format!("version {newer} of the link")),
        ("^{\"version\":2".into(), "{\"version\":3".into(), "has version 3".into()),
    ];
    for (known, other, reason) in versions {
        // As if a daemon with that version had written it.
        let text = format!(
            "#!/bin/sh\nsed 's/{known}/{other}/' >\"$0.state\"\nexec {} \"$@\" <\"$0.state\"\n",
            real.display()
        );
        install(daemon(&mut controlled.route)?, &text)?;
        expect_refusal(&controlled, &reason)?;
        ensure!(controlled.control.session_of(program.pid())?["session"] == before, "it is another session");
        expect_good(kit, &controlled.route, "add_one")?;
    }
    // The same with the versions as they are.
    let text = format!("#!/bin/sh\ncat >\"$0.state\"\nexec {} \"$@\" <\"$0.state\"\n", real.display());
    install(daemon(&mut controlled.route)?, &text)?;
    controlled.ask(REPLACE)?;
    finish(program)
}

fn options_that_cannot_change_are_refused(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = folder.path().join("options.toml");
    fs::write(&options, "num-queues = 2\n")?;
    let config = options.display().to_string();
    let mut controlled = Controlled::start(kit, &["--config", &config], None)?;
    fs::write(&options, "num-queues = 3\n")?;
    controlled.ask(REPLACE)?;
    let socket = daemon(&mut controlled.route)?.socket();
    let front_end = FakeFrontend::connect(&socket)?;
    for (text, word) in [("num-queues = 2\n", "num-queues"), ("no-option = 1\n", "no-option")] {
        fs::write(&options, text)?;
        expect_refusal(&controlled, word)?;
        ensure!(!front_end.is_disconnected(), "it was disconnected");
    }
    Ok(())
}
