// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an opcode to the family that lowers it.

use super::draft::Width;
use super::families::{
    arithmetic, atomics, comparison, control, conversion, logic, mbarriers, memory, moves, tensor,
    tensor_copies, textures, video, warpgroups, warps,
};
use super::function::Function;
use super::modifiers::Modifiers;
use super::operands::Inst;
use crate::ptx::ast;
use crate::symbols::LoadError;

/// Lowers one instruction.
pub(super) fn instruction<'a>(f: &mut Function<'_, 'a>, ast: &ast::Instruction<'a>) -> Result<(), LoadError> {
    f.line = ast.line;
    f.guard = None;
    if let Some(guard) = ast.guard {
        match f.register(guard.name) {
            Some((register, Width::Predicate)) => f.guard = Some((register, guard.negated)),
            _ => return Err(f.error(format!("guard `{}` is not a predicate", guard.name))),
        }
    }
    let modifiers = Modifiers::new(ast.opcode, ast.line);
    let mut inst = Inst { ast, modifiers };
    let name = ast.opcode.split('.').next().unwrap_or(ast.opcode);
    match name {
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "abs" | "neg" | "mad" | "fma" | "addc"
        | "subc" | "madc" | "mul24" | "mad24" | "sad" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2"
        | "ex2" | "tanh" | "copysign" | "dp4a" | "dp2a" => arithmetic::lower(f, &mut inst, name),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt" | "popc" | "clz"
        | "brev" | "bfind" | "bfe" | "bfi" | "fns" | "szext" | "bmsk" => logic::lower(f, &mut inst, name),
        "setp" | "set" | "selp" | "slct" | "testp" => comparison::lower(f, &mut inst, name),
        "vadd2" | "vadd4" | "vsub2" | "vsub4" | "vabsdiff2" | "vabsdiff4" | "vmin2" | "vmin4" | "vmax2"
        | "vmax4" | "vavrg2" | "vavrg4" | "vset2" | "vset4" => video::several(f, &mut inst, name),
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vset" | "vmad" => {
            video::one(f, &mut inst, name)
        }
        "cvt" => conversion::lower(f, &mut inst),
        "mov" | "cvta" | "isspacep" | "mapa" | "getctarank" => moves::lower(f, &mut inst, name),
        "ld" | "ldu" | "st" | "prefetch" | "prefetchu" | "applypriority" | "discard" | "createpolicy"
        | "cp" => memory::lower(f, &mut inst, name),
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "istypep" => {
            textures::lower(f, &mut inst, name)
        }
        "mma" | "wmma" | "ldmatrix" | "stmatrix" | "movmatrix" => tensor::lower(f, &mut inst, name),
        "wgmma" => warpgroups::lower(f, &mut inst),
        "mbarrier" => mbarriers::lower(f, &mut inst),
        "tensormap" => tensor_copies::change_map(f, &mut inst),
        "atom" | "red" => atomics::lower(f, &mut inst, name),
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "alloca" | "stacksave"
        | "stackrestore" | "nanosleep" | "pmevent" | "multimem" => control::lower(f, &mut inst, name),
        "bar" | "barrier" | "membar" | "fence" | "vote" | "shfl" | "match" | "activemask" | "redux"
        | "elect" | "griddepcontrol" | "setmaxnreg" => warps::lower(f, &mut inst, name),
        _ => Err(inst.modifiers.unsupported()),
    }
}

/// Opcodes that stay (see [`crate::code::Shape::stays`]).
const STAYS: [&str; 97] = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "min",
    "max",
    "abs",
    "neg",
    "mad",
    "fma",
    "addc",
    "subc",
    "madc",
    "mul24",
    "mad24",
    "sad",
    "rcp",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "lg2",
    "ex2",
    "tanh",
    "copysign",
    "dp4a",
    "dp2a",
    "and",
    "or",
    "xor",
    "not",
    "cnot",
    "shl",
    "shr",
    "shf",
    "lop3",
    "prmt",
    "popc",
    "clz",
    "brev",
    "bfind",
    "bfe",
    "bfi",
    "fns",
    "szext",
    "bmsk",
    "setp",
    "set",
    "selp",
    "slct",
    "testp",
    "vadd2",
    "vadd4",
    "vsub2",
    "vsub4",
    "vabsdiff2",
    "vabsdiff4",
    "vmin2",
    "vmin4",
    "vmax2",
    "vmax4",
    "vavrg2",
    "vavrg4",
    "vset2",
    "vset4",
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vset",
    "vmad",
    "cvt",
    "mov",
    "cvta",
    "isspacep",
    "mapa",
    "getctarank",
    "ld",
    "ldu",
    "st",
    "prefetch",
    "prefetchu",
    "cp",
    "tex",
    "tld4",
    "txq",
    "suld",
    "sust",
    "suq",
    "atom",
    "red",
    "membar",
    "fence",
];

/// See [`crate::code::Shape::stays`]: true for those opcodes only that are known to be so.
pub(super) fn stays(opcode: &str) -> bool {
    STAYS.contains(&opcode.split('.').next().unwrap_or(opcode))
}
