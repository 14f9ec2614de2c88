// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time and memory that a case may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Generous, for slow and busy machines.
const TIME: Duration = Duration::from_secs(20);
/// Bytes that a case may have allocated at a time: some for any, and so many for each of its own.
const MEMORY: (usize, usize) = (96 << 20, 4 << 10);

thread_local! {
    /// The bytes that this thread holds, and the maximum so far.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread allocates.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: only counts, and leaves the work to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the contract of `GlobalAlloc` is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the contract of `GlobalAlloc` is that of the system's allocator; the place is from it.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Runs a case of `bytes`. If it panics or takes too much, the bytes are stored in a file, and the message contains
/// its name.
pub fn within_limits(name: &str, bytes: &[u8], case: impl FnOnce()) {
    let start = Instant::now();
    let before = HELD.get();
    PEAK.set(before);
    let result = catch_unwind(AssertUnwindSafe(case));
    let (took, most) = (start.elapsed(), (PEAK.get() - before) as usize);
    let limit = MEMORY.0 + MEMORY.1 * bytes.len();
    if result.is_ok() && took < TIME && most < limit {
        return;
    }
    let file = std::env::temp_dir().join(format!("{}.bin", name.replace(' ', "-")));
    let _ = std::fs::write(&file, bytes);
    eprintln!("{name}: {took:?}, {most} bytes of memory; its bytes are in {}", file.display());
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    panic!("{name} takes more than {TIME:?} or {limit} bytes");
}
