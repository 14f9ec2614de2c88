// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the state of a device whose machine is stopped. It is a copy: the machine may go on here.
//!
//! All sessions that go along are suspended before anything is written, so that one which cannot go is a reason to refuse, and costs
//! little. They stay suspended, and their next calls bring them back.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use log::{error, warn};
use vhost_cuda_common::parts::{self, kind, malformed};
use zerocopy::IntoBytes;

use super::{MAGIC, State, VERSION, put};
use crate::confine::threads;
use crate::front_end::device::Device;
use crate::front_end::patient::{Attended, Patient, widen};
use crate::guest::memory::Memory;
use crate::guest::ring::{Ring, Unanswered};
use crate::owner::{Machine, Owner};
use crate::sessions::residence::Renewing;
use crate::sessions::session::Session;
use crate::suspend::files::Writing;
use crate::suspend::suspender::for_each;

/// The bytes of an image in one part.
const PIECE: usize = 1 << 20;

/// A session that goes along.
struct Leaving<'a> {
    session: &'a Arc<Session>,
    /// It stays suspended as long as this exists.
    _suspended: Renewing<'a>,
    /// The part of the state in which this daemon describes the session.
    member: Vec<u8>,
    /// The files for its contents.
    contents: Option<Writing>,
}

/// Writes the state of `device`, whose queues are stopped.
///
/// Errors: those of `to`; a session cannot go along, and must not be lost.
pub fn save(device: &Arc<Device>, to: File) -> io::Result<()> {
    let mut to = Attended::new(to, || device.is_connected());
    let ahead = device.gone_ahead();
    let sessions = device.sessions_to_save().map_err(io::Error::other)?;
    let memory = device.memory();
    let (mut lost, mut leaving) = (device.events.save(), Vec::new());
    let prepared = for_each(&sessions, |session| prepare(device, session, memory.as_deref()));
    device.end_ahead();
    for (session, result) in sessions.iter().zip(prepared) {
        match result {
            Ok(one) => leaving.push(one),
            Err(reason) => {
                give_up(device, session, &reason)?;
                lost.push(session.id());
            }
        }
    }
    let mut head = MAGIC.to_vec();
    put(&mut head, VERSION);
    to.write_all(&head)?;
    let driver_version = device.driver_version.load(Ordering::Relaxed);
    let state = State { queues: queues(device, &leaving), lost, driver_version };
    parts::write(&mut to, kind::MACHINE, &[&state.bytes()])?;
    write_images(device, &leaving, &mut to)?;
    for Leaving { session, member, contents, .. } in &mut leaving {
        parts::write(&mut to, kind::MEMBER, &[member])?;
        // Files beside the state have all contents.
        let is_ahead = contents.is_none() && ahead.contains(&session.label());
        if let Err(reason) = write_copy(session, contents.as_ref(), is_ahead, &mut to)? {
            give_up(device, session, &reason)?;
            parts::write(&mut to, kind::LOST, &[])?;
            *contents = None;
        }
    }
    parts::write(&mut to, kind::LAST, &[])?;
    leaving.iter_mut().filter_map(|one| one.contents.as_mut()).try_for_each(Writing::keep)
}

fn prepare<'a>(
    device: &Device,
    session: &'a Arc<Session>,
    memory: Option<&Memory>,
) -> Result<Leaving<'a>, String> {
    session.has_stopped()?;
    let suspended = device.settings.suspender.suspend_for_departure(session);
    let _suspended = suspended.map_err(|error| error.to_string())?;
    let member = session.for_machine(memory.ok_or("there is no guest memory")?);
    let mut member = member.map_err(|error| error.to_string())?;
    let bytes = session.residence().moves().stored_bytes;
    let folder = device.settings.contents.as_ref().filter(|_| bytes > 0);
    let contents = folder.map(|folder| folder.create()).transpose();
    let contents = contents.map_err(|error| error.to_string())?;
    member.contents = contents.as_ref().map(|contents| contents.name.clone());
    let member = serde_json::to_vec(&member);
    let member = member.map_err(|error| error.to_string())?;
    if member.len() as u64 > parts::MAX_BYTES {
        return Err("it holds too many pages".to_owned());
    }
    Ok(Leaving { session, _suspended, member, contents })
}

/// Gives up a session that cannot go along.
///
/// Errors: it must not be lost.
fn give_up(device: &Device, session: &Session, reason: &str) -> io::Result<()> {
    let what = session.describe();
    if device.settings.lose_sessions {
        warn!("{what}: lost in the saved machine: {reason}");
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{what} cannot go along: {reason}. End its program, or start the daemon with --lose-sessions"
    )))
}

/// Returns the unanswered chains of all queues, and the requests that they are.
fn queues(device: &Device, leaving: &[Leaving<'_>]) -> Vec<Vec<Unanswered>> {
    let mut requests = HashMap::new();
    for Leaving { session, .. } in leaving {
        for (number, ring, head) in session.requests() {
            requests.insert((Arc::as_ptr(&ring), head), (session.id(), number));
        }
    }
    let of_ring =
        |ring: &Arc<Ring>| ring.unanswered(|head| requests.get(&(Arc::as_ptr(ring), head)).copied());
    device.rings.iter().map(of_ring).collect()
}

/// Writes the images of device code of all users whose sessions go along: recipes name them by their digests.
fn write_images(device: &Device, leaving: &[Leaving<'_>], mut to: impl Write) -> io::Result<()> {
    let machine = Machine::Virtual(device.connection);
    let of_session = |one: &Leaving<'_>| {
        let uid = one.session.program().2;
        // One that has come before guest memory was there counts as a virtual machine's.
        [device.owner(uid), Owner { machine, uid }]
    };
    let owners: Vec<_> = leaving.iter().flat_map(of_session).collect();
    for (owner, digest, bytes, file) in device.settings.images.of(&owners) {
        let uid = u64::from(owner.uid);
        parts::write(&mut to, kind::IMAGE, &[uid.as_bytes(), bytes.as_bytes(), &digest])?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < bytes {
            let now = &mut piece[..PIECE.min((bytes - at) as usize)];
            file.read_exact_at(now, at)?;
            parts::write(&mut to, kind::PIECE, &[now])?;
            at += now.len() as u64;
        }
    }
    Ok(())
}

/// Has the worker of a session write its copy, and passes it on. Returns the reason if there is none, or not all of it.
///
/// Errors: those of `to`.
fn write_copy(
    session: &Arc<Session>,
    contents: Option<&Writing>,
    is_ahead: bool,
    to: &mut (impl Write + Send),
) -> io::Result<Result<(), String>> {
    let files = contents.map_or(&[][..], Writing::files).iter();
    let files = files.map(|file| Ok(file.try_clone()?.into())).collect::<io::Result<Vec<OwnedFd>>>()?;
    let (from, pipe) = io::pipe()?;
    widen(&pipe);
    let (written, passed) = thread::scope(|scope| {
        let pass = move || {
            threads::read_foreign_bytes();
            let passed = pass_on(Patient::new(OwnedFd::from(from).into()), to);
            if matches!(&passed, Err(Passing::From(error)) if error.kind() == ErrorKind::TimedOut) {
                error!("{}: ended: its worker has stopped to write it", session.describe());
                session.end_worker();
            }
            passed
        };
        let passing = thread::Builder::new().name("device-state-c".into()).spawn_scoped(scope, pass)?;
        let written = session.write_copy(pipe.into(), files, is_ahead);
        let passed = passing.join().map_err(|_| io::Error::other("its thread has failed"))?;
        io::Result::Ok((written, passed))
    })?;
    match (passed, written) {
        (Ok(()), _) => Ok(Ok(())),
        (Err(Passing::To(error)), _) => Err(error),
        (Err(Passing::From(_)), Err(reason)) => Ok(Err(reason.to_string())),
        (Err(Passing::From(error)), Ok(())) => Ok(Err(error.to_string())),
    }
}

/// The end that has failed.
enum Passing {
    From(io::Error),
    To(io::Error),
}

/// Passes the parts of a session on, up to its end.
fn pass_on(mut from: impl Read, mut to: impl Write) -> Result<(), Passing> {
    let mut part = Vec::new();
    loop {
        let found = parts::copy(&mut from, &mut part).map_err(Passing::From)?;
        if !kind::is_of_session(found) {
            return Err(Passing::From(malformed("its worker has written a part that is not of a session")));
        }
        to.write_all(&part).map_err(Passing::To)?;
        if found == kind::END {
            return Ok(());
        }
    }
}
