// SPDX-License-Identifier: Apache-2.0 OR MIT
//! nvcc's output for real programs.

use cuda_emulator::launch::FaultKind;

use crate::harness::Device;

fn tour() -> Device {
    Device::new(include_str!("../data/tour.ptx"))
}

/// The kernel whose mangled name contains `name`.
fn find<'d>(device: &'d Device, name: &str) -> &'d str {
    let marked = format!("{}{name}", name.len());
    device.program.kernels.keys().find(|key| key.contains(&marked)).unwrap()
}

#[test]
fn hello_prints_and_asserts() {
    let device = tour();
    device.run(find(&device, "hello"), [1, 1, 1], [10, 1, 1], &[10]).unwrap();
    let wanted: String = (0..10).map(|i| format!("hello {i} 1.500000 abc\n")).collect();
    assert_eq!(device.printed(), wanted);
    let fault = device.run(find(&device, "hello"), [1, 1, 1], [3, 1, 1], &[2]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Assert);
    assert!(
        fault
            .message
            .contains("block: [0,0,0], thread: [2,0,0] Assertion `int(threadIdx.x) < limit` failed.")
    );
    assert_eq!(fault.thread, [2, 0, 0]);
}

#[test]
fn vector_add_checks_its_bounds() {
    let mut device = tour();
    // So that the first block with a fault is the one that is reported.
    device.workers = 1;
    let n = 50_000;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..n).map(|i| 1.0 / (1.0 + i as f32)).collect();
    let (da, db, dc) = (device.upload(&a), device.upload(&b), device.upload(&vec![0_f32; n]));
    let name = find(&device, "vector_add");
    device.run(name, [196, 1, 1], [256, 1, 1], &[da, db, dc, n as u64]).unwrap();
    let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(device.download::<f32>(dc, n), sums);

    let fault = device.run(name, [300, 1, 1], [256, 1, 1], &[da, db, dc, n as u64 + 1000]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    let end = [da, db, dc].map(|base| base + 4 * n as u64);
    assert!(end.contains(&fault.address), "{fault:?}");
    assert_eq!((fault.block, fault.thread), ([195, 0, 0], [80, 0, 0]));
    assert!(fault.message.contains("vector_add") && fault.message.contains("PTX line"), "{fault}");
    device.memory.free(da);
    let fault = device.run(name, [1, 1, 1], [32, 1, 1], &[da, db, dc, 32]).unwrap_err();
    assert_eq!((fault.kind, fault.address), (FaultKind::IllegalAddress, da));
    let fault = device.run(name, [1, 1, 1], [32, 1, 1], &[db + 2, db, dc, 32]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Misaligned);
}

#[test]
fn reduction_in_shared_memory() {
    let mut device = tour();
    device.dynamic_shared = 256 * 4;
    let a: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    let (da, dout) = (device.upload(&a), device.upload(&[0_f32; 4]));
    device.run(find(&device, "reduce"), [4, 1, 1], [256, 1, 1], &[da, dout]).unwrap();
    let wanted: Vec<f32> = a.chunks(256).map(|chunk| chunk.iter().sum::<f32>() + 1.0).collect();
    assert_eq!(device.download::<f32>(dout, 4), wanted);
    device.dynamic_shared = 128;
    let fault = device.run(find(&device, "reduce"), [4, 1, 1], [256, 1, 1], &[da, dout]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
}

#[test]
fn grid_synchronizes_in_a_cooperative_launch() {
    let mut device = tour();
    let n = 40 * 64;
    let out = device.upload(&vec![0_i32; n]);
    let name = find(&device, "cooperative").to_owned();
    let fault = device.run(&name, [40, 1, 1], [64, 1, 1], &[out]).unwrap_err();
    assert!(fault.message.contains("trap"), "{fault}");
    device.cooperative = true;
    device.run(&name, [40, 1, 1], [64, 1, 1], &[out]).unwrap();
    let wanted: Vec<i32> = (0..n).map(|i| (i + (i + 37) % n) as i32).collect();
    assert_eq!(device.download::<i32>(out, n), wanted);
}

fn fib(n: i32) -> i32 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

#[test]
fn virtual_functions_recursion_and_heap() {
    let device = tour();
    let out = device.upload(&[0_i32; 64]);
    device.run(find(&device, "virtual_calls"), [1, 1, 1], [64, 1, 1], &[out, 9]).unwrap();
    let wanted: Vec<i32> =
        (0..64).map(|t| (if t & 1 != 0 { t + 9 } else { t * 9 }) + fib(9 + t % 3)).collect();
    assert_eq!(device.download::<i32>(out, 64), wanted);
    let heap = device
        .memory
        .all_ranges()
        .into_iter()
        .filter(|range| range.kind == cuda_emulator::memory::RangeKind::Heap);
    assert_eq!(heap.count(), 0);
}

#[test]
fn parameters_by_value_and_indirect_calls() {
    let device = tour();
    let out = device.upload(&[0_f64; 1]);
    let mut params = Vec::new();
    (0..10).for_each(|i: i32| params.extend((i * i).to_le_bytes()));
    params.extend(0.25_f64.to_le_bytes());
    params.extend(7_u64.to_le_bytes());
    params.extend(out.to_le_bytes());
    device.run_with(find(&device, "by_value"), [1, 1, 1], [1, 1, 1], &params).unwrap();
    assert_eq!(device.download::<f64>(out, 1), [49.25]);

    let out = device.upload(&[0_i32; 2]);
    device.run(find(&device, "indirect"), [1, 1, 1], [1, 1, 1], &[out, 0]).unwrap();
    device.memory.write(device.variable("global_value"), &11_i32.to_le_bytes()).unwrap();
    device.run(find(&device, "indirect"), [1, 1, 1], [1, 1, 1], &[out, 1]).unwrap();
    assert_eq!(device.download::<i32>(out, 2), [6 + 7 + 1, 33 + 7 + 2]);
}

#[test]
fn math_functions() {
    let device = tour();
    let x: Vec<f32> = (0..32).map(|i| 0.3 + i as f32 * 0.37).collect();
    let y: Vec<f64> = (0..32).map(|i| 0.2 + f64::from(i) * 0.61).collect();
    let (dx, dy) = (device.upload(&x), device.upload(&y));
    device.run(find(&device, "math"), [1, 1, 1], [32, 1, 1], &[dx, dy]).unwrap();
    for (found, x) in device.download::<f32>(dx, 32).iter().zip(&x) {
        let x = f64::from(*x);
        let wanted = x.sin() + x.exp() / x.ln() + x.powf(2.5) + 1.0 / x.sqrt() + x / 3.0;
        assert!((f64::from(*found) - wanted).abs() <= wanted.abs() * 1e-5 + 1e-5, "{x}: {found} {wanted}");
    }
    for (found, y) in device.download::<f64>(dy, 32).iter().zip(&y) {
        let wanted = y.sin() + y.exp() / y.ln() + y.sqrt();
        assert!((found - wanted).abs() <= wanted.abs() * 1e-13, "{y}: {found} {wanted}");
    }
}

#[test]
fn lanes_work_together() {
    let device = tour();
    let out = device.upload(&[0_i32; 32]);
    device.run(find(&device, "shuffle"), [1, 1, 1], [32, 1, 1], &[out]).unwrap();
    let found = device.download::<i32>(out, 32);
    // Lane 0 has the sum, all lanes have more than 3 by then, and all are active.
    assert_eq!(found[0], 496 + u32::MAX as i32 + 1 + 32);
    let count = device.upload(&[0_i32; 1]);
    device.run(find(&device, "aggregate"), [1, 1, 1], [96, 1, 1], &[count]).unwrap();
    assert_eq!(device.download::<i32>(count, 1), [64]);
}

#[test]
fn spin_lock_between_all_threads() {
    let device = tour();
    let (lock, count) = (device.upload(&[0_i32]), device.upload(&[0_i32]));
    device.run(find(&device, "spin_lock"), [4, 1, 1], [64, 1, 1], &[lock, count]).unwrap();
    assert_eq!(device.download::<i32>(count, 1), [256]);
}

#[test]
fn local_arrays_and_branches() {
    let device = tour();
    let out = device.upload(&[0_i32; 64]);
    device.run(find(&device, "local_array"), [1, 1, 1], [64, 1, 1], &[out, 5]).unwrap();
    let wanted: Vec<i32> = (0..64).map(|t| 5 * t + ((5 + t) & 15) * t).collect();
    assert_eq!(device.download::<i32>(out, 64), wanted);
    device.run(find(&device, "branches"), [1, 1, 1], [64, 1, 1], &[out]).unwrap();
    let wanted: Vec<i32> = (0..64)
        .map(|x| match x % 7 {
            0 => 10,
            1 => x * 3,
            2 => (0..x).map(|i| i ^ 5).sum(),
            3 => -x,
            4 => x << 3,
            5 => {
                if x > 16 {
                    99
                } else {
                    98
                }
            }
            _ => 1234,
        })
        .collect();
    assert_eq!(device.download::<i32>(out, 64), wanted);
}
