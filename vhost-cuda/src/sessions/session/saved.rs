// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that are handed over to the next program, between two requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::statistics::Totals;

use super::asked::Asked;
use super::profile::Profiled;
use super::{Assigned, Outbox, Phase, Place, Session, State, Tables, printable};
use crate::hand_over::files::{Inherited, Leaving};
use crate::sessions::endings::Endings;
use crate::sessions::named_pages::SavedPages;
use crate::sessions::process::{SavedWorker, Worker, WorkerSpec};
use crate::sessions::residence::{Residence, SavedResidence};

/// A session with its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSession {
    /// Its id on the wire.
    pub id: u64,
    /// Its number in the log.
    pub label: u64,
    /// Its user in the guest.
    pub uid: u32,
    /// What it holds of its machine.
    pub place: Place,
    /// Its worker.
    pub worker: SavedWorker,
    /// Where its device memory is.
    pub residence: SavedResidence,
    program: String,
    pid: u32,
    begun: u64,
    next_request: u64,
    calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    maps_memory: bool,
    age: Duration,
    gpu_busy_ns: Option<u64>,
    named: Option<SavedPages>,
    /// The request for a profile that its worker has not answered.
    profile: Option<u64>,
    /// The question for its recipe that its worker has not answered.
    recipe: Option<u64>,
    /// The sums of the workers before the present one. Left out without any, so that programs that do not know it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    past: Option<Totals>,
    /// True if it has stopped with its machine. Left out otherwise, so that programs that do not know it go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}

impl Session {
    /// Returns what the next program needs. The daemon's threads are stopped.
    ///
    /// Errors: the reason for which the session cannot be handed over now.
    pub fn save(&self, files: &mut Leaving) -> Result<SavedSession, String> {
        let why = |why: &str| format!("{} {why}", self.describe());
        let busy = |reason: &str| Err(why(reason));
        let state = self.state.lock();
        if state.phase != Phase::Open || self.is_leaving.load(Ordering::Acquire) {
            return busy("is ending");
        }
        if self.residence.is_renewing() {
            return busy("is getting another worker");
        }
        if self.stopping.save().is_some() || state.is_arriving {
            return busy("is being stopped with its machine, or comes with one");
        }
        if !state.outstanding.is_empty() {
            return busy(&format!("has {} requests under way", state.outstanding.len()));
        }
        let outbox = self.outbox.lock();
        let has_rest = outbox.waiting.load(Ordering::Acquire) > 0;
        if outbox.writer.is_none() || has_rest || self.memory_changed.load(Ordering::Acquire) {
            return busy("has messages for its worker");
        }
        let residence = self.residence.save();
        if !residence.is_settled() {
            return busy("is being suspended or resumed");
        }
        let (assigned, past) = (self.assigned(), *self.past.lock());
        Ok(SavedSession {
            profile: self.profile.save().map_err(|reason| why(&reason))?,
            recipe: self.recipe.save(),
            id: self.id,
            label: self.label,
            uid: self.uid,
            place: self.place,
            worker: assigned.worker.save(files),
            residence,
            program: self.program.clone(),
            pid: self.pid,
            begun: self.begun.load(Ordering::Acquire),
            next_request: state.next_request,
            calls: state.calls,
            bytes_in: state.bytes_in,
            bytes_out: state.bytes_out,
            maps_memory: state.maps_memory,
            age: self.opened.elapsed(),
            gpu_busy_ns: *self.gpu_busy_ns.lock(),
            named: assigned.named.as_ref().map(|named| named.save()),
            past: (past != Totals::default()).then_some(past),
            is_stopped: state.is_stopped,
        })
    }

    /// Goes on with a session of the program before this one. `charge` is the host memory of its contents, if they are there.
    ///
    /// Errors: the state is wrong.
    pub fn restore(
        saved: SavedSession,
        spec: &WorkerSpec,
        files: &mut Inherited,
        charge: Option<Charge>,
        endings: Arc<Endings>,
        tables: Tables,
    ) -> io::Result<Arc<Self>> {
        let worker = Worker::restore(saved.worker, spec, files)?;
        if worker.listener.lock().is_some() != saved.named.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let named = saved.named.map(|named| named.restore(&tables().regions)).transpose()?.map(Arc::new);
        worker.messages.label.set(saved.label);
        endings.begin(saved.label);
        let now = Instant::now();
        Ok(Arc::new(Self {
            id: saved.id,
            label: saved.label,
            program: printable(saved.program.as_bytes()),
            pid: saved.pid,
            uid: saved.uid,
            assigned: RwLock::new(Arc::new(Assigned { worker, named })),
            endings,
            tables,
            memory_changed: AtomicBool::new(false),
            begun: AtomicU64::new(saved.begun),
            outbox: Mutex::new(Outbox::default()),
            state: Mutex::new(State {
                next_request: saved.next_request,
                calls: saved.calls,
                bytes_in: saved.bytes_in,
                bytes_out: saved.bytes_out,
                maps_memory: saved.maps_memory,
                is_stopped: saved.is_stopped,
                stop: saved.is_stopped.then_some(Ok(())),
                ..State::default()
            }),
            ended: Condvar::new(),
            opened: now.checked_sub(saved.age).unwrap_or(now),
            past: Mutex::new(saved.past.unwrap_or_default()),
            gpu_busy_ns: Mutex::new(saved.gpu_busy_ns),
            residence: Residence::restore(&saved.residence, charge),
            profile: Profiled::restore(saved.profile),
            recipe: Asked::restore(saved.recipe),
            stopping: Asked::default(),
            ahead: Asked::default(),
            place: saved.place,
            is_restored: true,
            is_leaving: AtomicBool::new(false),
        }))
    }
}
