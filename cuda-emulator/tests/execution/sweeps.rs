// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many short blocks, which are run one after the other without being made ready one by one: what differs between them, and
//! what happens when one of them is not like the others.

use crate::harness::Device;

/// Each thread adds its number in the grid to its word, after `body`, which may use `%r0` (that number) and `%d0` (its address).
fn device(body: &str) -> Device {
    Device::kernel(&format!(
        "ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y;
         mad.lo.u32 %r1, %r1, %r2, %r3; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x;
         mad.lo.u32 %r1, %r1, %r2, %r3; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r3;
         mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; {body}
         ld.global.u32 %r4, [%d0]; add.u32 %r4, %r4, %r0; st.global.u32 [%d0], %r4;"
    ))
}

fn check(device: &Device, grid: [u32; 3], threads: u32, extra: fn(u32) -> u32) {
    let count = grid.iter().product::<u32>() * threads;
    let out = device.upload(&vec![5_u32; count as usize]);
    device.run("k", grid, [threads, 1, 1], &[out]).unwrap();
    let found: Vec<u32> = device.download(out, count as usize);
    let wrong = (0..count).find(|thread| found[*thread as usize] != 5 + thread + extra(*thread));
    assert_eq!(wrong, None, "{grid:?} {threads}");
    assert!(device.memory.free(out));
}

#[test]
fn every_thread_runs_once() {
    let device = device("");
    for (grid, threads) in [([3000, 1, 1], 64), ([70, 30, 2], 40), ([1, 1, 1], 32), ([2, 999, 1], 100)] {
        check(&device, grid, threads, |_| 0);
    }
}

#[test]
fn blocks_that_leave_in_between() {
    // Lanes of every hundredth warp part in a loop; one warp in a thousand meets the others of its block.
    let device = device(
        "shr.u32 %r5, %r0, 5; rem.u32 %r6, %r5, 100; setp.ne.u32 %p0, %r6, 77; @%p0 bra on; and.b32 %r7, %r0, 7;
         again: add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 12; @%p1 bra again;
         on: ",
    );
    check(&device, [2000, 1, 1], 96, |_| 0);
}

#[test]
fn barriers_and_shared_memory_start_anew() {
    // Shared memory is zero at the start of each block, and the barrier is met by all warps.
    let device = device(
        ".shared .b32 s[64]; mov.u32 %r5, s; mad.lo.u32 %r5, %r3, 4, %r5; ld.shared.u32 %r6, [%r5];
         st.shared.u32 [%r5], 9; bar.sync 0; mov.u32 %r5, s; ld.shared.u32 %r7, [%r5+252]; add.u32 %r6, %r6, %r7;
         ld.global.u32 %r4, [%d0]; add.u32 %r4, %r4, %r6; st.global.u32 [%d0], %r4;",
    );
    check(&device, [500, 1, 1], 64, |_| 9);
}

#[test]
fn long_warps_take_turns() {
    let device =
        device("mov.u32 %r5, 0; again: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 3000; @%p1 bra again;");
    check(&device, [40, 1, 1], 64, |_| 0);
}

#[test]
fn a_block_waits_for_a_later_one() {
    // Every block but the last waits until a later one has set its flag.
    let device = Device::kernel(
        "ld.param.u64 %d0, [p0]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x; add.u32 %r2, %r0, 1;
         mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d0, %d1; setp.eq.u32 %p0, %r2, %r1; @%p0 bra done;
         wait: ld.volatile.global.u32 %r3, [%d1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra wait;
         done: mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d0, %d2; mov.u32 %r4, 1; st.volatile.global.u32 [%d2], %r4;",
    );
    let out = device.upload(&[0_u32; 41]);
    device.run("k", [40, 1, 1], [32, 1, 1], &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 40), [1; 40]);
}

#[test]
fn the_fault_of_a_late_block_is_its_own() {
    let device = device("");
    let out = device.upload(&vec![0_u32; 64 * 900]);
    let fault = device.run("k", [2000, 1, 1], [64, 1, 1], &[out]).unwrap_err();
    // Allocations are spaced: the fault is in the first block after the end, or in another one of a worker that was
    // faster.
    assert!(fault.block[0] >= 900, "{}", fault.message);
    assert!(fault.message.contains("illegal global memory read of 4 bytes"), "{}", fault.message);
    assert_eq!(fault.thread, [0, 0, 0]);
}
