// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Attributes of functions and kernels. Driver and device accept a kernel in place of a function.

use virtio_cuda_client::protocol::FunctionId;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::module::library::get_module;
use crate::state::modules::answers::Query;
use crate::state::modules::functions::Owner;

/// `CU_FUNCTION_LOADING_STATE_LOADED`.
const LOADED: i32 = 1;

/// Returns an attribute of a function.
pub fn get_attribute(api: Api, attribute: i32, function: u64) -> Result<i32, CudaError> {
    let query = Query::Attribute { context: api.context()?.0, attribute };
    let ask = || calls::cuFuncGetAttribute(&mut api.in_context()?, attribute, FunctionId(function));
    api.driver.functions.answer(function, query, ask)
}

/// Query functions refuse a null handle as an invalid value.
fn not_null(function: u64) -> Result<(), CudaError> {
    if function == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

fn param_info(
    api: Api,
    function: u64,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Result<(), CudaError> {
    offset.check()?;
    not_null(function)?;
    let known = api.driver.functions.get(function)?;
    let parameters = known.parameters(api, function)?;
    let layout = parameters.layouts.get(index).ok_or(CudaError::INVALID_VALUE)?;
    size.set_if_wanted(layout.bytes as usize);
    offset.set(layout.offset as usize)
}

/// Returns the name of a kernel or of a function. Here the driver does not accept one in place of the other.
fn name(api: Api, function: u64, kernel: bool, name: Out<*const i8>) -> Result<(), CudaError> {
    name.check()?;
    not_null(function)?;
    let known = api.driver.functions.get(function)?;
    if kernel != matches!(known.owner, Owner::Library(_)) {
        return Err(CudaError::INVALID_HANDLE);
    }
    // The string lives as long as the function is in the table, that is until its module is unloaded.
    name.set(known.name.as_ptr())
}

impl Api {
    /// Must be called after a change of attributes of a function or kernel: what the device has accepted may be refused now.
    fn attributes_changed(&self, function: u64) {
        self.driver.functions.attributes_changed(function);
        self.driver.kept.forget_kernels();
    }
}

entry_points! {
    /// Returns an attribute of a function.
    call cuFuncGetAttribute(api, pi: Out<i32>, attrib: i32, hfunc: u64) {
        pi.check()?;
        pi.set(get_attribute(api, attrib, hfunc)?)
    }

    /// Sets an attribute of a function.
    call cuFuncSetAttribute(api, hfunc: u64, attrib: i32, value: i32) {
        let set = calls::cuFuncSetAttribute(&mut api.in_context()?, FunctionId(hfunc), attrib, value);
        api.attributes_changed(hfunc);
        set
    }

    /// No effect since compute capability 5.0.
    call cuFuncSetSharedMemConfig(api, hfunc: u64, config: i32) {
        api.driver.functions.get(hfunc)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Returns the module of a function.
    call cuFuncGetModule(api, hmod: Out<u64>, hfunc: u64) {
        hmod.check()?;
        not_null(hfunc)?;
        match api.driver.functions.get(hfunc)?.owner {
            Owner::Module(module) => hmod.set(module),
            Owner::Kernel(kernel) => match api.driver.functions.get(kernel)?.owner {
                Owner::Library(library) => hmod.set(get_module(api, library)?),
                _ => Err(CudaError::INVALID_HANDLE),
            },
            Owner::Library(_) => Err(CudaError::INVALID_HANDLE),
        }
    }

    /// Returns the mangled name of a function.
    call cuFuncGetName(api, pName: Out<*const i8>, hfunc: u64) {
        name(api, hfunc, false, pName)
    }

    /// Returns offset and size of a parameter in the packed block.
    call cuFuncGetParamInfo(api, func: u64, paramIndex: usize, paramOffset: Out<usize>, paramSize: Out<usize>) {
        param_info(api, func, paramIndex, paramOffset, paramSize)
    }

    /// Reports the function as loaded: the device loads it when it is needed.
    call cuFuncIsLoaded(api, state: Out<i32>, function: u64) {
        api.driver.functions.get(function)?;
        state.set(LOADED)
    }

    /// Fetches the layout of the parameters, for this side. The device loads the function when it is needed.
    call cuFuncLoad(api, function: u64) {
        api.driver.functions.get(function)?.parameters(api, function).map(|_| ())
    }

    /// Returns an attribute of a kernel on a device.
    call cuKernelGetAttribute(api, pi: Out<i32>, attrib: i32, kernel: u64, dev: i32) {
        pi.check()?;
        let device = api.driver.devices.check(dev)?.on_wire();
        let ask = || calls::cuKernelGetAttribute(&mut api.call(), attrib, FunctionId(kernel), device);
        pi.set(api.driver.functions.answer(kernel, Query::KernelAttribute { device: dev, attribute: attrib }, ask)?)
    }

    /// Sets an attribute of a kernel on a device.
    call cuKernelSetAttribute(api, attrib: i32, val: i32, kernel: u64, dev: i32) {
        let device = api.driver.devices.check(dev)?.on_wire();
        let set = calls::cuKernelSetAttribute(&mut api.call(), attrib, val, FunctionId(kernel), device);
        api.attributes_changed(kernel);
        set
    }

    /// Sets the preferred cache configuration of a kernel on a device.
    call cuKernelSetCacheConfig(api, kernel: u64, config: i32, dev: i32) {
        let device = api.driver.devices.check(dev)?.on_wire();
        calls::cuKernelSetCacheConfig(&mut api.call(), FunctionId(kernel), config, device)
    }

    /// Returns the mangled name of a kernel.
    call cuKernelGetName(api, pName: Out<*const i8>, hfunc: u64) {
        name(api, hfunc, true, pName)
    }

    /// Returns offset and size of a parameter in the packed block.
    call cuKernelGetParamInfo(api, kernel: u64, paramIndex: usize, paramOffset: Out<usize>, paramSize: Out<usize>) {
        param_info(api, kernel, paramIndex, paramOffset, paramSize)
    }
}
