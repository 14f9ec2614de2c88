// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries. Natively a library calls the runtime or the driver in the program's process, and each of these
//! calls has a record and a correlation id. Here the library makes them in the worker, which reports them, and they get the
//! program's numbers when they arrive.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::{ACTIVITY_DRIVER, API_DRIVER, API_RUNTIME, CUpti_ActivityAPI, TraceWork};

use crate::external::Pushed;
use crate::{cbids, kinds, numbers};

/// The maximum number of the program's calls that are remembered (10 MiB), because reports come later.
const MAX_OUTER: usize = 1 << 16;
/// The maximum number of calls in the worker whose number is remembered (2 MiB).
const MAX_INNER: usize = 1 << 16;

/// The program's call of a library.
#[derive(Clone, Copy, Debug)]
struct Outer {
    /// The record of the calls inside, except for function, number and times.
    record: CUpti_ActivityAPI,
    pushed: Pushed,
    /// The number of nanoseconds from the first call inside to the program's; 0 if it lies in the program's.
    shift: Option<i64>,
}

#[derive(Debug, Default)]
struct Calls {
    outer: BTreeMap<u32, Outer>,
    /// The program's number of a call by the worker's.
    inner: BTreeMap<u32, u32>,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls { outer: BTreeMap::new(), inner: BTreeMap::new() });

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the program calls a library: the worker may report calls inside before this one ends.
pub fn begin(record: CUpti_ActivityAPI, pushed: Pushed) {
    let outer = Outer { record, pushed, shift: None };
    numbers::insert(&mut calls().outer, MAX_OUTER, record.correlation, outer);
}

/// Notes the end of such a call.
pub fn end(correlation: u32, time: u64) {
    if let Some(outer) = calls().outer.get_mut(&correlation) {
        outer.record.end = time;
    }
}

/// Forgets all calls.
pub fn forget() {
    *calls() = Calls::default();
}

/// Returns the number of the call that has submitted `work`: a call inside one of a library, or the program's own one.
pub fn number_of(work: &TraceWork) -> u32 {
    if work.call == 0 { work.correlation } else { calls().number_of(work.call) }
}

/// Returns the record of an API call that a library has made in the worker, and the external ids of the program's call; `None`
/// if it is not recorded. `call` has the program's clock.
pub fn record(call: &TraceWork) -> Option<(CUpti_ActivityAPI, Pushed)> {
    let api = if call.kind == ACTIVITY_DRIVER { API_DRIVER } else { API_RUNTIME };
    if call.cbid as usize >= cbids::COUNT || !kinds::records(api, call.cbid) {
        return None;
    }
    calls().inside(call)
}

impl Calls {
    fn number_of(&mut self, inner: u32) -> u32 {
        if let Some(number) = self.inner.get(&inner) {
            return *number;
        }
        let number = numbers::next();
        numbers::insert(&mut self.inner, MAX_INNER, inner, number);
        number
    }

    /// Returns the record of a call inside, and the external ids of the program's call; `None` if that one was forgotten.
    ///
    /// The program often goes on before the worker calls the library. Such calls have begun and ended within the program's call
    /// natively, and profilers search for them there, so they are moved into it.
    fn inside(&mut self, call: &TraceWork) -> Option<(CUpti_ActivityAPI, Pushed)> {
        let correlation = self.number_of(call.call);
        let outer = self.outer.get_mut(&call.correlation)?;
        let (from, to) = (outer.record.start, outer.record.end);
        let is_inside = (from..=to).contains(&call.start) && call.end <= to;
        let distance = from.wrapping_sub(call.start).cast_signed();
        let shift = *outer.shift.get_or_insert(if is_inside { 0 } else { distance });
        let moved = |time: u64| time.saturating_add_signed(shift).clamp(from, to.max(from));
        let record = CUpti_ActivityAPI {
            kind: call.kind,
            cbid: call.cbid,
            start: moved(call.start),
            end: moved(call.end),
            correlation,
            result: call.value,
            ..outer.record
        };
        Some((record, outer.pushed))
    }
}

#[cfg(test)]
mod tests {
    use cuda_abi::ACTIVITY_RUNTIME;

    use super::*;

    #[test]
    fn calls_inside_get_numbers_and_lie_in_the_programs() {
        let mut calls = Calls::default();
        let record = CUpti_ActivityAPI {
            kind: ACTIVITY_RUNTIME,
            cbid: 0,
            start: 1_000,
            end: 1_500,
            process: 1,
            thread: 2,
            correlation: 7,
            result: 0,
        };
        let outer = Outer { record, pushed: [None, Some(9), None, None, None], shift: None };
        for number in [7, 8] {
            calls.outer.insert(number, outer);
        }
        let call = |correlation, call, start, end| TraceWork {
            kind: ACTIVITY_RUNTIME,
            correlation,
            call,
            start,
            end,
            cbid: 211,
            ..TraceWork::default()
        };
        let mut times = |work: TraceWork| {
            let (record, pushed) = calls.inside(&work).expect("the program's call is known");
            assert_eq!((record.cbid, record.thread, pushed[1]), (211, 2, Some(9)));
            (record.start, record.end)
        };
        // While the program waits, and after it has gone on.
        assert_eq!(times(call(7, 70, 1_100, 1_200)), (1_100, 1_200));
        assert_eq!(times(call(7, 71, 1_300, 1_400)), (1_300, 1_400));
        assert_eq!(times(call(8, 72, 9_000, 9_300)), (1_000, 1_300));
        assert_eq!(times(call(8, 73, 9_400, 9_900)), (1_400, 1_500));
        assert_eq!(times(call(8, 74, 9_999, u64::MAX)), (1_500, 1_500));
        assert!(calls.inside(&call(9, 75, 1, 2)).is_none());
        let numbers = [70, 71, 72, 73, 70].map(|inner| calls.number_of(inner));
        assert_eq!(numbers[0], numbers[4]);
        assert!(numbers[..4].iter().collect::<std::collections::BTreeSet<_>>().len() == 4);
    }
}
