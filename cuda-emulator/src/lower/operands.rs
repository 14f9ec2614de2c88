// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operands as written to operands of drafts, with their widths checked: handlers rely on them.

use super::draft::{Arg, Register, Width};
use super::function::{Function, Name};
use super::image::immediate_bits;
use super::linker::{Linker, SymbolRef};
use super::modifiers::Modifiers;
use crate::execute::moves::{self, Symbol};
use crate::execute::{bits, convert, special};
use crate::ptx::ast::{self, Operand};
use crate::ptx::types::Type;
use crate::symbols::{LoadError, LoadErrorKind};

/// An instruction while it is lowered.
pub(super) struct Inst<'i, 'a> {
    pub(super) ast: &'i ast::Instruction<'a>,
    pub(super) modifiers: Modifiers<'a>,
}

impl<'i, 'a> Inst<'i, 'a> {
    /// Operand `index`.
    pub(super) fn operand(&self, index: usize) -> Result<&'i Operand<'a>, LoadError> {
        self.ast.operands.get(index).ok_or_else(|| {
            crate::ptx::syntax(
                self.ast.line,
                format!("`{}` has too few operands ({})", self.ast.opcode, self.ast.operands.len()),
            )
        })
    }

    /// The number of operands.
    pub(super) fn count(&self) -> usize {
        self.ast.operands.len()
    }

    /// Refuses operands beyond `count`.
    pub(super) fn expect(&self, count: usize) -> Result<(), LoadError> {
        self.operand(count.saturating_sub(1))?;
        if self.count() > count {
            let message = format!("`{}` has {} operands instead of {count}", self.ast.opcode, self.count());
            return Err(crate::ptx::syntax(self.ast.line, message));
        }
        Ok(())
    }
}

impl<'a> Function<'_, 'a> {
    /// Any register of an operand.
    pub(super) fn any_register(&self, operand: &Operand<'a>) -> Result<(Register, Width), LoadError> {
        match operand {
            Operand::Name(name) => {
                self.register(name).ok_or_else(|| self.error(format!("`{name}` is not a register")))
            }
            _ => Err(self.error("a register is expected")),
        }
    }

    /// Returns the register that an instruction of type `kind` writes; `_` is one that is never read.
    pub(super) fn target(&mut self, operand: &Operand<'a>, kind: Type) -> Result<Arg, LoadError> {
        let width = Width::of(kind);
        self.target_of(operand, width)
    }

    /// As [`Self::target`], by width.
    pub(super) fn target_of(&mut self, operand: &Operand<'a>, width: Width) -> Result<Arg, LoadError> {
        if *operand == Operand::Name("_") {
            return Ok(Arg::Def(self.temporary(width)));
        }
        let (register, found) = self.any_register(operand)?;
        self.check_width(operand, found, width)?;
        Ok(Arg::Def(register))
    }

    fn check_width(&self, operand: &Operand<'a>, found: Width, wanted: Width) -> Result<(), LoadError> {
        if found == wanted {
            return Ok(());
        }
        let name = match operand {
            Operand::Name(name) => name,
            _ => "operand",
        };
        Err(self.error(format!("`{name}` is a {found:?} register, {wanted:?} is needed")))
    }

    /// A source operand of type `kind`.
    pub(super) fn source(&mut self, operand: &Operand<'a>, kind: Type) -> Result<Arg, LoadError> {
        let width = Width::of(kind);
        match operand {
            Operand::Immediate(value) => {
                let kind = if kind == Type::Pred { Type::B32 } else { kind };
                let bits = immediate_bits(*value, kind)
                    .ok_or_else(|| self.error("literal does not fit the instruction's type"))?;
                Ok(self.constant(width, bits))
            }
            Operand::Name(name) => {
                if let Some((register, found)) = self.register(name) {
                    self.check_width(operand, found, width)?;
                    return Ok(Arg::Use(register));
                }
                if *name == "WARP_SZ" {
                    return Ok(self.constant(width, 32));
                }
                let read = name.strip_prefix('%').and_then(special::read);
                if let Some((handler, _)) = read.filter(|_| width == Width::Predicate) {
                    return self.special_predicate(handler);
                }
                match read {
                    Some((handler, bytes)) => {
                        self.linker.uses_reserved_shared |= name.starts_with("%reserved_smem");
                        self.special(handler, bytes, width)
                    }
                    None => self.address(name, 0, width),
                }
            }
            Operand::Offset(name, offset) => self.address(name, *offset, width),
            Operand::Element(name, index) => self.address(name, self.element(name, *index)?, width),
            Operand::Not(name) => {
                let register = self.register(name);
                let Some((register, Width::Predicate)) = register.filter(|_| width == Width::Predicate)
                else {
                    return Err(self.error(format!("`!{name}` is not a predicate")));
                };
                let negated = self.temporary(Width::Predicate);
                let not = bits::negation("not", Type::Pred).ok_or_else(|| self.error("no not.pred"))?;
                self.emit(not, &[Arg::Def(negated), Arg::Use(register), Arg::Use(register)]);
                Ok(Arg::Use(negated))
            }
            _ => Err(self.error("a register or literal is expected")),
        }
    }

    /// Reads a special register that is a predicate: its handler writes 0 or 1.
    fn special_predicate(&mut self, handler: crate::code::Handler) -> Result<Arg, LoadError> {
        let register = self.temporary(Width::B32);
        self.emit(handler, &[Arg::Def(register)]);
        let compare = crate::execute::compare::compare("ne", Type::B32, false)
            .ok_or_else(|| self.error("no setp.ne"))?;
        let zero = self.constant(Width::B32, 0);
        let result = self.temporary(Width::Predicate);
        self.emit(compare, &[Arg::Def(result), Arg::Use(register), zero, zero]);
        Ok(Arg::Use(result))
    }

    /// Reads a special register of `bytes` bytes as one of another width.
    fn special(&mut self, handler: crate::code::Handler, bytes: u32, width: Width) -> Result<Arg, LoadError> {
        let own = if bytes == 8 { Width::B64 } else { Width::B32 };
        let register = self.temporary(own);
        self.emit(handler, &[Arg::Def(register)]);
        self.resized(register, own, width, false)
    }

    /// The low part of a register, or the register extended, as one of another width.
    pub(super) fn resized(
        &mut self,
        register: Register,
        from: Width,
        to: Width,
        signed: bool,
    ) -> Result<Arg, LoadError> {
        if from == to {
            return Ok(Arg::Use(register));
        }
        let bits = from.bytes().min(to.bytes()) * 8;
        let handler = convert::extend(from.bytes(), bits, signed, to.bytes())
            .ok_or_else(|| self.error(format!("a {from:?} register cannot be used as {to:?}")))?;
        let resized = self.temporary(to);
        self.emit(handler, &[Arg::Def(resized), Arg::Use(register)]);
        Ok(Arg::Use(resized))
    }

    /// Returns the offset of an element in an array of shared, global or constant memory.
    pub(super) fn element(&self, name: &str, index: i64) -> Result<i64, LoadError> {
        let bytes = self.symbol(name).and_then(|symbol| self.linker.elements.get(&symbol));
        let bytes = bytes.ok_or_else(|| self.error(format!("`{name}` is not an array of such memory")))?;
        Ok(index.wrapping_mul(*bytes as i64))
    }

    /// The address of a variable, parameter or function plus `offset`, in its own space.
    pub(super) fn address(&mut self, name: &str, offset: i64, width: Width) -> Result<Arg, LoadError> {
        match self.look_up(name) {
            Some(Name::Frame(piece)) => {
                let offset = i64::from(piece.offset).wrapping_add(offset);
                return self.symbol_address(Symbol::Frame, 0, offset, width);
            }
            Some(Name::KernelParam(piece)) => {
                let address = i64::from(piece.offset).wrapping_add(offset);
                return Ok(self.constant(width, address as u64));
            }
            _ => {}
        }
        match self.symbol(name) {
            Some(SymbolRef::Global(index)) => self.symbol_address(Symbol::Global, index, offset, width),
            Some(SymbolRef::Shared(index)) => {
                self.shared.insert(index);
                self.symbol_address(Symbol::Shared, index, offset, width)
            }
            Some(SymbolRef::Function(index)) => {
                // A function whose address is taken may be called.
                self.callees.insert(index);
                let address = Linker::function_address(index).wrapping_add_signed(offset);
                Ok(self.constant(width, address))
            }
            None => Err(LoadError {
                line: self.line,
                message: format!("`{name}` is not defined"),
                kind: LoadErrorKind::Unresolved,
            }),
        }
    }

    fn symbol_address(
        &mut self,
        symbol: Symbol,
        index: usize,
        offset: i64,
        width: Width,
    ) -> Result<Arg, LoadError> {
        let handler = moves::address_of(symbol, width.bytes())
            .ok_or_else(|| self.error("an address needs a register of 32 or 64 bits"))?;
        let register = self.temporary(width);
        let draft = self.emit(handler, &[Arg::Def(register)]);
        draft.imm = offset as u64;
        draft.aux = index as u32;
        Ok(Arg::Use(register))
    }
}
