// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows in use: pages of the guest process that a call copies from or to until it returns. The guest's driver may
//! ask for the pages back meanwhile, because the process changed its mapping of them or of its neighbours; they go
//! back when the last such call is done.

use parking_lot::{Condvar, Mutex};

use super::allocations::Allocations;
use crate::gpu::CuResult;

/// The number of calls that use each window.
#[derive(Debug, Default)]
pub struct Holds {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The counts by the windows' addresses on the GPU.
    counts: Vec<(u64, u32)>,
    /// The number of threads that wait for a release. It is mostly 0, and a wake-up without waiters would be a system call, too.
    waiting: usize,
}

impl State {
    fn holds(&self, base: u64) -> bool {
        self.counts.iter().any(|(held, _)| *held == base)
    }
}

/// The windows that one call uses, until it is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    holds: &'a Holds,
    /// First address and the one behind the last.
    windows: Vec<(u64, u64)>,
}

impl Holds {
    /// Checks that `bytes` bytes at each of two addresses, of which the first is written, are the session's, as
    /// [`Allocations::check`] does; adjoining windows count as one range. Keeps the windows among them until the result is
    /// dropped. A window that was taken out of `allocations` before cannot be held any more.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn hold(&self, allocations: &Allocations, ends: [u64; 2], bytes: u64) -> CuResult<Held<'_>> {
        let mut windows = Vec::new();
        for (address, writes) in ends.into_iter().zip([true, false]) {
            if allocations.find(address).is_some_and(|range| range.origin.is_window()) {
                allocations.check_windows(address, bytes, writes, &mut windows)?;
            } else {
                allocations.check(address, bytes)?;
            }
        }
        let mut state = self.state.lock();
        for (base, _) in &windows {
            match state.counts.iter_mut().find(|(held, _)| held == base) {
                Some((_, count)) => *count += 1,
                None => state.counts.push((*base, 1)),
            }
        }
        drop(state);
        Ok(Held { holds: self, windows })
    }

    /// Returns whether a call uses the window at `base`.
    pub fn is_held(&self, base: u64) -> bool {
        self.state.lock().holds(base)
    }

    /// Waits until no call uses the window at `base`.
    pub fn wait(&self, base: u64) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.released.wait_while(&mut state, |state| state.holds(base));
        state.waiting -= 1;
    }
}

impl Held<'_> {
    /// Returns the number of bytes that lie in the window at an address, from there on; `None` outside of the windows.
    fn rest(&self, address: u64) -> Option<u64> {
        let (_, end) = self.windows.iter().find(|(base, end)| (*base..*end).contains(&address))?;
        Some(end - address)
    }

    /// Returns whether an address lies in one of the windows.
    pub fn is_window(&self, address: u64) -> bool {
        self.rest(address).is_some()
    }

    /// Returns the number of bytes, at most `bytes`, that lie in one window at each address: a copy must not go beyond.
    pub fn piece(&self, addresses: [u64; 2], bytes: u64) -> u64 {
        addresses.into_iter().filter_map(|address| self.rest(address)).fold(bytes, u64::min)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.windows.is_empty() {
            return;
        }
        let mut state = self.holds.state.lock();
        for (base, _) in &self.windows {
            if let Some((_, count)) = state.counts.iter_mut().find(|(held, _)| held == base) {
                *count -= 1;
            }
        }
        let before = state.counts.len();
        state.counts.retain(|(_, count)| *count > 0);
        if state.counts.len() < before && state.waiting > 0 {
            self.holds.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use crate::memory::allocations::Origin;
    use std::thread;

    const WINDOW: u64 = 0x10_0000;
    const DEVICE: u64 = 0x80_0000;
    const HOME: Home = Home { context: 1, device: 0 };

    /// Two windows side by side, of 0x2000 and 0x1000 bytes, and device memory.
    fn fixture_allocations() -> Allocations {
        let mut allocations = Allocations::new(None);
        allocations.insert(WINDOW, 0x2000, Origin::HostWindow, HOME);
        allocations.insert(WINDOW + 0x2000, 0x1000, Origin::HostWindow, HOME);
        allocations.insert(DEVICE, 0x10000, Origin::Allocated, HOME);
        allocations
    }

    #[test]
    fn copies_go_from_window_to_window() {
        let (holds, allocations) = (Holds::default(), fixture_allocations());
        let held = holds.hold(&allocations, [DEVICE, WINDOW + 0x800], 0x2800).unwrap();
        assert_eq!(held.piece([DEVICE, WINDOW + 0x800], 0x2800), 0x1800);
        assert_eq!(held.piece([DEVICE + 0x1800, WINDOW + 0x2000], 0x1000), 0x1000);
        assert_eq!(held.piece([DEVICE, WINDOW], 7), 7);
        let beyond = holds.hold(&allocations, [DEVICE, WINDOW + 0x800], 0x2801);
        assert!(beyond.is_err(), "behind the last window is nothing");
        assert!(holds.hold(&allocations, [DEVICE + 0xffff, WINDOW], 2).is_err());
        assert!(holds.hold(&allocations, [DEVICE, WINDOW], u64::MAX).is_err());
    }

    #[test]
    fn windows_to_be_read_are_no_destinations() {
        let (holds, mut allocations) = (Holds::default(), fixture_allocations());
        allocations.insert(WINDOW + 0x2000, 0x1000, Origin::ReadOnlyWindow, HOME);
        let both = WINDOW + 0x1800;
        assert!(holds.hold(&allocations, [DEVICE, both], 0x1000).is_ok());
        assert!(holds.hold(&allocations, [both, DEVICE], 0x1000).is_err(), "its end may not be written");
        assert!(holds.hold(&allocations, [WINDOW + 0x1000, WINDOW + 0x2000], 0x1000).is_ok());
    }

    #[test]
    fn windows_are_held_until_the_last_call_is_done() {
        let (holds, mut allocations) = (Holds::default(), fixture_allocations());
        let ends = [DEVICE, WINDOW];
        let (first, second) =
            (holds.hold(&allocations, ends, 16).unwrap(), holds.hold(&allocations, ends, 1).unwrap());
        assert!(holds.is_held(WINDOW) && !holds.is_held(WINDOW + 0x2000) && !holds.is_held(DEVICE));
        allocations.remove(WINDOW);
        assert!(holds.hold(&allocations, ends, 16).is_err(), "it is on its way out");
        drop(first);
        assert!(holds.is_held(WINDOW));
        thread::scope(|scope| {
            let waits = scope.spawn(|| holds.wait(WINDOW));
            drop(second);
            waits.join().unwrap();
        });
        assert!(!holds.is_held(WINDOW));
        holds.wait(WINDOW);
    }
}
