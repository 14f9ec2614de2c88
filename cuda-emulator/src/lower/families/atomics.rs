// SPDX-License-Identifier: Apache-2.0 OR MIT
//! atom and red.

use super::memory::{Address, address, place, take_hints};
use crate::execute::access::aux;
use crate::execute::atomic;
use crate::lower::draft::Arg;
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::program::LoadError;
use crate::ptx::types::StateSpace;

const OPERATIONS: [&str; 10] = ["and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max"];

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    // All atomics are sequentially consistent here.
    m.take_any(&["relaxed", "acquire", "release", "acq_rel"]);
    let space = m.take_if(StateSpace::from_name).unwrap_or(StateSpace::Generic);
    take_hints(m);
    let operation = m.take_any(&OPERATIONS);
    let operation = m.require(operation)?;
    let noftz = if m.take("noftz") { ".noftz" } else { "" };
    let kind = m.kind()?;
    m.finish()?;
    let handler = m.require(atomic::select(&format!("{operation}{noftz}"), kind))?;
    let first = usize::from(name == "atom");
    let compares = operation == "cas";
    inst.operand(first + 1 + usize::from(compares))?;
    let (register, wide, offset) = match address(f, inst.operand(first)?, kind.bytes())? {
        Address::Register { register, wide, offset } => (register, wide, offset),
        Address::Constant(..) => return Err(inst.modifiers.unsupported()),
    };
    let value = f.source(inst.operand(first + 1)?, kind)?;
    let other = if compares { f.source(inst.operand(first + 2)?, kind)? } else { value };
    let target = if name == "atom" {
        f.target(inst.operand(0)?, kind)?
    } else {
        let width = f.width(kind)?;
        Arg::Def(f.temporary(width))
    };
    let place = place(f, space);
    let draft = f.emit(handler, &[target, value, other, Arg::None, register]);
    draft.imm = offset as u64;
    draft.aux = place | aux::POLLS | if wide { aux::WIDE_ADDRESS } else { 0 };
    draft.cached = true;
    Ok(())
}
