// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches, calls, returns, the stack.

use crate::code::{Call, Piece};
use crate::execute::{builtin, control};
use crate::lower::draft::{After, Arg, Register, Width};
use crate::lower::function::{Function, Name};
use crate::lower::linker::SymbolRef;
use crate::lower::operands::Inst;
use crate::ptx::ast::{Immediate, Operand};
use crate::ptx::types::Type;
use crate::symbols::{LoadError, LoadErrorKind};

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    match name {
        "bra" => {
            m.take("uni");
            m.finish()?;
            inst.expect(1)?;
            let label = label(f, inst.operand(0)?)?;
            f.emit(control::branch(), &[]).after = After::Jump(label);
        }
        "brx" => return branch_indexed(f, inst),
        "call" => return call(f, inst),
        "ret" => {
            m.take("uni");
            m.finish()?;
            leave(f)?;
        }
        "exit" => {
            m.finish()?;
            f.emit(control::exit(), &[]).after = After::End;
        }
        // Without a debugger, a breakpoint ends the kernel too.
        "trap" | "brkpt" => {
            m.finish()?;
            f.emit(control::trap(), &[]).after = After::End;
        }
        // Modules with such a kernel load, since others of their kernels need no multicast memory.
        "multimem" => f.emit(control::no_multicast(), &[]).after = After::End,
        "pmevent" => {
            f.emit(control::nothing(), &[]);
        }
        "nanosleep" => {
            m.take("u32");
            m.finish()?;
            f.emit(control::sleep(), &[]);
        }
        "alloca" => return allocate(f, inst),
        "stacksave" => {
            let kind = m.kind()?;
            m.finish()?;
            let target = f.target(inst.operand(0)?, kind)?;
            let handler = (kind.bytes() == 8).then(control::stack_save);
            f.emit(inst.modifiers.require(handler)?, &[target]);
        }
        _ => {
            let kind = m.kind()?;
            m.finish()?;
            let source = f.source(inst.operand(0)?, kind)?;
            let handler = (kind.bytes() == 8).then(control::stack_restore);
            f.emit(inst.modifiers.require(handler)?, &[Arg::None, source]);
        }
    }
    Ok(())
}

/// The end of the function for the lanes that get here.
pub(in crate::lower) fn leave(f: &mut Function<'_, '_>) -> Result<(), LoadError> {
    for (register, piece) in f.register_results.clone() {
        let width = f.widths[register.0 as usize];
        super::memory::store_piece(f, Arg::Use(register), width, piece)?;
    }
    let (handler, index) = if f.is_entry { (control::exit(), 0) } else { (control::ret(), f.index) };
    let draft = f.emit(handler, &[]);
    draft.imm = index as u64;
    draft.after = After::End;
    Ok(())
}

fn label(f: &Function<'_, '_>, operand: &Operand<'_>) -> Result<crate::lower::draft::Label, LoadError> {
    match operand {
        Operand::Name(name) => match f.look_up(name) {
            Some(Name::Label(label)) => Ok(*label),
            _ => Err(f.error(format!("label `{name}` is not defined"))),
        },
        _ => Err(f.error("a label is expected")),
    }
}

fn branch_indexed<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if !m.take("idx") {
        return Err(m.unsupported());
    }
    m.take("uni");
    m.finish()?;
    inst.expect(2)?;
    let index = f.source(inst.operand(0)?, Type::U32)?;
    let names = match inst.operand(1)? {
        Operand::Name(name) => match f.look_up(name) {
            Some(Name::Targets(names)) => names.clone(),
            _ => return Err(f.error(format!("branch targets `{name}` are not defined"))),
        },
        _ => return Err(f.error("a list of branch targets is expected")),
    };
    let mut labels = Vec::new();
    for name in names {
        labels.push(label(f, &Operand::Name(name))?);
    }
    f.emit(control::branch_indexed(), &[index]).after = After::Table(labels);
    Ok(())
}

fn allocate<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let kind = inst.modifiers.kind()?;
    let align = match inst.ast.operands.get(2) {
        None => 8,
        Some(Operand::Immediate(Immediate::Int(align))) => *align,
        Some(_) => return Err(f.error("the alignment must be a literal")),
    };
    if kind.bytes() != 8 || !align.is_power_of_two() {
        return Err(inst.modifiers.unsupported());
    }
    inst.modifiers.finish()?;
    let size = f.source(inst.operand(1)?, kind)?;
    let target = f.target(inst.operand(0)?, kind)?;
    f.emit(control::allocate(), &[target, size]).imm = align;
    Ok(())
}

/// Returns the parameter variables in a list of call arguments. Registers get room next to them: results are loaded
/// from there after the call (`results`), and arguments are stored there before it. A literal has the width of the
/// parameter (`known`).
fn pieces<'a>(
    f: &mut Function<'_, 'a>,
    operands: &[Operand<'a>],
    known: &[Piece],
    results: Option<&mut Vec<(Register, Piece)>>,
) -> Result<Vec<Piece>, LoadError> {
    let (mut pieces, mut loads) = (Vec::new(), Vec::new());
    for (index, operand) in operands.iter().enumerate() {
        let found = match operand {
            Operand::Name(name) => match (f.look_up(name), f.register(name)) {
                (Some(Name::Frame(piece)), _) => {
                    pieces.push(*piece);
                    continue;
                }
                (_, Some((_, Width::Predicate))) | (_, None) => {
                    let message =
                        format!("call argument `{name}` is neither a `.param` variable nor a register");
                    return Err(f.error(message));
                }
                (_, Some((register, width))) => Some((register, width)),
            },
            Operand::Immediate(_) if results.is_none() && index < known.len() => None,
            _ => return Err(f.error("call arguments must be `.param` variables or registers")),
        };
        let bytes = found.map_or(known.get(index).map_or(0, |piece| piece.bytes), |(_, width)| width.bytes());
        let piece = f.room(bytes)?;
        pieces.push(piece);
        match found {
            Some((register, _)) if results.is_some() => loads.push((register, piece)),
            Some((register, width)) => super::memory::store_piece(f, Arg::Use(register), width, piece)?,
            None => {
                let kind = match bytes {
                    1 | 2 => Type::B16,
                    4 => Type::B32,
                    8 => Type::B64,
                    _ => return Err(f.error("literal for a parameter that is no number")),
                };
                let value = f.source(operand, kind)?;
                super::memory::store_piece(f, value, Width::of(kind), piece)?;
            }
        }
    }
    if let Some(results) = results {
        *results = loads;
    }
    Ok(pieces)
}

fn call<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    inst.modifiers.take("uni");
    inst.modifiers.finish()?;
    let mut operands = inst.ast.operands.as_slice();
    let (mut returns, mut results) = (Vec::new(), Vec::new());
    if let [Operand::List(list), rest @ ..] = operands {
        returns = pieces(f, list, &[], Some(&mut results))?;
        operands = rest;
    }
    let [target, rest @ ..] = operands else {
        return Err(f.error("`call` without function"));
    };
    let Operand::Name(name) = target else {
        return Err(f.error("`call` needs the name of a function or a register"));
    };
    let known = match f.symbol(name) {
        Some(SymbolRef::Function(index)) => f.linker.functions[index].params.clone(),
        _ => Vec::new(),
    };
    let args = match rest.first() {
        Some(Operand::List(list)) => pieces(f, list, &known, None)?,
        _ => Vec::new(),
    };
    let call = Call { caller: f.index, callee: None, args, returns };
    emit_call(f, name, call)?;
    for (register, piece) in results {
        super::memory::load_piece(f, register, piece)?;
    }
    Ok(())
}

fn emit_call(f: &mut Function<'_, '_>, name: &str, call: Call) -> Result<(), LoadError> {
    if let Some((register, Width::B64)) = f.register(name) {
        f.calls_indirectly = true;
        let imm = f.linker.add_call(call);
        f.emit(control::call(), &[Arg::Use(register)]).imm = imm;
        return Ok(());
    }
    let Some(SymbolRef::Function(index)) = f.symbol(name) else {
        return Err(f.error(format!("`{name}` is not a function")));
    };
    direct(f, index, call)
}

fn direct(f: &mut Function<'_, '_>, index: usize, mut call: Call) -> Result<(), LoadError> {
    let callee = &f.linker.functions[index];
    let name = callee.name.clone();
    if call.args.len() != callee.params.len() || call.returns.len() != callee.returns.len() {
        return Err(f.error(format!("call of `{name}` with {} arguments", call.args.len())));
    }
    if f.linker.is_entry[index] {
        return Err(f.error(format!("`{name}` is a kernel, not a function")));
    }
    if !f.linker.defined[index] {
        let Some((handler, count)) = builtin::select(&name) else {
            return Err(LoadError {
                line: f.line,
                message: format!("function `{name}` is not defined in any module"),
                kind: LoadErrorKind::Unresolved,
            });
        };
        if call.args.len() != count {
            return Err(f.error(format!("call of `{name}` with {} arguments", call.args.len())));
        }
        f.launches_graphs |= name == "cudaGraphLaunch";
        f.launches_kernels |= name.contains("LaunchDevice");
        let imm = f.linker.add_call(call);
        f.emit(handler, &[]).imm = imm;
        return Ok(());
    }
    f.callees.insert(index);
    call.callee = Some(index);
    let imm = f.linker.add_call(call);
    f.emit(control::call(), &[]).imm = imm;
    Ok(())
}
