// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From syntax trees to a flat register program: names, types, labels and addresses are resolved here, and every
//! instruction gets its handler, so that nothing unknown is left for run time.

mod assemble;
mod body;
mod draft;
mod families;
mod function;
mod image;
mod instruction;
mod linker;
mod modifiers;
mod operands;
mod registers;
mod shapes;

use linker::{Linker, ModuleId};

use crate::code::program::Program;
use crate::ptx::ast::{Linkage, Module};
use crate::symbols::LoadError;

impl Program {
    /// Parses and lowers one module. A trailing NUL is allowed.
    pub fn load(ptx: &str) -> Result<Program, LoadError> {
        Program::link(&[ptx])
    }

    /// Parses and lowers several modules into one program, as the device linker does.
    pub fn link(ptx: &[&str]) -> Result<Program, LoadError> {
        let mut texts = ptx.to_vec();
        if ptx.iter().any(|text| text.contains("cudaCG")) {
            texts.push(include_str!("cooperative.ptx"));
        }
        let modules = texts.iter().map(|text| crate::ptx::parse(text)).collect::<Result<Vec<_>, _>>()?;
        link(&modules)
    }
}

/// Links modules into a program.
fn link(modules: &[Module<'_>]) -> Result<Program, LoadError> {
    let mut linker = Linker::default();
    let numbered = || modules.iter().enumerate().map(|(index, module)| (ModuleId(index), module));
    // Definitions first: declarations then find them.
    for declarations in [false, true] {
        for (id, module) in numbered() {
            for variable in &module.variables {
                if (variable.linkage == Linkage::Extern) == declarations {
                    linker.module_variable(id, variable)?;
                }
            }
        }
    }
    let mut bodies = Vec::new();
    for (id, module) in numbered() {
        for function in &module.functions {
            let index = linker.function(id, function)?;
            if function.body.is_none() {
                continue;
            }
            if linker.defined[index] {
                if function.linkage == Linkage::Weak {
                    continue;
                }
                let message = format!("`{}` is defined twice", function.name);
                return Err(crate::ptx::syntax(function.line, message));
            }
            linker.defined[index] = true;
            bodies.push((id, index, function));
        }
    }
    for (id, module) in numbered() {
        for alias in &module.aliases {
            linker.alias(id, alias)?;
        }
    }
    let mut assembly = assemble::Assembly::default();
    for (id, index, function) in bodies {
        assembly.function(&mut linker, id, &modules[id.0], index, function)?;
    }
    linker.finish_globals()?;
    assembly.finish(linker)
}
