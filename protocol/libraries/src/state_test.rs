// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Each row states its number and what its calls do to the session's state, and the statement agrees with the rest of the row.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::{Body, Call, Effect, Function, Getter, Kind, Library, libraries};

fn forwarded() -> impl Iterator<Item = (&'static Library, &'static Function, &'static Call)> {
    let functions =
        libraries().flat_map(|library| library.functions.iter().map(move |function| (library, function)));
    functions.filter_map(|(library, function)| match &function.body {
        Body::Forward(call) => Some((library, function, *call)),
        _ => None,
    })
}

#[test]
fn numbers_lead_to_their_rows() {
    for library in libraries() {
        for (position, function) in library.functions.iter().enumerate() {
            assert_eq!(library.numbered(function.number), Some(position), "{}", function.name);
        }
    }
}

/// A shipped number keeps its meaning for ever. After adding rows, run with `UPDATE_GOLDEN=1` and read the difference.
#[test]
fn numbers_never_change() {
    let mut now = String::new();
    for library in libraries() {
        let mut rows: Vec<_> =
            library.functions.iter().map(|function| (function.number, function.name)).collect();
        rows.sort_unstable();
        rows.iter()
            .for_each(|(number, name)| writeln!(now, "{} {number} {name}", library.name).expect("a string"));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/library-functions.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &now).expect("the file is writable");
    }
    let golden = std::fs::read_to_string(path).expect("the file exists");
    assert!(golden == now, "{path} differs from what was shipped; see the head of this test");
}

#[test]
fn the_effect_agrees_with_the_parameters() {
    let mut counts = HashMap::new();
    for (_, function, call) in forwarded() {
        let has = |wanted: fn(&Kind) -> bool| call.parameters.iter().any(|parameter| wanted(&parameter.kind));
        let (name, effect) = (function.name, &function.effect);
        if has(|kind| matches!(kind, Kind::New(_))) {
            assert_eq!(*effect, Effect::Creates, "{name}");
        } else if has(|kind| matches!(kind, Kind::End(_))) {
            assert_eq!(*effect, Effect::Ends, "{name}");
        }
        let is_setter = call.facts.sets || call.facts.pointer_mode || call.facts.stream_of;
        if is_setter || call.facts.resets.is_some() {
            assert!(matches!(effect, Effect::Sets(_)), "{name} sets something");
        }
        // Numbers that later calls depend on are state.
        if call.notes.changed().next().is_some() || call.notes.keeps_pattern.is_some() {
            let is_state = matches!(effect, Effect::Creates | Effect::Ends | Effect::Sets(_));
            assert!(is_state, "{name} leaves numbers with a handle");
        }
        if call.facts.pure {
            // A pure function may make or change an object in the program's memory.
            assert!(!matches!(effect, Effect::Writes | Effect::Ends), "{name}");
        }
        *counts.entry(std::mem::discriminant(effect)).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 5);
}

#[test]
fn refused_functions_do_nothing() {
    for function in libraries().flat_map(|library| library.functions) {
        if matches!(function.body, Body::Refuse(_)) {
            assert_eq!(function.effect, Effect::Nothing, "{}", function.name);
        }
    }
}

#[test]
fn getters_exist_and_change_nothing() {
    let mut count = 0;
    for library in libraries() {
        for function in library.functions {
            match &function.effect {
                Effect::Sets(Getter::Function(getter)) => {
                    let found = library.functions.iter().find(|other| other.name == *getter);
                    assert_eq!(
                        found.map(|getter| &getter.effect),
                        Some(&Effect::Nothing),
                        "{}: {getter}",
                        function.name
                    );
                    count += 1;
                }
                Effect::Sets(Getter::None(reason)) => assert!(reason.len() > 10, "{}", function.name),
                _ => {}
            }
        }
    }
    assert!(count > 100, "{count}");
}

/// The guest answers a getter by the setter that its row names.
#[test]
fn a_getter_belongs_to_its_setter() {
    for (library, function, call) in forwarded() {
        let Some(setter) = call.facts.gets.map(|setter| &library.functions[setter]) else { continue };
        let getter = Effect::Sets(Getter::Function(function.name));
        assert_eq!(setter.effect, getter, "{} and {}", setter.name, function.name);
    }
}
