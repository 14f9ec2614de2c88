// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One call: parses its payload, executes it, and builds its reply.

use std::sync::atomic::Ordering;
use std::time::Instant;

use log::trace;
use vhost_cuda_common::exchange::{ANY_DEVICE, Shortage};
use vhost_cuda_common::gates::now;
use vhost_cuda_common::link::Frame;
use vhost_cuda_common::recording::{CALL, LIBRARY_CALL, PAGES, POSTED, Record, SUSPENDED};
use vhost_cuda_common::statistics::{Gate, count_gate};
use virtio_cuda_protocol::cuda::table::{Facts, MAX_RESULTS};
use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CALL_INTERNAL, CALL_OUT_INLINE, CallHeader, ContextId, Opcode, Reader, ResultHeader,
    Writer,
};
use virtio_cuda_protocol::transport::{FLAG_KEEP, FLAG_READ, MemEntry, REPLY_INVALID, REPLY_OK};
use zerocopy::{FromBytes, IntoBytes};

use crate::call::{CallContext, Kept, ThreadState};
use crate::dispatch::dispatch;
use crate::gpu::{CuResult, CudaError};
use crate::memory::bulk::{BulkIn, BulkOut};
use crate::memory::pages::PageList;
use crate::outstanding::Runs;
use crate::recipe;
use crate::run::gate::{self, Barred};
use crate::run::replies::Reply;
use crate::run::signal;
use crate::state::SessionState;
use crate::trace::{CORRELATION, Caller, api_call};

/// Executes the call in `frame` on the calling thread. A call that turns back ([`ThreadState::left`]) leaves its frame as it was.
pub fn execute(session: &'static SessionState, thread: &mut ThreadState, frame: &mut Frame) -> Reply {
    let reply_room = frame.header.reply_room as usize;
    let Some((header, args, mut cx)) = open(session, thread, frame) else {
        return (REPLY_INVALID, Vec::new());
    };
    let mut results = [0; MAX_RESULTS];
    let mut writer = Writer::new(&mut results);
    let opcode = Opcode::from_u32(header.opcode);
    let waits_for_all = opcode.is_some_and(|opcode| opcode.facts().is_wait_for_context());
    let printed = session.output.so_far(opcode);
    let begun = waits_for_all.then(|| session.unwaited.so_far());
    let copies = matches!(cx.bulk_in, BulkIn::Pages(_))
        || matches!(cx.bulk_out, BulkOut::Pages(_))
        || opcode == Some(Opcode::memcpy_wait);
    let copying = copies.then(Instant::now);
    let recorded = recorded(&cx, 0);
    let outcome =
        session.trace.during(cx.api_call, Caller::Worker, || run(opcode, &mut cx, args, &mut writer));
    count(session, opcode);
    if let Some(recorded) = recorded {
        add_call(session, cx.thread, opcode, recorded, outcome);
    }
    if let Some(since) = copying {
        cx.thread.copied = since.elapsed();
        session.copy_time.add(cx.thread.copied);
    }
    if let Some(begun) = begun.filter(|_| outcome.is_ok() && session.contexts.is_only_one()) {
        session.unwaited.end(begun);
    }
    if cx.thread.left {
        let entries = entries_of(&cx);
        (frame.in_entries, frame.out_entries) = entries;
        return (REPLY_INVALID, Vec::new());
    }
    let used = if outcome.is_ok() { writer.used() } else { 0 };
    let inline = match &cx.bulk_out {
        BulkOut::Inline { bytes, .. } if outcome.is_ok() => &bytes[..],
        _ => &[],
    };
    let result = outcome.err().map_or(0, |error| error.0);
    trace!("thread {}: {} -> {result}", header.thread, opcode.map_or("?", Opcode::name));
    let failed = outcome.is_err_and(|error| error != CudaError::NOT_READY);
    let flags = match opcode {
        Some(opcode) if opcode.facts().prints() => {
            session.output.flags(printed, failed, session.code.may_print())
        }
        _ => 0,
    };
    let head =
        ResultHeader { result, results_bytes: used as u32, flags, bulk_out_bytes: inline.len() as u32 };
    let mut payload = Vec::with_capacity(size_of::<ResultHeader>() + used + inline.len());
    payload.extend_from_slice(head.as_bytes());
    payload.extend_from_slice(&results[..used]);
    payload.extend_from_slice(inline);
    if payload.len() > reply_room {
        return (REPLY_INVALID, Vec::new());
    }
    (REPLY_OK, payload)
}

/// Returns the memory that a call has not used, as its frame had it.
fn entries_of(cx: &CallContext<'_>) -> (Vec<MemEntry>, Vec<MemEntry>) {
    let ins = match &cx.bulk_in {
        BulkIn::Pages(pages) => pages.entries(),
        BulkIn::Inline(_) => Vec::new(),
    };
    let outs = match (&cx.kept, &cx.bulk_out) {
        (Some(kept), _) => kept.pages.entries(),
        (None, BulkOut::Pages(pages)) => pages.entries(),
        (None, BulkOut::Inline { .. }) => Vec::new(),
    };
    (ins, outs)
}

/// Executes the posted call in `frame`, which gets no reply.
///
/// Errors: the call's; `CUDA_ERROR_INVALID_VALUE` for one that is malformed.
pub fn execute_posted(
    session: &'static SessionState,
    thread: &mut ThreadState,
    frame: &mut Frame,
) -> CuResult<()> {
    let (header, args, mut cx) = open(session, thread, frame).ok_or(CudaError::INVALID_VALUE)?;
    let opcode = Opcode::from_u32(header.opcode);
    let mut writer = [0; MAX_RESULTS];
    let mut writer = Writer::new(&mut writer);
    let recorded = recorded(&cx, POSTED);
    let outcome =
        session.trace.during(cx.api_call, Caller::Worker, || run(opcode, &mut cx, args, &mut writer));
    count(session, opcode);
    if let Some(recorded) = recorded {
        add_call(session, cx.thread, opcode, recorded, outcome);
    }
    trace!("thread {}: {} -> {outcome:?}, posted", header.thread, opcode.map_or("?", Opcode::name));
    outcome
}

/// A call that is being recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// Its begin.
    begin: u64,
    /// Its bulk data in bytes.
    bytes: u64,
    /// [`Record::path`].
    path: u32,
}

/// Adds the record of a call of `thread`.
#[cold]
fn add_call(
    session: &SessionState,
    thread: &mut ThreadState,
    opcode: Option<Opcode>,
    recorded: Recorded,
    outcome: CuResult<()>,
) {
    if opcode.is_some_and(is_of_profiler) {
        return;
    }
    let function = thread.function.take();
    let name = function.map_or(0, |name| session.trace.number_of(name));
    let (kind, name) = match opcode {
        Some(Opcode::vendor_call) if name > 0 => (LIBRARY_CALL, name),
        opcode => (CALL, opcode.map_or(0, |opcode| opcode as u32)),
    };
    let Recorded { begin, bytes, path } = recorded;
    session.profile.add(Record {
        kind,
        row: thread.number,
        begin,
        bytes,
        waited: std::mem::take(&mut thread.waited),
        name,
        result: outcome.err().map_or(0, |error| error.0.cast_unsigned()),
        path,
        ..Record::default()
    });
}

/// Returns whether a profiler in the guest makes this call for itself.
fn is_of_profiler(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::trace_start
            | Opcode::trace_stop
            | Opcode::trace_clock
            | Opcode::trace_read
            | Opcode::trace_name
            | Opcode::profile_start
            | Opcode::profile_read
            | Opcode::profile_stop
    )
}

/// Returns what the record of a call needs to know of its begin, if calls are recorded.
fn recorded(cx: &CallContext<'_>, posted: u32) -> Option<Recorded> {
    let begin = cx.session.profile.begin()?;
    let pages = matches!(cx.bulk_in, BulkIn::Pages(_)) || matches!(cx.bulk_out, BulkOut::Pages(_));
    let path = cx.thread.path | posted | if pages { PAGES } else { 0 };
    Some(Recorded { begin, bytes: cx.bulk_in.bytes().saturating_add(cx.bulk_out.room()), path })
}

/// Counts a call that was made.
fn count(session: &SessionState, opcode: Option<Opcode>) {
    let (text, work) = match opcode {
        None => (Some(Runs::Other), Some(Runs::Other)),
        Some(Opcode::vendor_call) => (Some(session.vendor.runs()), Some(session.vendor.runs())),
        Some(Opcode::cuCtxSynchronize) => (None, None),
        Some(opcode) => (opcode.facts().runs_code().then_some(Runs::LoadedCode), signal::runs(opcode)),
    };
    if let Some(runs) = text {
        session.output.count(runs);
    }
    if let Some(runs) = work {
        session.unwaited.count(runs);
    }
}

fn run(
    opcode: Option<Opcode>,
    cx: &mut CallContext<'_>,
    args: &[u8],
    results: &mut Writer<'_>,
) -> CuResult<()> {
    let opcode = opcode.ok_or(CudaError::NOT_SUPPORTED)?;
    if cx.session.refused.load(Ordering::Relaxed) && opcode != Opcode::session_hello {
        return Err(CudaError::SYSTEM_DRIVER_MISMATCH);
    }
    let facts = opcode.facts();
    let mut pass = enter(opcode, facts, cx)?;
    let outcome = match facts.needs_context() {
        true => cx.thread.make_current(cx.session, cx.context),
        false => Ok(()),
    };
    let (bytes_in, bytes_out) = (cx.bulk_in.bytes(), cx.bulk_out.room());
    let changing = cx.session.preparing.before(facts, &cx.session.gpu);
    let outcome =
        outcome.and_then(|()| dispatch_settled(opcode, facts, cx, &mut pass, Reader::new(args), results));
    cx.session.preparing.after(facts);
    cx.thread.queued = facts.is_only_queued();
    // A context may end here.
    cx.thread.held.release();
    if let (true, Some(rule)) = (outcome.is_ok(), recipe::rule(opcode)) {
        recipe::note(rule, opcode, cx, args, results.written());
    }
    drop(changing);
    drop(pass);
    let failed = outcome.is_err_and(|error| error != CudaError::NOT_READY);
    cx.thread.counter.count(failed, bytes_in, bytes_out);
    outcome
}

/// Returns whether the call uses no object of the driver. Others of the program may wait for some of these.
fn has_no_object(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::session_hello
            | Opcode::session_output
            | Opcode::session_thread_exit
            | Opcode::session_lane
            | Opcode::session_wait
            | Opcode::session_order
            | Opcode::session_statistics
            | Opcode::session_next_callback
            | Opcode::profile_start
            | Opcode::profile_read
            | Opcode::profile_stop
    )
}

/// Passes the session's gate, if the call has to.
///
/// Errors: `CUDA_ERROR_OUT_OF_MEMORY`. It is not the call's result if the session leaves ([`ThreadState::left`]).
fn enter(opcode: Opcode, facts: Facts, cx: &mut CallContext<'_>) -> CuResult<Option<gate::Pass>> {
    if has_no_object(opcode) {
        return Ok(None);
    }
    let gate = &cx.session.gate;
    let slot = cx.thread.slot.get_or_insert_with(|| gate.take_slot());
    let pass = if facts.needs_memory() { gate.enter(slot) } else { gate.enter_aside(slot) };
    let pass = pass.map_err(|barred| {
        cx.thread.left = barred == Barred::Left;
        CudaError::OUT_OF_MEMORY
    })?;
    if pass.waited_since > 0 {
        count_gate(Gate::Suspended, now().saturating_sub(pass.waited_since));
        cx.session.profile.add_wait(cx.thread.number, SUSPENDED, pass.waited_since);
    }
    Ok(Some(pass))
}

/// The maximum number of times that a call is repeated because the daemon has made room for it.
const MAX_REPEATS: usize = 64;

/// Dispatches a call; if it finds no memory, again after sessions have ended that were ending, or after one was suspended. A call that
/// fails for that reason has had no effect.
fn dispatch_settled(
    opcode: Opcode,
    facts: Facts,
    cx: &mut CallContext<'_>,
    pass: &mut Option<gate::Pass>,
    args: Reader<'_>,
    results: &mut Writer<'_>,
) -> CuResult<()> {
    let keeps = cx.kept.is_some();
    cx.thread.short_of = None;
    let mut outcome = dispatch(opcode, cx, args.clone(), results);
    for _ in 0..MAX_REPEATS {
        // Pages that the call keeps are host memory.
        if outcome != Err(CudaError::OUT_OF_MEMORY) || keeps {
            break;
        }
        cx.thread.held.release();
        let is_limit = cx.session.allocations().quota.take_refusal();
        // Another session may be suspended for it meanwhile, and this one may be for another.
        drop(pass.take());
        let device = cx.thread.short_of.take().or_else(|| Some(cx.owner().ok()?.device));
        let device =
            device.map_or(ANY_DEVICE, |device| cx.session.placed.device_bit(device).trailing_zeros());
        let settled =
            cx.session.sharing.settle(if is_limit { Shortage::Limit } else { Shortage::Device(device) });
        *pass = enter(opcode, facts, cx)?;
        if !settled {
            break;
        }
        outcome = dispatch(opcode, cx, args.clone(), results);
    }
    outcome
}

/// Parses a payload. Returns `None` if its lengths do not fit together.
fn open<'a>(
    session: &'static SessionState,
    thread: &'a mut ThreadState,
    frame: &'a mut Frame,
) -> Option<(CallHeader, &'a [u8], CallContext<'a>)> {
    let keep = frame.header.flags & FLAG_KEEP != 0;
    let (mut ins, mut outs) = (None, None);
    if keep || !frame.in_entries.is_empty() || !frame.out_entries.is_empty() {
        let memory = session.memory();
        ins = Some(PageList::to_read(memory.clone(), std::mem::take(&mut frame.in_entries)).ok()?);
        let list = if keep { PageList::for_window } else { PageList::new };
        outs = Some(list(memory, std::mem::take(&mut frame.out_entries)).ok()?);
    }
    let bytes_of = |list: &Option<PageList>| list.as_ref().map_or(0, PageList::bytes);
    let (header, rest) = CallHeader::read_from_prefix(&frame.payload).ok()?;
    let (args, rest) = rest.split_at_checked(header.args_bytes as usize)?;
    if header.flags & !(CALL_IN_INLINE | CALL_OUT_INLINE | CALL_INTERNAL | CORRELATION) != 0 {
        return None;
    }
    let bulk_in = match (header.flags & CALL_IN_INLINE != 0, bytes_of(&ins)) {
        (true, 0) => BulkIn::Inline(rest),
        (false, 0) if rest.is_empty() => BulkIn::Inline(&[]),
        (false, _) if rest.is_empty() => BulkIn::Pages(ins?),
        _ => return None,
    };
    if bulk_in.bytes() != header.bulk_in_bytes {
        return None;
    }
    let inline = header.flags & CALL_OUT_INLINE != 0;
    let room = usize::try_from(header.bulk_out_bytes).ok()?;
    let (bulk_out, kept) = match (keep, inline, bytes_of(&outs)) {
        // Kept pages are no bulk output, though a guest library may count them as such.
        (true, false, _) => {
            let writable = frame.header.flags & FLAG_READ == 0;
            (BulkOut::inline(0), Some(Kept { tag: frame.header.tag, pages: outs?, writable }))
        }
        (false, true, 0) => {
            let fits = room.checked_add(size_of::<ResultHeader>())? <= frame.header.reply_room as usize;
            (BulkOut::inline(if fits { room } else { return None }), None)
        }
        (false, false, bytes) if bytes != header.bulk_out_bytes => return None,
        (false, false, 0) => (BulkOut::inline(0), None),
        (false, false, _) => (BulkOut::Pages(outs?), None),
        _ => return None,
    };
    let context = ContextId(header.context);
    thread.number = header.thread;
    Some((
        header,
        args,
        CallContext { session, thread, context, api_call: api_call(header.flags), bulk_in, bulk_out, kept },
    ))
}
