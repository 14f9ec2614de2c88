// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sizes of arguments and results in a block.

use cuda_api_description::libraries::library;
use cuda_library_rows::block::*;
use cuda_library_rows::{Body, Call, Library};

fn rows(row: &str) -> Library {
    library(&format!("handle Handle\n{row}"), "").expect(row).library
}

fn call(library: &Library) -> &Call {
    let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
    call
}

#[test]
fn types_of_attributes_have_the_listed_sizes() {
    let listed = include_str!("../rows/cudnn.attributes").lines();
    let mut types = 0;
    for line in listed.filter_map(|line| line.strip_prefix("type ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let (number, bytes) = (words[0].parse().expect(line), words[2].parse().expect(line));
        assert_eq!(attribute_type_bytes(number), Some(bytes), "{line}");
        let is_handle = matches!(words.get(3), Some(&"handle" | &"descriptor"));
        assert_eq!(attribute_type_handle(number).is_some(), is_handle, "{line}");
        types += 1;
    }
    assert_eq!(attribute_type_bytes(types), None, "a type is missing in cudnn.attributes");
}

#[test]
fn addresses_and_descriptors_are_not_given_as_numbers() {
    // CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
    assert!(may_have_type(1001, 6) && !may_have_type(1001, 3) && !may_have_type(1001, 5));
    assert!(may_have_type(401, 15) && !may_have_type(401, 3) && !may_have_type(401, 6));
    // CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_OPERATION_RNG_SEED, an attribute that is newer than the list
    assert!(may_have_type(906, 3) && may_have_type(2311, 3) && may_have_type(2311, 15));
    assert!(may_have_type(99_999, 3));
}

#[test]
fn sizes_follow_from_the_slots() {
    let rows = rows("0 forward f(n: i32, a: in f64[n], r: out i32, s: scalar type(t), t: i32) [writes];");
    let bytes = |index: usize, slots: &[u64]| call(&rows).memory_bytes(&rows, index, slots);
    let slots = [5, PRESENT, PRESENT, PRESENT, 5];
    assert_eq!(bytes(1, &slots), Ok(40));
    assert_eq!(bytes(3, &slots), Ok(16));
    assert_eq!(call(&rows).answer_bytes(&rows, &slots), Ok(16));
    assert_eq!(bytes(1, &[5, 0, 0, 0, 5]), Ok(0), "null");
    assert_eq!(bytes(3, &[5, 1, 1, 0x7000, 5]), Ok(0), "in device memory");
    assert_eq!(bytes(3, &[5, 1, 1, 1, 99]), Err(BadSize), "no such type");
    assert_eq!(bytes(1, &[u64::from((-5_i32) as u32), 1, 1, 1, 5]), Ok(0), "a negative number");
    assert_eq!(bytes(1, &[i32::MAX as u64, 1, 1, 1, 5]), Err(BadSize), "too long");
}

#[test]
fn what_the_worker_has_for_itself_does_not_cross() {
    let rows = rows(
        "0 forward f(h: Handle, w: scratch[2*n], n: u64, p: placed(n) 8, t: table 64, r: scalar f32[5]) [writes];",
    );
    let call = call(&rows);
    let slots = [7, PRESENT, 100, PRESENT, PRESENT, PRESENT];
    let bytes: Vec<usize> =
        (0..6).map(|index| call.memory_bytes(&rows, index, &slots).expect("known")).collect();
    assert_eq!(bytes, [0, 0, 0, 8, 64, 20]);
    assert_eq!(call.scratch_bytes(1, &slots), Ok(200));
    assert_eq!(call.scratch_bytes(1, &[7, 0, 100, 1, 1, 1]), Ok(0), "null");
    assert_eq!(call.scratch_bytes(1, &[7, 1, u64::MAX, 1, 1, 1]), Err(BadSize), "too long");
    assert!(call.is_in_host_memory(2, &slots) && !call.is_in_host_memory(2, &[7, 1, 0, 1, 1, 1]));
    assert_eq!(call.answer_bytes(&rows, &slots), Ok(8 + 64));
}

#[test]
fn noted_numbers_count_and_cross() {
    let text = "handle Info\n0 forward set(i: Info, n: i32) [writes notes(i.n=n)];\n\
                1 forward f(i: Info, x: out f64[m], p: malloc i32[m+1], a: in f32[m] each[3], w: scratch[m], m: note i.n) [writes];";
    let rows = library(text, "").expect("valid").library;
    let Body::Forward(call) = &rows.functions[1].body else { panic!("{rows:?}") };
    let bytes = |noted: u64| {
        let slots = [7, PRESENT, PRESENT, PRESENT, PRESENT, noted];
        let bytes: Vec<_> = (1..4).map(|index| call.memory_bytes(&rows, index, &slots)).collect();
        (bytes, call.answer_bytes(&rows, &slots), call.scratch_bytes(4, &slots))
    };
    assert_eq!(bytes(5), (vec![Ok(40), Ok(24), Ok(60)], Ok(8 + 40 + 24), Ok(5)));
    assert_eq!(bytes(u64::MAX), (vec![Ok(0); 3], Ok(8), Ok(0)), "none, as -1");
    assert!(bytes(1 << 40).0.contains(&Err(BadSize)), "too long");
}

#[test]
fn the_worker_may_have_more_memory_than_crosses() {
    let rows = rows("0 forward f(n: i32, a: in i32[n] room[m], m: i32) [writes];");
    let bytes = |m: u64| {
        let slots = [2, PRESENT, m];
        (call(&rows).memory_bytes(&rows, 1, &slots), call(&rows).room_bytes(1, &slots))
    };
    assert_eq!(bytes(3), (Ok(8), Ok(12)));
    assert_eq!(bytes(i32::MAX as u64), (Ok(8), Err(BadSize)));
}

#[test]
fn text_is_bounded() {
    let rows = rows("0 forward f(t: string) [writes];");
    let bytes = |slot: u64| call(&rows).memory_bytes(&rows, 0, &[slot]);
    assert_eq!(bytes(0), Ok(0));
    assert_eq!(bytes(6), Ok(5));
    assert_eq!(bytes(MAX_TEXT as u64 + 2), Err(BadSize));
}

#[test]
fn descriptors_tell_where_scalars_are() {
    let text = "descriptor d 64 init set\nd 0 X_SCALE_TYPE 4 given\nd 1 X_POINTER_MODE 4 0\n";
    let rows =
        library("0 forward f(d: described d, a: alpha d, b: beta d) [writes];", text).expect("valid").library;
    let mut contents = vec![0; rows.descriptors[0].bytes];
    rows.descriptors[0].set(1, 4, &mut contents);
    let slot = described(&rows, 0, &contents);
    let found = scalars(slot).expect("a type of scalars");
    assert_eq!((found.bytes, found.host_alpha, found.host_beta), (4, false, true));
    let bytes = |index: usize| call(&rows).memory_bytes(&rows, index, &[slot, 0x7000, PRESENT]);
    assert_eq!((bytes(0), bytes(1), bytes(2)), (Ok(rows.descriptors[0].bytes), Ok(0), Ok(4)));
}
