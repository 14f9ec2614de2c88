// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a session that leaves. All of its threads stand between two calls, and it is suspended deeply.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost_cuda_common::link::Frame;
use vhost_cuda_common::parts::{self, kind, malformed, write, write_rows};
use zerocopy::IntoBytes;

use super::form;
use crate::memory::placed::left::OpenedRow;
use crate::memory::window::Registration;
use crate::recipe::left as calls;
use crate::run::callbacks::CALLBACKS;
use crate::serve::left::Left;
use crate::state::SessionState;
use crate::suspend::ahead;
use crate::suspend::held::{self, Way};
use crate::suspend::saving;
use crate::suspend::suspended::{Deep, Suspended};

/// The reason of a session whose memory another process has.
const FOREIGN: &str = "another process uses its memory";

/// Returns the reason for which a session cannot leave, if there is one.
pub fn obstacle(session: &SessionState) -> Option<&'static str> {
    if session.trace.is_active() || session.profile.is_on() || session.profile.relay.is_open() {
        return Some("it is being profiled");
    }
    CALLBACKS.tickets().is_none().then_some("functions of the program are due, or run")
}

/// Writes all of the session, which has stopped with its machine if `stopped_at` is a time. Returns the bytes of the contents, which move to
/// the files of `way`, or stay on the card, if it is there. With `is_ahead`, those that have gone ahead are not written again.
///
/// Errors: those of `to`, and of [`Store::move_to`]; `InvalidData` with the reason for which the session cannot leave.
///
/// [`Store::move_to`]: crate::suspend::store::Store::move_to
pub fn session(
    mut to: impl Write,
    session: &SessionState,
    threads: &[Left],
    stopped_at: Option<u64>,
    way: Option<Way>,
    is_ahead: bool,
) -> io::Result<u64> {
    let mut suspended = session.suspension.suspended.lock();
    let now = suspended.as_mut().ok_or_else(|| malformed("it is not suspended"))?;
    let deep = now.deep.as_ref().ok_or_else(|| malformed("its driver's objects have not ended"))?;
    let mut name = now.saved.unwrap_or_default();
    if now.saved.is_none() {
        getrandom::fill(&mut name).map_err(|_| io::ErrorKind::Other)?;
    }
    facts(&mut to, session, now, name)?;
    memory(&mut to, session, deep)?;
    objects(&mut to, session, deep)?;
    self::threads(&mut to, session, threads)?;
    for (address, digests) in now.store.digests() {
        let head = form::Digests { address };
        // A single allocation of more than 256 GiB.
        write(&mut to, kind::DIGESTS, &[head.as_bytes(), digests.as_bytes()])
            .map_err(|error| named(error, "the digests of an allocation are too long"))?;
    }
    if let Some(at) = stopped_at {
        let host = form::Host::of(session, at as f64 / 1e6)?;
        write(&mut to, kind::HOST, &[host.as_bytes()])?;
    }
    let most = parts::MAX_BYTES as usize - size_of::<form::Text>();
    session.output.read(most, |fd, text| {
        let head = form::Text { fd: fd.into() };
        write(&mut to, kind::TEXT, &[head.as_bytes(), text])
    })?;
    for piece in now.graphs.chunks(parts::MAX_BYTES as usize) {
        write(&mut to, kind::GRAPHS, &[piece])?;
    }
    let held = held_files(session, now).ok_or_else(|| malformed("a part of its memory is on the card"))?;
    let addresses: Vec<u64> = held.iter().map(|(address, _)| *address).collect();
    write_rows(&mut to, kind::HELD, &addresses)?;
    if session.devices.len() > 1 {
        let bits = deep.devices.iter().map(|device| session.placed.device_bit(*device));
        let (head, names) = (form::Devices { used: bits.sum() }, form::names(session)?);
        write(&mut to, kind::DEVICES, &[head.as_bytes(), names.as_bytes()])?;
        let placed = session.placed.lock().rows().ok_or_else(|| malformed(FOREIGN))?;
        write_rows(&mut to, kind::ACCESS, &placed.access)?;
        write_rows(&mut to, kind::PEERS, &placed.peers)?;
    }
    let offered = session.sharing.all_offered().ok_or_else(|| malformed(FOREIGN))?.into_iter();
    let offered = offered.map(|((what, name), context, token)| form::Offered {
        what: what.into(),
        name,
        context,
        token,
    });
    write_rows(&mut to, kind::OFFERED, &offered.collect::<Vec<_>>())?;
    let placed = session.placed.lock().rows().ok_or_else(|| malformed(FOREIGN))?;
    let times = |row: OpenedRow| OpenedRow { times: session.sharing.times_opened(row.address).into(), ..row };
    let opened: Vec<_> = placed.opened.into_iter().map(times).collect();
    write_rows(&mut to, kind::OPENED, &opened)?;
    if !held.is_empty() {
        let Some(Way::Card(socket)) = way else { return Err(malformed("its memory is on the card")) };
        write(&mut to, kind::END, &[])?;
        to.flush()?;
        return held::send(&socket, &held).map(|()| 0);
    }
    let bytes = match (now.saved, way.and_then(Way::memory)) {
        (Some(_), _) => write(&mut to, kind::END, &[]).map(|()| 0),
        (None, None) if is_ahead => ahead::write(&mut to, name, &now.store, &session.suspension.sent.lock()),
        (None, None) => saving::write(&mut to, name, &now.store),
        (None, Some(files)) => saving::write_places(&mut to, name, &mut now.store, &files),
    }?;
    to.flush()?;
    Ok(bytes)
}

/// Returns the addresses of all parts that files keep, with their files. `None` if a part is elsewhere and others are so kept.
pub fn held_files(session: &SessionState, now: &Suspended) -> Option<Vec<(u64, Arc<File>)>> {
    let mut placed = session.placed.lock();
    let parts = placed.movable().map(|part| &*part).chain(now.created.iter().map(|(_, part)| part));
    let (mut found, mut others) = (Vec::new(), 0);
    for part in parts {
        match part.held() {
            Some(file) => found.push((part.address(), file.clone())),
            None => others += 1,
        }
    }
    (found.is_empty() || others == 0).then_some(found)
}

/// Names the part that is too long.
fn named(error: io::Error, what: &str) -> io::Error {
    if error.kind() == io::ErrorKind::InvalidInput { malformed(what) } else { error }
}

fn facts(mut to: impl Write, session: &SessionState, now: &Suspended, name: [u8; 16]) -> io::Result<()> {
    let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    let key = session.suspension.key.get();
    let (copies, ns) = session.copy_time.so_far();
    let flags = flag(session.refused.load(Ordering::Relaxed), form::REFUSED)
        | flag(session.vendor.may_print(), form::MAY_PRINT)
        | flag(now.saved.is_some(), form::SAVED)
        | flag(key.is_some(), form::HAS_KEY);
    let state = form::State {
        flags: form::State::flags_of(flags, session.call_table.load(Ordering::Relaxed)),
        key: key.map_or([0; 2], |key| key.words),
        name,
        serial: session.allocations().serial(),
        tickets: CALLBACKS.tickets().ok_or_else(|| malformed("functions of the program are due, or run"))?,
        copies: [copies, ns],
        copied_bytes: now.copied_bytes,
    };
    write(&mut to, kind::STATE, &[state.as_bytes()])?;
    for call in calls::settings(session).map_err(|reason| malformed(&reason))? {
        let bytes = calls::bytes_of(&call).ok_or_else(|| malformed("a setting has no bytes"))?;
        write(&mut to, kind::SETTING, &[&bytes])?;
    }
    let used = session.vendor.used().into_iter();
    let libraries: Vec<_> = used.map(|(number, major)| form::Library { number, major }).collect();
    write_rows(&mut to, kind::LIBRARIES, &libraries)
}

fn memory(mut to: impl Write, session: &SessionState, deep: &Deep) -> io::Result<()> {
    let memory = session.memory();
    let window = session.window();
    let reservations = session.reservations();
    let placed = session.placed.lock();
    let allocations = session.allocations();
    let rows = reservations
        .rows()
        .ok_or_else(|| malformed("allocations of other processes, or in arrays, are not carried"))?;
    write_rows(&mut to, kind::RESERVED, &rows.reserved)?;
    write_rows(&mut to, kind::LENT, &rows.lent)?;
    write_rows(&mut to, kind::CLAIMED, &window.claimed())?;
    let areas = window.rows(&memory);
    for (area, entries) in areas.ok_or_else(|| malformed("some of its pages are no guest memory any more"))? {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(area.shared, form::SHARED) | flag(area.writable, form::WRITABLE);
        let head = form::Area { base: area.base, bytes: area.bytes, tag: area.tag, flags };
        write(&mut to, kind::AREA, &[head.as_bytes(), entries.as_bytes()])
            .map_err(|error| named(error, "an area has too many pages"))?;
    }
    write_rows(&mut to, kind::CREATED, &rows.created)?;
    write_rows(&mut to, kind::MAPPINGS, &rows.mappings)?;
    let placed = placed.rows().ok_or_else(|| malformed(FOREIGN))?;
    write_rows(&mut to, kind::REGIONS, &placed.regions)?;
    write_rows(&mut to, kind::ALLOCATIONS, &placed.allocations)?;
    let row = |one: &Registration| form::Registration {
        base: one.base,
        bytes: one.bytes,
        context: one.context,
        dptr: one.dptr,
    };
    // The guest has taken others back since the session was suspended. A resumption would find that, too.
    let is_there = |one: &&Registration| window.check_unregistered(one.base, one.bytes).is_ok();
    let registrations: Vec<_> = deep.registrations.iter().filter(is_there).map(row).collect();
    write_rows(&mut to, kind::REGISTRATIONS, &registrations)?;
    let registered: HashSet<u64> = registrations.iter().map(|one| one.dptr).collect();
    let mut ranges = Vec::new();
    for range in allocations.ranges() {
        if range.origin.is_window() && !registered.contains(&range.base) {
            continue;
        }
        let origin = form::ORIGINS.iter().position(|origin| *origin == range.origin);
        let origin = origin.ok_or_else(|| malformed("it has memory that cannot be carried"))? as u32;
        let crate::memory::allocations::Range { base, bytes, context, serial, device, .. } = *range;
        let device = device.cast_unsigned();
        ranges.push(form::Range { base, bytes, origin, device, context, serial });
    }
    write_rows(&mut to, kind::RANGES, &ranges)
}

fn objects(mut to: impl Write, session: &SessionState, deep: &Deep) -> io::Result<()> {
    let mut retains = Vec::new();
    for number in 0..session.devices.len() as u32 {
        let device = session.device(number).map_err(|error| malformed(&error.to_string()))?;
        let (_, number, flags) = deep.retains.of_device(device);
        retains.push(form::Retains { number, flags });
    }
    write_rows(&mut to, kind::RETAINS, &retains)?;
    for step in &deep.again.0 {
        let bytes = calls::bytes_of(&step.call).ok_or_else(|| malformed("an image has no digest"))?;
        write(&mut to, kind::CALL, &[&bytes]).map_err(|error| named(error, "a call is too long"))?;
    }
    deep.variables.write(|piece| write(&mut to, kind::VARIABLE, piece))?;
    let times = session.suspension.times.lock();
    let times = times.past.iter().map(|(&event, &at)| form::Time { event, at });
    write_rows(&mut to, kind::TIMES, &times.collect::<Vec<_>>())
}

fn threads(mut to: impl Write, session: &SessionState, threads: &[Left]) -> io::Result<()> {
    let positions = session.order.positions().into_iter();
    let lanes: Vec<_> =
        positions.map(|(lane, position)| form::Lane { lane: lane.into(), position }).collect();
    write_rows(&mut to, kind::LANES, &lanes)?;
    for left in threads {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let lane = left.lane.zip(left.lane_number);
        let (at, number) = lane.map_or((None, 0), |(at, number)| (Some(at), number));
        let head = form::Thread {
            number: left.number,
            flags: flag(at.is_some(), form::HAS_LANE)
                | flag(left.deferred.is_some(), form::HAS_DEFERRED)
                | flag(at.is_some_and(|at| at.says_deferred), form::SAYS_DEFERRED),
            deferred: left.deferred.map_or(0, |error| error.0),
            lane: number,
            tag: at.map_or(0, |at| at.tag),
            consumed: at.map_or(0, |at| at.consumed),
            replied: at.map_or(0, |at| at.replied),
            waits: left.waits.len() as u32,
            info_bytes: left.jit.info.len() as u32,
            error_bytes: left.jit.error.len() as u32,
            wall_time: left.jit.wall_time,
            threads_per_block: left.jit.threads_per_block,
            reserved: 0,
        };
        let waits = left.waits.iter().map(|one| form::Waiting {
            request: one.request,
            replied: one.position.replied,
            consumed: one.position.consumed,
        });
        let waits: Vec<_> = waits.collect();
        write(&mut to, kind::THREAD, &[head.as_bytes(), waits.as_bytes(), &left.jit.info, &left.jit.error])
            .map_err(|error| named(error, "logs of the compiler are too long"))?;
    }
    threads.iter().flat_map(|left| &left.frames).try_for_each(|frame| request(&mut to, frame))
}

fn request(to: impl Write, frame: &Frame) -> io::Result<()> {
    let header = vhost_cuda_common::link::ToWorker {
        payload_bytes: frame.payload.len() as u32,
        in_entries: frame.in_entries.len() as u32,
        out_entries: frame.out_entries.len() as u32,
        ..frame.header
    };
    let (ins, outs) = (frame.in_entries.as_bytes(), frame.out_entries.as_bytes());
    write(to, kind::REQUEST, &[header.as_bytes(), &frame.payload, ins, outs])
}
