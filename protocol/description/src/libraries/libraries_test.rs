// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{Check, Direction, Element, Note, Scratch, ScratchBytes};

const HEAD: &str = "library x 0\nsoname libx.so.1\nstatus success=0 not_supported=15\nhandle Handle\n";

fn one(row: &str) -> Result<&'static Function, Error> {
    Ok(&library(&format!("{HEAD}{row}"), "")?.library.functions[0])
}

#[test]
fn a_row_is_read() {
    let function =
        one("0 forward gemm(h: Handle, n: i32, a: scalar compute(t,d), A: ptr, v: in? i32[n*2], t: i32, d: i32) [writes wait];  # why")
            .expect("valid");
    let Body::Forward(call) = function.body else { panic!("{function:?}") };
    assert_eq!(function.name, "gemm");
    assert!(call.facts.wait && call.roles.answers);
    assert_eq!(call.parameters[0].kind, Kind::Handle { kind: 0, nullable: false });
    let element = Element::ByCompute { compute: 5, data: 6 };
    assert_eq!(call.parameters[2].kind, Kind::Scalar { direction: Direction::In, element, count: None });
    let Kind::Host(host) = &call.parameters[4].kind else { panic!("{:?}", call.parameters[4]) };
    assert!(host.nullable && host.count.is_some());
}

#[test]
fn answers_and_bodies_are_read() {
    let Body::Forward(call) = one("0 forward name(status: i32) -> string [writes pure];").unwrap().body
    else {
        panic!()
    };
    assert!(call.answer == Answer::Text && call.facts.pure);
    assert!(matches!(one("0 custom f [none];").unwrap().body, Body::Custom));
    let Body::Refuse(reason) = one("0 refuse f [none] \"for reasons\";").unwrap().body else { panic!() };
    assert_eq!(reason, "for reasons");
}

/// Releases that say the same work together, however they say it.
#[test]
fn comments_and_spaces_are_not_in_the_digest() {
    let digest = |rows: &str| {
        let library = library(&format!("{HEAD}{rows}"), "").expect("valid").library;
        library.functions.iter().map(|function| function.digest).collect::<Vec<_>>()
    };
    let plain = digest("0 forward f(h: Handle, n: i32) [writes wait];\n1 custom g [none];");
    assert_eq!(
        plain,
        digest("# Why.\n\n0 forward f(h: Handle,  n: i32) [writes wait];  # A note.\n  1 custom g [none];\n")
    );
    // The guest's exported function is no affair of the host.
    assert_eq!(plain, digest("0 wrap f(h: Handle, n: i32) [writes wait] as fill(4);\n1 custom g [none];"));
    // Each function has a digest of its own.
    let other = digest("0 forward f(h: Handle, n: i32) [writes];\n1 custom g [none];\n2 custom k [none];");
    assert!(plain[0] != other[0] && plain[1] == other[1]);
    let moved = digest("0 custom g [none];\n1 forward f(h: Handle, n: i32) [writes wait];");
    assert!(!moved.iter().any(|digest| plain.contains(digest)), "a number is part of the meaning");
    let other = library(&format!("{HEAD}handle Plan\n0 forward f(h: Plan) [writes];"), "").expect("valid");
    let same = library(&format!("{HEAD}handle Plan i32\n0 forward f(h: Plan) [writes];"), "").expect("valid");
    assert_ne!(other.library.functions[0].digest, same.library.functions[0].digest, "the handle is another");
}

/// What changes in a descriptor changes the functions that it is sent with.
#[test]
fn descriptors_are_in_the_digest_of_their_functions() {
    let digests = |bytes: u32| {
        let attributes = format!("descriptor desc 64 init set\ndesc 0 FIRST {bytes} given");
        let rows = "0 forward f(h: Handle, d: described desc) [writes];\n1 forward g(h: Handle) [writes];";
        let library = library(&format!("{HEAD}{rows}"), &attributes).expect("valid").library;
        library.functions.iter().map(|function| function.digest).collect::<Vec<_>>()
    };
    let (four, eight) = (digests(4), digests(8));
    assert!(four[0] != eight[0] && four[1] == eight[1]);
}

#[test]
fn positions_are_listed_for_libraries_with_gaps_only() {
    let of = |rows: &str| library(&format!("{HEAD}{rows}"), "").expect("valid").library;
    let (dense, gaps) =
        (of("0 custom f [none];\n1 custom g [none];"), of("2 custom f [none];\n0 custom g [none];"));
    assert!(dense.positions.is_empty());
    assert_eq!([0, 1, 2].map(|number| dense.numbered(number)), [Some(0), Some(1), None]);
    assert_eq!([0, 1, 2, 3].map(|number| gaps.numbered(number)), [Some(1), None, Some(0), None]);
    let digests: Vec<u64> = gaps.digests().collect();
    assert_eq!(digests, [gaps.functions[1].digest, 0, gaps.functions[0].digest]);
}

#[test]
fn exported_functions_have_an_origin() {
    let export = |row: &str| Ok::<_, Error>(library(&format!("{HEAD}{row}"), "")?.exports.remove(0));
    assert_eq!(export("0 forward f(h: Handle) [writes];"), Ok(Export::Row));
    assert_eq!(export("0 wrap f(h: Handle) [writes];"), Ok(Export::ByHand));
    assert_eq!(export("0 custom f [writes];"), Ok(Export::ByHand));
    let calls = Export::Calls { function: "fill".into(), arguments: "4, true".into() };
    assert_eq!(export("0 wrap f(h: Handle) [writes] as fill(4, true);"), Ok(calls));
    for row in [
        "0 forward f(h: Handle) [writes] as g();",
        "0 wrap f(h: Handle) [writes] g();",
        "0 custom f [none] as g();",
    ] {
        assert!(export(row).is_err(), "{row}");
    }
}

#[test]
fn functions_are_in_parts() {
    let rows = "0 custom f [none];\npart libx_a.so.1\n1 custom g [none];\n2 custom h [none];\npart libx_b.so.1\npart libx_c.so.1\n3 custom i [none];";
    let library = library(&format!("{HEAD}{rows}"), "").expect("valid").library;
    let parts: Vec<_> = library.parts.iter().map(|part| (part.soname, part.functions.clone())).collect();
    assert_eq!(parts, [("libx_a.so.1", 1..3), ("libx_b.so.1", 3..3), ("libx_c.so.1", 3..4)]);
}

#[test]
fn a_function_has_further_forms() {
    let function = one("0 forward fill@Host(h: Handle, n: i32) [writes];").expect("valid");
    assert!(function.is_form() && function.symbol() == "fill", "{function:?}");
    let function = one("0 forward fill(h: Handle) [writes];").expect("valid");
    assert!(!function.is_form() && function.symbol() == "fill", "{function:?}");
    assert!(
        one("0 forward fill@(h: Handle) [writes];").is_err()
            && one("0 forward @Host(h: Handle) [writes];").is_err()
    );
}

#[test]
fn kinds_of_memory_are_read() {
    let row = "0 forward f(h: Handle, id: value bytes 128, w: scratch[2*n], n: u64, s: placed(n) 8, t: table 64, g: graph, c: in? sized 80 null(32,48)) [writes];";
    let Body::Forward(call) = one(row).expect("valid").body else { panic!() };
    let kinds: Vec<Kind> = call.parameters.iter().map(|parameter| parameter.kind.clone()).collect();
    assert_eq!(kinds[1], Kind::Structure(128));
    assert!(matches!(kinds[2], Kind::Scratch(_)));
    assert_eq!(kinds[4..7], [Kind::Placed { place: 3, bytes: 8 }, Kind::Table(64), Kind::Graph]);
    let Kind::Host(host) = &kinds[7] else { panic!("{kinds:?}") };
    assert_eq!(host.element, Element::Sized { bytes: 80, nulls: [32, 48] });
}

#[test]
fn a_complex_double_is_two_doubles() {
    let Body::Forward(call) = one("0 forward f(h: Handle, tol: c64, n: i32) [writes];").expect("valid").body
    else {
        panic!()
    };
    let kinds: Vec<Kind> = call.parameters.iter().map(|parameter| parameter.kind.clone()).collect();
    assert_eq!(kinds[1..3], [Kind::Value(Number::F64), Kind::Value(Number::F64)]);
    assert!(
        one("0 forward f(a: c64, b: c64, c: c64, d: c64, e: f32) [writes];").is_err(),
        "nine vector registers"
    );
}

#[test]
fn handles_of_other_libraries_and_facts_are_read() {
    let text = "handle M of other.MatDescr\nhandle C late\n0 forward set(c: C, n: i32) [writes sets];\n1 forward get(c: C, n: out i32) [writes gets(set)];\n\
                2 forward make(kind: i32, c: new C) [writes birth(kind)];\n3 forward end(c: C) [writes wait_unless(16)];";
    let library = library(&format!("{HEAD}{text}"), "").expect("valid").library;
    assert_eq!(library.handles[1].of, Some(("other", "MatDescr")));
    assert!(library.handles[2].is_late && library.handles[2].has_birth);
    let facts = |index: usize| match &library.functions[index].body {
        Body::Forward(call) => call.facts,
        _ => panic!("{library:?}"),
    };
    assert!(facts(0).sets);
    assert_eq!((facts(1).gets, facts(2).birth, facts(3).wait_unless), (Some(0), Some(0), Some(16)));
}

#[test]
fn structures_of_the_program_are_read() {
    let text = "handle S struct 512\n0 forward make(s: S, d: described d) [writes makes];\n\
                1 forward search(s: S, d: described d, at: in stream, n: i32, found: out u8[64]) [writes finds(found)];";
    let library = library(&format!("{HEAD}{text}"), "object d 64\nd 0 N 4 given\n").expect("valid").library;
    assert_eq!(library.handles[1].structure, 512);
    let call = |index: usize| match &library.functions[index].body {
        Body::Forward(call) => call,
        _ => panic!("{library:?}"),
    };
    assert!(call(0).facts.makes && !call(1).facts.makes);
    assert_eq!((call(1).facts.finds, &call(1).parameters[2].kind), (Some(4), &Kind::InStream));
}

#[test]
fn notes_are_read() {
    let text = "handle M of other.M\nhandle Info\n0 forward analyse(h: Handle, n: i32, i: Info) [writes notes(i.n=n) forgets(i.n)];\n\
                1 forward size(h: Handle, n: i32, bytes: out u64) [writes];\n\
                2 forward solve(h: Handle, n: i32, b: in f64[n], i: Info, w: scratch i[8*m], m: note i.n) [writes needs(i.n=n)];\n\
                3 forward extract(i: Info, z: out i32, L: malloc i32[2*m] of z, p: malloc f64[m+1], m: note i.n) [writes];\n\
                4 forward permute(h: Handle, n: i32, d: M, r: inout i32[n+1] rising(n,d), c: in i32[n] below(max(n,1)), \
                p: in i32[n] permutation, w: scratch by(size), a: in f64[n] each[n]) [writes];\n\
                5 forward both(h: Handle, n: i32, bytes: u64, w: scratch[bytes] by(size)) [writes];";
    let library = library(&format!("{HEAD}{text}"), "").expect("valid").library;
    assert_eq!(library.handles[2].notes, ["n"]);
    let call = |index: usize| match &library.functions[index].body {
        Body::Forward(call) => call,
        _ => panic!("{library:?}"),
    };
    let note = Note { handle: 2, note: 0 };
    assert_eq!(call(0).notes.takes, [(note, Expression::Parameter(1))]);
    assert!(call(0).roles.answers && !call(2).roles.answers, "calls that change notes are waited for");
    assert_eq!(call(0).notes.changed().collect::<Vec<_>>(), [note; 2]);
    assert_eq!(call(2).notes.needs, [(Note { handle: 3, note: 0 }, Expression::Parameter(1))]);
    let Kind::Scratch(Scratch { owner: Some(3), bytes: ScratchBytes::Counted(_) }) =
        &call(2).parameters[4].kind
    else {
        panic!("{:?}", call(2))
    };
    assert_eq!(call(2).parameters[5].kind, Kind::Noted(Note { handle: 3, note: 0 }));
    let Kind::Allocated { count: Some(1), .. } = &call(3).parameters[2].kind else { panic!() };
    let Kind::Allocated { count: None, .. } = &call(3).parameters[3].kind else { panic!() };
    let checks: Vec<Option<Check>> = call(4)
        .parameters
        .iter()
        .filter_map(|parameter| match &parameter.kind {
            Kind::Host(host) => Some(host.check.clone()),
            _ => None,
        })
        .collect();
    let [Some(Check::Rising { base: Some(2), .. }), Some(Check::Below { base: None, .. }), last] =
        &checks[..]
    else {
        panic!("{checks:?}")
    };
    assert_eq!(last, &Some(Check::Permutation));
    let asked = Scratch { owner: None, bytes: ScratchBytes::Asked(1) };
    assert_eq!(call(4).parameters[6].kind, Kind::Scratch(asked));
    assert!(matches!(call(4).parameters[7].kind, Kind::Arrays { .. }));
    let checked = Scratch { owner: None, bytes: ScratchBytes::Checked(Expression::Parameter(2), 1) };
    assert_eq!(call(5).parameters[3].kind, Kind::Scratch(checked));
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (row, what) in [
        ("0 forward f(h: Handle, n: note h.n) [writes];", "n: there is no note `h.n` before"),
        ("0 forward f(h: Handle, n: i32) [writes needs(h.n=n)];", "there is no note `h.n` before"),
        ("0 forward f(n: i32) [writes notes(n.x=n)];", "`n` is no handle"),
        ("0 forward f(n: i32) [writes keeps_pattern(n)];", "`n` is no handle"),
        ("0 forward f(n: i32, w: scratch by(g)) [writes];", "w: there is no function `g` before"),
        ("0 forward f(n: i32, w: scratch[n] by(g)) [writes];", "w: there is no function `g` before"),
        (
            "0 forward f(n: i32, p: out i32[n] permutation) [writes];",
            "p: rules are for numbers of 32 bits that the library reads",
        ),
        ("0 forward f(n: i32, p: in i32[n] sorted) [writes];", "p: there is no rule `sorted`"),
        ("0 forward f(n: i32, s: sum n) [writes];", "s: `n` is no array of numbers of 32 bits"),
        ("0 forward f(n: i32, m: asked g(n).x) [writes];", "m: there is no function `g` before"),
        ("0 forward f(n: i32, p: malloc i32[n] of m) [writes];", "p: there is no parameter `m`"),
        ("0 forward f(h: Handel) [writes];", "h: there is no kind `Handel`"),
        ("0 forward f(s: in stream, n: u64) [writes];", "s: the number of streams is to follow, an i32"),
        ("0 forward f(h: Handle [writes]", "the last row has no end"),
        ("0 forward f(n: in i32[m]) [writes];", "n: there is no parameter `m`"),
        ("0 forward f(h: inout Handle) [writes];", "h: handles in host memory are `in` or `out`"),
        ("0 forward f(h: Handle) [writes gets(g)];", "there is no function `g` before"),
        ("0 forward f(h: Handle) [writes birth(t)];", "there is no parameter `t`"),
        ("0 forward f(s: in sized 80 null(8)) [writes];", "s: `null` needs two places"),
        ("0 forward f(s: scratch[n]) [writes];", "s: there is no parameter `n`"),
        ("0 forward f(h: Handle) [writes fast];", "there is no fact `fast`"),
        ("0 nothing f [none];", "`nothing` is no kind of row"),
        ("0 forward f [none];", "the parameters are missing"),
        ("0 custom f() [none];", "a row of kind `custom` has no parameters"),
        ("0 refuse f [none];", "`refuse` needs a reason"),
        ("0 wrap f@Other(n: i32) [none];", "`f@Other` is no name"),
        ("65535 custom f [none];", "a function's number is too large"),
        ("0 custom f [none];\n0 custom g [none];", "0 is the number of another function"),
    ] {
        let line = 5 + row.matches('\n').count();
        assert_eq!(one(row).unwrap_err(), Error { line, what: what.to_owned() }, "{row}");
    }
}

#[test]
fn roles_are_those_of_the_parameters() {
    let row = "0 forward f(h: Handle, n: i32, a: in i32[n], b: inout f32[n], c: out f64, s: stream, text: string) [writes];";
    let Body::Forward(call) = one(row).expect("valid").body else { panic!() };
    let roles = &call.roles;
    assert_eq!((roles.handle, roles.stream, roles.out_stream, roles.new), (Some(0), Some(5), None, None));
    assert_eq!((roles.reads, roles.writes, roles.changes), (&[2, 3, 6][..], &[3, 4][..], &[3][..]));
    assert_eq!((roles.memory, roles.handles), (&[2, 3, 4, 6][..], &[0][..]));
    assert!(roles.answers && roles.ends.is_empty());
}
