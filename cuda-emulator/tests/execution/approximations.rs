// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The approximate functions within the bounds of the manual, against double precision.

use crate::harness::Device;

/// Results of `opcode` on `inputs` (a multiple of 32).
fn run(opcode: &str, inputs: &[f32]) -> Vec<f32> {
    let device = Device::kernel(&format!(
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 32, %r0; mul.wide.u32 %d2, %r0, 4;
         ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
         ld.global.f32 %f0, [%d0]; {opcode} %f1, %f0; st.global.f32 [%d1], %f1;"
    ));
    let (from, to) = (device.upload(inputs), device.upload(&vec![0_f32; inputs.len()]));
    device.run("k", [inputs.len() as u32 / 32, 1, 1], [32, 1, 1], &[from, to]).unwrap();
    device.download(to, inputs.len())
}

fn inputs(low: f32, high: f32) -> Vec<f32> {
    (0..1024).map(|i| low + (high - low) * (i as f32 / 1023.0)).collect()
}

#[test]
fn errors_are_within_the_manual() {
    // (instruction, range, relative bound, absolute bound, function)
    type Case = (&'static str, f32, f32, f64, f64, fn(f64) -> f64);
    let cases: [Case; 9] = [
        ("rcp.approx.f32", 0.001, 1e6, 2f64.powi(-23), 0.0, |x| 1.0 / x),
        ("rcp.approx.ftz.f32", -1e6, -0.5, 2f64.powi(-23), 0.0, |x| 1.0 / x),
        ("sqrt.approx.f32", 0.0, 1e10, 2f64.powi(-22), 0.0, f64::sqrt),
        ("rsqrt.approx.f32", 0.001, 1e10, 2f64.powf(-22.9), 0.0, |x| 1.0 / x.sqrt()),
        ("sin.approx.f32", -3.2, 3.2, 0.0, 2f64.powf(-20.5), f64::sin),
        ("cos.approx.ftz.f32", -3.2, 3.2, 0.0, 2f64.powf(-20.5), f64::cos),
        ("lg2.approx.f32", 0.5, 100.0, 2f64.powi(-22), 2f64.powi(-22), f64::log2),
        ("ex2.approx.f32", -100.0, 100.0, 2f64.powi(-22), 0.0, f64::exp2),
        ("tanh.approx.f32", -5.0, 5.0, 2f64.powi(-11), 0.0, f64::tanh),
    ];
    for (opcode, low, high, relative, absolute, function) in cases {
        let inputs = inputs(low, high);
        for (x, found) in inputs.iter().zip(run(opcode, &inputs)) {
            let wanted = function(f64::from(*x));
            let error = (f64::from(found) - wanted).abs();
            assert!(
                error <= (relative * wanted.abs()).max(absolute),
                "{opcode} of {x}: {found}, not {wanted}"
            );
        }
    }
}

#[test]
fn special_values_are_those_of_the_manual() {
    let inf = f32::INFINITY;
    let cases: &[(&str, f32, f32)] = &[
        ("rcp.approx.f32", 0.0, inf),
        ("rcp.approx.f32", -0.0, -inf),
        ("rcp.approx.f32", -inf, -0.0),
        ("rcp.approx.ftz.f32", 1e-40, inf),
        ("rsqrt.approx.f32", 0.0, inf),
        ("rsqrt.approx.f32", inf, 0.0),
        ("sqrt.approx.f32", -0.0, -0.0),
        ("lg2.approx.f32", 0.0, -inf),
        ("lg2.approx.f32", inf, inf),
        ("ex2.approx.f32", -inf, 0.0),
        ("ex2.approx.f32", inf, inf),
        ("ex2.approx.ftz.f32", -0.0, 1.0),
        ("sin.approx.f32", -0.0, -0.0),
        ("cos.approx.f32", 0.0, 1.0),
        ("tanh.approx.f32", inf, 1.0),
    ];
    for (opcode, x, wanted) in cases {
        let found = run(opcode, &[*x; 32])[0];
        assert_eq!(found.to_bits(), wanted.to_bits(), "{opcode} of {x}: {found}");
    }
    for (opcode, x) in [
        ("lg2.approx.f32", -1.0),
        ("rsqrt.approx.f32", -1.0),
        ("sin.approx.f32", inf),
        ("sqrt.approx.f32", -1.0),
    ] {
        assert_eq!(run(opcode, &[x; 32])[0].to_bits(), 0x7fff_ffff, "{opcode} of {x}");
    }
}
