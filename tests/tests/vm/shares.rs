// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Two machines on one GPU, with an arbiter, as an operator watches them.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::metrics::{page, values};
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::vm::{GuestCommand, Vm};

use crate::{LIMIT, boot};

/// Kernels that take so long that an emulated guest has the next one ready in time, until a signal ends the program.
const ARGUMENTS: [&str; 2] = ["3600", "long"];
/// The seconds for which the machines are charged together while they are watched.
const TOGETHER: f64 = 3.0;
/// Time between two looks.
const BETWEEN: Duration = Duration::from_millis(50);
/// GPU time that a machine was charged, in seconds.
const CHARGED: &str = "vhost_cuda_gpu_contended_seconds_total";
/// Time for which it waited, in seconds.
const HELD: &str = "vhost_cuda_gpu_held_seconds_total";

pub fn collect(suite: &mut Suite) {
    suite.test_alone("shares::two_machines_are_watched", two_machines_are_watched);
}

fn machine(arbiter: &Arbiter, folder: &TempDir, weight: u32) -> Result<Vm> {
    let metrics = folder.path().join(weight.to_string()).display().to_string();
    let options = arbiter.options(weight)?;
    boot(&format!("share-{weight}"), |config| {
        config.daemon.arguments.extend(options);
        config.daemon.arguments.extend(["--metrics".to_owned(), metrics]);
    })
}

/// The GPU time of a machine.
fn had(socket: &Path, metric: &str) -> Result<f64> {
    Ok(values(&page(socket, "/metrics")?, metric).iter().sum())
}

fn two_machines_are_watched(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let folder = tempfile::tempdir()?;
    let weights = [300, 100];
    let machines = [machine(&arbiter, &folder, weights[0])?, machine(&arbiter, &folder, weights[1])?];
    let sockets = weights.map(|weight| folder.path().join(weight.to_string()));

    let command = GuestCommand::new(kit.programs.get("compete")?).arguments(ARGUMENTS);
    let programs = [machines[0].start(&command)?, machines[1].start(&command)?];
    let deadline = Instant::now() + LIMIT;
    while !sockets.iter().all(|socket| had(socket, CHARGED).is_ok_and(|time| time > 0.2)) {
        ensure!(Instant::now() < deadline, "{}", page(&sockets[0], "/metrics")?);
        thread::sleep(BETWEEN);
    }
    let look = || -> Result<[[f64; 2]; 2]> {
        let of =
            |at: usize| -> Result<[f64; 2]> { Ok([had(&sockets[at], CHARGED)?, had(&sockets[at], HELD)?]) };
        Ok([of(0)?, of(1)?])
    };
    let before = look()?;
    for (socket, weight) in sockets.iter().zip(weights) {
        let shown = page(socket, "/metrics")?;
        ensure!(values(&shown, "vhost_cuda_gpu_share_weight") == [f64::from(weight)], "{shown}");
        ensure!(values(&shown, "vhost_cuda_gpu_arbiter_connected") == [1.0], "{shown}");
        ensure!(values(&shown, "vhost_cuda_sessions") == [1.0], "{shown}");
        ensure!(shown.contains("program=\"compete\""), "{shown}");
        let address = socket.to_str().context("a path that is no text")?;
        let mut top = Command::new(kit.stack.daemon());
        let top = run(top.args(["top", address, "--interval", "1", "--count", "1"]), "", LIMIT)?;
        top.expect_exit(0)?;
        ensure!(top.stdout.contains(&format!("GPU share: weight {weight}")), "{top}");
        ensure!(top.stdout.contains(" compete "), "{top}");
    }
    let [one, other] = loop {
        let now = look()?;
        let [one, other] = [0, 1].map(|at| [0, 1].map(|figure| now[at][figure] - before[at][figure]));
        if one[0] + other[0] > TOGETHER {
            break [one, other];
        }
        ensure!(Instant::now() < deadline, "charged and held back, in seconds: {one:.2?} and {other:.2?}");
        thread::sleep(BETWEEN);
    };
    ensure!(
        (1.8..5.0).contains(&(one[0] / other[0])) && other[1] > 0.0,
        "charged and held back for weights 3:1, in seconds: {one:.2?} and {other:.2?}"
    );
    for program in programs {
        program.signals()(libc::SIGTERM)?;
        let output = program.output(Some(LIMIT))?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status == 0 && said.ends_with("right\n"), "status {}: {said}", output.status);
    }
    machines.into_iter().try_for_each(Vm::shut_down)
}
