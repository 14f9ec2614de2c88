// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command for the guest.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guest_agent::wire::{self, Root};
use serde_bytes::ByteBuf;

/// Time limit of [`super::Vm::run`].
const USUAL_LIMIT: Duration = Duration::from_secs(60);

/// The command to run in the guest, and its options.
#[derive(Debug, Clone)]
pub struct GuestCommand {
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    directory: PathBuf,
    root: Root,
    pub(super) limit: Duration,
}

impl GuestCommand {
    /// A program of the host, which sees the host's files (its writes stay in the guest's memory) and finds our
    /// libcudart and libcuda first. It starts in `/` with a small environment.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self::with_root(vec![program.into()], Root::Host)
    }

    /// A line for busybox's shell in the initramfs.
    pub fn shell(line: &str) -> Self {
        let arguments = ["/bin/busybox", "sh", "-c", line].map(OsString::from);
        Self::with_root(arguments.to_vec(), Root::Initramfs)
    }

    fn with_root(arguments: Vec<OsString>, root: Root) -> Self {
        let mut environment = BTreeMap::new();
        environment
            .insert("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        environment.insert("HOME".into(), "/tmp".into());
        Self { arguments, environment, directory: "/".into(), root, limit: USUAL_LIMIT }
    }

    /// Adds arguments.
    pub fn arguments<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Sets all environment variables, and no others.
    pub fn whole_environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.environment = variables.into_iter().collect();
        self
    }

    /// Sets the folder that it starts in.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Sets how long it may take.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// For the agent; `libraries` is the folder of our libraries on the host.
    pub(super) fn to_wire(&self, libraries: &Path) -> wire::Command {
        let mut environment = self.environment.clone();
        if self.root == Root::Host {
            let libraries = with_libraries(libraries, environment.get(OsStr::new("LD_LIBRARY_PATH")));
            environment.insert("LD_LIBRARY_PATH".into(), libraries);
        } else {
            environment.insert("PATH".into(), "/bin".into());
        }
        wire::Command {
            arguments: self.arguments.iter().map(|argument| bytes(argument)).collect(),
            environment: environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            directory: bytes(self.directory.as_os_str()),
            root: self.root,
        }
    }
}

/// `libraries`, in front of the search path that was there.
pub fn with_libraries(libraries: &Path, path: Option<&OsString>) -> OsString {
    let mut result = libraries.as_os_str().to_owned();
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        result.push(":");
        result.push(path);
    }
    result
}

fn bytes(text: &OsStr) -> ByteBuf {
    ByteBuf::from(text.as_bytes())
}
