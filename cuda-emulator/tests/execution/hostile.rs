// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No text crashes the loader, and no kernel that it accepts crashes the executor, whatever its parameters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuda_emulator::program::Program;

use crate::harness::Device;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Changes a line or some bytes.
fn mutate(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let words = [
        "%r1",
        "%rd1",
        "%f1",
        "%p1",
        "0",
        "-1",
        "0xffffffff",
        "[%rd1+4]",
        ".shared",
        ".local",
        "s",
        "{",
        "}",
        ";",
        "bra",
    ];
    let mut result = String::new();
    for _ in 0..=random.below(3) {
        let (a, b) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(4) {
            0 => lines.swap(a, b),
            1 => drop(lines.remove(a)),
            2 => lines.insert(a, lines[b]),
            _ => {}
        }
    }
    let target = random.below(lines.len());
    for (index, line) in lines.iter().enumerate() {
        if index == target && random.below(2) == 0 {
            // One word of the line becomes another.
            let parts: Vec<&str> = line.split_inclusive([' ', ',', '.']).collect();
            let changed = random.below(parts.len());
            for (place, part) in parts.iter().enumerate() {
                result.push_str(if place == changed { words[random.below(words.len())] } else { part });
            }
        } else {
            result.push_str(line);
        }
        result.push('\n');
    }
    if random.below(3) == 0 {
        let mut bytes = result.into_bytes();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = (random.next() as u8) & 0x7f;
        }
        result = String::from_utf8_lossy(&bytes).into_owned();
    }
    result
}

/// Runs all kernels of a module with wild parameters; each is stopped after a moment.
fn execute(program: Program, random: &mut Random) {
    let device = Device::with(program);
    let valid = device.upload(&[0x40_u64; 512]);
    let mut names: Vec<&String> = device.program.kernels.keys().collect();
    names.sort();
    for name in names {
        let kernel = &device.program.kernels[name];
        let mut params = vec![0; kernel.param_bytes as usize];
        for chunk in params.chunks_mut(8) {
            let value = match random.below(4) {
                0 => random.next(),
                1 => random.next() >> 48,
                _ => valid + random.next() % 64 * 4,
            };
            let count = chunk.len();
            chunk.copy_from_slice(&value.to_le_bytes()[..count]);
        }
        let done = AtomicBool::new(false);
        device.cancel.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_micros(500));
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
                device.cancel.store(true, Ordering::Relaxed);
            });
            let _ = device.run_with(name, [2, 1, 1], [40.min(kernel.max_threads), 1, 1], &params);
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn mutated_modules_crash_nothing() {
    let number = |variable| std::env::var(variable).ok().and_then(|text| text.parse().ok());
    let rounds = number("VHOST_CUDA_TEST_ROUNDS").unwrap_or(150);
    let seed = number("VHOST_CUDA_TEST_SEED").unwrap_or(1);
    // Some of the forms: all would take too long.
    let forms: Vec<_> = crate::wide_forms::forms().into_iter().step_by(9).collect();
    let wide = crate::wide_forms::module(&forms);
    let sources = [include_str!("../data/tour.ptx"), include_str!("../data/speed.ptx"), &wide];
    let mut random = Random(seed);
    let mut loaded = 0;
    for round in 0..rounds {
        let text = mutate(sources[random.below(sources.len())], &mut random);
        if let Ok(program) = Program::load(&text) {
            loaded += 1;
            if round % 3 == 0 {
                execute(program, &mut random);
            }
        }
    }
    assert!(loaded > rounds / 20, "only {loaded} of {rounds} mutants were still modules");
}

#[test]
fn truncated_modules_crash_nothing() {
    let text = include_str!("../data/speed.ptx");
    for end in (0..text.len()).step_by(17) {
        let _ = Program::load(&text[..end]);
    }
}

#[test]
fn wild_operands_crash_nothing() {
    // Every arithmetic form with random register contents is in `forms`; these have operands that steer memory or control.
    let bodies = [
        "mov.u64 %d0, {0}; ld.u8 %h0, [%d0];",
        "mov.u64 %d0, {0}; st.v4.u32 [%d0], {%r0, %r1, %r2, %r3};",
        "mov.u64 %d0, {0}; atom.shared.add.u64 %d1, [%d0], 1;",
        "mov.u64 %d0, {0}; red.global.add.f32 [%d0], %f0;",
        "mov.u64 %d0, {0}; call %d0, ();",
        "cvt.u32.u64 %r0, {0}; shfl.sync.idx.b32 %r1, %r0, %r0, %r0, %r0;",
        "cvt.u32.u64 %r0, {0}; vote.sync.any.pred %p0, %p1, %r0; bar.warp.sync %r0;",
        "cvt.u32.u64 %r0, {0}; bar.sync %r0, %r0;",
        "cvt.u32.u64 %r0, {0}; bar.sync 0, %r0;",
        "mov.u64 %d0, {0}; alloca.u64 %d1, %d0; stackrestore.u64 %d0; ld.local.u32 %r0, [%d1];",
        "mov.u64 %d0, {0}; cp.async.ca.shared.global [%d0], [%d0], 16;",
        "mov.u64 %d0, {0}; cp.async.bulk.global.shared::cta.bulk_group [%d0], [%d0], 32;",
        "mov.u64 %d0, {0}; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%d0], [%d0], 32;",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; cp.reduce.async.bulk.global.shared::cta.bulk_group.min.bf16 [%d0], [%r0], %r0;",
        "mov.u64 %d0, {0}; sust.p.3d.v4.b32.clamp [%d0, {%r0, %r1, %r2, %r2}], {%r0, %r1, %r2, %r3}; sured.b.add.2d.u64.zero [%d0, {%r0, %r1}], %d0;",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d0], [%d0], %r0, [%d0];",
        "mov.u64 %d0, {0}; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%d0], [%d0], 16, [%d0], %h0;",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [0], [%d0, {%r0, %r0}], [%d0];",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.bulk_group [%d0, {%r0, %r0, %r0, %r0, %r0}], [%r0];",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; tensormap.replace.tile.global_dim.b1024.b32 [%d0], 4, %r0;",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d0], %r0;",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%d0], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, %r0;",
        "mov.u64 %d0, {0}; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%d0];",
        "mov.u64 %d0, {0}; stmatrix.sync.aligned.m8n8.x2.shared.b16 [%d0], {%r1, %r2};",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; mapa.u64 %d1, %d0, %r0; ld.u32 %r1, [%d1]; st.shared::cluster.u32 [%d1], %r1;",
        "mov.u64 %d0, {0}; mbarrier.init.shared.b64 [%d0], 1; mbarrier.try_wait.parity.shared.b64 %p0, [%d0], 1;",
        "mov.u64 %d0, {0}; tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d0, {%f4, %f5}];",
        "mov.u64 %d0, {0}; sust.b.2d.b32.trap [%d0, {%r0, %r1}], %r2; txq.width.b32 %r0, [%d0];",
        "mov.u64 %d0, {0}; atom.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%d0], {%f0, %f1, %f2, %f3};",
        "mov.u64 %d0, {0}; cvt.u32.u64 %r0, %d0; barrier.cluster.arrive; barrier.cluster.wait; redux.sync.add.u32 %r1, %r0, %r0; elect.sync %r2|%p0, %r0;",
    ];
    let values = [
        "0",
        "-1",
        "-4",
        "0x50000000000",
        "0x5ffffffffff0",
        "0x60000000000",
        "0x600ffffffff0",
        "0x40000000000",
        "0x30000000000",
        "0x70000000000",
        "0x7fffffffffff0",
        "0x8000000000000000",
        "32",
        "4096",
    ];
    for body in bodies {
        for value in values {
            let text = body.replace("{0}", value);
            let text = crate::harness::kernel(&text);
            if let Ok(program) = Program::load(&text) {
                let device = Device::with(program);
                let _ = device.run("k", [1, 1, 1], [48, 1, 1], &[]);
            } else if !body.starts_with("cvt") {
                panic!("refused: {body}");
            }
        }
    }
}

/// Makes a map of zeros from the numbers at `p0`, and executes a copy with it for which `p1` is 0, 1 or 2.
fn copies_with_any_map() -> String {
    let mut next = 0;
    let mut number = || {
        next += 1;
        format!("ld.global.u64 %d1, [%d0+{}]; cvt.u32.u64 %r1, %d1;\n", 8 * (next - 1))
    };
    let mut body = String::from(
        ".shared .align 128 .b8 map[128]; .shared .align 1024 .b8 room[4096]; .shared .align 8 .b64 bar;
        ld.param.u64 %d0, [p0]; mov.u32 %r0, 0; mov.u32 %r2, map; mov.u64 %d2, 0;
        ZERO: add.u32 %r3, %r2, %r0; st.shared.u64 [%r3], %d2; add.u32 %r0, %r0, 8; setp.lt.u32 %p0, %r0, 128; @%p0 bra ZERO;
        mov.u64 %d3, map; cvta.shared.u64 %d3, %d3; mov.u32 %r4, room; mov.u32 %r5, bar; mbarrier.init.shared.b64 [%r5], 1;\n",
    );
    let mut replace = |field: &str, sides: Option<u32>, wide: bool| {
        let value = if wide { "b64" } else { "b32" };
        let register = if wide { "%d1" } else { "%r1" };
        for side in 0..sides.unwrap_or(1) {
            let side = sides.map_or(String::new(), |_| format!(" {side},"));
            body += &number();
            body += &format!(
                "tensormap.replace.tile.{field}.shared::cta.b1024.{value} [%r2],{side} {register};\n"
            );
        }
    };
    replace("global_address", None, true);
    replace("rank", None, false);
    replace("box_dim", Some(5), false);
    replace("global_dim", Some(5), false);
    replace("global_stride", Some(4), true);
    replace("element_stride", Some(5), false);
    replace("elemtype", None, false);
    replace("interleave_layout", None, false);
    replace("swizzle_mode", None, false);
    replace("fill_mode", None, false);
    // The place in shared memory, and five coordinates.
    for register in 6..12 {
        body += &format!("{} mov.u32 %r{register}, %r1;\n", number());
    }
    body += "add.u32 %r4, %r4, %r6; ld.param.u64 %d4, [p1]; ld.param.u64 %d5, [p2];\n";
    for rank in 1..=5 {
        let list = (7..7 + rank).map(|register| format!("%r{register}")).collect::<Vec<_>>().join(", ");
        let copies = [
            format!(
                "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d3, {{{list}}}], [%r5];"
            ),
            format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%d3, {{{list}}}], [%r4];"),
            format!(
                "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.bulk_group [%d3, {{{list}}}], [%r4];"
            ),
        ];
        for (purpose, copy) in copies.iter().enumerate() {
            let wanted = 3 * (rank - 1) + purpose;
            body += &format!("setp.eq.u64 %p1, %d4, {wanted}; @%p1 {copy}\n");
        }
    }
    crate::harness::kernel(&body)
}

#[test]
fn forged_tensor_maps_crash_nothing() {
    let device = Device::new(&copies_with_any_map());
    const BYTES: usize = 4096;
    let mut random = Random(7);
    let (mut done, mut refused) = (0, 0);
    for _ in 0..4000 {
        let tensor = device.upload(&[0_u8; BYTES]);
        let mut pick = |usual: &[u64], wild: &[u64]| {
            let list = if random.below(24) == 0 { wild } else { usual };
            list[random.below(list.len())]
        };
        let rank = pick(&[0, 1, 2, 3, 4], &[5, 6, u64::MAX]);
        let mut numbers =
            vec![pick(&[tensor, tensor + 16], &[0, 8, tensor + BYTES as u64 - 16, 1 << 56, u64::MAX]), rank];
        let mut list = |count: usize, usual: &[u64], wild: &[u64]| {
            (0..count).for_each(|_| numbers.push(pick(usual, wild)));
        };
        list(1, &[8, 16, 32], &[0, 1, 255, 256, 257, 1 << 12]);
        list(4, &[1, 2, 3], &[0, 255, 256, 257, 1 << 12]);
        list(5, &[1, 8, 20], &[0, 1 << 31, u64::from(u32::MAX)]);
        list(4, &[16, 64, 256, 1024], &[0, 8, 1 << 39, 1 << 40, u64::MAX]);
        list(5, &[1, 1, 2, 8], &[0, 9, 255, 256]);
        list(1, &[0, 1, 2, 4, 6, 9, 10, 11, 12], &[13, 15, 255]);
        list(1, &[0], &[1, 2, 3, 255]);
        list(1, &[0, 1, 2, 3], &[4, 255]);
        list(1, &[0, 1], &[2, 255]);
        list(1, &[0, 0, 128, 1024], &[16, 64, 4096, 1 << 24, 1 << 31, u64::MAX]);
        // Rows begin at multiples of 16 bytes.
        list(1, &[0, 0, 16, 48], &[1, u64::MAX, 1 << 31, (1 << 31) - 16]);
        list(4, &[0, 1, 3, u64::MAX], &[1 << 31, (1 << 31) - 1, 1 << 30]);
        let values = device.upload(&numbers);
        let purpose = random.below(3) as u64;
        match device.run("k", [1, 1, 1], [1, 1, 1], &[values, 3 * rank.min(4) + purpose]) {
            Ok(()) => done += 1,
            Err(_) => refused += 1,
        }
        assert!(device.memory.free(values) && device.memory.free(tensor));
    }
    assert!(done > 500 && refused > 500, "{done} copies done, {refused} refused");
}
