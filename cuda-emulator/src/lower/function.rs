// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The function that is being lowered: its names, its registers, its drafts.

use std::collections::{BTreeSet, HashMap};

use super::draft::{After, Arg, Draft, Label, Register, Width};
use super::linker::{Linker, ModuleId, SymbolRef};
use crate::code::{Handler, Piece};
use crate::ptx::ast::{RegisterNames, Variable};
use crate::ptx::types::{StateSpace, Type};
use crate::ptx::{syntax, unsupported};
use crate::symbols::LoadError;

/// The maximum local memory that one function may declare, in bytes: the hardware's limit for a thread.
const MAX_LOCAL_BYTES: u64 = 512 << 10;
/// Instructions of one function: keeps positions far from overflow.
pub(super) const MAX_DRAFTS: usize = 1 << 24;

/// The meaning of a name inside a function.
#[derive(Debug, Clone)]
pub(super) enum Name<'a> {
    Register(Register),
    /// `%r<n>`: the registers with the following numbers.
    Registers {
        first: Register,
        count: u32,
    },
    /// A piece of the function's local memory: `.local`, parameters of functions and of calls.
    Frame(Piece),
    /// A parameter of the kernel.
    KernelParam(Piece),
    Symbol(SymbolRef),
    Label(Label),
    Prototype,
    Targets(Vec<&'a str>),
}

/// A function in the making.
pub(super) struct Function<'l, 'a> {
    pub(super) linker: &'l mut Linker<'a>,
    pub(super) module: ModuleId,
    /// Its index in the program.
    pub(super) index: usize,
    pub(super) is_entry: bool,
    /// Innermost last.
    pub(super) scopes: Vec<HashMap<&'a str, Name<'a>>>,
    pub(super) widths: Vec<Width>,
    pub(super) drafts: Vec<Draft>,
    /// Positions; `usize::MAX` until the label is met.
    pub(super) labels: Vec<usize>,
    /// The next free byte of local memory, and the maximum that was ever in use.
    pub(super) local_next: u64,
    pub(super) local_bytes: u64,
    pub(super) shared: BTreeSet<usize>,
    pub(super) callees: BTreeSet<usize>,
    pub(super) calls_indirectly: bool,
    pub(super) launches_kernels: bool,
    pub(super) launches_graphs: bool,
    pub(super) line: u32,
    pub(super) guard: Option<(Register, bool)>,
    /// Results that the function has in registers (`.reg`), and where its callers find them.
    pub(super) register_results: Vec<(Register, Piece)>,
}

impl<'l, 'a> Function<'l, 'a> {
    pub(super) fn new(linker: &'l mut Linker<'a>, module: ModuleId, index: usize, is_entry: bool) -> Self {
        Function {
            linker,
            module,
            index,
            is_entry,
            scopes: vec![HashMap::new()],
            widths: Vec::new(),
            drafts: Vec::new(),
            labels: Vec::new(),
            local_next: 0,
            local_bytes: 0,
            shared: BTreeSet::new(),
            callees: BTreeSet::new(),
            calls_indirectly: false,
            launches_kernels: false,
            launches_graphs: false,
            line: 0,
            guard: None,
            register_results: Vec::new(),
        }
    }

    pub(super) fn declare(&mut self, name: &'a str, meaning: Name<'a>, line: u32) -> Result<(), LoadError> {
        let scope = self.scopes.last_mut();
        if scope.is_none_or(|scope| scope.insert(name, meaning).is_some()) {
            return Err(syntax(line, format!("`{name}` is declared twice")));
        }
        Ok(())
    }

    pub(super) fn registers(
        &mut self,
        kind: Type,
        names: &[RegisterNames<'a>],
        line: u32,
    ) -> Result<(), LoadError> {
        let width = Width::of(kind);
        for names in names {
            let first = Register(self.widths.len() as u32);
            let count = names.count.unwrap_or(1);
            if self.widths.len() + count as usize > MAX_DRAFTS {
                return Err(unsupported(line, "function with too many registers"));
            }
            self.widths.resize(self.widths.len() + count as usize, width);
            let meaning = match names.count {
                Some(count) => Name::Registers { first, count },
                None => Name::Register(first),
            };
            self.declare(names.name, meaning, line)?;
        }
        Ok(())
    }

    pub(super) fn variable(&mut self, variable: &Variable<'a>) -> Result<(), LoadError> {
        let meaning = match variable.space {
            StateSpace::Local | StateSpace::Param => Name::Frame(self.local(variable)?),
            _ => Name::Symbol(self.linker.variable(self.module, variable)?),
        };
        self.declare(variable.name, meaning, variable.line)
    }

    /// Room in local memory for a variable.
    pub(super) fn local(&mut self, variable: &Variable<'a>) -> Result<Piece, LoadError> {
        let too_large = || unsupported(variable.line, format!("`{}` is too large", variable.name));
        let bytes = variable.bytes().ok_or_else(too_large)?;
        let offset = self.local_next.next_multiple_of(variable.align.clamp(1, 4096));
        let end = offset.checked_add(bytes).filter(|end| *end <= MAX_LOCAL_BYTES).ok_or_else(too_large)?;
        self.local_next = end;
        self.local_bytes = self.local_bytes.max(end);
        Ok(Piece { offset: offset as u32, bytes: bytes as u32 })
    }

    /// Reserves local memory for a register that is an argument or a result of a call.
    pub(super) fn room(&mut self, bytes: u32) -> Result<Piece, LoadError> {
        let offset = self.local_next.next_multiple_of(u64::from(bytes.max(1).next_power_of_two()));
        let end = offset + u64::from(bytes);
        if end > MAX_LOCAL_BYTES {
            return Err(unsupported(self.line, "too many arguments in registers"));
        }
        self.local_next = end;
        self.local_bytes = self.local_bytes.max(end);
        Ok(Piece { offset: offset as u32, bytes })
    }

    /// Looks a name up, in the innermost scope first, then in the module.
    pub(super) fn look_up(&self, name: &str) -> Option<&Name<'a>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// The symbol of the module or program by that name.
    pub(super) fn symbol(&self, name: &str) -> Option<SymbolRef> {
        match self.look_up(name) {
            Some(Name::Symbol(symbol)) => Some(*symbol),
            Some(_) => None,
            None => self.linker.symbol(self.module, name),
        }
    }

    /// The register by that name, and its width.
    pub(super) fn register(&self, name: &str) -> Option<(Register, Width)> {
        let found = match self.look_up(name) {
            Some(Name::Register(register)) => *register,
            Some(_) => return None,
            None => {
                let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
                let (stem, number) = name.split_at(name.len() - digits);
                // `%r01` is not `%r1`.
                if number.len() > 1 && number.starts_with('0') {
                    return None;
                }
                let number: u32 = number.parse().ok()?;
                match self.look_up(stem) {
                    Some(Name::Registers { first, count }) if number < *count => Register(first.0 + number),
                    _ => return None,
                }
            }
        };
        Some((found, self.widths[found.0 as usize]))
    }

    /// A register of its own.
    pub(super) fn temporary(&mut self, width: Width) -> Register {
        self.widths.push(width);
        Register(self.widths.len() as u32 - 1)
    }

    /// A constant in all lanes.
    pub(super) fn constant(&mut self, width: Width, bits: u64) -> Arg {
        let bits = match width {
            Width::B64 | Width::B128 => bits,
            Width::Predicate => u64::from(bits != 0),
            _ => bits & ((1 << (8 * width.bytes())) - 1),
        };
        self.linker.pool.constant(width, bits)
    }

    /// Appends an instruction under the guard of the current one.
    pub(super) fn emit(&mut self, run: Handler, args: &[Arg]) -> &mut Draft {
        let mut ops = [Arg::None; 8];
        ops[..args.len()].copy_from_slice(args);
        let draft = Draft {
            run,
            imm: 0,
            ops,
            more: Vec::new(),
            guard: self.guard,
            line: self.line,
            aux: 0,
            cached: false,
            after: After::Next,
            stays: false,
        };
        self.drafts.push(draft);
        let last = self.drafts.len() - 1;
        &mut self.drafts[last]
    }

    /// A mistake in the current instruction.
    pub(super) fn error(&self, message: impl Into<String>) -> LoadError {
        syntax(self.line, message)
    }
}
