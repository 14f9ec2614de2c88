// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `CUDA_EMULATOR_CHECK`, in processes of their own, because the variable is read once. Also the messages about wild
//! addresses.

use std::process::Command;

use cuda_emulator::launch::FaultKind;

use crate::harness::{Device, WARP};

/// Returns the log of the ignored test `name` with the checks enabled.
fn findings(name: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&format!("checks::{name}"), "--exact", "--ignored", "--nocapture"])
        .env("CUDA_EMULATOR_CHECK", "race,init")
        .env("RUST_LOG", "error")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// Each thread writes a word of shared memory and reads the one that a thread of another warp writes.
const EXCHANGE: &str = ".shared .b32 words[64]; mov.u32 %r0, %tid.x; mov.u32 %r1, words; mad.lo.u32 %r2, %r0, 4, %r1;\n\
     st.shared.u32 [%r2], %r0; BARRIER xor.b32 %r3, %r0, 32; mad.lo.u32 %r2, %r3, 4, %r1; ld.shared.u32 %r4, [%r2];";

#[test]
#[ignore = "run by others with an environment of its own"]
fn child_shared() {
    env_logger::init();
    let good = Device::kernel(&EXCHANGE.replace("BARRIER", "bar.sync 0;"));
    good.run("k", [2, 1, 1], [64, 1, 1], &[]).unwrap();
    eprintln!("after the good one");
    let bad = Device::kernel(&EXCHANGE.replace("BARRIER", ""));
    bad.run("k", [1, 1, 1], [64, 1, 1], &[]).unwrap();
}

#[test]
fn a_missing_barrier_is_found() {
    let log = findings("child_shared");
    let (good, bad) = log.split_once("after the good one").unwrap();
    assert_eq!(good.matches("shared memory").count(), 0, "{good}");
    assert!(bad.contains("uninitialised shared memory is read at 0x80"), "{bad}");
    assert!(bad.contains("race: read after write of shared memory at 0x0, which warp 0"), "{bad}");
    assert!(bad.contains("in kernel `k`, block (0,0,0), thread (32,0,0), PTX line"), "{bad}");
}

#[test]
#[ignore = "run by others with an environment of its own"]
fn child_global() {
    env_logger::init();
    let device = Device::kernel(
        "ld.param.u64 %d0, [p0]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;\n\
         @%p0 st.global.u32 [%d0], %r0;\n\
         ld.global.u32 %r2, [%d0+4]; atom.global.add.u32 %r3, [%d0+8], 1; @%p0 ld.global.u32 %r4, [%d0];",
    );
    let words = device.memory.allocate(16, 256).unwrap();
    device.memory.fill(words + 8, &[0], 4).unwrap();
    device.run("k", [2, 1, 1], WARP.1, &[words]).unwrap();
}

#[test]
fn blocks_that_write_the_same_word_and_reads_of_nothing_are_found() {
    let log = findings("child_global");
    assert!(log.contains("race: write of global memory at"), "{log}");
    assert!(log.contains("uninitialised global memory is read at"), "{log}");
    // After an atomic operation a block may rely on the other one's writes.
    assert!(!log.contains("race: read"), "{log}");
}

#[test]
fn messages_say_what_lies_near_an_address() {
    let device = Device::kernel("ld.param.u64 %d0, [p0]; ld.global.u32 %r0, [%d0];");
    let fault = |address: u64| {
        let fault = device.run("k", [1, 1, 1], [1, 1, 1], &[address]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        fault.message
    };
    let base = device.memory.allocate(1000, 256).unwrap();
    assert!(fault(base + 1000).contains("(0 bytes behind the 1000 bytes at"), "{}", fault(base + 1000));
    assert!(fault(8).contains("null pointer"));
    device.memory.free(base);
    assert!(fault(base + 16).contains("(inside the 1000 bytes at"), "{}", fault(base + 16));
    assert!(fault(base + 16).contains("that were freed)"));
}
