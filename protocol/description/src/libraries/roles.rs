// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Derives roles from the parameters and facts of a row.

use cuda_library_rows::{Answer, Direction, Facts, Kind, Notes, Parameter, Roles};

use crate::slice;

/// Returns the roles of the parameters of one function.
pub fn roles(parameters: &[Parameter], answer: Answer, facts: &Facts, notes: &Notes) -> Roles {
    let all = |is: &dyn Fn(&Kind) -> bool| -> &'static [usize] {
        let indices = parameters.iter().enumerate();
        slice(indices.filter(|(_, parameter)| is(&parameter.kind)).map(|(index, _)| index).collect())
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
    let others = all(&|kind| !is_described(kind) && !is_sent_as_it_is(kind));
    let encoded = slice([all(&is_described), others].concat());
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
        addresses: all(&|kind| {
            matches!(
                kind,
                Kind::Pointer | Kind::Placed { .. } | Kind::Scalar { .. } | Kind::DescribedScalar { .. }
            )
        }),
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
