// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forms as in `wide_forms` that were added later. `tests/data/h200-late.txt` has an H200's results of the bulk
//! reductions (those in shared memory need a kernel with `.explicitcluster` there, otherwise it is error 715; the
//! emulator executes them anyway). For the others there are no results yet: they are only executed.

use crate::form::{Form, class, form, hash, inputs, known, run, write_files};
use crate::wide_forms::module;

/// Two operands of a kind as 64 bits: `{b, a}` for the source, `{a, b}` for the destination.
fn packed(kind: &str, first: &str, second: &str) -> String {
    match class(kind).1 {
        2 => format!("{{{{{first}}}, {{{second}}}, {{{first}}}, {{{second}}}}}"),
        4 => format!("{{{{{first}}}, {{{second}}}}}"),
        _ => format!("{{{first}}}"),
    }
}

/// Each thread writes 8 bytes to both sides; those with an even number combine 16 of them.
fn bulk_reduction(list: &mut Vec<Form>, to_global: bool, operation: &str, kind: &'static str) {
    let (destination, source) = (packed(kind, "a", "b"), packed(kind, "b", "a"));
    let prepare = format!(
        "mov.u32 %t0, sm; mov.u32 %t1, %tid.x; mad.lo.u32 %t2, %t1, 8, %t0; add.u32 %t3, %t2, 4096; mov.b64 %q0, {source}; mov.b64 %q1, {destination}; and.b32 %t4, %t1, 1; setp.eq.u32 %p0, %t4, 0; st.shared.b64 [%t2], %q0;"
    );
    let text = if to_global {
        format!(
            "{prepare} st.global.b64 [%at2], %q1; fence.proxy.async; bar.sync 0; @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%at2], [%t2], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; membar.gl; bar.sync 0; ld.global.b64 {{d}}, [%at2]; bar.sync 0;"
        )
    } else {
        format!(
            "{prepare} st.shared.b64 [%t3], %q1; add.u32 %t9, %t0, 16384; setp.eq.u32 %p1, %t1, 0; @%p1 mbarrier.init.shared::cta.b64 [%t9], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t9], 2048; fence.proxy.async; bar.sync 0; @%p0 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}.{kind} [%t3], [%t2], 16, [%t9]; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%t9], 0; @!%p2 bra WAIT; ld.shared.b64 {{d}}, [%t3]; bar.sync 0;"
        )
    };
    list.push(form(text, &["b64", kind, kind]));
}

fn forms() -> Vec<Form> {
    let mut list = Vec::new();
    for kind in ["u32", "s32", "u64", "s64"] {
        for operation in ["add", "min", "max"] {
            if (operation, kind) != ("add", "s64") {
                bulk_reduction(&mut list, true, operation, kind);
            }
            if kind.ends_with("32") {
                bulk_reduction(&mut list, false, operation, kind);
            }
        }
    }
    bulk_reduction(&mut list, false, "add", "u64");
    for to_global in [true, false] {
        for operation in ["inc", "dec"] {
            bulk_reduction(&mut list, to_global, operation, "u32");
        }
        for operation in ["and", "or", "xor"] {
            bulk_reduction(&mut list, to_global, operation, "b32");
        }
    }
    for operation in ["and", "or", "xor"] {
        bulk_reduction(&mut list, true, operation, "b64");
    }
    for kind in ["f16", "bf16"] {
        for operation in ["add.noftz", "min", "max"] {
            bulk_reduction(&mut list, true, operation, kind);
        }
    }
    bulk_reduction(&mut list, true, "add", "f32");
    bulk_reduction(&mut list, true, "add", "f64");
    crate::matrices::quad_forms(&mut list);
    crate::video::forms(&mut list);
    list
}

#[test]
#[ignore = "makes files for another machine"]
fn write_cases() {
    let forms = forms();
    write_files(&module(&forms), &forms);
}

#[test]
fn late_forms_run_and_agree_with_an_h200_where_it_is_known() {
    let forms = forms();
    let known = known(include_str!("../data/h200-late.txt"));
    let mut wrong = Vec::new();
    for (form, results) in forms.iter().zip(run(&module(&forms), &forms)) {
        let wanted = known.get(form.digest().as_str());
        if wanted.is_some_and(|wanted| format!("{:016x}", hash(&results)) != *wanted) {
            wrong.push(&form.text);
        }
    }
    assert!(wrong.is_empty(), "{} of {} forms differ: {wrong:#?}", wrong.len(), forms.len());
}

/// The results must be those of the operation alone.
#[test]
fn elements_are_combined() {
    let mut list = Vec::new();
    bulk_reduction(&mut list, true, "add", "u32");
    bulk_reduction(&mut list, false, "max", "s32");
    bulk_reduction(&mut list, true, "xor", "b64");
    let (a, b) = (inputs(0, 0), inputs(0, 1));
    let expected: [fn(u64, u64) -> u64; 3] = [
        |a, b| {
            let sum = u64::from((a as u32).wrapping_add(b as u32));
            sum | sum << 32
        },
        |a, b| {
            let most = u64::from((a as i32).max(b as i32) as u32);
            most | most << 32
        },
        |a, b| a ^ b,
    ];
    for (results, expected) in run(&module(&list), &list).iter().zip(expected) {
        for (index, result) in results.iter().enumerate() {
            assert_eq!(*result, expected(a[index], b[index]), "element {index}");
        }
    }
}
