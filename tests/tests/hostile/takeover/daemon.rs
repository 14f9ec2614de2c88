// SPDX-License-Identifier: Apache-2.0 OR MIT

//! States that no daemon has written. Who can start a program with one has its user's rights already; it must end with a reason.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use vhost_cuda_tests::running::{Ended, run};
use vhost_cuda_tests::suite::{Kit, Suite};

const LIMIT: Duration = Duration::from_secs(20);

pub fn collect(suite: &mut Suite) {
    suite.test("takeover::states_that_no_daemon_has_written", garbage_is_refused);
}

fn garbage_is_refused(kit: &Kit) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(36);
    let mut states: Vec<Vec<u8>> = (0..8).map(|_| (0..4096).map(|_| random.u8(..)).collect()).collect();
    states.extend([
        vec![],
        b"{}".to_vec(),
        b"{\"version\":1,\"release\":\"0\"}".to_vec(),
        b"{\"version\":4294967295,\"release\":\"9\"}".to_vec(),
        b"{\"version\":1,\"release\":\"0\",\"files\":[0,1,2]}".to_vec(),
        vec![b'['; 1 << 20],
    ]);
    for state in states {
        let mut file: File = tempfile::tempfile()?;
        file.write_all(&state)?;
        file.rewind()?;
        let number = file.as_raw_fd();
        let start = |option: &[&str]| {
            let mut command = Command::new(kit.stack.daemon());
            command.args(["--allow-root", "--socket-path", "/nonexistent/socket"]).args(option);
            // SAFETY: the closure makes one plain system call on a descriptor that stays open meanwhile.
            unsafe {
                std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                    match libc::fcntl(number, libc::F_SETFD, 0) {
                        0 => Ok(()),
                        _ => Err(std::io::Error::last_os_error()),
                    }
                })
            };
            run(&mut command, "", LIMIT)
        };
        for number in [number.to_string(), "1".into(), "-1".into(), "1000000".into()] {
            let outcome = start(&["--take-over", &number])?;
            ensure!(matches!(outcome.ended, Ended::Exit(1 | 2)), "{outcome}");
            ensure!(!outcome.stderr.is_empty() && !outcome.stderr.contains("panicked"), "{outcome}");
        }
        // Its standard input is empty.
        let outcome = start(&["--check-take-over"])?;
        ensure!(outcome.ended == Ended::Exit(1) && outcome.stderr.contains("state"), "{outcome}");
    }
    Ok(())
}
