// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate that calls pass which need the device's memory ([`Facts::needs_memory`]). It is closed while that memory moves, and while
//! the session is suspended ([`crate::suspend`]).
//!
//! Each executor has a [`Slot`], which only it writes while it passes: an open gate costs a call one locked instruction on a cache
//! line of its own. The thread that closes the gate first sets the flag that all executors read, and then waits until no slot
//! is inside. Both sides write before they read (sequentially consistent), so one of them sees the other.
//!
//! Calls that need no memory pass *aside* ([`Gate::enter_aside`]). That way is open unless the gate is sealed: while a suspended session
//! has no objects of the driver either ([`crate::suspend::deep`]).
//!
//! While the session leaves for another worker, calls that wait turn back: the other worker executes them ([`Gate::leave`]).
//!
//! [`Facts::needs_memory`]: virtio_cuda_protocol::cuda::table::Facts::needs_memory

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use vhost_cuda_common::gates::now;

/// The time between two looks at the slots by the thread that closes the gate.
const LOOK: Duration = Duration::from_micros(50);

/// A thread's place at the gate, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Slot {
    inside: AtomicBool,
    aside: AtomicBool,
}

/// A call that has passed the gate. It is inside until this is dropped.
#[derive(Debug)]
pub struct Pass {
    inside: &'static AtomicBool,
    /// The time since which it has waited, in nanoseconds of [`now`]; 0 if the gate was open.
    pub waited_since: u64,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.inside.store(false, Ordering::Release);
    }
}

/// The states of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stand {
    #[default]
    Open,
    /// Memory moves. That ends within its time limit.
    Moving,
    /// The session is suspended.
    Suspended,
}

/// The reason for which a call does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// The session is suspended, and the daemon does not resume it.
    Refused,
    /// The session leaves this worker. The call has had no effect.
    Left,
}

/// Tells the daemon that a call waits.
type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    stand: Stand,
    slots: Vec<&'static Slot>,
    /// Slots of threads that have ended.
    spare: Vec<&'static Slot>,
    /// True if the daemon was told that a call waits.
    woken: bool,
    /// The number of times that the daemon has refused to resume the session.
    refusals: u64,
    /// The number of times that the session has begun to leave.
    departures: u64,
    wake: Option<Wake>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("stand", &self.stand).finish_non_exhaustive()
    }
}

/// The gate of a session.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    sealed: AtomicBool,
    /// True from [`Gate::leave`] to [`Gate::stay`].
    left: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// Reports by `wake` that a call waits, from now on.
    pub fn on_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state.lock().wake = Some(Box::new(wake));
    }

    /// Returns a slot for a thread. The session has as many as it had threads at the same time, and keeps them.
    pub fn take_slot(&self) -> &'static Slot {
        let mut state = self.state.lock();
        state.spare.pop().unwrap_or_else(|| {
            let slot: &'static Slot = Box::leak(Box::default());
            state.slots.push(slot);
            slot
        })
    }

    /// Takes back the slot of a thread that has ended.
    pub fn give_slot(&self, slot: &'static Slot) {
        self.state.lock().spare.push(slot);
    }

    /// Passes the gate, or waits until it opens.
    ///
    /// Errors: see [`Barred`].
    pub fn enter(&self, slot: &'static Slot) -> Result<Pass, Barred> {
        self.pass(&slot.inside, &self.closed)
    }

    /// As [`Self::enter`], for a call that needs no memory: waits only while the gate is sealed.
    ///
    /// Errors: as for [`Self::enter`].
    pub fn enter_aside(&self, slot: &'static Slot) -> Result<Pass, Barred> {
        self.pass(&slot.aside, &self.sealed)
    }

    fn pass(&self, inside: &'static AtomicBool, closed: &AtomicBool) -> Result<Pass, Barred> {
        let mut waited_since = 0;
        loop {
            inside.store(true, Ordering::SeqCst);
            let pass = Pass { inside, waited_since };
            if !closed.load(Ordering::SeqCst) {
                return Ok(pass);
            }
            drop(pass);
            if waited_since == 0 {
                waited_since = now();
            }
            self.wait(closed)?;
        }
    }

    /// Waits until `closed`, which is written with the state locked, is false.
    #[cold]
    fn wait(&self, closed: &AtomicBool) -> Result<(), Barred> {
        let mut state = self.state.lock();
        let refusals = state.refusals;
        loop {
            match state.stand {
                _ if !closed.load(Ordering::SeqCst) => return Ok(()),
                _ if self.has_left() => return Err(Barred::Left),
                Stand::Suspended if state.refusals != refusals => return Err(Barred::Refused),
                Stand::Suspended if !state.woken => {
                    state.woken = true;
                    if let Some(wake) = &state.wake {
                        wake();
                    }
                }
                _ => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// Turns back all calls that wait, and those that come, until [`Self::stay`].
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.departures += 1;
        self.left.store(true, Ordering::SeqCst);
        drop(state);
        self.changed.notify_all();
    }

    /// Undoes [`Self::leave`]. The next call that waits is reported again.
    pub fn stay(&self) {
        let mut state = self.state.lock();
        self.left.store(false, Ordering::SeqCst);
        state.woken = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Returns whether the session leaves this worker.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns the number of the present departure, if the session leaves, or has left, this worker.
    pub fn departure(&self) -> Option<u64> {
        let state = self.state.lock();
        self.has_left().then_some(state.departures)
    }

    /// Waits until the departure with this number is over.
    pub fn wait_to_stay(&self, departure: u64) {
        let mut state = self.state.lock();
        while self.has_left() && state.departures == departure {
            self.changed.wait(&mut state);
        }
    }

    /// Closes an open gate, and waits until no call is inside. Returns false, with the gate open again, if calls are inside
    /// until `deadline`.
    pub fn close(&self, deadline: Instant) -> bool {
        self.set(Stand::Moving);
        let is_empty = self.is_empty_by(deadline, |slot| &slot.inside);
        if !is_empty {
            self.open();
        }
        is_empty
    }

    /// Seals a closed gate, and waits until no call is aside. Returns false, with the gate not sealed, if calls are aside until
    /// `deadline`.
    pub fn seal(&self, deadline: Instant) -> bool {
        let state = self.state.lock();
        self.sealed.store(true, Ordering::SeqCst);
        drop(state);
        let is_empty = self.is_empty_by(deadline, |slot| &slot.aside);
        if !is_empty {
            self.unseal();
        }
        is_empty
    }

    /// Ends what [`Self::seal`] has begun.
    pub fn unseal(&self) {
        let state = self.state.lock();
        self.sealed.store(false, Ordering::SeqCst);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until no slot is marked, at most until `deadline`. The flag that executors read is set already.
    fn is_empty_by(&self, deadline: Instant, mark: impl Fn(&Slot) -> &AtomicBool) -> bool {
        let slots = self.state.lock().slots.clone();
        // A slot that is made from here on belongs to a thread that sees the flag.
        for slot in slots {
            while mark(slot).load(Ordering::SeqCst) {
                if Instant::now() >= deadline {
                    return false;
                }
                thread::sleep(LOOK);
            }
        }
        true
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.set(Stand::Open);
    }

    /// Leaves a closed gate closed until the session is resumed.
    pub fn suspend(&self) {
        self.set(Stand::Suspended);
    }

    /// Notes that the memory of a suspended session is about to move. Calls that wait go on waiting.
    pub fn resume(&self) {
        self.set(Stand::Moving);
    }

    /// Fails all calls that wait for the session to be resumed. The next one is reported to the daemon again.
    pub fn refuse(&self) {
        let mut state = self.state.lock();
        state.refusals += 1;
        state.woken = false;
        drop(state);
        self.changed.notify_all();
    }

    fn set(&self, stand: Stand) {
        let mut state = self.state.lock();
        if state.stand == Stand::Open {
            state.woken = false;
        }
        state.stand = stand;
        self.closed.store(stand != Stand::Open, Ordering::SeqCst);
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::channel;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn within(time: Duration) -> Instant {
        Instant::now() + time
    }

    #[test]
    fn a_call_inside_keeps_the_gate_from_closing() {
        let gate = Gate::default();
        let slot = gate.take_slot();
        let pass = gate.enter(slot).unwrap();
        assert!(!gate.close(within(SOON)));
        drop(pass);
        assert!(gate.close(within(SOON)));
        gate.open();
        drop(gate.enter(slot).unwrap());
        gate.give_slot(slot);
        assert!(std::ptr::eq(gate.take_slot(), slot), "used again");
    }

    #[test]
    fn a_refusal_fails_the_calls_that_wait_and_no_later_one() {
        let gate = Gate::default();
        assert!(gate.close(within(SOON)));
        gate.suspend();
        std::thread::scope(|scope| {
            let (sender, ended) = channel();
            for _ in 0..2 {
                let (gate, sender) = (&gate, sender.clone());
                scope.spawn(move || sender.send(gate.enter(gate.take_slot()).map(drop)));
            }
            // Both look once more, and wait again.
            while gate.changed.notify_all() < 2 {
                thread::sleep(LOOK);
            }
            assert!(gate.state.lock().woken);
            gate.refuse();
            for _ in 0..2 {
                assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(Err(Barred::Refused)));
            }
            let late = scope.spawn(|| gate.enter(gate.take_slot()).map(drop));
            while !gate.state.lock().woken {
                thread::sleep(LOOK);
            }
            gate.resume();
            gate.open();
            assert_eq!(late.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn calls_pass_a_closed_gate_aside_until_it_is_sealed() {
        let gate = Gate::default();
        let slot = gate.take_slot();
        assert!(gate.close(within(SOON)));
        gate.suspend();
        let pass = gate.enter_aside(slot).unwrap();
        assert!(!gate.seal(within(SOON)), "a call is aside");
        drop(gate.enter_aside(slot).unwrap());
        drop(pass);
        assert!(gate.seal(within(SOON)));
        std::thread::scope(|scope| {
            let late = scope.spawn(|| gate.enter_aside(gate.take_slot()).map(drop));
            while !gate.state.lock().woken {
                thread::sleep(LOOK);
            }
            gate.resume();
            gate.unseal();
            assert_eq!(late.join().unwrap(), Ok(()), "although memory moves still");
        });
        gate.open();
    }

    #[test]
    fn calls_that_wait_turn_back_when_the_session_leaves() {
        let gate = Gate::default();
        let (slot, other) = (gate.take_slot(), gate.take_slot());
        assert!(gate.close(within(SOON)) && gate.seal(within(SOON)));
        gate.suspend();
        std::thread::scope(|scope| {
            let waits = [
                scope.spawn(|| gate.enter(slot).map(drop)),
                scope.spawn(|| gate.enter_aside(other).map(drop)),
            ];
            while !gate.state.lock().woken {
                thread::sleep(LOOK);
            }
            gate.leave();
            for call in waits {
                assert_eq!(call.join().unwrap(), Err(Barred::Left));
            }
        });
        assert!(gate.has_left() && gate.enter(slot).is_err());
        std::thread::scope(|scope| {
            assert_eq!(gate.departure(), Some(1));
            let parked = scope.spawn(|| gate.wait_to_stay(1));
            gate.stay();
            assert_eq!(gate.departure(), None);
            // At once again: the first departure is over nevertheless.
            gate.leave();
            parked.join().unwrap();
            gate.stay();
            let again = scope.spawn(|| gate.enter(slot).map(drop));
            while !gate.state.lock().woken {
                thread::sleep(LOOK);
            }
            gate.open();
            assert_eq!(again.join().unwrap(), Ok(()));
        });
    }

    /// Threads pass all the time. What is inside a closed gate must not change.
    #[test]
    fn nobody_is_inside_a_closed_gate() {
        let (gate, inside, over) = (Gate::default(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let slot = gate.take_slot();
                    while !over.load(Ordering::Relaxed) {
                        let pass = gate.enter(slot).unwrap();
                        inside.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(pass);
                    }
                });
            }
            for _ in 0..200 {
                if gate.close(within(Duration::from_secs(10))) {
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                    gate.open();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
