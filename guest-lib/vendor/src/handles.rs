// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's handles, and the state that the guest needs of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use cuda_environment::speed;
use cuda_library_rows::Facts;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Handles look like addresses that are aligned to 16 bytes, because programs check that.
const STEP: u64 = 16;
/// First handle of the first library. Each library has a separate range of [`OF_LIBRARY`] values, because some accept
/// handles of another. Handles are not used again: a range lasts for a month at 100,000 per second.
const BASE: u64 = 0x4000_0000_0000;
const OF_LIBRARY: u64 = 1 << 42;
const _: () = assert!(BASE + 16 * OF_LIBRARY <= 1 << 47, "handles look like addresses");

/// Allocates new handles.
#[derive(Debug)]
pub struct HandleSequence(AtomicU64);

impl HandleSequence {
    /// Returns a sequence from which no handle was allocated.
    pub const fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Returns a new handle of a library, in the program's form.
    pub fn next(&self, library: u32, is_int: bool) -> u64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        if is_int { number } else { first_of(library) + number * STEP }
    }
}

fn first_of(library: u32) -> u64 {
    BASE + u64::from(library) * OF_LIBRARY
}

/// Returns the number that identifies a program's handle to the worker.
pub fn crossing(library: u32, is_int: bool, handle: u64) -> u64 {
    if is_int { first_of(library) + handle } else { handle }
}

/// Maximum number of parts of what a handle describes. Limits the memory for a handle that is set again and again.
const MAX_PARTS: usize = 64;
/// A multiplier that mixes bits (as in FxHash).
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state of a handle that affects calls of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Set if scalars are in device memory.
    pub device_scalars: bool,
    /// The stream on which its work runs.
    pub stream: u64,
    /// The origin of the handle: an argument of the call that created it.
    pub birth: u64,
    /// What it describes: a digest of the calls that created and changed it, without addresses.
    pub contents: u64,
}

/// Arguments of a setter, without the handle.
type Values = SmallVec<[u64; 2]>;

/// All known state of a handle.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record {
    state: State,
    /// Numbers by their notes (`cuda_library_rows::Notes`).
    notes: SmallVec<[(usize, i64); 4]>,
    /// The latest settings, by the number of the function.
    settings: SmallVec<[(usize, Values); 4]>,
    /// The latest calls that changed what it describes: a number for each thing that they change, and the key of the call.
    changes: SmallVec<[(u64, u64); 4]>,
    /// A setting that did not change, but whose call would also have reverted the setting of another function. The call
    /// is made before the next call that may depend on it, unless the other setting is made again.
    deferred: Option<Deferred>,
}

#[derive(Debug, PartialEq, Eq)]
struct Deferred {
    function: usize,
    values: Values,
    /// The function whose setting it reverts.
    other: usize,
}

impl Record {
    fn setting(&self, function: usize) -> Option<&Values> {
        self.settings.iter().find(|(known, _)| *known == function).map(|(_, values)| values)
    }

    fn forget(&mut self, function: usize) {
        self.settings.retain(|(known, _)| *known != function);
    }
}

/// The next step for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call is sent to the worker, with a handle in this state.
    Cross(State),
    /// The library would only return success, and the requested value.
    Answer(Option<u64>),
    /// The function of this number must be called first, with the handle and these arguments.
    First(usize, Values),
}

/// Handles of a library whose state differs from that of new handles.
#[derive(Debug)]
pub struct Handles(RwLock<Option<FxHashMap<u64, Record>>>);

impl Handles {
    /// Returns an empty table.
    pub const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// Returns the state of a handle.
    pub fn state(&self, handle: u64) -> State {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .and_then(|records| records.get(&handle))
            .map_or_else(State::default, |known| known.state)
    }

    /// Returns the number that is stored for a handle under `note`.
    pub fn note(&self, handle: u64, note: usize) -> Option<i64> {
        let records = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let notes = &records.as_ref()?.get(&handle)?.notes;
        notes.iter().find(|(known, _)| *known == note).map(|(_, value)| *value)
    }

    /// Stores a number for a handle under `note`; `None` removes it.
    pub fn set_note(&self, handle: u64, note: usize, value: Option<i64>) {
        let mut records = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let records = records.get_or_insert_default();
        let known =
            if value.is_some() { Some(records.entry(handle).or_default()) } else { records.get_mut(&handle) };
        let Some(record) = known else { return };
        record.notes.retain(|(known, _)| *known != note);
        record.notes.extend(value.map(|value| (note, value)));
    }

    /// Decides how to execute a call of a function with a handle and other arguments.
    pub fn step(&self, function: usize, facts: &Facts, handle: u64, others: &[u64]) -> Step {
        let records = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = records.as_ref().and_then(|records| records.get(&handle)) else {
            return Step::Cross(State::default());
        };
        if let Some(set) = facts.gets
            && let Some(values) = record.setting(set)
        {
            return Step::Answer(values.first().copied());
        }
        if record.deferred.is_none() && !facts.sets {
            return Step::Cross(record.state);
        }
        drop(records);
        self.step_that_sets(function, facts, handle, others)
    }

    fn step_that_sets(&self, function: usize, facts: &Facts, handle: u64, others: &[u64]) -> Step {
        let mut records = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = records.as_mut().and_then(|records| records.get_mut(&handle)) else {
            return Step::Cross(State::default());
        };
        if facts.sets && record.setting(function).is_some_and(|known| known[..] == *others) {
            if let Some(other) = facts.resets
                && record.setting(other).is_some()
            {
                record.deferred = Some(Deferred { function, values: others.into(), other });
            } else {
                // The setting that the deferred call would have reverted is made again.
                record.deferred.take_if(|deferred| deferred.other == function);
            }
            return Step::Answer(None);
        }
        match record.deferred.take() {
            // A call of the same function has all effects of the deferred one.
            Some(deferred) if deferred.function != function => {
                Step::First(deferred.function, deferred.values)
            }
            _ => Step::Cross(record.state),
        }
    }

    /// Records a call of a setter.
    pub fn set(&self, function: usize, facts: &Facts, handle: u64, others: &[u64], succeeded: bool) {
        let mut records = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let records = records.get_or_insert_default();
        // An invalid handle does not get a record.
        let known =
            if succeeded { Some(records.entry(handle).or_default()) } else { records.get_mut(&handle) };
        let Some(record) = known else { return };
        record.forget(function);
        if let Some(other) = facts.resets {
            record.forget(other);
        }
        if succeeded && speed::is_on() {
            record.settings.push((function, others.into()));
        }
    }

    /// Changes the state of a handle.
    pub fn change(&self, handle: u64, change: impl FnOnce(&mut State)) {
        let mut records = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let records = records.get_or_insert_default();
        let record = records.entry(handle).or_default();
        change(&mut record.state);
        if *record == Record::default() {
            records.remove(&handle);
        }
    }

    /// Records a successful call that changes what a handle describes: `part` of it, to what the key of the call says.
    pub fn describe(&self, handle: u64, part: u64, key: u64) {
        let mut records = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let record = records.get_or_insert_default().entry(handle).or_default();
        match record.changes.iter().position(|(known, _)| *known == part) {
            Some(known) => record.changes[known].1 = key,
            None if record.changes.len() < MAX_PARTS => record.changes.push((part, key)),
            // A digest of all that was said of it, in order.
            None => record.changes[0].1 = record.changes[0].1.rotate_left(23) ^ key,
        }
        let mix = |mixed: u64, (part, key): &(u64, u64)| mixed ^ key.wrapping_add(*part).wrapping_mul(ODD);
        record.state.contents = record.changes.iter().fold(0, mix);
    }

    /// Removes the state of a destroyed handle.
    pub fn forget(&self, handle: u64) {
        if let Some(records) = self.0.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            records.remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_belong_to_handles() {
        let handles = Handles::new();
        let sequence = HandleSequence::new();
        let (first, second) = (sequence.next(1, false), sequence.next(1, false));
        assert_ne!(first, second);
        assert_eq!(crossing(1, false, first), first);
        let plan = sequence.next(1, true);
        assert_eq!((plan, crossing(1, true, plan)), (3, first_of(1) + 3));
        handles.change(first, |state| state.stream = 7);
        handles.change(first, |state| state.device_scalars = true);
        assert_eq!(handles.state(first), State { device_scalars: true, stream: 7, ..State::default() });
        assert_eq!(handles.state(second), State::default());
        handles.forget(first);
        assert_eq!(handles.state(first), State::default());
    }

    const STREAM: usize = 1;
    const WORKSPACE: usize = 2;
    const MODE: usize = 3;
    const GET_MODE: usize = 4;
    const WORK: usize = 5;

    fn facts(function: usize) -> Facts {
        Facts {
            sets: matches!(function, STREAM | WORKSPACE | MODE),
            resets: (function == STREAM).then_some(WORKSPACE),
            gets: (function == GET_MODE).then_some(MODE),
            ..Facts::NONE
        }
    }

    /// Returns the calls that are sent to the worker when a program makes `calls`: their functions and first arguments.
    fn crossing_calls(calls: &[(usize, u64)]) -> Vec<(usize, u64)> {
        let handles = Handles::new();
        let mut crossed = Vec::new();
        let mut cross = |function: usize, value: u64| {
            crossed.push((function, value));
            if facts(function).sets {
                handles.set(function, &facts(function), 16, &[value], true);
            }
        };
        for &(function, value) in calls {
            loop {
                match handles.step(function, &facts(function), 16, &[value]) {
                    Step::Cross(_) => cross(function, value),
                    Step::First(first, values) => {
                        cross(first, values[0]);
                        continue;
                    }
                    Step::Answer(_) => {}
                }
                break;
            }
        }
        crossed
    }

    #[test]
    fn what_is_set_already_does_not_cross() {
        let once = [(STREAM, 7), (WORKSPACE, 9), (MODE, 1), (WORK, 0)];
        // PyTorch does this before each operation.
        let calls = [once, once, once].concat();
        let expected = [&once[..], &[(WORK, 0), (WORK, 0)]].concat();
        assert_eq!(crossing_calls(&calls), expected);
    }

    #[test]
    fn a_stream_takes_the_workspace_back_before_it_is_noticed() {
        let set = [(STREAM, 7), (WORKSPACE, 9), (STREAM, 7)];
        let with = |more: &[(usize, u64)]| crossing_calls(&[&set[..], more].concat())[2..].to_vec();
        assert_eq!(with(&[(WORK, 0)]), [(STREAM, 7), (WORK, 0)]);
        assert_eq!(with(&[(WORKSPACE, 9), (WORK, 0)]), [(WORK, 0)]);
        assert_eq!(with(&[(WORKSPACE, 8), (WORK, 0)]), [(STREAM, 7), (WORKSPACE, 8), (WORK, 0)]);
        assert_eq!(with(&[(STREAM, 6), (WORK, 0)]), [(STREAM, 6), (WORK, 0)]);
        // The workspace was reset to the library's own, so a call that sets it is sent.
        assert_eq!(with(&[(WORK, 0), (WORKSPACE, 9)]), [(STREAM, 7), (WORK, 0), (WORKSPACE, 9)]);
        // A setting that does not change reverts nothing.
        assert_eq!(with(&[(MODE, 1), (MODE, 1), (WORK, 0)]), [(STREAM, 7), (MODE, 1), (WORK, 0)]);
    }

    #[test]
    fn a_deferred_call_outlives_settings_of_other_functions() {
        let calls = [(MODE, 1), (STREAM, 7), (WORKSPACE, 9), (STREAM, 7), (MODE, 1), (WORK, 0)];
        let crossed = [(MODE, 1), (STREAM, 7), (WORKSPACE, 9), (STREAM, 7), (WORK, 0)];
        assert_eq!(crossing_calls(&calls), crossed);
    }

    #[test]
    fn what_was_set_is_known() {
        let handles = Handles::new();
        let get = || handles.step(GET_MODE, &facts(GET_MODE), 16, &[0]);
        assert_eq!(get(), Step::Cross(State::default()));
        handles.set(MODE, &facts(MODE), 16, &[3], true);
        assert_eq!(get(), Step::Answer(Some(3)));
        handles.set(MODE, &facts(MODE), 16, &[99], false);
        assert_eq!(get(), Step::Cross(State::default()), "a call that has failed leaves nobody knows what");
    }
}
