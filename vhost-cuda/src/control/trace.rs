// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings: what sessions do is sent on until the time is over or the reader hangs up. For the operator ([`serve`]), and for
//! profilers in the guest ([`for_guest`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_cuda_common::budget::Charge;
use vhost_cuda_profile::event::{Batch, Failure};

use super::protocol::Answer;
use super::server::{answer_with, describe, missing, refusal, write};
use crate::confine::threads;
use crate::hand_over::freeze;
use crate::sessions::session::asked::AskError;
use crate::sessions::session::profile::{ProfileError, Profiling};
use crate::suspend::suspender::{Selection, Suspender};

/// The pause between two looks at the workers. They keep what comes meanwhile.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time without a line, so that clients can tell a quiet program from a daemon that hangs.
const SILENCE: Duration = Duration::from_secs(1);
/// The time for a worker to take a line for its guest.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum number of answers of one worker in a row, so that a busy one does not keep others waiting.
const IN_A_ROW: usize = 256;

/// The sessions that are recorded, and those that could not be, with the reason.
pub type Recorded = BTreeMap<u64, Result<Profiling, ProfileError>>;

/// Records the selected sessions for `time`, and sends lines of [`Batch`]. Returns the answer that ends them. If the daemon's program
/// is being replaced, it waits for the end of the recordings, which are returned, so that they end after the answer.
///
/// Errors: those of the socket. Nothing is recorded any longer then.
pub fn serve(
    client: &UnixStream,
    suspender: &Suspender,
    selected: Selection,
    time: Duration,
) -> io::Result<(Answer, Recorded)> {
    if let Some(error) = missing(selected, &suspender.members(selected)) {
        return Ok((refusal(error), Recorded::new()));
    }
    let until = Some(Instant::now() + time);
    let (recorded, is_replaced) = record(client, suspender, selected, until, |batch| batch)?;
    let reasons = reasons(&recorded);
    let members = suspender.members(selected);
    let sessions: Vec<_> = members
        .iter()
        .map(|member| describe(member, reasons.get(&member.session.label()).cloned()))
        .collect();
    // Without a session that could say it.
    let error = (is_replaced && reasons.is_empty()).then(|| ProfileError::Replaced.to_string());
    let ok = reasons.is_empty() && error.is_none();
    Ok((Answer { ok, ..answer_with(error, sessions, suspender) }, recorded))
}

/// Records the selected sessions for a profiler in the guest, on a thread of its own that keeps `charges`. The end of the returned
/// socket is for its worker, and ends the recording.
///
/// Errors: those of the socket and of the thread.
pub fn for_guest(
    suspender: Arc<Suspender>,
    selected: Selection,
    charges: (Charge, Charge),
) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    ours.set_write_timeout(Some(PATIENCE))?;
    let recording = move || {
        threads::read_foreign_bytes();
        // Numbers of sessions tell how many there are on the host.
        let recorded = record(&ours, &suspender, selected, None, |batch| Batch { session: 0, ..batch });
        let sent = recorded.and_then(|(recorded, _)| {
            let failures = reasons(&recorded).into_values().map(|error| Failure { error });
            failures.into_iter().try_for_each(|failure| write(&ours, &failure))
        });
        if let Err(error) = sent {
            debug!("A recording for a guest has ended: {error}");
        }
        drop(charges);
    };
    thread::Builder::new().name("guest-profile".into()).spawn(recording)?;
    Ok(theirs.into())
}

/// Records until that time, or until the reader hangs up, or until the daemon's program is to be replaced. The reader gets what `shown`
/// makes of each batch. Returns the sessions that could not be recorded. If the program is to be replaced, returns true, and all sessions.
///
/// Errors: those of the socket.
fn record(
    client: &UnixStream,
    suspender: &Suspender,
    selected: Selection,
    until: Option<Instant>,
    shown: fn(Batch) -> Batch,
) -> io::Result<(Recorded, bool)> {
    let mut recorded = Recorded::new();
    let mut silent_since = Instant::now();
    let mut is_over = false;
    let is_replaced = loop {
        let is_replaced = freeze::is_leaving();
        is_over |= is_replaced || until.is_some_and(|until| Instant::now() >= until);
        let members = suspender.members(selected);
        recorded.retain(|label, _| members.iter().any(|member| member.session.label() == *label));
        for member in &members {
            let place = recorded.entry(member.session.label());
            let place = place.or_insert_with(|| Profiling::start(&member.session));
            if let Ok(profiling) = place {
                match pass_on(client, profiling, shown)? {
                    Ok(true) => silent_since = Instant::now(),
                    Ok(false) => {}
                    Err(error) => *place = Err(error),
                }
            }
        }
        let is_of_one = matches!(selected, Selection::Session(_) | Selection::Process(..));
        if is_over || is_of_one && recorded.values().all(Result::is_err) {
            break is_replaced;
        }
        if silent_since.elapsed() >= SILENCE {
            write(client, &Batch::default())?;
            silent_since = Instant::now();
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // What was recorded until a reader hangs up is sent: one that only ended its requests reads it.
        is_over = hangs_up(client, left.map_or(PAUSE, |left| left.min(PAUSE)));
    };
    if !is_replaced {
        recorded.retain(|_, profiling| profiling.is_err());
    }
    Ok((recorded, is_replaced))
}

/// Returns why sessions are missing in a recording, or why it has ended before its time.
fn reasons(recorded: &Recorded) -> BTreeMap<u64, String> {
    let reason = |(&label, profiling): (&u64, &Result<Profiling, ProfileError>)| {
        let error = profiling.as_ref().err().copied().unwrap_or(ProfileError::Replaced);
        (error != ProfileError::Asked(AskError::Ended)).then(|| (label, error.to_string()))
    };
    recorded.iter().filter_map(reason).collect()
}

/// Waits for `time`, or until the other end of a socket has ended its requests.
fn hangs_up(client: &UnixStream, time: Duration) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::RDHUP)];
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // After an error the next write fails, too.
    poll(&mut ends, Some(&time)).is_ok_and(|ended| ended > 0)
}

/// Sends on what a worker has recorded. Returns whether that was anything.
///
/// Errors: those of the socket; inside, the session's.
fn pass_on(
    client: &UnixStream,
    profiling: &mut Profiling,
    shown: fn(Batch) -> Batch,
) -> io::Result<Result<bool, ProfileError>> {
    let mut any = false;
    for _ in 0..IN_A_ROW {
        let (batch, left) = match profiling.read() {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        if !batch.events.is_empty() || batch.dropped > 0 || batch.no_gpu.is_some() {
            write(client, &shown(batch))?;
            any = true;
        }
        if left == 0 {
            break;
        }
    }
    Ok(Ok(any))
}
