// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a session that another worker has written. Nothing of the stream is trusted: that worker runs code of the guest. Each table has a
//! maximum, memory is charged as if the program allocated it, pages must be guest memory, images come from the daemon's cache, and
//! calls are those that a program may make.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log::debug;
use vhost_cuda_common::exchange::{EVENT, MEMORY};
use vhost_cuda_common::link::{Frame, MAX_ENTRIES, MAX_PAYLOAD_BYTES, TO_CALL, ToWorker};
use vhost_cuda_common::parts::{self, kind, malformed, read_rows};
use vhost_cuda_common::statistics;
use virtio_cuda_protocol::transport::MemEntry;
use zerocopy::{FromBytes, IntoBytes};

use super::form;
use crate::gpu::CudaError;
use crate::handlers::graph::again;
use crate::memory::allocations::{Origin, Range};
use crate::memory::pages::GuestPages;
use crate::memory::parts::Part;
use crate::memory::placed::left::{Rows, reserve_at, taken_by};
use crate::memory::placed::{Others, State};
use crate::memory::reservations::left::{CreatedRow, MappingRow, SpanRow};
use crate::memory::window::{Area, Registration};
use crate::objects::MAX_OBJECTS;
use crate::objects::contexts::Retains;
use crate::objects::jit::JitLogs;
use crate::recipe::left::{Calls, capture_mode, restore_setting};
use crate::recipe::steps::Again;
use crate::recipe::variables::Variables;
use crate::run::callbacks::CALLBACKS;
use crate::run::{MAX_LANES, MAX_THREADS};
use crate::serve::executor::Entered;
use crate::serve::lane::{LeftLane, Position, Waiting};
use crate::serve::left::{Left, LeftPlace};
use crate::state::SessionState;
use crate::suspend::deep;
use crate::suspend::digests::{Digest, Key};
use crate::suspend::held::{self, Way};
use crate::suspend::lent::Files;
use crate::suspend::room::CHUNK_BYTES;
use crate::suspend::saving;
use crate::suspend::store::Store;
use crate::suspend::suspended::{Deep, Suspended};

/// The maximum number of rows of each table of memory.
const MAX_ROWS: usize = 1 << 20;
/// The maximum number of requests that were not executed: more than the daemon lets a session have.
const MAX_REQUESTS: usize = 1024;
/// The maximum number of offers: as many as the daemon lets a session have.
const MAX_OFFERS: usize = 4096;
/// The maximum number of devices of a session. Those that do not match are named when their names are read.
const MAX_DEVICES: usize = 64;
/// The time for the gate of a session without calls to close.
const SOON: Duration = Duration::from_secs(1);

/// A guest thread, and the place of its lane.
type Thread = (Left, Option<LeftPlace>);

/// The tables of a stream, as far as they were read.
#[derive(Default)]
struct Tables {
    state: Option<form::State>,
    reserved: Vec<SpanRow>,
    lent: Vec<SpanRow>,
    claimed: Vec<SpanRow>,
    areas: Vec<(Area, Vec<MemEntry>)>,
    entries: usize,
    /// The pages of areas that are mapped later.
    later: Vec<(u64, Vec<MemEntry>)>,
    host: Option<form::Host>,
    /// The bits of the devices that it uses, if it sees several.
    used: Option<u64>,
    created: Vec<CreatedRow>,
    mappings: Vec<MappingRow>,
    placed: Rows,
    offered: Vec<form::Offered>,
    registrations: Vec<form::Registration>,
    ranges: Vec<form::Range>,
    retains: Vec<form::Retains>,
    calls: Calls,
    variables: Variables,
    times: Vec<form::Time>,
    lanes: Vec<form::Lane>,
    threads: Vec<Left>,
    by_number: HashMap<u32, usize>,
    requests: usize,
    digests: BTreeMap<u64, Vec<Digest>>,
    graphs: Vec<u8>,
    /// Addresses of memory that stays on the card, and what keeps it.
    held: Vec<u64>,
    files: BTreeMap<u64, File>,
}

/// Reads a session into one that has had no call. It may use `most` bytes of host memory for contents, or has them by `way`. Returns its
/// threads, which do not run yet, and the bytes of the contents. The other worker charges the machine still. With `is_stopped` it comes with its machine, and its pages are mapped later.
///
/// Errors: those of `from`; `InvalidData` with the reason. The session is of no use then.
pub fn session(
    mut from: impl Read,
    session: &'static SessionState,
    most: u64,
    way: Option<Way>,
    is_stopped: bool,
) -> io::Result<(Entered, u64)> {
    let (files, socket) = match way {
        Some(Way::Memory(files)) => (Some(files), None),
        Some(Way::Card(socket)) => (None, Some(socket)),
        None => (None, None),
    };
    let most = files.as_ref().map_or(most, Files::bytes);
    let is_new = session.suspension.suspended.lock().is_none()
        && session.contexts.all().is_empty()
        && session.allocations().ranges().next().is_none();
    if !is_new {
        return Err(malformed("this worker has a session"));
    }
    session.allocations().quota.enter();
    let (mut tables, mut part, mut last) = (Tables::default(), Vec::new(), kind::STATE);
    loop {
        let found = parts::read(&mut from, &mut part)?;
        if found == kind::CONTENTS || found == kind::END {
            break last = found;
        }
        if found < last || tables.state.is_some() == (found == kind::STATE) {
            return Err(malformed("a part is at a place where none of its kind can be"));
        }
        last = found;
        tables.take(session, found, &part)?;
    }
    let state = tables.state.ok_or_else(|| malformed("the stream has no session"))?;
    if tables.host.is_some() != is_stopped {
        return Err(malformed("it comes with a machine, or without one, against expectation"));
    }
    let is_saved = state.flags & form::SAVED != 0;
    let is_held = !tables.held.is_empty();
    if (is_saved && is_held)
        || (is_saved || is_held) != (last == kind::END)
        || last == kind::END && !part.is_empty()
    {
        return Err(malformed("the contents are missing"));
    }
    if is_held {
        let socket = socket.ok_or_else(|| malformed("there is no socket for its memory"))?;
        let held = held::receive(&socket, tables.held.len())?;
        tables.files = tables.held.drain(..).zip(held).collect();
    }
    let mut begun = Instant::now();
    let (entered, mut now) = tables.restore(session, &state, most).map_err(|reason| malformed(&reason))?;
    debug!("the tables of the session are there: {:.3} s", begun.elapsed().as_secs_f64());
    begun = Instant::now();
    if is_saved {
        now.saved = Some(state.name);
    } else if !is_held {
        saving::load_after(&part, from, state.name, &mut now.store, files.as_ref())?;
    }
    debug!("its contents are there: {:.3} s", begun.elapsed().as_secs_f64());
    let bytes = now.store.stored_bytes();
    *session.suspension.suspended.lock() = Some(now);
    session.gate.suspend();
    Ok((entered, bytes))
}

/// Returns the driver's error as a reason.
fn failed(what: &'static str) -> impl Fn(CudaError) -> String {
    move |error| format!("{what}: {error}")
}

impl Tables {
    /// Takes a part, whose kind may be there.
    fn take(&mut self, session: &SessionState, found: u16, part: &[u8]) -> io::Result<()> {
        let cut = || malformed("a part is too short, or too long");
        match found {
            kind::STATE => {
                let state = form::State::read_from_bytes(part).map_err(|_| cut())?;
                let call_table = state.call_table().map_err(|reason| malformed(&reason))?;
                session.call_table.store(call_table, Ordering::Relaxed);
                self.state = Some(state);
            }
            kind::SETTING => restore_setting(session, part)
                .map_err(|error| malformed(&format!("a setting cannot be set: {error}")))?,
            kind::LIBRARIES => {
                let mut rows = Vec::<form::Library>::new();
                read_rows(part, &mut rows, cuda_library_rows::COUNT)?;
                for row in rows {
                    session.vendor.load(row.number, row.major, &[]).map_err(|error| {
                        malformed(&format!("a library of NVIDIA cannot be loaded again: {error}"))
                    })?;
                }
            }
            kind::RESERVED => read_rows(part, &mut self.reserved, MAX_ROWS)?,
            kind::LENT => read_rows(part, &mut self.lent, MAX_ROWS)?,
            kind::CLAIMED => read_rows(part, &mut self.claimed, MAX_ROWS)?,
            kind::AREA => self.take_area(part).ok_or_else(cut)?,
            kind::CREATED => read_rows(part, &mut self.created, MAX_ROWS)?,
            kind::MAPPINGS => read_rows(part, &mut self.mappings, MAX_ROWS)?,
            kind::REGIONS => read_rows(part, &mut self.placed.regions, MAX_ROWS)?,
            kind::ALLOCATIONS => read_rows(part, &mut self.placed.allocations, MAX_ROWS)?,
            kind::REGISTRATIONS => read_rows(part, &mut self.registrations, MAX_ROWS)?,
            kind::RANGES => read_rows(part, &mut self.ranges, MAX_ROWS)?,
            kind::RETAINS => read_rows(part, &mut self.retains, MAX_DEVICES)?,
            kind::CALL if self.calls.add(part) => {}
            kind::VARIABLE => self.variables.add(part).ok_or_else(cut)?,
            kind::TIMES => read_rows(part, &mut self.times, MAX_OBJECTS)?,
            kind::LANES => read_rows(part, &mut self.lanes, MAX_LANES)?,
            kind::THREAD => self.take_thread(part).ok_or_else(cut)?,
            kind::REQUEST => self.take_request(part).ok_or_else(cut)?,
            kind::DIGESTS => self.take_digests(part).ok_or_else(cut)?,
            kind::GRAPHS if self.graphs.len() + part.len() <= again::MAX_BYTES => {
                self.graphs.extend_from_slice(part)
            }
            kind::HOST if self.host.is_none() => {
                let there = form::Host::read_from_bytes(part).map_err(|_| cut())?;
                let here = form::Host::of(session, 0.0)?;
                if there.device != here.device {
                    let (there, here) = (there.device(), here.device());
                    return Err(malformed(&format!(
                        "its device is another one ({there}) than that of this host ({here})"
                    )));
                }
                self.host = Some(there).filter(|host| host.stopped_at.is_finite());
            }
            kind::DEVICES if self.used.is_none() => {
                let (head, there) = form::Devices::read_from_prefix(part).map_err(|_| cut())?;
                let here = form::names(session)?;
                if here.len() < 2 || here.as_bytes() != there {
                    return Err(malformed("it sees other devices than those of this host"));
                }
                self.used = Some(head.used);
            }
            kind::TEXT => {
                let (head, text) = form::Text::read_from_prefix(part).map_err(|_| cut())?;
                session.output.add(u32::try_from(head.fd).unwrap_or(0), text)?;
            }
            kind::ACCESS => read_rows(part, &mut self.placed.access, MAX_ROWS)?,
            kind::PEERS => read_rows(part, &mut self.placed.peers, MAX_ROWS)?,
            kind::OFFERED => read_rows(part, &mut self.offered, MAX_OFFERS)?,
            kind::OPENED => read_rows(part, &mut self.placed.opened, MAX_ROWS)?,
            kind::HELD => read_rows(part, &mut self.held, MAX_ROWS)?,
            kind::CALL => return Err(malformed("a call is of no recipe that this release makes again")),
            _ => {
                return Err(malformed(&format!(
                    "a part is of a kind ({found}) that this release does not know"
                )));
            }
        }
        Ok(())
    }

    fn take_area(&mut self, part: &[u8]) -> Option<()> {
        let (head, rest) = form::Area::read_from_prefix(part).ok()?;
        let mut entries = Vec::new();
        read_rows(rest, &mut entries, MAX_ROWS.checked_sub(self.entries)?).ok()?;
        // Each area counts, too.
        self.entries += entries.len() + 1;
        if head.flags & !(form::SHARED | form::WRITABLE) != 0 {
            return None;
        }
        let area = Area {
            base: head.base,
            bytes: head.bytes,
            tag: head.tag,
            shared: head.flags & form::SHARED != 0,
            writable: head.flags & form::WRITABLE != 0,
        };
        self.areas.push((area, entries));
        Some(())
    }

    fn take_thread(&mut self, part: &[u8]) -> Option<()> {
        let (head, rest) = form::Thread::read_from_prefix(part).ok()?;
        let waits_bytes = (head.waits as usize).checked_mul(size_of::<form::Waiting>())?;
        let (waits, rest) = rest.split_at_checked(waits_bytes)?;
        let (info, error) = rest.split_at_checked(head.info_bytes as usize)?;
        if error.len() != head.error_bytes as usize || self.threads.len() >= MAX_THREADS {
            return None;
        }
        let mut rows = Vec::<form::Waiting>::new();
        read_rows(waits, &mut rows, MAX_REQUESTS).ok()?;
        let has = |flag: u32| head.flags & flag != 0;
        let lane = has(form::HAS_LANE).then_some(LeftLane {
            tag: head.tag,
            consumed: head.consumed,
            replied: head.replied,
            says_deferred: has(form::SAYS_DEFERRED),
        });
        let waiting = |row: &form::Waiting| Waiting {
            request: row.request,
            position: Position { replied: row.replied, consumed: row.consumed },
        };
        let left = Left {
            number: head.number,
            lane,
            lane_number: has(form::HAS_LANE).then_some(head.lane),
            deferred: has(form::HAS_DEFERRED).then_some(CudaError(head.deferred)),
            jit: JitLogs {
                info: info.to_vec(),
                error: error.to_vec(),
                wall_time: head.wall_time,
                threads_per_block: head.threads_per_block,
            },
            capture_mode: None,
            waits: rows.iter().map(waiting).collect(),
            frames: Vec::new(),
        };
        if self.by_number.insert(left.number, self.threads.len()).is_some() {
            return None;
        }
        self.threads.push(left);
        Some(())
    }

    fn take_request(&mut self, part: &[u8]) -> Option<()> {
        let (header, rest) = ToWorker::read_from_prefix(part).ok()?;
        let fits = header.kind == TO_CALL
            && header.payload_bytes <= MAX_PAYLOAD_BYTES
            && header.in_entries <= MAX_ENTRIES
            && header.out_entries <= MAX_ENTRIES
            && self.requests < MAX_REQUESTS;
        let (payload, entries) = rest.split_at_checked(header.payload_bytes as usize).filter(|_| fits)?;
        let ins = header.in_entries as usize * size_of::<MemEntry>();
        let (ins, outs) = entries.split_at_checked(ins)?;
        if outs.len() != header.out_entries as usize * size_of::<MemEntry>() {
            return None;
        }
        let entries_of = |bytes: &[u8]| {
            let mut entries = Vec::new();
            read_rows::<MemEntry>(bytes, &mut entries, MAX_ENTRIES as usize).ok().map(|()| entries)
        };
        let (in_entries, out_entries) = (entries_of(ins)?, entries_of(outs)?);
        // Its thread has one of the first fields of the payload, which the executors read, too.
        let (call, _) = virtio_cuda_protocol::cuda::CallHeader::read_from_prefix(payload).ok()?;
        let thread = *self.by_number.get(&call.thread)?;
        self.requests += 1;
        let frame = Frame { header, payload: payload.to_vec(), in_entries, out_entries, file: None };
        self.threads[thread].frames.push(frame);
        Some(())
    }

    fn take_digests(&mut self, part: &[u8]) -> Option<()> {
        let (head, rest) = form::Digests::read_from_prefix(part).ok()?;
        let mut digests = Vec::<Digest>::new();
        read_rows(rest, &mut digests, MAX_ROWS).ok()?;
        let is_new = self.digests.len() < MAX_ROWS && self.digests.insert(head.address, digests).is_none();
        is_new.then_some(())
    }

    /// Gives the session all of this. Its contents are away still.
    fn restore(
        mut self,
        session: &'static SessionState,
        state: &form::State,
        most: u64,
    ) -> Result<(Entered, Suspended), String> {
        if self.used.is_none() && session.devices.len() > 1 {
            return Err("it sees one device, and this worker several".to_owned());
        }
        let devices = (0..session.devices.len() as u32).map(|number| session.device(number));
        let devices: Vec<i32> = devices.collect::<Result<_, _>>().map_err(failed("there is no device"))?;
        let is_closed = session.gate.close(Instant::now() + SOON) && session.gate.seal(Instant::now() + SOON);
        if !is_closed {
            return Err("calls are under way".to_owned());
        }
        session.refused.store(state.flags & form::REFUSED != 0, Ordering::Relaxed);
        if state.flags & form::MAY_PRINT != 0 {
            session.vendor.will_print();
        }
        session.copy_time.begin_behind(state.copies[0], state.copies[1]);
        CALLBACKS.begin_behind(state.tickets);
        session.suspension.makes_again.store(true, Ordering::Relaxed);
        let mut created = self.restore_memory(session, &devices, &session.memory(), state.serial)?;
        if !self.files.is_empty() {
            let (files, mut placed) = (std::mem::take(&mut self.files), session.placed.lock());
            held::put(placed.movable_if(true).chain(created.iter_mut().map(|(_, part)| part)), files)?;
        }
        if !session.placed.lock().is_kept() {
            return Err("memory that other processes share is not on the card".to_owned());
        }
        let store = self.restore_store(session, state, &created, most)?;
        let deep = self.restore_objects(session, devices)?;
        let stopped_at = self.host.map_or(0.0, |host| host.stopped_at);
        let areas = std::mem::take(&mut self.later);
        let entered = Entered { threads: self.restore_threads(session)?, areas, stopped_at };
        let moved_bytes = session.placed.lock().movable().map(|part| part.bytes).sum::<u64>()
            + created.iter().map(|(_, part)| part.bytes).sum::<u64>();
        let copied_bytes = state.copied_bytes;
        let (deep, graphs) = (Some(deep), std::mem::take(&mut self.graphs));
        let now =
            Suspended { store, created, deep, graphs, written: None, saved: None, moved_bytes, copied_bytes };
        Ok((entered, now))
    }

    fn restore_memory(
        &mut self,
        session: &SessionState,
        devices: &[i32],
        memory: &Arc<GuestPages>,
        serial: u64,
    ) -> Result<Vec<(u64, Part)>, String> {
        let gpu = &session.gpu;
        let mut window = session.window();
        let mut reservations = session.reservations();
        reservations.restore_reserved(&self.reserved, |base, bytes| reserve_at(gpu, base, bytes))?;
        for &SpanRow { base, bytes } in &self.claimed {
            window.claim(base, bytes).map_err(failed("addresses of the window are in use"))?;
        }
        for &SpanRow { base, bytes } in &self.lent {
            reservations.check_lend(base, bytes).map_err(failed("lent addresses are not reserved"))?;
            // SAFETY: it was just checked that they are reserved and nothing is mapped there. It stays so: lent addresses can be
            // neither mapped nor freed.
            unsafe { window.borrow(base, bytes) }.map_err(failed("addresses cannot be lent"))?;
            reservations.lend(base, bytes);
        }
        for (area, entries) in self.areas.drain(..) {
            window.restore(area)?;
            match self.host {
                Some(_) => self.later.push((area.base, entries)),
                None => window.fill(area.base, memory.clone(), entries)?,
            }
        }
        let mut allocations = session.allocations();
        let charged = self.created.iter().try_for_each(|row| allocations.charge(row.bytes));
        charged.map_err(failed("its memory is more than it may have"))?;
        let created = reservations.restore_created(devices, &self.created, &self.mappings)?;
        for (_, part) in &created {
            statistics::add_movable_devices(session.placed.device_bit(part.device()));
        }
        drop(allocations);
        session.placed.restore(&self.placed)?;
        self.check_registrations(&window)?;
        let placed = session.placed.lock();
        let mut allocations = session.allocations();
        allocations.begin_behind(serial);
        let registered: HashMap<u64, _> = self.registrations.iter().map(|one| (one.dptr, one)).collect();
        let mut entered = 0;
        for row in &self.ranges {
            let form::Range { base, bytes, context, serial, .. } = *row;
            let origin = usize::try_from(row.origin).ok().and_then(|index| form::ORIGINS.get(index));
            let origin = *origin.ok_or("a range has an unknown origin")?;
            let device = row.device.cast_signed();
            if !devices.contains(&device) {
                return Err("a range is of a device that it does not see".to_owned());
            }
            let is_there = match origin {
                Origin::Allocated => {
                    entered += 1;
                    // All that it takes on the card is charged.
                    placed.room_of(base) == Some((context, taken_by(bytes), device))
                        && !matches!(placed.others_in(base), Others::Opened(_))
                }
                Origin::Opened => {
                    entered += 1;
                    placed.room_of(base) == Some((context, taken_by(bytes), device))
                        && matches!(placed.others_in(base), Others::Opened(_))
                }
                Origin::Mapped => {
                    let mapping = reservations.mapping(base);
                    mapping.is_some_and(|mapping| mapping.bytes == bytes && !mapping.access.is_empty())
                        && context == 0
                }
                _ => registered.get(&base).is_some_and(|one| {
                    let is_of = bytes <= one.bytes && context == one.context;
                    is_of && (origin == Origin::ReadOnlyWindow || window.is_writable(one.base, one.bytes))
                }),
            };
            if !is_there {
                return Err("a range is of no memory of the session".to_owned());
            }
            let range = Range { base, bytes, origin, context, device, serial };
            allocations.restore(range).map_err(failed("its memory is more than it may have, or overlaps"))?;
        }
        if entered != self.placed.allocations.len() {
            return Err("an allocation has no range".to_owned());
        }
        self.restore_sharing(session, &placed)?;
        Ok(created)
    }

    /// Enters what the session shares with other processes.
    fn restore_sharing(&self, session: &SessionState, placed: &State) -> Result<(), String> {
        for &form::Offered { what, name, context, token } in &self.offered {
            let is_its = || {
                let is_of = placed.room_of(name).is_some_and(|(of, ..)| of == context);
                is_of && placed.others_in(name) == Others::Offered
            };
            let what = match u32::try_from(what) {
                Ok(MEMORY) if is_its() => MEMORY,
                // The recipe makes it, or nobody finds it.
                Ok(EVENT) => EVENT,
                _ => return Err("something is offered that other processes cannot have".to_owned()),
            };
            session.sharing.offer_again((what, name), context, token);
        }
        for row in &self.placed.opened {
            let times = u32::try_from(row.times).ok().filter(|times| *times > 0);
            let times = times.ok_or("memory of another process is not open")?;
            let (context, ..) =
                placed.room_of(row.address).ok_or("memory of another process is not there")?;
            session.sharing.open_again(row.address, times, context);
        }
        Ok(())
    }

    /// Checks that registrations are of areas that calls keep, and apart from each other.
    fn check_registrations(&self, window: &crate::memory::window::Window) -> Result<(), String> {
        let mut ends = BTreeMap::new();
        for one in &self.registrations {
            let is_area = window.check_unregistered(one.base, one.bytes).is_ok();
            if !is_area || ends.insert(one.base, one.base + one.bytes).is_some() {
                return Err("pages are registered that are not there".to_owned());
            }
        }
        let are_apart = ends.values().zip(ends.keys().skip(1)).all(|(end, next)| end <= next);
        if are_apart { Ok(()) } else { Err("registered pages overlap".to_owned()) }
    }

    /// Makes the store for the contents of all memory. None of them is there.
    fn restore_store(
        &mut self,
        session: &SessionState,
        state: &form::State,
        created: &[(u64, Part)],
        most: u64,
    ) -> Result<Store, String> {
        let mut placed = session.placed.lock();
        let all = placed.movable().map(|part| &*part).chain(created.iter().map(|(_, part)| part));
        let all = all.filter(|part| part.stored);
        let parts: BTreeMap<u64, u64> = all.map(|part| (part.address(), part.bytes)).collect();
        let mut store = Store::new(&session.suspension.pages);
        if state.flags & form::HAS_KEY == 0 {
            return if parts.is_empty() { Ok(store) } else { Err("there is no key of digests".to_owned()) };
        }
        let key = Key::of(state.key);
        let (mut places, mut digests) = (Vec::new(), Vec::new());
        for (&address, &bytes) in &parts {
            let of_it = self.digests.remove(&address).unwrap_or_default();
            if of_it.len() as u64 * CHUNK_BYTES != bytes {
                return Err("the digests of an allocation are missing".to_owned());
            }
            places.push((address, bytes));
            digests.extend(of_it);
        }
        if !self.digests.is_empty() {
            return Err("there are digests of no memory".to_owned());
        }
        let chunks = digests.iter().filter(|digest| **digest != key.zeros).count() as u64;
        if state.flags & form::SAVED == 0 && chunks * CHUNK_BYTES > most {
            return Err("there is not enough host memory for its contents".to_owned());
        }
        let prepared = store.prepare(&places, &digests, key.zeros);
        prepared.map_err(|error| format!("there is no memory for its contents: {error}"))?;
        store.leave();
        session.suspension.key.get_or_init(|| key);
        Ok(store)
    }

    fn restore_objects(&mut self, session: &SessionState, mut devices: Vec<i32>) -> Result<Deep, String> {
        if !self.variables.is_whole() {
            return Err("a variable of device code is cut".to_owned());
        }
        let retains = self.retains.drain(..).zip(&devices).filter(|(row, _)| row.number > 0);
        let retains = retains.map(|(row, device)| (*device, row.number, row.flags));
        let retains = Retains::of(retains.collect());
        devices.retain(|device| self.used.is_none_or(|used| used & session.placed.device_bit(*device) != 0));
        let target = deep::target(session, &devices)?;
        let again = Again::of(session, target, std::mem::take(&mut self.calls).all())?;
        let registration = |one: form::Registration| Registration {
            base: one.base,
            bytes: one.bytes,
            context: one.context,
            dptr: one.dptr,
        };
        let registrations = self.registrations.drain(..).map(registration).collect();
        let times = self.times.drain(..).filter(|time| time.at.is_finite());
        session.suspension.times.lock().past.extend(times.map(|time| (time.event, time.at)));
        Ok(Deep { devices, again, variables: std::mem::take(&mut self.variables), retains, registrations })
    }

    fn restore_threads(&mut self, session: &'static SessionState) -> Result<Vec<Thread>, String> {
        for row in &self.lanes {
            let lane = u32::try_from(row.lane).unwrap_or(u32::MAX);
            if !session.order.restore(lane, row.position) {
                return Err("a lane is at a place where it cannot be".to_owned());
            }
        }
        let mut threads = Vec::new();
        for mut left in self.threads.drain(..) {
            left.capture_mode = capture_mode(session, left.number);
            let place = match left.lane.zip(left.lane_number) {
                None => None,
                Some((at, number)) => {
                    let area = session.window().find(at.tag, true);
                    let place = session.order.take_again(number, at.consumed);
                    let place =
                        area.zip(place).and_then(|(area, place)| LeftPlace::new(area, place, at.consumed));
                    Some(place.ok_or("a thread has a lane that does not exist")?)
                }
            };
            threads.push((left, place));
        }
        Ok(threads)
    }
}
