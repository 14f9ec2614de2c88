// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The figures that a daemon serves, and the view of them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::metrics::{page, values};
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, SETTLE, daemon, route, start};

pub fn collect(suite: &mut Suite) {
    suite.test("metrics_of_sessions", metrics_of_sessions);
}

fn metrics_of_sessions(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("metrics");
    let address = socket.to_str().context("a path that is no text")?.to_owned();
    let arguments = vec!["--metrics".to_owned(), address.clone()];
    let mut route = route(kit, &DaemonOptions { arguments, ..Default::default() })?;
    let no_sessions = || {
        page(&socket, "/metrics").is_ok_and(|page| {
            page.contains("vhost_cuda_build_info{") && values(&page, "vhost_cuda_sessions").is_empty()
        })
    };
    daemon(&mut route)?.wait_until("metrics are served", SETTLE, |_| no_sessions())?;

    let programs = [0, 1].map(|_| start(kit, &route, "copy_until_error", &[]));
    for program in &programs {
        program.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?.wait_for_stdout("copying", LIMIT)?;
    }
    let first = page(&socket, "/metrics")?;
    ensure!(first.contains("200 OK") && first.contains("text/plain; version=0.0.4"), "{first}");
    ensure!(values(&first, "vhost_cuda_sessions") == [1.0, 1.0], "{first}");
    for (metric, least) in [
        ("vhost_cuda_calls_total", 3.0),
        ("vhost_cuda_session_calls_total", 3.0),
        ("vhost_cuda_device_memory_bytes", 1024.0),
        ("vhost_cuda_session_resident_bytes", 1024.0),
    ] {
        let values = values(&first, metric);
        ensure!(
            values.len() == 2 && values.iter().all(|&value| value >= least),
            "{metric}: {values:?}\n{first}"
        );
    }
    ensure!(first.contains("program=\"copy_until_err"), "{first}");
    let second = page(&socket, "/metrics")?;
    let calls = |page: &str| values(page, "vhost_cuda_calls_total").iter().sum::<f64>();
    ensure!(calls(&second) >= calls(&first), "counters go back:\n{first}\n{second}");

    ensure!(page(&socket, "/")?.contains("404"), "there is one page only");
    let top = run(
        Command::new(kit.stack.daemon()).args(["top", &address, "--interval", "1", "--count", "1"]),
        "",
        LIMIT,
    )?;
    top.expect_exit(0)?;
    let lines: Vec<_> = top.stdout.lines().collect();
    ensure!(lines.len() == 3 && lines[1].contains("copy_until_err"), "{top}");

    drop(programs);
    let daemon = daemon(&mut route)?;
    daemon.wait_until("no session is shown", SETTLE, |_| no_sessions())?;
    daemon.stop()?;
    ensure!(!socket.exists(), "the socket for metrics is left behind");
    Ok(())
}
