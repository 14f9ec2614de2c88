// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic parallelism: kernels that NVIDIA's compiler cannot generate, and behaviour that is not deterministic on a
//! GPU.

use std::time::{Duration, Instant};

use cuda_emulator::launch::FaultKind;

use crate::harness::Device;

/// Declarations, `child` (adds 1 to `counter[p0]`), and a kernel `k` with a body. In it, `launch(N)` is a launch of `child`
/// in stream `%d20`, whose parameter is `%d21`, with the results `%d10` (buffer) and `%r10` (status).
fn module(body: &str) -> Device {
    let launch = "{ .param .b64 a0; .param .align 4 .b8 a1[12]; .param .align 4 .b8 a2[12]; .param .b32 a3; .param .b64 o;\n\
         st.param.b64 [a0], %d22; st.param.b32 [a1], %r20; st.param.b32 [a1+4], 1; st.param.b32 [a1+8], 1;\n\
         st.param.b32 [a2], %r21; st.param.b32 [a2+4], 1; st.param.b32 [a2+8], 1; st.param.b32 [a3], 0;\n\
         call.uni (o), __cudaCDP2GetParameterBufferV2, (a0, a1, a2, a3); ld.param.b64 %d10, [o]; }\n\
         mov.u32 %r10, 0; setp.eq.u64 %p10, %d10, 0; @%p10 bra NONE_#;\n\
         st.u64 [%d10], %d21;\n\
         { .param .b64 a0; .param .b64 a1; .param .b32 o; st.param.b64 [a0], %d10; st.param.b64 [a1], %d20;\n\
         call.uni (o), __cudaCDP2LaunchDeviceV2, (a0, a1); ld.param.b32 %r10, [o]; }\nNONE_#:\n";
    let mut body = body.to_owned();
    for number in 0.. {
        if !body.contains("launch()") {
            break;
        }
        body = body.replacen("launch()", &launch.replace('#', &number.to_string()), 1);
    }
    let body = body.replace(
        "last_error()",
        "{ .param .b32 o; call.uni (o), __cudaCDP2GetLastError, (); ld.param.b32 %r11, [o]; }",
    );
    Device::new(&format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n\
         .extern .func (.param .b64 o) __cudaCDP2GetParameterBufferV2 (.param .b64 a, .param .align 4 .b8 b[12],\n\
           .param .align 4 .b8 c[12], .param .b32 d);\n\
         .extern .func (.param .b32 o) __cudaCDP2LaunchDeviceV2 (.param .b64 a, .param .b64 b);\n\
         .extern .func (.param .b32 o) __cudaCDP2GetLastError ();\n\
         .visible .global .align 8 .u32 counter[64];\n\
         .visible .entry child(.param .u64 p0)\n{{\n\
         .reg .b64 %d<9>; .reg .b32 %r<9>;\n\
         ld.param.u64 %d1, [p0]; mov.u64 %d2, counter; shl.b64 %d1, %d1, 2; add.u64 %d2, %d2, %d1;\n\
         red.global.add.u32 [%d2], 1; ret;\n}}\n\
         .visible .entry wild(.param .u64 p0)\n{{\n\
         .reg .b64 %d<9>;\n\
         mov.u64 %d1, 64; st.global.u64 [%d1], %d1; ret;\n}}\n\
         .visible .entry k(.param .u64 p0)\n{{\n\
         .reg .pred %p<20>; .reg .b32 %r<40>; .reg .b64 %d<40>;\n\
         mov.u64 %d20, 0; mov.u64 %d21, 0; mov.u64 %d22, child; mov.u32 %r20, 1; mov.u32 %r21, 1; mov.u64 %d30, counter;\n\
         ld.param.u64 %d31, [p0];\n{body}\nret;\n}}\n"
    ))
}

fn counters(device: &Device) -> Vec<u32> {
    device.download(device.variable("counter"), 64)
}

const ONE: [u32; 3] = [1; 3];

/// Launches `p0` times.
const LOOP: &str = "mov.u32 %r1, 0;\nAGAIN: launch() last_error() setp.ne.u32 %p1, %r11, 0; @%p1 bra FULL;\n\
     add.u32 %r1, %r1, 1; cvt.u64.u32 %d1, %r1; setp.lt.u64 %p1, %d1, %d31; @%p1 bra AGAIN;\n\
     FULL: st.global.u32 [%d30+4], %r1; st.global.u32 [%d30+8], %r11;";

#[test]
fn more_launches_than_can_be_pending_run_meanwhile() {
    let device = module(LOOP);
    device.run("k", ONE, ONE, &[5000]).unwrap();
    assert_eq!(counters(&device)[..3], [5000, 5000, 0]);
}

#[test]
fn launches_of_all_threads_and_blocks_are_counted_once() {
    let device = module("launch() launch() launch()");
    device.run("k", [40, 1, 1], [64, 1, 1], &[0]).unwrap();
    assert_eq!(counters(&device)[0], 40 * 64 * 3);
}

#[test]
fn a_tail_holds_as_many_launches_as_can_be_pending() {
    let device = module(&format!("mov.u64 %d20, 3; {LOOP}"));
    device.run("k", ONE, ONE, &[5000]).unwrap();
    // cudaErrorLaunchPendingCountExceeded
    assert_eq!(counters(&device)[..3], [2048, 2048, 69]);
    // Slots are free again.
    device.run("k", ONE, ONE, &[10]).unwrap();
    assert_eq!(counters(&device)[..3], [2058, 10, 0]);
}

#[test]
fn a_full_tail_leaves_room_for_launches_that_run_at_once() {
    let tail = LOOP.replace("AGAIN", "FIRST").replace("FULL", "FILLED");
    let device = module(&format!(
        "mov.u64 %d20, 3; {tail} mov.u64 %d20, 0; mov.u64 %d21, 3; launch() launch() last_error() st.global.u32 [%d30+16], %r11;"
    ));
    device.run("k", ONE, ONE, &[5000]).unwrap();
    assert_eq!(counters(&device)[..5], [2048, 2048, 69, 2, 0]);
}

#[test]
fn launches_that_run_at_once_nest_as_deep_as_others() {
    // The first grid fills its tail. Then every level runs the next one before it continues.
    let tail = LOOP.replace("AGAIN", "FIRST").replace("FULL", "FILLED").replace("%d31;", "2048;");
    let device = module(&format!(
        "setp.ne.u64 %p2, %d31, 0; @%p2 bra DEEPER; mov.u64 %d20, 3; {tail}\n\
         DEEPER: mov.u64 %d20, 0; mov.u64 %d22, k; add.u64 %d21, %d31, 1; launch()\n\
         red.global.add.u32 [%d30+16], 1;"
    ));
    device.run("k", ONE, ONE, &[0]).unwrap();
    assert_eq!((counters(&device)[0], counters(&device)[4]), (2048, 25));
}

#[test]
fn a_kernel_can_launch_itself_in_its_tail_without_end() {
    let again = "mov.u64 %d22, k; mov.u64 %d20, 3; sub.u64 %d21, %d31, 1; ld.global.u32 %r1, [%d30]; add.u32 %r1, %r1, 1;\n\
         st.global.u32 [%d30], %r1; setp.eq.u64 %p1, %d21, 0; @%p1 bra OVER; launch()\nOVER:";
    let device = module(again);
    device.run("k", ONE, ONE, &[30_000]).unwrap();
    assert_eq!(counters(&device)[0], 30_000);
}

#[test]
fn the_depth_is_limited() {
    let deeper = "mov.u64 %d22, k; add.u64 %d21, %d31, 1; shl.b64 %d1, %d31, 2; add.u64 %d2, %d30, %d1;\n\
         launch() last_error() st.global.u32 [%d2], %r11;";
    let device = module(deeper);
    device.run("k", ONE, ONE, &[0]).unwrap();
    // cudaErrorLaunchMaxDepthExceeded of the 24th grid below the first one.
    assert_eq!(counters(&device)[23..26], [0, 65, 0]);
}

#[test]
fn a_fault_of_a_child_ends_everything() {
    for stream in [0, 3] {
        let device = module(&format!(
            "mov.u64 %d20, {stream}; mov.u64 %d22, wild; launch() mov.u64 %d22, child; launch()"
        ));
        let fault = device.run("k", ONE, ONE, &[0]).unwrap_err();
        assert_eq!((fault.kind, fault.kernel.as_str()), (FaultKind::IllegalAddress, "wild"));
        assert_eq!(counters(&device)[0], 0);
    }
    // Also when the launching thread runs it, because no more launches can be pending.
    let device = module(&format!("mov.u64 %d22, wild; {LOOP} st.global.u32 [%d30+12], 1;"));
    assert_eq!(device.run("k", ONE, ONE, &[5000]).unwrap_err().kernel, "wild");
    assert_eq!(counters(&device)[3], 0);
}

#[test]
fn what_is_no_launch_is_an_error_of_the_thread() {
    let refused = |setup: &str| {
        let device = module(&format!(
            "{setup} launch() st.global.u32 [%d30+4], %r10; last_error() st.global.u32 [%d30], %r11;"
        ));
        device.run("k", ONE, ONE, &[0]).unwrap();
        counters(&device)[0]
    };
    assert_eq!(refused("mov.u32 %r21, 2000;"), 9);
    assert_eq!(refused("mov.u32 %r21, 0;"), 9);
    assert_eq!(refused("mov.u32 %r20, 0;"), 9);
    assert_eq!(refused("mov.u64 %d22, 0;"), 98);
    assert_eq!(refused("mov.u64 %d22, 0x30000000008;"), 98);
    assert_eq!(refused("mov.u64 %d22, counter;"), 98);
    assert_eq!(refused("mov.u64 %d20, 12345;"), 400);
    // An invalid buffer.
    let device = module(
        "{ .param .b64 a0; .param .b64 a1; .param .b32 o; st.param.b64 [a0], %d30; st.param.b64 [a1], %d20;\n\
         call.uni (o), __cudaCDP2LaunchDeviceV2, (a0, a1); ld.param.b32 %r10, [o]; } st.global.u32 [%d30+4], %r10;",
    );
    device.run("k", ONE, ONE, &[0]).unwrap();
    assert_eq!(counters(&device)[..2], [0, 1]);
}

#[test]
fn buffers_that_are_never_launched_are_bounded_and_end_with_their_grid() {
    let hoard = "mov.u32 %r1, 0;\nAGAIN: \
         { .param .b64 a0; .param .align 4 .b8 a1[12]; .param .align 4 .b8 a2[12]; .param .b32 a3; .param .b64 o;\n\
         st.param.b64 [a0], %d22; st.param.b32 [a1], 1; st.param.b32 [a1+4], 1; st.param.b32 [a1+8], 1;\n\
         st.param.b32 [a2], 1; st.param.b32 [a2+4], 1; st.param.b32 [a2+8], 1; st.param.b32 [a3], 0;\n\
         call.uni (o), __cudaCDP2GetParameterBufferV2, (a0, a1, a2, a3); ld.param.b64 %d10, [o]; }\n\
         setp.eq.u64 %p1, %d10, 0; @%p1 bra FULL; add.u32 %r1, %r1, 1; bra AGAIN;\n\
         FULL: st.global.u32 [%d30], %r1; last_error() st.global.u32 [%d30+4], %r11;";
    let device = module(hoard);
    let free = device.memory.free_bytes();
    for _ in 0..2 {
        device.run("k", ONE, ONE, &[0]).unwrap();
        assert_eq!(counters(&device)[..2], [2048, 69]);
    }
    assert_eq!(device.memory.free_bytes(), free);
}

#[test]
fn cancelling_ends_grids_that_launch_without_end() {
    let device = module("mov.u64 %d22, k; mov.u64 %d20, 3; launch()");
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            device.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let fault = device.run("k", ONE, ONE, &[0]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Cancelled);
    });
    assert!(start.elapsed() < Duration::from_secs(20));
}
