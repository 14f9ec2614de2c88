// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that go with their machine: what this daemon knows of one, and the worker's copy of it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{
    self, AheadTerms, ENTERS_STOPPED, LEAVES_AHEAD, TO_AHEAD, TO_CONTENTS, TO_ENTER, ToWorker,
    VERSION_OF_AHEAD,
};
use vhost_cuda_common::recipes::Description;
use vhost_cuda_common::statistics::Totals;
use virtio_cuda_protocol::transport::Open;
use zerocopy::IntoBytes;

use super::asked::{AskError, PATIENCE};
use super::renewal::{RenewalError, receive};
use super::{InFlight, Phase, Place, Session, State, Tables, printable};
use crate::guest::memory::Memory;
use crate::guest::request::Request;
use crate::guest::ring::{Chain, Ring};
use crate::limits::request_budget::RequestCharge;
use crate::sessions::endings::Endings;
use crate::sessions::named_pages::HeldPages;
use crate::sessions::process::Worker;
use crate::sessions::residence::{Residence, SavedResidence};

/// The time for a copy: it passes a network, which may be slow.
const ANY_TIME: Duration = Duration::from_secs(7 * 86400);

/// What a daemon knows of a session that goes with its machine. The worker's copy follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSession {
    /// Its id on the wire.
    pub id: u64,
    /// Its user in the guest.
    pub uid: u32,
    /// The user in the guest to whom it is charged.
    pub charged_uid: u32,
    /// Where its memory is: all of it in host memory.
    pub residence: SavedResidence,
    program: String,
    pid: u32,
    next_request: u64,
    calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    maps_memory: bool,
    age: Duration,
    totals: Totals,
    pages: Vec<HeldPages>,
    /// The name of the folder with its contents, which are in its copy otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
}

impl MachineSession {
    /// Returns whether its numbers can be those of a session.
    pub fn is_sound(&self) -> bool {
        // Half of all numbers is left for the requests to come.
        self.id != 0 && self.next_request < u64::MAX / 2
    }

    /// Returns its labels in the log of the other daemon, for messages.
    pub fn describe(&self) -> String {
        format!("{} {}", printable(self.program.as_bytes()), self.pid)
    }
}

impl Session {
    /// Returns what another daemon needs. The session has stopped, and is suspended.
    ///
    /// Errors: some pages that it holds are not guest memory any more.
    pub fn for_machine(&self, memory: &Memory) -> Result<MachineSession, RenewalError> {
        let named = self.assigned().named.clone();
        let pages = named.map_or(Some(Vec::new()), |named| named.held(memory));
        let state = self.state.lock();
        Ok(MachineSession {
            id: self.id,
            uid: self.uid,
            charged_uid: self.place.charged_uid,
            residence: self.residence.save().elsewhere(),
            program: self.program.clone(),
            pid: self.pid,
            next_request: state.next_request,
            calls: state.calls,
            bytes_in: state.bytes_in,
            bytes_out: state.bytes_out,
            maps_memory: state.maps_memory,
            age: self.opened.elapsed(),
            totals: self.totals(),
            pages: pages.ok_or(RenewalError::State("some of its pages are no guest memory any more"))?,
            contents: None,
        })
    }

    /// Returns the requests that its worker has and has not answered, with their queues and heads.
    pub fn requests(&self) -> Vec<(u64, Arc<Ring>, u16)> {
        let state = self.state.lock();
        let with_worker = state.outstanding.iter().filter(|(_, call)| call.waiting.is_none());
        let place = |(&number, call): (&u64, &InFlight)| {
            let (ring, head) = call.chain.place();
            (number, ring.clone(), head)
        };
        with_worker.map(place).collect()
    }

    /// Has the worker write a copy of the session to a pipe, without the chunks that have gone ahead if `is_ahead`. Its contents move to `contents` if
    /// there are such files. Whoever reads the pipe notices if the worker stalls.
    ///
    /// Errors: see [`RenewalError`]; nothing has changed.
    pub fn write_copy(
        &self,
        to: OwnedFd,
        contents: Vec<OwnedFd>,
        is_ahead: bool,
    ) -> Result<(), RenewalError> {
        self.leave(contents, to, ANY_TIME, if is_ahead { LEAVES_AHEAD } else { 0 })
    }

    /// Creates the session of another daemon on `worker`, which reads the worker's copy next ([`Self::enter`]). `charge` is host memory for
    /// its contents.
    #[expect(clippy::too_many_arguments, reason = "those of `new`, and two for what is there already")]
    pub fn of_machine(
        saved: MachineSession,
        label: u64,
        uid: u32,
        place: Place,
        worker: Worker,
        charge: Charge,
        endings: Arc<Endings>,
        tables: Tables,
    ) -> Arc<Self> {
        let mut name = [0; 16];
        name.iter_mut().zip(saved.program.bytes()).for_each(|(to, from)| *to = from);
        let open = Open { pid: saved.pid, uid, charged_uid: place.charged_uid, name };
        let session = Self::unstarted(saved.id, label, &open, place, worker, endings, tables);
        let now = Instant::now();
        // The request of `enter` is the last one.
        let begun = saved.next_request.saturating_add(1);
        session.begun.store(begun, std::sync::atomic::Ordering::Release);
        Arc::new(Self {
            state: Mutex::new(State {
                next_request: begun,
                calls: saved.calls,
                bytes_in: saved.bytes_in,
                bytes_out: saved.bytes_out,
                maps_memory: saved.maps_memory,
                is_stopped: true,
                is_arriving: true,
                arriving: saved.pages,
                ..State::default()
            }),
            opened: now.checked_sub(saved.age).unwrap_or(now),
            past: Mutex::new(Totals { device_memory: 0, ..saved.totals }),
            residence: Residence::restore(&saved.residence, Some(charge)),
            ..session
        })
    }

    /// Has the worker write chunks to a pipe that have changed since it has written them last, while the session runs. `is_first` says that none was
    /// written. `budget` is the host memory that its contents may take, in bytes. Returns the bytes of the chunks.
    ///
    /// Errors: the reason for which not all are written.
    pub fn write_ahead(&self, to: OwnedFd, budget: u64, is_first: bool) -> Result<u64, String> {
        let terms = AheadTerms { budget_bytes: budget, is_first: is_first.into() };
        let answer = self.ask_with(&self.ahead, TO_AHEAD, terms.as_bytes(), Some(to), ANY_TIME);
        let answer = answer.and_then(|answer| Description::read(&answer).ok_or(AskError::Malformed));
        match answer.map_err(|error| error.to_string())? {
            Description { obstacle: Some(reason), .. } => Err(reason),
            Description { bytes, .. } => Ok(bytes),
        }
    }

    /// Returns whether contents of the session can go ahead, as far as that is known.
    pub fn can_go_ahead(&self) -> bool {
        let state = self.state.lock();
        self.assigned().worker.version >= VERSION_OF_AHEAD && !state.is_stopped && !state.is_arriving
    }

    /// Has the worker read the copy from a pipe. `most` is the host memory that its contents may take, in bytes, unless they are in the files
    /// `contents`, which come with the flags of [`TO_CONTENTS`].
    ///
    /// Errors: those of its socket.
    pub fn enter(&self, from: OwnedFd, most: u64, (contents, flags): (&[File], u32)) -> io::Result<()> {
        let header = ToWorker {
            kind: TO_ENTER,
            flags: ENTERS_STOPPED,
            id: self.state.lock().next_request,
            ..ToWorker::default()
        };
        let assigned = self.assigned();
        let link = &assigned.worker.sockets.link;
        for file in contents {
            let header = ToWorker { kind: TO_CONTENTS, flags, ..header };
            link::send_with_file(link, &header, &[], file)?;
        }
        link::send_with_file(link, &header, most.as_bytes(), from)
    }

    /// Waits until the worker has read the copy, all of which is in the pipe.
    ///
    /// Errors: the reason for which it does not take the session.
    pub fn has_entered(&self) -> Result<(), String> {
        let id = self.state.lock().next_request;
        receive(&self.assigned(), id, PATIENCE).map(drop).map_err(|error| error.to_string())
    }

    /// Takes up a request that the worker of the other daemon had.
    pub fn take_up(&self, number: u64, request: Request, chain: Chain, charge: RequestCharge) {
        let mut state = self.state.lock();
        let is_known = number >= state.next_request || state.outstanding.contains_key(&number);
        if is_known || state.phase != Phase::Open || !state.is_stopped {
            drop(state);
            return chain.complete(virtio_cuda_protocol::transport::REPLY_SESSION_LOST, &[]);
        }
        let pages = self.assigned().named.clone();
        let named = pages.map(|pages| pages.begin(number, &request, chain.memory()));
        let call =
            InFlight { chain, written: request.out_entries, named, waiting: None, charge: Arc::new(charge) };
        state.outstanding.insert(number, call);
    }
}
