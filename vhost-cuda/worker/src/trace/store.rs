// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores records of CUPTI until the guest or the operator reads them, in the wire format.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_EXTERNAL_CORRELATION, ACTIVITY_KERNEL,
    ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, ACTIVITY_RUNTIME, CUpti_ActivityAPI,
    CUpti_ActivityExternalCorrelation, CUpti_ActivityKernel, CUpti_ActivityMemcpy, CUpti_ActivityMemcpyPtoP,
    CUpti_ActivityMemset, TraceWork, Zero,
};
use parking_lot::{Mutex, MutexGuard};

use super::Caller;

/// The maximum number of waiting pieces of work (64 MiB), because a guest may never read.
const MAX_WORK: usize = 1 << 19;
/// The same for the operator (8 MiB), whose daemon may stop reading.
const MAX_OPERATOR_WORK: usize = 1 << 16;
/// The maximum number of API calls whose external id is remembered.
const MAX_CALLS: usize = 1 << 19;
/// The maximum number of API calls that await their external id (8 MiB). CUPTI does not document the order of both records.
const MAX_UNKNOWN: usize = 1 << 16;
/// The maximum number of names, and the maximum bytes of one and of all, because a guest chooses them.
const MAX_NAMES: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 16 << 10;
const MAX_NAMES_BYTES: usize = 32 << 20;

/// The answer to one read.
#[derive(Debug, Default)]
pub struct Read {
    /// The work.
    pub work: Vec<TraceWork>,
    /// The number of remaining pieces of work.
    pub left: usize,
    /// The number of pieces that were lost since the last read.
    pub dropped: u64,
}

/// An API call of this process.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// The number of the program's call.
    number: u32,
    by_library: bool,
}

/// Work for the operator.
#[derive(Default)]
struct ForOperator {
    work: VecDeque<TraceWork>,
    dropped: u64,
}

#[derive(Default)]
struct Store {
    /// True while a profiler in the guest is active.
    for_guest: bool,
    operator: Option<ForOperator>,
    /// Work, and API calls of libraries, with CUPTI's correlation id.
    work: VecDeque<TraceWork>,
    /// The calls by CUPTI's correlation id.
    calls: BTreeMap<u32, Made>,
    /// Records of calls that no library is known to have made, by the same id.
    unknown: BTreeMap<u32, TraceWork>,
    names: Vec<Arc<[u8]>>,
    numbers: HashMap<Arc<[u8]>, u32>,
    name_bytes: usize,
    dropped: u64,
}

static STORE: Mutex<Option<Store>> = Mutex::new(None);

fn store() -> MutexGuard<'static, Option<Store>> {
    STORE.lock()
}

impl Store {
    fn add(&mut self, work: TraceWork) {
        // CUPTI reports it again when it has ended.
        if work.end == 0 {
            return;
        }
        let is_call = matches!(work.kind, ACTIVITY_RUNTIME | ACTIVITY_DRIVER);
        if let Some(operator) = self.operator.as_mut().filter(|_| !is_call) {
            match operator.work.len() < MAX_OPERATOR_WORK {
                true => operator.work.push_back(work),
                false => operator.dropped += 1,
            }
        }
        match self.work.len() < MAX_WORK {
            _ if self.operator.is_some() && !self.for_guest => {}
            true => self.work.push_back(work),
            false => self.dropped += 1,
        }
    }

    /// Adds an API call if a library has made it. The guest does not see a call that the worker makes for itself.
    fn add_call(&mut self, call: TraceWork) {
        if self.calls.get(&call.correlation).is_some_and(|made| made.by_library) {
            return self.add(call);
        }
        insert(&mut self.unknown, MAX_UNKNOWN, call.correlation, call);
    }

    /// Notes for which call of the program a call with CUPTI's id was made.
    fn know(&mut self, call: &CUpti_ActivityExternalCorrelation) {
        let by_library = call.external_kind == Caller::Library as u32;
        let known = self.calls.get(&call.correlation).is_some_and(|made| made.by_library);
        let made = Made { number: call.external as u32, by_library: by_library || known };
        insert(&mut self.calls, MAX_CALLS, call.correlation, made);
        if by_library && let Some(call) = self.unknown.remove(&call.correlation) {
            self.add(call);
        }
    }

    fn number_of(&mut self, name: &[u8]) -> u32 {
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() >= MAX_NAMES || self.name_bytes + name.len() > MAX_NAMES_BYTES {
            return 0;
        }
        self.name_bytes += name.len();
        let name = Arc::<[u8]>::from(name);
        self.names.push(name.clone());
        let number = self.names.len() as u32;
        self.numbers.insert(name, number);
        number
    }

    /// Returns whether that many pieces wait, and the calls of all of them are known. CUPTI may deliver a full buffer
    /// of work before the buffer with the calls.
    fn has(&self, count: usize) -> bool {
        let known = |work: &TraceWork| self.calls.contains_key(&work.correlation);
        self.work.len() >= count.max(1) && self.work.iter().take(count).all(known)
    }

    fn read(&mut self, count: usize) -> Read {
        let count = count.min(self.work.len());
        let calls = &self.calls;
        let of_guest = |work: TraceWork| {
            let made = calls.get(&work.correlation).copied().unwrap_or_default();
            let call = if made.by_library { work.correlation } else { 0 };
            TraceWork { correlation: made.number, call, ..work }
        };
        let work = self.work.drain(..count).map(of_guest).collect();
        Read { work, left: self.work.len(), dropped: std::mem::take(&mut self.dropped) }
    }
}

/// Inserts into a map of at most `most` entries, from which the oldest number goes.
fn insert<T>(map: &mut BTreeMap<u32, T>, most: usize, number: u32, value: T) {
    if map.len() >= most {
        map.pop_first();
    }
    map.insert(number, value);
}

/// Takes up to `count` pieces of work. `flush` makes CUPTI deliver more if the waiting pieces are too few or
/// incomplete.
pub fn read(count: usize, flush: impl FnOnce()) -> Read {
    let has = store().as_ref().is_some_and(|store| store.has(count));
    if !has {
        flush();
    }
    store().get_or_insert_default().read(count)
}

/// Begins or ends to collect for a profiler in the guest. What it has not read is kept.
pub fn collect_for_guest(begin: bool) {
    store().get_or_insert_default().for_guest = begin;
}

/// Begins or ends to collect for the operator.
pub fn collect_for_operator(begin: bool) {
    store().get_or_insert_default().operator = begin.then(ForOperator::default);
}

/// Frees everything. No profiler in the guest may have started.
pub fn forget() {
    *store() = None;
}

/// Takes up to `count` pieces of work for the operator. `flush` makes CUPTI deliver more if there are none.
pub fn read_for_operator(count: usize, flush: impl FnOnce()) -> Read {
    let waits =
        |store: &Option<Store>| store.as_ref()?.operator.as_ref().map(|operator| !operator.work.is_empty());
    if waits(&store()) == Some(false) {
        flush();
    }
    let mut store = store();
    let Some(operator) = store.as_mut().and_then(|store| store.operator.as_mut()) else {
        return Read::default();
    };
    let work = operator.work.drain(..count.min(operator.work.len())).collect();
    Read { work, left: operator.work.len(), dropped: std::mem::take(&mut operator.dropped) }
}

/// Returns the number of a name, 0 if there are too many.
pub fn number_of(name: &[u8]) -> u32 {
    store().get_or_insert_default().number_of(name)
}

/// Returns the name with that number.
pub fn name(number: u32) -> Option<Arc<[u8]>> {
    let at = (number as usize).checked_sub(1)?;
    store().as_ref()?.names.get(at).cloned()
}

/// Counts records that CUPTI has dropped.
pub fn count_dropped(count: u64) {
    let mut store = store();
    let store = store.get_or_insert_default();
    store.dropped = store.dropped.saturating_add(count);
    if let Some(operator) = &mut store.operator {
        operator.dropped = operator.dropped.saturating_add(count);
    }
}

/// Returns a record with zeros after its end: releases of CUPTI append fields to structures.
///
/// # Safety
///
/// `record` must have `bytes` readable bytes, and `T` must be valid for any bytes.
unsafe fn load<T: Zero>(record: *const u8, bytes: usize) -> T {
    let mut value = T::ZERO;
    let bytes = bytes.min(size_of::<T>());
    // SAFETY: `record` is readable that far by this function's contract, and `value` has room for it.
    unsafe { std::ptr::copy_nonoverlapping(record, (&raw mut value).cast(), bytes) };
    value
}

/// Stores a record.
///
/// # Safety
///
/// `record` must be a record of CUPTI with `bytes` readable bytes, and its name, if it has one, a C string.
pub unsafe fn take(record: *const u8, bytes: usize) {
    if bytes < size_of::<u32>() {
        return;
    }
    // SAFETY: the record begins with its kind.
    let kind = unsafe { record.cast::<u32>().read_unaligned() };
    let mut store = store();
    let store = store.get_or_insert_default();
    // SAFETY: in each case the record is of this kind, and has `bytes` readable bytes by this function's contract. All
    // structures are plain numbers.
    unsafe {
        match kind {
            ACTIVITY_KERNEL | ACTIVITY_CONCURRENT_KERNEL => {
                let kernel: CUpti_ActivityKernel = load(record, bytes);
                let name = match kernel.name {
                    0 => 0,
                    address => store.number_of(CStr::from_ptr(address as *const c_char).to_bytes()),
                };
                store.add(of_kernel(&kernel, name));
            }
            ACTIVITY_MEMCPY => store.add(of_copy(&load(record, bytes))),
            ACTIVITY_MEMCPY2 => store.add(of_peer_copy(&load(record, bytes))),
            ACTIVITY_MEMSET => store.add(of_fill(&load(record, bytes))),
            ACTIVITY_RUNTIME | ACTIVITY_DRIVER => store.add_call(of_call(&load(record, bytes))),
            ACTIVITY_EXTERNAL_CORRELATION => store.know(&load(record, bytes)),
            _ => {}
        }
    }
}

fn of_kernel(kernel: &CUpti_ActivityKernel, name: u32) -> TraceWork {
    TraceWork {
        kind: ACTIVITY_CONCURRENT_KERNEL,
        correlation: kernel.correlation,
        start: kernel.start,
        end: kernel.end,
        device: kernel.device,
        context: kernel.context,
        stream: kernel.stream,
        name,
        grid: kernel.grid,
        block: kernel.block,
        shared: [kernel.static_shared, kernel.dynamic_shared],
        registers: kernel.registers.into(),
        local: kernel.local_per_thread,
        graph: kernel.graph,
        channel: kernel.channel,
        graph_node: kernel.graph_node,
        grid_id: kernel.grid_id,
        ..TraceWork::default()
    }
}

fn of_copy(copy: &CUpti_ActivityMemcpy) -> TraceWork {
    TraceWork {
        kind: ACTIVITY_MEMCPY,
        correlation: copy.correlation,
        start: copy.start,
        end: copy.end,
        device: copy.device,
        context: copy.context,
        stream: copy.stream,
        bytes: copy.bytes,
        kinds: copy.kinds,
        graph: copy.graph,
        channel: copy.channel,
        graph_node: copy.graph_node,
        ..TraceWork::default()
    }
}

fn of_peer_copy(copy: &CUpti_ActivityMemcpyPtoP) -> TraceWork {
    TraceWork {
        kind: ACTIVITY_MEMCPY2,
        correlation: copy.correlation,
        start: copy.start,
        end: copy.end,
        device: copy.device,
        context: copy.context,
        stream: copy.stream,
        bytes: copy.bytes,
        kinds: copy.kinds,
        grid: [copy.source[0], copy.source[1], copy.destination[0]],
        block: [copy.destination[1], 0, 0],
        graph: copy.graph,
        channel: copy.channel,
        graph_node: copy.graph_node,
        ..TraceWork::default()
    }
}

fn of_call(call: &CUpti_ActivityAPI) -> TraceWork {
    TraceWork {
        kind: call.kind,
        correlation: call.correlation,
        start: call.start,
        end: call.end,
        value: call.result,
        cbid: call.cbid,
        ..TraceWork::default()
    }
}

fn of_fill(fill: &CUpti_ActivityMemset) -> TraceWork {
    let ([low, high], [kind_low, kind_high]) = (fill.flags.to_le_bytes(), fill.memory_kind.to_le_bytes());
    TraceWork {
        kind: ACTIVITY_MEMSET,
        correlation: fill.correlation,
        start: fill.start,
        end: fill.end,
        device: fill.device,
        context: fill.context,
        stream: fill.stream,
        bytes: fill.bytes,
        value: fill.value,
        kinds: [low, high, kind_low, kind_high],
        graph: fill.graph,
        channel: fill.channel,
        graph_node: fill.graph_node,
        ..TraceWork::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(caller: Caller, correlation: u32, external: u64) -> CUpti_ActivityExternalCorrelation {
        CUpti_ActivityExternalCorrelation {
            kind: ACTIVITY_EXTERNAL_CORRELATION,
            external_kind: caller as u32,
            external,
            correlation,
            reserved: 0,
        }
    }

    #[test]
    fn calls_of_libraries_are_told_and_no_others() {
        let mut store = Store::default();
        let call = |correlation| TraceWork {
            kind: ACTIVITY_RUNTIME,
            correlation,
            end: 5,
            cbid: 211,
            ..TraceWork::default()
        };
        for by_worker in [70, 71, 72] {
            store.know(&external(Caller::Worker, by_worker, 7));
        }
        store.know(&external(Caller::Library, 71, 7));
        for made in [70, 71, 72, 73] {
            store.add_call(call(made));
        }
        // This record comes after its call.
        store.know(&external(Caller::Library, 72, 7));
        store.know(&external(Caller::Worker, 72, 7));
        store.add(TraceWork { kind: ACTIVITY_MEMSET, ..call(72) });
        let told: Vec<_> =
            store.read(9).work.iter().map(|work| (work.kind, work.correlation, work.call)).collect();
        assert_eq!(told, [(ACTIVITY_RUNTIME, 7, 71), (ACTIVITY_RUNTIME, 7, 72), (ACTIVITY_MEMSET, 7, 72)]);
        for correlation in 0..2 * MAX_UNKNOWN as u32 {
            store.add_call(call(correlation));
        }
        assert!(store.unknown.len() <= MAX_UNKNOWN);
    }

    #[test]
    fn work_gets_the_guests_number() {
        let mut store = Store::default();
        let work = |correlation, end| TraceWork { correlation, end, ..TraceWork::default() };
        store.add(work(70, 5));
        store.add(work(71, 6));
        store.add(work(72, 0));
        store.know(&external(Caller::Worker, 70, 7));
        let first = store.read(1);
        assert_eq!((first.work[0].correlation, first.left), (7, 1));
        let rest = store.read(9);
        assert_eq!((rest.work.len(), rest.work[0].correlation, rest.left), (1, 0, 0));
    }

    #[test]
    fn the_operator_gets_work_without_calls_beside_the_guest() {
        let work = |kind| TraceWork { kind, end: 5, ..TraceWork::default() };
        let mut store = Store { operator: Some(ForOperator::default()), ..Store::default() };
        store.add(work(ACTIVITY_MEMSET));
        store.for_guest = true;
        store.add(work(ACTIVITY_MEMCPY));
        store.add(work(ACTIVITY_DRIVER));
        let kinds = |work: &VecDeque<TraceWork>| work.iter().map(|work| work.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&store.work), [ACTIVITY_MEMCPY, ACTIVITY_DRIVER]);
        let operator = store.operator.as_mut().unwrap();
        assert_eq!(kinds(&operator.work), [ACTIVITY_MEMSET, ACTIVITY_MEMCPY]);
        for _ in 0..MAX_OPERATOR_WORK {
            store.add(work(ACTIVITY_MEMSET));
        }
        let operator = store.operator.unwrap();
        assert_eq!((operator.work.len(), operator.dropped), (MAX_OPERATOR_WORK, 2));
    }

    #[test]
    fn work_before_its_call_is_not_ready() {
        let mut store = Store::default();
        assert!(!store.has(0) && !store.has(1));
        store.add(TraceWork { correlation: 70, end: 5, ..TraceWork::default() });
        assert!(!store.has(1));
        store.know(&external(Caller::Worker, 70, 7));
        assert!(store.has(1) && !store.has(2));
    }

    #[test]
    fn records_of_older_releases_are_read_as_far_as_they_go() {
        let mut bytes = vec![0_u8; 208];
        bytes[..4].copy_from_slice(&ACTIVITY_CONCURRENT_KERNEL.to_le_bytes());
        bytes[24..32].copy_from_slice(&9_u64.to_le_bytes());
        // SAFETY: the record has that many bytes, which are plain numbers.
        let kernel: CUpti_ActivityKernel = unsafe { load(bytes.as_ptr(), bytes.len()) };
        assert_eq!((kernel.end, kernel.later), (9, [0; 5]));
    }

    #[test]
    fn names_are_numbered_once_and_bounded() {
        let mut store = Store::default();
        assert_eq!([b"a", b"b", b"a"].map(|name| store.number_of(name)), [1, 2, 1]);
        let long = vec![b'x'; MAX_NAME_BYTES + 1];
        let number = store.number_of(&long) as usize;
        assert_eq!(store.names[number - 1].len(), MAX_NAME_BYTES);
    }
}
