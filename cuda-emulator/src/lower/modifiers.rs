// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dotted parts of an opcode. Each must be consumed: an instruction with remaining parts is unsupported.

use crate::ptx::types::Type;
use crate::ptx::unsupported;
use crate::symbols::LoadError;

/// The parts after the first.
#[derive(Debug)]
pub(super) struct Modifiers<'a> {
    opcode: &'a str,
    line: u32,
    left: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(super) fn new(opcode: &'a str, line: u32) -> Modifiers<'a> {
        Modifiers { opcode, line, left: opcode.split('.').skip(1).collect() }
    }

    /// Returns whether `name` is present, and consumes it.
    pub(super) fn take(&mut self, name: &str) -> bool {
        self.take_any(&[name]).is_some()
    }

    /// The first part that is one of `names`.
    pub(super) fn take_any(&mut self, names: &[&str]) -> Option<&'a str> {
        self.take_if(|part| names.contains(&part).then_some(part))
    }

    /// The first part that `accept` makes something of.
    pub(super) fn take_if<T>(&mut self, accept: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let (index, found) =
            self.left.iter().enumerate().find_map(|(index, part)| Some((index, accept(part)?)))?;
        self.left.remove(index);
        Some(found)
    }

    /// The next type.
    pub(super) fn take_type(&mut self) -> Option<Type> {
        self.take_if(Type::from_name)
    }

    /// The next type, which must be there.
    pub(super) fn kind(&mut self) -> Result<Type, LoadError> {
        self.take_type().ok_or_else(|| self.unsupported())
    }

    /// Ends the reading: nothing may be left.
    pub(super) fn finish(&self) -> Result<(), LoadError> {
        if self.left.is_empty() { Ok(()) } else { Err(self.unsupported()) }
    }

    /// `found`, or the error that the instruction has no such form here.
    pub(super) fn require<T>(&self, found: Option<T>) -> Result<T, LoadError> {
        found.ok_or_else(|| self.unsupported())
    }

    pub(super) fn unsupported(&self) -> LoadError {
        unsupported(self.line, format!("unsupported instruction `{}`", self.opcode))
    }
}
