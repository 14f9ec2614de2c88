// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts an argument of cuModuleLoadData or cuLibraryLoadData to an executable program: a wrapper, a fat binary, a
//! cubin or PTX text.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use cuda_abi::__fatBinC_Wrapper_t;

use super::function::KernelSettings;
use crate::code::program::Program;
use crate::driver::device;
use crate::driver::ffi::{In, InOut, Out, copy_text};
use crate::driver::result::{CUresult, CuResult};
use crate::fatbin::{self, Accepted, CONTAINER_MAGIC, ELF_MAGIC, FatbinError, WRAPPER_MAGIC};
use crate::symbols::LoadErrorKind;

const JIT_MAX_REGISTERS: u32 = 0;
const JIT_INFO_LOG_BUFFER: u32 = 3;
const JIT_INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
const JIT_ERROR_LOG_BUFFER: u32 = 5;
const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
/// The registers that a kernel has at least, whatever the limit.
const MIN_REGISTERS: u32 = 8;
/// The newest major PTX version, that of CUDA 13. Minor versions add instructions, which are refused individually:
/// compilers from wheels are newer than the emulated driver.
const PTX_VERSION: u32 = 9;
/// The maximum length of a prelinked wrapper's list of containers. A longer list is invalid.
const MAX_PRELINKED: usize = 4096;

/// Separates the texts of a linked image. It is a comment, so the whole stays text.
pub(crate) const LINK_SEPARATOR: &str = "\n// next module of a linked image\n";

/// A loaded program and the settings of its kernels. A library's modules share it.
pub(crate) struct Image {
    pub(crate) program: Program,
    pub(crate) settings: HashMap<String, KernelSettings>,
}

/// The options of cuModuleLoadDataEx and cuLibraryLoadData that have an effect here: the destinations of messages, and the
/// limit of registers.
#[derive(Clone, Copy)]
pub(crate) struct JitOptions {
    count: u32,
    names: In<u32>,
    values: InOut<*mut c_void>,
}

impl JitOptions {
    pub(crate) fn new(count: u32, names: In<u32>, values: InOut<*mut c_void>) -> JitOptions {
        JitOptions { count: if names.is_null() || values.is_null() { 0 } else { count }, names, values }
    }

    pub(crate) fn none() -> JitOptions {
        JitOptions { count: 0, names: In::NULL, values: InOut::NULL }
    }

    /// Returns the pointer to an option's value, which is both in and out. The last of several counts, as on an H200.
    fn place(&self, option: u32) -> Option<(*mut c_void, InOut<*mut c_void>)> {
        let index = (0..self.count as usize).rfind(|index| self.names.at(*index) == Ok(option))?;
        // SAFETY: less than `count`, as many values as the caller says that there are.
        let place = unsafe { self.values.element(index) };
        Some((place.get().ok()?, place))
    }

    /// Stores an option's result.
    pub(crate) fn answer(&self, option: u32, value: *mut c_void) {
        if let Some((_, place)) = self.place(option) {
            place.set_if_wanted(value);
        }
    }

    /// Limits the registers of a program's kernels, as far as they are counted.
    fn limit_registers(&self, program: &mut Program) {
        let limit = self.place(JIT_MAX_REGISTERS).map_or(0, |(limit, _)| limit as usize as u32);
        if limit != 0 {
            for kernel in program.kernels.values_mut() {
                kernel.registers = kernel.registers.min(limit.max(MIN_REGISTERS));
            }
        }
    }

    /// Stores empty logs.
    pub(crate) fn clear_logs(&self) {
        self.log(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
        self.log(JIT_INFO_LOG_BUFFER, JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
    }

    fn log(&self, buffer: u32, size: u32, message: &str) {
        let Some((capacity, used)) = self.place(size) else { return };
        let capacity = capacity as usize as u32 as usize;
        if let Some((text, _)) = self.place(buffer).filter(|(text, _)| !text.is_null() && capacity > 0) {
            // SAFETY: the options say that a buffer of `capacity` bytes is there.
            unsafe { copy_text(Out::new(text.cast::<c_char>()), capacity, message) };
        }
        used.set_if_wanted(message.len().min(capacity.saturating_sub(1)) as *mut c_void);
    }
}

/// Loads an image that the caller keeps readable during the call.
pub(crate) fn load(image: *const c_void, options: &JitOptions) -> CuResult<Arc<Image>> {
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // As on an H200, PTX text is compiled anyway.
    let is_container = matches!(first_word(image), WRAPPER_MAGIC | CONTAINER_MAGIC);
    if is_container && !device::environment().code.ptx {
        let message =
            "CUDA_DISABLE_PTX_JIT or CUDA_DISABLE_JIT is set, and PTX is all that this device executes";
        return Err(report(options, message, CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED));
    }
    let accepted = device::current_or_first()?.model.accepted();
    let texts =
        texts(image, accepted).map_err(|error| report(options, &error.to_string(), code_of(&error)))?;
    for text in &texts {
        check_header(text, accepted).map_err(|(code, message)| report(options, &message, code))?;
    }
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let mut program = Program::link(&texts).map_err(|error| {
        let code = match error.kind {
            LoadErrorKind::Syntax | LoadErrorKind::Unresolved | LoadErrorKind::Unsupported => {
                CUresult::CUDA_ERROR_INVALID_PTX
            }
        };
        report(options, &format!("PTX, {error}"), code)
    })?;
    options.limit_registers(&mut program);
    options.clear_logs();
    let settings = program.kernels.iter().map(|(name, kernel)| (name.clone(), KernelSettings::new(kernel)));
    let settings = settings.collect();
    Ok(Arc::new(Image { program, settings }))
}

/// Reports the reason for refusing a module, in the program's log buffer and on standard error.
pub(crate) fn report(options: &JitOptions, message: &str, code: CUresult) -> CUresult {
    log::error!("a module is refused: {message}");
    options.log(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES, message);
    code
}

pub(crate) fn code_of(error: &FatbinError) -> CUresult {
    match error {
        FatbinError::Invalid(_) => CUresult::CUDA_ERROR_INVALID_IMAGE,
        FatbinError::NoPtx { .. } => CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    }
}

/// Refuses PTX that is newer than the driver or the device, as NVIDIA's compiler does.
pub(crate) fn check_header(text: &str, accepted: Accepted) -> Result<(), (CUresult, String)> {
    let word_after = |directive: &str| {
        text.split_once(directive).and_then(|(_, rest)| {
            rest.split(|c: char| c.is_whitespace() || c == ',').find(|word| !word.is_empty())
        })
    };
    let version = word_after(".version").and_then(|version| version.split_once('.'));
    let version = version.and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor)));
    if let Some((major, minor)) = version.filter(|(major, _)| *major > PTX_VERSION) {
        let message = format!("PTX version {major}.{minor} is newer than CUDA 13's");
        return Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, message));
    }
    let target = word_after(".target").and_then(|target| target.strip_prefix("sm_"));
    let target = target
        .and_then(|target| target.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().ok());
    if let Some(target) = target.filter(|target| accepted.rank(*target).is_none()) {
        let message = format!(
            "PTX for sm_{target}, which is newer than the device (sm_{}), {}",
            accepted.architecture,
            if accepted.newer { "and unknown" } else { "as CUDA_EMULATOR_COMPUTE_CAPABILITY chose it" }
        );
        return Err((CUresult::CUDA_ERROR_INVALID_PTX, message));
    }
    Ok(())
}

/// Returns the first four bytes of an image as a little-endian number. Bytes after the end of a shorter text are
/// zero.
fn first_word(image: *const c_void) -> u32 {
    // One byte at a time until all four are known to exist, because a PTX text may be shorter.
    let mut first = [0u8; 4];
    // SAFETY: the caller's image, of which nothing behind a byte that is zero is read: a text ends there.
    let image = unsafe { In::new(image.cast::<u8>()) };
    for (index, byte) in first.iter_mut().enumerate() {
        *byte = image.at(index).unwrap_or(0);
        if *byte == 0 {
            break;
        }
    }
    u32::from_le_bytes(first)
}

/// Returns the PTX texts to link.
fn texts(image: *const c_void, accepted: Accepted) -> Result<Vec<String>, FatbinError> {
    match first_word(image) {
        // SAFETY: the caller's image, which begins as only a wrapper does.
        WRAPPER_MAGIC => wrapped(unsafe { In::new(image.cast::<__fatBinC_Wrapper_t>()) }, accepted),
        CONTAINER_MAGIC => Ok(vec![fatbin::ptx(container(image)?, accepted)?]),
        ELF_MAGIC => {
            Err(FatbinError::NoPtx { wanted: accepted.architecture, found: "machine code (a cubin)".into() })
        }
        _ => {
            // SAFETY: the API says that what is none of the above is a C string.
            let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
            let text =
                text.to_str().map_err(|_| FatbinError::Invalid("neither a fat binary nor PTX text"))?;
            if !text.contains(".version") {
                return Err(FatbinError::Invalid("neither a fat binary nor PTX text"));
            }
            // The output of cuLinkComplete for several texts.
            Ok(text.split(LINK_SEPARATOR).map(str::to_owned).collect())
        }
    }
}

fn wrapped(wrapper: In<__fatBinC_Wrapper_t>, accepted: Accepted) -> Result<Vec<String>, FatbinError> {
    let wrapper = wrapper.get().map_err(|_| FatbinError::Invalid("no wrapper"))?;
    if wrapper.data == 0 {
        return Err(FatbinError::Invalid("an empty wrapper"));
    }
    let linked = fatbin::ptx(container(wrapper.data as *const c_void)?, accepted);
    if linked.is_ok() || wrapper.version < 2 || wrapper.parts == 0 {
        return Ok(vec![linked?]);
    }
    // Compiled with -rdc=true: the container has only linked machine code, and its parts have the PTX.
    // SAFETY: a wrapper of this version has a list of containers there, of which nothing behind the NULL at its end is read.
    let parts = unsafe { In::new(wrapper.parts as *const *const c_void) };
    let (mut texts, mut missing) = (Vec::new(), None);
    for index in 0..MAX_PRELINKED {
        let part = parts.at(index).unwrap_or(std::ptr::null());
        if part.is_null() {
            break;
        }
        match fatbin::ptx(container(part)?, accepted.without_newer()) {
            Ok(text) => texts.push(text),
            // NVIDIA's device runtime is such a part, and is not needed. The linker reports other missing names.
            Err(error @ FatbinError::NoPtx { .. }) => {
                log::debug!("a part of a linked image is left out: {error}");
                missing = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if texts.is_empty() => Err(error),
        _ if texts.is_empty() => Ok(vec![linked?]),
        _ => Ok(texts),
    }
}

/// Returns the bytes of a container in the caller's memory.
pub(crate) fn container<'a>(start: *const c_void) -> Result<&'a [u8], FatbinError> {
    let start = start.cast::<u8>();
    // SAFETY: the API demands that a container is there, which is at least a header; its own length says where it ends.
    // It stays readable during the call, and the result is used only during the call.
    unsafe {
        let header = *start.cast::<[u8; fatbin::HEADER_BYTES]>();
        Ok(std::slice::from_raw_parts(start, fatbin::container_bytes(&header)?))
    }
}
