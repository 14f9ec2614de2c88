// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers of a call, and the arrays that the library has allocated for them.

use std::ffi::CStr;

use cuda_library_rows::block::{MAX_TEXT, SLOT, padded};
use cuda_library_rows::{Answer, Direction, Kind, Number};

use super::attempt::{Answers, Attempt, Originals};
use super::memory::Memory;
use crate::vendor::refusal::Refusal;

impl Attempt<'_> {
    pub(super) fn answers(
        &self,
        value: u64,
        slots: &[u64],
        memory: &mut Memory,
        original: &Originals,
    ) -> Result<Answers, Refusal> {
        let mut answers = Answers::new();
        if self.call.answer == Answer::Text {
            // SAFETY: the library returns null or a C string that lives as long as the library.
            let text = (value != 0).then(|| unsafe { CStr::from_ptr(value as *const _) }.to_bytes());
            let text = text.map(|text| &text[..text.len().min(MAX_TEXT)]);
            answers.extend((text.map_or(0, |text| text.len() as u64 + 1)).to_le_bytes());
            answers.extend_from_slice(text.unwrap_or_default());
            return Ok(answers);
        }
        answers.extend(value.to_le_bytes());
        for &index in self.call.roles.writes {
            let bytes = self.call.memory_bytes(self.loaded.rows, index, slots)?;
            let start = answers.len();
            append_zeros(&mut answers, padded(bytes));
            let place = &mut answers[start..start + bytes];
            match &self.call.parameters[index].kind {
                Kind::Allocated { element, count, .. } => {
                    let start = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                    if start != 0 && self.loaded.rows.statuses.is_good(value as i32) {
                        let count = count.map(|count| self.written(count, memory));
                        let count = count.map(|count| Number::I32.integer(count.unwrap_or_default()));
                        let has = |count: i128| usize::try_from(count).ok()?.checked_mul(element.bytes());
                        let wanted = count.map_or(Some(bytes), |count| count.and_then(has));
                        let place = wanted.and_then(|wanted| place.get_mut(..wanted));
                        let place = place.ok_or(Refusal::Status(self.loaded.rows.statuses.internal_error))?;
                        // SAFETY: a call that has succeeded returned the address of memory from malloc, which has as
                        // many elements as it reports, and which is not freed before the answers are built.
                        place.copy_from_slice(unsafe {
                            std::slice::from_raw_parts(start as *const u8, place.len())
                        });
                    }
                }
                Kind::Table(_) => {
                    let table = u64::from_le_bytes(memory.piece(index).try_into().unwrap_or_default());
                    if table != 0 && self.loaded.rows.statuses.is_good(value as i32) {
                        // SAFETY: a call that has succeeded returned the address of a table of this length, which
                        // belongs to the library and never changes.
                        place.copy_from_slice(unsafe {
                            std::slice::from_raw_parts(table as *const u8, bytes)
                        });
                    }
                }
                Kind::Host(host) => match self.handles_in(host, slots) {
                    // The library returns handles that it has given out before. The guest gets its own numbers for
                    // them.
                    Some(kind) if host.direction == Direction::Out => {
                        for (place, raw) in place
                            .as_chunks_mut::<SLOT>()
                            .0
                            .iter_mut()
                            .zip(memory.piece(index).as_chunks::<SLOT>().0)
                        {
                            *place = self.name_of(kind, u64::from_le_bytes(*raw)).to_le_bytes();
                        }
                    }
                    // The library fills in the objects behind these handles. The guest keeps its own numbers for
                    // them.
                    Some(_) => {
                        let original = original.iter().find(|(of, _)| *of == index);
                        let original = original.map_or(&[][..], |(_, bytes)| bytes);
                        place[..original.len()].copy_from_slice(original);
                    }
                    None => place.copy_from_slice(&memory.piece(index)[..bytes]),
                },
                _ => place.copy_from_slice(&memory.piece(index)[..bytes]),
            }
        }
        Ok(answers)
    }

    /// Frees the arrays that the library has allocated for the program, also if copying them to the answers has failed.
    pub(super) fn free_allocated(&self, memory: &Memory) {
        for &index in self.call.roles.allocated {
            let start = u64::from_le_bytes(memory.contents(index).try_into().unwrap_or_default());
            // SAFETY: the call has succeeded and returned null or the address of memory from malloc, which is freed
            // only here.
            unsafe { libc::free(start as *mut _) };
        }
    }

    /// Returns the guest's number of one of the library's handles, or 0 for null and for a handle that does not
    /// belong to the guest.
    fn name_of(&self, kind: usize, raw: u64) -> u64 {
        let table = self.handles().kind(kind).ok().filter(|_| raw != 0);
        table.and_then(|table| table.find(|object| object.is(raw as *mut u8))).unwrap_or(0)
    }
}

/// Appends zeros by the page, because `resize` works byte by byte and a table has millions.
fn append_zeros(answers: &mut Answers, bytes: usize) {
    static ZEROS: [u8; 4096] = [0; 4096];
    answers.reserve(bytes);
    let mut left = bytes;
    while left > 0 {
        let some = left.min(ZEROS.len());
        answers.extend_from_slice(&ZEROS[..some]);
        left -= some;
    }
}
