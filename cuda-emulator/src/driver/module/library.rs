// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries: programs without a context, which become a module in each context that uses them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::function::{self, CUkernel, Function, Home};
use super::image::{self, Image, JitOptions};
use super::{CUmodule, Module, read_file};
use crate::code::program::Program;
use crate::driver::context::{self, Context};
use crate::driver::device::{self, CUdeviceptr};
use crate::driver::ffi::{In, InOut, Out, Text};
use crate::driver::handle::{Handle, Registry};
use crate::driver::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// A library's handle.
pub type CUlibrary = Handle<Library>;

static LIBRARIES: Registry<Library> = Registry::new();

impl crate::driver::handle::Object for Library {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Library);
}

/// A loaded program.
pub struct Library {
    pub(crate) handle: CUlibrary,
    pub(crate) image: Arc<Image>,
    /// The managed variables, which all contexts share, by their index among the program's variables.
    managed: HashMap<usize, CUdeviceptr>,
    kernels: Mutex<HashMap<String, CUkernel>>,
    /// The modules created so far, by context id.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

impl Library {
    fn load(image: Arc<Image>) -> CuResult<Arc<Library>> {
        let managed = allocate_managed(&image.program)?;
        let handle = Handle::unique();
        let kernels = Mutex::default();
        let library = Arc::new(Library { handle, image, managed, kernels, modules: Mutex::default() });
        LIBRARIES.insert(handle, Arc::clone(&library));
        Ok(library)
    }

    /// Returns the kernel with this name, with the same handle each time.
    fn kernel(self: &Arc<Self>, name: &str) -> CuResult<CUkernel> {
        if !self.image.program.kernels.contains_key(name) {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(name) {
            return Ok(*found);
        }
        let made = Function::publish(Home::Library(Arc::clone(self)), name)?.cast();
        kernels.insert(name.to_owned(), made);
        Ok(made)
    }

    /// Returns the library's module in a context, created at the first use.
    pub(crate) fn module(&self, context: &Arc<Context>) -> CuResult<Arc<Module>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        let module = Module::load(context, Arc::clone(&self.image), self.managed.clone(), true)?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }

    fn unload(&self) {
        LIBRARIES.remove(self.handle);
        let kernels = std::mem::take(&mut *self.kernels.lock().unwrap_or_else(PoisonError::into_inner));
        kernels.into_values().for_each(|kernel| function::forget(kernel.cast()));
        let modules = std::mem::take(&mut *self.modules.lock().unwrap_or_else(PoisonError::into_inner));
        modules.values().for_each(|module| module.unload());
        free_managed(&self.managed);
    }
}

/// Returns the names of a program's kernels, sorted.
pub(crate) fn kernel_names(program: &Program) -> Vec<&str> {
    let mut names: Vec<_> = program.kernels.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Allocates the managed variables on the first device. All devices can access them.
fn allocate_managed(program: &Program) -> CuResult<HashMap<usize, CUdeviceptr>> {
    let device = device::device(0)?;
    let mut managed = HashMap::new();
    for (index, global) in program.globals.iter().enumerate().filter(|(_, global)| global.managed) {
        let bytes = global.bytes.max(1);
        let address = device.allocate_aligned(Handle::NULL, bytes, global.align, RangeKind::Managed, None);
        let address = address.inspect_err(|_| free_managed(&managed))?;
        managed.insert(index, address);
        // Addresses of other variables differ between contexts: only the plain bytes are the same for all.
        if device.memory.write(address, &global.init).is_err() {
            free_managed(&managed);
            return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
    }
    Ok(managed)
}

fn free_managed(managed: &HashMap<usize, CUdeviceptr>) {
    let Ok(device) = device::device(0) else { return };
    for address in managed.values() {
        let _ = device.free(*address);
    }
}

/// Drops the modules of a context that is being destroyed.
pub(crate) fn forget_modules_of(context: u64) {
    for library in LIBRARIES.all() {
        library.modules.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
    }
}

/// As [`super::cuda_emulator_module_bytes`], of a library in one context.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_emulator_library_bytes(library: CUlibrary) -> u64 {
    LIBRARIES.get(library).map_or(0, |library| super::variable_bytes(&library.image.program))
}

fn find(handle: CUlibrary) -> CuResult<Arc<Library>> {
    LIBRARIES.get(handle).ok_or_else(|| handle.refusal())
}

/// Both load calls, with `count` library options. These say what the caller does with the image afterwards, which is copied here in
/// any case.
fn load_image(
    out: Out<CUlibrary>,
    image: *const c_void,
    jit: &JitOptions,
    options: In<u32>,
    count: u32,
) -> CuResult<()> {
    /// CU_LIBRARY_NUM_OPTIONS
    const OPTIONS: u32 = 2;
    out.check()?;
    for index in 0..count as usize {
        if options.at(index)? >= OPTIONS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    let image = image::load(image, jit)?;
    out.set_if_wanted(Library::load(image)?.handle);
    Ok(())
}

fn load_file(
    out: Out<CUlibrary>,
    path: Text,
    jit: &JitOptions,
    options: In<u32>,
    count: u32,
) -> CuResult<()> {
    out.check()?;
    let image = read_file(path)?;
    load_image(out, image.as_ptr().cast(), jit, options, count)
}

fn library_unload(handle: CUlibrary) -> CuResult<()> {
    find(handle)?.unload();
    Ok(())
}

fn library_get_kernel(out: Out<CUkernel>, handle: CUlibrary, name: Text) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.kernel(&name.text()?)?);
    Ok(())
}

fn library_get_kernel_count(count: Out<u32>, handle: CUlibrary) -> CuResult<()> {
    count.check()?;
    count.set_if_wanted(find(handle)?.image.program.kernels.len() as u32);
    Ok(())
}

fn library_enumerate_kernels(out: Out<CUkernel>, room: u32, handle: CUlibrary) -> CuResult<()> {
    out.check()?;
    let library = find(handle)?;
    for (index, name) in kernel_names(&library.image.program).into_iter().take(room as usize).enumerate() {
        // SAFETY: less than `room`, as many elements as the caller says that the array has.
        unsafe { out.element(index) }.set_if_wanted(library.kernel(name)?);
    }
    Ok(())
}

fn library_get_module(out: Out<CUmodule>, handle: CUlibrary) -> CuResult<()> {
    out.check()?;
    let library = find(handle)?;
    out.set_if_wanted(library.module(&context::current()?)?.handle);
    Ok(())
}

fn library_get_global(
    out: Out<CUdeviceptr>,
    bytes: Out<usize>,
    handle: CUlibrary,
    name: Text,
) -> CuResult<()> {
    if out.is_null() && bytes.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let library = find(handle)?;
    let (address, size) = library.module(&context::current()?)?.variable(&name.name()?)?;
    out.set_if_wanted(address);
    bytes.set_if_wanted(size);
    Ok(())
}

fn library_get_managed(
    out: Out<CUdeviceptr>,
    bytes: Out<usize>,
    handle: CUlibrary,
    name: Text,
) -> CuResult<()> {
    let library = find(handle)?;
    let name = name.name()?;
    let index = library.image.program.globals.iter().position(|global| global.name == name);
    let found = index.and_then(|index| Some((index, *library.managed.get(&index)?)));
    let (index, address) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    out.set_if_wanted(address);
    bytes.set_if_wanted(library.image.program.globals[index].bytes as usize);
    Ok(())
}

/// Returns a function with the same address on host and device. There is no such function.
fn library_get_unified_function(out: Out<*mut c_void>, handle: CUlibrary, name: Text) -> CuResult<()> {
    out.check()?;
    if handle == CUlibrary::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    find(handle).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    name.name()?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

crate::driver::ffi::entries! { after_init
    cuLibraryGetUnifiedFunction => library_get_unified_function(
        out: Out<*mut c_void>, library: CUlibrary, name: Text);
    cuLibraryLoadData => load_image(
        out: Out<CUlibrary>, image: *const c_void, jit_options: In<u32>, jit_values: InOut<*mut c_void>, jit_count: u32,
        options: In<u32>, values: *mut *mut c_void, count: u32) as (
        out, image, &JitOptions::new(jit_count, jit_options, jit_values), options, count);
    cuLibraryLoadFromFile => load_file(
        out: Out<CUlibrary>, path: Text, jit_options: In<u32>, jit_values: InOut<*mut c_void>, jit_count: u32,
        options: In<u32>, values: *mut *mut c_void, count: u32) as (
        out, path, &JitOptions::new(jit_count, jit_options, jit_values), options, count);
    cuLibraryUnload => library_unload(library: CUlibrary);
    cuLibraryGetKernel => library_get_kernel(out: Out<CUkernel>, library: CUlibrary, name: Text);
    cuLibraryGetKernelCount => library_get_kernel_count(count: Out<u32>, library: CUlibrary);
    cuLibraryEnumerateKernels => library_enumerate_kernels(out: Out<CUkernel>, room: u32, library: CUlibrary);
    cuLibraryGetModule => library_get_module(out: Out<CUmodule>, library: CUlibrary);
    cuLibraryGetGlobal => library_get_global(
        out: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text);
    cuLibraryGetManaged => library_get_managed(
        out: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text);
}
