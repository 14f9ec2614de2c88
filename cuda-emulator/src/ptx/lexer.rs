// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All tokens of a text.

use cuda_fatbin::tokens::{Token, TokenKind, Tokens};

use super::syntax;
use crate::symbols::LoadError;

/// The whole text; the last token is `End`.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, LoadError> {
    let mut lexer = Tokens::new(text);
    // nvcc's PTX has a token in about 5 bytes.
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    loop {
        let token = lexer.read().map_err(|error| syntax(error.line, error.message))?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}
