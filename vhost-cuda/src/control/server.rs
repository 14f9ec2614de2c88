// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's side of the control socket.
//!
//! The socket belongs to the daemon's user, and no other user but root may connect. A client is a thread; the number
//! of clients, the length of a request, and the time for it and for taking the answer are limited.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use log::{Level, info, log};
use vhost_cuda_common::budget::{Budget, Charge};
use vhost_cuda_common::recipes::Description;

use serde::Serialize;

use super::protocol::{self, Answer, MAX_REQUEST, MAX_TIMEOUT_MS, Request};
use super::{renewing, saving, trace};
use crate::confine::threads;
use crate::limits::throttle::Throttle;
use crate::sessions::residence::{Extent, MoveError, Phase};
use crate::socket::listen_privately;
use crate::suspend::suspender::{Member, Selection, Suspender, for_each};

/// The maximum number of clients at once.
const MAX_CLIENTS: usize = 16;
/// The time for a client to send its next request, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a connection that cannot be accepted or served.
const PAUSE: Duration = Duration::from_millis(100);
/// Limits messages that a client can cause.
static COMPLAINTS: Throttle = Throttle::new(10, Duration::from_secs(60));

/// Removes the socket when the daemon ends.
#[derive(Debug)]
pub struct Listening(PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Replaces the daemon's program for a client, which the new program answers. Returns the reason if it was not replaced.
pub type Replace = Arc<dyn Fn(&UnixStream) -> String + Send + Sync>;

/// The parts of the daemon that requests of clients use.
#[derive(Clone)]
pub struct Served {
    /// The sessions.
    pub suspender: Arc<Suspender>,
    /// The daemon.
    pub replace: Replace,
    /// The connections of sessions that get other workers.
    pub renew: renewing::Renew,
}

/// Listens at `path`.
///
/// Errors: the path cannot be used.
pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    listen_privately(path)
        .with_context(|| format!("Cannot listen on {} for control (--control)", path.display()))
}

/// Serves the control socket at `path`, on threads of its own.
///
/// Errors: there is no thread.
pub fn start(path: &Path, listener: UnixListener, served: Served) -> anyhow::Result<Listening> {
    info!("control at {}", path.display());
    let serving = move || accept_all(&listener, &served);
    thread::Builder::new()
        .name("control".into())
        .spawn(serving)
        .context("Cannot serve the control socket")?;
    Ok(Listening(path.to_path_buf()))
}

/// Answers the client that has asked the program before this one to be replaced. `refused` is the reason if it was not.
pub fn answer_replace(client: &UnixStream, refused: Option<String>) {
    let answer = Answer { ok: refused.is_none(), error: refused, ..Answer::default() };
    // It fails if the client has gone.
    let _ = client.set_nonblocking(true).and_then(|()| write(client, &answer));
}

fn accept_all(listener: &UnixListener, served: &Served) {
    let clients = Budget::new(MAX_CLIENTS);
    loop {
        let refused = match listener.accept() {
            Ok((client, _)) => match clients.charge(1) {
                Some(place) => match serve_aside(client, served.clone(), place) {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                },
                None => {
                    let text = format!("{MAX_CLIENTS} clients are connected: try again");
                    let answer = Answer { error: Some(text.clone()), ..Answer::default() };
                    let _ = client.set_nonblocking(true).and_then(|()| write(&client, &answer));
                    text
                }
            },
            Err(error) => error.to_string(),
        };
        log!(COMPLAINTS.level(Level::Warn), "a client of the control socket is refused: {refused}");
        thread::sleep(PAUSE);
    }
}

fn serve_aside(client: UnixStream, served: Served, place: Charge) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let serve = move || {
        threads::read_foreign_bytes();
        if let Err(error) = serve(&client, &served) {
            log!(COMPLAINTS.level(Level::Debug), "a client of the control socket: {error}");
        }
        drop(place);
    };
    thread::Builder::new().name("control-client".into()).spawn(serve).map(drop)
}

/// Answers requests until the client hangs up.
///
/// Errors: a request that is too long or no UTF-8, after its answer; and those of the socket.
fn serve(client: &UnixStream, served: &Served) -> io::Result<()> {
    let suspender = &*served.suspender;
    let mut reader = BufReader::with_capacity(MAX_REQUEST, client);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(MAX_REQUEST as u64).read_until(b'\n', &mut line)?;
        match line.last() {
            None => return Ok(()),
            Some(b'\n') => {}
            Some(_) if line.len() < MAX_REQUEST => return Ok(()),
            Some(_) => {
                write(client, &refusal(format!("a request of more than {MAX_REQUEST} bytes")))?;
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(Request::Replace {}) => replace(client, &served.replace)?,
            Ok(Request::Trace { session, connection, all, time_ms }) => {
                match selected(session, connection, all, time_ms) {
                    Ok(selected) => {
                        let time = Duration::from_millis(time_ms.into());
                        let (answer, recorded) = trace::serve(client, suspender, selected, time)?;
                        write(client, &answer)?;
                        drop(recorded);
                        continue;
                    }
                    Err(error) => refusal(error),
                }
            }
            Ok(Request::Renew { session, connection, all, timeout_ms: ms }) => {
                match selected(session, connection, all, ms) {
                    Ok(selected) => renewing::answer(served, selected, Duration::from_millis(ms.into())),
                    Err(error) => refusal(error),
                }
            }
            Ok(Request::Save { session, timeout_ms }) => {
                saving::save(client, suspender, session, timeout_ms)?
            }
            Ok(Request::Saved { session }) => saving::saved(suspender, session),
            Ok(Request::Restore { session, timeout_ms }) => {
                saving::restore(client, suspender, session, timeout_ms)?
            }
            Ok(request) => answer(&request, suspender),
            Err(error) => refusal(format!(
                "not a request: {error} (docs/suspend.md, docs/profiling.md, docs/migration.md)"
            )),
        };
        write(client, &answer)?;
    }
}

/// Has the daemon's program replaced. Returns if it was not.
fn replace(client: &UnixStream, replace: &Replace) -> io::Result<Answer> {
    let (client, replace) = (client.try_clone()?, replace.clone());
    let (said, result) = channel();
    // This thread is confined, and executes nothing.
    threads::outside(move || {
        let work = move || drop(said.send(replace(&client)));
        // Without a thread, `said` is dropped.
        let _ = thread::Builder::new().name("replace".into()).spawn(work);
    });
    Ok(refusal(result.recv().unwrap_or_else(|_| "there is no thread for it".into())))
}

/// Returns the sessions of a request with a time in milliseconds.
///
/// Errors: the reason for which the fields select nothing, or the time is refused.
pub(super) fn selected(
    session: Option<u64>,
    connection: Option<u64>,
    all: bool,
    ms: u32,
) -> Result<Selection, String> {
    let selected = protocol::selection(session, connection, all)?;
    if ms > MAX_TIMEOUT_MS { Err(format!("a time of more than {MAX_TIMEOUT_MS} ms")) } else { Ok(selected) }
}

pub(super) fn refusal(error: String) -> Answer {
    Answer { error: Some(error), ..Answer::default() }
}

pub(super) fn write(mut client: &UnixStream, answer: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// Carries a request out.
fn answer(request: &Request, suspender: &Suspender) -> Answer {
    let (selected, time) = match *request {
        Request::Status {} | Request::Replace {} => (Ok(Selection::All), 0),
        Request::Save { session, timeout_ms: ms } | Request::Restore { session, timeout_ms: ms } => {
            (selected(Some(session), None, false, ms), ms)
        }
        Request::Saved { session } => (Ok(Selection::Session(session)), 0),
        Request::Recipe { session, connection, all } => (protocol::selection(session, connection, all), 0),
        Request::Suspend { session, connection, all, timeout_ms: ms, .. }
        | Request::Resume { session, connection, all, timeout_ms: ms }
        | Request::Renew { session, connection, all, timeout_ms: ms }
        | Request::Trace { session, connection, all, time_ms: ms } => {
            (selected(session, connection, all, ms), ms)
        }
    };
    let selected = match selected {
        Ok(selected) => selected,
        Err(error) => return refusal(error),
    };
    let members = suspender.members(selected);
    let missing = missing(selected, &members);
    let time = Duration::from_millis(time.into());
    let carry_out = |member: &Member| match *request {
        Request::Status {}
        | Request::Replace {}
        | Request::Renew { .. }
        | Request::Trace { .. }
        | Request::Recipe { .. }
        | Request::Save { .. }
        | Request::Saved { .. }
        | Request::Restore { .. } => None,
        Request::Suspend { hold, deep, .. } => {
            let result = match deep {
                false => suspender.suspend(&member.session, time, hold),
                true => suspender.suspend_to(&member.session, time, hold, Extent::Any),
            };
            result.err().filter(|error| !error.is_nothing_movable())
        }
        Request::Resume { .. } => suspender.resume(&member.session, time).err(),
    };
    let sessions: Vec<_> = match request {
        Request::Status {} => members.iter().map(|member| Some(describe(member, None))).collect(),
        Request::Recipe { .. } => for_each(&members, |member| Some(with_recipe(member))),
        Request::Suspend { deep: true, .. } => for_each(&members, |member| {
            let error = carry_out(member);
            // Also if it was suspended before.
            let not_deep = match &error {
                None => deepen(member),
                Some(_) => Some("it is not suspended".to_owned()),
            };
            let deep = Some(not_deep.is_none());
            Some(protocol::Session {
                deep,
                not_deep,
                ..moved(selected, member, error, MoveError::has_ended)?
            })
        }),
        _ => for_each(&members, |member| moved(selected, member, carry_out(member), MoveError::has_ended)),
    };
    let sessions = sessions.into_iter().flatten().collect();
    answer_with(missing, sessions, suspender)
}

/// Returns a session after its move, or after the error of that. `None` if it has ended meanwhile and the request did not name it: all
/// sessions that are left have moved then.
pub(super) fn moved<E: ToString>(
    selected: Selection,
    member: &Member,
    error: Option<E>,
    has_ended: impl Fn(&E) -> bool,
) -> Option<protocol::Session> {
    let is_named = matches!(selected, Selection::Session(_));
    let is_gone = !is_named && error.as_ref().is_some_and(has_ended);
    (!is_gone).then(|| describe(member, error.map(|error| error.to_string())))
}

/// Returns the answer with these sessions, and with the daemon's host memory.
pub(super) fn answer_with(
    error: Option<String>,
    sessions: Vec<protocol::Session>,
    suspender: &Suspender,
) -> Answer {
    let (host_memory_used, host_memory_limit) = suspender.host_memory();
    let (pool_ready, pool_limit) = suspender.pool();
    let ok = error.is_none() && sessions.iter().all(|session| session.error.is_none());
    Answer { ok, error, sessions, host_memory_used, host_memory_limit, pool_ready, pool_limit }
}

/// Returns the reason if there is no session that was asked for.
pub(super) fn missing(selected: Selection, members: &[Member]) -> Option<String> {
    match selected {
        Selection::Session(session) if members.is_empty() => Some(format!("there is no session {session}")),
        Selection::Connection(connection) if members.is_empty() => {
            Some(format!("connection {connection} has no sessions"))
        }
        _ => None,
    }
}

/// Ends the driver's objects of a suspended session. Returns the reason if they have not ended.
fn deepen(member: &Member) -> Option<String> {
    let phase = member.session.residence().moves().phase;
    if phase == Phase::Running {
        return Some("it has no memory that can move".to_owned());
    }
    member.session.deepen().unwrap_or_else(|error| Some(error.to_string()))
}

fn with_recipe(member: &Member) -> protocol::Session {
    match member.session.recipe() {
        Ok(Description { calls, bytes, obstacle }) => {
            let recipe = Some(protocol::Recipe { calls, bytes, obstacle });
            protocol::Session { recipe, ..describe(member, None) }
        }
        Err(error) => describe(member, Some(error.to_string())),
    }
}

pub(super) fn describe(member: &Member, error: Option<String>) -> protocol::Session {
    let session = &member.session;
    let (program, pid, uid) = session.program();
    let moves = session.residence().moves();
    let is_away = moves.phase == Phase::Suspended;
    protocol::Session {
        connection: member.connection,
        session: session.label(),
        program: program.to_owned(),
        pid,
        uid,
        state: moves.state().to_owned(),
        wanted: moves.wanted,
        on_card_bytes: if is_away { moves.resident_bytes } else { session.device_memory() },
        suspended_bytes: moves.suspended_bytes,
        stored_bytes: moves.stored_bytes,
        copied_bytes: moves.copied_bytes,
        ready_bytes: session.ready_memory(),
        idle_ms: u64::try_from(member.idle.as_millis()).unwrap_or(u64::MAX),
        suspensions: moves.suspensions,
        resumes: moves.resumes,
        renewals: moves.renewals,
        failures: moves.failures,
        moving_ms: u64::try_from(moves.moving.as_millis()).unwrap_or(u64::MAX),
        error,
        ..protocol::Session::default()
    }
}

#[cfg(test)]
#[path = "server_test.rs"]
mod tests;
