// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assembles the drafts of all functions to the code of a program, and describes its kernels.

use std::collections::{BTreeSet, HashMap};

use super::draft::{After, Arg, Draft, Register, Width};
use super::families::control::leave;
use super::families::memory::load_piece;
use super::function::{Function, Name};
use super::linker::{Linker, ModuleId, Shared};
use super::registers::{self, Assignment};
use crate::code::program::Program;
use crate::code::{Code, DYNAMIC_ALIGNMENT, Entry, GUARD_NOT, Instr, Mention, NO_GUARD, Next, Shape};
use crate::ptx::ast::{self, Module};
use crate::ptx::unsupported;
use crate::symbols::{Kernel, LoadError, Param};

/// Bytes that the registers of one warp may take in one function.
const MAX_FRAME_BYTES: u64 = 8 << 20;
/// Bytes of constants of a program: offsets must stay below [`crate::code::CONSTANT`].
const MAX_POOL_BYTES: usize = 1 << 30;
/// The maximum number of threads per block, unless the kernel has a lower one.
const MAX_THREADS: u64 = 1024;
/// The maximum static shared memory of a kernel in bytes: several times as much as any hardware has.
const MAX_SHARED_BYTES: u32 = 1 << 20;
/// Registers of a thread that are counted: ptxas reorders to need fewer, and a kernel must not be refused that a GPU launches with the largest
/// blocks.
const MAX_COUNTED: u32 = 64;

/// The features that a function uses.
#[derive(Debug, Default)]
struct Uses {
    shared: BTreeSet<usize>,
    callees: BTreeSet<usize>,
    indirect: bool,
    launches_kernels: bool,
    launches_graphs: bool,
    registers: u32,
}

/// The code so far.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    code: Code,
    kernels: Vec<(usize, Kernel)>,
    uses: HashMap<usize, Uses>,
}

impl Assembly {
    /// Lowers one function and appends its code.
    pub(super) fn function<'a>(
        &mut self,
        linker: &mut Linker<'a>,
        id: ModuleId,
        module: &Module<'a>,
        index: usize,
        ast: &ast::Function<'a>,
    ) -> Result<(), LoadError> {
        let mut function = Function::new(linker, id, index, ast.is_entry);
        let params = parameters(&mut function, index, ast)?;
        function.body(ast.body.as_deref().unwrap_or(&[]))?;
        function.guard = None;
        leave(&mut function)?;
        let assignment = registers::assign(&function.drafts, &function.widths, &function.labels);
        if assignment.frame_bytes > MAX_FRAME_BYTES || function.linker.pool.bytes() > MAX_POOL_BYTES {
            return Err(unsupported(ast.line, format!("`{}` needs too many registers", ast.name)));
        }
        let entry_pc = self.code.instrs.len() as u32;
        for draft in &function.drafts {
            let instr = self.instruction(draft, &assignment, &function.labels, entry_pc);
            self.code.instrs.push(instr);
            self.shape(draft, &assignment, &function.widths);
        }
        let local_bytes = function.local_bytes as u32;
        let uses = Uses {
            shared: std::mem::take(&mut function.shared),
            callees: std::mem::take(&mut function.callees),
            indirect: function.calls_indirectly,
            launches_kernels: function.launches_kernels,
            launches_graphs: function.launches_graphs,
            registers: assignment.pressure,
        };
        self.uses.insert(index, uses);
        let record = &mut linker.functions[index];
        record.callable = !ast.is_entry;
        record.entry_pc = entry_pc;
        record.end_pc = self.code.instrs.len() as u32;
        record.frame_bytes = assignment.frame_bytes as u32;
        record.local_bytes = local_bytes;
        if ast.is_entry {
            let param_bytes = params.last().map_or(0, |param| param.offset + param.size);
            let kernel = Kernel {
                name: ast.name.to_owned(),
                params,
                param_bytes,
                static_shared: 0,
                launches_kernels: false,
                launches_graphs: false,
                cluster: ast.cluster,
                registers: 0,
                max_threads: ast.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS) as u32,
                local_bytes,
                ptx_version: module.version,
                target: module.target,
            };
            self.kernels.push((index, kernel));
        }
        Ok(())
    }

    fn instruction(&mut self, draft: &Draft, assignment: &Assignment, labels: &[usize], start: u32) -> Instr {
        let place = |register: Register| assignment.offsets[register.0 as usize];
        let mut imm = draft.imm;
        let position = |label: &super::draft::Label| labels[label.0] as u32 + start;
        match &draft.after {
            After::Jump(label) => imm = u64::from(position(label)),
            After::Table(table) => {
                self.code.tables.push(table.iter().map(position).collect());
                imm = self.code.tables.len() as u64 - 1;
            }
            After::Next | After::End => {}
        }
        let mut slot = u32::MAX;
        if draft.cached {
            slot = self.code.slots;
            self.code.slots += 1;
        }
        let operand = |arg: &Arg| match *arg {
            Arg::None => 0,
            Arg::Def(register) | Arg::Use(register) => place(register),
            Arg::Constant(offset) => offset,
        };
        let mut ops = draft.ops.each_ref().map(operand);
        if !draft.more.is_empty() {
            ops[7] = self.code.operands.len() as u32;
            self.code.operands.extend(draft.more.iter().map(operand));
        }
        let guard = match draft.guard {
            None => NO_GUARD,
            Some((register, negated)) => place(register) | if negated { GUARD_NOT } else { 0 },
        };
        Instr { run: draft.run, imm, ops, guard, line: draft.line, slot, aux: draft.aux }
    }

    /// Writes down what `draft` mentions.
    fn shape(&mut self, draft: &Draft, assignment: &Assignment, widths: &[Width]) {
        let next = match draft.after {
            After::Next => Next::Following,
            After::Jump(_) => Next::Jump,
            After::Table(_) => Next::Table,
            After::End => Next::Nowhere,
        };
        let first = self.code.mentions.len() as u32;
        self.code.shapes.push(Shape { first, next, stays: draft.stays });
        let mut mention = |register: Register, written| {
            let index = register.0 as usize;
            let (place, bytes) = (assignment.offsets[index], widths[index].bytes() as u8);
            self.code.mentions.push(Mention { place, bytes, written });
        };
        for arg in draft.ops.iter().chain(&draft.more) {
            match *arg {
                Arg::Def(register) => mention(register, true),
                Arg::Use(register) => mention(register, false),
                Arg::None | Arg::Constant(_) => {}
            }
        }
        if let Some((register, _)) = draft.guard {
            mention(register, false);
        }
    }

    /// The program, once all functions are in.
    pub(super) fn finish(mut self, linker: Linker<'_>) -> Result<Program, LoadError> {
        let mut kernels = HashMap::new();
        for (index, mut kernel) in std::mem::take(&mut self.kernels) {
            let (shared, registers) = self.closure(index, linker.functions.len());
            let (offsets, bytes) = place_shared(&linker.shared, &shared);
            let bytes =
                u32::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_SHARED_BYTES).ok_or_else(|| {
                    unsupported(0, format!("`{}` uses {bytes} bytes of shared memory", kernel.name))
                })?;
            kernel.static_shared = bytes;
            kernel.launches_kernels = self.reaches(index, |uses| uses.launches_kernels);
            kernel.launches_graphs = self.reaches(index, |uses| uses.launches_graphs);
            kernel.registers = registers.clamp(8, MAX_COUNTED);
            let entry = Entry { function: index, shared_offsets: offsets };
            self.code.entries.insert(kernel.name.clone(), entry);
            kernels.insert(kernel.name.clone(), kernel);
        }
        let first = self.code.mentions.len() as u32;
        self.code.shapes.push(Shape { first, next: Next::Nowhere, stays: false });
        self.code.uses_reserved_shared = linker.uses_reserved_shared;
        self.code.calls = linker.calls;
        self.code.functions = linker.functions;
        self.code.matrices = linker.matrices;
        self.code.constants = linker.pool.into_lines();
        self.code.native = crate::jit::native();
        Ok(Program { kernels, globals: linker.globals, code: self.code })
    }

    /// Returns whether a function, or one that it calls by name, is of a kind.
    fn reaches(&self, start: usize, is: impl Fn(&Uses) -> bool) -> bool {
        let (mut seen, mut left) = (BTreeSet::new(), vec![start]);
        while let Some(index) = left.pop() {
            let Some(uses) = self.uses.get(&index).filter(|_| seen.insert(index)) else { continue };
            if is(uses) {
                return true;
            }
            left.extend(&uses.callees);
        }
        false
    }

    /// The shared variables that a function and its callees use, and the registers of the hungriest.
    fn closure(&self, start: usize, functions: usize) -> (BTreeSet<usize>, u32) {
        let mut seen = vec![false; functions];
        let mut left = vec![start];
        let mut shared = BTreeSet::new();
        let mut registers = 0;
        while let Some(index) = left.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let Some(uses) = self.uses.get(&index) else { continue };
            shared.extend(&uses.shared);
            registers = registers.max(uses.registers);
            left.extend(&uses.callees);
            if uses.indirect {
                // It may call anything whose address is in a table somewhere.
                left.extend(self.uses.keys());
            }
        }
        (shared, registers)
    }
}

/// Offsets of the variables in `used` (others: `u32::MAX`), and the bytes of the static ones. Dynamic shared memory
/// follows them, aligned as its variables ask.
fn place_shared(variables: &[Shared], used: &BTreeSet<usize>) -> (Vec<u32>, u64) {
    let mut offsets = vec![u32::MAX; variables.len()];
    let mut next = 0_u64;
    for index in used {
        let variable = variables[*index];
        if variable.bytes > 0 {
            next = next.next_multiple_of(variable.align);
            offsets[*index] = u32::try_from(next).unwrap_or(u32::MAX);
            next += variable.bytes;
        }
    }
    let dynamic = || used.iter().filter(|index| variables[**index].bytes == 0);
    // As ptxas does, static bytes include the padding before the dynamic ones.
    if let Some(align) = dynamic().map(|index| variables[*index].align).max() {
        next = next.next_multiple_of(align.max(u64::from(DYNAMIC_ALIGNMENT)));
    }
    for index in dynamic() {
        offsets[*index] = u32::try_from(next).unwrap_or(u32::MAX);
    }
    (offsets, next)
}

/// Declares the parameters; returns the kernel's.
fn parameters<'a>(
    function: &mut Function<'_, 'a>,
    index: usize,
    ast: &ast::Function<'a>,
) -> Result<Vec<Param>, LoadError> {
    function.line = ast.line;
    let signature = &ast.signature;
    if !ast.is_entry {
        // The same order as in `linker::layout`, so the same places.
        for (place, variable) in signature.returns.iter().chain(&signature.params).enumerate() {
            let piece = function.local(variable)?;
            if variable.name == "_" {
                continue;
            }
            if !variable.in_register {
                function.declare(variable.name, Name::Frame(piece), variable.line)?;
                continue;
            }
            let register = function.temporary(Width::of(variable.kind));
            function.declare(variable.name, Name::Register(register), variable.line)?;
            if place < signature.returns.len() {
                function.register_results.push((register, piece));
            } else {
                load_piece(function, register, piece)?;
            }
        }
        let known = &function.linker.functions[index];
        let count = (known.returns.len(), known.params.len());
        if count != (signature.returns.len(), signature.params.len()) {
            return Err(function.error(format!("`{}` differs from its declaration", ast.name)));
        }
        let (returns, params, _) = super::linker::layout(signature)?;
        let known = &mut function.linker.functions[index];
        (known.returns, known.params) = (returns, params);
        return Ok(Vec::new());
    }
    let (_, pieces, _) = super::linker::layout(signature)?;
    let mut params = Vec::new();
    for (variable, piece) in signature.params.iter().zip(pieces) {
        function.declare(variable.name, Name::KernelParam(piece), variable.line)?;
        let align = u32::try_from(variable.align).unwrap_or(1);
        params.push(Param { offset: piece.offset, size: piece.bytes, align });
    }
    Ok(params)
}
