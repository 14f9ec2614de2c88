// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the program that replaces another one.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use log::{error, info};
use vhost_cuda_common::gates::now;

use super::leave;
use super::state::State;
use crate::args::DaemonArgs;
use crate::hand_over::files::{Inherited, Number};

/// What the program before this one has left.
#[derive(Debug)]
pub struct Entry {
    /// The state's file.
    file: File,
    /// The state. Parts are taken out as they are used.
    pub state: State,
    /// Its descriptors.
    pub files: Inherited,
    /// True if it is this program's own state, which the next one has given back.
    is_back: bool,
}

impl Entry {
    /// Takes over what the program before this one has left. Must be called while the process has no other descriptors.
    ///
    /// Errors: there is no such state, or it is wrong.
    pub fn receive(args: &DaemonArgs) -> anyhow::Result<Option<Self>> {
        let Some(number) = args.take_over else { return Ok(None) };
        let number = Number::of(number);
        let mut own = Inherited::of(&[number]).context("Cannot take over")?;
        own.commit();
        let file = File::from(own.take(number)?);
        let state = State::read(&file).context("Cannot take over")?;
        let files = Inherited::of(&state.files).context("Cannot take over")?;
        Ok(Some(Self { file, state, files, is_back: args.take_over_refused.is_some() }))
    }

    /// Executes the program before this one again, which goes on. Returns `reason` if that is not possible.
    pub fn go_back(self, reason: anyhow::Error) -> anyhow::Error {
        if self.is_back {
            return reason;
        }
        let text = format!("{reason:#}");
        error!("going back to the program before this one: {text}");
        let (options, numbers) = (self.state.options(), self.state.files.clone());
        let path = format!("/proc/self/fd/{}", self.state.executable.raw());
        leave::execute(path.into(), options, &self.file, numbers, Some(text)).context(reason)
    }

    /// The path of the program, for the next replacement.
    pub fn program(&self) -> OsString {
        self.state.program()
    }

    /// Returns the client that waits for the answer.
    pub fn asker(&mut self) -> Option<UnixStream> {
        let number = self.state.asker.take()?;
        self.files.take(number).ok().map(UnixStream::from)
    }
}

/// Returns the path of this program, which may have been replaced in the file system since.
pub fn own_program() -> anyhow::Result<OsString> {
    let path = std::env::current_exe().context("Cannot find this program")?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from).into())
}

/// Checks the state in the standard input, for the daemon that is to be replaced.
///
/// Errors: this program cannot go on with it.
pub fn check(args: &DaemonArgs) -> anyhow::Result<()> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    State::read(&File::from(stdin))?.check(args)
}

/// Logs the result of a replacement of `release`, for which programs have waited since `held_since`.
pub fn log_result(args: &DaemonArgs, release: &str, held_since: u64) {
    let waited = Duration::from_nanos(now().saturating_sub(held_since)).as_secs_f64();
    match &args.take_over_refused {
        Some(reason) => error!("not replaced: {reason}; programs waited for {waited:.3} s"),
        None => {
            info!("in the place of release {release}: programs that need the daemon waited for {waited:.3} s")
        }
    }
}
