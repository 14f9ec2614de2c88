// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sessions whose contents are in files.

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

fn save(kit: &Kit, controlled: &Controlled, program: &Running, folder: &Path) -> Result<Outcome> {
    let session = controlled.control.session_of(program.pid())?["session"].to_string();
    ctl(kit, controlled, &["save", "--session", &session, &folder.to_string_lossy()])
}

fn restore(kit: &Kit, controlled: &Controlled, folder: &Path) -> Result<Outcome> {
    ctl(kit, controlled, &["restore", &folder.to_string_lossy()])
}

/// The names of all files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn contents_come_back_from_a_file(kit: &Kit) -> Result<()> {
    let folders = [tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir()?];
    let controlled = Controlled::start_copy(kit, &["--gpus", "0"])?;
    let program = controlled.program(kit, &["16", "idle"])?;
    for round in 0..3 {
        let folder = &folders[round % 2];
        let saved = folder.path().join("saved");
        save(kit, &controlled, &program, &saved)?.expect_exit(0)?;
        let about = fs::metadata(&saved)?;
        ensure!(about.permissions().mode() & 0o777 == 0o700, "{about:?}");
        let abouts = files(&saved)?.iter().map(fs::metadata).collect::<Result<Vec<_>, _>>()?;
        let bytes: u64 = abouts.iter().map(|about| about.len()).sum();
        ensure!(abouts.len() == 17 && (BYTES..2 * BYTES).contains(&bytes), "{abouts:?}");
        ensure!(files(folder.path())? == [saved.clone()], "nothing else is left");
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
        restore(kit, &controlled, &saved)?.expect_exit(0)?;
        ensure!(files(folder.path())?.is_empty(), "it is of no use any more");
    }
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(())
}

/// Changes the contents of the file with this name. Returns false to leave the file out.
type Change<'a> = dyn Fn(&str, &mut Vec<u8>) -> bool + 'a;

/// Copies the files of a folder, but for those that `change` changes or leaves out.
fn copy(from: &Path, to: &Path, change: &Change<'_>) -> Result<()> {
    fs::create_dir(to)?;
    for path in files(from)? {
        let name = path.file_name().and_then(|name| name.to_str()).context("a file with another name")?;
        let mut contents = fs::read(&path)?;
        if change(name, &mut contents) {
            fs::write(to.join(name), contents)?;
        }
    }
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
    let [first, second] = ["first", "second"].map(|name| fs::read(path(name).join("session")));
    let (first, second) = (first?, second?);
    // The first part names the session, and the rest is of another one.
    let part = 48 + 8;
    let of_other = [&first[..part], &second[part..]].concat();
    let wrong: [(&str, &Change<'_>); 8] = [
        ("nothing", &|_, _| false),
        ("without its description", &|name, _| name != "session"),
        ("without a file", &|name, _| name != "3"),
        ("with a description that is cut", &|name, contents| {
            contents.truncate(if name == "session" { contents.len() - 1 } else { usize::MAX });
            true
        }),
        ("of another session", &|name, contents| {
            if name == "session" {
                contents.clone_from(&of_other);
            }
            true
        }),
        ("cut", &|name, contents| {
            contents.truncate(if name == "0" { 2 << 20 >> 1 } else { usize::MAX });
            true
        }),
        ("short", &|name, contents| {
            contents.truncate(if name == "0" { 0 } else { usize::MAX });
            true
        }),
        ("damaged", &|name, contents| {
            if name == "1" {
                contents[5] ^= 1;
            }
            true
        }),
    ];
    for (name, change) in wrong {
        let other = path("wrong");
        copy(&path("first"), &other, change)?;
        let count = files(&other)?.len();
        restore(kit, &controlled, &other)?.expect_exit(1).context(name)?;
        ensure!(files(&other)?.len() == count, "{name}: the folder is as it was");
        for program in &programs {
            controlled.expect_state(program, "saved").context(name)?;
        }
        let status = controlled.ask(r#"{"do":"status"}"#)?;
        ensure!(status["host_memory_used"] == 0, "{name}: {status}");
        fs::remove_dir_all(other)?;
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
        let _ = fs::remove_dir_all(&file);
        program.finish(LOSS)?;
    }
    let answer = controlled.ask(r#"{"do":"status"}"#)?;
    ensure!(answer["host_memory_used"] == 0, "{answer}");
    Ok(())
}
