// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One virtqueue: its chains may be answered late, from any thread, across stops and restarts.

use std::collections::HashSet;
use std::sync::Arc;

use log::debug;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_cuda_protocol::transport::REPLY_NO_RESOURCES;
use virtio_queue::QueueT;

use crate::guest::memory::{SharedMemory, Snapshot};
use crate::guest::request::ReplySlot;

/// The library's handle of a queue.
pub type Vring = VringRwLock<SharedMemory>;

/// The position of a stopped queue. A VMM that only paused the guest restarts it at the same position. After a reset
/// of the device it begins at another one or from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    next_avail: u16,
    size: u16,
    addresses: [u64; 3],
}

impl Position {
    fn of(vring: &Vring) -> Self {
        let state = vring.get_ref();
        let queue = state.get_queue();
        Self {
            next_avail: queue.next_avail(),
            size: queue.size(),
            addresses: [queue.desc_table(), queue.avail_ring(), queue.used_ring()],
        }
    }
}

/// A chain that was taken from a queue and not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// Head descriptor.
    pub head: u16,
    /// The id of the session whose worker has it, and its number there. Zeros: nobody has executed any of it.
    pub session: u64,
    /// See [`Self::session`].
    pub request: u64,
}

#[derive(Debug, Default)]
struct Gate {
    running: bool,
    /// True while the queue's own thread is taking chains.
    serving: bool,
    /// True while the VMM waits for that thread to pause.
    stopping: bool,
    /// True while the daemon is being handed over: no chain is taken. Those that were taken are answered.
    held: bool,
    closed: bool,
    generation: u64,
    stopped_at: Option<Position>,
    vring: Option<VringHandle>,
    in_flight: HashSet<u16>,
    inherited: Vec<Unanswered>,
    /// True while the queue's own thread takes the inherited chains up.
    taking_up: bool,
}

/// A queue that is handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedRing {
    /// The index of the next chain, if any was taken so far.
    pub next_avail: Option<u16>,
    stopped_at: Option<Position>,
}

struct VringHandle(Vring);

impl std::fmt::Debug for VringHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vring")
    }
}

/// The daemon's side of one virtqueue.
#[derive(Debug, Default)]
pub struct Ring {
    gate: Mutex<Gate>,
    changed: Condvar,
}

/// The state in which a queue runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was running already.
    Running,
    /// It continues where it was stopped, or begins.
    Again,
    /// The device was reset in between: chains that were taken before are void.
    Anew,
    /// It does not run.
    Stopped,
}

impl Ring {
    /// Called by the queue's own thread before it takes chains. Notices that a stopped queue runs again. The queue is
    /// not stopped until [`Self::pause`], so this thread may answer chains without waiting.
    pub fn resume(&self, vring: &Vring) -> Start {
        let mut gate = self.gate.lock();
        if gate.closed || gate.stopping || gate.held || !vring.get_ref().get_queue().ready() {
            return Start::Stopped;
        }
        gate.serving = true;
        if gate.running {
            return Start::Running;
        }
        let start = match gate.stopped_at.take() {
            Some(position) if position != Position::of(vring) => {
                gate.generation += 1;
                gate.in_flight.clear();
                Start::Anew
            }
            _ => Start::Again,
        };
        gate.running = true;
        gate.vring = Some(VringHandle(vring.clone()));
        self.changed.notify_all();
        start
    }

    /// Returns whether the queue's own thread should take another chain.
    pub fn goes_on(&self) -> bool {
        let gate = self.gate.lock();
        !gate.stopping && !gate.closed && !gate.held
    }

    /// Stops taking chains for now. Called by the queue's own thread.
    pub fn pause(&self) {
        self.gate.lock().serving = false;
        self.changed.notify_all();
    }

    /// Stops the queue for the VMM. After this returns, nothing is written into the queue until it runs again.
    pub fn stop(&self, vring_index: u32) {
        let mut gate = self.gate.lock();
        gate.stopping = true;
        while gate.serving {
            self.changed.wait(&mut gate);
        }
        gate.stopping = false;
        if gate.running {
            gate.running = false;
            gate.stopped_at = gate.vring.as_ref().map(|vring| Position::of(&vring.0));
            debug!("Queue {vring_index} stopped with {} unanswered requests", gate.in_flight.len());
        }
    }

    /// Returns whether the queue runs.
    pub fn is_running(&self) -> bool {
        self.gate.lock().running
    }

    /// Voids the chains that were taken from the stopped queue, because the device was reset. The queue's restart
    /// then continues normally.
    pub fn forget_stop(&self) {
        let mut gate = self.gate.lock();
        if !gate.running {
            gate.generation += 1;
            gate.in_flight.clear();
            gate.stopped_at = None;
            self.changed.notify_all();
        }
    }

    /// Abandons outstanding chains, which are never answered, because the front-end has disconnected.
    pub fn abandon(&self) {
        self.gate.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes no more chains, until [`Self::release`].
    pub fn hold(&self) {
        self.gate.lock().held = true;
    }

    /// Takes chains again. The front-end's last notifications have had no effect, so they are to be repeated.
    pub fn release(&self) {
        self.gate.lock().held = false;
    }

    /// Returns what the next program needs of a queue that is held.
    ///
    /// Errors: the reason for which it cannot be handed over now.
    pub fn save(&self) -> Result<SavedRing, String> {
        let gate = self.gate.lock();
        if !gate.held || gate.serving || gate.stopping || gate.closed {
            return Err("a queue is busy".into());
        }
        let waiting = gate.in_flight.len() + gate.inherited.len();
        if waiting > 0 {
            return Err(format!("{waiting} requests are under way"));
        }
        let next_avail = gate.vring.as_ref().map(|vring| vring.0.queue_next_avail());
        Ok(SavedRing { next_avail, stopped_at: gate.stopped_at })
    }

    /// Goes on with a queue of the program before this one, which is held.
    pub fn restore(&self, saved: SavedRing) {
        let mut gate = self.gate.lock();
        gate.held = true;
        gate.stopped_at = saved.stopped_at;
    }

    /// Returns the chains that were taken and not answered, for another backend. `session_of` has the request that each is.
    pub fn unanswered(&self, session_of: impl Fn(u16) -> Option<(u64, u64)>) -> Vec<Unanswered> {
        let gate = self.gate.lock();
        let chain = |&head: &u16| {
            let (session, request) = session_of(head).unwrap_or_default();
            Unanswered { head, session, request }
        };
        let mut chains: Vec<_> =
            gate.in_flight.iter().map(chain).chain(gate.inherited.iter().copied()).collect();
        chains.sort_by_key(|chain| chain.head);
        chains
    }

    /// Records chains that another backend took before this one got the guest. Those that this one took before are void.
    pub fn inherit(&self, chains: Vec<Unanswered>) {
        self.forget_stop();
        self.gate.lock().inherited = chains;
    }

    /// Returns the chains of another backend, once, when the queue runs. They count as inherited until [`Self::taken_up`].
    pub fn take_inherited(&self) -> Vec<Unanswered> {
        let mut gate = self.gate.lock();
        gate.taking_up = !gate.inherited.is_empty();
        std::mem::take(&mut gate.inherited)
    }

    /// Records that all chains of another backend are taken up.
    pub fn taken_up(&self) {
        self.gate.lock().taking_up = false;
    }

    /// Returns whether there are chains of another backend that are not taken up yet.
    pub fn has_inherited(&self) -> bool {
        let gate = self.gate.lock();
        gate.taking_up || !gate.inherited.is_empty()
    }

    /// Registers a chain that was just taken from `vring`.
    pub fn accept(self: &Arc<Self>, vring: &Vring, memory: Snapshot, head: u16, slot: ReplySlot) -> Chain {
        let mut gate = self.gate.lock();
        gate.in_flight.insert(head);
        Chain {
            ring: self.clone(),
            vring: VringHandle(vring.clone()),
            memory,
            head,
            slot,
            generation: gate.generation,
            answered: false,
        }
    }

    /// Calls `work` with the queue if it runs. The queue is not stopped meanwhile.
    pub fn if_running(&self, work: impl FnOnce(&Vring)) {
        let gate = self.gate.lock();
        if let (true, false, Some(vring)) = (gate.running, gate.closed || gate.held, &gate.vring) {
            work(&vring.0);
        }
    }
}

/// A chain that is answered exactly once: by [`Chain::complete`], or with `REPLY_NO_RESOURCES` when dropped.
#[derive(Debug)]
pub struct Chain {
    ring: Arc<Ring>,
    vring: VringHandle,
    memory: Snapshot,
    head: u16,
    slot: ReplySlot,
    generation: u64,
    answered: bool,
}

impl Chain {
    /// Returns guest memory as it was when the chain was taken.
    pub fn memory(&self) -> &Snapshot {
        &self.memory
    }
    /// Returns its queue, and its head there.
    pub fn place(&self) -> (&Arc<Ring>, u16) {
        (&self.ring, self.head)
    }
    /// Returns the bytes of host memory that the chain occupies until it is answered.
    pub fn footprint(&self) -> usize {
        size_of::<Self>() + self.slot.footprint()
    }
    /// Returns the bytes of payload that the reply may have.
    pub fn payload_room(&self) -> u32 {
        self.slot.payload_room()
    }
    /// Writes the reply and returns the chain to the driver. Waits while the VMM has the queue stopped. Does nothing
    /// if the chain is void (device reset, front-end disconnected).
    pub fn complete(mut self, status: u32, payload: &[u8]) {
        self.answer(status, payload);
    }

    fn answer(&mut self, status: u32, payload: &[u8]) {
        self.answered = true;
        let mut gate = self.ring.gate.lock();
        loop {
            if gate.closed || gate.generation != self.generation {
                return;
            }
            if gate.running {
                break;
            }
            self.ring.changed.wait(&mut gate);
        }
        // The gate stays locked: a queue that is being stopped contains either the whole reply or nothing of it.
        let used = self.slot.write(&self.memory, status, payload);
        gate.in_flight.remove(&self.head);
        publish(&self.vring.0, self.head, used);
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if !self.answered {
            self.answer(REPLY_NO_RESOURCES, &[]);
        }
    }
}

/// Puts a chain into the used ring, and notifies the driver if it has requested that.
pub fn publish(vring: &Vring, head: u16, used: u32) {
    let mut state = vring.get_mut();
    // The ring's own addresses come from the driver. If they are invalid, the driver cannot be notified.
    if let Err(error) = state.add_used(head, used) {
        debug!("A used ring cannot be written: {error}");
        return;
    }
    if state.needs_notification().unwrap_or(true)
        && let Err(error) = state.signal_used_queue()
    {
        debug!("A queue's interrupt cannot be raised: {error}");
    }
}
#[cfg(test)]
#[path = "ring_test.rs"]
mod tests;
