// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sessions whose contents are in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::running::{Outcome, Running, run};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::replaced::REPLACE;
use crate::{LIMIT, LOSS, daemon};

/// A pause in which a session that is not saved would have come back.
const MOMENT: Duration = Duration::from_millis(500);
const BYTES: u64 = 16 << 20;

pub fn collect(suite: &mut Suite) {
    suite.test("saved::contents_come_back_from_a_file", contents_come_back_from_a_file);
    suite.test("saved::a_file_that_is_not_the_right_one_changes_nothing", a_wrong_file_changes_nothing);
    suite.test("saved::a_worker_that_ends_leaves_no_file", a_worker_that_ends_leaves_no_file);
}

/// Runs `ctl` with these words.
fn ctl(kit: &Kit, controlled: &Controlled, words: &[&str]) -> Result<Outcome> {
    let mut command = Command::new(kit.stack.daemon());
    run(command.arg("ctl").arg("--control").arg(controlled.socket()).args(words), "", LIMIT)
}

fn save(kit: &Kit, controlled: &Controlled, program: &Running, file: &Path) -> Result<Outcome> {
    let session = controlled.control.session_of(program.pid())?["session"].to_string();
    ctl(kit, controlled, &["save", "--session", &session, &file.to_string_lossy()])
}

fn restore(kit: &Kit, controlled: &Controlled, file: &Path) -> Result<Outcome> {
    ctl(kit, controlled, &["restore", &file.to_string_lossy()])
}

/// The names of all files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn contents_come_back_from_a_file(kit: &Kit) -> Result<()> {
    // The file's pages are those of the contents, and they are not.
    let folders = [tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir()?];
    let controlled = Controlled::start_copy(kit, &["--gpus", "0"])?;
    let program = controlled.program(kit, &["16", "idle"])?;
    for round in 0..3 {
        let folder = &folders[round % 2];
        let file = folder.path().join("saved");
        save(kit, &controlled, &program, &file)?.expect_exit(0)?;
        let about = fs::metadata(&file)?;
        ensure!(about.permissions().mode() & 0o777 == 0o600 && about.len() > BYTES, "{about:?}");
        ensure!(files(folder.path())? == [file.clone()], "nothing else is left");
        let status = controlled.ask(r#"{"do":"status"}"#)?;
        let session = &status["sessions"][0];
        ensure!(session["state"] == "saved" && session["stored_bytes"] == 0, "{status}");
        ensure!(session["suspended_bytes"].as_u64() >= Some(BYTES), "{status}");
        ensure!(status["host_memory_used"] == 0, "{status}");
        save(kit, &controlled, &program, &folder.path().join("again"))?.expect_exit(1)?;
        let resumed = ctl(kit, &controlled, &["resume", "--all"])?;
        resumed.expect_exit(1)?;
        ensure!(resumed.stdout.contains("ctl restore"), "{resumed}");
        match round {
            0 => {}
            1 => drop(controlled.ask(REPLACE)?),
            _ => {
                let deep = controlled.ask(r#"{"do":"suspend","all":true,"deep":true}"#)?;
                ensure!(deep["sessions"][0]["deep"] == true, "{deep}");
                // Its next call waits.
                program.signal(libc::SIGTERM);
                thread::sleep(MOMENT);
                controlled.expect_state(&program, "saved")?;
            }
        }
        restore(kit, &controlled, &file)?.expect_exit(0)?;
        ensure!(files(folder.path())?.is_empty(), "the file is of no use any more");
    }
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(())
}

fn a_wrong_file_changes_nothing(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let controlled = Controlled::start(kit, &["--gpus", "0"], None)?;
    let programs = [controlled.program(kit, &["16", "idle"])?, controlled.program(kit, &["16", "idle"])?];
    for (program, name) in programs.iter().zip(["first", "second"]) {
        save(kit, &controlled, program, &path(name))?.expect_exit(0)?;
    }
    let [first, second] = [fs::read(path("first"))?, fs::read(path("second"))?];
    let middle = first.len() / 2;
    let damaged = [&first[..middle], &[first[middle] ^ 1], &first[middle + 1..]].concat();
    // The first part names the session, and the rest is of another one. The last part says where it is.
    let begin =
        first.last_chunk().map(|place| u64::from_le_bytes(*place) as usize).context("a short file")?;
    let part = begin..begin + 48 + 8;
    let of_other = [&second[..part.start], &first[part.clone()], &second[part.end..]].concat();
    for (name, contents) in [
        ("empty", &[][..]),
        ("none", b"VCSP is how it begins"),
        ("cut", &first[..middle]),
        ("without its end", &first[..first.len() - 48]),
        ("damaged", &damaged),
        ("of another session", &of_other),
    ] {
        fs::write(path("wrong"), contents)?;
        restore(kit, &controlled, &path("wrong"))?.expect_exit(1).context(name)?;
        ensure!(fs::read(path("wrong"))? == contents, "{name}: the file is as it was");
        for program in &programs {
            controlled.expect_state(program, "saved")?;
        }
        let status = controlled.ask(r#"{"do":"status"}"#)?;
        ensure!(status["host_memory_used"] == 0, "{name}: {status}");
    }
    for (program, name) in programs.into_iter().zip(["first", "second"]) {
        restore(kit, &controlled, &path(name))?.expect_exit(0)?;
        finish(program)?;
    }
    Ok(())
}

fn a_worker_that_ends_leaves_no_file(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut controlled =
        Controlled::start(kit, &["--gpus", "0", "--warm-workers", "0", "--keep-contents", "0"], None)?;
    let mut random = fastrand::Rng::with_seed(55);
    for round in 0..8 {
        let file = folder.path().join(format!("saved-{round}"));
        let program = controlled.program(kit, &["64", "idle"])?;
        let workers = daemon(&mut controlled.route)?.workers();
        let outcome = thread::scope(|scope| {
            let saving = scope.spawn(|| save(kit, &controlled, &program, &file));
            thread::sleep(Duration::from_micros(random.u64(..150_000)));
            for worker in workers {
                // SAFETY: a plain system call; a worker that has ended is not there.
                unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
            }
            saving.join().map_err(|_| anyhow::anyhow!("the test has failed"))?
        })?;
        let is_saved = outcome.expect_exit(0).is_ok();
        let left = files(folder.path())?;
        ensure!(left.is_empty() || is_saved && left == [file.clone()], "{left:?} {outcome}");
        let _ = fs::remove_file(&file);
        program.finish(LOSS)?;
    }
    let answer = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(answer["host_memory_used"] == 0, "{answer}");
    Ok(())
}
