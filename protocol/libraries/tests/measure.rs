// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Numbers that a function is asked for.

use cuda_api_description::libraries::library;
use cuda_library_rows::{Asked, Body, Call, Kind, Measure};

const ROWS: &str = "handle H\nhandle D\n\
    0 forward get(d: D, n: i32, kind: out i32, dims: inout i32[n], other: out? H, size: out? u64) [writes];\n\
    1 forward scale(d: D, by: f32, size: out u64) [writes];\n\
    2 forward pairs(d: D, n: i32, dims: out i32[2*n]) [writes];\n";

fn measured(kind: &str) -> Result<(&'static Call, Asked), String> {
    let text = format!("{ROWS}3 forward f(h: H, d: D, a: in i32[m], m: {kind}) [writes];");
    let rows = library(&text, "").map_err(|error| error.what)?.library;
    let (Body::Forward(call), Body::Forward(get)) = (&rows.functions[3].body, &rows.functions[0].body) else {
        panic!("rows that do not cross")
    };
    match &call.parameters[3].kind {
        Kind::Measured(Measure::Asked(asked)) => Ok((*get, asked.clone())),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_function_is_asked_for_what_it_writes() {
    let (get, asked) = measured("asked get(d).dims[3]").expect("valid");
    assert_eq!((asked.handle, asked.function, asked.result, asked.element), (1, 0, 3, 3));
    let seen = asked.ask(get, 77, |arguments| {
        assert_eq!((arguments.len(), &arguments[..2], &arguments[4..]), (6, &[77, 8][..], &[0, 0][..]));
        if arguments[2] == arguments[3] { Err("one place for two results") } else { Ok(()) }
    });
    assert_eq!(seen, Ok(Some(0)), "nothing was written");
    assert_eq!(asked.ask(get, 77, |_| Err("no such handle")), Err("no such handle"));
    let (_, asked) = measured("asked get(d).size").expect("valid");
    assert_eq!((asked.result, asked.element), (5, 0));
}

#[test]
fn other_functions_are_not_asked() {
    for kind in [
        "asked get(d).dims[8]",
        "asked get(d).kind[1]",
        "asked get(d).n",
        "asked get(d).other",
        "asked get(d).none",
        "asked get(h).kind",
        "asked get.kind",
        "asked put(d).kind",
        "asked scale(d).size",
        "asked pairs(d).dims[0]",
    ] {
        assert!(measured(kind).is_err(), "{kind}");
    }
}
