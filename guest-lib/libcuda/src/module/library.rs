// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Libraries: device code for all contexts, and its kernels.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_abi::TraceArguments;
use virtio_cuda_client::protocol::{
    FIRST_VARIABLE, FunctionId, LibraryId, ModuleId, VARIABLE_STEP, VariableId,
};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::{self, Api, CUresult, DefaultStream};
use crate::entry_points;
use crate::ffi::{HostPtr, In, Name, Out};
use crate::handles::{Kind, check, new_handle};
use crate::jit::JitSinks;
use crate::module::image;
use crate::module::{cross, fetch_names, managed_context, not_empty};
use crate::state::modules::Variable;
use crate::state::modules::functions::Owner;

fn load(api: Api, library: Out<u64>, image: UserMemory) -> Result<(), CudaError> {
    library.check()?;
    let handle = new_handle(Kind::Library);
    cross(
        // The runtime keeps an error of the load for ever.
        api.internal(),
        image,
        |call, digest, bytes| calls::library_load_known(call, LibraryId(handle), digest, bytes),
        |call| calls::cuLibraryLoadData(call, LibraryId(handle)),
    )?;
    api.driver.modules.add(handle, 0);
    library.set(handle)
}

fn get_kernel(api: Api, library: u64, name: &CStr) -> Result<u64, CudaError> {
    check(Kind::Library, library)?;
    if let Some(handle) = api.driver.modules.function(library, name)? {
        return Ok(handle);
    }
    let handle = new_handle(Kind::Kernel);
    // Like an error of the load.
    let mut call = api.internal().call().input(name.to_bytes());
    calls::cuLibraryGetKernel(&mut call, LibraryId(library), FunctionId(handle))?;
    api.driver.functions.add(handle, name.to_owned(), Owner::Library(library));
    // If another thread was faster, both handles stay valid.
    api.driver.modules.with(library, |library| *library.functions.entry(name.to_owned()).or_insert(handle))
}

fn get_global(api: Api, library: u64, name: &CStr) -> Result<Variable, CudaError> {
    check(Kind::Library, library)?;
    let context = api.context()?;
    if let Some(variable) = api.driver.modules.variable(library, context.0, name)? {
        return Ok(variable);
    }
    let mut call = api.call().input(name.to_bytes());
    let (address, bytes, managed) = calls::cuLibraryGetGlobal(&mut call, LibraryId(library))?;
    api.note_variable(library, name, Variable { address: address.0, bytes }, managed != 0)
}

/// Returns a variable for copies only: a number in place of its address, so that the session can be made again in another worker, where
/// the address is another one. Where a stream captures, where the program has asked for the address, and with a worker of the release
/// before, it is the address.
fn get_named(api: Api, library: u64, name: &CStr) -> Result<Variable, CudaError> {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_VARIABLE);
    check(Kind::Library, library)?;
    let context = api.context()?;
    if api.driver.captures.any() || api.driver.modules.variable(library, context.0, name)?.is_some() {
        return get_global(api, library, name);
    }
    let key = (context.0, name.to_owned());
    if let Some(variable) = api.driver.modules.with(library, |library| library.named.get(&key).copied())? {
        return Ok(variable);
    }
    let address = NEXT.fetch_add(VARIABLE_STEP, Ordering::Relaxed);
    let mut call = api.call().input(name.to_bytes());
    let bytes = match calls::library_variable(&mut call, LibraryId(library), VariableId(address)) {
        Ok(bytes) if bytes <= VARIABLE_STEP => bytes,
        Ok(_) | Err(CudaError::NOT_SUPPORTED) => return get_global(api, library, name),
        Err(error) => return Err(error),
    };
    let variable = Variable { address, bytes };
    api.track_variable(variable, library);
    api.driver.modules.with(library, |library| library.named.insert(key, variable))?;
    Ok(variable)
}

/// As `cuLibraryGetGlobal`, for this project's runtime, which finds it with dlsym: the address is for copies of the contents only.
/// Not part of CUDA.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_library_variable(
    dptr: Out<u64>,
    bytes: Out<usize>,
    library: u64,
    name: Name,
) -> CUresult {
    entry::call(
        const { &entry::Call::new("virtio_cuda_library_variable") },
        DefaultStream::Legacy,
        TraceArguments::new,
        |api| {
            let variable = get_named(api, library, &not_empty(&name)?)?;
            dptr.set(variable.address)?;
            bytes.set(variable.bytes as usize)
        },
    )
}

fn get_managed(api: Api, library: u64, name: &CStr) -> Result<Variable, CudaError> {
    check(Kind::Library, library)?;
    // Context 0 in the table: a managed variable is the same in all contexts.
    if let Some(variable) = api.driver.modules.variable(library, 0, name)? {
        return Ok(variable);
    }
    let mut call = api.call().input(name.to_bytes());
    let (address, bytes) = calls::cuLibraryGetManaged(&mut call, LibraryId(library))?;
    let variable = Variable { address: address.0, bytes };
    let variable = api.driver.memory.add_managed_variable(api, variable, library, || managed_context(api))?;
    api.driver.modules.with(library, |library| library.variables.insert((0, name.to_owned()), variable))?;
    Ok(variable)
}

/// Returns the library's module in the current context. The handle is the same each time.
pub fn get_module(api: Api, library: u64) -> Result<u64, CudaError> {
    check(Kind::Library, library)?;
    let context = api.context()?.0;
    if let Some(module) =
        api.driver.modules.with(library, |library| library.modules.get(&context).copied())?
    {
        return Ok(module);
    }
    let module = new_handle(Kind::Module);
    calls::cuLibraryGetModule(&mut api.call(), LibraryId(library), ModuleId(module))?;
    api.driver.modules.add(module, context);
    api.driver.modules.with(library, |library| *library.modules.entry(context).or_insert(module))
}

fn get_function(api: Api, kernel: u64) -> Result<u64, CudaError> {
    let context = api.context()?.0;
    let known = api.driver.functions.get(kernel)?;
    let library = match known.owner {
        Owner::Library(library) => library,
        // The function of a kernel is accepted in its place.
        Owner::Kernel(_) => return Ok(kernel),
        Owner::Module(_) => return Err(CudaError::INVALID_HANDLE),
    };
    let cached = |library: &mut crate::state::modules::Module| {
        library.kernel_functions.get(&(context, kernel)).copied()
    };
    if let Some(function) = api.driver.modules.with(library, cached)? {
        return Ok(function);
    }
    let function = new_handle(Kind::Function);
    calls::cuKernelGetFunction(&mut api.call(), FunctionId(kernel), FunctionId(function))?;
    api.driver.functions.add(function, known.name.clone(), Owner::Kernel(kernel));
    api.driver
        .modules
        .with(library, |library| *library.kernel_functions.entry((context, kernel)).or_insert(function))
}

/// Stores the results of compiler options: no time was spent here, and the logs are empty. The device compiles with its
/// defaults.
fn answer_options(options: In<u32>, values: HostPtr, count: u32) -> Result<(), CudaError> {
    JitSinks::parse(options, values, count)?.1.store_nothing()
}

entry_points! {
    /// Loads an image for all contexts.
    call cuLibraryLoadData(api, library: Out<u64>, code: HostPtr, jitOptions: In<u32>, jitOptionsValues: HostPtr,
        numJitOptions: u32, _libraryOptions: In<i32>, _libraryOptionValues: HostPtr, _numLibraryOptions: u32) {
        answer_options(jitOptions, jitOptionsValues, numJitOptions)?;
        load(api, library, image::of(api, code)?.memory())
    }

    /// Loads a file of the guest for all contexts.
    call cuLibraryLoadFromFile(api, library: Out<u64>, fileName: Name, jitOptions: In<u32>, jitOptionsValues: HostPtr,
        numJitOptions: u32, _libraryOptions: In<i32>, _libraryOptionValues: HostPtr, _numLibraryOptions: u32) {
        library.check()?;
        answer_options(jitOptions, jitOptionsValues, numJitOptions)?;
        load(api, library, image::of_file(api, fileName)?.memory())
    }

    /// Unloads a library.
    call cuLibraryUnload(api, library: u64) {
        api.driver.modules.with(library, |_| ())?;
        // The runtime takes no notice of errors.
        calls::cuLibraryUnload(&mut api.internal().call(), LibraryId(library))?;
        let removed = api.driver.modules.remove(library)?;
        api.driver.functions.remove_of(Owner::Library(library));
        api.driver.memory.remove_variables(library);
        for module in removed.modules.into_values() {
            // The library's modules end with it.
            api.driver.modules.remove(module)?;
            api.driver.functions.remove_of(Owner::Module(module));
            api.driver.memory.remove_variables(module);
            api.driver.textures.references.forget_module(module);
        }
        Ok(())
    }

    /// Returns a kernel by name. The handle is the same each time.
    call cuLibraryGetKernel(api, pKernel: Out<u64>, library: u64, name: Name) {
        pKernel.check()?;
        let name = name.get()?;
        if name.is_empty() {
            api.driver.modules.with(library, |_| ())?;
            return Err(CudaError::NOT_FOUND);
        }
        pKernel.set(get_kernel(api, library, &name)?)
    }

    /// Returns all kernels, or as many as there is room for.
    call cuLibraryEnumerateKernels(api, kernels: Out<u64>, numKernels: u32, lib: u64) {
        kernels.check()?;
        api.driver.modules.with(lib, |_| ())?;
        let names = fetch_names(api, |call| calls::library_kernel_names(call, LibraryId(lib)))?;
        for (index, name) in names.iter().take(numKernels as usize).enumerate() {
            kernels.set_at(index, get_kernel(api, lib, name)?)?;
        }
        Ok(())
    }

    /// Returns address and size of a variable in the current context. One of the pointers may be NULL.
    call cuLibraryGetGlobal(api, dptr: Out<u64>, bytes: Out<usize>, library: u64, name: Name) {
        if dptr.is_null() && bytes.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let variable = get_global(api, library, &not_empty(&name)?)?;
        dptr.set_if_wanted(variable.address);
        bytes.set_if_wanted(variable.bytes as usize);
        Ok(())
    }

    /// Returns address and size of a managed variable. One of the pointers may be NULL.
    call cuLibraryGetManaged(api, dptr: Out<u64>, bytes: Out<usize>, library: u64, name: Name) {
        if dptr.is_null() && bytes.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let variable = get_managed(api, library, &not_empty(&name)?)?;
        dptr.set_if_wanted(variable.address);
        bytes.set_if_wanted(variable.bytes as usize);
        Ok(())
    }

    /// Always fails: functions do not have addresses that host and device share.
    call cuLibraryGetUnifiedFunction(api, fptr: Out<usize>, library: u64, symbol: Name) {
        fptr.check()?;
        if library == 0 {
            return Err(CudaError::INVALID_HANDLE);
        }
        api.driver.modules.with(library, |_| ()).map_err(|_| CudaError::INVALID_VALUE)?;
        not_empty(&symbol)?;
        // No symbol is such a function.
        Err(CudaError::INVALID_VALUE)
    }

    /// Returns the library's module in the current context.
    call cuLibraryGetModule(api, pMod: Out<u64>, library: u64) {
        pMod.check()?;
        pMod.set(get_module(api, library)?)
    }

    /// Returns the kernel's function in the current context.
    call cuKernelGetFunction(api, pFunc: Out<u64>, kernel: u64) {
        pFunc.check()?;
        pFunc.set(get_function(api, kernel)?)
    }

    /// Returns the library of a kernel.
    call cuKernelGetLibrary(api, pLib: Out<u64>, kernel: u64) {
        match api.driver.functions.get(kernel)?.owner {
            Owner::Library(library) => pLib.set(library),
            _ => Err(CudaError::INVALID_HANDLE),
        }
    }
}
