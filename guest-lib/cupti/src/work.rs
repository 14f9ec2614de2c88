// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts the work of GPUs from libcuda's form to records.

use std::ffi::c_void;
use std::slice;

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_KERNEL, ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2,
    ACTIVITY_MEMSET, ACTIVITY_RUNTIME, CUpti_ActivityKernel, CUpti_ActivityMemcpy, CUpti_ActivityMemcpyPtoP,
    CUpti_ActivityMemset, TraceWork,
};

use crate::queue::{self, Record};
use crate::{clock, driver, ids, kinds, library, names, numbers, pageable};

/// Items of work with the names of their kernels.
type Fetched = Vec<(TraceWork, &'static std::ffi::CStr)>;

extern "C" fn take(data: *mut c_void, work: &TraceWork, name: *const u8, bytes: usize) {
    // SAFETY: `fetch` passes its list, which nothing else uses meanwhile.
    let list = unsafe { &mut *data.cast::<Fetched>() };
    // SAFETY: libcuda passes a name of that length from its own heap, which nobody writes meanwhile; NULL for none.
    let name = if name.is_null() { &[][..] } else { unsafe { slice::from_raw_parts(name, bytes) } };
    list.push((*work, names::keep(name)));
}

/// Makes records of all completed work.
pub fn fetch() {
    let Some(provider) = driver::provider().filter(|_| driver::has_started()) else { return };
    let (mut list, mut dropped) = (Fetched::new(), 0);
    (provider.drain)(take, (&raw mut list).cast(), &mut dropped);
    queue::drop_records(dropped);
    if list.is_empty() {
        return;
    }
    clock::refresh(|| driver::now(provider));
    list.sort_by_key(|(work, _)| work.start);
    let mut records = Vec::with_capacity(list.len());
    for (mut work, name) in merged(list) {
        work.correlation = numbers::whole(work.correlation);
        (work.start, work.end) = (clock::of_provider(work.start), clock::of_provider(work.end));
        work.end = work.end.max(work.start);
        pageable::correct(&mut work);
        if matches!(work.kind, ACTIVITY_RUNTIME | ACTIVITY_DRIVER) {
            if let Some((record, pushed)) = library::record(&work) {
                records.extend(queue::of_call(record, pushed));
            }
        } else if let Some(record) = record(&work, name) {
            records.push(record);
        }
    }
    queue::push(records);
}

/// Merges the pieces into which a copy of one call was split.
fn merged(list: Fetched) -> Fetched {
    let mut joined: Fetched = Vec::with_capacity(list.len());
    for (work, name) in list {
        match joined.last_mut() {
            Some((last, _)) if is_piece(last, &work) => {
                last.end = last.end.max(work.end);
                last.bytes = last.bytes.saturating_add(work.bytes);
            }
            _ => joined.push((work, name)),
        }
    }
    joined
}

fn is_piece(last: &TraceWork, work: &TraceWork) -> bool {
    let key =
        |work: &TraceWork| (work.kind, work.correlation, work.call, work.kinds[0], work.stream, work.context);
    work.kind == ACTIVITY_MEMCPY && work.correlation != 0 && work.graph_node == 0 && key(last) == key(work)
}

/// Makes a record if its kind is known and was enabled when the program submitted the work.
fn record(work: &TraceWork, name: &'static std::ffi::CStr) -> Option<Record> {
    let submitted = work.correlation;
    let (graph, graph_node) = ids::of_work(submitted, work.graph, work.graph_node);
    let work = &TraceWork { correlation: library::number_of(work), graph, graph_node, ..*work };
    let is_kernel = matches!(work.kind, ACTIVITY_KERNEL | ACTIVITY_CONCURRENT_KERNEL);
    if is_kernel {
        let enabled = [ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_KERNEL];
        let kind = enabled.into_iter().find(|kind| kinds::was_enabled(*kind, submitted))?;
        return Some(Record::Kernel(kernel(work, kind, name)));
    }
    if !kinds::was_enabled(work.kind, submitted) {
        return None;
    }
    match work.kind {
        ACTIVITY_MEMCPY => Some(Record::Memcpy(copy(work))),
        ACTIVITY_MEMCPY2 => Some(Record::PeerMemcpy(peer_copy(work))),
        ACTIVITY_MEMSET => Some(Record::Memset(fill(work))),
        _ => None,
    }
}

fn kernel(work: &TraceWork, kind: u32, name: &'static std::ffi::CStr) -> CUpti_ActivityKernel {
    CUpti_ActivityKernel {
        kind,
        registers: u16::try_from(work.registers).unwrap_or(u16::MAX),
        start: work.start,
        end: work.end,
        completed: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        grid: work.grid,
        block: work.block,
        static_shared: work.shared[0],
        dynamic_shared: work.shared[1],
        local_per_thread: work.local,
        correlation: work.correlation,
        grid_id: work.grid_id,
        name: name.as_ptr() as usize,
        graph_node: work.graph_node,
        graph: work.graph,
        channel: work.channel,
        ..CUpti_ActivityKernel::ZERO
    }
}

fn copy(work: &TraceWork) -> CUpti_ActivityMemcpy {
    CUpti_ActivityMemcpy {
        kind: ACTIVITY_MEMCPY,
        kinds: work.kinds,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        correlation: work.correlation,
        graph_node: work.graph_node,
        graph: work.graph,
        channel: work.channel,
        copies: 1,
        ..CUpti_ActivityMemcpy::ZERO
    }
}

fn peer_copy(work: &TraceWork) -> CUpti_ActivityMemcpyPtoP {
    CUpti_ActivityMemcpyPtoP {
        kind: ACTIVITY_MEMCPY2,
        kinds: work.kinds,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        source: [work.grid[0], work.grid[1]],
        destination: [work.grid[2], work.block[0]],
        correlation: work.correlation,
        graph_node: work.graph_node,
        graph: work.graph,
        channel: work.channel,
        ..CUpti_ActivityMemcpyPtoP::ZERO
    }
}

fn fill(work: &TraceWork) -> CUpti_ActivityMemset {
    let [low, high, kind_low, kind_high] = work.kinds;
    CUpti_ActivityMemset {
        kind: ACTIVITY_MEMSET,
        value: work.value,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        correlation: work.correlation,
        flags: u16::from_le_bytes([low, high]),
        memory_kind: u16::from_le_bytes([kind_low, kind_high]),
        graph_node: work.graph_node,
        graph: work.graph,
        channel: work.channel,
        ..CUpti_ActivityMemset::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_copy_are_one_record() {
        let piece = |correlation, start, bytes| {
            let work = TraceWork {
                kind: ACTIVITY_MEMCPY,
                correlation,
                start,
                end: start + 5,
                bytes,
                ..TraceWork::default()
            };
            (work, c"")
        };
        let list = vec![piece(3, 10, 4), piece(3, 20, 6), piece(4, 30, 1), piece(0, 40, 1), piece(0, 50, 1)];
        let joined: Vec<_> = merged(list)
            .iter()
            .map(|(work, _)| (work.correlation, work.start, work.end, work.bytes))
            .collect();
        assert_eq!(joined, [(3, 10, 25, 10), (4, 30, 35, 1), (0, 40, 45, 1), (0, 50, 55, 1)]);
    }

    #[test]
    fn fills_tell_flags_and_memory() {
        let work = TraceWork { kind: ACTIVITY_MEMSET, kinds: [1, 0, 3, 0], value: 7, ..TraceWork::default() };
        let record = fill(&work);
        assert_eq!((record.flags, record.memory_kind, record.value), (1, 3, 7));
    }
}
