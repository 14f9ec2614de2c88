// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of NVTX that begin and end by `nvtxRangeStart` and `nvtxRangeEnd`: in any order, and in any thread.
//!
//! Each open range has a row of its own in the timeline, the first one that is free, because ranges of one row may not overlap.

use std::sync::{Mutex, PoisonError};

use vhost_cuda_profile::event::{Event, Kind};

use crate::texts::Text;

/// The maximum number of open ranges. Limits the program's memory, and the time of a search for a free row.
const MAX_OPEN: usize = 1 << 12;
/// The bits of an id that hold the row; the other ones count ranges.
const ROW_BITS: u32 = 16;

/// A range that has begun.
#[derive(Debug)]
struct Open {
    id: u64,
    text: Text,
    begin: u64,
}

/// The open ranges, by row.
#[derive(Debug, Default)]
struct Rows {
    open: Vec<Option<Open>>,
    begun: u64,
}

static ROWS: Mutex<Rows> = Mutex::new(Rows { open: Vec::new(), begun: 0 });

impl Rows {
    fn begin(&mut self, text: Text, time: u64) -> u64 {
        let row = match self.open.iter().position(Option::is_none) {
            Some(row) => row,
            None if self.open.len() < MAX_OPEN => {
                self.open.push(None);
                self.open.len() - 1
            }
            // An id that no range has.
            None => return 0,
        };
        self.begun += 1;
        let id = self.begun << ROW_BITS | row as u64;
        self.open[row] = Some(Open { id, text, begin: time });
        id
    }

    fn end(&mut self, id: u64, time: u64) -> Option<Event> {
        let row = (id & ((1 << ROW_BITS) - 1)) as usize;
        let Open { text, begin, .. } = self.open.get_mut(row)?.take_if(|range| range.id == id)?;
        Some(text.event(Kind::Span, row as u32, [begin, time]))
    }
}

/// Begins a range. Returns its id; 0 if too many are open.
pub fn begin(text: Text, time: u64) -> u64 {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).begin(text, time)
}

/// Ends a range. Returns its event, unless no such range is open.
pub fn end(id: u64, time: u64) -> Option<Event> {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).end(id, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_have_rows_of_their_own() {
        let text = |name: &str| Text::from(name.to_owned());
        let mut rows = Rows::default();
        let [first, second] = [rows.begin(text("a"), 10), rows.begin(text("b"), 20)];
        assert_eq!(rows.end(first, 30), Some(Event::new(Kind::Span, "a", 0, [10, 30])));
        assert_eq!(rows.end(first, 40), None, "it has ended");
        let third = rows.begin(text("c"), 40);
        assert_ne!(first, third);
        assert_eq!(rows.end(first, 50), None, "its row has another range");
        assert_eq!(rows.end(second, 50), Some(Event::new(Kind::Span, "b", 1, [20, 50])));
        assert_eq!(rows.end(third, 60).map(|event| event.row), Some(0));
        assert_eq!((rows.end(0, 70), rows.end(u64::MAX, 70)), (None, None));
    }

    #[test]
    fn open_ranges_are_bounded() {
        let mut rows = Rows::default();
        let ids: Vec<_> = (0..MAX_OPEN + 1).map(|_| rows.begin(Text::default(), 1)).collect();
        assert_eq!((ids[MAX_OPEN], rows.end(0, 2)), (0, None));
        assert!(rows.end(ids[MAX_OPEN - 1], 2).is_some());
    }
}
