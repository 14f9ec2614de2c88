// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that are remembered for handles ([`cuda_library_rows::Notes`]): lengths of arrays and buffers that the
//! library knows from an earlier call, and the order of calls that it does not check itself.

use cuda_library_rows::block::SLOT;
use cuda_library_rows::{Direction, Element, Host, Kind, Note};

use super::attempt::{Attempt, Slots};
use super::memory::Memory;
use crate::gpu::CudaError;
use crate::vendor::handles::Locked;
use crate::vendor::refusal::Refusal;

/// The locked states of a call's handles.
type States = [((usize, u64), Locked)];

impl Attempt<'_> {
    /// Compares the notes that the call depends on.
    ///
    /// Errors: the library's status for a wrong argument if nothing was noted or the call needs another value; a CUDA
    /// error for a number that the guest's library invented.
    pub(super) fn check_notes(&self, slots: &[u64], locked: &mut States) -> Result<(), Refusal> {
        let wrong = Refusal::Status(self.loaded.rows.statuses.invalid_value);
        for &index in self.call.roles.noted {
            let Kind::Noted(note) = self.call.parameters[index].kind else { continue };
            let noted = self.note_of(note, slots, locked).ok_or(wrong)?;
            if slots[index] != noted as u64 {
                return Err(CudaError::INVALID_VALUE.into());
            }
        }
        for (note, expression) in self.call.notes.needs {
            let needed = expression.value(&|index| self.call.integer(index, slots));
            let noted = self.note_of(*note, slots, locked).ok_or(wrong)?;
            if needed != Some(i128::from(noted)) {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Forgets the notes that the call changes. After a failed call their values are unknown.
    pub(super) fn forget_notes(&self, slots: &[u64], locked: &mut States) {
        for Note { handle, note } in self.call.notes.changed() {
            if let Some(state) = self.state_of(handle, slots, locked) {
                state.notes.remove(&note);
            }
        }
        self.set_pattern(None, slots, locked);
    }

    /// Records the notes of a call that has succeeded.
    pub(super) fn take_notes(&self, slots: &Slots, memory: &mut Memory, locked: &mut States) {
        for (Note { handle, note }, expression) in self.call.notes.takes {
            let written: Slots =
                (0..slots.len()).map(|index| self.written(index, memory).unwrap_or_default()).collect();
            let value = expression.value(&|index| {
                let known = self.call.integer(index, slots);
                known.or_else(|| self.number_of(index)?.integer(*written.get(index)?))
            });
            let value = value.and_then(|value| i64::try_from(value).ok());
            if let (Some(value), Some(state)) = (value, self.state_of(*handle, slots, locked)) {
                state.notes.insert(*note, value);
            }
        }
    }

    /// Compares the matrix of the call with the one for which the handle was set up. Returns its digest, or `None` if
    /// the row does not have such a matrix.
    ///
    /// Errors: the library's status for a wrong argument.
    pub(super) fn check_pattern(
        &self,
        slots: &[u64],
        memory: &Memory,
        locked: &mut States,
    ) -> Result<Option<blake3::Hash>, Refusal> {
        let notes = &self.call.notes;
        if notes.keeps_pattern.is_none() && notes.needs_pattern.is_none() {
            return Ok(None);
        }
        let pattern = self.pattern(slots, memory)?;
        if let Some(handle) = notes.needs_pattern {
            let known = self.state_of(handle, slots, locked).and_then(|state| state.pattern);
            if known != Some(pattern) {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
        }
        Ok(Some(pattern))
    }

    /// Remembers the matrix of the call, if its row requires it.
    pub(super) fn set_pattern(&self, pattern: Option<blake3::Hash>, slots: &[u64], locked: &mut States) {
        let handle = self.call.notes.keeps_pattern;
        if let Some(state) = handle.and_then(|handle| self.state_of(handle, slots, locked)) {
            state.pattern = pattern;
        }
    }

    /// Returns the `out` number of a parameter, as written by the library.
    pub(super) fn written(&self, index: usize, memory: &mut Memory) -> Option<u64> {
        let bytes = self.number_of(index)?.bytes();
        let mut word = [0; SLOT];
        word.get_mut(..bytes)?.copy_from_slice(memory.piece(index).get(..bytes)?);
        Some(u64::from_le_bytes(word))
    }

    /// Returns the type of a parameter that is one `out` number.
    pub(super) fn number_of(&self, index: usize) -> Option<cuda_library_rows::Number> {
        match &self.call.parameters.get(index)?.kind {
            Kind::Host(Host {
                direction: Direction::Out,
                element: Element::Number(number),
                count: None,
                ..
            }) => Some(*number),
            _ => None,
        }
    }

    fn note_of(&self, note: Note, slots: &[u64], locked: &mut States) -> Option<i64> {
        self.state_of(note.handle, slots, locked)?.notes.get(&note.note).copied()
    }

    /// Returns the state of the handle of a parameter.
    pub(super) fn state_of<'l>(
        &self,
        parameter: usize,
        slots: &[u64],
        locked: &'l mut States,
    ) -> Option<&'l mut Locked> {
        let Kind::Handle { kind, .. } = self.call.parameters.get(parameter)?.kind else { return None };
        let key = (kind, *slots.get(parameter)?);
        locked.iter_mut().find(|(known, _)| *known == key).map(|(_, state)| state)
    }
}

#[cfg(test)]
#[path = "notes_test.rs"]
mod tests;
