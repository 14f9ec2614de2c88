// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes the messages of a front-end to the library that handles them, and the replies back.
//!
//! The library cannot be given a connected socket, nor asked for what it has learned. So it has a socket of its own, and a thread
//! between the two keeps a [`Record`] of the messages that still count. The next program repeats these to its own library, and
//! goes on with the front-end's socket, so the front-end notices nothing. Requests of programs do not pass here: they are in
//! queues, and the library has the queues' events.

mod message;
mod record;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
};
use serde::{Deserialize, Serialize};
use vhost::vhost_user::Listener;
use vhost::vhost_user::message::FrontendReq;

use crate::confine::threads;
use crate::hand_over::files::{Inherited, Leaving, Number};
use crate::hand_over::freeze;
use message::{Incoming, Message, Received, SavedIncoming};
use record::{Record, SavedRecord};

/// The time for an end to take a message. A front-end that does not read its replies is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request without effect, whose reply shows that all before it were handled.
const MARK: u32 = FrontendReq::GET_FEATURES as u32;

/// The connection of a front-end.
#[derive(Debug)]
pub struct Relay {
    front_end: UnixStream,
    library: UnixStream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: Incoming,
    replies: Incoming,
    record: Record,
    /// False once the front-end has closed its socket.
    is_connected: bool,
    /// Requests [`MARK`] of the front-end without a reply so far, and the daemon's own, which came after them.
    marks: u32,
    own_marks: u32,
}

impl State {
    /// Returns false for a reply to the daemon's own request.
    fn is_for_front_end(&mut self, reply: &Message) -> bool {
        if !reply.is_reply_to(MARK) {
            return true;
        }
        // All have the same reply, so it does not matter if some of the front-end's came later than an own one.
        let is_theirs = self.marks > 0;
        let count = if is_theirs { &mut self.marks } else { &mut self.own_marks };
        *count = count.saturating_sub(1);
        is_theirs
    }
}

/// A connection that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedRelay {
    front_end: Number,
    requests: SavedIncoming,
    record: SavedRecord,
}

impl Relay {
    /// Creates a relay for a front-end that has connected. The library accepts its own socket from the listener.
    pub fn new(front_end: UnixStream) -> io::Result<(Arc<Self>, Listener)> {
        Self::with(front_end, Incoming::default(), Record::default())
    }

    fn with(front_end: UnixStream, requests: Incoming, record: Record) -> io::Result<(Arc<Self>, Listener)> {
        let (library, listener) = private()?;
        for socket in [&front_end, &library] {
            socket.set_write_timeout(Some(PATIENCE))?;
        }
        let state = State {
            requests,
            replies: Incoming::default(),
            record,
            is_connected: true,
            marks: 0,
            own_marks: 0,
        };
        Ok((Arc::new(Self { front_end, library, state: Mutex::new(state) }), listener.into()))
    }

    /// Passes messages until both ends have closed their sockets, on a thread of its own.
    pub fn start(self: &Arc<Self>, connection: u64) -> io::Result<()> {
        let relay = self.clone();
        thread::Builder::new().name(format!("relay-{connection}")).spawn(move || {
            threads::read_foreign_bytes();
            if let Err(error) = relay.run() {
                debug!("connection {connection}: {error}");
            }
            // The other threads of the connection notice it.
            let _ = relay.library.shutdown(Shutdown::Both);
            let _ = relay.front_end.shutdown(Shutdown::Both);
            relay.state.lock().is_connected = false;
        })?;
        Ok(())
    }

    /// Returns whether the front-end is there still.
    pub fn is_connected(&self) -> bool {
        self.state.lock().is_connected
    }

    fn run(&self) -> io::Result<()> {
        loop {
            let is_connected = self.state.lock().is_connected;
            let events = if is_connected { PollFlags::IN } else { PollFlags::empty() };
            let mut sockets =
                [PollFd::new(&self.library, PollFlags::IN), PollFd::new(&self.front_end, events)];
            // A socket without events reports its end again and again.
            let watched = if is_connected { 2 } else { 1 };
            match poll(&mut sockets[..watched], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let _permit = freeze::permit();
            let mut state = self.state.lock();
            match state.replies.receive(&self.library)? {
                Received::Whole(reply) => {
                    if state.is_for_front_end(&reply) {
                        reply.send(&self.front_end)?;
                    }
                }
                Received::Part => {}
                Received::End => return Ok(()),
            }
            if !state.is_connected {
                continue;
            }
            match state.requests.receive(&self.front_end)? {
                Received::Whole(request) => {
                    state.record.note(&request)?;
                    state.marks += u32::from(request.request == MARK);
                    request.send(&self.library)?;
                }
                Received::Part => {}
                Received::End => {
                    state.is_connected = false;
                    let _ = self.library.shutdown(Shutdown::Write);
                }
            }
        }
    }

    /// Waits until the library has handled all messages, for at most `patience`. The daemon's threads are stopped.
    ///
    /// Errors: it has not, or the connection is ending.
    pub fn settle(&self, patience: Duration) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_connected {
            return Err(io::Error::other("its front-end is disconnecting"));
        }
        Message::request(MARK, Vec::new()).send(&self.library)?;
        state.own_marks += 1;
        self.wait_for_marks(&mut state, patience, |reply| reply.send(&self.front_end))
    }

    /// Receives replies until those to all marks are there, also to requests of the front-end that look the same. All but those
    /// to own marks go to `pass`. If the time is over, [`Self::run`] goes on.
    fn wait_for_marks(
        &self,
        state: &mut State,
        patience: Duration,
        pass: impl Fn(&Message) -> io::Result<()>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        while state.own_marks > 0 {
            let Some(reply) = self.next(&mut state.replies, deadline)? else {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "its front-end's messages are being handled",
                ));
            };
            if state.is_for_front_end(&reply) {
                pass(&reply)?;
            }
        }
        Ok(())
    }

    /// Returns the library's next reply, if it comes before `deadline`.
    fn next(&self, replies: &mut Incoming, deadline: Instant) -> io::Result<Option<Message>> {
        loop {
            match replies.receive(&self.library)? {
                Received::Whole(reply) => return Ok(Some(reply)),
                Received::End => return Err(io::Error::other("the connection is ending")),
                Received::Part => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let limit = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.library, PollFlags::IN)], limit.as_ref());
        }
    }

    /// Repeats the notifications of all queues.
    pub fn notify(&self) {
        self.state.lock().record.notify();
    }

    /// Returns what the next program needs, after [`Self::settle`].
    pub fn save(&self, files: &mut Leaving) -> SavedRelay {
        let state = self.state.lock();
        let (requests, record) = (state.requests.save(files), state.record.save(files));
        SavedRelay { front_end: files.add(&self.front_end), requests, record }
    }

    /// Takes over a connection of the program before this one. [`Self::replay`] follows when the library has accepted.
    ///
    /// Errors: the state is wrong, and those of [`Self::new`].
    pub fn restore(saved: SavedRelay, files: &mut Inherited) -> io::Result<(Arc<Self>, Listener)> {
        let front_end = UnixStream::from(files.take(saved.front_end)?);
        let requests = Incoming::restore(saved.requests, files)?;
        Self::with(front_end, requests, Record::restore(saved.record, files)?)
    }

    /// Makes the library's device the one that the front-end has described. `next_avail` has the position of each queue from which
    /// chains were taken.
    ///
    /// Errors: the library refuses it, or does not handle it within `patience`.
    pub fn replay(&self, next_avail: &[Option<u16>], patience: Duration) -> io::Result<()> {
        let mut state = self.state.lock();
        state.record.set_positions(next_avail);
        let messages = state.record.messages()?;
        // The library checks later ones by its answer to this one.
        Message::request(MARK, Vec::new()).send(&self.library)?;
        for message in messages {
            message.send(&self.library)?;
        }
        Message::request(MARK, Vec::new()).send(&self.library)?;
        state.own_marks += 2;
        // The front-end has had the replies.
        self.wait_for_marks(&mut state, patience, |_| Ok(()))
    }
}

/// Returns a socket, and the listener from which only its other end can be accepted: with no further place in its queue, a process
/// that finds the name before makes the connection fail here.
fn private() -> io::Result<(UnixStream, UnixListener)> {
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let listener = socket(SocketFlags::CLOEXEC)?;
    // The kernel chooses a name that is not in the file system.
    bind(&listener, &SocketAddrUnix::new_unnamed())?;
    listen(&listener, 0)?;
    let ours = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    connect(&ours, &SocketAddrUnix::try_from(getsockname(&listener)?)?)?;
    ioctl_fionbio(&ours, false)?;
    Ok((ours.into(), listener.into()))
}
