// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies and fills at their place in a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Fill, Kind, Side, Transfer};
use crate::driver::capture;
use crate::driver::context::{self, Context};
use crate::driver::device;
use crate::driver::graph::{CopyWork, Work};
use crate::driver::result::CuResult;
use crate::driver::stream::{CUstream, Stream};
use crate::memory::{Range, RangeKind};

/// The maximum number of host bytes that are copied in the call of an asynchronous copy, so that the caller does not
/// wait.
const STAGED: u64 = 1 << 20;
/// The maximum number of such bytes in flight. A program that submits faster than they are copied must wait.
const STAGED_TOTAL: u64 = 32 << 20;

/// The maximum number of bytes of pinned memory that a copy to the device reads in the call, if its own stream has no work.
/// NVIDIA's driver reads 4 KiB so, and not 32 KiB.
const READ_EARLY: u64 = 16 << 10;

static STAGED_NOW: AtomicU64 = AtomicU64::new(0);

/// Room for staged bytes.
struct Room(u64);

impl Room {
    fn reserve(bytes: u64) -> Option<Room> {
        if bytes > STAGED {
            return None;
        }
        let room = Room(bytes);
        let before = STAGED_NOW.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= STAGED_TOTAL).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        STAGED_NOW.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Copies the source bytes row by row, and returns the rest of the work.
fn staged(copy: &Transfer, room: Room) -> impl FnOnce(&Context) -> CuResult<()> + Send + 'static {
    let [width, rows, _] = copy.extent;
    let mut bytes = vec![0u8; copy.bytes() as usize];
    let tight = Side {
        address: bytes.as_mut_ptr() as u64,
        kind: Kind::Pageable,
        pitch: width,
        slice: width * rows,
        array: None,
    };
    let taken = Transfer { to: tight.clone(), from: copy.from.clone(), extent: copy.extent }.run();
    let (target, source, extent) = (copy.to.clone(), copy.from.memory(), copy.extent);
    move |_| {
        let _room = room;
        taken?;
        let from = Side { address: bytes.as_ptr() as u64, ..tight };
        Transfer { to: target, from, extent }.run_for(source)
    }
}

/// Returns whether NVIDIA's driver reads the source in the call: the copy then does not wait for work of streams with which
/// its own synchronises implicitly, which could still write the source.
fn is_read_early(copy: &Transfer, stream: &Stream) -> bool {
    let is_pinned =
        |(_, range): (_, Range)| matches!(range.kind, RangeKind::HostAllocated | RangeKind::HostRegistered);
    copy.extent[1..] == [1, 1]
        && copy.bytes() <= READ_EARLY
        && copy.to.kind == Kind::Device
        && device::range_of(copy.from.address).is_some_and(is_pinned)
        && stream.queue.end().reached()
}

/// Returns the contexts of the devices whose memory a copy uses, if these are two.
fn contexts_of_two_devices(copy: &Transfer) -> Vec<Arc<Context>> {
    let device = |side: &Side| device::range_of(side.address).map(|(device, _)| device);
    match (device(&copy.to), device(&copy.from)) {
        (Some(to), Some(from)) if !std::ptr::eq(to, from) => {
            [to, from].into_iter().flat_map(context::all_of).collect()
        }
        _ => Vec::new(),
    }
}

/// Copies in the default stream. Returns when the bytes have arrived, except between device addresses. A copy between
/// two devices begins when all earlier work of both is done, and ends before later work begins (CUDA programming guide,
/// "Peer-to-Peer Memory Copy").
pub(in crate::driver) fn copy_now(copy: Option<Transfer>) -> CuResult<()> {
    let (context, stream) = capture::place_work(CUstream::NULL)?;
    capture::refuse(&stream)?;
    let Some(copy) = copy else { return Ok(()) };
    if copy.to.kind == Kind::Device && copy.from.kind == Kind::Device {
        let contexts = contexts_of_two_devices(&copy);
        if !contexts.is_empty() {
            contexts.iter().for_each(|context| context.wait_idle());
            return context.run(&stream, move |_| copy.run());
        }
        context.submit_work(&stream, move |_| copy.run());
        return Ok(());
    }
    context.run(&stream, move |_| copy.run())
}

/// Copies between memory of these contexts in the default stream. They and the current context execute no other work
/// at the same time: the copy begins when all earlier work is done, and this returns when later work may begin.
pub(in crate::driver) fn copy_between(copy: Option<Transfer>, contexts: &[Arc<Context>; 2]) -> CuResult<()> {
    let (context, stream) = capture::place_work(CUstream::NULL)?;
    if contexts.iter().all(|other| Arc::ptr_eq(other, &context)) {
        return copy_now(copy);
    }
    capture::refuse(&stream)?;
    let Some(copy) = copy else { return Ok(()) };
    contexts.iter().chain([&context]).for_each(|context| context.wait_idle());
    context.run(&stream, move |_| copy.run())
}

/// The time at which a copy reads its source (`CUmemcpySrcAccessOrder`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::driver) enum SourceOrder {
    /// In stream order, also if the source is pageable.
    Stream,
    /// Before the call returns.
    DuringCall,
    /// Pageable memory before the call returns, and all other memory in stream order.
    Usual,
}

/// Copies in stream order. Waits for the copy only when pageable memory requires that.
pub(in crate::driver) fn copy_async(copy: Option<Transfer>, stream: CUstream) -> CuResult<()> {
    copy_async_from(copy, SourceOrder::Usual, stream)
}

/// As [`copy_async`], for a source that is read at a certain time.
pub(super) fn copy_async_from(copy: Option<Transfer>, order: SourceOrder, stream: CUstream) -> CuResult<()> {
    let (context, stream) = capture::place_work(stream)?;
    let Some(copy) = copy else { return Ok(()) };
    if capture::add(&stream, || Ok(Work::Copy(CopyWork::captured(copy.clone()))))? {
        return Ok(());
    }
    let waits = copy.involves(Kind::Pageable) || order == SourceOrder::DuringCall;
    let in_order = order == SourceOrder::Stream && copy.from.kind == Kind::Pageable;
    let may_stage = match waits {
        true => copy.to.kind != Kind::Pageable && !in_order,
        false => is_read_early(&copy, &stream),
    };
    let room = if may_stage { Room::reserve(copy.bytes()) } else { None };
    match room {
        Some(room) => context.end_asynchronous(&context.submit_work(&stream, staged(&copy, room))),
        None if waits => context.run(&stream, move |_| copy.run()),
        None => context.end_asynchronous(&context.submit_work(&stream, move |_| copy.run())),
    }
}

/// Fills rows of device memory with a pattern, asynchronously or, in the default stream, as cuMemset does.
pub(in crate::driver) fn fill(fill: Fill, stream: Option<CUstream>) -> CuResult<()> {
    let (context, place) = capture::place_work(stream.unwrap_or(CUstream::NULL))?;
    if stream.is_none() {
        capture::refuse(&place)?;
    }
    let kind = fill.check()?;
    if fill.extent.contains(&0) || capture::add(&place, || Ok(Work::Fill(fill)))? {
        return Ok(());
    }
    if stream.is_none() && kind == Some(Kind::Shared) {
        return context.run(&place, move |_| fill.run());
    }
    let mark = context.submit_work(&place, move |_| fill.run());
    context.end_asynchronous(&mark)
}
