// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores of lanes whose addresses do not follow each other, shuffles, and comparisons of counted lanes. `translated`
//! runs these tests with translated code and without.

use crate::harness::Device;

/// Threads of the block: the last warp is not complete.
const THREADS: u32 = 80;

/// A permutation of 0..128.
fn place(thread: u32) -> u32 {
    thread * 37 % 128
}

/// `%r0` is the thread, `%r1` its place, `%d0` the address `p0` plus its place times `size`, `%d1` that of word `%r0` in `p1`.
fn head(size: u32) -> String {
    format!(
        "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x;
         mul.lo.u32 %r1, %r0, 37; and.b32 %r1, %r1, 127; mul.wide.u32 %d2, %r1, {size}; add.u64 %d0, %d0, %d2;
         mul.wide.u32 %d2, %r0, 4; add.u64 %d1, %d1, %d2;"
    )
}

/// Runs `body` after [`head`] for one block, with 4,096 bytes of `input` and one word per thread for results. Returns
/// both afterwards.
fn run(body: &str, size: u32, input: &[u8]) -> (Vec<u8>, Vec<u32>) {
    let device = Device::kernel(&format!("{} {body}", head(size)));
    let mut bytes = input.to_vec();
    bytes.resize(4096, 0);
    let (first, second) = (device.upload(&bytes), device.upload(&vec![7_u32; THREADS as usize]));
    // More than once: the first time, no range is known yet.
    for _ in 0..2 {
        device.memory.write(first, &bytes).unwrap();
        device.run("k", [2, 1, 1], [THREADS, 1, 1], &[first, second]).unwrap();
    }
    (device.download(first, 4096), device.download(second, THREADS as usize))
}

fn pattern() -> Vec<u8> {
    (0..4096_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn word(bytes: &[u8], at: u32) -> u32 {
    let at = at as usize;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn elements_of_all_sizes_are_gathered() {
    let input = pattern();
    type Case = (&'static str, u32, fn(&[u8], u32) -> u32);
    let cases: [Case; 9] = [
        ("ld.global.u32 %r2, [%d0+4];", 4, |bytes, at| word(bytes, at + 4)),
        ("ld.global.u8 %r2, [%d0];", 1, |bytes, at| bytes[at as usize].into()),
        ("ld.global.s8 %r2, [%d0+1];", 3, |bytes, at| (bytes[at as usize + 1] as i8) as u32),
        ("ld.global.s16 %r2, [%d0];", 2, |bytes, at| (word(bytes, at) as i16) as u32),
        ("ld.global.u64 %d3, [%d0]; shr.u64 %d3, %d3, 20; cvt.u32.u64 %r2, %d3;", 8, |bytes, at| {
            (u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32).wrapping_shr(20) as u32
        }),
        ("ld.global.v2.u32 {%r2,%r3}, [%d0]; mad.lo.u32 %r2, %r3, 3, %r2;", 8, |bytes, at| {
            word(bytes, at).wrapping_add(word(bytes, at + 4).wrapping_mul(3))
        }),
        (
            "ld.volatile.global.v4.u32 {%r2,%r3,%r4,%r5}, [%d0]; mad.lo.u32 %r2, %r3, 3, %r2;
             mad.lo.u32 %r2, %r4, 5, %r2; mad.lo.u32 %r2, %r5, 7, %r2;",
            16,
            |bytes, at| {
                let parts = [(0, 1), (4, 3), (8, 5), (12, 7_u32)];
                let sum = |sum: u32, (offset, factor): (u32, u32)| {
                    sum.wrapping_add(word(bytes, at + offset).wrapping_mul(factor))
                };
                parts.into_iter().fold(0, sum)
            },
        ),
        (
            "ld.global.v2.u64 {%d3,%d4}, [%d0]; xor.b64 %d3, %d3, %d4; shr.u64 %d3, %d3, 16; cvt.u32.u64 %r2, %d3;",
            16,
            |bytes, at| {
                let long = |at| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
                ((long(at) ^ long(at + 8)) >> 16) as u32
            },
        ),
        ("ld.global.v4.u8 {%r2,%r3,%r4,%r5}, [%d0]; mad.lo.u32 %r2, %r5, 256, %r2;", 4, |bytes, at| {
            u32::from(bytes[at as usize]) + u32::from(bytes[at as usize + 3]) * 256
        }),
    ];
    for (load, size, expected) in cases {
        let wanted: Vec<u32> = (0..THREADS).map(|thread| expected(&input, place(thread) * size)).collect();
        let (_, found) = run(&format!("{load} st.global.u32 [%d1], %r2;"), size, &input);
        assert_eq!(found, wanted, "{load}");
        // Only some lanes, with a guard: the others keep their values.
        let guarded = load.replacen("ld.", "@%p0 ld.", 1);
        let body = format!(
            "setp.gt.u32 %p0, %r1, 40; mov.u32 %r2, %r0; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
             mov.u64 %d3, 0; mov.u64 %d4, 0; {guarded} selp.u32 %r2, %r2, 1, %p0; st.global.u32 [%d1], %r2;"
        );
        let some = (0..THREADS).zip(&wanted);
        let some: Vec<u32> =
            some.map(|(thread, value)| if place(thread) > 40 { *value } else { 1 }).collect();
        assert_eq!(run(&body, size, &input).1, some, "guarded {load}");
    }
}

#[test]
fn a_guarded_load_keeps_the_lanes_that_it_is_not_for() {
    let input = pattern();
    // The address of the others is no address at all.
    let body = "setp.lt.u32 %p0, %r1, 64; mul.lo.u32 %r2, %r0, 11; @!%p0 mov.u64 %d0, 16;
                @%p0 ld.global.u32 %r2, [%d0]; add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;";
    let expected = |thread: u32| {
        let kept = if place(thread) < 64 { word(&input, place(thread) * 4) } else { thread * 11 };
        kept.wrapping_add(1)
    };
    assert_eq!(run(body, 4, &input).1, (0..THREADS).map(expected).collect::<Vec<_>>());
    let region = "setp.ge.u32 %p0, %r1, 64; mul.lo.u32 %r2, %r0, 11; @%p0 mov.u64 %d0, 16; @%p0 bra over;
                  ld.global.u32 %r2, [%d0]; over: add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;";
    assert_eq!(run(region, 4, &input).1, (0..THREADS).map(expected).collect::<Vec<_>>());
}

#[test]
fn elements_of_all_sizes_are_scattered() {
    type Case = (&'static str, u32, fn(u32) -> Vec<u8>);
    let cases: [Case; 8] = [
        ("st.global.u32 [%d0+4], %r2;", 8, |value| [[0; 4], value.to_le_bytes()].concat()),
        ("st.global.u8 [%d0], %r2;", 1, |value| vec![value as u8]),
        ("st.global.u16 [%d0], %r2;", 2, |value| (value as u16).to_le_bytes().to_vec()),
        ("st.global.u64 [%d0], %d3;", 8, |value| (u64::from(value) * 5).to_le_bytes().to_vec()),
        ("st.global.u32 [%d0], %d3;", 4, |value| value.wrapping_mul(5).to_le_bytes().to_vec()),
        ("st.global.v2.u32 [%d0], {%r2,%r0};", 8, |value| {
            [value.to_le_bytes(), (value / 1_000_003).to_le_bytes()].concat()
        }),
        ("st.global.v4.u32 [%d0], {%r0,%r2,3,%r2};", 16, |value| {
            [value / 1_000_003, value, 3, value].map(u32::to_le_bytes).concat()
        }),
        ("st.volatile.global.v2.u64 [%d0], {%d3,7};", 16, |value| {
            [u64::from(value) * 5, 7].map(u64::to_le_bytes).concat()
        }),
    ];
    for (store, size, bytes) in cases {
        for condition in [false, true] {
            let guard = if condition { "@%p0 " } else { "" };
            let body = format!(
                "setp.lt.u32 %p0, %r1, 50; mul.lo.u32 %r2, %r0, 1000003; mul.wide.u32 %d3, %r2, 5; {guard}{store}"
            );
            let mut wanted = vec![0; 4096];
            for thread in (0..THREADS).filter(|thread| !condition || place(*thread) < 50) {
                let at = (place(thread) * size) as usize;
                let value = bytes(thread * 1_000_003);
                wanted[at..at + value.len()].copy_from_slice(&value);
            }
            assert_eq!(run(&body, size, &[]).0, wanted, "{guard}{store}");
        }
    }
}

#[test]
fn of_stores_to_one_place_the_last_lane_counts() {
    let device = Device::kernel(
        "ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 2; mul.wide.u32 %d1, %r1, 4;
         add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r0;",
    );
    let out = device.upload(&[0_u32; 16]);
    device.run("k", [1, 1, 1], [64, 1, 1], &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 16), (0..16).map(|index| index * 4 + 3).collect::<Vec<_>>());
}

#[test]
fn shared_memory_in_any_order() {
    let input = pattern();
    for (space, barrier) in [("shared", "bar.sync 0;"), ("volatile.shared", "bar.sync 0;")] {
        let body = format!(
            ".shared .align 16 .b8 s[2048]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, %r2; mul.lo.u32 %r4, %r0, 9;
             st.{space}.v4.u32 [%r3], {{%r4,%r0,%r1,5}}; {barrier}
             add.u32 %r5, %r0, 1; setp.ge.u32 %p0, %r5, {THREADS}; @%p0 mov.u32 %r5, 0;
             mul.lo.u32 %r5, %r5, 37; and.b32 %r5, %r5, 127; mad.lo.u32 %r5, %r5, 16, %r2;
             ld.{space}.u32 %r6, [%r5]; ld.{space}.v2.u32 {{%r7,%r8}}, [%r5+8]; ld.{space}.u8 %r9, [%r5+4];
             mad.lo.u32 %r6, %r7, 1000, %r6; mad.lo.u32 %r6, %r8, 7, %r6; mad.lo.u32 %r6, %r9, 100000, %r6;
             st.global.u32 [%d1], %r6;"
        );
        let expected = |thread: u32| {
            let other = (thread + 1) % THREADS;
            other * 9 + place(other) * 1000 + 35 + other * 100_000
        };
        assert_eq!(run(&body, 4, &input).1, (0..THREADS).map(expected).collect::<Vec<_>>(), "{space}");
    }
}

#[test]
fn one_bad_lane_is_found_and_named() {
    let device = Device::kernel(&format!(
        "{} setp.eq.u32 %p0, %r0, 45; @%p0 add.u64 %d0, %d0, 0x100000; ld.global.u32 %r2, [%d0];
         st.global.u32 [%d1], %r2;",
        head(4)
    ));
    let (first, second) = (device.upload(&[1_u32; 128]), device.upload(&[7_u32; 80]));
    for _ in 0..3 {
        let fault = device.run("k", [1, 1, 1], [THREADS, 1, 1], &[first, second]).unwrap_err();
        assert_eq!((fault.thread, fault.ptx_line), ([45, 0, 0], 10), "{}", fault.message);
        assert!(
            fault.message.starts_with("illegal global memory read of 4 bytes at 0x"),
            "{}",
            fault.message
        );
        assert_eq!(fault.address, first + 0x10_0000 + u64::from(place(45)) * 4);
    }
    let device = Device::kernel(&format!(
        "{} .shared .b32 s[128]; mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 4, %r2; setp.eq.u32 %p0, %r0, 33;
         @%p0 add.u32 %r2, %r2, 1; st.shared.u32 [%r2], %r0;",
        head(4)
    ));
    let fault = device.run("k", [1, 1, 1], [THREADS, 1, 1], &[first, second]).unwrap_err();
    assert_eq!(fault.thread, [33, 0, 0]);
    assert!(fault.message.starts_with("misaligned write of 4 bytes"), "{}", fault.message);
}

/// A value that all lanes have loaded does not change when the memory does, whether it was used before or is used
/// later.
#[test]
fn what_was_loaded_stays() {
    for (word, log, pair) in [("32", 2, "r"), ("64", 3, "d")] {
        let device = Device::kernel(&format!(
            "{} .shared .align 16 .b{word} s[32]; mov.u32 %r3, s; mul.lo.u32 %r4, %r0, %r0; cvt.u{word}.u32 %{pair}4, %r4;
             shl.b32 %r5, %r0, {log}; add.u32 %r5, %r5, %r3; st.shared.u{word} [%r5], %{pair}4; bar.sync 0;
             ld.shared.u{word} %{pair}6, [%r3+{offset}]; add.u{word} %{pair}7, %{pair}4, %{pair}6;
             st.shared.u{word} [%r5], %{pair}7; add.u{word} %{pair}8, %{pair}4, %{pair}6;
             add.u{word} %{pair}8, %{pair}8, %{pair}7; cvt.u32.u{word} %r9, %{pair}8; st.global.u32 [%d1], %r9;",
            head(4),
            offset = 5 << log,
        ));
        let (first, second) = (device.upload(&[0_u32; 32]), device.upload(&[0_u32; 32]));
        device.run("k", [1, 1, 1], [32, 1, 1], &[first, second]).unwrap();
        let expected: Vec<u32> = (0..32).map(|lane| 2 * lane * lane + 50).collect();
        assert_eq!(device.download::<u32>(second, 32), expected, "{word}");
    }
}

/// Accesses of a block that are checked together with the first of them: those before the bad one are executed, and
/// the bad one is reported.
#[test]
fn what_precedes_a_bad_access_is_done() {
    let cases = [
        ("ld.shared.u32 %r4, [%r2+4096];", "illegal shared memory read of 4 bytes at 0x1000"),
        ("st.shared.u32 [%r2+4096], %r0;", "illegal shared memory write of 4 bytes at 0x1000"),
        ("ld.shared.u32 %r4, [%r2+2];", "misaligned read of 4 bytes"),
        ("ld.shared.v2.u32 {%r4,%r5}, [%r3+4092];", "misaligned read of 8 bytes"),
        ("ld.shared.v2.u32 {%r4,%r5}, [%r3+4096];", "illegal shared memory read of 8 bytes at 0x1000"),
    ];
    for (access, message) in cases {
        let device = Device::kernel(&format!(
            "{} .shared .align 16 .b32 s[32]; mov.u32 %r3, s; mad.lo.u32 %r2, %r0, 4, %r3; st.shared.u32 [%r2], %r0;
             ld.shared.u32 %r6, [%r2]; ld.shared.u32 %r7, [%r3+12]; add.u32 %r6, %r6, %r7; st.global.u32 [%d1], %r6;
             {access}
             add.u32 %r4, %r4, %r5; st.global.u32 [%d1], %r4;",
            head(4)
        ));
        let (first, second) = (device.upload(&[0_u32; 32]), device.upload(&[0_u32; 32]));
        for _ in 0..3 {
            let fault = device.run("k", [1, 1, 1], [32, 1, 1], &[first, second]).unwrap_err();
            assert_eq!((fault.thread, fault.ptx_line), ([0, 0, 0], 12), "{}", fault.message);
            assert!(fault.message.starts_with(message), "{access} {}", fault.message);
            assert_eq!(device.download::<u32>(second, 32), (3..35).collect::<Vec<_>>(), "{access}");
        }
    }
}

#[test]
fn lanes_are_exchanged() {
    type Case = (&'static str, u32, u32, fn(u32) -> Option<u32>);
    let modes: [Case; 7] = [
        ("down", 16, 31, |lane| (lane < 16).then_some(lane + 16)),
        ("down", 1, 31, |lane| (lane < 31).then_some(lane + 1)),
        ("up", 3, 0, |lane| lane.checked_sub(3)),
        ("bfly", 5, 31, |lane| Some(lane ^ 5)),
        ("idx", 7, 31, |_| Some(7)),
        ("bfly", 1, 0x181f, |lane| Some(lane ^ 1)),
        ("down", 2, 0x181f, |lane| (lane % 8 < 6).then_some(lane + 2)),
    ];
    for (mode, argument, control, source) in modes {
        // Once with all lanes, and once with half of them after a branch.
        let device = Device::kernel(&format!(
            "{} mov.u32 %r3, 0; mul.lo.u32 %r2, %r0, 7; shfl.sync.{mode}.b32 %r2|%p0, %r2, {argument}, {control}, -1;
             @%p0 mov.u32 %r3, 1000; add.u32 %r2, %r2, %r3; st.global.u32 [%d1], %r2;",
            head(4)
        ));
        let (first, second) = (device.upload(&[0_u32; 128]), device.upload(&[0_u32; 64]));
        device.run("k", [3, 1, 1], [64, 1, 1], &[first, second]).unwrap();
        let expected = |thread: u32| {
            let (warp, lane) = (thread & !31, thread & 31);
            source(lane).map_or(thread * 7, |from| (warp + from) * 7 + 1000)
        };
        assert_eq!(device.download::<u32>(second, 64), (0..64).map(expected).collect::<Vec<_>>(), "{mode}");
    }
}

#[test]
fn counted_lanes_against_a_number() {
    let tests = ["lt", "le", "gt", "ge", "eq", "ne"];
    let mut body = String::from("add.u32 %r2, %r0, 0x7fffffd0; mov.u32 %r3, 0;");
    // The operand from memory is the same in all lanes.
    body += "ld.param.u64 %d4, [p0]; ld.global.u32 %r4, [%d4]; ld.global.u32 %r5, [%d4+4];";
    let mut bit = 0;
    for kind in ["u32", "s32"] {
        for test in tests {
            for (a, b) in [("%r0", "%r4"), ("%r4", "%r0"), ("%r2", "%r5"), ("%r5", "%r2")] {
                body += &format!(
                    "setp.{test}.{kind} %p0, {a}, {b}; @%p0 xor.b32 %r3, %r3, {};",
                    0x9e37_79b9_u32.rotate_left(bit)
                );
                bit += 1;
            }
        }
    }
    body += "st.global.u32 [%d1], %r3;";
    for (small, large) in
        [(0, 0x7fff_ffe0), (40, 0x8000_0005), (33, 0), (u32::MAX, 0x7fff_ffff), (500, 0x8000_0100)]
    {
        let input: Vec<u8> = [small, large].iter().flat_map(|value: &u32| value.to_le_bytes()).collect();
        let expected = |thread: u32| {
            let high = thread.wrapping_add(0x7fff_ffd0);
            let (mut sum, mut bit) = (0, 0);
            for signed in [false, true] {
                for test in tests {
                    for (a, b) in [(thread, small), (small, thread), (high, large), (large, high)] {
                        let order = if signed { a.cast_signed().cmp(&b.cast_signed()) } else { a.cmp(&b) };
                        let holds = match test {
                            "lt" => order.is_lt(),
                            "le" => order.is_le(),
                            "gt" => order.is_gt(),
                            "ge" => order.is_ge(),
                            "eq" => order.is_eq(),
                            _ => order.is_ne(),
                        };
                        sum ^= if holds { 0x9e37_79b9_u32.rotate_left(bit) } else { 0 };
                        bit += 1;
                    }
                }
            }
            sum
        };
        assert_eq!(
            run(&body, 4, &input).1,
            (0..THREADS).map(expected).collect::<Vec<_>>(),
            "{small} {large}"
        );
    }
}
