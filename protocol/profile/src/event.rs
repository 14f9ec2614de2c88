// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events, and the lines in which they travel: a JSON object per line.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The kind of an event. It decides the table and the row of the timeline in which the event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A kernel on a GPU.
    Kernel,
    /// A copy by a GPU.
    Copy,
    /// A fill of memory by a GPU.
    Fill,
    /// A call of CUDA's API, as the program has made it.
    Api,
    /// A call as its worker has executed it.
    Call,
    /// The part of a call in which it waited at a gate.
    Gate,
    /// A move of a suspended session's memory.
    Move,
    /// A mark of NVTX, or a range that was pushed and popped.
    Range,
    /// A range of NVTX that was started and ended (`nvtxRangeStart`). Those of one row do not overlap.
    Span,
}

impl Kind {
    /// All kinds, in the order of their tables.
    pub const ALL: [Self; 9] = [
        Self::Kernel,
        Self::Copy,
        Self::Fill,
        Self::Api,
        Self::Call,
        Self::Gate,
        Self::Move,
        Self::Range,
        Self::Span,
    ];

    /// Returns whether a GPU does it, so that its row is a stream.
    pub fn is_gpu(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Fill)
    }
}

/// What a program tells NVTX about a mark or range, besides its name. [`crate::names::clean`] bounds all texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvtx {
    /// The name of its domain; empty for the default one.
    pub domain: String,
    /// The name of its category, or the number of one without a name; empty for none.
    pub category: String,
    /// Its number; empty for none.
    pub payload: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its kind.
    pub kind: Kind,
    /// The name of a function or kernel, the direction of a copy, or the reason of a wait. [`crate::names::clean`] bounds it.
    pub name: String,
    /// Begin in nanoseconds of the host's `CLOCK_MONOTONIC`, or of the guest's for a profile that a guest makes.
    pub begin: u64,
    /// End, not before `begin`.
    pub end: u64,
    /// The stream of GPU work, otherwise the thread.
    pub row: u32,
    /// The ordinal of the GPU.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub device: u32,
    /// Bytes of a copy, fill or move; of a call, those that it carried beside its arguments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// The time for which a call has waited in its lane at least, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited: u64,
    /// The path that a call or a copy took.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The `CUresult` of a call.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub result: u32,
    /// For a mark or range that has any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvtx: Option<Box<Nvtx>>,
}

impl Event {
    /// Returns an event without anything else.
    pub fn new(kind: Kind, name: impl Into<String>, row: u32, [begin, end]: [u64; 2]) -> Self {
        Self {
            kind,
            name: name.into(),
            begin,
            end: end.max(begin),
            row,
            device: 0,
            bytes: 0,
            waited: 0,
            path: String::new(),
            result: 0,
            nvtx: None,
        }
    }

    /// Returns the domain of a mark or range; empty for the default one.
    pub fn domain(&self) -> &str {
        self.nvtx.as_ref().map_or("", |nvtx| &nvtx.domain)
    }

    /// Returns the name in tables, with the domain before it, as nsys prints it.
    pub fn title(&self) -> Cow<'_, str> {
        match self.domain() {
            "" => self.name.as_str().into(),
            domain => format!("{domain}:{}", self.name).into(),
        }
    }

    /// Returns the duration in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}

/// The last line of a recording that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The reason.
    pub error: String,
}

/// Events of one process: a line of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The session's number; 0 in a guest.
    pub session: u64,
    /// The program's name, in printable characters.
    pub program: String,
    /// The process id in the guest.
    pub pid: u32,
    /// The events, in no order.
    pub events: Vec<Event>,
    /// The number of events that were lost since the batch before, for lack of memory.
    #[serde(default)]
    pub dropped: u64,
    /// The reason for which work of GPUs is not among the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<String>,
}
