// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules: a program in a context, with its variables in device memory.

pub(super) mod function;
pub(super) mod image;
mod library;

use std::collections::HashMap;
use std::ffi::{OsString, c_void};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::context::{self, Context};
use super::device::{self, CUdeviceptr};
use super::ffi::{In, InOut, Out, Text};
use super::handle::{Handle, Registry};
use super::reference::{CUsurfref, CUtexref, References};
use super::result::{CUresult, CuResult};
use crate::code::program::Program;
use crate::memory::{Memory, RangeKind};
use crate::symbols::Global;
use function::{CUfunction, Function, Home};
use image::{Image, JitOptions};

/// A module's handle.
pub type CUmodule = Handle<Module>;

static MODULES: Registry<Module> = Registry::new();

impl crate::driver::handle::Object for Module {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Module);
}

/// CU_MODULE_*_LOADING
const EAGER: u32 = 1;
const LAZY: u32 = 2;

/// A program that is loaded in a context.
pub struct Module {
    pub(super) handle: CUmodule,
    pub(super) context: Weak<Context>,
    pub(super) image: Arc<Image>,
    /// The addresses of the program's variables.
    pub(super) addresses: Vec<CUdeviceptr>,
    /// The variables that another owner frees.
    borrowed: HashMap<usize, CUdeviceptr>,
    functions: Mutex<HashMap<String, CUfunction>>,
    references: References,
    /// True if it belongs to a library: cuModuleUnload refuses it.
    of_library: bool,
}

impl Module {
    /// Allocates a program's variables and sets their initial values. `borrowed` has the addresses of existing
    /// variables.
    pub(super) fn load(
        context: &Arc<Context>,
        image: Arc<Image>,
        borrowed: HashMap<usize, CUdeviceptr>,
        of_library: bool,
    ) -> CuResult<Arc<Module>> {
        let device = context.device;
        let program = &image.program;
        let mut addresses = Vec::with_capacity(program.globals.len());
        for (index, global) in program.globals.iter().enumerate() {
            let kind = kind_of(global);
            let address = match borrowed.get(&index) {
                Some(address) => Ok(*address),
                None => {
                    device.allocate_aligned(context.handle, global.bytes.max(1), global.align, kind, None)
                }
            };
            addresses.push(address.inspect_err(|_| free(context, &addresses, &borrowed))?);
        }
        for (index, address) in
            addresses.iter().enumerate().filter(|(index, _)| !borrowed.contains_key(index))
        {
            let bytes = program.image(index, &addresses);
            if device.memory.write(*address, &bytes).is_err() {
                free(context, &addresses, &borrowed);
                return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
            }
        }
        let handle = Handle::unique();
        let context = Arc::downgrade(context);
        let (functions, references) = Default::default();
        let module = Arc::new(Module {
            handle,
            context,
            image,
            addresses,
            borrowed,
            functions,
            references,
            of_library,
        });
        MODULES.insert(handle, Arc::clone(&module));
        Ok(module)
    }

    /// Ends the module after the context's work.
    pub(super) fn unload(&self) {
        MODULES.remove(self.handle);
        self.forget_functions();
        if let Some(context) = self.context.upgrade() {
            context.wait_idle();
            context.flush_printf();
            self.references.forget();
            free(&context, &self.addresses, &self.borrowed);
        }
    }

    fn forget_functions(&self) {
        let functions = std::mem::take(&mut *self.functions.lock().unwrap_or_else(PoisonError::into_inner));
        functions.into_values().for_each(function::forget);
    }

    /// Returns the function with this name, with the same handle each time.
    pub(super) fn function(self: &Arc<Self>, name: &str) -> CuResult<CUfunction> {
        if !self.image.program.kernels.contains_key(name) {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = functions.get(name) {
            return Ok(*found);
        }
        let made = Function::publish(Home::Module(Arc::clone(self)), name)?;
        functions.insert(name.to_owned(), made);
        Ok(made)
    }

    /// Returns the address and size of a variable.
    pub(super) fn variable(&self, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        let index = self
            .image
            .program
            .globals
            .iter()
            .position(|global| global.name == name && global.reference.is_none());
        // A function or a reference exists, but is not a variable.
        let program = &self.image.program;
        let is_other =
            || program.kernels.contains_key(name) || program.globals.iter().any(|global| global.name == name);
        let index = index.ok_or_else(|| match is_other() {
            true => CUresult::CUDA_ERROR_INVALID_VALUE,
            false => CUresult::CUDA_ERROR_NOT_FOUND,
        })?;
        Ok((self.addresses[index], self.image.program.globals[index].bytes as usize))
    }
}

/// The kind of memory that a variable is in.
fn kind_of(global: &Global) -> RangeKind {
    if global.managed { RangeKind::Managed } else { RangeKind::Device }
}

/// Returns the bytes of a device that a program's variables take.
fn variable_bytes(program: &Program) -> u64 {
    let bytes = |global: &Global| Memory::taken_bytes(global.bytes.max(1), kind_of(global));
    program.globals.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Returns the bytes of the device that a module's variables take, for those who limit it; 0 without such a module. It is not part
/// of CUDA.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_emulator_module_bytes(module: CUmodule) -> u64 {
    MODULES.get(module).map_or(0, |module| variable_bytes(&module.image.program))
}

fn free(context: &Context, addresses: &[CUdeviceptr], borrowed: &HashMap<usize, CUdeviceptr>) {
    for (_, address) in addresses.iter().enumerate().filter(|(index, _)| !borrowed.contains_key(index)) {
        // The context may have freed everything already.
        let _ = context.device.free(*address);
    }
}

/// Ends the handles of all modules of a context that is being destroyed.
pub(super) fn forget_modules(context: &Context) {
    for module in MODULES.remove_where(|module| std::ptr::eq(module.context.as_ptr(), context)) {
        module.forget_functions();
        module.references.forget();
    }
    library::forget_modules_of(context.id);
}

fn find(handle: CUmodule) -> CuResult<Arc<Module>> {
    MODULES.get(handle).ok_or_else(|| handle.refusal())
}

fn load_image(out: Out<CUmodule>, image: *const c_void, options: &JitOptions) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    context.flush_printf();
    let image = image::load(image, options)?;
    out.set_if_wanted(Module::load(&context, image, HashMap::new(), false)?.handle);
    Ok(())
}

fn module_load_data(out: Out<CUmodule>, image: *const c_void) -> CuResult<()> {
    load_image(out, image, &JitOptions::none())
}

fn module_load_data_ex(
    out: Out<CUmodule>,
    image: *const c_void,
    count: u32,
    options: In<u32>,
    values: InOut<*mut c_void>,
) -> CuResult<()> {
    load_image(out, image, &JitOptions::new(count, options, values))
}

fn module_load(out: Out<CUmodule>, path: Text) -> CuResult<()> {
    out.check()?;
    context::current()?;
    let image = read_file(path)?;
    load_image(out, image.as_ptr().cast(), &JitOptions::none())
}

/// Returns a file's bytes, followed by enough zeros for the end of a text and for reading a header.
pub(super) fn read_file(path: Text) -> CuResult<Vec<u8>> {
    let path = OsString::from_vec(path.name()?.into_bytes());
    let mut bytes = fs::read(path).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    let complete = match bytes.first_chunk() {
        Some(header) if header[..4] == crate::fatbin::CONTAINER_MAGIC.to_le_bytes() => {
            crate::fatbin::container_bytes(header).is_ok_and(|length| length <= bytes.len())
        }
        // A wrapper contains addresses, which are invalid in a file.
        _ => !bytes.starts_with(&crate::fatbin::WRAPPER_MAGIC.to_le_bytes()),
    };
    bytes.extend_from_slice(&[0; crate::fatbin::HEADER_BYTES]);
    if complete { Ok(bytes) } else { Err(CUresult::CUDA_ERROR_INVALID_IMAGE) }
}

fn module_unload(handle: CUmodule) -> CuResult<()> {
    let module = find(handle)?;
    context::current()?;
    if module.of_library {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    module.unload();
    Ok(())
}

fn module_get_function(out: Out<CUfunction>, handle: CUmodule, name: Text) -> CuResult<()> {
    out.check()?;
    context::current()?;
    let (module, name) = (find(handle)?, name.text()?);
    if name.is_empty() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(module.function(&name)?);
    Ok(())
}

fn module_get_function_count(count: Out<u32>, handle: CUmodule) -> CuResult<()> {
    count.check()?;
    count.set_if_wanted(find(handle)?.image.program.kernels.len() as u32);
    Ok(())
}

fn module_enumerate_functions(out: Out<CUfunction>, room: u32, handle: CUmodule) -> CuResult<()> {
    out.check()?;
    let module = find(handle)?;
    for (index, name) in
        library::kernel_names(&module.image.program).into_iter().take(room as usize).enumerate()
    {
        // SAFETY: less than `room`, as many elements as the caller says that the array has.
        unsafe { out.element(index) }.set_if_wanted(module.function(name)?);
    }
    Ok(())
}

fn module_get_global(out: Out<CUdeviceptr>, bytes: Out<usize>, handle: CUmodule, name: Text) -> CuResult<()> {
    context::current()?;
    if out.is_null() && bytes.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (address, size) = find(handle)?.variable(&name.name()?)?;
    out.set_if_wanted(address);
    bytes.set_if_wanted(size);
    Ok(())
}

fn module_get_texture(out: Out<CUtexref>, handle: CUmodule, name: Text) -> CuResult<()> {
    out.check()?;
    let module = find(handle)?;
    out.set_if_wanted(module.references.texture(&module, &name.name()?)?);
    Ok(())
}

fn module_get_surface(out: Out<CUsurfref>, handle: CUmodule, name: Text) -> CuResult<()> {
    out.check()?;
    let module = find(handle)?;
    out.set_if_wanted(module.references.surface(&module, &name.name()?)?);
    Ok(())
}

fn module_get_loading_mode(mode: Out<u32>) -> CuResult<()> {
    mode.check()?;
    mode.set_if_wanted(if device::environment().eager_loading { EAGER } else { LAZY });
    Ok(())
}

super::ffi::entries! { after_init
    cuModuleGetTexRef => module_get_texture(out: Out<CUtexref>, module: CUmodule, name: Text);
    cuModuleGetSurfRef => module_get_surface(out: Out<CUsurfref>, module: CUmodule, name: Text);
    cuModuleLoad => module_load(out: Out<CUmodule>, path: Text);
    cuModuleLoadData => module_load_data(out: Out<CUmodule>, image: *const c_void);
    cuModuleLoadDataEx => module_load_data_ex(
        out: Out<CUmodule>, image: *const c_void, count: u32, options: In<u32>, values: InOut<*mut c_void>);
    cuModuleLoadFatBinary => module_load_data(out: Out<CUmodule>, image: *const c_void);
    cuModuleUnload => module_unload(module: CUmodule);
    cuModuleGetFunction => module_get_function(out: Out<CUfunction>, module: CUmodule, name: Text);
    cuModuleGetFunctionCount => module_get_function_count(count: Out<u32>, module: CUmodule);
    cuModuleEnumerateFunctions => module_enumerate_functions(out: Out<CUfunction>, room: u32, module: CUmodule);
    cuModuleGetGlobal_v2 => module_get_global(
        out: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text);
    cuModuleGetLoadingMode => module_get_loading_mode(mode: Out<u32>);
}
