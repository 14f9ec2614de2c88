// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The marks and groups of the order between lanes (crate `virtio-cuda-ring`) for the things of CUDA.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use virtio_cuda_protocol::cuda::HANDLE_STEP;
use virtio_cuda_ring::{Order, Turn};

use super::{Extent, LEGACY_STREAMS, Memory, NON_BLOCKING_STREAM, PER_THREAD_STREAM, Touched};

/// The number of marks for objects. Streams, events and graphs share them by their handles; contexts have marks of their own.
/// Objects with the same mark depend on each other without need.
const OBJECTS: usize = 512;
pub const CONTEXTS: usize = 16;

// Marks: first those of objects.
/// The last posted work of the legacy default stream, by context.
const LEGACY: usize = OBJECTS;
/// The last posted copy that counts as done when its call returns, by context.
const COPIES: usize = LEGACY + CONTEXTS;
/// The last posted call that may use anything.
const FENCE: usize = COPIES + CONTEXTS;
const MARKS: usize = FENCE + 1;

// Groups of posted calls: all, those of a context, those of its blocking streams.
const ALL: usize = 0;
const WORK: usize = 1;
const BLOCKING: usize = WORK + CONTEXTS;
const GROUPS: usize = BLOCKING + CONTEXTS;

/// The order of this process's lanes.
pub static ORDER: LazyLock<Order> = LazyLock::new(order);
/// An order for the marks and groups of this file.
pub fn order() -> Order {
    Order::new(MARKS, GROUPS)
}

/// Contexts (bit by bit) whose streams have a mark: a call may use a stream of a context that is not current.
pub static HOMES: [AtomicU32; OBJECTS] = [const { AtomicU32::new(0) }; OBJECTS];
/// Contexts (bit by bit) in which copies were posted that count as done when their call returns.
static COPIERS: AtomicU32 = AtomicU32::new(0);
/// Kernels may use memory of other contexts.
pub static PEERS: AtomicBool = AtomicBool::new(false);
/// Contexts may have streams in common.
pub static CONTEXTS_OVERLAP: AtomicBool = AtomicBool::new(false);
/// Graphs may record events, or wait for them.
pub static GRAPHS_USE_EVENTS: AtomicBool = AtomicBool::new(false);

/// Returns the mark of an object.
pub fn mark_of(handle: u64) -> usize {
    (handle / HANDLE_STEP) as usize % OBJECTS
}

/// Sets bits that other threads read after a call of this one has returned.
pub fn set_bits(bits: &AtomicU32, new: u32) {
    // Mostly they are set already, and a read leaves the cache line with all threads.
    if bits.load(Ordering::Relaxed) & new != new {
        bits.fetch_or(new, Ordering::Relaxed);
    }
}

/// Returns the contexts whose bits are set.
fn contexts(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (next < CONTEXTS).then_some(next)
    })
}

impl Touched {
    fn is_legacy(&self) -> bool {
        self.stream.is_some_and(|stream| LEGACY_STREAMS.contains(&stream))
    }

    fn is_blocking(&self) -> bool {
        self.stream.is_some_and(|stream| stream <= PER_THREAD_STREAM || stream & NON_BLOCKING_STREAM == 0)
    }

    /// Returns whether later work of the legacy default stream may have to wait for the call's.
    pub fn delays_legacy(&self) -> bool {
        !matches!(self.extent, Extent::Objects(_)) || self.is_blocking()
    }

    /// Contexts, as bits, to which the call's stream may belong.
    fn homes(&self) -> u32 {
        if CONTEXTS_OVERLAP.load(Ordering::Relaxed) {
            return u32::MAX;
        }
        let of_stream = self
            .stream
            .filter(|&stream| stream > PER_THREAD_STREAM)
            .map_or(0, |stream| HOMES[mark_of(stream)].load(Ordering::Relaxed));
        of_stream | 1 << self.context
    }

    /// Fills in the marks that a posted call leaves. Returns their number.
    fn marks(&self, marks: &mut [usize; 4]) -> usize {
        let mut count = 0;
        let mut push = |mark| {
            marks[count] = mark;
            count += 1;
        };
        if !matches!(self.extent, Extent::Objects(_)) {
            push(FENCE);
            return count;
        }
        self.objects[..self.count].iter().for_each(|&mark| push(mark));
        if self.is_legacy() {
            push(LEGACY + self.context);
        }
        if self.immediate {
            set_bits(&COPIERS, 1 << self.context);
            push(COPIES + self.context);
        }
        count
    }

    /// Begins the call's record in lane `own`.
    pub fn begin<'a>(&self, order: &'a Order, own: Option<u32>, posted: bool) -> Turn<'a> {
        let mut marks = [0; 4];
        let count = if posted { self.marks(&mut marks) } else { 0 };
        let mut turn = order.begin(own, &marks[..count]);
        if self.extent != Extent::Nothing {
            turn.after(FENCE);
        }
        let overlap = CONTEXTS_OVERLAP.load(Ordering::Relaxed);
        let group = |group: usize| if overlap { ALL } else { group + self.context };
        let memory = match self.extent {
            Extent::Objects(memory) => memory,
            Extent::Context => {
                turn.after_group(group(WORK));
                return turn;
            }
            Extent::Everything => {
                turn.after_group(ALL);
                return turn;
            }
            Extent::Nothing => return turn,
        };
        if !posted {
            self.objects[..self.count].iter().for_each(|&mark| turn.after(mark));
        }
        if self.is_legacy() {
            turn.after_group(group(BLOCKING));
        } else if self.is_blocking() {
            contexts(self.homes()).for_each(|home| turn.after(LEGACY + home));
        }
        match memory {
            Memory::None => {}
            Memory::OfContext if !PEERS.load(Ordering::Relaxed) => turn.after(COPIES + self.context),
            _ => contexts(COPIERS.load(Ordering::Relaxed)).for_each(|copier| turn.after(COPIES + copier)),
        }
        turn
    }

    /// The posted record lies in its lane and ends at `bytes`.
    pub fn publish(&self, turn: Turn<'_>, bytes: u64) {
        let groups = [ALL, WORK + self.context, BLOCKING + self.context];
        let everything = !matches!(self.extent, Extent::Objects(_));
        turn.publish(bytes, if everything || self.is_blocking() { &groups } else { &groups[..2] });
    }
}
