// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's end of the agent's serial port.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use guest_agent::wire::{self, Command, CommandId, INPUT_WINDOW, Stream, ToGuest, ToHost};
use serde_bytes::ByteBuf;

use super::GuestCommand;

/// The maximum number of input bytes per message.
const INPUT_CHUNK: usize = 16 * 1024;
/// Interval of checking if a guest has booted again.
const BOOT_POLL: Duration = Duration::from_millis(20);
/// Pieces of output that wait for a reader; the guest waits after that.
const QUEUED_EVENTS: usize = 256;

/// Lists the threads of programs, which have an executable: state, the kernel's function that they wait in, system call.
const LIST_THREADS: &str = "echo t > /proc/sysrq-trigger; for t in /proc/[0-9]*/task/[0-9]*; do \
     readlink $t/exe > /dev/null && echo \"$t $(cat $t/comm) $(grep State $t/status) $(cat $t/wchan) $(cat $t/syscall)\"; \
     done 2> /dev/null; true";
/// The maximum time for this list.
const LIST_LIMIT: Duration = Duration::from_secs(20);

/// The connection; commands in the guest share it.
#[derive(Clone)]
pub struct Agent {
    port: Arc<Mutex<UnixStream>>,
    commands: Arc<Mutex<Commands>>,
}

#[derive(Default)]
struct Commands {
    next: CommandId,
    running: HashMap<CommandId, Handle>,
    /// The failed steps of the guest's setup after it booted again, once it has.
    booted: Option<Vec<String>>,
    closed: bool,
}

struct Handle {
    events: SyncSender<Event>,
    window: Arc<Window>,
}

/// The amount of input that is on its way to a command.
#[derive(Default)]
struct Window {
    state: Mutex<WindowState>,
    changed: Condvar,
}

#[derive(Default)]
struct WindowState {
    sent: usize,
    ended: bool,
}

enum Event {
    Output(Stream, Vec<u8>),
    Exited(i32),
    Failed(String),
}

/// A command that runs in the guest.
pub struct Running {
    id: CommandId,
    agent: Agent,
    events: Receiver<Event>,
    window: Arc<Window>,
}

/// The results of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Its status, or 128 and the signal that killed it.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Agent {
    /// Waits until the agent is ready. Also returns the errors of its setup.
    pub fn new(port: UnixStream, limit: Duration) -> Result<(Self, Vec<String>)> {
        let mut reader = port.try_clone()?;
        port.set_read_timeout(Some(limit))?;
        let ready = wire::receive(&mut reader).context("The guest did not start")?;
        let ToHost::Ready(problems) = ready else { bail!("The agent did not say that it is ready") };
        Ok((Self::serve(port, 0)?, problems))
    }

    /// The agent of the same guest at another port, after QEMU has moved it. None of its commands runs.
    pub fn again(&self, port: UnixStream) -> Result<Self> {
        let next = lock(&self.commands).next;
        Self::serve(port, next)
    }

    /// Talks to an agent that is ready, which knows commands up to the number `last`.
    fn serve(port: UnixStream, last: CommandId) -> Result<Self> {
        port.set_read_timeout(None)?;
        let mut reader = port.try_clone()?;
        let commands = Commands { next: last, ..Commands::default() };
        let agent = Self { port: Arc::new(Mutex::new(port)), commands: Arc::new(Mutex::new(commands)) };
        let commands = Arc::clone(&agent.commands);
        thread::spawn(move || {
            while let Ok(message) = wire::receive(&mut reader) {
                dispatch(&commands, message);
            }
            lock(&commands).close();
        });
        Ok(agent)
    }

    /// Starts a command.
    pub fn start(&self, command: Command) -> Result<Running> {
        let (sender, events) = sync_channel(QUEUED_EVENTS);
        let window = Arc::<Window>::default();
        let id = {
            let mut commands = lock(&self.commands);
            if commands.closed {
                bail!("The guest has gone");
            }
            commands.next += 1;
            let id = commands.next;
            commands.running.insert(id, Handle { events: sender, window: Arc::clone(&window) });
            id
        };
        self.send(&ToGuest::Run(id, command))?;
        Ok(Running { id, agent: self.clone(), events, window })
    }

    /// Forgets that the guest is up: it is about to be reset.
    pub fn expect_reset(&self) {
        lock(&self.commands).booted = None;
    }

    /// Waits until a guest that was reset is ready again. Returns the errors of its setup.
    pub fn wait_booted(&self, limit: Duration) -> Result<Vec<String>> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(problems) = lock(&self.commands).booted.take() {
                return Ok(problems);
            }
            thread::sleep(BOOT_POLL);
        }
        bail!("The guest did not boot again within {limit:?}")
    }

    /// What every thread of the guest's programs waits for. Their stacks go to the kernel's log.
    fn threads(&self) -> Result<String> {
        let running = self.start(GuestCommand::shell(LIST_THREADS).to_wire(Path::new("")))?;
        let end = Some(Instant::now() + LIST_LIMIT);
        let mut text = Vec::new();
        loop {
            match running.next(end)? {
                Some(Event::Output(_, bytes)) => text.extend(bytes),
                Some(Event::Exited(_)) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Some(Event::Failed(message)) => bail!(message),
                None => {
                    running.signals()(libc::SIGKILL)?;
                    bail!("the list did not end within {LIST_LIMIT:?}");
                }
            }
        }
    }

    /// Switches the guest off.
    pub fn power_off(&self) -> Result<()> {
        self.send(&ToGuest::PowerOff)
    }

    fn send(&self, message: &ToGuest) -> Result<()> {
        wire::send(&mut *lock(&self.port), message).context("The guest has gone")
    }
}

/// Passes a message of the guest on. Waits while the command's output is not read, which holds up the others, too.
fn dispatch(commands: &Mutex<Commands>, message: ToHost) {
    let (id, event) = match message {
        ToHost::Ready(problems) => {
            // Earlier commands have ended with the old kernel.
            let mut commands = lock(commands);
            commands.end_all();
            commands.booted = Some(problems);
            return;
        }
        ToHost::InputTaken(id, bytes) => {
            if let Some(handle) = lock(commands).running.get(&id) {
                handle.window.taken(bytes as usize);
            }
            return;
        }
        ToHost::Output(id, stream, bytes) => (id, Event::Output(stream, bytes.into_vec())),
        ToHost::Exited(id, status) => (id, Event::Exited(status)),
        ToHost::Failed(id, message) => (id, Event::Failed(message)),
    };
    // The lock is not held while this waits.
    let (events, ended) = match event {
        Event::Output(..) => (lock(commands).running.get(&id).map(|handle| handle.events.clone()), None),
        _ => (None, lock(commands).running.remove(&id)),
    };
    if let Some(handle) = &ended {
        handle.window.end();
    }
    if let Some(events) = events.or(ended.map(|handle| handle.events)) {
        // Without a receiver the answer is not needed.
        let _ = events.send(event);
    }
}

impl Commands {
    /// Ends all waits after the guest has disconnected, and with the senders the waits for output.
    fn close(&mut self) {
        self.closed = true;
        self.end_all();
    }

    fn end_all(&mut self) {
        for (_, handle) in self.running.drain() {
            handle.window.end();
        }
    }
}

impl Window {
    /// Waits for room for `bytes`; false when the command has ended.
    fn reserve(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        let wait = |state: &mut WindowState| !state.ended && state.sent + bytes > INPUT_WINDOW;
        let mut state = self.changed.wait_while(state, wait).unwrap_or_else(PoisonError::into_inner);
        state.sent += bytes;
        !state.ended
    }

    fn taken(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.sent = state.sent.saturating_sub(bytes);
        self.changed.notify_all();
    }

    fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }
}

impl Running {
    /// Something to write the standard input to; [`Input::close`] ends it.
    pub fn input(&self) -> Input {
        Input { id: self.id, agent: self.agent.clone(), window: Arc::clone(&self.window) }
    }

    /// Something that can send signals while another thread waits.
    pub fn signals(&self) -> impl Fn(i32) -> Result<()> + Send + 'static {
        let (id, agent) = (self.id, self.agent.clone());
        move |number| agent.send(&ToGuest::Signal(id, number))
    }

    /// Waits for the end. Output is written to the two writers as it arrives. After `limit` the command is killed.
    pub fn wait(
        self,
        limit: Option<Duration>,
        stdout: &mut dyn Write,
        stderr: &mut dyn Write,
    ) -> Result<i32> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            match self.next(end)? {
                Some(Event::Output(stream, bytes)) => {
                    let writer: &mut dyn Write =
                        if stream == Stream::Stdout { &mut *stdout } else { &mut *stderr };
                    let written = writer.write_all(&bytes).and_then(|()| writer.flush());
                    match written {
                        // Our reader has closed the pipe: the command is notified as if it had been its own.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                            self.signals()(libc::SIGPIPE)?;
                        }
                        written => written.context("Cannot write the output")?,
                    }
                }
                Some(Event::Exited(status)) => return Ok(status),
                Some(Event::Failed(message)) => bail!("The guest cannot start the command: {message}"),
                None => {
                    let threads = self.agent.threads().unwrap_or_else(|error| format!("unknown: {error:#}"));
                    self.signals()(libc::SIGKILL)?;
                    let limit = limit.unwrap_or_default();
                    bail!("The command did not end within {limit:?}; threads in the guest:\n{threads}");
                }
            }
        }
    }

    /// Waits for the end and collects the output.
    pub fn output(self, limit: Option<Duration>) -> Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = self.wait(limit, &mut stdout, &mut stderr)?;
        Ok(Output { status, stdout, stderr })
    }

    /// The next event; none when the time is up.
    fn next(&self, end: Option<Instant>) -> Result<Option<Event>> {
        let ended = "The guest has gone";
        let Some(end) = end else { return Ok(Some(self.events.recv().context(ended)?)) };
        match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!(ended),
        }
    }
}

/// The standard input of a command.
pub struct Input {
    id: CommandId,
    agent: Agent,
    window: Arc<Window>,
}

impl Input {
    /// Sends all of `bytes`, as fast as the command takes them; false when it has ended.
    pub fn write(&self, bytes: &[u8]) -> Result<bool> {
        for chunk in bytes.chunks(INPUT_CHUNK) {
            if !self.window.reserve(chunk.len()) {
                return Ok(false);
            }
            self.agent.send(&ToGuest::Input(self.id, ByteBuf::from(chunk)))?;
        }
        Ok(true)
    }

    /// Ends the input.
    pub fn close(self) -> Result<()> {
        self.agent.send(&ToGuest::Input(self.id, ByteBuf::new()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
