// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JIT linker: PTX texts become one image, which is text, too.

mod objects;

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::context;
use super::device;
use super::ffi::{In, InOut, Out, Text};
use super::handle::{Handle, Registry};
use super::module::image::{self, JitOptions, LINK_SEPARATOR};
use super::module::read_file;
use super::result::{CUresult, CuResult};
use crate::code::program::Program;
use crate::fatbin::{self, ELF_MAGIC};

/// A linker's handle.
pub type CUlinkState = Handle<Linker>;

static LINKERS: Registry<Linker> = Registry::new();

impl crate::driver::handle::Object for Linker {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Link);
}

/// CUjitInputType
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FATBINARY: u32 = 2;
const OBJECT: u32 = 3;
const LIBRARY: u32 = 4;
const NVVM: u32 = 5;
/// CU_JIT_WALL_TIME
const WALL_TIME: u32 = 2;
/// The maximum number of texts of one linker.
const MAX_INPUTS: usize = 1024;

/// The inputs of a linker.
pub struct Linker {
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    texts: Vec<String>,
    /// The result of cuLinkComplete, which is valid until cuLinkDestroy.
    image: Option<Vec<u8>>,
}

/// The options of cuLinkCreate.
struct Options(JitOptions);

// SAFETY: the pointers are the program's, which keeps what they point to readable and writable for as long as the linker
// exists and calls it from one thread at a time, as the API says.
unsafe impl Send for Options {}
// SAFETY: the options are not changed, and what they point to is used under the linker's lock.
unsafe impl Sync for Options {}

fn find(handle: CUlinkState) -> CuResult<Arc<Linker>> {
    LINKERS.get(handle).ok_or_else(|| handle.refusal())
}

fn link_create(
    count: u32,
    names: In<u32>,
    values: InOut<*mut c_void>,
    out: Out<CUlinkState>,
) -> CuResult<()> {
    out.check()?;
    context::current()?;
    let handle = Handle::unique();
    let options = Options(JitOptions::new(count, names, values));
    LINKERS.insert(handle, Arc::new(Linker { options, state: Mutex::default() }));
    out.set_if_wanted(handle);
    Ok(())
}

/// Returns the PTX in an input of `bytes` bytes: one text, or any number from objects and libraries.
fn texts_of(kind: u32, bytes: &[u8], options: &JitOptions) -> CuResult<Vec<String>> {
    let accepted = device::current_or_first()?.model.accepted();
    match kind {
        // The image that guest-lib/nvrtc returns instead of machine code.
        PTX | CUBIN if kind == PTX || !bytes.starts_with(&ELF_MAGIC.to_le_bytes()) => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            let text = std::str::from_utf8(text).map_err(|_| {
                image::report(options, "an input is not text", CUresult::CUDA_ERROR_INVALID_PTX)
            })?;
            Ok(vec![text.to_owned()])
        }
        FATBINARY => fatbin::ptx(bytes, accepted)
            .map(|text| vec![text])
            .map_err(|error| image::report(options, &error.to_string(), image::code_of(&error))),
        OBJECT | LIBRARY => objects::texts(bytes, accepted)
            .map_err(|error| image::report(options, &error.to_string(), image::code_of(&error))),
        CUBIN | NVVM => Err(image::report(
            options,
            "the linker takes PTX, and what has PTX in it",
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        )),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Returns the names that a text defines for all others.
fn visible_names(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.trim_start().starts_with(".visible "));
    let found = lines.filter_map(|line| {
        let line = line.trim();
        let declared = line.split(['(', '[', '=', ';']).next().unwrap_or(line);
        declared.split_whitespace().next_back()
    });
    found.filter(|word| !word.is_empty() && !word.starts_with('.')).collect()
}

fn add(linker: &Linker, kind: u32, bytes: &[u8]) -> CuResult<()> {
    let options = &linker.options.0;
    for text in texts_of(kind, bytes, options)? {
        add_text(linker, text)?;
    }
    Ok(())
}

fn add_text(linker: &Linker, text: String) -> CuResult<()> {
    let options = &linker.options.0;
    let accepted = device::current_or_first()?.model.accepted();
    image::check_header(&text, accepted).map_err(|(code, message)| image::report(options, &message, code))?;
    crate::ptx::parse(&text).map_err(|error| {
        image::report(options, &format!("PTX, {error}"), CUresult::CUDA_ERROR_INVALID_PTX)
    })?;
    let mut state = linker.state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.image.is_some() || state.texts.len() >= MAX_INPUTS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // A duplicate variable or kernel is an error of the later input.
    let names = visible_names(&text);
    if state.texts.iter().any(|known| visible_names(known).iter().any(|name| names.contains(name))) {
        return Err(image::report(options, "a name is defined twice", CUresult::CUDA_ERROR_INVALID_SOURCE));
    }
    state.texts.push(text);
    Ok(())
}

fn link_add_data(handle: CUlinkState, kind: u32, data: *const c_void, bytes: usize) -> CuResult<()> {
    let linker = find(handle)?;
    if data.is_null() || bytes == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the API demands that so many bytes are readable during the call.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
    add(&linker, kind, bytes)
}

fn link_add_file(handle: CUlinkState, kind: u32, path: Text) -> CuResult<()> {
    let linker = find(handle)?;
    add(&linker, kind, &read_file(path)?)
}

fn link_complete(handle: CUlinkState, out: Out<*const c_void>, bytes: Out<usize>) -> CuResult<()> {
    let linker = find(handle)?;
    out.check()?;
    let options = &linker.options.0;
    let mut state = linker.state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.image.is_none() {
        let started = Instant::now();
        let texts: Vec<_> = state.texts.iter().map(String::as_str).collect();
        Program::link(&texts).map_err(|error| {
            image::report(options, &format!("PTX, {error}"), CUresult::CUDA_ERROR_INVALID_PTX)
        })?;
        let mut image = texts.join(LINK_SEPARATOR).into_bytes();
        image.push(0);
        state.image = Some(image);
        let milliseconds = started.elapsed().as_secs_f32() * 1e3;
        options.answer(WALL_TIME, milliseconds.to_bits() as usize as *mut c_void);
        options.clear_logs();
    }
    if let Some(image) = &state.image {
        out.set_if_wanted(image.as_ptr().cast());
        bytes.set_if_wanted(image.len());
    }
    Ok(())
}

fn link_destroy(handle: CUlinkState) -> CuResult<()> {
    LINKERS.remove(handle).map(|_| ()).ok_or_else(|| handle.refusal())
}

super::ffi::entries! { after_init
    cuLinkCreate_v2 => link_create(
        count: u32, names: In<u32>, values: InOut<*mut c_void>, out: Out<CUlinkState>);
    cuLinkAddData_v2 => link_add_data(
        linker: CUlinkState, kind: u32, data: *const c_void, bytes: usize, name: Text, count: u32, names: In<u32>,
        values: *mut *mut c_void) as (linker, kind, data, bytes);
    cuLinkAddFile_v2 => link_add_file(
        linker: CUlinkState, kind: u32, path: Text, count: u32, names: In<u32>, values: *mut *mut c_void) as (
        linker, kind, path);
    cuLinkComplete => link_complete(linker: CUlinkState, image: Out<*const c_void>, bytes: Out<usize>);
    cuLinkDestroy => link_destroy(linker: CUlinkState);
}
