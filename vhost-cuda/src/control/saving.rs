// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions whose contents go to files of the operator's, and come back: the daemon's side. `ctl` has the files, which the daemon gives to
//! the worker. Both have an end of a pipe for the places of contents there.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use vhost_cuda_common::parts::FILES;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::protocol::Answer;
use super::server::{answer_with, describe, missing, refusal, selected};
use crate::confine::threads;
use crate::sessions::session::saving::Files;
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
    let (reader, writer) = pipe()?;
    send(client, &answer(suspender, &member, None::<&str>), &reader)?;
    drop(reader);
    let workers = Files { contents: receive(client)?, pipe: writer };
    member.session.offer(&workers.contents)?;
    let suspended = suspender.suspend(&member.session, time, true);
    member.session.offer(&[])?;
    if let Err(error) = suspended {
        return Ok(answer(suspender, &member, Some(error)));
    }
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
    let (reader, writer) = pipe()?;
    send(client, &answer(suspender, &member, None::<&str>), &writer)?;
    drop(writer);
    let workers = Files { contents: receive(client)?, pipe: reader };
    if let Err(error) = suspender.load(&member.session, workers) {
        return Ok(answer(suspender, &member, Some(error)));
    }
    let failure = suspender.resume(&member.session, time).err();
    if failure.is_some() {
        // It stays saved: the files may be wrong, and others right. It refuses if a call of its program brings it back just now.
        let _ = member.session.give_up_contents();
    }
    Ok(answer(suspender, &member, failure))
}

/// Sends an answer with the client's end of a pipe.
fn send(client: &UnixStream, answer: &Answer, pipe: &OwnedFd) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sent = client.send_with_fd(&line[..], pipe.as_raw_fd());
    let sent = sent.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    io::Write::write_all(&mut { client }, &line[sent..])
}

/// Receives the files for contents that the client sends after that answer, each with the number of those that follow.
fn receive(client: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut files = Vec::new();
    loop {
        let mut left = [0];
        let received = client.recv_with_fd(&mut left);
        let (_, file) = received.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        files.push(file.map(OwnedFd::from).ok_or(io::ErrorKind::UnexpectedEof)?);
        if left == [0] || files.len() == FILES {
            return Ok(files);
        }
    }
}

/// Makes a pipe. This thread is confined, and makes none.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (said, made) = channel();
    threads::outside(move || drop(said.send(io::pipe())));
    let (reader, writer) = made.recv().map_err(io::Error::other)??;
    Ok((reader.into(), writer.into()))
}
