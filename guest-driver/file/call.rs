// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls that become requests, and the memory of shared areas. `uapi.rs` documents their errors.

use crate::{
    linux::wait::{
        Mode,
        Patience, //
    },
    memory::{
        span::Span,
        Access,
        Area,
        Memory,
        Pinned, //
    },
    request::{
        purpose::Purpose,
        Answer,
        Draft,
        Payload,
        Request, //
    },
    session::{
        watch::Watch,
        Session, //
    },
    transport::{
        FLAG_KEEP,
        FLAG_READ,
        OP_CALL,
        OP_SHARE,
        OP_UNPIN,
        PAGE_BYTES, //
    },
    uapi::{
        Call,
        CALL_KEEP,
        CALL_READ,
        CALL_TRACK, //
    }, //
};
use kernel::{
    mm::virt::VmaNew,
    prelude::*,
    sync::Arc,
    time::Msecs,
    uaccess::UserSlice, //
};

/// Maximum wait of mmap(2) for the device. The process's address space is locked meanwhile, which blocks its other
/// threads and readers of its files in /proc.
const SHARE_PATIENCE_MS: Msecs = 10_000;

/// Implements `VIRTIO_CUDA_CALL`. On `EINTR`, `call` has a ticket with which the call can be continued.
pub(crate) fn call(session: &Arc<Session>, call: &mut Call) -> Result {
    check(session, call)?;
    let (ticket, pending) = match call.ticket {
        0 => submit(session, call)?,
        ticket => (ticket, session.unpark(ticket)?),
    };
    let answer = session.finish(
        ticket,
        pending,
        Mode::Interruptible,
        &mut Patience::endless(),
    );
    match answer {
        Ok(answer) => deliver(call, &answer?),
        Err((pending, cut)) => {
            session.suspend(ticket, pending);
            call.ticket = ticket;
            Err(cut.into())
        }
    }
}

/// Refuses invalid lengths and flags. Also bounds the memory that the driver allocates for a call.
fn check(session: &Session, call: &Call) -> Result {
    let limits = &session.device.limits;
    let keep = call.flags & CALL_KEEP != 0;
    let known = [0, CALL_KEEP, CALL_KEEP | CALL_TRACK, CALL_KEEP | CALL_READ];
    let sane = known.contains(&call.flags)
        && call.reserved == 0
        && call.payload_bytes <= limits.payload_bytes
        && call.reply_bytes <= limits.payload_bytes
        && call.in_bytes <= limits.bulk_bytes
        && call.out_bytes <= limits.bulk_bytes
        && (!keep || call.out_bytes != 0);
    if sane {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Pins the pages of a buffer. Returns None for an empty one.
fn pin(session: &Session, addr: u64, bytes: u64, access: Access) -> Result<Option<Pinned>> {
    if bytes == 0 {
        return Ok(None);
    }
    let span = Span::new(addr, bytes).ok_or(EFAULT)?;
    if access.keeps() && !span.is_page_aligned() {
        return Err(EINVAL);
    }
    Ok(Some(Pinned::new(span, access, &session.ledger)?))
}

/// Pins pageable memory that is to be kept under `tag`. The watch begins before the pages are looked up.
fn pin_watched(session: &Arc<Session>, call: &Call, tag: u64) -> Result<Option<Pinned>> {
    let span = Span::new(call.out_addr, call.out_bytes).ok_or(EFAULT)?;
    let watch = Watch::new(session.clone(), tag, &span)?;
    // Pinning may itself replace shared pages by others, but only once.
    for _ in 0..2 {
        watch.reset();
        let pinned = pin(session, call.out_addr, call.out_bytes, Access::Keep)?;
        if !watch.is_stale() {
            session.watch(watch)?;
            return Ok(pinned);
        }
    }
    Err(EFAULT)
}

fn submit(session: &Arc<Session>, call: &mut Call) -> Result<(u64, crate::request::Pending)> {
    let keep = call.flags & CALL_KEEP != 0;
    let read = call.flags & CALL_READ != 0;
    let access = match (keep, read) {
        (false, _) => Access::Write,
        (true, false) => Access::Keep,
        (true, true) => Access::KeepRead,
    };
    let input = pin(session, call.in_addr, call.in_bytes, Access::Read)?;
    let tag = if keep { session.new_tag() } else { 0 };
    let output = if call.flags & CALL_TRACK != 0 {
        pin_watched(session, call, tag)?
    } else {
        pin(session, call.out_addr, call.out_bytes, access)?
    };
    let payload = UserSlice::new(
        UserPtr::from_addr(call.payload as usize),
        call.payload_bytes as usize,
    );
    let mut header = session.header(OP_CALL);
    let purpose = if keep {
        header.flags = FLAG_KEEP | if read { FLAG_READ } else { 0 };
        header.tag = tag;
        Purpose::Keep(session.clone(), header.tag)
    } else {
        Purpose::Call(session.clone())
    };
    let draft = Draft {
        header,
        payload: Payload::User(payload.reader(), call.payload_bytes as usize),
        reply_bytes: call.reply_bytes as usize,
        input,
        output: output.map(Memory::Pinned),
    };
    let request = Request::new(draft, purpose);
    if !keep {
        return session.start(request?, Mode::Interruptible);
    }
    // If the wait is interrupted, the ticket identifies the tag: it is returned in `call`.
    call.tag = tag;
    request
        .and_then(|request| {
            session.kept.reserve(tag)?;
            session.start(request, Mode::Interruptible)
        })
        .inspect_err(|_| session.forget_tag(tag))
}

/// Copies the reply to the process.
fn deliver(call: &mut Call, answer: &Answer) -> Result {
    // A process that continues with another structure may have provided less room.
    if answer.bytes() > call.reply_bytes as usize {
        return Err(EINVAL);
    }
    let room = UserSlice::new(UserPtr::from_addr(call.reply as usize), answer.bytes());
    answer.write_user(&mut room.writer())?;
    call.reply_bytes = answer.bytes() as u32;
    Ok(())
}

/// Implements `VIRTIO_CUDA_UNPIN`. Only a fatal signal interrupts it.
pub(crate) fn unpin(session: &Arc<Session>, tag: u64) -> Result {
    session.kept.leave(tag)?;
    let mut header = session.header(OP_UNPIN);
    header.tag = tag;
    let draft = Draft {
        header,
        payload: Payload::Kernel(&[]),
        reply_bytes: 0,
        input: None,
        output: None,
    };
    let mut patience = Patience::endless();
    let sent = Request::new(draft, Purpose::Unpin(session.clone(), tag))
        .and_then(|request| session.start(request, Mode::Killable))
        .inspect_err(|_| session.keep_on(tag));
    let (ticket, pending) = sent?;
    session.wait_for(ticket, pending, Mode::Killable, &mut patience)?;
    Ok(())
}

/// Implements `mmap`: shares an area with the device under the tag `offset`. Only a fatal signal interrupts it.
/// `ETIMEDOUT`: the device does not answer; it may use the area nevertheless, until the session ends.
pub(crate) fn share(session: &Arc<Session>, vma: &VmaNew, offset: u64) -> Result {
    let bytes = (vma.end() - vma.start()) as u64;
    if offset % PAGE_BYTES != 0 || bytes > session.device.limits.bulk_bytes {
        return Err(EINVAL);
    }
    let area = Area::new(bytes, &session.ledger)?;
    vma.set_dontexpand();
    vma.set_dontcopy();
    area.map(vma.set_mixedmap(), vma.start())?;
    let mut header = session.header(OP_SHARE);
    header.tag = offset;
    let draft = Draft {
        header,
        payload: Payload::Kernel(&[]),
        reply_bytes: 0,
        input: None,
        output: Some(Memory::Area(area)),
    };
    let request = Request::new(draft, Purpose::Share(session.clone(), offset))?;
    session.kept.reserve(offset)?;
    let (ticket, pending) = session
        .start(request, Mode::Killable)
        .inspect_err(|_| session.forget_tag(offset))?;
    let mut patience = Patience::millis(SHARE_PATIENCE_MS);
    session.wait_for(ticket, pending, Mode::Killable, &mut patience)?;
    Ok(())
}
