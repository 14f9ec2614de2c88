// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Divergence, barriers, and lanes that work together.

use cuda_emulator::launch::FaultKind;

use crate::harness::{Device, WARP};

const LANE: &str =
    "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;\n";

/// Runs one block of `threads` and returns what each wrote from `%r1`.
fn run(body: &str, threads: u32) -> Vec<u32> {
    let device = Device::kernel(&format!("{LANE}{body}\nst.global.u32 [%d1], %r1;"));
    let out = device.upload(&vec![0_u32; threads as usize]);
    device.run("k", [1, 1, 1], [threads, 1, 1], &[out]).unwrap();
    device.download(out, threads as usize)
}

#[test]
fn lanes_meet_again_after_branches() {
    // The active mask after an `if` and after a loop of different lengths.
    let masks = run(
        "and.b32 %r2, %r0, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra EVEN; mov.u32 %r3, 1; bra JOIN; EVEN: mov.u32 %r3, 2; JOIN:
         mov.u32 %r4, 0; LOOP: add.u32 %r4, %r4, 1; setp.le.u32 %p1, %r4, %r0; @%p1 bra LOOP; activemask.b32 %r1;",
        32,
    );
    assert_eq!(masks, [u32::MAX; 32]);
}

#[test]
fn synchronising_lanes_wait_for_each_other() {
    // Each half of the warp votes in its own branch, with its own members; then all do, from different branches.
    let ballots = run(
        "setp.lt.u32 %p0, %r0, 16; setp.gt.u32 %p1, %r0, 3; @%p0 bra LOW;
         vote.sync.ballot.b32 %r1, %p1, 0xffff0000; bra JOIN; LOW: vote.sync.ballot.b32 %r1, %p1, 0x0000ffff; JOIN:
         bar.warp.sync 0xffffffff;",
        32,
    );
    let wanted: Vec<u32> = (0..32).map(|i| if i < 16 { 0xfff0 } else { 0xffff_0000 }).collect();
    assert_eq!(ballots, wanted);
    // The upper half comes late to the same instruction.
    let sums = run(
        "setp.lt.u32 %p0, %r0, 16; @%p0 bra SYNC; mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 100; @%p1 bra L;
         SYNC: redux.sync.add.u32 %r1, %r0, -1;",
        32,
    );
    assert_eq!(sums, [496; 32]);
    // Lower lanes spin until a higher one, which waits later in the code, has stored.
    let device = Device::kernel(&format!(
        "{LANE} setp.eq.u32 %p0, %r0, 31; @%p0 bra STORE; SPIN: ld.volatile.u32 %r1, [%d0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
         bra OUT; STORE: st.volatile.u32 [%d0], 9; OUT: bar.warp.sync -1;"
    ));
    let word = device.upload(&[0_u32; 32]);
    device.run("k", WARP.0, WARP.1, &[word]).unwrap();
    assert_eq!(device.download::<u32>(word, 1), [9]);
}

#[test]
fn shuffles_on_both_sides_of_a_branch_meet() {
    // As nvcc makes it of sums over a warp in a loop, after which lane 0 alone stores: the loop is there twice.
    let step = |register: &str, distance: u32| {
        format!(
            "shfl.sync.bfly.b32 %r9, {register}, {distance}, 31, -1; add.u32 {register}, {register}, %r9;"
        )
    };
    let side = |register: &str, label: &str| {
        let steps: String = [16, 8, 4, 2, 1].into_iter().map(|distance| step(register, distance)).collect();
        format!(
            "{label}: add.u32 {register}, %r0, %r8; {steps} add.u32 %r7, %r7, {register}; add.u32 %r8, %r8, 1;
             setp.lt.u32 %p1, %r8, 3; @%p1 bra {label};"
        )
    };
    for threads in [32, 8] {
        let sums = run(
            &format!(
                "mov.u32 %r7, 0; mov.u32 %r8, 0; setp.eq.u32 %p0, %r0, 0; @%p0 bra FIRST;
                 {} bra JOIN; {} JOIN: mov.u32 %r1, %r7;",
                side("%r2", "OTHERS"),
                side("%r3", "FIRST")
            ),
            threads,
        );
        let numbers: u32 = (0..threads).sum();
        // A lane that does not exist adds 0.
        assert_eq!(sums, vec![3 * numbers + 3 * threads; threads as usize], "{threads} threads");
    }
}

/// The result of a lane.
type Expected = fn(u32) -> u32;

#[test]
fn joint_operations_on_both_sides_of_a_branch_meet() {
    // `n` is the side's register: of the result, the value of 64 bits, and the predicate.
    let cases: [(&str, Expected); 6] = [
        ("vote.sync.ballot.b32 %r{n}, %p{n}, -1;", |_| 0xaaaa_aaaa),
        ("vote.sync.any.pred %p1, %p{n}, -1; selp.u32 %r{n}, 1, 0, %p1;", |_| 1),
        ("redux.sync.add.u32 %r{n}, %r0, -1;", |_| 496),
        ("match.any.sync.b64 %r{n}, %d{n}, -1;", |lane| 3 << (lane & 30)),
        ("match.all.sync.b64 %r{n}|%p1, %d{n}, -1;", |_| 0),
        (
            "elect.sync %r{n}|%p1, -1; selp.u32 %r{n}, 100, %r{n}, %p1;",
            |lane| if lane == 0 { 100 } else { 0 },
        ),
    ];
    for (operation, expected) in cases {
        let side = |register: usize| {
            let operation = operation.replace("{n}", &register.to_string());
            format!(
                "setp.eq.u32 %p{register}, %r3, 1; shr.u64 %d{register}, %d9, 1; {operation} mov.u32 %r1, %r{register};"
            )
        };
        let found = run(
            &format!(
                "and.b32 %r3, %r0, 1; cvt.u64.u32 %d9, %r0; setp.lt.u32 %p0, %r0, 5; @%p0 bra FIRST; {} bra JOIN; FIRST: {} JOIN:",
                side(4),
                side(5)
            ),
            32,
        );
        assert_eq!(found, (0..32).map(expected).collect::<Vec<u32>>(), "{operation}");
    }
}

#[test]
fn lanes_that_synchronise_on_both_sides_of_a_branch_go_on() {
    // The lanes of one side wait for what the other side stores after both have met.
    let words = run(
        "setp.lt.u32 %p0, %r0, 5; @%p0 bra FIRST; bar.warp.sync -1; SPIN: ld.volatile.u32 %r1, [%d0]; setp.eq.u32 %p1, %r1, 0;
         @%p1 bra SPIN; bra JOIN; FIRST: bar.warp.sync -1; mov.u32 %r1, 9; st.volatile.u32 [%d1], %r1; JOIN:",
        32,
    );
    assert_eq!(words, [9; 32]);
}

#[test]
fn member_masks_may_name_lanes_that_are_gone() {
    let sums = run(
        "setp.ge.u32 %p0, %r0, 20; mov.u32 %r1, 7; @%p0 st.global.u32 [%d1], %r1; @%p0 exit; redux.sync.max.u32 %r1, %r0, -1;",
        24,
    );
    assert_eq!(sums, [[19; 20].as_slice(), &[7; 4]].concat());
}

#[test]
fn block_barriers_order_warps() {
    // Each thread reads what one of another warp wrote.
    let values = run(
        ".shared .align 4 .b8 s[1024]; mov.u32 %r2, s; shl.b32 %r3, %r0, 2; add.u32 %r3, %r2, %r3; st.shared.u32 [%r3], %r0;
         bar.sync 0; add.u32 %r4, %r0, 40; rem.u32 %r4, %r4, 200; shl.b32 %r4, %r4, 2; add.u32 %r4, %r2, %r4; ld.shared.u32 %r1, [%r4];",
        200,
    );
    assert_eq!(values, (0..200).map(|i| (i + 40) % 200).collect::<Vec<_>>());
}

#[test]
fn barriers_reduce() {
    let cases = [("popc.u32 %r1, 0, %p0", 33), ("popc.u32 %r1, 0, !%p0", 100 - 33)];
    for (text, wanted) in cases {
        let counts = run(&format!("setp.lt.u32 %p0, %r0, 33; barrier.cta.red.{text};"), 100);
        assert_eq!(counts, vec![wanted; 100], "{text}");
    }
    for (operation, bound, wanted) in [("and", 100, 1), ("and", 99, 0), ("or", 1, 1), ("or", 0, 0)] {
        let text = format!(
            "setp.lt.u32 %p0, %r0, {bound}; bar.red.{operation}.pred %p1, 3, %p0; selp.u32 %r1, 1, 0, %p1;"
        );
        assert_eq!(run(&text, 100), vec![wanted; 100], "{text}");
    }
}

#[test]
fn named_barriers_count_some_warps() {
    // Warps 0 and 1 consume what warp 2 produces; warp 3 does not take part.
    let values = run(
        ".shared .u32 s; shr.u32 %r2, %r0, 5; setp.eq.u32 %p2, %r2, 2; setp.gt.u32 %p3, %r2, 2; mov.u32 %r1, 5; @%p3 bra OUT;
         @%p2 bra PRODUCE; bar.sync 7, 96; ld.shared.u32 %r1, [s]; bra OUT;
         PRODUCE: st.shared.u32 [s], 42; bar.arrive 7, 96; OUT:",
        128,
    );
    assert_eq!(values, [[42; 64].as_slice(), &[5; 64]].concat());
}

#[test]
fn threads_that_have_exited_are_not_waited_for() {
    let values = run(
        "mov.u32 %r1, 3; setp.lt.u32 %p0, %r0, 70; @%p0 st.global.u32 [%d1], %r1; @%p0 exit; bar.sync 0; mov.u32 %r1, 4;",
        128,
    );
    assert_eq!(values, [[3; 70].as_slice(), &[4; 58]].concat());
    // Divergent lanes of one warp may wait at different barrier instructions.
    let values = run(
        "mov.u32 %r1, 1; and.b32 %r2, %r0, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra E; bar.sync 0; bra J; E: bar.sync 0; J:",
        64,
    );
    assert_eq!(values, [1; 64]);
}

#[test]
fn a_barrier_that_cannot_complete_is_a_fault() {
    let device = Device::kernel(
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra L; bar.sync 1; bra E; L: bar.sync 2; E:",
    );
    let fault = device.run("k", [1, 1, 1], [64, 1, 1], &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    assert!(fault.message.contains("barriers that can never complete"), "{fault}");
    let device = Device::kernel("mov.u32 %r0, 16; bar.sync %r0;");
    assert_eq!(device.run("k", WARP.0, WARP.1, &[]).unwrap_err().kind, FaultKind::IllegalInstruction);
}

#[test]
fn special_registers() {
    let device = Device::kernel(
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;
         mad.lo.u32 %r5, %r2, %r4, %r1; mad.lo.u32 %r5, %r5, %r3, %r0; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %nctaid.x;
         mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r6, %r7, %r8; mov.u32 %r9, %ntid.z; mul.lo.u32 %r10, %r3, %r4; mul.lo.u32 %r10, %r10, %r9;
         mad.lo.u32 %r5, %r8, %r10, %r5; mul.wide.u32 %d1, %r5, 48; ld.param.u64 %d0, [p0]; add.u64 %d0, %d0, %d1;
         mov.u32 %r11, %laneid; mov.u32 %r12, %warpid; mov.u32 %r13, %lanemask_lt; mov.u32 %r14, %lanemask_ge;
         mov.u32 %r15, %smid; mov.u32 %r16, %nsmid; mov.u64 %d3, %clock64; mov.u64 %d4, %gridid; mov.u32 %r17, WARP_SZ;
         mov.u64 %d5, %clock64; setp.ge.u64 %p0, %d5, %d3; selp.u32 %r18, 1, 0, %p0; mov.u64 %d6, %globaltimer;
         st.v4.u32 [%d0], {%r11, %r12, %r13, %r14}; st.v4.u32 [%d0+16], {%r15, %r16, %r17, %r18}; st.v2.u64 [%d0+32], {%d4, %d6};",
    );
    let (grid, block) = ([3, 2, 1], [5, 4, 3]);
    let threads = 60;
    let out = device.upload(&vec![0_u32; 6 * threads * 12]);
    device.run("k", grid, block, &[out]).unwrap();
    let found = device.download::<u32>(out, 6 * threads * 12);
    for (index, words) in found.chunks(12).enumerate() {
        let (number, thread) = (index / threads, (index % threads) as u32);
        let lane = thread % 32;
        let wanted = [lane, thread / 32, (1 << lane) - 1, u32::MAX << lane, number as u32, 132, 32, 1, 1, 0];
        assert_eq!(words[..10], wanted, "thread {index}");
        assert!(words[11] > 0);
    }
}

#[test]
fn barriers_in_shared_memory() {
    // cuda::barrier written by hand: 64 threads arrive, wait for the phase, and read another warp's data; twice, by
    // state and parity.
    let values = run(
        ".shared .align 8 .b64 b; .shared .align 4 .b8 s[256]; .reg .pred done; mov.u32 %r2, s; shl.b32 %r3, %r0, 2; add.u32 %r4, %r2, %r3;
         xor.b32 %r5, %r3, 128; add.u32 %r5, %r2, %r5; setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [b], 64; bar.sync 0;
         st.shared.u32 [%r4], %r0; mbarrier.arrive.shared.b64 %d5, [b];
         W: mbarrier.try_wait.shared::cta.b64 done, [b], %d5; @!done bra W; ld.shared.u32 %r6, [%r5];
         mbarrier.arrive.release.cta.shared::cta.b64 _, [b]; V: mbarrier.test_wait.parity.shared.b64 done, [b], 1; @!done bra V;
         mbarrier.pending_count.b64 %r7, %d5; setp.gt.u32 %p1, %r7, 64; add.u32 %r6, %r6, 1000; selp.u32 %r1, 0, %r6, %p1;",
        64,
    );
    assert_eq!(values, (0..64).map(|i| (i ^ 32) + 1000).collect::<Vec<u32>>());
}

/// The manual does not define a lane with a mask of other lanes only. Hardware returns their votes to it.
#[test]
fn a_lane_may_ask_for_the_votes_of_others() {
    let device = Device::kernel(
        "mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0; mov.u32 %r2, %lanemask_lt;\n\
         vote.sync.ballot.b32 %r3, %p0, %r2; popc.b32 %r3, %r3;\n\
         mul.wide.u32 %d0, %r0, 4; ld.param.u64 %d1, [p0]; add.u64 %d1, %d1, %d0; st.global.u32 [%d1], %r3;",
    );
    let out = device.upload(&[0_u32; 32]);
    device.run("k", WARP.0, WARP.1, &[out]).unwrap();
    let expected: Vec<u32> =
        (0..32_u32).map(|lane| (0..lane).filter(|n| n & 5 != 0).count() as u32).collect();
    assert_eq!(device.download::<u32>(out, 32), expected);
}
