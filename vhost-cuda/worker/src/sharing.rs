// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker's side of the daemon's exchange, and the objects that it has opened.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use log::debug;
use parking_lot::{Mutex, MutexGuard};
use vhost_cuda_common::exchange::{self, EVENT, MEMORY, Offer, Shortage, TOKEN_BYTES, Token};

use super::gpu::{CuResult, CudaError};

/// The time limit for the daemon's answer, because a call of the guest waits meanwhile. A daemon that ends closes the
/// socket. A daemon that is only late, on a busy machine, must not disable the session's sharing.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The exchange. It is used as long as the daemon answers.
#[derive(Debug)]
pub struct Sharing {
    socket: Mutex<Option<UnixStream>>,
    /// Memory of other processes: the number of times that each address was opened, and its context.
    opened: Mutex<HashMap<u64, (u32, u64)>>,
    /// See [`Self::changes`].
    changes: Mutex<()>,
    /// The tokens of offered objects by their names, and their contexts.
    offered: Mutex<HashMap<Thing, ([u8; TOKEN_BYTES], u64)>>,
    /// The number of offers. It saves the lookup, because most freed objects were never offered.
    offers: AtomicUsize,
}

/// An offered object: its kind ([`Offer::what`]), and its name or address.
pub type Thing = (u32, u64);

impl Sharing {
    /// Returns the exchange at the other end of `socket`.
    pub fn new(socket: UnixStream) -> Self {
        let usable =
            socket.set_read_timeout(Some(TIMEOUT)).and_then(|()| socket.set_write_timeout(Some(TIMEOUT)));
        Self {
            socket: Mutex::new(usable.ok().map(|()| socket)),
            opened: Mutex::default(),
            changes: Mutex::default(),
            offered: Mutex::default(),
            offers: AtomicUsize::new(0),
        }
    }

    /// Returns whether the session shares nothing with other processes.
    pub fn is_unused(&self) -> bool {
        self.opened.lock().is_empty() && self.offered.lock().is_empty()
    }

    /// Offers an object to other processes.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` if the session has made too many offers, `CUDA_ERROR_NOT_SUPPORTED` without
    /// a daemon that answers.
    pub fn offer(&self, offer: Offer, file: Option<&File>) -> CuResult<[u8; TOKEN_BYTES]> {
        self.with(|socket| exchange::offer(socket, offer, file))?.ok_or(CudaError::OUT_OF_MEMORY)
    }

    /// Offers the object with the name or address `name` until [`Self::end`]. A repeated offer has the same token.
    ///
    /// Errors: as [`Self::offer`].
    pub fn offer_named(
        &self,
        name: u64,
        context: u64,
        offer: Offer,
        file: Option<&File>,
    ) -> CuResult<[u8; TOKEN_BYTES]> {
        let mut offered = self.offered.lock();
        if let Some(&(token, _)) = offered.get(&(offer.what, name)) {
            return Ok(token);
        }
        let token = self.offer(offer, file)?;
        offered.insert((offer.what, name), (token, context));
        self.offers.store(offered.len(), Ordering::Release);
        Ok(token)
    }

    /// Returns all offers: what they are, names or addresses, contexts, and tokens. `None` if any is neither memory nor an event.
    pub fn all_offered(&self) -> Option<Vec<(Thing, u64, Token)>> {
        let offered = self.offered.lock();
        let all = offered.iter().map(|(&thing, &(token, context))| {
            [MEMORY, EVENT].contains(&thing.0).then_some((thing, context, token))
        });
        all.collect()
    }

    /// Enters an object that the session has offered from another worker. The daemon has the offer.
    pub fn offer_again(&self, thing: Thing, context: u64, token: Token) {
        let mut offered = self.offered.lock();
        offered.insert(thing, (token, context));
        self.offers.store(offered.len(), Ordering::Release);
    }

    /// Returns whether an event is offered.
    pub fn offers_events(&self) -> bool {
        self.offered.lock().keys().any(|(what, _)| *what == EVENT)
    }

    /// Says that the events that the session has offered or opened end, and are made again. Returns whether they may.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` without a daemon that answers.
    pub fn events_leave(&self) -> CuResult<bool> {
        self.with(exchange::away)
    }

    /// Offers an event again that was made again, if it was offered. Returns its token.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` without a daemon that answers, or if that has no such offer.
    pub fn event_is_back(&self, name: u64, offer: Offer, file: Option<&File>) -> CuResult<Option<Token>> {
        let Some((token, _)) = self.offered.lock().get(&(EVENT, name)).copied() else { return Ok(None) };
        match self.with(|socket| exchange::back(socket, token, offer, file))? {
            true => Ok(Some(token)),
            false => Err(CudaError::NOT_SUPPORTED),
        }
    }

    /// Notes that an event of another process has ended here, which was looked up under this token.
    pub fn event_ended(&self, token: Token) {
        // Without a daemon that answers nobody counts.
        let _ = self.with(|socket| exchange::closed(socket, token));
    }

    /// Returns whether this session has made the offer with that token.
    pub fn is_own(&self, token: &[u8; TOKEN_BYTES]) -> bool {
        self.offered.lock().values().any(|(own, _)| own == token)
    }

    /// Withdraws the object with that name or address. Other processes cannot find it from now on.
    pub fn end(&self, what: u32, name: u64) {
        if self.offers.load(Ordering::Acquire) > 0 {
            self.end_all(|thing, _| *thing == (what, name));
        }
    }

    fn end_all(&self, ended: impl Fn(&Thing, u64) -> bool) {
        let mut offered = self.offered.lock();
        let tokens: Vec<_> = offered
            .extract_if(|thing, (_, context)| ended(thing, *context))
            .map(|(_, (token, _))| token)
            .collect();
        self.offers.store(offered.len(), Ordering::Release);
        drop(offered);
        for token in tokens {
            self.withdraw(token);
        }
    }

    /// Ends an offer: the daemon closes its file. Processes that have found it before keep it.
    pub fn withdraw(&self, token: [u8; TOKEN_BYTES]) {
        // Without a daemon that answers there is no offer.
        let _ = self.with(|socket| exchange::withdraw(socket, token));
    }

    /// Returns the object that another process has offered.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an unknown token, `CUDA_ERROR_NOT_SUPPORTED` without a daemon that
    /// answers.
    pub fn look_up(&self, token: [u8; TOKEN_BYTES], what: u32) -> CuResult<(Offer, Option<File>)> {
        self.with(|socket| exchange::look_up(socket, token, what))?.ok_or(CudaError::INVALID_VALUE)
    }

    /// Waits for the sessions that are ending, whose memory may be needed; another one may be suspended if the device has none.
    /// Returns whether there may be more memory.
    pub fn settle(&self, shortage: Shortage) -> bool {
        self.with(|socket| exchange::settle(socket, shortage)).unwrap_or(false)
    }

    /// Returns the socket from which the recording of a process is read, or of this session (0).
    ///
    /// Errors: `CUDA_ERROR_NOT_FOUND` if the daemon finds no such process of this user, `CUDA_ERROR_NOT_SUPPORTED` without a daemon
    /// that answers.
    pub fn record(&self, pid: u32) -> CuResult<File> {
        self.with(|socket| exchange::record(socket, pid))?.ok_or(CudaError::NOT_FOUND)
    }

    /// Talks to the daemon. After an error it is not used again, because the next answer might be an old one.
    fn with<T>(&self, talk: impl FnOnce(&UnixStream) -> io::Result<T>) -> CuResult<T> {
        let mut socket = self.socket.lock();
        let open = socket.as_ref().ok_or(CudaError::NOT_SUPPORTED)?;
        talk(open).map_err(|error| {
            debug!("The daemon's exchange does not answer: {error}");
            *socket = None;
            CudaError::NOT_SUPPORTED
        })
    }

    /// Locked while memory of another process is opened or closed, by the driver and in the tables. A thread that has got an address
    /// would otherwise enter it after another one has closed it.
    pub fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Counts that memory of another process was opened at `dptr` once more.
    pub fn open(&self, dptr: u64, context: u64) {
        let mut opened = self.opened.lock();
        opened.entry(dptr).or_insert((0, context)).0 += 1;
    }

    /// Returns the number of times that memory of another process is open at `dptr`.
    pub fn times_opened(&self, dptr: u64) -> u32 {
        self.opened.lock().get(&dptr).map_or(0, |(times, _)| *times)
    }

    /// Enters memory of another process that the session has opened so often in another worker.
    pub fn open_again(&self, dptr: u64, times: u32, context: u64) {
        self.opened.lock().insert(dptr, (times, context));
    }

    /// Counts that it was closed once. Returns true for the last time.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an address that was not opened.
    pub fn close(&self, dptr: u64) -> CuResult<bool> {
        let mut opened = self.opened.lock();
        let (count, _) = opened.get_mut(&dptr).ok_or(CudaError::INVALID_VALUE)?;
        *count -= 1;
        let last = *count == 0;
        if last {
            opened.remove(&dptr);
        }
        Ok(last)
    }

    /// Forgets the objects that ended with a context.
    pub fn forget_context(&self, context: u64) {
        let mut opened = self.opened.lock();
        opened.retain(|_, (_, of)| *of != context);
        drop(opened);
        self.end_all(|_, of| of == context);
    }
}
