// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initialisers of variables to bytes and relocations.

use super::linker::{Linker, ModuleId, SymbolRef};
use crate::ptx::ast::{Immediate, Initializer, Variable};
use crate::ptx::syntax;
use crate::ptx::types::Type;
use crate::symbols::{LoadError, LoadErrorKind, Relocation, Target};

/// Bytes of initial values that one variable may have.
const MAX_IMAGE_BYTES: u64 = 1 << 30;

struct Image<'l, 'v, 'a> {
    linker: &'l Linker<'a>,
    module: ModuleId,
    variable: &'v Variable<'a>,
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
    /// The size of the variable.
    limit: u64,
}

/// The initial bytes of `variable`, zeros at the end left out, and its relocations.
pub(super) fn image<'a>(
    linker: &Linker<'a>,
    module: ModuleId,
    variable: &Variable<'a>,
    initializer: &Initializer<'a>,
) -> Result<(Vec<u8>, Vec<Relocation>), LoadError> {
    let limit = variable.bytes().unwrap_or(0).min(MAX_IMAGE_BYTES);
    let mut image = Image { linker, module, variable, bytes: Vec::new(), relocations: Vec::new(), limit };
    image.fill(initializer, 0, 0)?;
    Ok((image.bytes, image.relocations))
}

impl<'a> Image<'_, '_, 'a> {
    /// Places `initializer` at `offset`; `depth` dimensions are outside it.
    fn fill(&mut self, initializer: &Initializer<'a>, depth: usize, offset: u64) -> Result<(), LoadError> {
        match initializer {
            Initializer::List(list) => {
                let inner = self.variable.dimensions.get(depth + 1..).unwrap_or(&[]);
                let element = u64::from(self.variable.kind.bytes());
                let is_row = matches!(list.first(), Some(Initializer::List(_)));
                let stride = if is_row {
                    let cells = inner.iter().try_fold(1_u64, |n, d| n.checked_mul(d.unwrap_or(0)));
                    cells.and_then(|cells| cells.checked_mul(self.variable.element_bytes))
                } else {
                    Some(element)
                };
                let stride = stride.ok_or_else(|| self.error("initialiser too large"))?;
                for (index, value) in list.iter().enumerate() {
                    let place = (index as u64).checked_mul(stride).and_then(|n| n.checked_add(offset));
                    let place = place.ok_or_else(|| self.error("initialiser too large"))?;
                    self.fill(value, depth + 1, place)?;
                }
                Ok(())
            }
            Initializer::Number(value) => self.number(*value, offset),
            Initializer::Address { name, addend, mask } => self.address(name, *addend, *mask, offset),
        }
    }

    fn number(&mut self, value: Immediate, offset: u64) -> Result<(), LoadError> {
        let bits = immediate_bits(value, self.variable.kind)
            .ok_or_else(|| self.error("initialiser does not fit the type"))?;
        let size = u64::from(self.variable.kind.bytes()).min(8);
        self.put(offset, &bits.to_le_bytes()[..size as usize])
    }

    fn address(&mut self, name: &str, addend: i64, mask: Option<u64>, offset: u64) -> Result<(), LoadError> {
        let target = match self.linker.symbol(self.module, name) {
            Some(SymbolRef::Global(index)) => Target::Global(index),
            Some(SymbolRef::Function(index)) => Target::Function(Linker::function_address(index)),
            Some(SymbolRef::Shared(_)) => return Err(self.error("address of shared memory as initialiser")),
            None => {
                return Err(LoadError {
                    line: self.variable.line,
                    message: format!("`{name}` is not defined"),
                    kind: LoadErrorKind::Unresolved,
                });
            }
        };
        let size = (self.variable.kind.bytes() as u8).min(8);
        let shift = mask.map_or(0, u64::trailing_zeros) as u8;
        self.put(offset, &[0; 8][..usize::from(size)])?;
        self.relocations.push(Relocation { offset, size, shift, target, addend });
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), LoadError> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.limit);
        let end = end.ok_or_else(|| self.error("initialiser longer than the variable"))? as usize;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn error(&self, message: &str) -> LoadError {
        syntax(self.variable.line, format!("{message} in `{}`", self.variable.name))
    }
}

/// The bits of a literal as a value of `kind`; `None` when a float is wanted as a smaller integer.
pub(super) fn immediate_bits(value: Immediate, kind: Type) -> Option<u64> {
    Some(match (value, kind) {
        (Immediate::Int(bits), Type::F32) => u64::from((bits.cast_signed() as f32).to_bits()),
        (Immediate::Int(bits), Type::F64) => (bits.cast_signed() as f64).to_bits(),
        (Immediate::Int(bits), _) => bits,
        (Immediate::F32(bits), Type::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Immediate::F32(bits), _) if kind.bytes() == 4 => u64::from(bits),
        (Immediate::F64(bits), Type::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Immediate::F64(bits), _) if kind.bytes() == 8 => bits,
        _ => return None,
    })
}
