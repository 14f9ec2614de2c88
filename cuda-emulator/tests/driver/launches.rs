// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches: results, parameters, limits, asynchrony.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cuda_abi::{CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUlaunchAttribute, CUlaunchConfig};

use crate::cu::{self, cu, download, function, launch, launch_in, params, upload};

const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
const COOPERATIVE_LAUNCH_TOO_LARGE: i32 = 720;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;

#[test]
fn a_grid_computes_all_elements() {
    let module = cu::load_module();
    let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let (source, target, count) = (upload(&input), upload(&[0f32; 1000]), 1000i32);
    let scale = function(module, "scale");
    assert_eq!(launch(scale, 8, 128, 0, params![target, source, count]), SUCCESS);
    let output: Vec<f32> = download(target, 1000);
    assert!(output.iter().zip(&input).all(|(out, value)| *out == value * 3.0));
}

#[test]
fn parameters_arrive_in_both_forms() {
    #[repr(C)]
    struct Mixed {
        a: i8,
        d: f64,
        s: i16,
    }
    let module = cu::load_module();
    let mixed = function(module, "mixed");
    let out = upload(&[0i32; 6]);
    let (c, m, n, s) = (10i8, Mixed { a: 11, d: 22.0, s: 66 }, 33i32, 55i16);
    assert_eq!(launch(mixed, 1, 1, 0, params![out, c, m, n, s]), SUCCESS);
    assert_eq!(download::<i32>(out, 6), [10, 11, 22, 66, 33, 55]);

    let mut packed = [0u8; 46];
    packed[..8].copy_from_slice(&out.to_le_bytes());
    packed[8] = 1;
    packed[16] = 2;
    packed[24..32].copy_from_slice(&3f64.to_le_bytes());
    packed[32] = 4;
    packed[40] = 5;
    packed[44] = 6;
    let mut size = packed.len();
    let size: *mut c_void = (&raw mut size).cast();
    // CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE are small numbers in a list of pointers.
    let key = |value: usize| std::ptr::without_provenance_mut::<c_void>(value);
    let mut extra = [key(1), packed.as_mut_ptr().cast(), key(2), size, null_mut()];
    let both = params![out, c, m, n, s];
    for (params, expected) in [(null_mut(), SUCCESS), (both, INVALID_VALUE)] {
        let extra = extra.as_mut_ptr();
        assert_eq!(cu!(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, null_mut(), params, extra)), expected);
    }
    assert_eq!(download::<i32>(out, 6), [1, 2, 3, 4, 5, 6]);
    assert_eq!(launch(mixed, 1, 1, 0, null_mut()), INVALID_VALUE);
}

#[test]
fn impossible_launches_are_refused_and_harm_nothing() {
    let module = cu::load_module();
    let bounded = function(module, "bounded");
    let cases = [
        ((0, 1, 0), INVALID_VALUE),
        ((1, 0, 0), INVALID_VALUE),
        ((1, 129, 0), INVALID_VALUE),
        ((1, 2048, 0), INVALID_VALUE),
        ((1, 1, (48 << 10) + 1), INVALID_VALUE),
        ((1, 1, u32::MAX), INVALID_VALUE),
        ((1, 128, 48 << 10), SUCCESS),
    ];
    for ((grid, block, shared), expected) in cases {
        assert_eq!(launch(bounded, grid, block, shared, null_mut()), expected, "{grid} {block} {shared}");
    }
    assert_eq!(cu!(cuFuncSetAttribute(bounded, MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10)), SUCCESS);
    assert_eq!(
        cu!(cuFuncSetAttribute(bounded, MAX_DYNAMIC_SHARED_SIZE_BYTES, (227 << 10) + 1)),
        INVALID_VALUE
    );
    assert_eq!(launch(bounded, 1, 1, 227 << 10, null_mut()), SUCCESS);
    assert_eq!(launch(null_mut(), 1, 1, 0, null_mut()), INVALID_HANDLE);
    assert_eq!(launch(module, 1, 1, 0, null_mut()), INVALID_HANDLE);
    let none = null_mut();
    assert_eq!(
        cu!(cuLaunchCooperativeKernel(bounded, 1_000_000, 1, 1, 128, 1, 1, 0, none, null_mut())),
        COOPERATIVE_LAUNCH_TOO_LARGE
    );
    assert_eq!(cu!(cuLaunchCooperativeKernel(bounded, 4, 1, 1, 128, 1, 1, 0, none, null_mut())), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
}

#[test]
fn shared_memory_is_the_blocks_own() {
    let module = cu::load_module();
    let out = upload(&[0i32; 256]);
    assert_eq!(launch(function(module, "reverse"), 1, 256, 1024, params![out]), SUCCESS);
    assert_eq!(download::<i32>(out, 256), (0..256).rev().collect::<Vec<_>>());
    assert_eq!(launch(function(module, "large_static"), 1, 256, 0, params![out]), SUCCESS);
    assert_eq!(download::<i32>(out, 256), (0..256).map(|i| i ^ 1).collect::<Vec<_>>());
}

#[test]
fn launches_return_before_the_kernel_ends_and_streams_run_side_by_side() {
    let module = cu::load_module();
    let wait_for = function(module, "wait_for");
    let (mut flag, mut one, mut two) = (0u64, null_mut(), null_mut());
    assert_eq!(cu!(cuMemAllocManaged(&mut flag, 8, 1)), SUCCESS);
    let seen = upload(&[0i32; 2]);
    let seen_by_two = seen + 4;
    assert_eq!(cu!(cuStreamCreate(&mut one, 1)), SUCCESS);
    assert_eq!(cu!(cuStreamCreate(&mut two, 1)), SUCCESS);
    assert_eq!(launch_in(one, wait_for, 1, 1, 0, params![flag, seen]), SUCCESS);
    assert_eq!(launch_in(two, wait_for, 1, 1, 0, params![flag, seen_by_two]), SUCCESS);
    assert_eq!(cu!(cuStreamQuery(one)), NOT_READY);
    assert_eq!(cu!(cuStreamQuery(two)), NOT_READY);
    // SAFETY: managed memory, which the host may write while kernels read it.
    unsafe { (flag as *mut i32).write_volatile(42) };
    assert_eq!(cu!(cuStreamSynchronize(one)), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(two)), SUCCESS);
    assert_eq!(download::<i32>(seen, 2), [42, 42]);
    assert_eq!(cu!(cuMemFree_v2(flag)), SUCCESS);
}

#[test]
fn clusters_that_cannot_run_are_refused() {
    const INVALID_CLUSTER_SIZE: i32 = 912;
    const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: u32 = 14;
    const CLUSTER_DIMENSION: u32 = 4;
    let ptx = c".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry free() { ret; }\n
        .visible .entry pairs() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }";
    cu::use_primary_context();
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, ptx.as_ptr().cast())), SUCCESS);
    let launch_clusters = |name: &str, grid: u32, cluster: u32, large: i32| {
        let kernel = function(module, name);
        assert_eq!(cu!(cuFuncSetAttribute(kernel, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, large)), SUCCESS);
        let mut attribute = CUlaunchAttribute { id: CLUSTER_DIMENSION, ..CUlaunchAttribute::ZERO };
        attribute.value[..3].copy_from_slice(&[cluster, 1, 1]);
        let config = CUlaunchConfig {
            grid: [grid, 1, 1],
            block: [32, 1, 1],
            attributes: (&raw mut attribute).addr(),
            attribute_count: u32::from(cluster != 0),
            ..CUlaunchConfig::ZERO
        };
        let mut active = -1;
        let occupancy = cu!(cuOccupancyMaxActiveClusters(&mut active, kernel, &config));
        let launched = cu!(cuLaunchKernelEx(&config, kernel, null_mut(), null_mut()));
        // No device holds a cluster of more than 16 blocks; the answer is 0 then.
        match (name, cluster) {
            ("pairs", 0) => {}
            (_, 17) => assert_eq!((occupancy, active), (SUCCESS, 0)),
            _ => assert_eq!(occupancy, launched, "{name} {grid} {cluster} {large}"),
        }
        launched
    };
    let cases = [
        ("free", 16, 8, 0, SUCCESS),
        ("free", 16, 16, 0, INVALID_CLUSTER_SIZE),
        ("free", 18, 9, 0, INVALID_CLUSTER_SIZE),
        ("free", 18, 9, 1, SUCCESS),
        ("free", 32, 16, 1, SUCCESS),
        ("free", 17, 17, 1, INVALID_CLUSTER_SIZE),
        ("free", 7, 2, 0, INVALID_CLUSTER_SIZE),
        ("pairs", 4, 0, 0, SUCCESS),
        ("pairs", 3, 0, 0, INVALID_CLUSTER_SIZE),
    ];
    for (name, grid, cluster, large, expected) in cases {
        assert_eq!(launch_clusters(name, grid, cluster, large), expected, "{name} {grid} {cluster} {large}");
    }
    // In graphs: refused when the node is made, or when the stream captures.
    let mut graph = null_mut();
    assert_eq!(cu!(cuGraphCreate(&mut graph, 0)), SUCCESS);
    let (mut node, pairs) = (null_mut(), function(module, "pairs"));
    let v1 = CUDA_KERNEL_NODE_PARAMS_v1 {
        function: pairs as u64,
        grid: [3, 1, 1],
        block: [1; 3],
        ..CUDA_KERNEL_NODE_PARAMS_v1::ZERO
    };
    let mut parameters = CUDA_KERNEL_NODE_PARAMS { v1, kernel: 0, context: 0 };
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, &parameters)), INVALID_CLUSTER_SIZE);
    parameters.v1.grid = [4, 1, 1];
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, &parameters)), SUCCESS);
    assert_eq!(cu!(cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
}
