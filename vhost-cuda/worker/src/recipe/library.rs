// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the recipe does with a call of one of NVIDIA's libraries, derived from the function's own row.
//!
//! Names lie in the call's block of arguments. Handles of libraries that are not followed have contents of their own, such as the
//! state of a random generator.

use std::ops::Range;

use cuda_library_rows::block::SLOT;
use cuda_library_rows::{Body, Effect, Function, Getter, Kind, Library, library_of};

use super::class::Class;
use super::rule::{Place, Rule, Subject};

/// The libraries whose handles have nothing but what they were made with and their settings. Workspaces have no contents between calls.
const FOLLOWED: [&str; 3] = ["cublas", "cublasLt", "cufft"];
const NOT_FOLLOWED: &str = "NVIDIA's libraries keep state of their own";
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
    if !matches!(function.effect, Effect::Creates | Effect::Sets(_)) {
        return None;
    }
    if !FOLLOWED.contains(&library.name) {
        return Some(Rule::Never(NOT_FOLLOWED));
    }
    let handle = |index, kind: usize| Place {
        class: Class::Handle { library: library.number, kind: kind as u32 },
        is_result: false,
        bytes: slot(index),
    };
    let getter = match &function.effect {
        Effect::Sets(Getter::Function(name)) => library.functions.iter().find(|other| other.name == *name),
        Effect::Sets(Getter::None(_)) => None,
        _ => return call.roles.new.map(|(index, kind)| Rule::Makes(handle(index, kind))),
    };
    let mut places = Vec::new();
    let mut parts = Vec::new();
    for (index, parameter) in call.parameters.iter().enumerate() {
        match parameter.kind {
            Kind::Handle { kind, .. } => places.push(handle(index, kind)),
            Kind::Stream => places.push(Place { class: Class::Stream, is_result: false, bytes: slot(index) }),
            // Without a function that returns the setting, each value counts as a setting of its own. The last one holds.
            Kind::Value(_) if getter.is_none_or(|getter| asks_with(getter, parameter.name)) => {
                parts.push(slot(index))
            }
            _ => {}
        }
    }
    let is_handle = |place: &Place| matches!(place.class, Class::Handle { .. });
    if !places.first().is_some_and(is_handle) {
        // Of the library as a whole, which stays loaded, or of a structure of the program's.
        return None;
    }
    let subject = Subject::Named(places.remove(0));
    let setting = NUMBERS | library.number << 16 | getter.unwrap_or(function).number;
    Some(Rule::Sets { subject, setting, parts, uses: places })
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
        assert_eq!(rule_of("cublasLt", "cublasLtHeuristicsCacheSetCapacity"), None, "of the library");
        assert_eq!(rule_of("curand", "curandSetStream"), Some(Rule::Never(NOT_FOLLOWED)));
        assert_eq!(rule_of("cudnn", "cudnnGetVersion"), None);
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
