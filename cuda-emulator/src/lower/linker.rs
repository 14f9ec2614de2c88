// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names across modules: variables, shared memory and functions of the whole program.

use std::collections::HashMap;

use super::draft::Pool;
use super::image;
use crate::code::{Call, Function as CodeFunction, Piece, window};
use crate::ptx::ast::{Alias, Function, Linkage, Signature, Variable};
use crate::ptx::types::StateSpace;
use crate::ptx::{syntax, unsupported};
use crate::symbols::{Global, LoadError, LoadErrorKind, Space};

/// The maximum size of a shared variable of a program in bytes. Hardware has at most 228 KiB.
const MAX_SHARED_BYTES: u64 = 1 << 20;

/// One of the linked modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModuleId(pub(super) usize);

/// A symbol of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SymbolRef {
    /// Index in [`Linker::globals`].
    Global(usize),
    /// Index in [`Linker::shared`].
    Shared(usize),
    /// Index in [`Linker::functions`].
    Function(usize),
}

/// A shared variable; those of `bytes` 0 are the dynamic shared memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    pub(super) bytes: u64,
    pub(super) align: u64,
}

/// The program in the making.
#[derive(Debug, Default)]
pub(super) struct Linker<'a> {
    names: HashMap<(Option<ModuleId>, &'a str), SymbolRef>,
    pub(super) globals: Vec<Global>,
    /// Variables whose initialisers are still to be read, by index in `globals`.
    pub(super) initializers: Vec<(usize, ModuleId, Variable<'a>)>,
    pub(super) shared: Vec<Shared>,
    /// Bytes of an element of each variable.
    pub(super) elements: HashMap<SymbolRef, u64>,
    pub(super) functions: Vec<CodeFunction>,
    /// For each function: true if it has a body.
    pub(super) defined: Vec<bool>,
    /// For each function: true if it is a kernel.
    pub(super) is_entry: Vec<bool>,
    pub(super) pool: Pool,
    pub(super) calls: Vec<Call>,
    pub(super) matrices: Vec<crate::code::fragment::Matrices>,
    pub(super) uses_reserved_shared: bool,
}

impl<'a> Linker<'a> {
    /// The symbol that `name` means in a module.
    pub(super) fn symbol(&self, module: ModuleId, name: &str) -> Option<SymbolRef> {
        self.names.get(&(Some(module), name)).or_else(|| self.names.get(&(None, name))).copied()
    }

    fn scope(module: ModuleId, linkage: Linkage) -> Option<ModuleId> {
        (linkage == Linkage::Local).then_some(module)
    }

    /// Declares a variable of a module and returns its symbol; also for function-scope `.shared` and `.global` ones, which
    /// the caller keeps under their own name.
    pub(super) fn variable(
        &mut self,
        module: ModuleId,
        variable: &Variable<'a>,
    ) -> Result<SymbolRef, LoadError> {
        let bytes = variable.bytes().ok_or_else(|| syntax(variable.line, "variable too large"))?;
        if variable.space == StateSpace::Shared {
            if bytes > MAX_SHARED_BYTES {
                return Err(unsupported(variable.line, format!("{bytes} bytes of shared memory")));
            }
            self.shared.push(Shared { bytes, align: variable.align.max(1) });
            let symbol = SymbolRef::Shared(self.shared.len() - 1);
            self.elements.insert(symbol, variable.element_bytes);
            return Ok(symbol);
        }
        let space = match variable.space {
            StateSpace::Global => Space::Global,
            StateSpace::Const => Space::Const,
            _ => {
                let name = variable.name;
                return Err(unsupported(variable.line, format!("unsupported state space of `{name}`")));
            }
        };
        self.globals.push(Global {
            name: variable.name.to_owned(),
            space,
            bytes,
            align: variable.align.max(1),
            init: Vec::new(),
            relocations: Vec::new(),
            managed: variable.managed,
            reference: variable.reference,
        });
        let index = self.globals.len() - 1;
        if variable.initializer.is_some() {
            self.initializers.push((index, module, variable.clone()));
        }
        self.elements.insert(SymbolRef::Global(index), variable.element_bytes);
        Ok(SymbolRef::Global(index))
    }

    /// Declares a module-level variable under its name. Definitions go before declarations (`.extern`): the caller's order.
    pub(super) fn module_variable(
        &mut self,
        module: ModuleId,
        variable: &Variable<'a>,
    ) -> Result<(), LoadError> {
        let key = (Self::scope(module, variable.linkage), variable.name);
        if let Some(known) = self.names.get(&key) {
            let shared = matches!(known, SymbolRef::Shared(_)) && variable.space == StateSpace::Shared;
            return match variable.linkage {
                Linkage::Weak | Linkage::Extern | Linkage::Common => Ok(()),
                _ if shared => Ok(()),
                _ => Err(syntax(variable.line, format!("`{}` is defined twice", variable.name))),
            };
        }
        let dynamic = variable.space == StateSpace::Shared;
        if variable.linkage == Linkage::Extern && !dynamic {
            return Err(LoadError {
                line: variable.line,
                message: format!("variable `{}` is not defined in any module", variable.name),
                kind: LoadErrorKind::Unresolved,
            });
        }
        let symbol = self.variable(module, variable)?;
        self.names.insert(key, symbol);
        Ok(())
    }

    /// Declares a function; one index for all its declarations.
    pub(super) fn function(&mut self, module: ModuleId, function: &Function<'a>) -> Result<usize, LoadError> {
        let scope = if function.is_entry { None } else { Self::scope(module, function.linkage) };
        let key = (scope, function.name);
        let index = match self.names.get(&key) {
            Some(SymbolRef::Function(index)) if self.is_entry[*index] == function.is_entry => *index,
            Some(SymbolRef::Function(_)) => {
                let message = format!("`{}` is a kernel and a function", function.name);
                return Err(syntax(function.line, message));
            }
            Some(_) => return Err(syntax(function.line, format!("`{}` is a variable", function.name))),
            None => {
                let (returns, params, _) = layout(&function.signature)?;
                let name = function.name.to_owned();
                self.functions.push(CodeFunction { name, returns, params, ..CodeFunction::default() });
                self.defined.push(false);
                self.is_entry.push(function.is_entry);
                let index = self.functions.len() - 1;
                self.names.insert(key, SymbolRef::Function(index));
                index
            }
        };
        Ok(index)
    }

    /// Adds another name for a function of a module. Calls of both names are the same.
    pub(super) fn alias(&mut self, module: ModuleId, alias: &Alias<'a>) -> Result<(), LoadError> {
        let Some(SymbolRef::Function(target)) = self.symbol(module, alias.target) else {
            return Err(syntax(alias.line, format!("`{}` is not a function", alias.target)));
        };
        for scope in [Some(module), None] {
            if let Some(known) = self.names.get_mut(&(scope, alias.name)) {
                *known = SymbolRef::Function(target);
                return Ok(());
            }
        }
        self.names.insert((None, alias.name), SymbolRef::Function(target));
        Ok(())
    }

    /// Reads all initialisers, once every symbol is known.
    pub(super) fn finish_globals(&mut self) -> Result<(), LoadError> {
        for (index, module, variable) in std::mem::take(&mut self.initializers) {
            let Some(initializer) = &variable.initializer else { continue };
            let (init, relocations) = image::image(self, module, &variable, initializer)?;
            self.globals[index].init = init;
            self.globals[index].relocations = relocations;
        }
        Ok(())
    }

    /// The value of a function's address.
    pub(super) fn function_address(index: usize) -> u64 {
        window::FUNCTION + 16 * index as u64
    }

    /// The number of a new call site.
    pub(super) fn add_call(&mut self, call: Call) -> u64 {
        self.calls.push(call);
        self.calls.len() as u64 - 1
    }
}

/// Offsets of return values and parameters in a function's local memory, and the bytes of all.
pub(super) fn layout(signature: &Signature<'_>) -> Result<(Vec<Piece>, Vec<Piece>, u64), LoadError> {
    let mut next = 0_u64;
    let mut place = |variables: &[Variable<'_>]| {
        let mut pieces = Vec::new();
        for variable in variables {
            let offset = next.next_multiple_of(variable.align.clamp(1, 4096));
            let bytes = variable.bytes().unwrap_or(u64::MAX);
            let end = offset.checked_add(bytes).filter(|end| *end <= 1 << 16);
            next = end.ok_or_else(|| syntax(variable.line, "parameters of more than 64 KiB"))?;
            pieces.push(Piece { offset: offset as u32, bytes: bytes as u32 });
        }
        Ok(pieces)
    };
    let returns = place(&signature.returns)?;
    let params = place(&signature.params)?;
    Ok((returns, params, next))
}
