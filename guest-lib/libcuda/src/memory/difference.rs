// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sends the program's changes of memory that the GPU's work may change at the same time.

use std::ops::Range;

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::StreamId;

use crate::entry::Api;
use crate::memory::copy::plan::Timing;
use crate::memory::place::Place;

/// Bytes that are compared at once.
const CHUNK: usize = 64 << 10;
/// Maximum number of ranges that are written each for itself in any case.
const FEW: usize = 16;
/// Maximum bytes that are read back from the device at once.
const MAX_FETCHED: usize = 4 << 20;

/// Returns the range from the first to the last byte in which two contents differ.
fn changed(now: &[u8], before: &[u8]) -> Option<Range<usize>> {
    let differs = |(now, before): (&u8, &u8)| now != before;
    let first = now.iter().zip(before).position(differs)?;
    let last = now.iter().zip(before).rposition(differs)?;
    Some(first..last + 1)
}

/// Returns the ranges of adjacent chunks in which two contents differ, each from its first to its last changed byte.
fn parts(now: &[u8], before: &[u8]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (index, (now, before)) in now.chunks(CHUNK).zip(before.chunks(CHUNK)).enumerate() {
        if now == before {
            continue;
        }
        let start = index * CHUNK;
        let Some(changed) = changed(now, before) else { continue };
        let part = start + changed.start..start + changed.end;
        match parts.last_mut() {
            Some(last) if last.end + CHUNK > start && part.end - last.start <= MAX_FETCHED => {
                last.end = part.end
            }
            _ => parts.push(part),
        }
    }
    parts
}

/// Returns the ranges of adjacent bytes that differ.
fn runs(now: &[u8], before: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let same = now[at..].iter().zip(&before[at..]).position(|(now, before)| now != before)?;
        let start = at + same;
        let length =
            now[start..].iter().zip(&before[start..]).take_while(|(now, before)| now != before).count();
        at = start + length;
        Some(start..at)
    })
}

impl Api {
    /// Writes the bytes of `now` that differ from `before` to the device memory at `address`, which had the contents
    /// `before`. If the GPU has changed some of the memory since, only the program's bytes are written: those of the GPU
    /// stay.
    ///
    /// Errors: those of the copies.
    pub fn send_difference(
        self,
        context: u64,
        address: u64,
        now: &[u8],
        before: &[u8],
    ) -> Result<(), CudaError> {
        let parts = parts(now, before);
        if parts.is_empty() {
            return Ok(());
        }
        self.with_copy_stream(context, |stream| {
            let write = |offset: usize, bytes: &[u8]| {
                let (to, from) =
                    (Place::Device(address + offset as u64), Place::Pageable(bytes.as_ptr() as u64));
                self.copy_at_once(to, from, bytes.len(), Timing::Stream(stream))
            };
            for part in parts {
                let (start, now, before) = (part.start, &now[part.clone()], &before[part]);
                let many = runs(now, before).nth(FEW).is_some();
                if many && self.has_still(stream, address + start as u64, before)? {
                    write(start, now)?;
                } else {
                    runs(now, before).try_for_each(|run| write(start + run.start, &now[run]))?;
                }
            }
            // Also returns an error of the posted copies.
            self.wait_for_stream(stream)
        })
    }

    /// Returns whether device memory has the contents `before`.
    fn has_still(self, stream: StreamId, address: u64, before: &[u8]) -> Result<bool, CudaError> {
        let mut now = vec![0_u8; before.len()];
        let to = Place::Pageable(now.as_mut_ptr() as u64);
        self.copy_at_once(to, Place::Device(address), now.len(), Timing::Stream(stream))?;
        self.wait_for_stream(stream)?;
        Ok(now == before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_have_no_parts() {
        assert!(parts(&[1; 3 * CHUNK], &[1; 3 * CHUNK]).is_empty());
        assert_eq!(runs(&[1, 2], &[1, 2]).count(), 0);
    }

    #[test]
    fn adjacent_chunks_are_one_part() {
        let before = vec![0; 8 * CHUNK];
        let mut now = before.clone();
        now[5] = 1;
        now[CHUNK + 7] = 1;
        now[4 * CHUNK] = 1;
        now[8 * CHUNK - 1] = 1;
        let last = 8 * CHUNK - 1;
        assert_eq!(parts(&now, &before), [5..CHUNK + 8, 4 * CHUNK..4 * CHUNK + 1, last..last + 1]);
    }

    #[test]
    fn a_part_is_not_longer_than_what_is_read_back() {
        let (now, before) = (vec![1; 3 * MAX_FETCHED], vec![0; 3 * MAX_FETCHED]);
        let parts = parts(&now, &before);
        assert_eq!(parts.iter().map(Range::len).collect::<Vec<_>>(), [MAX_FETCHED; 3]);
    }

    #[test]
    fn runs_have_only_changed_bytes() {
        let runs: Vec<_> = runs(&[1, 1, 0, 0, 1, 0, 1], &[0; 7]).collect();
        assert_eq!(runs, [0..2, 4..5, 6..7]);
    }
}
