// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of a handle: the calls that made them. Recorded work is launched again only with the settings with which it was
//! recorded (`run/prepared/calls.rs`), and it is recorded in another stream, for which they are made again.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::{SmallVec, smallvec};

use super::invoke::call_with_integers;

/// The maximum number of combinations of settings that a handle remembers. Programs switch between a few.
const MAX_KNOWN: usize = 8;
/// The number that the next combination gets. A number stands for one combination of one handle.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The arguments behind the handle.
type Arguments = SmallVec<[u64; 2]>;
/// Function and guest's arguments of each setting, in order.
type Combination = SmallVec<[(usize, Arguments); 4]>;

/// The settings of a handle.
#[derive(Debug, Default)]
pub struct Settings {
    /// The last call of each function. A function may revert the setting of another one, so their order matters.
    made: SmallVec<[Setting; 4]>,
    /// Combinations, with their numbers.
    known: Vec<(Combination, u64)>,
    /// The number of the present one; 0 before it is needed.
    number: u64,
    /// True if a function has failed: the settings are unknown from then on.
    unknown: bool,
}

/// A call that has made a setting.
#[derive(Debug)]
struct Setting {
    /// The number of the function, and its address.
    function: (usize, usize),
    /// The guest's arguments.
    slots: Arguments,
    /// The library's.
    arguments: Arguments,
    /// True if the setting is the stream.
    is_stream: bool,
}

impl Settings {
    /// Notes a call that has made a setting: the function's number and address, and the arguments behind the handle.
    pub fn set(&mut self, function: (usize, usize), slots: &[u64], arguments: &[u64], is_stream: bool) {
        self.made.retain(|setting| setting.function != function);
        let (slots, arguments) = (slots.into(), arguments.into());
        self.made.push(Setting { function, slots, arguments, is_stream });
        self.number = 0;
    }

    /// Notes that a call has failed that should have made a setting.
    pub fn lose(&mut self) {
        self.unknown = true;
    }

    /// Returns the number of the settings, which no other settings of any handle have.
    pub fn number(&mut self) -> Option<u64> {
        if self.unknown {
            return None;
        }
        if self.number == 0 {
            let now: Combination =
                self.made.iter().map(|setting| (setting.function.0, setting.slots.clone())).collect();
            let known = self.known.iter().find(|(combination, _)| *combination == now);
            self.number = known.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |(_, number)| *number);
            if known.is_none() {
                if self.known.len() == MAX_KNOWN {
                    self.known.remove(0);
                }
                self.known.push((now, self.number));
            }
        }
        Some(self.number)
    }

    /// Returns the guest's name of the stream; 0, the legacy default stream, if none was set.
    pub fn stream(&self) -> u64 {
        self.made.iter().find(|setting| setting.is_stream).map_or(0, |setting| setting.slots[0])
    }

    /// Makes all settings of the library's handle again, in order, with another stream in place of its own if one is given.
    /// `set_stream`: the address of the function that sets it. Returns whether all calls returned `good`.
    ///
    /// # Safety
    ///
    /// Handle, stream and function must be the library's, and the handle the one of these settings.
    pub unsafe fn make(&self, handle: u64, set_stream: usize, stream: Option<u64>, good: i32) -> bool {
        // Without a stream of its own the handle has the legacy default stream, and nothing that setting one reverts.
        let first: Arguments = smallvec![stream.unwrap_or(0)];
        let has_own = self.made.iter().any(|setting| setting.is_stream);
        let all = self.made.iter().map(|setting| match stream {
            Some(_) if setting.is_stream => (setting.function.1, &first[..]),
            _ => (setting.function.1, &setting.arguments[..]),
        });
        let first = (!has_own).then_some((set_stream, &first[..]));
        // SAFETY: the calls have succeeded before with these arguments, or with another stream.
        unsafe { make(handle, first.into_iter().chain(all), good) }
    }
}

/// Calls functions with the handle and the arguments of each. Returns whether all of them returned `good`.
///
/// # Safety
///
/// They must be functions of the library that take such arguments, and change nothing but settings of the handle.
unsafe fn make<'s>(handle: u64, settings: impl Iterator<Item = (usize, &'s [u64])>, good: i32) -> bool {
    settings.fold(true, |all, (function, arguments)| {
        let mut integers: SmallVec<[u64; 4]> = smallvec![handle];
        integers.extend_from_slice(arguments);
        // SAFETY: passed on to the caller.
        all & (unsafe { call_with_integers(function, &integers) } == Some(good))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: (usize, usize) = (1, 0x10);
    const WORKSPACE: (usize, usize) = (2, 0x20);

    #[test]
    fn settings_that_come_back_have_their_number_again() {
        let mut settings = Settings::default();
        let none = settings.number();
        let with = |settings: &mut Settings, stream: u64, workspace: u64| {
            settings.set(STREAM, &[stream], &[stream + 100], true);
            settings.set(WORKSPACE, &[workspace, 8], &[workspace, 8], false);
            settings.number()
        };
        let first = with(&mut settings, 16, 5);
        assert!(first.is_some() && first != none && settings.stream() == 16);
        let second = with(&mut settings, 16, 6);
        assert_ne!(second, first);
        assert_eq!(with(&mut settings, 16, 5), first);
        settings.set(STREAM, &[16], &[116], true);
        assert_ne!(settings.number(), first, "the stream reverts the workspace");
        assert_ne!(Settings::default().number(), none, "another handle");
        for workspace in 0..100 {
            with(&mut settings, 32, workspace);
        }
        assert_eq!(settings.known.len(), MAX_KNOWN);
        settings.lose();
        assert_eq!(settings.number(), None);
    }

    thread_local!(static MADE: std::cell::RefCell<Vec<[u64; 3]>> = const { std::cell::RefCell::new(Vec::new()) });

    extern "C" fn note(handle: u64, first: u64, second: u64) -> i32 {
        MADE.with_borrow_mut(|made| made.push([handle, first, second]));
        0
    }

    #[test]
    fn settings_are_made_again_in_order() {
        let function = note as *const () as usize;
        let mut settings = Settings::default();
        settings.set((2, function), &[5, 8], &[5, 8], false);
        let made = |settings: &Settings, stream: Option<u64>| -> Vec<u64> {
            MADE.take();
            // SAFETY: `note` takes anything.
            assert!(unsafe { settings.make(7, function, stream, 0) });
            MADE.take().into_iter().map(|[handle, first, _]| handle * 1000 + first).collect()
        };
        assert_eq!(made(&settings, Some(70)), [7070, 7005]);
        assert_eq!(made(&settings, None), [7000, 7005]);
        settings.set((1, function), &[16], &[60], true);
        assert_eq!(made(&settings, Some(70)), [7005, 7070], "the stream still reverts the workspace");
        assert_eq!(made(&settings, None), [7005, 7060]);
        settings.set((2, function), &[5, 8], &[5, 8], false);
        assert_eq!(made(&settings, Some(70)), [7070, 7005]);
        // SAFETY: as above.
        assert!(!unsafe { settings.make(7, function, None, 1) });
    }
}
