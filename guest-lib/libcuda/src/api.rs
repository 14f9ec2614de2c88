// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The state that a call uses.

use virtio_cuda_client::caller::EntryPoint;
use virtio_cuda_client::protocol::{ContextId, StreamId};
use virtio_cuda_client::{Call, Caller, CudaError};

use crate::driver::Driver;
use crate::handles::{self, Kind};
use crate::state::contexts::current;

/// The per-thread default stream as programs pass it (`CU_STREAM_PER_THREAD`).
pub const PER_THREAD: u64 = 2;

/// The stream that 0 stands for: legacy (0) or, in the `_ptsz` and `_ptds` variants, per thread (2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// `CU_STREAM_LEGACY` semantics.
    Legacy,
    /// `CU_STREAM_PER_THREAD`.
    PerThread,
}

/// The state that a call uses after `cuInit`.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// The driver of this process.
    pub driver: &'static Driver,
    /// The meaning of stream 0.
    pub default_stream: DefaultStream,
    caller: Caller,
}

impl Api {
    /// Returns the state for the calls of an entry point.
    pub fn of_entry_point(driver: &'static Driver, default_stream: DefaultStream, entry: EntryPoint) -> Self {
        Self { driver, default_stream, caller: Caller::Program(entry) }
    }

    /// Returns the state for the calls of a thread of this library.
    pub fn of_library(driver: &'static Driver) -> Self {
        Self { driver, default_stream: DefaultStream::Legacy, caller: Caller::Internal }
    }

    /// Returns the state for internal calls: those whose errors the program does not get, or that must be made whatever
    /// happened before.
    pub fn internal(self) -> Self {
        Self { caller: Caller::Internal, ..self }
    }

    /// Returns whose calls these are.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Starts a call in a context.
    pub fn call_in(&self, context: ContextId) -> Call<'static> {
        Call::new(self.driver.session, self.caller).context(context)
    }

    /// Returns the calling thread's current context; 0 if there is none, or it is destroyed.
    pub fn current(&self) -> u64 {
        let context = current();
        if self.driver.contexts.is_destroyed(context) { 0 } else { context }
    }

    /// Starts a call in the calling thread's current context, or in the only one, if there is one.
    pub fn call(&self) -> Call<'static> {
        let context = match self.current() {
            0 => self.driver.contexts.only_one().unwrap_or(0),
            context => context,
        };
        self.call_in(ContextId(context))
    }

    /// Starts a call in the current context. Errors: `CUDA_ERROR_INVALID_CONTEXT` without one.
    pub fn in_context(&self) -> Result<Call<'static>, CudaError> {
        Ok(self.call_in(self.context()?))
    }

    /// Starts a call on a stream: in the current context or, without one, in the stream's own.
    pub fn in_context_of(&self, handle: u64) -> Result<Call<'static>, CudaError> {
        handles::check(Kind::Stream, handle)?;
        let context = match self.current() {
            0 => self.driver.streams.get(handle).map_err(|_| CudaError::INVALID_CONTEXT)?.context,
            context => context,
        };
        Ok(self.call_in(ContextId(context)))
    }

    /// Starts a call on an event: in the current context or, without one, in the event's own.
    pub fn in_context_of_event(&self, handle: u64) -> Result<Call<'static>, CudaError> {
        handles::check(Kind::Event, handle)?;
        let context = match self.current() {
            0 => self.driver.events.get(handle).map_err(|_| CudaError::INVALID_CONTEXT)?.context,
            context => context,
        };
        Ok(self.call_in(ContextId(context)))
    }

    /// Returns the current context. Without one, or if it is destroyed, returns the only existing context: the objects
    /// of the call can have no other (functions that need a current context are refused before, by `states`).
    pub fn context(&self) -> Result<ContextId, CudaError> {
        match self.current() {
            0 => self.driver.contexts.only_one().map(ContextId).ok_or(CudaError::INVALID_CONTEXT),
            context => Ok(ContextId(context)),
        }
    }

    /// Returns the stream that a program's handle stands for.
    ///
    /// Errors: those for handles of other objects.
    pub fn stream(&self, handle: u64) -> Result<StreamId, CudaError> {
        handles::check(Kind::Stream, handle)?;
        Ok(if handle == 0 { self.default_stream() } else { StreamId(handle) })
    }

    /// Returns the context of a stream. CUDA's default streams belong to the current context.
    pub fn context_of_stream(&self, handle: u64) -> Result<u64, CudaError> {
        if handle <= PER_THREAD {
            Ok(self.context()?.0)
        } else {
            Ok(self.driver.streams.get(handle)?.context)
        }
    }

    /// Returns the program's address for a GPU address; the two may differ for host memory.
    pub fn program_address(&self, address: u64) -> u64 {
        let alias = self.driver.memory.ranges.alias(address);
        alias.map_or(address, |range| range.start + (address - range.device_address))
    }

    /// Returns the stream of calls that have no stream parameter.
    pub fn default_stream(&self) -> StreamId {
        match self.default_stream {
            DefaultStream::Legacy => StreamId(0),
            DefaultStream::PerThread => StreamId(PER_THREAD),
        }
    }
}
