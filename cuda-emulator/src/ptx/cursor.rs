// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A position in the tokens.

use cuda_fatbin::tokens::{Token, TokenKind};

use super::ast::Immediate;
use super::syntax;
use crate::symbols::LoadError;

/// The maximum nesting of scopes, lists and parentheses: hostile text must not exhaust the stack.
const MAX_DEPTH: u32 = 64;

pub(super) struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
    depth: u32,
}

impl<'t, 'a> Cursor<'t, 'a> {
    /// `tokens` end with `End`.
    pub(super) fn new(tokens: &'t [Token<'a>]) -> Self {
        Cursor { tokens, at: 0, depth: 0 }
    }

    fn token(&self) -> Token<'a> {
        let end = Token { kind: TokenKind::End, line: 0 };
        self.tokens.get(self.at).or(self.tokens.last()).copied().unwrap_or(end)
    }

    pub(super) fn line(&self) -> u32 {
        self.token().line
    }

    pub(super) fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    pub(super) fn peek(&self) -> TokenKind<'a> {
        self.token().kind
    }

    pub(super) fn peek_word(&self) -> Option<&'a str> {
        match self.peek() {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is(&self, punctuation: u8) -> bool {
        self.peek() == TokenKind::Punctuation(punctuation)
    }

    /// Returns whether the token after the next is `punctuation`.
    pub(super) fn is_second(&self, punctuation: u8) -> bool {
        let second = self.tokens.get(self.at + 1).map(|token| token.kind);
        second == Some(TokenKind::Punctuation(punctuation))
    }

    /// Returns whether the token after the next is a floating-point literal.
    pub(super) fn is_second_float(&self) -> bool {
        let second = self.tokens.get(self.at + 1).map(|token| token.kind);
        matches!(second, Some(TokenKind::Number(Immediate::F32(_) | Immediate::F64(_))))
    }

    pub(super) fn is_second_word(&self) -> bool {
        matches!(self.tokens.get(self.at + 1).map(|token| token.kind), Some(TokenKind::Word(_)))
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len());
    }

    /// Consumes `punctuation` if it is next.
    pub(super) fn take(&mut self, punctuation: u8) -> bool {
        let found = self.is(punctuation);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes `word` if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, punctuation: u8) -> Result<(), LoadError> {
        if self.take(punctuation) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{}`", char::from(punctuation))))
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, LoadError> {
        let word = self.peek_word().ok_or_else(|| self.unexpected(what))?;
        self.advance();
        Ok(word)
    }

    /// A non-negative integer literal.
    pub(super) fn integer(&mut self, what: &str) -> Result<u64, LoadError> {
        match self.peek() {
            TokenKind::Number(Immediate::Int(value)) => {
                self.advance();
                Ok(value)
            }
            _ => Err(self.unexpected(what)),
        }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> LoadError {
        let found = match self.peek() {
            TokenKind::Word(word) => format!("`{word}`"),
            TokenKind::Number(number) => format!("{number:?}"),
            TokenKind::Text(_) => "a string".to_owned(),
            TokenKind::Punctuation(byte) => format!("`{}`", char::from(byte)),
            TokenKind::End => "the end of the text".to_owned(),
        };
        syntax(self.line(), format!("{wanted} expected, found {found}"))
    }

    /// Skips the tokens of the current line.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while !self.at_end() && self.line() == line {
            self.advance();
        }
    }

    /// Runs `parse` one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, LoadError>,
    ) -> Result<T, LoadError> {
        if self.depth >= MAX_DEPTH {
            return Err(syntax(self.line(), format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// `element {, element} close`; the opening token is consumed already.
    pub(super) fn list<T>(
        &mut self,
        close: u8,
        element: impl Fn(&mut Self) -> Result<T, LoadError>,
    ) -> Result<Vec<T>, LoadError> {
        let mut list = Vec::new();
        if self.take(close) {
            return Ok(list);
        }
        loop {
            list.push(self.nested(&element)?);
            if !self.take(b',') {
                self.expect(close)?;
                return Ok(list);
            }
        }
    }
}
