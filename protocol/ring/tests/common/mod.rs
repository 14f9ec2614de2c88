// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! A lane in this process's own memory.

use virtio_cuda_ring::layout::Header;
use virtio_cuda_ring::{LANE_BYTES, LaneMemory};

/// Returns memory for a lane that the consumer has not set up. Never freed, because both sides may outlive the test.
pub fn lane() -> (LaneMemory, *mut u8) {
    let layout = std::alloc::Layout::from_size_align(LANE_BYTES, 4096).expect("a valid layout");
    // SAFETY: the layout is not empty.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!base.is_null());
    // SAFETY: room for a header, aligned to a page, used by nobody yet.
    unsafe { base.cast::<Header>().write(Header::default()) };
    // SAFETY: LANE_BYTES bytes that are never freed.
    (unsafe { LaneMemory::new(base) }, base)
}
