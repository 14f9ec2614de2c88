// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses PTX text to a syntax tree. `lower` resolves names and knows the opcodes.

pub(crate) mod ast;
mod cursor;
mod directive;
mod error;
mod initializer;
mod lexer;
mod module;
mod operand;
#[cfg(test)]
mod parser_test;
mod statement;
pub(crate) mod types;

use crate::symbols::LoadError;
pub(crate) use error::{syntax, unsupported};

/// Parses one module.
pub(crate) fn parse(text: &str) -> Result<ast::Module<'_>, LoadError> {
    let tokens = lexer::tokenize(text.trim_end_matches('\0'))?;
    module::module(&mut cursor::Cursor::new(&tokens))
}
