// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a daemon, for the next program: JSON in a file in memory.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::files;

use crate::args::DaemonArgs;
use crate::cache::SavedImage;
use crate::confine::namespaces::SavedNamespaces;
use crate::front_end::device::SavedDevice;
use crate::hand_over::files::Number;
use crate::sessions::library;

/// The version of the state. It changes with every field.
const VERSION: u32 = 2;
/// The maximum length of a state in bytes: 100 times that of a daemon with 64 sessions that have pinned much memory.
const MAX_BYTES: u64 = 256 << 20;

/// All that goes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// The release that has written it.
    pub release: String,
    /// The program's path, in bytes.
    program: Vec<u8>,
    /// The options of the program that has written it, in bytes.
    options: Vec<Vec<u8>>,
    /// All descriptors that are named below.
    pub files: Vec<Number>,
    /// The program that has written it, to go back to.
    pub executable: Number,
    /// The socket on which front-ends connect.
    pub listener: Number,
    /// Its path, if the daemon removes it at its end, in bytes.
    socket: Option<Vec<u8>>,
    /// The control socket.
    pub control: Option<Number>,
    /// The client that waits for the answer.
    pub asker: Option<Number>,
    /// The parent of workers' control groups.
    pub cgroups: Option<PathBuf>,
    /// The namespaces of workers.
    pub namespaces: Option<SavedNamespaces>,
    /// The time since which programs wait for the daemon ([`vhost_cuda_common::gates::now`]).
    pub held_since: u64,
    /// The number of the next connection.
    pub next_connection: u64,
    /// The connections, with their sessions.
    pub devices: Vec<SavedDevice>,
    /// The cache of device code.
    pub images: Vec<SavedImage>,
    /// Options that cannot change while front-ends are connected, with their values.
    fixed: Vec<(String, String)>,
}

/// The part of the state that all versions have in common.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
    release: String,
}

/// What [`State::new`] needs beside the connections.
#[derive(Debug)]
pub struct Common {
    /// The program's path.
    pub program: OsString,
    /// Its options.
    pub options: Vec<OsString>,
    /// See [`State`].
    pub executable: Number,
    /// See [`State`].
    pub listener: Number,
    /// The path of the listening socket, if the daemon removes it.
    pub socket: Option<PathBuf>,
    /// See [`State`].
    pub control: Option<Number>,
    /// See [`State`].
    pub cgroups: Option<PathBuf>,
}

impl State {
    /// Returns the state of a daemon without connections.
    pub fn new(common: &Common, args: &DaemonArgs) -> Self {
        Self {
            version: VERSION,
            release: env!("CARGO_PKG_VERSION").into(),
            program: common.program.as_bytes().to_vec(),
            options: common.options.iter().map(|option| option.as_bytes().to_vec()).collect(),
            files: Vec::new(),
            executable: common.executable,
            listener: common.listener,
            socket: common.socket.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()),
            control: common.control,
            asker: None,
            cgroups: common.cgroups.clone(),
            namespaces: None,
            held_since: 0,
            next_connection: 0,
            devices: Vec::new(),
            images: Vec::new(),
            fixed: fixed(args),
        }
    }

    /// Writes it to a new file.
    ///
    /// Errors: it is too long for [`Self::read`], and those of the file.
    pub fn write(&self) -> io::Result<File> {
        let bytes = serde_json::to_vec(self)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!(
                "it has {} bytes, and {MAX_BYTES} are allowed",
                bytes.len()
            )));
        }
        let mut file = files::memory_file(c"cuda-hand-over")?;
        file.write_all(&bytes)?;
        files::add_seals(&file, files::FIXED_LENGTH)?;
        // The program that checks it may be a script around the real one.
        file.rewind()?;
        Ok(file)
    }

    /// Reads it.
    ///
    /// Errors: it is too long, of another version, or malformed.
    pub fn read(file: &File) -> anyhow::Result<Self> {
        let length = file.metadata()?.len();
        ensure!(length <= MAX_BYTES, "the state has {length} bytes, which is too much");
        let mut bytes = vec![0; usize::try_from(length)?];
        file.read_exact_at(&mut bytes, 0).context("the state cannot be read")?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let Versioned { version, release } =
            serde_json::from_slice(bytes).context("it is not the state of a daemon")?;
        if version != VERSION {
            bail!(
                "the state of release {release} has version {version}, and this program knows {VERSION}: restart the daemon \
                 when no program uses it"
            );
        }
        serde_json::from_slice(bytes).context("the state is malformed")
    }

    /// Checks that a daemon with these options can go on with it. Changes nothing.
    ///
    /// Errors: the reason, for the operator.
    pub fn check(&self, args: &DaemonArgs) -> anyhow::Result<()> {
        let library = library::find(&args.device)?;
        library::vendor_folders(&args.libraries, library::is_emulator(&library))?;
        if self.devices.is_empty() {
            return Ok(());
        }
        for ((name, before), (_, now)) in self.fixed.iter().zip(fixed(args)) {
            ensure!(
                *before == now,
                "--{name} is {now}, and was {before}: it cannot change while front-ends are connected"
            );
        }
        let members = self.devices.iter().flat_map(|device| &device.sessions);
        for session in members.map(|member| &member.session) {
            session
                .worker
                .check_version()
                .map_err(|error| anyhow::anyhow!("session {}: {error}", session.label))?;
        }
        Ok(())
    }

    /// The program's path.
    pub fn program(&self) -> OsString {
        OsString::from_vec(self.program.clone())
    }

    /// The options of the program that has written it.
    pub fn options(&self) -> Vec<OsString> {
        self.options.iter().cloned().map(OsString::from_vec).collect()
    }

    /// The path of the listening socket, if the daemon removes it at its end.
    pub fn socket(&self) -> Option<PathBuf> {
        self.socket.clone().map(|path| OsString::from_vec(path).into())
    }
}

fn fixed(args: &DaemonArgs) -> Vec<(String, String)> {
    let named = [
        ("num-queues", args.num_queues.to_string()),
        ("guest-pages", format!("{:?}", args.guest_pages).to_lowercase()),
        ("sandbox off", (args.sandbox == Sandbox::Off).to_string()),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
