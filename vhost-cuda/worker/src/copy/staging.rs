// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned buffers through which guest pages are copied.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use log::debug;
use parking_lot::Mutex;

use super::super::gpu::{CuResult, CudaError};
use super::dma::{Dma, Mark};

/// The size of one buffer in bytes. At this size the link nearly reaches its full speed, and the buffers of a copy
/// fit the CPU's cache.
pub const BUFFER_BYTES: usize = 512 << 10;
/// The number of buffers that are allocated at a time, in one huge page where the kernel has one.
const SLAB_BUFFERS: usize = 4;
const SLAB_BYTES: usize = SLAB_BUFFERS * BUFFER_BYTES;
/// The maximum number of a session's buffers (32 MiB). Beyond it each copy gets only `MIN_SHARE` buffers.
const MAX_BUFFERS: usize = 64;
/// The number of buffers that a copy needs to make progress, so that no copy waits for the stream of another one.
const MIN_SHARE: usize = 2;
/// The maximum number of buffers that are free but still wait for the GPU.
const MAX_PENDING: usize = MAX_BUFFERS / 2;

/// Memory of buffers, aligned to its own size.
///
/// # Invariants
///
/// `base` is the address of a mapping of `SLAB_BYTES` bytes, owned by this value.
#[derive(Debug)]
struct Slab {
    base: usize,
}

impl Slab {
    fn new() -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that replaces nothing; what is cut off was made here.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 2 * SLAB_BYTES, protection, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = at as usize;
            let base = start.next_multiple_of(SLAB_BYTES);
            if base > start {
                libc::munmap(at, base - start);
            }
            libc::munmap((base + SLAB_BYTES) as *mut _, start + SLAB_BYTES - base);
            // A hint that saves entries in the page tables of CPU and GPU.
            libc::madvise(base as *mut _, SLAB_BYTES, libc::MADV_HUGEPAGE);
            Ok(Self { base })
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's (invariant), and no buffer in it is left.
        unsafe { libc::munmap(self.base as *mut _, SLAB_BYTES) };
    }
}

/// A pinned buffer of [`BUFFER_BYTES`], owned by the holder of the value.
#[derive(Debug)]
pub struct Buffer {
    slab: Arc<Slab>,
    index: usize,
    context: u64,
    generation: u64,
    mark: Option<Mark>,
    /// True if the GPU may use the buffer until the mark is reached.
    pending: bool,
}

impl Buffer {
    /// Returns the address of its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        (self.slab.base + self.index * BUFFER_BYTES) as *mut u8
    }

    /// Notes that the GPU uses the buffer until all copies that were started are done.
    ///
    /// Errors: the end of the GPU's use remains unknown, so the buffer must be abandoned.
    pub fn mark(&mut self, dma: &impl Dma) -> CuResult<()> {
        let mark = match self.mark {
            Some(mark) => mark,
            None => dma.create()?,
        };
        self.mark = Some(mark);
        dma.record(mark)?;
        self.pending = true;
        Ok(())
    }

    /// Returns whether the GPU no longer uses it.
    pub fn is_free(&mut self, dma: &impl Dma) -> bool {
        self.pending = self.pending && !self.mark.is_some_and(|mark| dma.is_done(mark));
        !self.pending
    }

    /// Waits until the GPU no longer uses it.
    pub fn wait(&mut self, dma: &impl Dma) -> CuResult<()> {
        if let (true, Some(mark)) = (self.pending, self.mark) {
            dma.wait(mark)?;
        }
        self.pending = false;
        Ok(())
    }

    /// Leaks the buffer's memory, because it is unknown whether the GPU still uses it.
    pub fn abandon(self) {
        std::mem::forget(self.slab);
    }
}

/// Free buffers of one context.
#[derive(Debug, Default)]
struct Pool {
    generation: u64,
    free: VecDeque<Buffer>,
}

#[derive(Debug, Default)]
struct State {
    pools: HashMap<u64, Pool>,
    /// The number of existing buffers.
    made: usize,
    generations: u64,
}

/// The session's buffers, by context. Memory is no longer pinned when the context that pinned it ends.
#[derive(Debug, Default)]
pub struct Staging {
    state: Mutex<State>,
    copies: AtomicUsize,
}

/// The buffers that one copy may use.
#[derive(Debug)]
pub struct Share<'a> {
    staging: &'a Staging,
    context: u64,
    held: usize,
    most: usize,
}

impl Staging {
    /// Begins a copy in the context named `context`, which is current, with at most `most` buffers at once.
    pub fn share(&self, context: u64, most: usize) -> Share<'_> {
        self.copies.fetch_add(1, Ordering::Relaxed);
        Share { staging: self, context, held: 0, most: most.max(MIN_SHARE) }
    }

    /// Forgets the buffers of a context that has ended. Those in use are freed when they are returned.
    pub fn forget_context(&self, context: u64) {
        let mut state = self.state.lock();
        if let Some(pool) = state.pools.remove(&context) {
            state.made -= pool.free.len();
        }
    }

    /// Returns a free buffer that the GPU no longer uses.
    fn find(&self, dma: &impl Dma, context: u64) -> Option<Buffer> {
        let mut state = self.state.lock();
        let free = &mut state.pools.get_mut(&context)?.free;
        // The oldest first: it is done, unless its stream is busy.
        let index = (0..free.len()).find(|&index| free[index].is_free(dma))?;
        free.remove(index)
    }

    /// Allocates buffers, and returns one of them, or `None` at the maximum number.
    fn make(&self, dma: &impl Dma, context: u64, needed: bool) -> CuResult<Option<Buffer>> {
        if !needed && self.state.lock().made >= MAX_BUFFERS {
            return Ok(None);
        }
        let slab = Slab::new().map_err(|error| {
            debug!("no memory for staging: {error}");
            CudaError::OUT_OF_MEMORY
        })?;
        // SAFETY: the slab is mapped while one of its buffers exists; those of a context are dropped after it.
        unsafe { dma.pin(slab.base as *mut u8, SLAB_BYTES) }?;
        let slab = Arc::new(slab);
        let mut state = self.state.lock();
        state.made += SLAB_BUFFERS;
        state.generations += 1;
        let next = state.generations;
        let pool = state.pools.entry(context).or_insert_with(|| Pool { generation: next, ..Pool::default() });
        let generation = pool.generation;
        let buffer =
            |index| Buffer { slab: slab.clone(), index, context, generation, mark: None, pending: false };
        // New ones are put at the front, so that they are used before those that are done already.
        for index in 1..SLAB_BUFFERS {
            pool.free.push_front(buffer(index));
        }
        Ok(Some(buffer(0)))
    }

    fn give_back(&self, buffer: Buffer) {
        let mut state = self.state.lock();
        match state.pools.get_mut(&buffer.context) {
            Some(pool) if pool.generation == buffer.generation => pool.free.push_back(buffer),
            _ => state.made -= 1,
        }
    }

    fn pending(&self, context: u64) -> usize {
        let state = self.state.lock();
        state.pools.get(&context).map_or(0, |pool| pool.free.iter().filter(|buffer| buffer.pending).count())
    }
}

#[cfg(test)]
impl Staging {
    /// Returns the number of existing buffers, and of free ones.
    pub fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.made, state.pools.values().map(|pool| pool.free.len()).sum())
    }
}

impl Share<'_> {
    /// Returns the number of buffers that this copy may hold now. It is smaller while others copy, too.
    fn allowance(&self) -> usize {
        let copies = self.staging.copies.load(Ordering::Relaxed).max(1);
        self.most.min(MAX_BUFFERS / copies).max(MIN_SHARE)
    }

    /// Returns a buffer that the GPU does not use, or `None` if this copy must make do with those that it holds.
    ///
    /// Errors: the memory cannot be allocated or pinned.
    pub fn take(&mut self, dma: &impl Dma) -> CuResult<Option<Buffer>> {
        if self.held >= self.allowance() {
            return Ok(None);
        }
        let buffer = match self.staging.find(dma, self.context) {
            Some(buffer) => Some(buffer),
            None => self.staging.make(dma, self.context, self.held < MIN_SHARE)?,
        };
        self.held += usize::from(buffer.is_some());
        Ok(buffer)
    }

    /// Returns whether a buffer should be returned rather than reused.
    pub fn has_too_many(&self) -> bool {
        self.held > self.allowance()
    }

    /// Returns a buffer, which the GPU may still use if it is marked.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.held -= 1;
        self.staging.give_back(buffer);
    }

    /// Abandons a buffer (see [`Buffer::abandon`]).
    pub fn abandon(&mut self, buffer: Buffer) {
        self.held -= 1;
        buffer.abandon();
    }

    /// Returns whether this copy must wait for its own buffers before it returns them. Otherwise streams that are
    /// busy for a long time would get all of them.
    pub fn must_wait(&self) -> bool {
        self.staging.pending(self.context) + self.held > MAX_PENDING
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.staging.copies.fetch_sub(1, Ordering::Relaxed);
    }
}
