// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that await delivery.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::{
    ACTIVITY_EXTERNAL_CORRELATION, CUpti_ActivityAPI, CUpti_ActivityExternalCorrelation,
    CUpti_ActivityKernel, CUpti_ActivityMemcpy, CUpti_ActivityMemcpyPtoP, CUpti_ActivityMemset,
};

use crate::buffers::deliver_without_waiting;
use crate::external::Pushed;
use crate::kinds;

/// The maximum number of waiting records: about 250 MiB. Limits the process's memory, because a program may never
/// flush.
const MAX_RECORDS: usize = 1 << 20;
/// From this number of records on they are delivered without a flush.
const MANY: usize = 1 << 16;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    Api(CUpti_ActivityAPI),
    External(CUpti_ActivityExternalCorrelation),
    Kernel(CUpti_ActivityKernel),
    Memcpy(CUpti_ActivityMemcpy),
    PeerMemcpy(CUpti_ActivityMemcpyPtoP),
    Memset(CUpti_ActivityMemset),
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Record>,
    /// Memory for the records that follow those which are being delivered: without records.
    spare: VecDeque<Record>,
    /// Number of lost records since the last query.
    dropped: u64,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { records: VecDeque::new(), spare: VecDeque::new(), dropped: 0 });

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Appends records. Returns the number of those that wait.
pub fn push(records: impl IntoIterator<Item = Record>) -> usize {
    let mut queue = queue();
    for record in records {
        if queue.records.len() < MAX_RECORDS {
            queue.records.push_back(record);
        } else {
            queue.dropped += 1;
        }
    }
    queue.records.len()
}

/// Returns the records of the external ids of a call, and the call's own behind them.
pub fn of_call(record: CUpti_ActivityAPI, pushed: Pushed) -> impl Iterator<Item = Record> {
    let pushed = if kinds::is_enabled(ACTIVITY_EXTERNAL_CORRELATION) { pushed } else { Pushed::default() };
    let external = move |(external_kind, external): (u32, Option<u64>)| {
        Some(Record::External(CUpti_ActivityExternalCorrelation {
            kind: ACTIVITY_EXTERNAL_CORRELATION,
            external_kind,
            external: external?,
            correlation: record.correlation,
            reserved: 0,
        }))
    };
    (1..).zip(pushed).filter_map(external).chain([Record::Api(record)])
}

/// Delivers the records if at least `MANY` are `waiting`.
pub fn relieve(waiting: usize) {
    if waiting >= MANY && waiting.is_multiple_of(MANY / 16) {
        deliver_without_waiting();
    }
}

/// Takes all records: calls of the program that add one would otherwise wait for each that is delivered.
pub fn take() -> VecDeque<Record> {
    let mut queue = queue();
    let spare = std::mem::take(&mut queue.spare);
    std::mem::replace(&mut queue.records, spare)
}

/// Keeps the memory of records that were delivered for new ones, unless it is much.
pub fn recycle(mut delivered: VecDeque<Record>) {
    delivered.clear();
    delivered.shrink_to(MANY);
    queue().spare = delivered;
}

/// Counts records that were lost.
pub fn drop_records(count: u64) {
    let mut queue = queue();
    queue.dropped = queue.dropped.saturating_add(count);
}

/// Returns the number of records that were lost since the last call.
pub fn take_dropped() -> u64 {
    std::mem::take(&mut queue().dropped)
}

/// Forgets all records.
pub fn clear() {
    *queue() = Queue::default();
}
