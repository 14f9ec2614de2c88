// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads timelines back, for tests: the slices of all rows.

use std::collections::HashMap;

use prost::Message;

use crate::perfetto::{DebugAnnotation, Trace, TrackEvent, Type, Value};

/// A slice, or a value of a counter (whose end is its begin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The process's name.
    pub process: String,
    /// The process's number.
    pub pid: i32,
    /// The row's name.
    pub row: String,
    /// The category; empty for a counter.
    pub category: String,
    /// The name; empty for a counter.
    pub name: String,
    /// Begin and end in nanoseconds.
    pub time: [u64; 2],
    /// The counter's value.
    pub value: Option<i64>,
    /// Its annotations that are text, by their names.
    pub notes: Vec<(String, String)>,
}

/// Returns the slices of a timeline, by begin.
///
/// Errors: the bytes are not a trace, because a message cannot be read, a slice ends that has not begun, or its row was not described.
pub fn slices(trace: &[u8]) -> Result<Vec<Slice>, String> {
    let trace = Trace::decode(trace).map_err(|error| error.to_string())?;
    let (mut tracks, mut names, mut events) = (HashMap::new(), HashMap::new(), Vec::new());
    for packet in trace.packet {
        for stated in packet.interned_data.into_iter().flat_map(|data| data.event_names) {
            names.insert(stated.iid.unwrap_or(0), stated.name.unwrap_or_default());
        }
        if let Some(track) = packet.track_descriptor {
            tracks.insert(track.uuid.unwrap_or(0), track);
        }
        if let Some(event) = packet.track_event {
            events.push((packet.timestamp.ok_or("an event without a time")?, event));
        }
    }
    // Stable: at the same time the order in the file counts.
    events.sort_by_key(|(time, _)| *time);
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut slices = Vec::new();
    for (time, event) in events {
        let uuid = event.track_uuid.ok_or("an event without a row")?;
        let track = tracks.get(&uuid).ok_or("an event in an unknown row")?;
        let process = track.parent_uuid.and_then(|parent| tracks.get(&parent)?.process.as_ref());
        let process = process.ok_or("a row without a process")?;
        let slice = |event: &TrackEvent| Slice {
            process: process.process_name.clone().unwrap_or_default(),
            pid: process.pid.unwrap_or(0),
            row: track.name.clone().unwrap_or_default(),
            category: event.categories.first().cloned().unwrap_or_default(),
            name: match event.name_iid {
                Some(number) => names.get(&number).cloned().unwrap_or_default(),
                None => event.name.clone().unwrap_or_default(),
            },
            time: [time, time],
            value: event.counter_value,
            notes: notes(event),
        };
        match Type::try_from(event.r#type.unwrap_or(0)) {
            Ok(Type::SliceBegin) => {
                open.entry(uuid).or_default().push(slices.len());
                slices.push(slice(&event));
            }
            Ok(Type::SliceEnd) => {
                let begun = open.get_mut(&uuid).and_then(Vec::pop).ok_or("an end without a begin")?;
                slices[begun].time[1] = time;
            }
            Ok(Type::Counter) => slices.push(slice(&event)),
            _ => return Err(format!("an event of type {:?}", event.r#type)),
        }
    }
    if open.values().any(|begun| !begun.is_empty()) {
        return Err("a begin without an end".into());
    }
    Ok(slices)
}

fn notes(event: &TrackEvent) -> Vec<(String, String)> {
    let text = |note: &DebugAnnotation| match &note.value {
        Some(Value::Text(text)) => Some((note.name.clone()?, text.clone())),
        _ => None,
    };
    event.debug_annotations.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Batch, Event, Kind, Nvtx};
    use crate::timeline::Timeline;

    fn written(batches: &[Batch]) -> Vec<Slice> {
        let mut timeline = Timeline::new(Vec::new());
        for batch in batches {
            timeline.add(batch).unwrap();
        }
        slices(&timeline.finish().unwrap().0).unwrap()
    }

    fn batch(session: u64, events: Vec<Event>) -> Batch {
        Batch { session, program: "python3".into(), pid: 412, events, ..Batch::default() }
    }

    #[test]
    fn a_timeline_has_the_slices_that_were_written() {
        let mut call = Event::new(Kind::Call, "cuLaunchKernel", 3, [100, 200]);
        call.waited = 40;
        let gate = Event::new(Kind::Gate, "suspended", 3, [100, 150]);
        let kernel = Event::new(Kind::Kernel, "add", 7, [190, 900]);
        let later = Event::new(Kind::Call, "cuLaunchKernel", 3, [200, 210]);
        let slices = written(&[batch(1, vec![kernel, call]), batch(1, vec![gate, later]), batch(2, vec![])]);
        let told: Vec<_> = slices
            .iter()
            .map(|slice| (slice.row.as_str(), slice.name.as_str(), slice.time, slice.value))
            .collect();
        assert_eq!(
            told,
            [
                ("lane 3: waited", "", [100, 100], Some(40)),
                ("lane 3", "cuLaunchKernel", [100, 200], None),
                ("gates, lane 3", "suspended", [100, 150], None),
                ("GPU 0, stream 7", "add", [190, 900], None),
                ("lane 3", "cuLaunchKernel", [200, 210], None),
            ]
        );
        assert_eq!((slices[0].process.as_str(), slices[0].pid), ("python3 (session 1)", 412));
    }

    #[test]
    fn ranges_contain_each_other_also_across_batches() {
        let range = |name: &str, time| Event::new(Kind::Range, name, 1, time);
        let first =
            batch(0, vec![range("inner", [20, 30]), range("same", [20, 30]), range("next", [30, 40])]);
        let slices = written(&[first, batch(0, vec![range("outer", [10, 50])])]);
        let told: Vec<_> = slices.iter().map(|slice| (slice.name.as_str(), slice.time)).collect();
        assert_eq!(told, [("outer", [10, 50]), ("inner", [20, 30]), ("same", [20, 30]), ("next", [30, 40])]);
    }

    /// Ranges of two domains may overlap in a thread, which those of a row must not.
    #[test]
    fn domains_have_rows_of_their_own() {
        let range = |domain: &str, time| {
            let nvtx = Nvtx { domain: domain.into(), category: "data".into(), payload: "7".into() };
            Event { nvtx: Some(Box::new(nvtx)), ..Event::new(Kind::Range, "step", 1, time) }
        };
        let events = vec![range("a", [10, 30]), range("b\n", [20, 40]), range("", [5, 35])];
        let slices = written(&[batch(0, events)]);
        let told: Vec<_> = slices.iter().map(|slice| (slice.row.as_str(), slice.time)).collect();
        assert_eq!(
            told,
            [("NVTX, thread 1", [5, 35]), ("NVTX a, thread 1", [10, 30]), ("NVTX b?, thread 1", [20, 40]),]
        );
        let notes = [("category", "data"), ("payload", "7")].map(|(name, text)| (name.into(), text.into()));
        assert_eq!(slices[0].notes, notes);
    }

    #[test]
    fn processes_of_the_same_id_stay_apart() {
        let events = vec![Event::new(Kind::Api, "cuInit", 1, [1, 2])];
        let slices = written(&[batch(1, events.clone()), batch(2, events)]);
        assert_eq!(slices.len(), 2);
        assert_ne!(slices[0].pid, slices[1].pid);
    }

    #[test]
    fn names_are_cleaned_and_times_do_not_run_backwards() {
        let mut bad = Event::new(Kind::Kernel, "a\nb", u32::MAX, [9, 9]);
        bad.end = 3;
        bad.path = "\x1b[2J".into();
        let slices = written(&[batch(1, vec![bad])]);
        assert_eq!((slices[0].name.as_str(), slices[0].time), ("a?b", [9, 9]));
    }
}
