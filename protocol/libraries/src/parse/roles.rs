// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Derives roles from the parameters and facts of a row.

use crate::{Answer, Direction, Element, Facts, Host, Kind, Notes, Parameter, Roles};

/// Returns the roles of the parameters of one function.
///
/// `repeats`: calls of the library repeat their work ([`crate::Library::repeats`]).
pub fn roles(parameters: &[Parameter], answer: Answer, facts: &Facts, notes: &Notes, repeats: bool) -> Roles {
    let all = |is: &dyn Fn(&Kind) -> bool| -> Vec<usize> {
        let indices = parameters.iter().enumerate();
        indices.filter(|(_, parameter)| is(&parameter.kind)).map(|(index, _)| index).collect()
    };
    let first = |is: &dyn Fn(&Kind) -> bool| all(is).first().copied();
    let new = parameters.iter().enumerate().find_map(|(index, parameter)| match parameter.kind {
        Kind::New(kind) => Some((index, kind)),
        _ => None,
    });
    let written = |kind: &Kind| match kind {
        Kind::Host(host) => host.direction.writes(),
        Kind::Table(_) | Kind::Allocated { .. } => true,
        _ => false,
    };
    let is_described = |kind: &Kind| matches!(kind, Kind::Described { .. });
    let is_sent_as_it_is = |kind: &Kind| is_by_value(kind) || *kind == Kind::Graph;
    let mut encoded = all(&is_described);
    encoded.extend(all(&|kind| !is_described(kind) && !is_sent_as_it_is(kind)));
    let measured = all(&|kind| matches!(kind, Kind::Measured(_)));
    let changes = notes.changed().next().is_some();
    let answers = facts.wait
        || changes
        || !measured.is_empty()
        || answer != Answer::Status
        || first(&written).is_some();
    Roles {
        handle: first(&|kind| matches!(kind, Kind::Handle { .. } | Kind::End(_))),
        stream: first(&|kind| matches!(kind, Kind::Stream | Kind::InStream)),
        out_stream: first(&|kind| *kind == Kind::OutStream),
        table: first(&|kind| matches!(kind, Kind::Table(_))),
        new,
        values: all(&|kind| matches!(kind, Kind::Value(_))),
        encoded,
        handles: all(&|kind| matches!(kind, Kind::Handle { .. })),
        ends: all(&|kind| matches!(kind, Kind::End(_))),
        memory: all(&|kind| kind.direction().is_some() || matches!(kind, Kind::New(_) | Kind::InStream)),
        reads: all(&|kind| kind.direction().is_some_and(Direction::reads)),
        writes: all(&|kind| kind.direction().is_some_and(Direction::writes)),
        changes: all(&|kind| kind.direction() == Some(Direction::InOut)),
        checked: all(&|kind| matches!(kind, Kind::Host(host) if host.check.is_some())),
        allocated: all(&|kind| matches!(kind, Kind::Allocated { .. })),
        noted: all(&|kind| matches!(kind, Kind::Noted(_))),
        answers,
        measured,
        is_plain: !answers && is_plain(parameters, facts),
        repeats: repeats && is_work(parameters, answer, facts),
        is_setting: repeats && is_setting(parameters, answer),
    }
}

/// Returns whether a function that returns a status takes nothing but handles, what is passed by value, and scalars that it reads,
/// and leaves the state of the handles as it is.
fn is_plain(parameters: &[Parameter], facts: &Facts) -> bool {
    let is_plain =
        |kind: &Kind| is_by_value(kind) || is_scalar_to_read(kind) || matches!(kind, Kind::Handle { .. });
    parameters.iter().all(|parameter| is_plain(&parameter.kind))
        && !(facts.pure || facts.pointer_mode || facts.stream_of || facts.sets || facts.on_device)
        && facts.gets.or(facts.birth).is_none()
}

/// Returns whether a parameter is a number, an address of device memory or a stream.
fn is_by_value(kind: &Kind) -> bool {
    matches!(kind, Kind::Value(_) | Kind::Pointer | Kind::Stream)
}

/// Returns whether a parameter is the address of one scalar that the library reads.
fn is_scalar_to_read(kind: &Kind) -> bool {
    matches!(kind, Kind::Scalar { direction: Direction::In, count: None, .. })
}

/// Returns whether a function uses one handle, its first parameter.
fn has_one_handle(parameters: &[Parameter]) -> bool {
    let is_handle = |parameter: &Parameter| matches!(parameter.kind, Kind::Handle { .. });
    matches!(parameters, [first, rest @ ..] if first.kind.is_needed_handle() && !rest.iter().any(is_handle))
}

/// Returns whether a function takes only a handle and what is passed by value, and does not work on matrices.
fn is_setting(parameters: &[Parameter], answer: Answer) -> bool {
    answer == Answer::Status
        && has_one_handle(parameters)
        && parameters.len() > 1
        && parameters[1..].iter().all(|parameter| is_by_value(&parameter.kind))
        && matrices(parameters) < 2
}

/// Returns whether a function only queues work that a graph can repeat: it reads and writes memory of the device, and reads at most
/// scalars and descriptors from the host's.
fn is_work(parameters: &[Parameter], answer: Answer, facts: &Facts) -> bool {
    let is_plain = |kind: &Kind| match kind {
        Kind::Described { .. } | Kind::DescribedScalar { .. } => true,
        Kind::Host(Host { direction, element: Element::Bytes(_), count, .. }) => {
            *direction == Direction::In && count.is_none()
        }
        kind => is_by_value(kind) || is_scalar_to_read(kind),
    };
    let is_scalar = |kind: &Kind| matches!(kind, Kind::Scalar { .. } | Kind::DescribedScalar { .. });
    answer == Answer::Status
        && has_one_handle(parameters)
        && parameters[1..].iter().all(|parameter| is_plain(&parameter.kind))
        && (matrices(parameters) > 1 || parameters.iter().any(|parameter| is_scalar(&parameter.kind)))
        && !(facts.wait || facts.pure || facts.makes || facts.uncaptured || facts.links_code)
        && facts.lends.or(facts.finds).is_none()
}

/// Returns the number of addresses of device memory.
fn matrices(parameters: &[Parameter]) -> usize {
    parameters.iter().filter(|parameter| parameter.kind == Kind::Pointer).count()
}
