// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Modules: device code in one context.

pub mod function;
pub mod image;
pub mod image_code;
pub mod library;
pub mod link;
pub mod parameters;

use std::ffi::{CStr, CString};
use std::fs;
use std::io::ErrorKind;

use virtio_cuda_client::protocol::{FunctionId, JitOptions, MIN_KNOWN_IMAGE_BYTES, ModuleId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::answer;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Name, Out};
use crate::handles::{Kind, check, new_handle};
use crate::jit::JitSinks;
use crate::state::contexts::current;
use crate::state::modules::Variable;
use crate::state::modules::functions::Owner;

/// Bytes for the names of functions in the first attempt.
const USUAL_NAME_BYTES: usize = 4096;

/// The digest of an image, of which a piece at a time is copied: other threads of the program may write it.
fn digest(image: UserMemory) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // SAFETY: `image::of` found the extent of the program's image, or it is a buffer of this library.
    unsafe {
        image.read(|piece| {
            hasher.update(piece);
        });
    }
    hasher.finalize()
}

/// Says at `debug` what crosses, so that a test can compare it with what the worker got.
fn log_image(image: UserMemory) {
    if log::log_enabled!(log::Level::Debug) {
        log::debug!("Image of {} bytes, BLAKE3 {}", image.bytes, digest(image));
    }
}

/// Loads device code: by its digest if the device still has it from another process, otherwise by sending it.
pub fn cross(
    api: Api,
    image: UserMemory,
    by_digest: impl FnOnce(&mut Call<'_>, [u8; 32], u64) -> Result<u32, CudaError>,
    send: impl FnOnce(&mut Call<'_>) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    log_image(image);
    if image.bytes as u64 >= MIN_KNOWN_IMAGE_BYTES {
        let digest = *digest(image).as_bytes();
        match by_digest(&mut api.call(), digest, image.bytes as u64) {
            Ok(1) => return Ok(()),
            // An older daemon does not support the call.
            Ok(_) | Err(CudaError::NOT_SUPPORTED) => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: `image::of` found the extent of the program's image, or it is a buffer that the caller keeps.
    send(&mut unsafe { api.call().input_at(image) })
}

/// Loads a module.
fn load(api: Api, module: Out<u64>, image: UserMemory) -> Result<(), CudaError> {
    module.check()?;
    let context = api.context()?;
    let handle = new_handle(Kind::Module);
    cross(
        api,
        image,
        |call, digest, bytes| calls::module_load_known(call, ModuleId(handle), digest, bytes),
        |call| calls::cuModuleLoadData(call, ModuleId(handle)),
    )?;
    api.driver.modules.add(handle, context.0);
    module.set(handle)
}

/// Loads device code with compiler options. The program gets the logs even after a failure.
fn load_with_options(
    api: Api,
    module: Out<u64>,
    image: UserMemory,
    options: JitOptions,
    sinks: JitSinks,
) -> Result<(), CudaError> {
    if options.count == 0 {
        return load(api, module, image);
    }
    module.check()?;
    let context = api.context()?;
    log_image(image);
    let handle = new_handle(Kind::Module);
    // SAFETY: `image::of` found the extent of the program's image, or it is a buffer that the caller keeps.
    let mut call = unsafe { api.call().input_at(image) };
    let loaded = calls::cuModuleLoadDataEx(&mut call, ModuleId(handle), options);
    sinks.fetch(api.call())?;
    loaded?;
    api.driver.modules.add(handle, context.0);
    module.set(handle)
}

/// A name that must not be empty.
pub fn not_empty(name: &Name) -> Result<CString, CudaError> {
    let name = name.get()?;
    if name.is_empty() { Err(CudaError::INVALID_VALUE) } else { Ok(name) }
}

/// Reads a file of device code.
pub fn read_file(name: Name) -> Result<Vec<u8>, CudaError> {
    let path = not_empty(&name)?.into_string().map_err(|_| CudaError::INVALID_VALUE)?;
    fs::read(&path).map_err(|error| {
        log::debug!("{path}: {error}");
        // A folder has a size, but cannot be read.
        let is_folder = error.kind() == ErrorKind::IsADirectory;
        if is_folder { CudaError::OUT_OF_MEMORY } else { CudaError::FILE_NOT_FOUND }
    })
}

/// Reads a file to load. PTX gets a NUL, as text in memory has.
pub fn read_image(name: Name) -> Result<Vec<u8>, CudaError> {
    let mut bytes = read_file(name)?;
    let is_binary =
        bytes.starts_with(&[0x7f, b'E', b'L', b'F']) || bytes.starts_with(&[0x50, 0xed, 0x55, 0xba]);
    if !is_binary {
        bytes.push(0);
    }
    Ok(bytes)
}

fn get_function(api: Api, module: u64, name: &CStr) -> Result<u64, CudaError> {
    check(Kind::Module, module)?;
    if let Some(handle) = api.driver.modules.function(module, name)? {
        return Ok(handle);
    }
    let handle = new_handle(Kind::Function);
    let mut call = api.in_context()?.input(name.to_bytes());
    calls::cuModuleGetFunction(&mut call, ModuleId(module), FunctionId(handle))?;
    api.driver.functions.add(handle, name.to_owned(), Owner::Module(module));
    // If another thread was faster, both handles stay valid.
    api.driver.modules.with(module, |module| *module.functions.entry(name.to_owned()).or_insert(handle))
}

/// Returns the names of all functions; `row` fetches them.
pub fn fetch_names(
    api: Api,
    row: impl Fn(&mut Call<'_>) -> Result<(u32, u64), CudaError>,
) -> Result<Vec<CString>, CudaError> {
    let (count, names) = answer::fetch(USUAL_NAME_BYTES, |room| row(&mut api.in_context()?.output(room)))?;
    let names = names.split_inclusive(|byte| *byte == 0);
    let names = names.filter_map(|name| Some(CStr::from_bytes_with_nul(name).ok()?.to_owned()));
    Ok(names.take(count as usize).collect())
}

fn function_names(api: Api, module: u64) -> Result<Vec<CString>, CudaError> {
    check(Kind::Module, module)?;
    api.driver.modules.with(module, |_| ())?;
    fetch_names(api, |call| calls::module_function_names(call, ModuleId(module)))
}

fn get_global(api: Api, module: u64, name: &CStr) -> Result<Variable, CudaError> {
    check(Kind::Module, module)?;
    let context = api.context()?;
    if let Some(variable) = api.driver.modules.variable(module, context.0, name)? {
        return Ok(variable);
    }
    let mut call = api.call().input(name.to_bytes());
    let (address, bytes, managed) = calls::cuModuleGetGlobal_v2(&mut call, ModuleId(module))?;
    api.note_variable(module, name, Variable { address: address.0, bytes }, managed != 0)
}

/// Returns the context in which the initial value of a `__managed__` variable is read. The runtime asks before it has one.
pub fn managed_context(api: Api) -> Result<u64, CudaError> {
    match current() {
        0 => crate::context::retain(api, 0),
        context => Ok(context),
    }
}

impl Api {
    /// Stores a variable of a module or library for the current context, and classifies its address. Returns it as the
    /// program sees it.
    pub fn note_variable(
        &self,
        module: u64,
        name: &CStr,
        variable: Variable,
        managed: bool,
    ) -> Result<Variable, CudaError> {
        let context = self.context()?.0;
        let variable = if managed {
            self.driver.memory.add_managed_variable(*self, variable, module, || managed_context(*self))?
        } else {
            self.track_variable(variable, module);
            variable
        };
        self.driver.modules.with(module, |module| {
            module.variables.insert((context, name.to_owned()), variable);
            variable
        })
    }
}

entry_points! {
    /// Loads an image into the current context.
    call cuModuleLoadData(api, module: Out<u64>, image: HostPtr) {
        load(api, module, image::of(api, image)?.memory())
    }

    /// Loads an image into the current context, with options for the compiler.
    call cuModuleLoadDataEx(api, module: Out<u64>, image: HostPtr, numOptions: u32, options: In<u32>, optionValues: HostPtr) {
        let image = image::of(api, image)?.memory();
        let (options, sinks) = JitSinks::parse(options, optionValues, numOptions)?;
        load_with_options(api, module, image, options, sinks)
    }

    /// Loads a fat binary into the current context.
    call cuModuleLoadFatBinary(api, module: Out<u64>, fatCubin: HostPtr) {
        load(api, module, image::of(api, fatCubin)?.memory())
    }

    /// Loads a file of the guest into the current context.
    call cuModuleLoad(api, module: Out<u64>, fname: Name) {
        module.check()?;
        load(api, module, image::of_file(api, fname)?.memory())
    }

    /// Returns the number of functions.
    call cuModuleGetFunctionCount(api, count: Out<u32>, r#mod: u64) {
        count.check()?;
        count.set(function_names(api, r#mod)?.len() as u32)
    }

    /// Returns all functions, or as many as there is room for.
    call cuModuleEnumerateFunctions(api, functions: Out<u64>, numFunctions: u32, r#mod: u64) {
        functions.check()?;
        for (index, name) in function_names(api, r#mod)?.iter().take(numFunctions as usize).enumerate() {
            functions.set_at(index, get_function(api, r#mod, name)?)?;
        }
        Ok(())
    }

    /// Unloads a module.
    call cuModuleUnload(api, hmod: u64) {
        check(Kind::Module, hmod)?;
        api.driver.modules.with(hmod, |_| ())?;
        calls::cuModuleUnload(&mut api.call(), ModuleId(hmod))?;
        api.driver.modules.remove(hmod)?;
        api.driver.functions.remove_of(Owner::Module(hmod));
        api.driver.memory.remove_variables(hmod);
        api.driver.textures.references.forget_module(hmod);
        Ok(())
    }

    /// Returns a function by name. The handle is the same each time.
    call cuModuleGetFunction(api, hfunc: Out<u64>, hmod: u64, name: Name) {
        hfunc.check()?;
        hfunc.set(get_function(api, hmod, &name.get()?)?)
    }

    /// Returns address and size of a variable. One of the pointers may be NULL.
    call cuModuleGetGlobal_v2(api, dptr: Out<u64>, bytes: Out<usize>, hmod: u64, name: Name) {
        if dptr.is_null() && bytes.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let variable = get_global(api, hmod, &not_empty(&name)?)?;
        dptr.set_if_wanted(variable.address);
        bytes.set_if_wanted(variable.bytes as usize);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_as_they_are_and_text_to_be_loaded_ends() {
        let path = std::env::temp_dir().join(format!("libcuda-module-{}", std::process::id()));
        let path_text = std::ffi::CString::new(path.to_str().expect("a plain path")).expect("no NUL in it");
        // SAFETY: a `Name` is a pointer to a C string, and this one outlives it.
        let name = || unsafe { std::mem::transmute::<*const std::ffi::c_char, Name>(path_text.as_ptr()) };
        for (contents, image) in [
            (&b"!<arch>\nlibrary\n"[..], &b"!<arch>\nlibrary\n\0"[..]),
            (b"\x7fELF", b"\x7fELF"),
            (b"\x50\xed\x55\xba", b"\x50\xed\x55\xba"),
        ] {
            fs::write(&path, contents).expect("a file");
            assert_eq!((read_file(name()), read_image(name())), (Ok(contents.to_vec()), Ok(image.to_vec())));
        }
        fs::remove_file(&path).expect("the file");
        assert_eq!(read_file(name()), Err(CudaError::FILE_NOT_FOUND));
    }
}
