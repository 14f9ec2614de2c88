// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One call: heads, arguments and bulk are put together, and the reply taken apart.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use cuda_environment::speed;
use virtio_cuda_protocol::cuda::table::{MAX_ARGS, MAX_RESULTS};
use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CALL_INTERNAL, CALL_OUT_INLINE, CallHeader, ContextId, Malformed, Opcode, Overflow,
    Reader, ResultHeader, Writer,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::reply::Answer;
use crate::touched::Touched;
use crate::transport::{Request, UserMemory};
use crate::{
    Caller, ClientError, CudaError, Session, broken, caller, calls, changes, idle, lane, output, process,
    thread, trace,
};

/// Bulk up to this many bytes travels in the payload of a request: copying it is cheaper than pinning its pages.
pub const INLINE_BYTES: usize = 32 << 10;
/// Room for heads, arguments and results beside inline bulk.
const ROW_BYTES: usize = 1 << 10;
const _: () = assert!(
    CALL_HEADER_BYTES + MAX_ARGS <= ROW_BYTES && size_of::<ResultHeader>() + MAX_RESULTS <= ROW_BYTES
);
const BUFFER_BYTES: usize = ROW_BYTES + lane::INLINE_BYTES;
const CALL_HEADER_BYTES: usize = size_of::<CallHeader>();

struct Buffers {
    payload: [u8; BUFFER_BYTES],
    reply: [u8; BUFFER_BYTES],
}

/// Sets of buffers that a thread keeps: one for a call, one for the wait within it.
const KEPT_BUFFERS: usize = 2;

thread_local! {
    // Taken while in use, so that a call made from within a call (output, a wait) gets its own.
    static BUFFERS: Cell<[Option<Box<Buffers>>; KEPT_BUFFERS]> = const { Cell::new([const { None }; KEPT_BUFFERS]) };
}

fn take_buffers() -> Box<Buffers> {
    let kept = BUFFERS.try_with(|cell| {
        let mut kept = cell.take();
        let found = kept.iter_mut().find_map(Option::take);
        cell.set(kept);
        found
    });
    // Once the thread's locals are destroyed, every call allocates.
    kept.ok()
        .flatten()
        .unwrap_or_else(|| Box::new(Buffers { payload: [0; BUFFER_BYTES], reply: [0; BUFFER_BYTES] }))
}

fn put_back_buffers(buffers: Box<Buffers>) {
    let _ = BUFFERS.try_with(|cell| {
        let mut kept = cell.take();
        if let Some(place) = kept.iter_mut().find(|place| place.is_none()) {
            *place = Some(buffers);
        }
        cell.set(kept);
    });
}

/// The transport of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the thread's lane if possible, and always after everything that was posted.
    Any,
    /// Through the lane if possible, at once.
    Unordered,
    /// Through the request queue, at once.
    Direct,
}

/// Writes bulk input into a buffer.
struct Write<'s>(&'s dyn Fn(&mut [u8]));

impl fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Write")
    }
}

/// A call in the making; [`crate::calls`] completes it.
#[derive(Debug)]
pub struct Call<'s> {
    session: &'s Session,
    caller: Caller,
    /// The slices that `input` and `output` may be of.
    slices: PhantomData<&'s mut [u8]>,
    context: ContextId,
    input: UserMemory,
    /// Writes the input, which then has a length only.
    write: Option<Write<'s>>,
    output: UserMemory,
    keep: bool,
    track: bool,
    read_only: bool,
    /// The bits of the program's API call, if another thread makes it.
    traced: Option<u32>,
    posted: bool,
    /// The results of a posted call, as they would be encoded.
    results: &'s [u8],
    immediate: bool,
    way: Way,
    tag: u64,
    output_bytes: usize,
}

/// A row of the call table with the arguments of one call.
struct Row<'t, P, T> {
    opcode: Opcode,
    touched: &'t Touched,
    /// Writes the arguments.
    put: P,
    /// Reads the results.
    take: T,
}

/// Whether the bulk travels in the payload and in the reply.
#[derive(Clone, Copy, Debug)]
struct Inline {
    input: bool,
    output: bool,
}

impl<'s> Call<'s> {
    /// Starts a call.
    pub fn new(session: &'s Session, caller: Caller) -> Self {
        Self {
            session,
            caller,
            slices: PhantomData,
            context: ContextId(0),
            input: UserMemory::NONE,
            write: None,
            output: UserMemory::NONE,
            keep: false,
            track: false,
            read_only: false,
            traced: None,
            posted: false,
            results: &[],
            immediate: false,
            way: Way::Any,
            tag: 0,
            output_bytes: 0,
        }
    }

    /// Starts a call that no entry point makes for the program.
    pub fn internal(session: &'s Session) -> Self {
        Self::new(session, Caller::Internal)
    }

    /// Sets the context that is current in the calling thread.
    pub fn context(mut self, context: ContextId) -> Self {
        self.context = context;
        self
    }

    /// Sets the bulk input.
    pub fn input(mut self, bytes: &'s [u8]) -> Self {
        self.input = UserMemory::of(bytes);
        self
    }

    /// Sets the bulk output.
    pub fn output(mut self, bytes: &'s mut [u8]) -> Self {
        self.output = UserMemory::of_mut(bytes);
        self
    }

    /// Sets the bulk input: `bytes` bytes that `write` puts into the call's buffer, which is zeroed before.
    pub fn input_with(mut self, bytes: usize, write: &'s dyn Fn(&mut [u8])) -> Self {
        self.input = UserMemory { address: 0, bytes };
        self.write = Some(Write(write));
        self
    }

    /// Sets the bulk input: memory of the program.
    ///
    /// # Safety
    /// Until this value is dropped, the memory stays readable. Other threads may write it: then the device gets some of
    /// the bytes.
    pub unsafe fn input_at(mut self, memory: UserMemory) -> Self {
        self.input = memory;
        self
    }

    /// Sets the bulk output: memory of the program.
    ///
    /// # Safety
    /// Until this value is dropped, the memory stays writable, and no reference to it is used.
    pub unsafe fn output_at(mut self, memory: UserMemory) -> Self {
        self.output = memory;
        self
    }

    /// Sets the pages, page aligned, that the device keeps until [`crate::order::unpin`] of [`Call::tag`].
    ///
    /// # Safety
    /// Until then the device may read and write the pages, so this library uses them through raw pointers only.
    pub unsafe fn keep(mut self, memory: UserMemory) -> Self {
        self.output = memory;
        self.keep = true;
        self
    }

    /// With [`Call::keep`]: the program may unmap the pages at any time; [`crate::transport::Transport::is_fresh`] reports it.
    pub fn tracked(mut self) -> Self {
        self.track = true;
        self
    }

    /// With [`Call::keep`]: the device only reads the pages, so that the program need not be able to write them.
    pub fn to_read(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Does not wait for a call of the program, if possible. It is executed after all earlier calls of this thread, and before
    /// all calls that use the same things and begin after this one has returned. A later call of the program returns its error.
    /// For rows without results, or with [`Self::results`]. An internal call waits, because nothing else would return its error.
    pub fn posted(self) -> Self {
        self.posted_if(true)
    }

    /// As [`Self::posted`], if `may_post`.
    pub fn posted_if(mut self, may_post: bool) -> Self {
        self.posted |= may_post && !self.caller.is_internal() && speed::is_on();
        self
    }

    /// Sets the encoded results with which the call returns if it is posted.
    pub fn results(mut self, results: &'s [u8]) -> Self {
        self.results = results;
        self
    }

    /// As [`Self::posted`], for an internal call whose failure changes nothing: no call returns its error.
    pub fn unwatched(mut self) -> Self {
        self.posted = speed::is_on();
        self.caller = Caller::Internal;
        self
    }

    /// The program may count the call as done when it returns: all later calls come after it, in any stream.
    pub fn immediate(mut self) -> Self {
        self.immediate = true;
        self
    }

    /// Goes through the request queue and ignores posted calls: see [`crate::order`].
    pub fn direct(mut self) -> Self {
        self.way = Way::Direct;
        self
    }

    /// Goes through the thread's lane if it has one, and ignores posted calls.
    pub fn unordered(mut self) -> Self {
        self.way = Way::Unordered;
        self
    }

    /// Belongs to the API call of another thread, which got these bits of [`trace::flags`].
    pub fn traced(mut self, flags: u32) -> Self {
        self.traced = Some(flags);
        self
    }

    /// After a call with [`Call::keep`]: returns the tag of the kept pages.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// After the call: returns the bytes of inline bulk output that the device wrote. Output longer than
    /// [`INLINE_BYTES`] is written whole or the call fails.
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Returns the things that the call with number `opcode` uses, except those that its arguments name.
    pub(crate) fn touched(&self, opcode: Opcode) -> Touched {
        Touched::of(opcode, self.context.0, self.immediate)
    }

    /// Sends the call of number `opcode`, which uses `touched`; `put` writes the arguments and `take` reads the results.
    pub(crate) fn run<T>(
        &mut self,
        opcode: Opcode,
        touched: &Touched,
        put: impl FnOnce(&mut Writer<'_>) -> Result<(), Overflow>,
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CudaError> {
        process::check()?;
        if !self.caller.is_internal() {
            caller::take_left()?;
        }
        // A worker of an older release would answer the same, but to a posted call too late.
        if !self.session.knows(opcode) {
            return Err(CudaError::NOT_SUPPORTED);
        }
        debug_assert!(!self.posted || opcode.facts().is_postable(), "{} may not be posted", opcode.name());
        changes::count_in_captures(self.caller);
        idle::begin(opcode, self.posted, touched);
        let (mut buffers, ended) = (take_buffers(), broken::ended());
        let outcome = self.exchange(&mut buffers, Row { opcode, touched, put, take });
        put_back_buffers(buffers);
        // Not before: another thread that waits for everything meanwhile would count it as done.
        idle::count(opcode, self.posted, touched);
        changes::count(opcode);
        let result = match outcome {
            Ok(Answer { result, flags }) => {
                // The call that fetches the output announces the rest in its results.
                if flags != 0 && opcode != Opcode::session_output {
                    output::forward(self.session, flags);
                }
                log::trace!("{}: {:?}", opcode.name(), result.as_ref().err());
                result
            }
            Err(error) => Err(self.session.failed(opcode, error)),
        };
        result.inspect_err(|&error| {
            if error.breaks_context() {
                self.note_broken(opcode, error, ended);
            }
        })
    }

    /// Notes that the call's context is broken, if it is: the call may have been about a stream or an event of another one.
    #[cold]
    fn note_broken(&self, opcode: Opcode, error: CudaError, ended: u64) {
        if self.context.0 == 0 || broken::error_of(self.context.0).is_some() {
            return;
        }
        if opcode == Opcode::cuCtxGetStreamPriorityRange || self.session.check().is_err() {
            broken::note(self.context, error, ended);
        } else {
            // Has no effect, and comes here if it fails as well.
            let _ =
                calls::cuCtxGetStreamPriorityRange(&mut Self::internal(self.session).context(self.context));
        }
    }

    fn exchange<T, Put, Take>(
        &mut self,
        buffers: &mut Buffers,
        row: Row<'_, Put, Take>,
    ) -> Result<Answer<T>, ClientError>
    where
        Put: FnOnce(&mut Writer<'_>) -> Result<(), Overflow>,
        Take: FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    {
        self.session.check()?;
        let lane = if self.way == Way::Direct { None } else { lane::take(self.session) };
        let limit = if lane.is_some() { lane::INLINE_BYTES } else { self.inline_limit() };
        let inline = self.inline(limit);
        if let Some(mut lane) = lane
            && inline.input
            && inline.output
        {
            return self.through_lane(&mut lane, buffers, row);
        }
        let mut flags = 0;
        if self.way == Way::Any {
            let Answer { result, flags: announced } =
                lane::order(self.session, Some(row.touched), self.caller);
            if let Err(error) = result {
                return Ok(Answer { result: Err(error), flags: announced });
            }
            flags = announced;
        }
        let mut answer = self.through_queue(buffers, row)?;
        answer.flags |= flags;
        Ok(answer)
    }

    /// Returns which of the bulk is at most `limit` bytes, so that it need not be pinned.
    fn inline(&self, limit: usize) -> Inline {
        Inline { input: self.input.bytes <= limit, output: !self.keep && self.output.bytes <= limit }
    }

    /// Maximum bulk bytes in the payload of a request.
    fn inline_limit(&self) -> usize {
        INLINE_BYTES.min(self.session.limits().payload_bytes.saturating_sub(ROW_BYTES))
    }

    fn through_lane<T, Put, Take>(
        &mut self,
        lane: &mut lane::InUse,
        buffers: &mut Buffers,
        row: Row<'_, Put, Take>,
    ) -> Result<Answer<T>, ClientError>
    where
        Put: FnOnce(&mut Writer<'_>) -> Result<(), Overflow>,
        Take: FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    {
        let Row { opcode, touched, put, take } = row;
        let inline = Inline { input: true, output: true };
        let bytes = self.write_payload(&mut buffers.payload, opcode, inline, put)?;
        let payload = &buffers.payload[..bytes];
        // An error of an earlier call is fetched by one of the program that waits.
        if self.posted && (self.caller.is_internal() || !lane.has_deferred_error()) {
            lane.post(self.session, payload, touched)?;
            let value = take(&mut Reader::new(self.results)).map_err(|Malformed| ClientError::Protocol)?;
            return Ok(Answer::of(Ok(value)));
        }
        let bytes = lane.call(self.session, payload, touched, &mut buffers.reply)?;
        let reply = buffers.reply.get(..bytes).ok_or(ClientError::Protocol)?;
        Answer::read(reply, take, |bulk| self.take_output(bulk, inline))
    }

    fn through_queue<T, Put, Take>(
        &mut self,
        buffers: &mut Buffers,
        row: Row<'_, Put, Take>,
    ) -> Result<Answer<T>, ClientError>
    where
        Put: FnOnce(&mut Writer<'_>) -> Result<(), Overflow>,
        Take: FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    {
        let inline = self.inline(self.inline_limit());
        let payload_bytes = self.write_payload(&mut buffers.payload, row.opcode, inline, row.put)?;
        let reply_room = BUFFER_BYTES.min(self.session.limits().payload_bytes);
        // Longer than the results of any row; the bound of a payload is the host's, though.
        let mut written = Vec::new();
        let input = match &self.write {
            _ if inline.input => UserMemory::NONE,
            Some(Write(write)) => {
                written.resize(self.input.bytes, 0);
                write(&mut written);
                UserMemory::of(&written)
            }
            None => self.input,
        };
        let permit = self.session.outstanding();
        let request = Request {
            payload: &buffers.payload[..payload_bytes],
            reply: &mut buffers.reply[..reply_room],
            input,
            output: if inline.output { UserMemory::NONE } else { self.output },
            keep: self.keep,
            track: self.track,
            read_only: self.read_only,
            thread: thread::number(),
            delivers_output: |reply| {
                ResultHeader::read_from_prefix(reply).is_ok_and(|(header, _)| header.result == 0)
            },
        };
        // SAFETY: `input` and `output` are memory of slices that `'s` keeps, or fulfil the contracts of `input_at`,
        // `output_at` and `keep`.
        let reply = unsafe { self.session.transport().call(request) }?;
        drop(permit);
        self.tag = reply.tag;
        let reply = buffers.reply.get(..reply.bytes).ok_or(ClientError::Protocol)?;
        Answer::read(reply, row.take, |bulk| self.take_output(bulk, inline))
    }

    fn write_payload(
        &self,
        room: &mut [u8],
        opcode: Opcode,
        inline: Inline,
        put: impl FnOnce(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Result<usize, ClientError> {
        let (head, rest) = room.split_at_mut(CALL_HEADER_BYTES);
        let mut writer = Writer::new(rest);
        // Cannot happen: the longest row fits ROW_BYTES.
        put(&mut writer).map_err(|Overflow| ClientError::Protocol)?;
        let args_bytes = writer.used();
        let inline_bytes = if inline.input { self.input.bytes } else { 0 };
        let bulk = rest.get_mut(args_bytes..args_bytes + inline_bytes).ok_or(ClientError::Protocol)?;
        if let (Some(Write(write)), true) = (&self.write, inline.input) {
            bulk.fill(0);
            write(bulk);
        } else if inline_bytes > 0 {
            // SAFETY: `input` is the memory of `input`'s slice, which `'s` keeps, or readable by the contract of
            // `input_at`; `bulk` is a disjoint buffer of this thread of the same length.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.input.address as *const u8,
                    bulk.as_mut_ptr(),
                    inline_bytes,
                );
            }
        }
        let header = CallHeader {
            opcode: opcode as u32,
            thread: thread::number(),
            context: self.context.0,
            args_bytes: args_bytes as u32,
            flags: if inline.input && self.input.bytes > 0 { CALL_IN_INLINE } else { 0 }
                | if inline.output && self.output.bytes > 0 { CALL_OUT_INLINE } else { 0 }
                | if self.caller.is_internal() { CALL_INTERNAL } else { 0 }
                | self.traced.unwrap_or_else(trace::flags),
            bulk_in_bytes: self.input.bytes as u64,
            bulk_out_bytes: if self.keep { 0 } else { self.output.bytes as u64 },
        };
        head.copy_from_slice(header.as_bytes());
        Ok(CALL_HEADER_BYTES + args_bytes + inline_bytes)
    }

    /// Takes the bulk output of a reply.
    fn take_output(&mut self, bulk: &[u8], inline: Inline) -> Result<(), ClientError> {
        if bulk.len() > self.output.bytes || (!bulk.is_empty() && !inline.output) {
            return Err(ClientError::Protocol);
        }
        if !bulk.is_empty() {
            // SAFETY: `output` is the memory of `output`'s slice, which `'s` keeps, or writable by the contract of
            // `output_at`; its length bounds that of `bulk`. The reply buffer is this thread's own.
            unsafe {
                std::ptr::copy_nonoverlapping(bulk.as_ptr(), self.output.address as *mut u8, bulk.len());
            }
        }
        self.output_bytes = bulk.len();
        Ok(())
    }
}
