// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a function of the program to executable memory, by Cranelift.
//!
//! Memory is writable while code is put there and executable afterwards, never both. A function that the translator or
//! Cranelift cannot do stays with the interpreter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cranelift_codegen::Context;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, Signature};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::Module;

use super::flow::Flow;
use super::kinds;
use super::translate::{Signatures, Translator};
use crate::code::{Code, Function};
use crate::native::Native;
use crate::native::compiled::{Compiled, Variant};
use crate::native::view::NativeCode;
use crate::requests::is_requested;

/// Stack that translated code may use: values that do not fit the registers of the machine.
const MAX_STACK_BYTES: u32 = 256 << 10;

/// The code generator for this machine.
fn target() -> Option<&'static OwnedTargetIsa> {
    static TARGET: OnceLock<Option<OwnedTargetIsa>> = OnceLock::new();
    TARGET
        .get_or_init(|| {
            let mut flags = settings::builder();
            // The translator orders instructions so that few vectors are live at the same time, and the optimiser
            // would undo that.
            flags.set("opt_level", "none").ok()?;
            flags.set("is_pic", "false").ok()?;
            flags.set("unwind_info", "false").ok()?;
            flags.set("enable_probestack", "true").ok()?;
            flags.set("probestack_strategy", "inline").ok()?;
            let verify = crate::native::mode() == crate::native::Mode::Always;
            flags.set("enable_verifier", if verify { "true" } else { "false" }).ok()?;
            cranelift_native::builder().ok()?.finish(settings::Flags::new(flags)).ok()
        })
        .as_ref()
}

/// The translated functions of a new program: none yet.
pub(crate) fn native() -> Native {
    Native::new(compile)
}

/// Translates a function; `None` when it stays with the interpreter.
fn compile(code: &Code, function: &Function, variant: Variant) -> Option<Compiled> {
    let start = std::time::Instant::now();
    // A mistake in the translator or Cranelift must not be a way to end the process.
    let result = catch_unwind(AssertUnwindSafe(|| attempt(code, function, variant)));
    let result = result.unwrap_or_else(|_| Err("panic".into()));
    match result {
        Ok(compiled) => {
            let (count, took) = (function.end_pc - function.entry_pc, start.elapsed());
            log::debug!("`{}`: {count} instructions, {} bytes, {took:?}", function.name, compiled.bytes);
            Some(compiled)
        }
        Err(reason) => {
            log::debug!("`{}` is not translated: {reason}", function.name);
            None
        }
    }
}

fn attempt(code: &Code, function: &Function, variant: Variant) -> Result<Compiled, String> {
    let target = target().ok_or("no code generator for this machine")?;
    let mut flow = Flow::new(code, function).ok_or("too large")?;
    let kinds = kinds::analyse(&flow, variant.shape);
    flow.find_regions(&kinds, variant.shape);
    let kinds = kinds::analyse(&flow, variant.shape);
    if log::log_enabled!(log::Level::Debug) {
        let called =
            (function.entry_pc..function.end_pc).filter(|pc| flow.is_called(*pc) && !flow.leaves(*pc));
        let mut lines: Vec<u32> = called.map(|pc| flow.instr(pc).line).collect();
        lines.dedup();
        log::debug!("`{}`: instructions that are called, by PTX line: {lines:?}", function.name);
    }
    let mut module =
        JITModule::new(JITBuilder::with_isa(target.clone(), cranelift_module::default_libcall_names()));
    let mut context = Context::new();
    let convention = target.default_call_conv();
    context.func.signature = signature(convention, &[I64, I32], &[I64]);
    let mut memory = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut memory);
    let signatures = Signatures {
        handler: builder.import_signature(signature(convention, &[I64, I32, I32], &[I32])),
        words: builder.import_signature(signature(convention, &[I64, I32, I32, I32, I32], &[])),
        long_words: builder.import_signature(signature(convention, &[I64, I32, I64, I64, I32], &[])),
    };
    let mut translator = Translator::new(&mut builder, &flow, &kinds, variant, signatures);
    let entries = translator.function().map_err(|reason| reason.0)?;
    let exits = std::mem::take(&mut translator.exits);
    builder.finalize(target.frontend_config());
    let is_printed = is_requested("dump");
    if is_printed {
        eprintln!("{}", context.func.display());
    }
    context.set_disasm(is_printed);
    let id = module.declare_anonymous_function(&context.func.signature).map_err(|error| error.to_string())?;
    module.define_function(id, &mut context).map_err(|error| format!("{error:?}"))?;
    let made = context.compiled_code().ok_or("no code")?;
    let bytes = made.buffer.data().len();
    if let Some(text) = &made.vcode {
        eprintln!("{text}");
    }
    if made.buffer.frame_layout().is_none_or(|layout| layout.frame_to_fp_offset > MAX_STACK_BYTES) {
        // SAFETY: nobody has got a pointer into it.
        unsafe { module.free_memory() };
        return Err("too much stack".into());
    }
    module.finalize_definitions().map_err(|error| error.to_string())?;
    let start = module.get_finalized_function(id);
    // SAFETY: the function was declared with the signature of `NativeCode`.
    let native = unsafe { std::mem::transmute::<*const u8, NativeCode>(start) };
    Ok(Compiled { module: Some(module), code: native, entries, exits, bytes })
}

fn signature(
    convention: CallConv,
    params: &[cranelift_codegen::ir::Type],
    results: &[cranelift_codegen::ir::Type],
) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params.extend(params.iter().map(|kind| AbiParam::new(*kind)));
    signature.returns.extend(results.iter().map(|kind| AbiParam::new(*kind)));
    signature
}
