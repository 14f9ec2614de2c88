// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What processes of a guest share with each other: memory and events, by tokens.
//!
//! A worker offers what libcuda exported and gets a token, 128 random bits, which is all that its guest process
//! ever sees and can hand on. Another worker that shows the token gets what was offered. So whoever knows a
//! token may use it, among processes of one user of a guest; nobody else can find one. What a session offered
//! ends with it. Each worker talks over a socket of its own, served by a thread of the daemon.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use log::debug;
use zerocopy::{FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cache::{read_with, write_with};

/// Most offers of one session.
const MAX_OFFERS: usize = 4096;
/// Most of them with a file, which is an open file of the daemon.
const MAX_FILES: usize = 64;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;
/// Bytes of libcuda's own handles (`CU_IPC_HANDLE_SIZE`).
pub const HANDLE_BYTES: usize = 64;

/// [`Question::kind`]: keep this; the answer is its token.
pub const OFFER: u32 = 1;
/// [`Question::kind`]: what was offered under this token?
pub const LOOK_UP: u32 = 2;

/// [`Offer::what`]: memory (`CUipcMemHandle`).
pub const MEMORY: u32 = 1;
/// [`Offer::what`]: an event (`CUipcEventHandle`).
pub const EVENT: u32 = 2;
/// [`Offer::what`]: an allocation of `cuMemCreate`, whose file comes along.
pub const ALLOCATION: u32 = 3;

/// [`Offer::what`]: a memory pool, whose file comes along.
pub const POOL: u32 = 4;
/// [`Offer::what`]: an allocation of such a pool (`CUmemPoolPtrExportData`).
pub const POINTER: u32 = 5;

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Offer {
    /// [`MEMORY`], [`EVENT`], [`ALLOCATION`], [`POOL`] or [`POINTER`].
    pub what: u32,
    /// The guest's number of its device.
    pub device: u32,
    /// Bytes of memory.
    pub bytes: u64,
    /// libcuda's handle; zeros where a file comes along.
    pub handle: [u8; HANDLE_BYTES],
}

/// What a worker sends.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Question {
    /// [`OFFER`] or [`LOOK_UP`].
    kind: u32,
    /// Zero.
    reserved: u32,
    /// What is looked up.
    token: [u8; TOKEN_BYTES],
    /// What is offered; of a look-up, only `what` counts.
    offer: Offer,
}

/// What a worker gets.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Answer {
    /// 1 or 0.
    found: u32,
    /// Zero.
    reserved: u32,
    /// Of an offer.
    token: [u8; TOKEN_BYTES],
    /// Of a look-up.
    offer: Offer,
}

#[derive(Clone, Debug)]
struct Shared {
    uid: u32,
    session: u64,
    offer: Offer,
    file: Option<Arc<File>>,
}

#[derive(Debug, Default)]
struct State {
    next_session: u64,
    offers: HashMap<[u8; TOKEN_BYTES], Shared>,
}

/// All that the sessions of one daemon share.
#[derive(Debug, Default)]
pub struct Exchange(Mutex<State>);

impl Exchange {
    /// Nothing is shared yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Serves the worker at the other end of `socket`, whose session is user `uid`'s, until it ends. Without a
    /// thread for that the worker shares nothing.
    pub fn serve(self: &Arc<Self>, socket: UnixStream, uid: u32) {
        let exchange = self.clone();
        let serving = move || {
            let session = {
                let mut state = exchange.lock();
                state.next_session += 1;
                state.next_session
            };
            if let Err(error) = exchange.answer_all(&socket, uid, session) {
                debug!("exchange: a worker's socket: {error}");
            }
            exchange.lock().offers.retain(|_, shared| shared.session != session);
        };
        if let Err(error) = thread::Builder::new().name("exchange".into()).spawn(serving) {
            debug!("exchange: no thread: {error}");
        }
    }

    fn answer_all(&self, socket: &UnixStream, uid: u32, session: u64) -> io::Result<()> {
        let mut question = Question::new_zeroed();
        while let Some(file) = read_with(socket, question.as_mut_bytes())? {
            let mut answer = Answer::new_zeroed();
            let mut found_file = None;
            match question.kind {
                OFFER => {
                    let shared = Shared { uid, session, offer: question.offer, file: file.map(Arc::new) };
                    if let Some(token) = self.offer(shared) {
                        (answer.found, answer.token) = (1, token);
                    }
                }
                LOOK_UP => {
                    if let Some(shared) = self.find(&question.token, uid, question.offer.what) {
                        (answer.found, answer.offer, found_file) = (1, shared.offer, shared.file);
                    }
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            write_with(socket, answer.as_bytes(), found_file.as_deref())?;
        }
        Ok(())
    }

    fn offer(&self, shared: Shared) -> Option<[u8; TOKEN_BYTES]> {
        let mut token = [0; TOKEN_BYTES];
        getrandom::fill(&mut token).ok()?;
        let mut state = self.lock();
        // The same thing offered again keeps its token. Files are not compared; a handle says enough.
        let same = |other: &Shared| {
            let named = shared.file.is_none() || shared.offer.handle != [0; HANDLE_BYTES];
            named && other.session == shared.session && other.offer == shared.offer
        };
        if let Some((&token, _)) = state.offers.iter().find(|(_, other)| same(other)) {
            return Some(token);
        }
        let of_session = || state.offers.values().filter(|other| other.session == shared.session);
        let files = of_session().filter(|other| other.file.is_some()).count();
        if of_session().count() >= MAX_OFFERS || (shared.file.is_some() && files >= MAX_FILES) {
            return None;
        }
        state.offers.insert(token, shared);
        Some(token)
    }

    fn find(&self, token: &[u8; TOKEN_BYTES], uid: u32, what: u32) -> Option<Shared> {
        let state = self.lock();
        state.offers.get(token).filter(|shared| shared.uid == uid && shared.offer.what == what).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offers something; its token, if the daemon has taken it.
pub fn offer(
    socket: &UnixStream,
    offer: Offer,
    file: Option<&File>,
) -> io::Result<Option<[u8; TOKEN_BYTES]>> {
    let question = Question { kind: OFFER, reserved: 0, token: [0; TOKEN_BYTES], offer };
    let (answer, _) = ask(socket, &question, file)?;
    Ok((answer.found == 1).then_some(answer.token))
}

/// What was offered under a token, if there is such a thing.
pub fn look_up(
    socket: &UnixStream,
    token: [u8; TOKEN_BYTES],
    what: u32,
) -> io::Result<Option<(Offer, Option<File>)>> {
    let question =
        Question { kind: LOOK_UP, reserved: 0, token, offer: Offer { what, ..Offer::new_zeroed() } };
    let (answer, file) = ask(socket, &question, None)?;
    Ok((answer.found == 1).then_some((answer.offer, file)))
}

fn ask(socket: &UnixStream, question: &Question, file: Option<&File>) -> io::Result<(Answer, Option<File>)> {
    write_with(socket, question.as_bytes(), file)?;
    let mut answer = Answer::new_zeroed();
    let file = read_with(socket, answer.as_mut_bytes())?.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((answer, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};
    use vmm_sys_util::tempfile::TempFile;

    fn worker(exchange: &Arc<Exchange>, uid: u32) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        exchange.serve(theirs, uid);
        ours
    }

    fn memory(byte: u8) -> Offer {
        Offer { what: MEMORY, device: 0, bytes: 4096, handle: [byte; HANDLE_BYTES] }
    }

    #[test]
    fn what_one_offers_another_finds_by_its_token_alone() {
        let exchange = Exchange::new();
        let (one, other, stranger) = (worker(&exchange, 7), worker(&exchange, 7), worker(&exchange, 8));
        let token = offer(&one, memory(1), None).unwrap().unwrap();
        assert_eq!(offer(&one, memory(1), None).unwrap(), Some(token), "the same again");
        assert_ne!(offer(&one, memory(2), None).unwrap(), Some(token));
        assert_eq!(look_up(&other, token, MEMORY).unwrap().unwrap().0, memory(1));
        assert!(look_up(&other, token, EVENT).unwrap().is_none(), "it is something else");
        assert!(look_up(&stranger, token, MEMORY).unwrap().is_none(), "of another user");
        let mut wrong = token;
        wrong[0] ^= 1;
        assert!(look_up(&other, wrong, MEMORY).unwrap().is_none());
    }

    #[test]
    fn offers_end_with_their_session_and_are_bounded() {
        let exchange = Exchange::new();
        let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
        let mut last = None;
        for number in 0..MAX_OFFERS as u64 {
            last = offer(&one, Offer { bytes: number, ..memory(1) }, None).unwrap();
            assert!(last.is_some());
        }
        assert!(offer(&one, memory(1), None).unwrap().is_none());
        assert!(offer(&other, memory(1), None).unwrap().is_some());
        drop(one);
        let deadline = Instant::now() + Duration::from_secs(10);
        while look_up(&other, last.unwrap(), MEMORY).unwrap().is_some() {
            assert!(Instant::now() < deadline, "the offers outlive their session");
            thread::yield_now();
        }
    }

    #[test]
    fn files_come_along() {
        let exchange = Exchange::new();
        let (one, other) = (worker(&exchange, 7), worker(&exchange, 7));
        let file = TempFile::new().unwrap().into_file();
        file.write_all_at(b"shared", 0).unwrap();
        let token = offer(&one, Offer { what: ALLOCATION, ..memory(0) }, Some(&file)).unwrap().unwrap();
        let (_, found) = look_up(&other, token, ALLOCATION).unwrap().unwrap();
        let mut bytes = [0; 6];
        found.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"shared");
    }
}
