// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions whose contents go to a file of the operator's, and come back: the daemon's side. `ctl` has the file, and the worker the
//! contents; the daemon gives both a file in memory for the contents, and each of them an end of a pipe for their places.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::protocol::Answer;
use super::server::{answer_with, describe, missing, refusal, selected};
use crate::confine::threads;
use crate::sessions::session::saving::{Files, contents_file};
use crate::suspend::suspender::{Member, Suspender};

/// The session of a request, and its time.
fn member(suspender: &Suspender, session: u64, ms: u32) -> Result<(Member, Duration), String> {
    let selection = selected(Some(session), None, false, ms)?;
    let mut members = suspender.members(selection);
    if let Some(error) = missing(selection, &members) {
        return Err(error);
    }
    let member = members.pop().ok_or("there is no such session")?;
    Ok((member, Duration::from_millis(ms.into())))
}

fn answer(suspender: &Suspender, member: &Member, error: Option<impl ToString>) -> Answer {
    let session = describe(member, error.map(|error| error.to_string()));
    answer_with(None, vec![session], suspender)
}

/// Suspends a session and sends its contents to the client. Returns the answer that ends this.
///
/// Errors: those of the socket and the pipe.
pub fn save(client: &UnixStream, suspender: &Suspender, session: u64, ms: u32) -> io::Result<Answer> {
    let (member, time) = match member(suspender, session, ms) {
        Ok(found) => found,
        Err(error) => return Ok(refusal(error)),
    };
    if let Err(error) = suspender.suspend(&member.session, time, true) {
        return Ok(answer(suspender, &member, Some(error)));
    }
    let Way { reader, writer, memory } = Way::new(member.session.residence().moves().stored_bytes)?;
    let workers = Files { memory: memory.try_clone()?, pipe: writer };
    send(client, &answer(suspender, &member, None::<&str>), &Files { memory, pipe: reader })?;
    Ok(answer(suspender, &member, member.session.write_contents(workers).err()))
}

/// Gives up the contents in host memory that were sent.
pub fn saved(suspender: &Suspender, session: u64) -> Answer {
    match member(suspender, session, 0) {
        Ok((member, _)) => answer(suspender, &member, member.session.give_up_contents().err()),
        Err(error) => refusal(error),
    }
}

/// Takes the contents of a session from the client, and brings its device memory back. Returns the answer that ends this.
///
/// Errors: those of the socket and the pipe.
pub fn restore(client: &UnixStream, suspender: &Suspender, session: u64, ms: u32) -> io::Result<Answer> {
    let (member, time) = match member(suspender, session, ms) {
        Ok(found) => found,
        Err(error) => return Ok(refusal(error)),
    };
    if !member.session.residence().moves().saved {
        return Ok(answer(suspender, &member, Some("its contents are not in a file")));
    }
    let Way { reader, writer, memory } = Way::new(member.session.residence().moves().suspended_bytes)?;
    let workers = Files { memory: memory.try_clone()?, pipe: reader };
    send(client, &answer(suspender, &member, None::<&str>), &Files { memory, pipe: writer })?;
    if let Err(error) = suspender.load(&member.session, workers) {
        return Ok(answer(suspender, &member, Some(error)));
    }
    // The contents are in host memory, and the file is of no use any more, whatever comes of this.
    Ok(answer(suspender, &member, suspender.resume(&member.session, time).err()))
}

/// Sends an answer with the client's descriptors.
fn send(client: &UnixStream, answer: &Answer, files: &Files) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sent = client.send_with_fds(&[&line[..]], &[files.pipe.as_raw_fd(), files.memory.as_raw_fd()]);
    let sent = sent.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    io::Write::write_all(&mut { client }, &line[sent..])
}

/// The descriptors between a client and a worker.
struct Way {
    reader: OwnedFd,
    writer: OwnedFd,
    memory: OwnedFd,
}

impl Way {
    /// Makes them, for so many bytes of contents. This thread is confined, and makes no pipe.
    fn new(bytes: u64) -> io::Result<Self> {
        let make = move || {
            let (reader, writer) = io::pipe()?;
            Ok(Self { reader: reader.into(), writer: writer.into(), memory: contents_file(bytes)? })
        };
        let (said, made) = channel();
        threads::outside(move || drop(said.send(make())));
        made.recv().map_err(io::Error::other)?
    }
}
