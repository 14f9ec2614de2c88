// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Profiles that the operator takes of programs that were not prepared for it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_profile::event::{Batch, Event, Kind};
use vhost_cuda_profile::reader;
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::control::{Controlled, finish};
use crate::{LIMIT, SETTLE, daemon};

/// The kernel of the program that is recorded.
const KERNEL: &str = "change";
/// Times that `ctl trace` is tried until the program has made calls meanwhile: a busy machine may take long for one.
const TRIES: u32 = 20;

pub fn collect(suite: &mut Suite) {
    if is_emulated() {
        suite.test(
            "profiles::tables_and_timeline_of_a_running_program",
            tables_and_timeline_of_a_running_program,
        );
        suite.test("profiles::moves_and_gates", moves_and_gates);
    } else {
        suite.skip("profiles", "it has not run on a GPU");
    }
}

/// A recording, by a client of the control socket.
struct Recorder {
    lines: BufReader<UnixStream>,
}

impl Recorder {
    fn start(controlled: &Controlled, request: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(controlled.socket())?;
        stream.set_read_timeout(Some(LIMIT))?;
        writeln!(stream, "{request}")?;
        Ok(Self { lines: BufReader::new(stream) })
    }

    /// Reads until an event is the one that is looked for.
    fn wait_for(&mut self, what: &str, is_there: impl Fn(&Event) -> bool) -> Result<Event> {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).with_context(|| format!("waiting for {what}"))?;
            let batch: Batch = serde_json::from_str(&line).with_context(|| format!("{what}: {line}"))?;
            ensure!(batch.no_gpu.is_none(), "{batch:?}");
            if let Some(event) = batch.events.into_iter().find(&is_there) {
                return Ok(event);
            }
        }
    }
}

fn tables_and_timeline_of_a_running_program(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &[], None)?;
    let programs = [controlled.program(kit, &["1", "work"])?, controlled.program(kit, &["1", "work"])?];
    let folder = tempfile::tempdir()?;
    let (socket, file) = (controlled.socket(), folder.path().join("all.pftrace"));
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(kit.stack.daemon());
        run(command.arg("ctl").arg("--control").arg(&socket).arg("trace").args(arguments), "", LIMIT)
    };
    ctl(&["--session", "999"])?.expect_exit(1)?;
    for _ in 0..TRIES {
        let outcome = ctl(&["--all", "--seconds", "0.5", "--trace", &file.display().to_string()])?;
        outcome.expect_exit(0)?;
        let slices = reader::slices(&fs::read(&file)?).map_err(anyhow::Error::msg)?;
        let kernels: Vec<_> = slices.iter().filter(|slice| slice.name == KERNEL).collect();
        let processes: BTreeSet<_> = kernels.iter().map(|slice| slice.pid).collect();
        if processes.len() < programs.len() {
            continue;
        }
        let pids: BTreeSet<_> = programs.iter().map(|program| program.pid().cast_signed()).collect();
        ensure!(processes == pids, "{processes:?}, {pids:?}");
        for kernel in kernels {
            ensure!(
                kernel.row.starts_with("GPU 0, stream ") && kernel.time[1] > kernel.time[0],
                "{kernel:?}"
            );
        }
        let call = slices.iter().find(|slice| slice.name == "cuLaunchKernel").context("no launches")?;
        ensure!(call.row.starts_with("lane ") && call.category == "call", "{call:?}");
        let lines: Vec<_> = outcome.stdout.lines().collect();
        ensure!(lines.first() == Some(&"Kernels:"), "{outcome}");
        ensure!(lines.iter().any(|line| line.ends_with("  change")), "{outcome}");
        ensure!(lines.contains(&"Calls in the worker:"), "{outcome}");
        let csv = ctl(&["--all", "--seconds", "0.1", "--csv"])?;
        ensure!(csv.stdout.starts_with("table,share,total_ns,count,"), "{csv}");
        return programs.into_iter().try_for_each(finish);
    }
    bail!("{TRIES} profiles without a kernel of each program")
}

fn moves_and_gates(kit: &Kit) -> Result<()> {
    let mut controlled = Controlled::start(kit, &[], None)?;
    let program = controlled.program(kit, &["1", "work"])?;
    let session = controlled.control.session_of(program.pid())?["session"].clone();
    let request = format!(r#"{{"do":"trace","session":{session},"time_ms":600000}}"#);
    let mut recorder = Recorder::start(&controlled, &request)?;
    recorder.wait_for("a kernel", |event| event.kind == Kind::Kernel && event.name == KERNEL)?;
    let busy = controlled.control.ask(&request)?;
    ensure!(busy.to_string().contains("another profile"), "{busy}");
    controlled.ask(&format!(r#"{{"do":"suspend","session":{session},"timeout_ms":60000}}"#))?;
    let out = recorder.wait_for("a move", |event| event.kind == Kind::Move)?;
    ensure!(out.name == "to host memory" && out.bytes >= 1 << 20, "{out:?}");
    // Its next call brings it back, and has waited.
    let gate = recorder.wait_for("a wait", |event| event.kind == Kind::Gate && event.end > out.end)?;
    ensure!(gate.name == "suspended" && gate.end > gate.begin, "{gate:?}");
    recorder.wait_for("calls after it", |event| event.kind == Kind::Call && event.begin > gate.end)?;
    // A client that hangs up ends the recording, and its thread in the worker.
    drop(recorder);
    let threads = |pid: u32| -> usize {
        let names = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
        names.filter(|name| name.trim() == "profile").count()
    };
    daemon(&mut controlled.route)?.wait_until(
        "the recording has ended",
        SETTLE.max(Duration::from_secs(30)),
        |daemon| daemon.workers().into_iter().map(threads).sum::<usize>() == 0,
    )?;
    finish(program)
}
