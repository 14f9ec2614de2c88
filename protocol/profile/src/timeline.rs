// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timelines in Perfetto's trace format, written as events come: a process for each program, and in it a row for each thread's
//! calls, lane and gates, for each stream of a GPU, for moves of memory and for ranges.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use prost::Message;

use crate::event::{Batch, Event, Kind, Nvtx};
use crate::names::clean;
use crate::perfetto::{
    CounterDescriptor, DebugAnnotation, EventName, InternedData, ProcessDescriptor,
    SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, Trace, TracePacket, TrackDescriptor,
    TrackEvent, Type, Value,
};

/// The sequence of all packets: this crate is the only producer.
const SEQUENCE: u32 = 1;
/// The maximum number of names that the trace states only once. Limits the reader's memory, and the writer's.
const MAX_NAMES: usize = 1 << 16;
/// The maximum number of rows. Limits the memory that made-up numbers of threads and streams take.
const MAX_ROWS: usize = 1 << 16;
/// Process ids of Linux are below it. The number of a process of a trace is its id, and a multiple of this for each machine that
/// has a process of the same id.
const PIDS: u64 = 1 << 22;
/// `ChildTracksOrdering.EXPLICIT`
const EXPLICIT: i32 = 3;
/// `CounterDescriptor.Unit.UNIT_TIME_NS`
const NANOSECONDS: i32 = 1;

/// A process: its session, and its id in the guest.
type Process = (u64, u32);

/// Writes a timeline.
#[derive(Debug)]
pub struct Timeline<W> {
    to: W,
    processes: HashMap<Process, u64>,
    rows: HashSet<u64>,
    names: HashMap<String, u64>,
    begun: bool,
    /// The number of events for which there was no row.
    left_out: u64,
}

impl<W: Write> Timeline<W> {
    /// Begins a timeline in `to`, which should be buffered.
    pub fn new(to: W) -> Self {
        let (processes, rows, names) = Default::default();
        Self { to, processes, rows, names, begun: false, left_out: 0 }
    }

    /// Writes events.
    ///
    /// Errors: those of the file.
    pub fn add(&mut self, batch: &Batch) -> io::Result<()> {
        let process = self.process(batch)?;
        let mut order: Vec<&Event> = batch.events.iter().collect();
        // Readers sort by time; at the same time this order counts, so that a range contains shorter ones.
        order.sort_by_key(|event| (event.begin, u64::MAX - event.end));
        order.into_iter().try_for_each(|event| self.slice((batch.session, batch.pid), process, event))
    }

    /// Ends the timeline, and returns the file and the number of events that found no row.
    ///
    /// Errors: those of the file.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.to.flush()?;
        Ok((self.to, self.left_out))
    }

    fn slice(&mut self, key: Process, process: u64, event: &Event) -> io::Result<()> {
        let Some(track) = self.row(key, process, Some(event.kind), event)? else { return Ok(()) };
        if event.waited > 0
            && let Some(waits) = self.row(key, process, None, event)?
        {
            self.counter(waits, event.begin, event.waited)?;
        }
        self.begin(track, event)?;
        self.end(track, event)
    }

    fn begin(&mut self, track: u64, event: &Event) -> io::Result<()> {
        let (name_iid, name, interned_data) = self.intern(&event.name);
        let text = |name: &str, value: &str| {
            (!value.is_empty()).then(|| annotation(name, Value::Text(clean(value))))
        };
        let nvtx = |value: fn(&Nvtx) -> &str| event.nvtx.as_ref().map_or("", |nvtx| value(nvtx));
        let number = |name: &str, value: u64| (value > 0).then(|| annotation(name, Value::Uint(value)));
        let annotations = [
            number("bytes", event.bytes),
            number("waited_ns", event.waited),
            number("result", event.result.into()),
            text("path", &event.path),
            text("category", nvtx(|nvtx| &nvtx.category)),
            text("payload", nvtx(|nvtx| &nvtx.payload)),
        ];
        let track_event = TrackEvent {
            r#type: Some(Type::SliceBegin.into()),
            track_uuid: Some(track),
            name_iid,
            name,
            categories: vec![category(event.kind).to_owned()],
            debug_annotations: annotations.into_iter().flatten().collect(),
            ..TrackEvent::default()
        };
        let (timestamp, track_event) = (Some(event.begin), Some(track_event));
        self.put(TracePacket { timestamp, track_event, interned_data, ..TracePacket::default() })
    }

    fn end(&mut self, track: u64, event: &Event) -> io::Result<()> {
        let (r#type, track_uuid) = (Some(Type::SliceEnd.into()), Some(track));
        let track_event = Some(TrackEvent { r#type, track_uuid, ..TrackEvent::default() });
        let timestamp = Some(event.end.max(event.begin));
        self.put(TracePacket { timestamp, track_event, ..TracePacket::default() })
    }

    fn counter(&mut self, track: u64, time: u64, value: u64) -> io::Result<()> {
        let counter_value = Some(i64::try_from(value).unwrap_or(i64::MAX));
        let (r#type, track_uuid) = (Some(Type::Counter.into()), Some(track));
        let track_event = Some(TrackEvent { r#type, track_uuid, counter_value, ..TrackEvent::default() });
        self.put(TracePacket { timestamp: Some(time), track_event, ..TracePacket::default() })
    }

    /// Returns a name's number, or the name itself, and what the trace has to state before.
    fn intern(&mut self, name: &str) -> (Option<u64>, Option<String>, Option<InternedData>) {
        if let Some(number) = self.names.get(name) {
            return (Some(*number), None, None);
        }
        let cleaned = clean(name);
        if self.names.len() >= MAX_NAMES || cleaned != name {
            return (None, Some(cleaned), None);
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(cleaned.clone(), number);
        let stated = EventName { iid: Some(number), name: Some(cleaned) };
        (Some(number), None, Some(InternedData { event_names: vec![stated] }))
    }

    /// Returns the track of a batch's process.
    fn process(&mut self, batch: &Batch) -> io::Result<u64> {
        let key @ (session, _) = (batch.session, batch.pid);
        let track = uuid(&(key, "process"));
        let taken = |pid: u64, all: &HashMap<Process, u64>| all.values().any(|other| *other == pid);
        if self.processes.contains_key(&key) {
            return Ok(track);
        }
        let mut pid = u64::from(batch.pid) % PIDS;
        while taken(pid, &self.processes) {
            pid += PIDS;
        }
        self.processes.insert(key, pid);
        let program = clean(&batch.program);
        let process_name = match session {
            0 => program,
            _ => format!("{program} (session {session})"),
        };
        let process = ProcessDescriptor { pid: i32::try_from(pid).ok(), process_name: Some(process_name) };
        let child_ordering = Some(EXPLICIT);
        let (uuid, process) = (Some(track), Some(process));
        self.describe(TrackDescriptor { uuid, process, child_ordering, ..TrackDescriptor::default() })?;
        Ok(track)
    }

    /// Returns the track of an event; with `None` in place of a kind, that of the waits in its lane. `None` if there are too many.
    fn row(
        &mut self,
        of: Process,
        process: u64,
        kind: Option<Kind>,
        event: &Event,
    ) -> io::Result<Option<u64>> {
        // Copies and fills stand in the row of their stream.
        let row_kind = kind.map(|kind| if kind.is_gpu() { Kind::Kernel } else { kind });
        let (row, domain) = (event.row, clean(event.domain()));
        let track = uuid(&(of, row_kind, event.device, row, &domain));
        if self.rows.contains(&track) {
            return Ok(Some(track));
        }
        if self.rows.len() >= MAX_ROWS {
            self.left_out += 1;
            return Ok(None);
        }
        self.rows.insert(track);
        let domain = if domain.is_empty() { domain } else { format!(" {domain}") };
        let (rank, name) = match row_kind {
            // Perfetto shows rows of one name as one, in which ranges that overlap stand below each other.
            Some(Kind::Span) => (0, format!("NVTX{domain} ranges")),
            Some(Kind::Range) => (1, format!("NVTX{domain}, thread {row}")),
            Some(Kind::Api) => (2, format!("API, thread {row}")),
            Some(Kind::Call) => (3, format!("lane {row}")),
            None => (4, format!("lane {row}: waited")),
            Some(Kind::Gate) => (5, format!("gates, lane {row}")),
            Some(Kind::Move) => (6, "moves of memory".to_owned()),
            Some(_) => (7, format!("GPU {}, stream {row}", event.device)),
        };
        let counter = kind.is_none().then_some(CounterDescriptor { unit: Some(NANOSECONDS) });
        self.describe(TrackDescriptor {
            uuid: Some(track),
            name: Some(name),
            parent_uuid: Some(process),
            counter,
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        })?;
        Ok(Some(track))
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.put(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })
    }

    fn put(&mut self, packet: TracePacket) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        let flags = SEQ_NEEDS_INCREMENTAL_STATE | if first { SEQ_INCREMENTAL_STATE_CLEARED } else { 0 };
        let (trusted_packet_sequence_id, sequence_flags) = (Some(SEQUENCE), Some(flags));
        let packet = TracePacket { trusted_packet_sequence_id, sequence_flags, ..packet };
        self.to.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
    }
}

fn annotation(name: &str, value: Value) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), value: Some(value) }
}

/// Returns the category, by which Perfetto filters.
fn category(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "kernel",
        Kind::Copy => "copy",
        Kind::Fill => "fill",
        Kind::Api => "api",
        Kind::Call => "call",
        Kind::Gate => "gate",
        Kind::Move => "move",
        Kind::Range => "range",
        Kind::Span => "span",
    }
}

/// Returns the number of a track, which is the same in each run.
fn uuid(key: &impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    let mut hasher = std::hash::DefaultHasher::new();
    key.hash(&mut hasher);
    // 0 is the trace's own track.
    hasher.finish().max(1)
}
