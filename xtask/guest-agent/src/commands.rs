// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that run for the host.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;
use guest_agent::wire::{self, CommandId, Root, Stream, ToHost};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_bytes::ByteBuf;

use crate::machine::HOST_ROOT;

/// The maximum number of output bytes per message.
const OUTPUT_CHUNK: usize = 64 * 1024;

/// All running commands, and the way back to the host.
#[derive(Clone)]
pub struct Commands {
    port: Arc<Mutex<File>>,
    running: Arc<Mutex<HashMap<CommandId, Running>>>,
}

struct Running {
    pid: Pid,
    input: Sender<ByteBuf>,
}

impl Commands {
    /// Commands whose output goes to `port`.
    pub fn new(port: File) -> Self {
        Self { port: Arc::new(Mutex::new(port)), running: Arc::default() }
    }

    /// Sends a message to the host.
    pub fn send(&self, message: &ToHost) -> Result<()> {
        wire::send(&mut *lock(&self.port), message)
    }

    /// Starts a command, or reports to the host why it failed.
    pub fn run(&self, id: CommandId, command: wire::Command) {
        if let Err(error) = self.start(id, command) {
            self.tell(&ToHost::Failed(id, error.to_string()));
        }
    }

    /// Passes input on; nothing ends it.
    pub fn input(&self, id: CommandId, bytes: ByteBuf) {
        let mut running = lock(&self.running);
        let Some(command) = running.get_mut(&id) else { return };
        if bytes.is_empty() {
            // Without its sender the writing thread closes the pipe, after all that is in the channel.
            command.input = channel().0;
        } else if command.input.send(bytes).is_err() {
            // The command closed its input: further input is not read, as with any pipe.
        }
    }

    /// Sends a signal to the command and its children.
    pub fn signal(&self, id: CommandId, number: i32) {
        let pid = lock(&self.running).get(&id).map(|command| command.pid);
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(number)) {
            // The only error is that the command has just ended.
            let _ = kill_process_group(pid, signal);
        }
    }

    fn start(&self, id: CommandId, command: wire::Command) -> io::Result<()> {
        let mut child = spawn(command)?;
        let (input, chunks) = channel();
        let pid = Pid::from_child(&child);
        lock(&self.running).insert(id, Running { pid, input });
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some(stdin) = stdin {
            let commands = self.clone();
            thread::spawn(move || commands.write_input(id, stdin, &chunks));
        }
        let commands = self.clone();
        thread::spawn(move || {
            let readers = [
                stdout.map(|pipe| commands.clone().read_output(id, Stream::Stdout, pipe)),
                stderr.map(|pipe| commands.clone().read_output(id, Stream::Stderr, pipe)),
            ];
            let status = child.wait().map_or(-1, |status| {
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
            });
            for reader in readers.into_iter().flatten() {
                // A reader that panicked has lost output; the status still counts.
                let _ = reader.join();
            }
            lock(&commands.running).remove(&id);
            commands.tell(&ToHost::Exited(id, status));
        });
        Ok(())
    }

    fn write_input(&self, id: CommandId, mut stdin: ChildStdin, chunks: &Receiver<ByteBuf>) {
        for chunk in chunks {
            // A command that no longer reads must not block the host's input.
            let _ = stdin.write_all(&chunk);
            self.tell(&ToHost::InputTaken(id, chunk.len() as u32));
        }
    }

    fn read_output(
        self,
        id: CommandId,
        stream: Stream,
        mut pipe: impl Read + Send + 'static,
    ) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let mut buffer = vec![0; OUTPUT_CHUNK];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                self.tell(&ToHost::Output(id, stream, ByteBuf::from(&buffer[..count])));
            }
        })
    }

    /// Sends a message to the host. If the host has disconnected, the agent ends anyway.
    fn tell(&self, message: &ToHost) {
        if let Err(error) = self.send(message) {
            eprintln!("guest-agent: {error:#}");
        }
    }
}

fn spawn(command: wire::Command) -> io::Result<Child> {
    let mut arguments = command.arguments.into_iter().map(|argument| OsString::from_vec(argument.into_vec()));
    let program = arguments.next().unwrap_or_default();
    let mut child = std::process::Command::new(program);
    let environment = command.environment.iter().map(|(name, value)| (os(name), os(value)));
    child.args(arguments).env_clear().envs(environment).process_group(0);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let root = Path::new(match command.root {
        Root::Host => HOST_ROOT,
        Root::Initramfs => "/",
    });
    let directory = PathBuf::from(OsString::from_vec(command.directory.into_vec()));
    // SAFETY: the closure runs between fork and exec; it makes two system calls on memory that was allocated before
    // and takes no lock.
    unsafe {
        child.pre_exec(move || {
            rustix::process::chroot(root)?;
            rustix::process::chdir(&directory)?;
            Ok(())
        });
    }
    child.spawn()
}

fn os(bytes: &ByteBuf) -> &OsStr {
    OsStr::from_bytes(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
