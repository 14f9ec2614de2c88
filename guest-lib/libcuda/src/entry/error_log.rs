// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `CUDA_LOG_FILE`: one line per failed call, in the format of NVIDIA's driver (CUDA programming guide, "Error Log
//! Management"). The driver's messages stay on the host, so a line has only the function and the error.

use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;

use cuda_environment::{Environment, LogFile};
use virtio_cuda_client::{CudaError, process};

use crate::entry::result_texts;

static DESTINATION: OnceLock<Option<Destination>> = OnceLock::new();

/// `CUDA_ERROR_NOT_READY`: a status, not a failure.
const NOT_READY: i32 = 600;

#[derive(Debug)]
enum Destination {
    Stdout,
    Stderr,
    File(File),
}

impl Destination {
    fn from_environment() -> Option<Self> {
        match Environment::of_this_process().log_file? {
            LogFile::Stdout => Some(Self::Stdout),
            LogFile::Stderr => Some(Self::Stderr),
            LogFile::Path(path) => match File::options().append(true).create(true).open(&path) {
                Ok(file) => Some(Self::File(file)),
                Err(error) => {
                    log::error!("CUDA_LOG_FILE names {}: {error}", path.display());
                    None
                }
            },
        }
    }

    /// Writes a line with one write(2), so that lines of several processes are not interleaved.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(line),
            Self::Stderr => io::stderr().lock().write_all(line),
            Self::File(file) => (&*file).write_all(line),
        }
    }
}

/// Logs a failed call of the program.
pub fn note(call: &str, error: CudaError) {
    // In a forked child, the lock may be held for ever by a thread that does not exist there.
    if error.code() == NOT_READY || process::check().is_err() {
        return;
    }
    if let Some(destination) = DESTINATION.get_or_init(Destination::from_environment) {
        // A full log must not make the program fail.
        let _ = destination.write(line(&time_of_day(), thread(), call, error).as_bytes());
    }
}

fn line(time: &str, thread: i32, call: &str, error: CudaError) -> String {
    let (name, description) = result_texts::texts(error.code());
    format!("[{time}][{thread}][CUDA][E][{call}] {name} ({}): {description}\n", error.code())
}

fn thread() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Returns the local time as hours, minutes, seconds and milliseconds.
fn time_of_day() -> String {
    // SAFETY: both structures are plain numbers, for which zeros are valid.
    let (mut now, mut local): (libc::timespec, libc::tm) = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are valid for the writes; if a call fails, the target of its result stays zero.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        libc::localtime_r(&now.tv_sec, &mut local);
    }
    let milliseconds = now.tv_nsec / 1_000_000;
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", local.tm_hour, local.tm_min, local.tm_sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_call_and_its_error() {
        assert_eq!(
            line("12:00:01.250", 7, "cuMemAlloc_v2", CudaError::OUT_OF_MEMORY),
            "[12:00:01.250][7][CUDA][E][cuMemAlloc_v2] CUDA_ERROR_OUT_OF_MEMORY (2): out of memory\n"
        );
        let time = time_of_day();
        assert!(time.len() == 12 && time.is_char_boundary(8) && time[8..].starts_with('.'), "{time}");
    }
}
