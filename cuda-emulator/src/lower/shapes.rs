// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common shapes of instructions: a destination and sources.

use super::draft::Arg;
use super::function::Function;
use super::operands::Inst;
use crate::code::Handler;
use crate::ptx::types::Type;
use crate::symbols::LoadError;

/// Emits `handler` for a destination and the following sources, all of their own types: the common shape.
pub(super) fn simple<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    handler: Option<Handler>,
    target: Type,
    sources: &[Type],
) -> Result<(), LoadError> {
    inst.modifiers.finish()?;
    let handler = inst.modifiers.require(handler)?;
    inst.expect(sources.len() + 1)?;
    let mut args = vec![Arg::None];
    for (index, kind) in sources.iter().enumerate() {
        args.push(f.source(inst.operand(index + 1)?, *kind)?);
    }
    args[0] = f.target(inst.operand(0)?, target)?;
    f.emit(handler, &args);
    Ok(())
}

/// As [`simple`], with `imm` and the last source repeated until there are three: the shape of `map3_imm`.
pub(super) fn with_imm<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    handler: Option<Handler>,
    imm: u64,
    target: Type,
    sources: &[Type],
) -> Result<(), LoadError> {
    inst.modifiers.finish()?;
    let handler = inst.modifiers.require(handler)?;
    inst.expect(sources.len() + 1)?;
    let mut args = vec![Arg::None];
    for (index, kind) in sources.iter().enumerate() {
        args.push(f.source(inst.operand(index + 1)?, *kind)?);
    }
    while args.len() < 4 {
        args.push(args[args.len() - 1]);
    }
    args[0] = f.target(inst.operand(0)?, target)?;
    f.emit(handler, &args).imm = imm;
    Ok(())
}
