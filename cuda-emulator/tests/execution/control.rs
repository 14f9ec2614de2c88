// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches, calls, the stack, and how kernels end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuda_emulator::launch::FaultKind;
use cuda_emulator::program::Program;

use crate::harness::{Device, WARP};

const HEAD: &str = ".version 8.8\n.target sm_90\n.address_size 64\n";

#[test]
fn parameters_may_be_registers() {
    let text = format!(
        "{HEAD}.func (.reg .u32 total, .reg .f64 half) combine(.reg .u32 a, .reg .u64 b, .reg .f32 c)
         {{ .reg.u32 t; .reg.pred p; .reg .f64 h;
         cvt.u32.u64 t, b; add.u32 total, a, t; cvt.f64.f32 half, c; setp.gt.u32 p, a, 2;
         @p bra MORE; ret; MORE: add.u32 total, total, 1000; ret; }}
         .func (.param .b32 out) mixed(.reg .u32 a, .param .b32 b)
         {{ .reg .u32 t; ld.param.u32 t, [b]; add.u32 t, t, a; st.param.b32 [out], t; ret; }}
         .entry k(.param .u64 out)
         {{ .reg .u64 %at, %wide; .reg .u32 %r<6>; .reg .f32 %f; .reg .f64 %g;
         ld.param.u64 %at, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %at, %r0, 16, %at;
         cvt.u64.u32 %wide, %r0; cvt.rn.f32.u32 %f, %r0; mul.f32 %f, %f, 0f3F000000;
         call (%r1, %g), combine, (%r0, %wide, %f);
         {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), mixed, (7, x); ld.param.b32 %r2, [y]; }}
         st.global.v2.u32 [%at], {{%r1, %r2}}; st.global.f64 [%at+8], %g; ret; }}"
    );
    let device = Device::new(&text);
    let out = device.upload(&[0_u64; 64]);
    device.run("k", WARP.0, WARP.1, &[out]).unwrap();
    for (lane, pair) in device.download::<u64>(out, 64).chunks(2).enumerate() {
        let lane = lane as u64;
        let sum = 2 * lane + if lane > 2 { 1000 } else { 0 };
        assert_eq!(pair, [sum | (sum + 7) << 32, (lane as f64 / 2.0).to_bits()], "lane {lane}");
    }
    let wrong = [".func f(.reg .pred p) { ret; }", ".func f(.reg .b32 p[2]) { ret; }"];
    for text in wrong {
        assert!(Program::load(&format!("{HEAD}{text}")).is_err(), "{text}");
    }
}

#[test]
fn indexed_branches() {
    let device = Device::kernel(
        "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; and.b32 %r1, %r0, 3;
         T: .branchtargets A, B, C, A; brx.idx %r1, T; A: mov.u32 %r2, 10; bra E; B: mov.u32 %r2, 20; bra E; C: mov.u32 %r2, 30; E:
         activemask.b32 %r3; setp.eq.u32 %p0, %r3, -1; @!%p0 mov.u32 %r2, 0; st.global.u32 [%d0], %r2;",
    );
    let out = device.upload(&[0_u32; 32]);
    device.run("k", WARP.0, WARP.1, &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 32), (0..32).map(|i| [10, 20, 30, 10][i % 4]).collect::<Vec<_>>());
    let device = Device::kernel("mov.u32 %r1, 2; T: .branchtargets A, B; brx.idx %r1, T; A: B:");
    assert_eq!(device.run("k", WARP.0, WARP.1, &[]).unwrap_err().kind, FaultKind::InvalidPc);
}

#[test]
fn calls_pass_structures_and_return_them() {
    let device = Device::new(&format!(
        "{HEAD}.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16], .param .b32 n) {{
           .reg .b64 %d<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
           ld.param.v2.u64 {{%d0, %d1}}, [in]; ld.param.u32 %r0, [n]; setp.eq.u32 %p0, %r0, 0; @%p0 bra DONE;
           sub.u32 %r0, %r0, 1;
           {{ .param .align 8 .b8 a[16]; .param .b32 b; .param .align 8 .b8 r[16]; st.param.u64 [a], %d1; st.param.u64 [a+8], %d0;
             st.param.b32 [b], %r0; call.uni (r), swap, (a, b); ld.param.u64 %d0, [r+0]; ld.param.u64 %d1, [r+8]; }}
           DONE: st.param.u64 [out], %d0; st.param.u64 [out+8], %d1; ret; }}
         .entry k(.param .u64 p0) {{ .reg .b64 %d<9>; .reg .b32 %r<4>; .reg .pred %p<2>; mov.u32 %r0, %tid.x; cvt.u64.u32 %d2, %r0; add.u64 %d3, %d2, 100;
           {{ .param .align 8 .b8 a[16]; .param .b32 b; .param .align 8 .b8 r[16]; st.param.v2.u64 [a], {{%d2, %d3}};
             st.param.b32 [b], %r0; call (r), swap, (a, b); ld.param.u64 %d4, [r]; ld.param.u64 %d5, [r+8]; }}
           ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 16; add.u64 %d0, %d0, %d1; st.global.v2.u64 [%d0], {{%d4, %d5}}; ret; }}"
    ));
    let out = device.upload(&[0_u64; 64]);
    device.run("k", WARP.0, WARP.1, &[out]).unwrap();
    let wanted: Vec<u64> =
        (0..32).flat_map(|i| if i % 2 == 0 { [i, i + 100] } else { [i + 100, i] }).collect();
    assert_eq!(device.download::<u64>(out, 64), wanted);
}

#[test]
fn kernels_and_undefined_functions_cannot_be_called() {
    let text = format!(
        "{HEAD}.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
         .entry big(.param .align 8 .b8 p[4000]) {{ ret; }}
         .entry k(.param .u64 which) {{ .reg .b64 %d<4>; .reg .pred %p; ld.param.u64 %d0, [which]; setp.eq.u64 %p, %d0, 0; mov.u64 %d1, big;
         @%p mov.u64 %d1, vprintf; {{ .param .align 8 .b8 a[4000]; P: .callprototype _ (.param .align 8 .b8 _[4000]); call %d1, (a), P; }} ret; }}"
    );
    for which in [0, 1] {
        let fault = Device::new(&text).run("k", WARP.0, WARP.1, &[which]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidPc, "{fault}");
    }
    let direct = format!("{HEAD}.entry a() {{ ret; }} .entry k() {{ call a; ret; }}");
    assert!(Program::load(&direct).unwrap_err().to_string().contains("`a` is a kernel, not a function"));
}

#[test]
fn calls_of_what_is_no_function() {
    for address in ["0", "8", "0x30000000008", "-1"] {
        let device =
            Device::kernel(&format!("mov.u64 %d0, {address}; P: .callprototype _ (); call %d0, (), P;"));
        let fault = device.run("k", WARP.0, WARP.1, &[]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidPc, "{fault}");
    }
}

#[test]
fn endless_recursion_overflows_the_stack() {
    let text = format!("{HEAD}.func f() {{ call f; ret; }} .entry k() {{ call f; ret; }}");
    let fault = Device::new(&text).run("k", WARP.0, WARP.1, &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
    assert!(fault.message.contains("stack overflow in the call of `f`"), "{fault}");
    let device = Device::kernel("mov.u64 %d0, 1000000; L: alloca.u64 %d1, %d0; bra L;");
    let fault = device.run("k", WARP.0, WARP.1, &[]).unwrap_err();
    assert!(fault.message.contains("stack overflow in an alloca"), "{fault}");
}

#[test]
fn alloca_gives_local_memory() {
    let device = Device::kernel(
        "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; stacksave.u64 %d5;
         cvt.u64.u32 %d2, %r0; add.u64 %d2, %d2, 8; alloca.u64 %d3, %d2; alloca.u64 %d4, 16, 16; st.local.u32 [%d3], %r0;
         st.local.u32 [%d4+12], 7; cvta.local.u64 %d6, %d3; ld.u32 %r1, [%d6]; ld.local.u32 %r2, [%d4+12]; add.u32 %r1, %r1, %r2;
         stackrestore.u64 %d5; alloca.u64 %d7, 8; setp.ne.u64 %p0, %d7, %d3; @%p0 mov.u32 %r1, 0; st.global.u32 [%d0], %r1;",
    );
    let out = device.upload(&[0_u32; 32]);
    device.run("k", WARP.0, WARP.1, &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 32), (7..39).collect::<Vec<_>>());
}

#[test]
fn endless_loops_can_be_cancelled() {
    cancel(Device::kernel("L: bra L;"));
    cancel(Device::kernel("mov.u32 %r0, 0; L: T: .branchtargets L; brx.idx %r0, T;"));
    cancel(Device::kernel("L: bar.sync 0; bra L;"));
    // Recursion that ends only after 2^60 calls.
    let body = "{ .param .b32 a; st.param.b32 [a], %r1; call f, (a); }";
    let text = format!(
        "{HEAD}.func f(.param .b32 n) {{ .reg .b32 %r<2>; .reg .pred %p; ld.param.b32 %r1, [n]; setp.eq.u32 %p, %r1, 0; @%p ret;
         sub.u32 %r1, %r1, 1; {body} {body} ret; }} .entry k() {{ .reg .b32 %r<2>; mov.u32 %r1, 60; {body} ret; }}"
    );
    cancel(Device::new(&text));
}

fn cancel(device: Device) {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            device.cancel.store(true, Ordering::Relaxed);
        });
        let fault = device.run("k", [1000, 1, 1], [256, 1, 1], &[]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Cancelled);
    });
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn shapes_that_are_not_possible_are_refused() {
    let device = Device::kernel("");
    for (grid, block) in
        [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [1025, 1, 1]), ([1, 1, 1], [1 << 16, 1 << 16, 2])]
    {
        assert_eq!(device.run("k", grid, block, &[]).unwrap_err().kind, FaultKind::LaunchFailed);
    }
    device.run("k", [1, 65_535, 1], [1, 1, 64], &[]).unwrap();
}

#[test]
fn modules_are_refused_with_line_and_name() {
    let cases = [
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0}, %d0, %d1, %r0, 0, 0, 1, 1;",
            "line 8: unsupported instruction `wgmma.mma_async.sp",
        ),
        ("tcgen05.wait::ld.sync.aligned;", "unsupported instruction `tcgen05.wait::ld.sync.aligned`"),
        ("add.rn.f32x2 %d0, %d1, %d2;", "unsupported instruction `add.rn.f32x2`"),
        ("add.s32.foo %r0, %r1, %r2;", "unsupported instruction `add.s32.foo`"),
        ("add.s32 %r0, %r1;", "`add.s32` has too few operands"),
        ("add.s32 %r0, %r1, %r2, %r3;", "has 4 operands instead of 3"),
        ("add.s32 %r0, %d1, %r2;", "`%d1` is a B64 register, B32 is needed"),
        ("add.s32 %r0, %r1, %r99;", "`%r99` is not defined"),
        ("@%r0 bra X;", "guard `%r0` is not a predicate"),
        ("bra X;", "label `X` is not defined"),
        ("ld.param.u32 %r0, [p0+8];", "access of 4 bytes at `p0+8` is outside"),
        ("st.param.u32 [p0], %r0;", "parameters of a kernel cannot be written"),
        ("call nothing;", "`nothing` is not a function"),
        ("X: X:", "`X` is declared twice"),
        ("lop3.b32 %r0, %r1, %r2, %r3, 256;", "truth table"),
        ("mov.b64 {%r0, %r1, %r2}, %d0;", "with 3 parts"),
        (".local .b8 x[1000000000];", "`x` is too large"),
        ("bar.arrive 0;", "`bar.arrive` with 1 operands"),
    ];
    for (body, message) in cases {
        let error = Program::load(&crate::harness::kernel(body)).unwrap_err().to_string();
        assert!(error.contains(message), "{error} should contain {message}");
    }
    let missing = format!("{HEAD}.extern .func f(); .extern .global .u32 g; .entry k() {{ call f; ret; }}");
    assert!(
        Program::load(&missing)
            .unwrap_err()
            .to_string()
            .contains("variable `g` is not defined in any module")
    );
}

#[test]
fn modules_are_linked() {
    let first = format!("{HEAD}.extern .func (.param .b32 r) f(.param .b32 a); .extern .global .u32 g; .global .u32 own = 1;
        .weak .entry k(.param .u64 p) {{ .reg .b32 %r<4>; .reg .b64 %d<2>; ld.global.u32 %r0, [g]; ld.global.u32 %r2, [own]; add.u32 %r0, %r0, %r2;
        {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r0; call (r), f, (a); ld.param.b32 %r1, [r]; }}
        ld.param.u64 %d0, [p]; st.global.u32 [%d0], %r1; ret; }}");
    let second = format!("{HEAD}.visible .global .u32 g = 20; .global .u32 own = 2; .weak .entry k(.param .u64 p) {{ trap; }}
        .visible .func (.param .b32 r) f(.param .b32 a) {{ .reg .b32 %r<4>; ld.param.b32 %r0, [a]; ld.global.u32 %r1, [own]; mul.lo.u32 %r0, %r0, %r1; st.param.b32 [r], %r0; ret; }}");
    let device = Device::with(Program::link(&[&first, &second]).unwrap());
    let out = device.upload(&[0_u32]);
    device.run("k", [1, 1, 1], [1, 1, 1], &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [42]);
    assert!(Program::link(&[&second, &second]).unwrap_err().to_string().contains("defined twice"));
    assert!(Program::link(&[&first]).unwrap_err().to_string().contains("not defined in any module"));
}

#[test]
fn attributes_of_kernels() {
    let text = format!("{HEAD}.shared .align 8 .b8 used[24]; .shared .b8 other[1000]; .extern .shared .align 16 .b8 dynamic[];
        .func f() {{ .shared .align 4 .b8 inner[10]; .reg .b32 %r<2>; mov.u32 %r0, inner; ret; }}
        .entry a(.param .u8 x, .param .align 8 .b8 y[24], .param .u16 z) .maxntid 128, 2, 1 {{ .reg .b32 %r<2>; .local .b8 l[100]; mov.u32 %r0, used;
          mov.u32 %r1, dynamic; call f; ret; }} .entry b() {{ ret; }}");
    let program = Program::load(&text).unwrap();
    let a = &program.kernels["a"];
    assert_eq!(a.params.iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>(), [(0, 1), (8, 24), (32, 2)]);
    // 24 and 10 bytes, and padding up to the dynamic variable.
    assert_eq!((a.param_bytes, a.max_threads, a.static_shared, a.local_bytes), (34, 256, 48, 100));
    assert_eq!((a.ptx_version, a.target), (88, 90));
    assert_eq!((program.kernels["b"].static_shared, program.kernels["b"].max_threads), (0, 1024));
}
