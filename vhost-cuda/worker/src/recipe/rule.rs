// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the recipe does with a call, derived from its row.

use std::ops::Range;
use std::sync::LazyLock;

use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_protocol::cuda::table::{Field, Getter, Makes, ROWS, Row, State};

use super::class::Class;

/// A value of a call that names something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What it names.
    pub class: Class,
    /// True if it is a result.
    pub is_result: bool,
    /// Its bytes in the arguments or results.
    pub bytes: Range<usize>,
}

impl Place {
    /// Returns the name.
    pub fn name(&self, arguments: &[u8], results: &[u8]) -> Option<u64> {
        let bytes = if self.is_result { results } else { arguments }.get(self.bytes.clone())?;
        let mut name = [0; 8];
        name.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(name))
    }
}

/// The thing whose setting a call changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The one that an argument names.
    Named(Place),
    /// The current context.
    Context,
    /// The calling thread.
    Thread,
    /// The session.
    Session,
}

/// What the recipe does with a call that has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It makes the object of that name, or adds a hold or a part to it.
    Makes(Place),
    /// It changes a setting, which replaces the same setting of the same subject.
    Sets {
        /// The subject.
        subject: Subject,
        /// The number of the call that returns the setting, or else that of the call itself.
        setting: u32,
        /// The arguments that tell settings of one number apart, such as an attribute's.
        parts: Vec<Range<usize>>,
        /// The other names among the arguments: without these objects there is no such setting.
        uses: Vec<Place>,
    },
    /// It changes a graph or a node.
    Changes(Place),
    /// It fills handles that are in its input. Each counts as set, as in [`Self::Sets`].
    Fills {
        /// The number of the setting.
        setting: u32,
        /// The arguments that tell settings of one number apart.
        parts: Vec<Range<usize>>,
        /// The names among the arguments.
        uses: Vec<Place>,
    },
    /// It does something that the recipe cannot repeat, and the reason.
    Never(&'static str),
    /// The settings of the calling thread end.
    ThreadEnds,
    /// The row of the function of one of NVIDIA's libraries says it ([`super::library`]).
    OfLibrary,
}

/// The rules at the numbers of their calls. Calls without one do not concern the recipe.
static RULES: LazyLock<Vec<Option<Box<Rule>>>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for row in ROWS {
        let number = row.opcode as usize;
        rules.resize_with(rules.len().max(number + 1), || None);
        rules[number] = of_row(row).map(Box::new);
    }
    rules
});

/// Returns the rule of a call.
pub fn rule(opcode: Opcode) -> Option<&'static Rule> {
    RULES.get(opcode as usize)?.as_deref()
}

/// Returns the inputs or results with their bytes.
fn with_bytes(fields: &'static [Field]) -> impl Iterator<Item = (&'static Field, Range<usize>)> {
    fields.iter().scan(0, |start, field| {
        let bytes = *start..*start + field.bytes;
        *start = bytes.end;
        Some((field, bytes))
    })
}

/// Derives the rule of a row.
fn of_row(row: &Row) -> Option<Rule> {
    let opcode = Opcode::from_u32(row.opcode)?;
    let place = |is_result: bool| {
        move |(field, bytes): (&Field, Range<usize>)| {
            let class = Class::of(opcode, field.of)?;
            Some((field.name, Place { class, is_result, bytes }))
        }
    };
    let inputs: Vec<_> = with_bytes(row.inputs).filter_map(place(false)).collect();
    match row.facts.state {
        State::Creates(Makes::Named(name)) => {
            let results = with_bytes(row.results).filter_map(place(true));
            let (_, place) = inputs.into_iter().chain(results).find(|(field, _)| *field == name)?;
            (!place.class.is_of_graphs()).then_some(Rule::Makes(place))
        }
        // It stays loaded. What its functions make counts.
        State::Creates(Makes::Never(_)) if opcode == Opcode::vendor_load => None,
        // The tables of memory have what these share.
        State::Creates(Makes::Never(_))
            if matches!(opcode, Opcode::cuIpcGetMemHandle | Opcode::cuIpcOpenMemHandle_v2) =>
        {
            None
        }
        // Its owner has the event still, or its records are done.
        State::Creates(Makes::Never(_)) if opcode == Opcode::cuIpcOpenEventHandle => {
            inputs.into_iter().next().map(|(_, event)| Rule::Makes(event))
        }
        // Processes that look it up meanwhile wait until it is offered again.
        State::Creates(Makes::Never(_)) if opcode == Opcode::cuIpcGetEventHandle => {
            let (_, event) = inputs.into_iter().next()?;
            let (setting, subject) = (row.opcode, Subject::Named(event));
            Some(Rule::Sets { subject, setting, parts: Vec::new(), uses: Vec::new() })
        }
        State::Creates(Makes::Never(reason)) => Some(Rule::Never(reason)),
        State::Library => Some(Rule::OfLibrary),
        State::Ends if opcode == Opcode::session_thread_exit => Some(Rule::ThreadEnds),
        State::Sets(getter) => sets(row, opcode, getter, &inputs),
        _ => None,
    }
}

fn sets(row: &Row, opcode: Opcode, getter: Getter, inputs: &[(&str, Place)]) -> Option<Rule> {
    // The worker's tables of memory have the settings of memory.
    if row.inputs.first().is_some_and(|field| field.of == "DevicePtr") {
        return None;
    }
    let (subject, others) = inputs.split_first().map_or((None, inputs), |(first, rest)| (Some(first), rest));
    if let Some((_, subject)) = subject {
        if matches!(subject.class, Class::Graph | Class::Node) {
            return Some(Rule::Changes(subject.clone()));
        }
        if !subject.class.is_kept() {
            return None;
        }
        if others.iter().any(|(_, other)| other.class == subject.class) {
            return Some(Rule::Never("it copies the settings of another object"));
        }
    }
    let getter = match getter {
        Getter::Call(name) => ROWS.iter().find(|row| row.name == name),
        Getter::None(_) => None,
    };
    let is_subject = |name: &str| subject.is_some_and(|(subject, _)| *subject == name);
    // Without a call that returns the setting, all names belong to it.
    let is_part = |field: &Field| match getter {
        Some(getter) => getter.inputs.iter().any(|other| other.name == field.name),
        None => others.iter().any(|(name, _)| *name == field.name),
    };
    let parts = with_bytes(row.inputs).filter(|(field, _)| !is_subject(field.name) && is_part(field));
    Some(Rule::Sets {
        setting: getter.unwrap_or(row).opcode,
        parts: parts.map(|(_, bytes)| bytes).collect(),
        uses: others.iter().map(|(_, place)| place.clone()).collect(),
        subject: match subject {
            Some((_, place)) => Subject::Named(place.clone()),
            None if opcode == Opcode::cuThreadExchangeStreamCaptureMode => Subject::Thread,
            None if row.facts.needs_context() => Subject::Context,
            None => Subject::Session,
        },
    })
}
