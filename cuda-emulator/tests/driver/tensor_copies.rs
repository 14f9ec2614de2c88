// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensor maps from their making to what kernels copy with them. The expected results follow from the manuals of PTX
//! and of the driver API, and from what an H200 does.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use cuda_abi::CUtensorMap;

use crate::cu::{self, Opaque, cu, download, function, launch, params, upload};
use crate::output::{child_role, run_child_as};

const U16: u32 = 1;
const U32: u32 = 2;
const S32: u32 = 3;
const U64: u32 = 4;
const F16: u32 = 6;
const F32: u32 = 7;
const F64: u32 = 8;
const TFLOAT32_FTZ: u32 = 12;
/// The 16-bit words of the kernels' room in shared memory.
const ROOM: usize = 4096;
/// The value that the kernels store in each word of that room before a load.
const NOTHING: u16 = 0xeeee;

/// The arguments of cuTensorMapEncodeTiled.
#[derive(Clone)]
struct Tiles {
    data_type: u32,
    sizes: Vec<u64>,
    strides: Vec<u64>,
    sides: Vec<u32>,
    steps: Vec<u32>,
    swizzle: u32,
    fill: u32,
}

impl Tiles {
    fn new(data_type: u32, sizes: &[u64], strides: &[u64], sides: &[u32]) -> Tiles {
        let (sizes, strides, sides) = (sizes.to_vec(), strides.to_vec(), sides.to_vec());
        Tiles { data_type, steps: vec![1; sizes.len()], sizes, strides, sides, swizzle: 0, fill: 0 }
    }

    fn encode(&self, address: u64) -> CUtensorMap {
        let mut map = CUtensorMap { opaque: [0; 128] };
        assert_eq!(
            cu!(cuTensorMapEncodeTiled(
                &mut map,
                self.data_type,
                self.sizes.len() as u32,
                address as *mut c_void,
                self.sizes.as_ptr(),
                self.strides.as_ptr(),
                self.sides.as_ptr(),
                self.steps.as_ptr(),
                0,
                self.swizzle,
                0,
                self.fill,
            )),
            0
        );
        map
    }

    /// The place in the tensor, in units of 16 bits, of each element of the box at `start`; `None` is outside. For
    /// elements of 16 bits.
    fn places(&self, start: &[i32]) -> Vec<Option<usize>> {
        let counts: Vec<u32> = (0..start.len())
            .map(|side| if side == 0 { self.sides[0] } else { self.sides[side].div_ceil(self.steps[side]) })
            .collect();
        (0..counts.iter().product::<u32>())
            .map(|mut rest| {
                let mut at = 0;
                for (side, count) in counts.iter().enumerate() {
                    let step = if side == 0 { 1 } else { self.steps[side] };
                    let coordinate = i64::from(start[side]) + i64::from(rest % count * step);
                    rest /= count;
                    let inside = u64::try_from(coordinate).ok().filter(|at| *at < self.sizes[side])?;
                    at += inside * if side == 0 { 2 } else { self.strides[side - 1] };
                }
                Some(at as usize / 2)
            })
            .collect()
    }
}

/// A module with the kernel `k(map, out)`: fills its room, executes `body` in one thread and waits for `bytes` bytes,
/// then stores its room at `out`.
fn module(bytes: u32, fill: &str, body: &str) -> Opaque {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n
        .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 other) {{
        .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %d<16>;
        .shared .align 1024 .b8 room[8192]; .shared .align 1024 .b8 maps[128]; .shared .align 8 .b64 bar;
        mov.b64 %d0, map; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [out]; ld.param.u64 %d5, [other];
        mov.u32 %r0, %tid.x; mov.u32 %r1, room; mov.u32 %r2, bar; mov.u32 %r5, maps;
        setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r2], 1; mov.u32 %r3, %r0;
        FILL: shl.b32 %r4, %r3, 1; add.u32 %r4, %r1, %r4; {fill}; st.shared.u16 [%r4], %h0;
        add.u32 %r3, %r3, 32; setp.lt.u32 %p1, %r3, {ROOM}; @%p1 bra FILL;
        fence.proxy.async; bar.sync 0; @%p0 bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {bytes};
        {body}
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;
        bar.sync 0; mov.u32 %r3, %r0;
        COPY: shl.b32 %r4, %r3, 1; add.u32 %r4, %r1, %r4; ld.shared.u16 %h0, [%r4];
        mul.wide.u32 %d2, %r3, 2; add.u64 %d2, %d1, %d2; st.global.u16 [%d2], %h0;
        add.u32 %r3, %r3, 32; setp.lt.u32 %p1, %r3, {ROOM}; @%p1 bra COPY;
        ret; }}"
    );
    cu::use_primary_context();
    let text = CString::new(text).unwrap();
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, text.as_ptr().cast())), 0, "{body}");
    module
}

const EMPTY: &str = "mov.u16 %h0, 0xeeee";
const COUNTED: &str = "cvt.u16.u32 %h0, %r3; add.u16 %h0, %h0, 1000";

/// Runs a module's kernel and returns the room.
fn run(module: Opaque, map: CUtensorMap, other: u64) -> Vec<u16> {
    let out = upload(&[0_u16; ROOM]);
    assert_eq!(launch(function(module, "k"), 1, 32, 0, params![map, out, other]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    download(out, ROOM)
}

fn list(numbers: &[i32]) -> String {
    format!("{{{}}}", numbers.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", "))
}

/// A load of the box at `start`.
fn load(map: CUtensorMap, start: &[i32], bytes: u32) -> Vec<u16> {
    let body = format!(
        "cp.async.bulk.prefetch.tensor.{0}d.L2.global.tile [%d0, {1}];
        cp.async.bulk.tensor.{0}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d0, {1}], [%r2];",
        start.len(),
        list(start)
    );
    run(module(bytes, EMPTY, &body), map, 0)
}

/// A store or reduction of counted words to the box at `start`.
fn store(map: CUtensorMap, start: &[i32], reduce: bool, form: &str) {
    let cp = if reduce { "cp.reduce.async" } else { "cp.async" };
    let body = format!(
        "{cp}.bulk.tensor.{}d.global.shared::cta{form}.bulk_group [%d0, {}], [%r1];",
        start.len(),
        list(start)
    );
    run(module(0, COUNTED, &body), map, 0);
}

/// A tensor of numbered words.
fn numbered() -> (u64, Vec<u16>) {
    cu::use_primary_context();
    let words: Vec<u16> = (0..60000).collect();
    (upload(&words), words)
}

/// Tensors of one to five sides, and a start for which the box is partly outside.
fn tensors() -> Vec<(Tiles, Vec<i32>)> {
    let tiles = |sizes: &[u64], strides: &[u64], sides: &[u32]| Tiles::new(U16, sizes, strides, sides);
    let stepped = |steps: &[u32], tiles: Tiles| Tiles { steps: steps.to_vec(), ..tiles };
    vec![
        (tiles(&[100], &[], &[64]), vec![8]),
        (tiles(&[100], &[], &[64]), vec![-8]),
        (tiles(&[100], &[], &[64]), vec![1 << 30]),
        (tiles(&[40, 30], &[96], &[16, 8]), vec![24, -3]),
        (tiles(&[40, 30, 10], &[96, 2944], &[16, 8, 3]), vec![-8, 25, 8]),
        (tiles(&[24, 10, 10, 6], &[48, 496, 4960], &[8, 4, 3, 2]), vec![16, -1, 8, 5]),
        (tiles(&[24, 5, 5, 4, 3], &[48, 240, 1200, 4800], &[8, 2, 3, 2, 2]), vec![16, 4, -1, 2, 2]),
        (stepped(&[1, 3], tiles(&[40, 30], &[96], &[16, 8])), vec![8, 25]),
        (stepped(&[2, 2, 4], tiles(&[40, 30, 10], &[96, 2944], &[16, 8, 6])), vec![8, 5, -4]),
    ]
}

#[test]
fn boxes_are_loaded_and_zero_outside() {
    let (tensor, words) = numbered();
    for (tiles, start) in tensors() {
        let places = tiles.places(&start);
        let room = load(tiles.encode(tensor), &start, 2 * places.len() as u32);
        let expected: Vec<u16> = places.iter().map(|place| place.map_or(0, |at| words[at])).collect();
        assert_eq!(room[..places.len()], expected, "{start:?}");
        assert!(room[places.len()..].iter().all(|word| *word == NOTHING), "{start:?}");
    }
}

#[test]
fn boxes_are_stored_and_nothing_outside() {
    for (tiles, mut start) in tensors() {
        // Stores have no negative coordinates.
        start.iter_mut().for_each(|coordinate| *coordinate = (*coordinate).max(0));
        let (tensor, mut words) = numbered();
        store(tiles.encode(tensor), &start, false, ".tile");
        for (index, place) in tiles.places(&start).into_iter().enumerate() {
            place.into_iter().for_each(|at| words[at] = 1000 + index as u16);
        }
        assert_eq!(download::<u16>(tensor, words.len()), words, "{start:?}");
    }
}

#[test]
fn swizzled_rows_lie_as_the_manual_says() {
    let (tensor, words) = numbered();
    for swizzle in 1..4 {
        // A row of 32, 64 or 128 bytes.
        let (row, rows) = (8 << swizzle, 20);
        let tiles = Tiles::new(U16, &[200, 60], &[400], &[row as u32, rows as u32]);
        let tiles = Tiles { swizzle, ..tiles };
        let start = [152, 7];
        let room = load(tiles.encode(tensor), &start, 2 * (row * rows) as u32);
        let swizzled = |index: usize| {
            // The number of the 128 bytes is added to that of the 16 bytes, within the width of the pattern.
            let byte = 2 * index;
            (byte ^ ((byte / 128 % (1 << swizzle)) * 16)) / 2
        };
        let places = tiles.places(&start);
        for (index, place) in places.iter().enumerate() {
            assert_eq!(room[swizzled(index)], place.map_or(0, |at| words[at]), "{swizzle}, {index}");
        }
        let mut stored = words.clone();
        let target = upload(&stored);
        store(tiles.encode(target), &start, false, "");
        for (index, place) in places.into_iter().enumerate() {
            place.into_iter().for_each(|at| stored[at] = 1000 + swizzled(index) as u16);
        }
        assert_eq!(download::<u16>(target, stored.len()), stored);
    }
}

#[test]
fn floats_outside_are_numbers_or_not() {
    cu::use_primary_context();
    let tensor = upload(&[1_u16; 4096]);
    for (data_type, bytes) in [(F16, 2), (F32, 4), (F64, 8)] {
        for fill in [0, 1] {
            let side = 16 / bytes as u64;
            let tiles = Tiles::new(data_type, &[side, 4], &[32], &[side as u32, 8]);
            let room = load(Tiles { fill, ..tiles }.encode(tensor), &[0, 0], 128);
            let outside: Vec<bool> = room[32..64]
                .chunks(bytes / 2)
                .map(|words| match words {
                    [half] => half & 0x7fff > 0x7c00,
                    [low, high] => f32::from_bits(u32::from(*low) | u32::from(*high) << 16).is_nan(),
                    words => words[3] & 0x7ff0 == 0x7ff0 && words[0] != 0,
                })
                .collect();
            assert!(room[..32].iter().all(|word| *word == 1));
            assert!(outside.iter().all(|is_nan| *is_nan == (fill == 1)), "{data_type}, {room:x?}");
        }
    }
}

#[test]
fn floats_become_those_that_the_map_names() {
    cu::use_primary_context();
    let tensor = upload(&[0x3f80_1001_u32, 0x0000_0001, 0x8000_0001, 0x7f80_0000]);
    let room = load(Tiles::new(TFLOAT32_FTZ, &[4], &[], &[4]).encode(tensor), &[0], 16);
    assert_eq!(room[..8], [0x2000, 0x3f80, 0, 0, 0, 0x8000, 0, 0x7f80]);
}

#[test]
fn elements_are_reduced_by_their_type() {
    fn check<T: Copy + Default + PartialEq + std::fmt::Debug>(
        data_type: u32,
        operation: &str,
        old: T,
        from: impl Fn([u16; 4]) -> T,
        combine: impl Fn(T, T) -> T,
    ) {
        cu::use_primary_context();
        let (count, width) = (64, 16 / size_of::<T>());
        let tensor = upload(&[old; 64]);
        let size = (count / width) as u64;
        let tiles = Tiles::new(data_type, &[width as u64, size], &[16], &[width as u32, 8]);
        // The last two rows of the box are outside.
        let first = count - 6 * width;
        store(tiles.encode(tensor), &[0, size as i32 - 6], true, &format!(".{operation}.tile"));
        let expected: Vec<T> = (0..count)
            .map(|index| {
                let word = |part| {
                    let place = (index - first) * size_of::<T>() / 2 + part;
                    1000 + place as u16
                };
                if index >= first { combine(old, from([word(0), word(1), word(2), word(3)])) } else { old }
            })
            .collect();
        assert_eq!(download::<T>(tensor, count), expected, "{operation} of {data_type}");
    }
    let word = |w: [u16; 4]| u32::from(w[0]) | u32::from(w[1]) << 16;
    let wide = |w: [u16; 4]| w.iter().rev().fold(0, |bits, word| bits << 16 | u64::from(*word));
    check(U32, "add", 3_000_000_000_u32, word, u32::wrapping_add);
    check(U32, "min", 1033 << 16, word, u32::min);
    check(U32, "inc", 7_u32, word, |a, b| if a >= b { 0 } else { a + 1 });
    check(U32, "dec", 7_u32, word, |a, b| if a == 0 || a > b { b } else { a - 1 });
    check(S32, "max", -5_i32, |w| word(w) as i32, i32::max);
    check(S32, "and", 0x0f0f_0f0f, word, |a, b| a & b);
    check(U64, "xor", u64::MAX / 3, wide, |a, b| a ^ b);
    check(U64, "or", u64::MAX / 3, wide, |a, b| a | b);
    check(U64, "add", u64::MAX, wide, u64::wrapping_add);
    check(F32, "add", 1.5, |w| f32::from_bits(word(w)), |a, b| a + b);
}

#[test]
fn columns_are_the_pixels_under_a_filter() {
    let (tensor, words) = numbered();
    // 16 channels of images of 7 by 6 pixels; the first pixel of a filter of 3 by 3 goes from (-1, -1) to (5, 4).
    let (sizes, strides) = ([16_u64, 7, 6, 5], [32_u64, 224, 1344]);
    let (channels, pixels, start, offsets) = (8, 64, [8_i32, 3, 4, 1], [2, 1]);
    let mut map = CUtensorMap { opaque: [0; 128] };
    assert_eq!(
        cu!(cuTensorMapEncodeIm2col(
            &mut map,
            U16,
            4,
            tensor as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            [-1, -1].as_ptr(),
            [-1, -1].as_ptr(),
            channels,
            pixels,
            [1_u32; 4].as_ptr(),
            0,
            0,
            0,
            0,
        )),
        0
    );
    let (mut expected, [_, mut x, mut y, mut image]) = (Vec::new(), start);
    for _ in 0..pixels {
        let (at_x, at_y) = (x + offsets[0], y + offsets[1]);
        for channel in 8..8 + channels as usize {
            let inside = (0..7).contains(&at_x) && (0..6).contains(&at_y) && image < 5;
            let at = channel as i32 + 16 * at_x + 112 * at_y + 672 * image;
            expected.push(if inside { words[at as usize] } else { 0 });
        }
        x += 1;
        if x == 6 {
            (x, y) = (-1, y + 1);
        }
        if y == 5 {
            (y, image) = (-1, image + 1);
        }
    }
    let body = format!(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d0, {}], [%r2], {};",
        list(&start),
        list(&offsets)
    );
    let bytes = 2 * expected.len() as u32;
    assert_eq!(run(module(bytes, EMPTY, &body), map, 0)[..expected.len()], expected);
    // Without offsets, back.
    let target = upload(&vec![0_u16; words.len()]);
    assert_eq!(cu!(cuTensorMapReplaceAddress(&mut map, target as *mut c_void)), 0);
    store(map, &[0, 0, 0, 0], false, ".im2col_no_offs");
    let stored = download::<u16>(target, words.len());
    // Six pixels of the first row; the seventh of the column is outside, and the eighth begins the second row.
    assert_eq!(stored[..9], [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 0]);
    assert_eq!(stored[112..121], [1056, 1057, 1058, 1059, 1060, 1061, 1062, 1063, 0]);
}

#[test]
fn kernels_change_maps() {
    let (tensor, words) = numbered();
    let tiles = Tiles::new(U16, &[40, 30], &[96], &[16, 8]);
    let changed = upload(&[0_u8; 128]);
    let body = format!(
        "mov.u32 %r6, 0;
        MORE: cvt.u64.u32 %d3, %r6; add.u64 %d3, %d0, %d3; ld.u64 %d4, [%d3];
        add.u32 %r7, %r5, %r6; st.shared.u64 [%r7], %d4; add.u32 %r6, %r6, 8; setp.lt.u32 %p1, %r6, 128; @%p1 bra MORE;
        mov.u64 %d6, {0}; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r5], %d6;
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r5], 0, 112;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r5], 0, 9;
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r5], 1, 2;
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r5], 1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d5], [%r5], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%d5], 128;
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%d5, {{0, 1}}], [%r2], %d6;",
        tensor + 32
    );
    let room = run(module(64, EMPTY, &body), tiles.encode(tensor), changed);
    let place = |row: usize, column: usize| if column < 9 { words[16 + 56 * (1 + row) + column] } else { 0 };
    let expected: Vec<u16> = (0..32).map(|index| place(index / 16, index % 16)).collect();
    assert_eq!(room[..32], expected);
    assert_eq!(room[32], NOTHING);
}

#[test]
fn bad_copies_end_the_kernel_and_not_the_process() {
    let name = "tensor_copies::bad_copies_end_the_kernel_and_not_the_process";
    let cases = [
        ("no valid tensor map", "add.u64 %d0, %d5, 64;", 715),
        ("illegal global memory read", "mov.u64 %d0, 64;", 700),
        ("misaligned tensor map", "add.u64 %d0, %d0, 32;", 716),
        ("no multiple of 128", "add.u32 %r1, %r1, 16;", 716),
        ("no multiple of 16", "mov.u32 %r6, 7;", 715),
        ("illegal shared memory", "add.u32 %r1, %r1, 1048576;", 700),
        ("illegal global memory read", "", 700),
    ];
    if let Some(role) = child_role() {
        let case: usize = role.parse().unwrap();
        let (_, prepare, code) = cases[case];
        let (tensor, _) = numbered();
        let tiles = Tiles::new(U16, &[40, 30], &[1 << 30], &[16, 8]);
        let body = format!(
            "mov.u32 %r6, 8; {prepare}
            cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0, {{%r6, 5}}], [%r2];"
        );
        let (module, map, other, out) =
            (module(256, EMPTY, &body), tiles.encode(tensor), upload(&[0_u8; 256]), tensor);
        assert_eq!(launch(function(module, "k"), 1, 32, 0, params![map, out, other]), 0);
        assert_eq!(cu!(cuCtxSynchronize()), code);
        return;
    }
    for (index, (message, _, _)) in cases.iter().enumerate() {
        let output = run_child_as(name, &index.to_string());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.contains(message), "{message}: {error}");
    }
}
