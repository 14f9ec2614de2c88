// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel nodes and their attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuda_abi::{CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1};

use super::body::{self, CUgraph, CUgraphNode};
use super::edit_api::{add, plain};
use super::work::Work;
use crate::driver::context::{self, CUcontext, Context};
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::launch::config::{ATTRIBUTE_COOPERATIVE, ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE};
use crate::driver::launch::{KernelWork, Shape, Updatable};
use crate::driver::module::function::{self, CUfunction};
use crate::driver::result::{CUresult, CuResult};

/// The range of CUkernelNodeAttrID.
const ATTRIBUTES: std::ops::RangeInclusive<u32> = 1..=16;

/// Returns the launch of node parameters.
pub(super) fn kernel_of(params: &CUDA_KERNEL_NODE_PARAMS) -> CuResult<Work> {
    let CUDA_KERNEL_NODE_PARAMS_v1 { function, grid, block, shared_bytes, params: values, extra, .. } =
        params.v1;
    let (handle, context): (_, Arc<Context>) = if function == 0 {
        (CUfunction::new(params.kernel as usize), context::usable(CUcontext::new(params.context as usize))?)
    } else {
        let handle = CUfunction::new(function as usize);
        (handle, function::find(handle)?.home_context()?)
    };
    // SAFETY: the program's parameters, in which it promises lists as cuLaunchKernel demands, or NULL.
    let (values, extra) = unsafe { (In::new(values as *const _), In::new(extra as *const _)) };
    let shape = Shape { grid, block, shared: shared_bytes, cooperative: false, cluster: None };
    Ok(Work::Kernel(Arc::new(KernelWork::new(handle, shape, &context, values, extra)?)))
}

pub(super) fn kernel_of_v1(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CuResult<Work> {
    kernel_of(&CUDA_KERNEL_NODE_PARAMS { v1: *params, kernel: 0, context: 0 })
}

/// Returns the launch of a kernel node.
fn launch_of(node: CUgraphNode) -> CuResult<Arc<KernelWork>> {
    match body::work_of(node)? {
        Work::Kernel(kernel) => Ok(kernel),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Returns a launch in the form of the API. The pointers are valid until the node changes.
pub(super) fn show(kernel: &KernelWork) -> CUDA_KERNEL_NODE_PARAMS {
    let v1 = CUDA_KERNEL_NODE_PARAMS_v1 {
        function: kernel.handle.0 as u64,
        grid: kernel.shape.grid,
        block: kernel.shape.block,
        shared_bytes: kernel.shape.shared,
        params: kernel.parameter_pointers() as usize,
        ..CUDA_KERNEL_NODE_PARAMS_v1::ZERO
    };
    CUDA_KERNEL_NODE_PARAMS { v1, kernel: 0, context: kernel.context.handle.0 as u64 }
}

fn add_kernel_node_v1(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, kernel_of_v1(&params.get()?)?)
}

fn add_kernel_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, kernel_of(&params.get()?)?)
}

fn get_params_v1(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>) -> CuResult<()> {
    params.check()?;
    params.set_if_wanted(show(&*launch_of(node)?).v1);
    Ok(())
}

fn get_params(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>) -> CuResult<()> {
    params.check()?;
    params.set_if_wanted(show(&*launch_of(node)?));
    Ok(())
}

/// Returns new parameters with the old attributes.
fn keep_attributes(node: CUgraphNode, work: Work) -> CuResult<Work> {
    let old = launch_of(node)?;
    match work {
        Work::Kernel(kernel) if !old.attributes.is_empty() => {
            Ok(Work::Kernel(Arc::new(kernel.in_place_of(&old)?)))
        }
        work => Ok(work),
    }
}

fn set_params_v1(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> CuResult<()> {
    launch_of(node)?;
    body::set_work(node, keep_attributes(node, kernel_of_v1(&params.get()?)?)?)
}

fn set_params(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) -> CuResult<()> {
    launch_of(node)?;
    body::set_work(node, keep_attributes(node, kernel_of(&params.get()?)?)?)
}

fn get_attribute(node: CUgraphNode, attribute: u32, value: Out<[u32; 16]>) -> CuResult<()> {
    value.check()?;
    let kernel = launch_of(node)?;
    if !ATTRIBUTES.contains(&attribute) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut default = [0; 16];
    if attribute == ATTRIBUTE_COOPERATIVE {
        default[0] = kernel.shape.cooperative.into();
    }
    value.set_if_wanted(kernel.attributes.get(&attribute).copied().unwrap_or(default));
    Ok(())
}

fn change(node: CUgraphNode, attributes: BTreeMap<u32, [u32; 16]>) -> CuResult<()> {
    let kernel = launch_of(node)?.with_attributes(attributes)?;
    body::set_work(node, Work::Kernel(Arc::new(kernel)))
}

fn set_attribute(node: CUgraphNode, attribute: u32, place: InOut<[u32; 16]>) -> CuResult<()> {
    let value = place.get()?;
    let mut attributes = launch_of(node)?.attributes.clone();
    if !ATTRIBUTES.contains(&attribute) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if attribute == ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        let value = set_updatable(node, value)?;
        // NVIDIA's driver also stores the value there.
        place.set_if_wanted(value);
        return Ok(());
    }
    attributes.insert(attribute, value);
    change(node, attributes)
}

/// Makes a node changeable by kernels. Returns the attribute, which then contains the CUgraphDeviceNode.
fn set_updatable(node: CUgraphNode, value: [u32; 16]) -> CuResult<[u32; 16]> {
    let kernel = launch_of(node)?;
    if value[0] > 1 || value[2..4] != [0; 2] {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if value[0] == 0 {
        // This cannot be undone.
        return if kernel.updatable.is_some() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(value) };
    }
    let updatable = kernel.updatable.clone().unwrap_or_else(Updatable::new);
    let kernel = kernel.with_updatable(&updatable);
    let value = kernel.attributes.get(&ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).copied().unwrap_or(value);
    body::set_work(node, Work::Kernel(Arc::new(kernel)))?;
    Ok(value)
}

fn copy_attributes(to: CUgraphNode, from: CUgraphNode) -> CuResult<()> {
    let from = launch_of(from)?;
    if from.updatable.is_some() || launch_of(to)?.updatable.is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut attributes = from.attributes.clone();
    attributes.entry(ATTRIBUTE_COOPERATIVE).or_insert_with(|| {
        let mut value = [0; 16];
        value[0] = from.shape.cooperative.into();
        value
    });
    change(to, attributes)
}

crate::driver::ffi::entries! { after_init
    cuGraphAddKernelNode => add_kernel_node_v1(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_KERNEL_NODE_PARAMS_v1>);
    cuGraphAddKernelNode_v2 => add_kernel_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_KERNEL_NODE_PARAMS>);
    cuGraphKernelNodeGetParams => get_params_v1(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>);
    cuGraphKernelNodeGetParams_v2 => get_params(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>);
    cuGraphKernelNodeSetParams => set_params_v1(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>);
    cuGraphKernelNodeSetParams_v2 => set_params(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>);
    cuGraphKernelNodeGetAttribute => get_attribute(node: CUgraphNode, attribute: u32, value: Out<[u32; 16]>);
    cuGraphKernelNodeSetAttribute => set_attribute(node: CUgraphNode, attribute: u32, value: InOut<[u32; 16]>);
    cuGraphKernelNodeCopyAttributes => copy_attributes(to: CUgraphNode, from: CUgraphNode);
}
