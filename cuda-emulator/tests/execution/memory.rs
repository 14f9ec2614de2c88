// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads, stores, address spaces and atomics.

use cuda_emulator::launch::FaultKind;

use crate::harness::{Device, WARP, kernel};

const LANE: &str = "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];\n";

/// Vectors that one block writes for another.
const WHOLE_ROUNDS: u32 = 20_000;

/// Runs one warp of `body` on a copy of `input` (p0) and returns 32 results (p1).
fn run<I: Copy, O: Copy + Default>(body: &str, input: &[I]) -> Vec<O> {
    let device = Device::kernel(&format!("{LANE}{body}"));
    let (from, to) = (device.upload(input), device.upload(&[0_u64; 64]));
    device.run("k", WARP.0, WARP.1, &[from, to]).unwrap();
    device.download(to, 32)
}

#[test]
fn loads_extend_and_stores_cut() {
    let bytes: Vec<u8> = (0..32_u8).map(|i| i.wrapping_mul(9)).collect();
    let at = "cvt.u64.u32 %d2, %r0; add.u64 %d3, %d0, %d2; shl.b64 %d2, %d2, 2; add.u64 %d4, %d1, %d2;";
    let wide: Vec<u32> = run(&format!("{at} ld.global.u8 %r1, [%d3]; st.global.u32 [%d4], %r1;"), &bytes);
    assert_eq!(wide, bytes.iter().map(|b| u32::from(*b)).collect::<Vec<_>>());
    let signed: Vec<i32> = run(&format!("{at} ld.s8 %r1, [%d3]; st.u32 [%d4], %r1;"), &bytes);
    assert_eq!(signed, bytes.iter().map(|b| i32::from(b.cast_signed())).collect::<Vec<_>>());
    let short: Vec<i32> =
        run(&format!("{at} ld.s8 %h1, [%d3]; cvt.s32.s16 %r1, %h1; st.u32 [%d4], %r1;"), &bytes);
    assert_eq!(short, signed);
    let words: Vec<u64> = (0..32).map(|i| 0x0002_0304_0506_0708 * i).collect();
    let at = "mul.wide.u32 %d2, %r0, 8; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;";
    let cut: Vec<u64> =
        run(&format!("{at} ld.u64 %d5, [%d3]; st.u16 [%d4+2], %d5; st.b8 [%d4+7], %d5;"), &words);
    assert_eq!(cut, words.iter().map(|w| (w & 0xffff) << 16 | (w & 0xff) << 56).collect::<Vec<_>>());
}

#[test]
fn elements_of_arrays_are_named_by_their_index() {
    // tinygrad writes `mov.u64 %rd, local0[0];`.
    let found: Vec<u32> = run(
        ".shared .align 16 .b8 bytes[16]; .shared .align 4 .b32 words[4]; .shared .align 16 .f32 eight[16];
         mov.u64 %d2, bytes; mov.u64 %d3, bytes[3]; sub.u64 %d3, %d3, %d2; cvt.u32.u64 %r1, %d3;
         st.shared.u32 words[1+1], %r1; mov.u64 %d2, words; ld.shared.u32 %r2, [%d2+8]; ld.shared.u32 %r3, words[2];
         mov.u32 %r4, 7; st.shared.v8.b32 eight[8], {%r4, %r4, %r4, %r4, %r4, %r4, %r4, %r4};
         mov.u64 %d2, eight; ld.shared.b32 %r5, [%d2+60];
         setp.eq.u32 %p1, %r0, 0;
         @%p1 st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r5};",
        &[0_u32; 32],
    );
    assert_eq!(found[..4], [3, 3, 3, 7]);
}

#[test]
fn vectors_move_whole() {
    let words: Vec<u32> = (0..128).map(|i| i * 7).collect();
    let at = "mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d0, %d2;";
    let sums: Vec<u32> = run(
        &format!(
            "{at} ld.global.nc.L1::no_allocate.v4.u32 {{%r1, _, %r3, %r4}}, [%d3];
             add.u32 %r1, %r1, %r3; sub.u32 %r1, %r1, %r4; mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2;
             st.global.u32 [%d4], %r1;"
        ),
        &words,
    );
    let wanted: Vec<u32> = words.chunks(4).map(|w| (w[0] + w[2]).wrapping_sub(w[3])).collect();
    assert_eq!(sums, wanted);
    // The address register is among the targets.
    let pairs: Vec<u64> = (0..64).collect();
    let sums: Vec<u64> = run(
        "mul.wide.u32 %d2, %r0, 16; add.u64 %d2, %d0, %d2; ld.v2.u64 {%d2, %d3}, [%d2]; add.u64 %d2, %d2, %d3;
         mul.wide.u32 %d3, %r0, 8; add.u64 %d3, %d1, %d3; st.u64 [%d3], %d2;",
        &pairs,
    );
    assert_eq!(sums, (0..32).map(|i| 4 * i + 1).collect::<Vec<u64>>());
}

#[test]
fn vectors_arrive_whole_in_other_blocks() {
    // The first block writes 1, 2, … to all elements, from when the second one reads. That one counts vectors of unequal
    // elements, until it has read the last number.
    let cases: [(&str, &str, &[&str]); 5] = [
        ("relaxed.gpu.global", "u16", &["%h1", "%h2"]),
        ("relaxed.gpu", "u32", &["%r1", "%r2"]),
        ("volatile", "u32", &["%r1", "%r2", "%r3", "%r4"]),
        ("global.cg", "u32", &["%r1", "%r2"]),
        ("volatile.global", "u64", &["%d3", "%d4"]),
    ];
    for (space, kind, parts) in cases {
        let (first, list, vector) = (parts[0], parts.join(", "), format!("v{}", parts.len()));
        let same = vec![first; parts.len()].join(", ");
        let unequal: String = parts[1..]
            .iter()
            .map(|part| format!("setp.ne.{kind} %p1, {first}, {part}; @%p1 add.u32 %r20, %r20, 1;\n"))
            .collect();
        let device = Device::kernel(&format!(
            "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
             mov.u32 %r20, 0; mov.u32 %r21, %ctaid.x; setp.ne.u32 %p0, %r21, 0; @%p0 bra READ;
             WAIT: ld.volatile.global.u32 %r22, [%d0+64]; setp.eq.u32 %p2, %r22, 0; @%p2 bra WAIT;
             mov.{unsigned} {first}, 0;
             WRITE: add.{kind} {first}, {first}, 1; st.{space}.{vector}.{kind} [%d0], {{{same}}};
             setp.ne.{kind} %p2, {first}, {WHOLE_ROUNDS}; @%p2 bra WRITE;
             bra END;
             READ: mov.u32 %r22, 1; st.volatile.global.u32 [%d0+64], %r22;
             AGAIN: ld.{space}.{vector}.{kind} {{{list}}}, [%d0];
             {unequal}
             setp.ne.{kind} %p2, {first}, {WHOLE_ROUNDS}; @%p2 bra AGAIN;
             mov.u32 %r22, %tid.x; mul.wide.u32 %d5, %r22, 4; add.u64 %d5, %d5, %d1; st.global.u32 [%d5], %r20;
             END:",
            unsigned = kind.replace('u', "b"),
        ));
        let (cell, unequal) = (device.upload(&[0_u64; 16]), device.upload(&[u32::MAX; 32]));
        device.run("k", [2, 1, 1], [32, 1, 1], &[cell, unequal]).unwrap();
        assert_eq!(device.download::<u32>(unequal, 32), [0; 32], "ld.{space}.{vector}.{kind}");
    }
}

#[test]
fn every_space_has_generic_addresses() {
    let results: Vec<u32> = run(
        ".shared .align 16 .b8 s[256]; .local .align 8 .b8 l[16];
         mov.u64 %d5, s; mul.wide.u32 %d6, %r0, 4; add.u64 %d5, %d5, %d6; st.shared.u32 [%d5], %r0;
         cvta.shared.u64 %d7, %d5; isspacep.shared %p1, %d7; isspacep.local %p2, %d7; isspacep.global %p3, %d0;
         ld.u32 %r1, [%d7]; bar.warp.sync -1; st.u32 [%d7+128], %r1; ld.shared.u32 %r2, [%d5+128];
         mov.u64 %d8, l; st.local.u32 [%d8+4], %r2; cvta.local.u64 %d9, %d8; ld.u32 %r3, [%d9+4];
         isspacep.local %p4, %d9; add.u32 %r3, %r3, 1; st.u32 [%d9+8], %r3; ld.local.u32 %r4, [l+8];
         cvta.to.local.u64 %d10, %d9; ld.local.u32 %r5, [%d10+8];
         selp.u32 %r6, 100, 0, %p1; selp.u32 %r7, 1000, 0, %p2; selp.u32 %r8, 10000, 0, %p3; selp.u32 %r9, 100000, 0, %p4;
         add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r8; add.u32 %r4, %r4, %r9; add.u32 %r4, %r4, %r5;
         add.u64 %d6, %d1, %d6; st.global.u32 [%d6], %r4;",
        &[0],
    );
    assert_eq!(results, (0..32).map(|i| 2 * (i + 1) + 110_100).collect::<Vec<u32>>());
}

#[test]
fn parameters_can_be_indexed() {
    let text = ".version 8.8\n.target sm_90\n.address_size 64\n
        .entry k(.param .align 4 .b8 p0[128], .param .u64 p1) { .reg .b32 %r<9>; .reg .b64 %d<9>;
        mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; mov.b64 %d0, p0; add.u64 %d3, %d0, %d2; ld.param.u32 %r1, [%d3];
        cvta.param.u64 %d4, %d3; ld.u32 %r2, [%d4]; add.u32 %r1, %r1, %r2; ld.param.u32 %r3, [p0+8]; add.u32 %r1, %r1, %r3;
        ld.param.u64 %d1, [p1]; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r1; ret; }";
    let device = Device::new(text);
    let out = device.upload(&[0_u32; 32]);
    let mut params: Vec<u8> = (0..32_u32).flat_map(|i| (i * 10).to_le_bytes()).collect();
    params.extend(out.to_le_bytes());
    device.run_with("k", WARP.0, WARP.1, &params).unwrap();
    assert_eq!(device.download::<u32>(out, 32), (0..32).map(|i| i * 20 + 20).collect::<Vec<_>>());
    // After the parameters, and writing them.
    let kernel = text.replace("ld.param.u32 %r1, [%d3]", "ld.param.u32 %r1, [%d3+16]");
    let fault = Device::new(&kernel).run("k", WARP.0, WARP.1, &[]).unwrap_err();
    assert!(fault.message.contains("illegal parameter memory read"), "{fault}");
}

#[test]
fn variables_are_initialised_and_relocated() {
    let text = ".version 8.8\n.target sm_90\n.address_size 64\n
        .global .align 8 .u64 a[2] = {b, generic(c)+4}; .global .u32 b = 77; .const .align 4 .u32 c[3] = {1, 2, 0xffffffff};
        .global .align 8 .b8 bytes[16] = {1, 2, 0, 0, 0, 0, 0, 0, 0xFF(b), 0xFF00(b), 0xFF0000(b), 0xFF000000(b),
         0xFF00000000(b), 0xFF0000000000(b), 0xFF000000000000(b), 0xFF00000000000000(b)};
        .global .f32 f[2] = {0f3F800000, 2.5}; .global .align 4 .b8 zero[1000]; .global .u16 rows[2][3] = {{1}, {4, 5, 6}};
        .entry k() { ret; }";
    let device = Device::new(text);
    let (a, b, c) = (device.variable("a"), device.variable("b"), device.variable("c"));
    assert_eq!(device.download::<u64>(a, 2), [b, c + 4]);
    assert_eq!(device.download::<u64>(device.variable("bytes"), 2), [0x201, b]);
    assert_eq!(device.download::<f32>(device.variable("f"), 2), [1.0, 2.5]);
    assert_eq!(device.download::<u16>(device.variable("rows"), 6), [1, 0, 0, 4, 5, 6]);
    assert_eq!(device.download::<u32>(c, 3), [1, 2, u32::MAX]);
    assert_eq!(device.download::<u8>(device.variable("zero"), 1000), [0; 1000]);
}

/// All lanes do `operation` on one word, in lane order; the word and what each lane got.
fn atomic<T: Copy + Default>(operation: &str, start: T, operands: &[T], compare: &[T]) -> (T, Vec<T>) {
    let bytes = size_of::<T>();
    let register = if bytes == 8 { "d" } else { "r" };
    let kind = operation.rsplit('.').next().unwrap();
    let (third, load) = if compare.is_empty() {
        (String::new(), String::new())
    } else {
        (format!(", %{register}13"), format!("ld.global.b{} %{register}13, [%d6+512];", bytes * 8))
    };
    let device = Device::kernel(&format!(
        "{LANE} mul.wide.u32 %d5, %r0, {bytes}; add.u64 %d6, %d0, %d5; add.u64 %d7, %d1, %d5; {load}
         ld.global.b{bits} %{register}11, [%d6]; .reg .{kind} v, w; mov.b{bits} v, %{register}11;
         {operation} w, [%d1+1024], v{third}; st.global.b{bits} [%d7], w;",
        bits = bytes * 8
    ));
    let mut input = operands.to_vec();
    input.resize(512 / bytes, T::default());
    input.extend(compare);
    let (from, to) = (device.upload(&input), device.upload(&[0_u64; 256]));
    let word = device.upload(&[start]);
    device.memory.copy(to + 1024, word, bytes as u64).unwrap();
    device.run("k", WARP.0, WARP.1, &[from, to]).unwrap();
    (device.download(to + 1024, 1)[0], device.download(to, 32))
}

fn check<T: Copy + Default + PartialEq + std::fmt::Debug>(
    operation: &str,
    start: T,
    operand: impl Fn(u64) -> T,
    f: impl Fn(T, T) -> T,
) {
    let operands: Vec<T> = (0..32_u64).map(|i| operand(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let (last, got) = atomic(operation, start, &operands, &[]);
    let mut value = start;
    for (got, operand) in got.into_iter().zip(operands) {
        assert_eq!(got, value, "{operation}");
        value = f(value, operand);
    }
    assert_eq!(last, value, "{operation}");
}

#[test]
fn atomics_do_what_they_say() {
    for prefix in ["atom.global", "atom.relaxed.gpu.global", "atom", "atom.acq_rel.sys"] {
        check(&format!("{prefix}.add.u32"), 5_u32, |x| x as u32, u32::wrapping_add);
    }
    check("atom.add.s32", -5_i32, |x| x as i32, i32::wrapping_add);
    check("atom.add.u64", 5_u64, |x| x, u64::wrapping_add);
    check("atom.and.b32", u32::MAX, |x| x as u32 | 0xff, |a, b| a & b);
    check("atom.or.b64", 0_u64, |x| x & 0xff00, |a, b| a | b);
    check("atom.xor.b32", 1_u32, |x| x as u32, |a, b| a ^ b);
    check("atom.exch.b64", 1_u64, |x| x, |_, b| b);
    check("atom.min.u32", u32::MAX, |x| x as u32, u32::min);
    check("atom.max.u64", 0_u64, |x| x, u64::max);
    check("atom.min.s32", i32::MAX, |x| x as i32, i32::min);
    check("atom.max.s64", i64::MIN, |x| x as i64, i64::max);
    check("atom.inc.u32", 3_u32, |_| 5, |a, b| if a >= b { 0 } else { a + 1 });
    check("atom.dec.u32", 3_u32, |_| 5, |a, b| if a == 0 || a > b { b } else { a - 1 });
    check("atom.add.f32", 0.5_f32, |x| x as u8 as f32, |a, b| a + b);
    check("atom.add.f64", 0.5_f64, |x| x as u16 as f64, |a, b| a + b);
}

#[test]
fn compare_and_swap() {
    // Lane i turns i into i + 1, but lane 7 asks for the wrong value: it and all later ones fail.
    let expected: Vec<u32> = (0..32).map(|i| if i == 7 { 99 } else { i }).collect();
    let wanted: Vec<u32> = (0..32).map(|i| i + 1).collect();
    let (last, got) = atomic("atom.cas.b32", 0_u32, &expected, &wanted);
    assert_eq!(last, 7);
    assert_eq!(got, (0..32).map(|i: u32| i.min(7)).collect::<Vec<_>>());
    let expected: Vec<u64> = (0..32).map(|i| i << 40).collect();
    let wanted: Vec<u64> = (0..32).map(|i| (i + 1) << 40).collect();
    assert_eq!(atomic("atom.cas.b64", 0_u64, &expected, &wanted).0, 32 << 40);
}

#[test]
fn atomics_of_many_threads_lose_nothing() {
    let device = Device::kernel(&format!(
        "{LANE} .shared .align 4 .u32 s; st.shared.u32 [s], 0; bar.sync 0;
         red.shared.add.u32 [s], 1; red.global.add.u32 [%d0], 1; mov.f32 %f0, 0f3F800000; red.global.add.f32 [%d0+4], %f0;
         bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra END; ld.shared.u32 %r1, [s]; red.add.u32 [%d0+8], %r1; END:"
    ));
    let words = device.upload(&[0_u32; 3]);
    device.run("k", [100, 1, 1], [256, 1, 1], &[words, 0]).unwrap();
    assert_eq!(device.download::<u32>(words, 3), [25_600, 25_600_f32.to_bits(), 25_600]);
}

#[test]
fn asynchronous_copies_are_done_when_waited_for() {
    let words: Vec<u32> = (0..128).map(|i| i * 3 + 1).collect();
    let results: Vec<u32> = run(
        ".shared .align 16 .b8 s[512]; mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d0, %d2; mov.u32 %r1, s; shl.b32 %r2, %r0, 4;
         add.u32 %r1, %r1, %r2; setp.lt.u32 %p0, %r0, 16; selp.u32 %r3, 16, 8, %p0;
         cp.async.cg.shared.global.L2::128B [%r1], [%d3], 16, %r3; cp.async.commit_group; cp.async.wait_group 0;
         ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1]; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7;
         mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %d1, %d4; st.global.u32 [%d4], %r4;",
        &words,
    );
    let wanted = words.chunks(4).enumerate().map(|(i, w)| w.iter().take(if i < 16 { 4 } else { 2 }).sum());
    assert_eq!(results, wanted.collect::<Vec<u32>>());
}

#[test]
fn faults_say_where() {
    let cases = [
        (
            "ld.global.u32 %r1, [0];",
            FaultKind::IllegalAddress,
            "illegal global memory read of 4 bytes at 0x0",
        ),
        (
            "mov.u32 %r1, 4096; ld.shared.u32 %r2, [%r1];",
            FaultKind::IllegalAddress,
            "illegal shared memory read",
        ),
        (
            "mov.u64 %d5, 64; st.local.u64 [%d5], %d5;",
            FaultKind::IllegalAddress,
            "illegal local memory write",
        ),
        ("add.u64 %d5, %d0, 2; ld.u32 %r1, [%d5];", FaultKind::Misaligned, "misaligned read of 4 bytes"),
        (
            "atom.add.u32 %r1, [%d0+1000000], 1;",
            FaultKind::IllegalAddress,
            "illegal global memory atomic operation",
        ),
        ("mov.u64 %d5, -8; ld.u64 %d6, [%d5+4];", FaultKind::Misaligned, "0xfffffffffffffffc"),
        ("mov.u64 %d5, -8; ld.u64 %d6, [%d5];", FaultKind::IllegalAddress, "0xfffffffffffffff8"),
        ("ld.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];", FaultKind::Misaligned, "16 bytes"),
    ];
    for (body, kind, text) in cases {
        let device = Device::kernel(&format!("{LANE}setp.ne.u32 %p0, %r0, 5;\n@%p0 ret;\n{body}"));
        let base = device.upload(&[0_u32; 64]);
        let fault = device.run("k", [3, 1, 1], [32, 1, 1], &[base, 0]).unwrap_err();
        assert_eq!(fault.kind, kind, "{body}");
        assert!(fault.message.contains(text), "{fault} should contain {text}");
        assert_eq!(fault.thread, [5, 0, 0]);
        // Header of 4 lines, parameters, brace, registers, LANE, guard: the body stands on this line.
        let line = kernel(&format!("{LANE}\n\n@@")).lines().position(|line| line == "@@").unwrap() + 1;
        assert_eq!(fault.ptx_line as usize, line, "{body}");
        assert!(fault.message.contains("kernel `k`") && fault.message.contains("thread (5,0,0)"), "{fault}");
    }
}

#[test]
fn freed_memory_is_noticed_while_a_kernel_runs() {
    let device = Device::kernel(&format!("{LANE}L: ld.volatile.global.u32 %r1, [%d0]; bra L;"));
    let base = device.upload(&[0_u32; 64]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            device.memory.free(base);
        });
        let fault = device.run("k", WARP.0, WARP.1, &[base, 0]).unwrap_err();
        assert_eq!((fault.kind, fault.address), (FaultKind::IllegalAddress, base));
    });
}
