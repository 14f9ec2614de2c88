// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The copies of one thread through pinned buffers, by the driver.

use std::ffi::c_void;

use super::digests::{Digest, Key, ROUNDS, THREADS};
use super::room::{CHUNK_BYTES, Room};
use super::transfer::{BUFFERS, Carrier, Carriers};
use crate::gpu::{CUcontext, CUfunction, CUstream, CuResult, CudaError, Driver, HOST_PORTABLE_MAPPED};
use crate::run::marks::may_look_while_others_capture;

/// `CU_STREAM_NON_BLOCKING`: the copies wait for no other stream.
const NON_BLOCKING: u32 = 1;
const BYTES: usize = BUFFERS * CHUNK_BYTES as usize;
/// The number of chunks whose addresses and digests fit into the buffers. Digests begin behind the addresses, at a multiple of
/// their size.
const DIGESTS: usize = BYTES / (size_of::<u64>() + size_of::<Digest>());
const ADDRESSES_BYTES: usize = DIGESTS * size_of::<u64>();

const _: () = assert!(ADDRESSES_BYTES.is_multiple_of(size_of::<Digest>()));

/// Makes threads copy in one context.
#[derive(Clone, Copy, Debug)]
pub struct InContext<'a> {
    /// The driver.
    pub gpu: &'a Driver,
    /// The address of the driver's context, which lives as long as this.
    pub context: usize,
    /// The number of devices that move at the same time, at least one.
    pub devices: usize,
    /// The address of the driver's function that computes digests, of this context.
    pub function: usize,
    /// The key of the digests.
    pub key: Key,
}

impl<'a> Carriers for InContext<'a> {
    type Carrier = Pinned<'a>;

    fn enter(&self) -> CuResult<()> {
        self.gpu.cuCtxSetCurrent(self.context as CUcontext)?;
        may_look_while_others_capture(self.gpu);
        Ok(())
    }

    fn carrier(&self) -> CuResult<Pinned<'a>> {
        self.enter()?;
        Pinned::new(*self)
    }

    fn devices(&self) -> usize {
        self.devices
    }

    fn zeros(&self) -> Digest {
        self.key.zeros
    }
}

/// Pinned buffers, each with a stream.
///
/// # Invariants
///
/// `base` is the address of a mapping of [`BYTES`] bytes that this value owns, and that is registered with the driver.
/// Only the copies of a buffer's own stream use the buffer.
#[derive(Debug)]
pub struct Pinned<'a> {
    gpu: &'a Driver,
    function: usize,
    key: Key,
    base: usize,
    streams: Vec<CUstream>,
}

impl<'a> Pinned<'a> {
    fn new(InContext { gpu, function, key, .. }: InContext<'a>) -> CuResult<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        // SAFETY: the new mapping, which stays until it is unregistered.
        if let Err(error) = unsafe { gpu.cuMemHostRegister_v2(base, BYTES, HOST_PORTABLE_MAPPED) } {
            // SAFETY: the new mapping, which nobody uses.
            unsafe { libc::munmap(base, BYTES) };
            return Err(error);
        }
        let mut new = Self { gpu, function, key, base: base as usize, streams: Vec::with_capacity(BUFFERS) };
        for _ in 0..BUFFERS {
            new.streams.push(gpu.cuStreamCreateWithPriority(NON_BLOCKING, 0)?.0);
        }
        Ok(new)
    }

    /// Starts a copy of a chunk to another place of the device. [`Carrier::finish`] waits for it.
    ///
    /// # Safety
    ///
    /// Both must be the session's memory or this thread's own, and mapped until the copy has ended.
    pub unsafe fn copy(&mut self, to: u64, from: u64) -> CuResult<()> {
        // SAFETY: the caller vouches for the memory at both ends.
        unsafe { self.gpu.cuMemcpyAsync(to, from, CHUNK_BYTES as usize, self.streams[0]) }
    }

    fn buffer(&self, index: usize) -> *mut u8 {
        assert!(index < BUFFERS, "a buffer of this value");
        (self.base + index * CHUNK_BYTES as usize) as *mut u8
    }
}

impl Carrier for Pinned<'_> {
    unsafe fn fetch(&mut self, buffer: usize, address: u64) -> CuResult<()> {
        // SAFETY: the buffer is as long as a chunk, and only this stream uses it (invariants); the caller vouches for the rest.
        unsafe {
            let place = self.buffer(buffer).cast();
            self.gpu.cuMemcpyDtoHAsync_v2(place, address, CHUNK_BYTES as usize, self.streams[buffer])
        }
    }

    unsafe fn send(&mut self, buffer: usize, address: u64) -> CuResult<()> {
        // SAFETY: as in `fetch`.
        unsafe {
            let place = self.buffer(buffer).cast_const().cast();
            self.gpu.cuMemcpyHtoDAsync_v2(address, place, CHUNK_BYTES as usize, self.streams[buffer])
        }
    }

    unsafe fn clear(&mut self, address: u64) -> CuResult<()> {
        // SAFETY: the caller vouches for a chunk of the session's memory.
        unsafe { self.gpu.cuMemsetD8Async(address, 0, CHUNK_BYTES as usize, self.streams[0]) }
    }

    unsafe fn fetch_to(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()> {
        let (place, bytes) = (room.address() as *mut c_void, chunks * CHUNK_BYTES as usize);
        // SAFETY: the caller vouches for the memory at both ends.
        unsafe { self.gpu.cuMemcpyDtoHAsync_v2(place, address, bytes, self.streams[0]) }
    }

    unsafe fn send_from(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()> {
        let (place, bytes) = (room.address() as *const c_void, chunks * CHUNK_BYTES as usize);
        // SAFETY: as in `fetch_to`.
        unsafe { self.gpu.cuMemcpyHtoDAsync_v2(address, place, bytes, self.streams[0]) }
    }

    fn finish(&mut self) -> CuResult<()> {
        self.streams.iter().try_for_each(|&stream| self.gpu.cuStreamSynchronize(stream))
    }

    unsafe fn digests(&mut self, addresses: &[u64]) -> CuResult<Vec<Digest>> {
        // SAFETY: registered memory of this value (invariant).
        let (place,) = unsafe { self.gpu.cuMemHostGetDevicePointer_v2(self.base as *mut _, 0) }?;
        let mut digests = Vec::new();
        digests.try_reserve_exact(addresses.len()).map_err(|_| CudaError::OUT_OF_MEMORY)?;
        for some in addresses.chunks(DIGESTS) {
            let (mut list, mut results, mut rounds) = (place, place + ADDRESSES_BYTES as u64, ROUNDS);
            let [mut low, mut high] = self.key.words;
            let mut parameters: [*mut c_void; 5] = [
                (&raw mut list).cast(),
                (&raw mut results).cast(),
                (&raw mut rounds).cast(),
                (&raw mut low).cast(),
                (&raw mut high).cast(),
            ];
            let (stream, function) = (self.streams[0], self.function as CUfunction);
            let (count, parameters) = (some.len() as u32, parameters.as_mut_ptr());
            let none = std::ptr::null_mut();
            // SAFETY: the buffers are this value's, and no copy uses them (`Carrier::digests`). They have room for `DIGESTS`
            // addresses and digests. The kernel has these parameters, reads the chunks that the caller vouches for, and writes
            // one digest for each; it has ended before the digests are read.
            unsafe {
                std::ptr::copy_nonoverlapping(some.as_ptr(), self.base as *mut u64, some.len());
                self.gpu.cuLaunchKernel(function, count, 1, 1, THREADS, 1, 1, 0, stream, parameters, none)?;
                self.gpu.cuStreamSynchronize(stream)?;
                let made = (self.base + ADDRESSES_BYTES) as *const Digest;
                digests.extend_from_slice(std::slice::from_raw_parts(made, some.len()));
            }
        }
        Ok(digests)
    }

    fn wait(&mut self, buffer: usize) -> CuResult<&mut [u8]> {
        self.gpu.cuStreamSynchronize(self.streams[buffer])?;
        // SAFETY: the buffer is this value's (invariants), its copies have ended, and none begins while it is borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.buffer(buffer), CHUNK_BYTES as usize) })
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let waited = self.streams.iter().map(|&stream| self.gpu.cuStreamSynchronize(stream).is_ok());
        let is_idle = waited.filter(|waited| !waited).count() == 0;
        for stream in self.streams.drain(..) {
            let _ = self.gpu.cuStreamDestroy_v2(stream);
        }
        let base = self.base as *mut _;
        // After an error the device may still use the memory, so it stays mapped.
        // SAFETY: the mapping is this value's (invariant), and no copy uses it.
        unsafe {
            if is_idle && self.gpu.cuMemHostUnregister(base).is_ok() {
                libc::munmap(base, BYTES);
            }
        }
    }
}
