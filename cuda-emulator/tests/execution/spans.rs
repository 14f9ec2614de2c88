// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses near the limits of what addresses and immediates can be, interpreted and translated: the cases that translated code
//! once checked wrongly, and a sample of all. `cargo xtask fuzz spans` tries others.

use cuda_emulator::program::Program;
use cuda_emulator_testing::bodies::spans::{Access, Lanes, Operation, Space};

/// An access to the last element of shared memory, and to those behind by the other lanes.
const SHARED: Access = Access {
    space: Space::Shared,
    operation: Operation::Load,
    bytes: 4,
    count: 1,
    imm: 0,
    second: None,
    start: 4092,
    stride: 4,
    lanes: Lanes::Steps,
    shared: 4096,
    threads: [32, 1],
    guarded: false,
};

fn expect_fault(access: &Access, text: &str) {
    let fault = access.check().expect("the kernel loads").expect_err("not all bytes are valid");
    assert!(fault.contains(text), "{fault}: {access:?}");
}

/// The end of the bytes is beyond the largest signed number if the immediate is taken for an address.
#[test]
fn a_large_immediate_hides_no_byte() {
    for (space, start) in
        [(Space::Shared, 4096 - 16), (Space::Global, 65536 - 16), (Space::Generic, 65536 - 16)]
    {
        for imm in [i64::MAX, i64::MAX - 3, i64::MAX - 15, i64::MIN, i64::MIN + 4] {
            for (operation, count, stride) in [
                (Operation::Load, 1, 4),
                (Operation::Load, 4, 1024),
                (Operation::Load, 2, 64),
                (Operation::Store, 1, 4),
                (Operation::Store, 1, 1024),
                (Operation::Atomic, 1, 4),
            ] {
                expect_fault(&Access { space, operation, imm, count, stride, start, ..SHARED }, "illegal");
            }
            let same = Access { space, imm, count: 4, lanes: Lanes::Same, start: start + 16, ..SHARED };
            expect_fault(&same, "illegal");
        }
    }
}

/// A step that 32 lanes bring around the address space.
#[test]
fn a_large_step_hides_no_lane() {
    for step in [1 << 59, (1 << 59) + 16, 1 << 58, (1 << 58) + 4, u64::MAX / 32 + 1] {
        for operation in [Operation::Load, Operation::Store] {
            expect_fault(&Access { operation, stride: step, start: 0, ..SHARED }, "illegal shared memory");
        }
    }
}

/// The difference between the last valid offset and a lane's is too large a number if memory is shorter than an element.
#[test]
fn memory_that_is_shorter_than_an_element_has_none() {
    for shared in [0, 1, 4, 8, 12, 15, 16] {
        for lanes in [Lanes::Scattered, Lanes::Steps, Lanes::Same] {
            for (space, limit) in [(Space::SharedShort, 1 << 31), (Space::Shared, 1 << 63)] {
                for below in [1, 2, 5, 15, 16] {
                    let start = limit - below;
                    // The register is aligned, and the sum is not.
                    let imm = (start & 15) as i64;
                    let access = Access { space, lanes, shared, start, imm, count: 4, stride: 0, ..SHARED };
                    assert!(access.check().expect("the kernel loads").is_err(), "{access:?}");
                }
            }
        }
    }
}

#[test]
fn the_sum_of_address_and_immediate_is_aligned() {
    for space in [Space::Shared, Space::SharedShort, Space::Global, Space::Generic] {
        for lanes in [Lanes::Scattered, Lanes::Steps, Lanes::Same] {
            for (operation, bytes, count, imm) in [
                (Operation::Load, 4, 1, 2),
                (Operation::Load, 8, 2, 8),
                (Operation::Store, 8, 1, -4),
                (Operation::Store, 2, 2, 1),
            ] {
                let access = Access { space, operation, bytes, count, stride: 16, lanes, ..SHARED };
                // The register is aligned, and the sum is not; then the other way round.
                expect_fault(
                    &Access { start: 256_u64.wrapping_add_signed(imm), imm, ..access.clone() },
                    "misaligned",
                );
                let good = Access { start: 256, imm, ..access };
                assert!(good.check().expect("the kernel loads").is_ok(), "{good:?}");
            }
        }
    }
}

#[test]
fn usual_steps_work() {
    for space in [Space::Global, Space::Generic, Space::Shared, Space::SharedShort, Space::SharedGeneric] {
        for (stride, imm) in
            [(1, 0), (3, -1), (4, i64::MAX), (16, i64::MIN), (64, 1 << 31), (120, -(1 << 31))]
        {
            for operation in [Operation::Load, Operation::Store] {
                for lanes in [Lanes::Steps, Lanes::Scattered] {
                    let bytes = if stride % 4 == 0 { 4 } else { 1 };
                    let access = Access { space, operation, bytes, stride, imm, lanes, start: 0, ..SHARED };
                    assert!(access.check().expect("the kernel loads").is_ok(), "{access:?}");
                }
            }
        }
    }
}

/// Their names are no addresses in the memory that the instruction says.
#[test]
fn copies_take_no_parameters_and_no_local_memory() {
    let bodies = [
        "cp.async.ca.shared.global [lo], [%d0], 16;",
        "cp.async.ca.shared.global [%r0], [lo], 16;",
        "cp.async.ca.shared.global [%r0], [p0], 8;",
        "cp.async.ca.shared.global [%r0], [p0], 8, %r1;",
    ];
    for body in bodies {
        let text = crate::harness::kernel(&format!(".local .align 16 .b8 lo[16]; {body}"));
        let error = Program::load(&text).expect_err(body);
        assert!(error.message.contains("expected"), "{body}: {error}");
    }
}
