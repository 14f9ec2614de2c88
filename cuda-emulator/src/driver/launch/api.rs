// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuLaunchKernel and its relatives.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_abi::CUlaunchConfig;

use super::config::Configuration as _;
use super::{KernelWork, Shape, Updatable};
use crate::driver::capture;
use crate::driver::ffi::In;
use crate::driver::graph::Work;
use crate::driver::module::function::{self, CUfunction};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;

/// Launches in a stream.
pub(super) fn submit(
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
) -> CuResult<()> {
    submit_as(handle, shape, stream, params, extra, None)
}

/// Launches. With `node` only into a capture, where kernels may change the node if required.
fn submit_as(
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
    node: Option<Option<&Arc<Updatable>>>,
) -> CuResult<()> {
    function::find(handle)?;
    let (context, stream) = capture::place_work(stream)?;
    let work = KernelWork::new(handle, shape, &context, params, extra);
    // A failed launch invalidates a capture.
    let work = work.or_else(|error| capture::fail(&stream, error).and(Err(error)))?;
    let work = Arc::new(match node.flatten() {
        Some(node) => work.with_updatable(node),
        None => work,
    });
    if capture::add(&stream, || Ok(Work::Kernel(Arc::clone(&work))))? {
        return Ok(());
    }
    // Its graph launches would follow the graph that contains it, and a changeable launch must be a node.
    if node.is_some() || work.function.kernel()?.launches_graphs {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    context.flush_printf();
    let mark = context.submit_work(&stream, move |_| work.run(None));
    context.end_asynchronous(&mark)
}

fn launch_kernel_ex(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
) -> CuResult<()> {
    let config = config.get()?;
    let (shape, stream) = (config.shape()?, CUstream::new(config.stream as usize));
    let Some((wanted, out)) = config.updatable()? else {
        return submit(function, shape, stream, params, extra);
    };
    let node = wanted.then(Updatable::new);
    submit_as(function, shape, stream, params, extra, Some(node.as_ref()))?;
    node.inspect(|node| out.set_if_wanted(node.handle));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuLaunchKernel + cuLaunchKernel_ptsz => submit(
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, params: In<*const c_void>, extra: In<*mut c_void>) as (
        function,
        Shape {
            grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: false, cluster: None,
        },
        stream, params, extra
    );
    cuLaunchCooperativeKernel + cuLaunchCooperativeKernel_ptsz => submit(
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, params: In<*const c_void>) as (
        function,
        Shape {
            grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: true, cluster: None,
        },
        stream, params, In::NULL
    );
    cuLaunchKernelEx + cuLaunchKernelEx_ptsz => launch_kernel_ex(
        config: In<CUlaunchConfig>, function: CUfunction, params: In<*const c_void>, extra: In<*mut c_void>);
}
