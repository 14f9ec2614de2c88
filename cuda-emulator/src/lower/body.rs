// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statements of a function, one after the other.

use std::collections::HashMap;

use super::draft::Label;
use super::function::{Function, MAX_DRAFTS, Name};
use super::instruction;
use crate::ptx::ast::Statement;
use crate::ptx::unsupported;
use crate::symbols::LoadError;

impl<'a> Function<'_, 'a> {
    /// Lowers the statements of a scope.
    pub(super) fn body(&mut self, statements: &[Statement<'a>]) -> Result<(), LoadError> {
        for statement in statements {
            if let Statement::Label { name, line } = statement {
                let label = Label(self.labels.len());
                self.labels.push(usize::MAX);
                self.declare(name, Name::Label(label), *line)?;
            }
        }
        for statement in statements {
            match statement {
                Statement::Label { name, .. } => {
                    if let Some(Name::Label(Label(label))) = self.look_up(name) {
                        let label = *label;
                        self.labels[label] = self.drafts.len();
                    }
                }
                Statement::Registers { kind, names, line } => self.registers(*kind, names, *line)?,
                Statement::Variable(variable) => self.variable(variable)?,
                // The sizes are those of the argument variables of the call.
                Statement::Prototype { name } => self.declare(name, Name::Prototype, self.line)?,
                Statement::Targets { name, labels } => {
                    self.declare(name, Name::Targets(labels.clone()), self.line)?;
                }
                Statement::Block(inner) => {
                    let local_next = self.local_next;
                    self.scopes.push(HashMap::new());
                    let result = self.body(inner);
                    self.scopes.pop();
                    self.local_next = local_next;
                    result?;
                }
                Statement::Instruction(instruction) => {
                    let first = self.drafts.len();
                    instruction::instruction(self, instruction)?;
                    let stays = instruction::stays(instruction.opcode);
                    self.drafts[first..].iter_mut().for_each(|draft| draft.stays = stays);
                    if self.drafts.len() > MAX_DRAFTS {
                        return Err(unsupported(self.line, "function with too many instructions"));
                    }
                }
            }
        }
        Ok(())
    }
}
