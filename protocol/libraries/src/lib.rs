// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The public functions of NVIDIA's libraries (cuBLAS, cuDNN, …), described once.
//!
//! Each library has a file in `rows/`, with a row per function. `cargo xtask generate` writes the tables of this crate and the guest's
//! exported functions from these rows, and both are checked in: nothing is parsed when a program runs. The encoding of arguments
//! ([`block`]), the worker's checks and the tables in `docs/` use the tables. The crate `cuda-api-description` documents the format
//! of rows.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod block;
pub mod expression;
#[cfg(feature = "tables")]
mod find;
mod measure;
mod numbers;
mod roles;
mod row;
#[cfg(all(test, feature = "tables"))]
mod state_test;
#[cfg(feature = "tables")]
mod tables;

#[cfg(feature = "tables")]
pub use find::{COUNT, libraries, library, library_of};
pub use roles::Roles;
pub use row::{
    Answer, Asked, Body, Call, Check, Direction, Effect, Element, Facts, Function, Getter, HandleKind, Host,
    Kind, Library, MAX_FUNCTIONS, MAX_PARAMETERS, Measure, NO_FUNCTION, Note, Notes, Number, Parameter, Part,
    Scratch, ScratchBytes, Statuses,
};
#[cfg(feature = "tables")]
pub use tables::*;

#[cfg(all(test, feature = "tables"))]
mod tests {
    use std::collections::HashSet;

    use super::expression::Expression;
    use super::*;

    #[test]
    fn all_rows_can_be_read() {
        for library in libraries() {
            let mut names = HashSet::new();
            for function in library.functions {
                assert!(names.insert(&function.name), "{} has two rows", function.name);
            }
            assert!(!library.sonames.is_empty(), "{} has no soname", library.name);
        }
    }

    /// Notes for one element type do not apply to another, which the next query of a buffer's length may choose. A
    /// batch changes the sizes, too.
    #[test]
    fn a_new_type_ends_what_was_done_with_another() {
        let (_, solver) = library("cusolver").expect("known");
        let mut count = 0;
        for function in solver.functions {
            let is_batch = function.name.ends_with("Batched") && !function.name.contains("csrqrsv");
            let chooses = function.name.contains("BufferInfo") || is_batch && function.name.contains("csrqr");
            let Body::Forward(call) = &function.body else { continue };
            if !chooses {
                continue;
            }
            count += 1;
            let changed: HashSet<usize> = call.notes.changed().map(|note| note.note).collect();
            let kind = call.parameters.iter().find_map(|parameter| match parameter.kind {
                Kind::Handle { kind, .. } if parameter.name == "info" => Some(kind),
                _ => None,
            });
            for (note, name) in solver.handles[kind.expect("an info")].notes.iter().enumerate() {
                let stays = !is_batch && ["n", "nnz", "m"].contains(name);
                assert!(stays || changed.contains(&note), "{} keeps {name}", function.name);
            }
        }
        assert_eq!(count, 25);
    }

    /// Factors belong to the matrix of the last setup.
    #[test]
    fn a_setup_ends_what_was_factorized() {
        let (_, solver) = library("cusolver").expect("known");
        let setups = solver.functions.iter().filter(|function| function.name.contains("csrqrSetup"));
        let mut count = 0;
        for function in setups {
            let Body::Forward(call) = &function.body else { panic!("{} does not cross", function.name) };
            let info = call.parameters.iter().position(|parameter| parameter.name == "info");
            let Some(Kind::Handle { kind, .. }) = info.map(|info| &call.parameters[info].kind) else {
                panic!("{} has no info", function.name)
            };
            let notes = &solver.handles[*kind].notes;
            let ends = call.notes.forgets.iter().any(|note| notes[note.note] == "factored");
            assert!(ends, "{} keeps the factors", function.name);
            count += 1;
        }
        assert_eq!(count, 8);
    }

    /// An analysis is part of the matrix's state; the calls after it must use the same matrix.
    #[test]
    fn a_matrix_in_host_memory_is_that_of_the_analysis() {
        let (_, solver) = library("cusolver").expect("known");
        let mut count = 0;
        for function in solver.functions {
            let Body::Forward(call) = &function.body else { continue };
            let info = call.parameters.iter().position(|parameter| parameter.name == "info");
            let rises = |parameter: &Parameter| match &parameter.kind {
                Kind::Host(host) => matches!(host.check, Some(Check::Rising { .. })),
                _ => false,
            };
            if info.is_none() || !call.parameters.iter().any(rises) {
                continue;
            }
            count += 1;
            let notes = &call.notes;
            let patterns = if function.name.contains("Analysis") { (info, None) } else { (None, info) };
            assert_eq!((notes.keeps_pattern, notes.needs_pattern), patterns, "{}", function.name);
        }
        assert_eq!(count, 27);
    }

    /// Libraries do not check the length of a workspace in host memory. So it is a number that the library itself has returned.
    #[test]
    fn no_length_of_a_workspace_is_the_callers() {
        let calls = libraries().flat_map(|library| library.functions);
        let calls = calls.filter_map(|function| match &function.body {
            Body::Forward(call) => Some((&function.name, call)),
            _ => None,
        });
        let mut count = 0;
        for (name, call) in calls {
            for parameter in call.parameters {
                let Kind::Scratch(scratch) = &parameter.kind else { continue };
                count += 1;
                let noted = |index: &usize| matches!(call.parameters[*index].kind, Kind::Noted(_));
                let is_returned = match &scratch.bytes {
                    ScratchBytes::Counted(Expression::Parameter(index)) => noted(index),
                    ScratchBytes::Counted(_) => false,
                    ScratchBytes::Asked(_) | ScratchBytes::Checked(..) => true,
                };
                assert!(is_returned, "{name}: {}", parameter.name);
            }
        }
        assert_eq!(count, 48);
    }

    /// The handle keeps the memory, in which the worker looks for no answer.
    #[test]
    fn what_is_lent_belongs_to_a_handle() {
        let functions = libraries().flat_map(|library| library.functions);
        let lends = functions.filter_map(|function| match &function.body {
            Body::Forward(call) => Some((call, call.facts.lends?)),
            _ => None,
        });
        let count = lends.inspect(|(call, handle)| {
            assert!(matches!(call.parameters[*handle].kind, Kind::Handle { .. }));
            assert!(call.roles.writes.is_empty());
        });
        assert_eq!(count.count(), 2);
    }

    /// The guest posts plain calls that come again without encoding them again.
    #[test]
    fn plain_calls_have_no_contents_but_scalars() {
        let mut count = 0;
        for function in libraries().flat_map(|library| library.functions) {
            let Body::Forward(call) = &function.body else { continue };
            let roles = &call.roles;
            let is_scalar = |index: &usize| matches!(call.parameters[*index].kind, Kind::Scalar { .. });
            if roles.is_plain {
                let others = [&roles.writes, &roles.ends, &roles.noted, &roles.measured];
                let has_others = others.iter().any(|indices| !indices.is_empty()) || roles.new.is_some();
                assert!(roles.reads.iter().all(is_scalar) && !has_others, "{}", function.name);
                count += 1;
            }
        }
        assert_eq!(count, 891);
    }

    /// The worker locks the handles of the called library first, and then those of others.
    #[test]
    fn libraries_do_not_use_handles_of_each_other() {
        for kind in libraries().flat_map(|library| library.handles) {
            let Some((owner, _)) = &kind.of else { continue };
            let (_, owner) = library(owner).expect("known");
            assert!(owner.handles.iter().all(|kind| kind.of.is_none()), "{} uses others", owner.name);
        }
    }
}
