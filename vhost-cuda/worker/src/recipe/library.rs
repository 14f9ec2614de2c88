// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the recipe does with a call of one of NVIDIA's libraries, derived from the function's own row.
//!
//! Names lie in the call's block of arguments. Handles that are not followed have contents of their own, such as the state of a
//! random generator, or an analysis of a matrix. Descriptors of cuDNN's backend name others in arrays, and a query fills some.

use std::ops::Range;

use cuda_library_rows::block::{SLOT, attribute_type_handle, is_attribute_of_addresses, padded};
use cuda_library_rows::{
    Body, Call, Direction, Effect, Element, Function, Getter, Host, Kind, Library, library_of,
};

use smallvec::SmallVec;

use super::class::Class;
use super::kept::{Bulk, Call as Recorded};
use super::rule::{Place, Rule, Subject};

/// The kinds of handles that have nothing but what they were made with and their settings, by library: no kind for all of them.
/// Workspaces have no contents between calls.
const FOLLOWED: [(&str, &[&str]); 7] = [
    ("cublas", &[]),
    ("cublasLt", &[]),
    ("cufft", &[]),
    ("cudnn", &[]),
    ("curand", &[]),
    ("cusparse", &["Handle", "MatDescr", "SpVec", "DnVec", "SpMat", "DnMat"]),
    ("cusolver", &["Dn", "Sp", "Params", "IrsParams"]),
];
const NOT_FOLLOWED: &str = "NVIDIA's libraries keep state of their own";
/// Functions of these libraries that cannot be called again: they write device memory, or set more than one handle.
const NEVER: [&str; 3] =
    ["cudnnBackendInitialize", "cudnnDeriveNormTensorDescriptor", "cudnnInitTransformDest"];
/// Functions that fill the descriptors of tensors among their parameters.
const FILLS_TENSORS: [&str; 2] = ["cudnnGetRNNWeightParams", "cudnnGetMultiHeadAttnWeights"];
const TENSOR: &str = "Tensor";
/// The first function also writes random states into device memory, if it has any. The second one takes them as they are, and has the same
/// parameters.
const WITH_STATES: [&str; 2] = ["cudnnSetDropoutDescriptor", "cudnnRestoreDropoutDescriptor"];
/// `CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR`.
const PLAN: u32 = 5;
/// The parameter of the states.
const STATES: usize = 3;
/// Added to the numbers of libraries' functions, so that no call has the same number.
const NUMBERS: u32 = 1 << 31;

/// Returns the function that a call with these arguments is about, and its library.
pub fn called(arguments: &[u8]) -> Option<(&'static Library, &'static Function)> {
    let (words, _) = arguments.as_chunks::<4>();
    let [library, function, ..] = words else { return None };
    let library = library_of(u32::from_le_bytes(*library) as usize)?;
    let position = library.numbered(u32::from_le_bytes(*function))?;
    Some((library, &library.functions[position]))
}

/// Returns the rule of a function, whose places are in the block of arguments.
pub fn rule(library: &'static Library, function: &'static Function) -> Option<Rule> {
    let Body::Forward(call) = &function.body else { return None };
    let kinds = FOLLOWED.iter().find(|(name, _)| *name == library.name).map(|(_, kinds)| *kinds);
    let fills_tensors = FILLS_TENSORS.contains(&function.name);
    let fills = match function.effect {
        _ if fills_tensors && kinds.is_some() => true,
        Effect::Creates | Effect::Sets(_) => false,
        Effect::Nothing if kinds.is_some() => {
            call.parameters.iter().any(|parameter| may_fill(&parameter.kind)).then_some(true)?
        }
        _ => return None,
    };
    let Some(kinds) = kinds.filter(|_| !NEVER.contains(&function.name)) else {
        return Some(Rule::Never(NOT_FOLLOWED));
    };
    let handle = |index, kind: usize| Place {
        class: Class::Handle { library: library.number, kind: kind as u32 },
        is_result: false,
        bytes: slot(index),
    };
    let getter = match &function.effect {
        Effect::Sets(Getter::Function(name)) => library.functions.iter().find(|other| other.name == *name),
        Effect::Creates => {
            let is_followed = |kind: usize| kinds.is_empty() || kinds.contains(&library.handles[kind].name);
            return Some(match call.roles.new {
                Some((index, kind)) if is_followed(kind) => Rule::Makes(handle(index, kind)),
                _ => Rule::Never(NOT_FOLLOWED),
            });
        }
        _ => None,
    };
    let mut places = Vec::new();
    let mut parts = Vec::new();
    for (index, parameter) in call.parameters.iter().enumerate() {
        match parameter.kind {
            Kind::Handle { kind, .. } if fills_tensors && library.handles[kind].name == TENSOR => {}
            Kind::Handle { kind, .. } => places.push(handle(index, kind)),
            Kind::Stream => places.push(Place { class: Class::Stream, is_result: false, bytes: slot(index) }),
            // Without a function that returns the setting, each value counts as a setting of its own. The last one holds.
            Kind::Value(_) if fills_tensors => {}
            Kind::Value(_) if getter.is_none_or(|getter| asks_with(getter, parameter.name)) => {
                parts.push(slot(index))
            }
            _ => {}
        }
    }
    let setting = NUMBERS | library.number << 16 | getter.unwrap_or(function).number;
    if fills {
        return Some(Rule::Fills { setting, parts, uses: places });
    }
    let is_handle = |place: &&Place| matches!(place.class, Class::Handle { .. });
    if !places.first().as_ref().is_some_and(is_handle) {
        // Of the library as a whole, which each worker loads: the call is made again with those of its context. Or of a structure of the
        // program's.
        let is_of_library = call.parameters.iter().all(|parameter| matches!(parameter.kind, Kind::Value(_)));
        return is_of_library.then_some(Rule::Sets {
            subject: Subject::Context,
            setting,
            parts,
            uses: places,
        });
    }
    let subject = places.remove(0);
    let is_of_library = matches!(subject.class, Class::Handle { kind: 0, .. });
    if (is_of_library || getter.is_none()) && places.iter().any(|place| is_handle(&place)) {
        // The library's own handle is the first, and another one changes; or it is not known which.
        return Some(Rule::Never(NOT_FOLLOWED));
    }
    Some(Rule::Sets { subject: Subject::Named(subject), setting, parts, uses: places })
}

/// Returns whether a parameter may be an array of handles that the library fills.
fn may_fill(kind: &Kind) -> bool {
    let Kind::Host(Host { element, direction, .. }) = kind else { return false };
    matches!(element, Element::Handle(_) | Element::ByAttribute { .. }) && *direction != Direction::In
}

/// Returns the arguments by which a call is made again.
pub fn again(arguments: &[u8], block: &[u8]) -> SmallVec<[u8; 24]> {
    let mut again = SmallVec::from_slice(arguments);
    let with_states = called(arguments).filter(|(_, function)| function.name == WITH_STATES[0]);
    if let Some((library, _)) = with_states
        && block.get(slot(STATES)).is_some_and(|states| states != [0; SLOT])
        && let Some(other) = library.functions.iter().find(|function| function.name == WITH_STATES[1])
    {
        again[4..8].copy_from_slice(&other.number.to_le_bytes());
    }
    again
}

/// Returns the handles in arrays of a call's block, but for null: those that it fills, or else those that it names. Also the descriptors of
/// tensors that it fills.
pub fn handles_in(arguments: &[u8], block: &[u8]) -> Vec<(Class, u64)> {
    let Some((library, function)) = called(arguments) else { return Vec::new() };
    let Body::Forward(call) = &function.body else { return Vec::new() };
    let (words, _) = block.as_chunks::<SLOT>();
    let slots: Vec<u64> =
        words.iter().take(call.parameters.len()).map(|word| u64::from_le_bytes(*word)).collect();
    let (mut at, mut found) = (call.parameters.len() * SLOT, Vec::new());
    for (index, parameter) in call.parameters.iter().enumerate() {
        if !call.direction(index).is_some_and(Direction::reads) {
            continue;
        }
        let Ok(bytes) = call.memory_bytes(library, index, &slots) else { break };
        if let Some(kind) = kind_in(library, call, &parameter.kind, &slots) {
            let class = Class::Handle { library: library.number, kind: kind as u32 };
            let (names, _) = block.get(at..at + bytes).unwrap_or_default().as_chunks::<SLOT>();
            let names = names.iter().map(|name| u64::from_le_bytes(*name)).filter(|name| *name != 0);
            found.extend(names.map(|name| (class, name)));
        }
        at += padded(bytes);
    }
    for (parameter, slot) in call.parameters.iter().zip(&slots) {
        if let Kind::Handle { kind, .. } = parameter.kind
            && FILLS_TENSORS.contains(&function.name)
            && library.handles[kind].name == TENSOR
            && *slot != 0
        {
            found.push((Class::Handle { library: library.number, kind: kind as u32 }, *slot));
        }
    }
    found
}

/// Returns whether a call finishes a plan of cuDNN that `made` has begun.
pub fn finishes_plan(made: Option<&Recorded>, call: &Recorded) -> bool {
    let is_of = |call: &Recorded, name: &str| {
        called(&call.arguments).is_some_and(|(_, function)| function.name == name)
    };
    let is_plan = |made: &Recorded| match &made.bulk {
        Bulk::Bytes(block) => {
            block.first_chunk().is_some_and(|kind| u64::from_le_bytes(*kind) as u32 == PLAN)
        }
        Bulk::Image(_) => false,
    };
    made.is_some_and(|made| is_of(made, "cudnnBackendCreateDescriptor") && is_plan(made))
        && is_of(call, "cudnnBackendFinalize")
}

/// Returns whether a call may fail when it is made again: it sets addresses, of memory that has ended since.
pub fn may_fail(arguments: &[u8], block: &[u8]) -> bool {
    let Some((_, function)) = called(arguments) else { return false };
    let Body::Forward(call) = &function.body else { return false };
    let slots: Vec<u64> = block.as_chunks::<SLOT>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    call.parameters.iter().any(|parameter| match parameter.kind {
        Kind::Host(Host { element: Element::ByAttribute { kind, .. }, .. }) => {
            call.integer(*kind, &slots).is_some_and(is_attribute_of_addresses)
        }
        _ => false,
    })
}

/// Returns the kind of the handles in the array of a parameter, if it is one.
fn kind_in(library: &Library, call: &Call, kind: &Kind, slots: &[u64]) -> Option<usize> {
    match kind {
        Kind::Host(Host { element: Element::Handle(kind), .. }) => Some(*kind),
        Kind::Host(Host { element: Element::ByAttribute { kind, .. }, .. }) => {
            let name = attribute_type_handle(call.integer(*kind, slots)?)?;
            library.handles.iter().position(|kind| kind.name == name)
        }
        _ => None,
    }
}

/// Returns whether a getter takes a number of this name.
fn asks_with(getter: &Function, name: &str) -> bool {
    let Body::Forward(call) = &getter.body else { return false };
    call.parameters.iter().any(|other| other.name == name && matches!(other.kind, Kind::Value(_)))
}

fn slot(index: usize) -> Range<usize> {
    index * SLOT..(index + 1) * SLOT
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::block::PRESENT;

    use super::*;

    fn rule_of(name: &str, function: &str) -> Option<Rule> {
        let (_, library) = cuda_library_rows::library(name).unwrap();
        rule(library, library.functions.iter().find(|row| row.name == function).unwrap())
    }

    /// The number of a setting, and the parameters that tell settings of it apart.
    fn setting_of(name: &str, function: &str) -> (u32, Vec<usize>) {
        match rule_of(name, function) {
            Some(Rule::Sets { setting, parts, .. }) => {
                (setting, parts.iter().map(|part| part.start / SLOT).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rules_follow_from_the_rows_of_functions() {
        let class = Class::Handle { library: 0, kind: 0 };
        let made = Place { class, is_result: false, bytes: 0..8 };
        assert_eq!(rule_of("cublas", "cublasCreate_v2"), Some(Rule::Makes(made)));
        assert_eq!(rule_of("cublas", "cublasDestroy_v2"), None);
        assert_eq!(rule_of("cublas", "cublasSgemm_v2"), None);
        let Some(Rule::Sets { uses, .. }) = rule_of("cublas", "cublasSetStream_v2") else { panic!() };
        assert_eq!(uses, [Place { class: Class::Stream, is_result: false, bytes: 8..16 }]);
        assert_eq!(
            rule_of("cublasLt", "cublasLtMatmulAlgoConfigSetAttribute"),
            None,
            "of the program's structure"
        );
        let of_library = rule_of("cublasLt", "cublasLtHeuristicsCacheSetCapacity");
        assert!(matches!(of_library, Some(Rule::Sets { subject: Subject::Context, .. })), "of the library");
        let never = Some(Rule::Never(NOT_FOLLOWED));
        for (library, function) in [
            ("cudnn", "cudnnInitTransformDest"),
            ("cusparse", "cusparseSpSV_createDescr"),
            ("cusparse", "cusparseSpMV_preprocess"),
            ("cusparse", "cusparseDenseToSparse_analysis"),
            ("cusolver", "cusolverDnCreateSyevjInfo"),
            ("cusolver", "cusolverDnSsyevj"),
        ] {
            assert_eq!(rule_of(library, function), never, "{function}");
        }
        for (library, function) in [
            ("cudnn", "cudnnGetVersion"),
            ("cudnn", "cudnnBackendExecute"),
            ("cusparse", "cusparseSpMV"),
            ("cusolver", "cusolverDnSgetrf"),
        ] {
            assert_eq!(rule_of(library, function), None, "{function}");
        }
    }

    #[test]
    fn descriptors_name_others_in_arrays() {
        let (number, library) = cuda_library_rows::library("cudnn").unwrap();
        let found = |name: &str, slots: &[u64], data: &[u64]| {
            let function = library.functions.iter().find(|row| row.name == name).unwrap();
            let arguments = [number.to_le_bytes(), function.number.to_le_bytes()].concat();
            let block: Vec<u8> = slots.iter().chain(data).flat_map(|word| word.to_le_bytes()).collect();
            (handles_in(&arguments, &block), may_fail(&arguments, &block))
        };
        let of = |kind, names: &[u64]| -> Vec<_> {
            names.iter().map(|name| (Class::Handle { library: number, kind }, *name)).collect()
        };
        let set = "cudnnBackendSetAttribute";
        assert_eq!(found(set, &[64, 704, 15, 2, PRESENT], &[80, 96]), (of(1, &[80, 96]), false));
        assert_eq!(found(set, &[64, 702, 15, 2, PRESENT], &[0, 96, 112]), (of(1, &[96]), false), "no more");
        assert_eq!(found(set, &[64, 400, 0, 1, PRESENT], &[32]), (of(0, &[32]), false));
        assert_eq!(found(set, &[64, 902, 3, 1, PRESENT], &[32]), (Vec::new(), false), "numbers");
        assert_eq!(found(set, &[64, 1001, 6, 1, PRESENT], &[32]), (Vec::new(), true), "addresses");
        assert_eq!(found(set, &[64, 704, 15, 2, PRESENT], &[80]), (Vec::new(), false), "cut");
        assert!(matches!(rule_of("cudnn", "cudnnBackendGetAttribute"), Some(Rule::Fills { .. })));
        let get = &[64, 202, 15, 2, PRESENT, PRESENT];
        assert_eq!(found("cudnnBackendGetAttribute", get, &[80, 96]), (of(1, &[80, 96]), false));
    }

    #[test]
    fn random_states_are_kept_and_weights_fill_descriptors() {
        let (number, library) = cuda_library_rows::library("cudnn").unwrap();
        let numbered = |name: &str| library.functions.iter().find(|row| row.name == name).unwrap().number;
        let arguments = |name: &str| [number, numbered(name)].map(u32::to_le_bytes).concat();
        let block = |slots: &[u64]| slots.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let [set, restore] = WITH_STATES.map(arguments);
        assert_eq!(again(&set, &block(&[64, 32, 0, 0, 0, 0]))[..], set[..], "it writes nothing");
        assert_eq!(again(&set, &block(&[64, 32, 0, 4096, 64, 0]))[..], restore[..]);
        assert_eq!(again(&restore, &block(&[64, 32, 0, 4096, 64, 0]))[..], restore[..]);
        let parameters = |name: &str| match &library.functions[library.numbered(numbered(name)).unwrap()].body
        {
            Body::Forward(call) => call.parameters.iter().map(|one| one.name).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        assert_eq!(parameters(WITH_STATES[0]), parameters(WITH_STATES[1]));
        assert_eq!(parameters(WITH_STATES[0])[STATES], "states");
        let of = WITH_STATES.map(|name| match rule_of("cudnn", name) {
            Some(Rule::Sets { subject: Subject::Named(subject), setting, uses, .. }) => {
                (subject, setting, uses)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(of[0], of[1]);
        let query = "cudnnGetRNNWeightParams";
        let Some(Rule::Fills { parts, uses, .. }) = rule_of("cudnn", query) else { panic!() };
        assert!(parts.is_empty() && uses.len() == 2);
        let found = handles_in(&arguments(query), &block(&[16, 32, 0, 0, 0, 0, 48, 0, 64, 0]));
        assert_eq!(found.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [48, 64]);
        let found = handles_in(&arguments(query), &block(&[16, 32, 0, 0, 0, 0, 0, 0, 64, 0]));
        assert_eq!(found.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [64], "one is not asked for");
    }

    #[test]
    fn settings_replace_each_other_by_their_getters() {
        assert_eq!(setting_of("cublas", "cublasSetMathMode").1, [0_usize; 0]);
        let (number, parts) = setting_of("cufft", "cufftSetPlanPropertyInt64");
        assert_eq!(parts, [1], "by the property");
        assert_eq!(setting_of("cufft", "cufftResetPlanProperty"), (number, parts));
        assert_eq!(setting_of("cufft", "cufftSetAutoAllocation").1, [1], "there is no getter");
        assert_ne!(
            setting_of("cublas", "cublasSetWorkspace_v2").0,
            setting_of("cufft", "cufftSetWorkArea").0
        );
    }
}
