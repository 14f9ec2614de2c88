// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The division of a staged copy into pieces, and the number of threads.

use crate::memory::copy::transfer::Transfer;
use crate::state::memory::staging::Size;

/// Minimum bytes of a copy to the device that several threads share. Half of that for copies from the device.
const SHARED_BYTES: usize = 2 << 20;
/// Minimum bytes of a copy that uses large staging buffers.
const LARGE_BYTES: usize = 4 << 20;
/// Minimum bytes of a copy that uses the longest staging buffers.
const MAX_BYTES: usize = 32 << 20;
/// Minimum bytes of a piece.
const MIN_PIECE: usize = 64 << 10;
/// A piece is a multiple of this many bytes.
pub const PAGE_BYTES: usize = 4096;

/// The division of a staged copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Bytes of each piece except the last.
    pub piece_bytes: usize,
    /// The number of threads.
    pub threads: usize,
    /// The size of the staging buffer.
    pub size: Size,
}

impl Division {
    /// Returns the division of a transfer; `None` if there are no threads. `threads` has the maximum number of threads,
    /// and the maximum for a copy from the device through a staging buffer with few slots.
    pub fn of(transfer: Transfer, threads: [usize; 2]) -> Option<Self> {
        let (bytes, to_device) = (transfer.host().bytes, transfer.is_to_device());
        let [most, few] = threads;
        if most == 0 {
            return None;
        }
        let size = match bytes {
            ..LARGE_BYTES => Size::Small,
            MAX_BYTES.. => Size::Long,
            _ => Size::Large,
        };
        let threads = match bytes >= if to_device { SHARED_BYTES } else { SHARED_BYTES / 2 } {
            false => 1,
            true if to_device || size == Size::Long => most,
            true => few,
        };
        let even = (bytes / (2 * threads)).next_multiple_of(PAGE_BYTES);
        let piece_bytes = even.clamp(MIN_PIECE, size.slot_bytes());
        Some(Self { piece_bytes, threads, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: [usize; 2] = [6, 4];

    fn to_device(bytes: usize) -> Option<Division> {
        Division::of(Transfer::to_device(1 << 20, 1 << 20, bytes), THREADS)
    }

    fn from_device(bytes: usize) -> Option<Division> {
        Division::of(Transfer::from_device(1 << 20, 1 << 20, bytes), THREADS)
    }

    fn parts(division: Option<Division>) -> Option<(usize, usize, Size)> {
        division.map(|division| (division.piece_bytes, division.threads, division.size))
    }

    #[test]
    fn lengths_decide_about_pieces_and_threads() {
        assert_eq!(parts(to_device((64 << 10) + 1)), Some((64 << 10, 1, Size::Small)));
        assert_eq!(parts(from_device((16 << 10) + 1)), Some((64 << 10, 1, Size::Small)));
        assert_eq!(parts(to_device((2 << 20) - 1)), Some((128 << 10, 1, Size::Small)));
        assert_eq!(parts(to_device(2 << 20)), Some((128 << 10, 6, Size::Small)));
        assert_eq!(parts(from_device(1 << 20)), Some((128 << 10, 4, Size::Small)));
        assert_eq!(parts(to_device(4 << 20)), Some((344 << 10, 6, Size::Large)));
        assert_eq!(parts(from_device(4 << 20)), Some((512 << 10, 4, Size::Large)));
        assert_eq!(parts(from_device(32 << 20)), Some((512 << 10, 6, Size::Long)));
    }

    #[test]
    fn without_threads_no_copy_is_staged() {
        assert_eq!(Division::of(Transfer::to_device(1 << 20, 1 << 20, 4 << 20), [0, 0]), None);
    }
}
