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
    /// Number of lost records since the last query.
    dropped: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { records: VecDeque::new(), dropped: 0 });

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Appends a record.
pub fn push(record: Record) {
    let mut queue = queue();
    if queue.records.len() < MAX_RECORDS {
        queue.records.push_back(record);
    } else {
        queue.dropped += 1;
    }
}

/// Appends the record of a call, and those of its external ids.
pub fn push_call(record: CUpti_ActivityAPI, pushed: Pushed) {
    if kinds::is_enabled(ACTIVITY_EXTERNAL_CORRELATION) {
        for (external_kind, external) in (1..).zip(pushed) {
            let Some(external) = external else { continue };
            push(Record::External(CUpti_ActivityExternalCorrelation {
                kind: ACTIVITY_EXTERNAL_CORRELATION,
                external_kind,
                external,
                correlation: record.correlation,
                reserved: 0,
            }));
        }
    }
    push(Record::Api(record));
}

/// Returns the number of records.
pub fn len() -> usize {
    queue().records.len()
}

/// Delivers the records if there are at least `MANY`.
pub fn relieve() {
    let waiting = len();
    if waiting >= MANY && waiting.is_multiple_of(MANY / 16) {
        deliver_without_waiting();
    }
}

/// Takes the first record.
pub fn pop() -> Option<Record> {
    queue().records.pop_front()
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
