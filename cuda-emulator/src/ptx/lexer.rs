// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text to tokens. Words keep their dots: `ld.global.f32`, `.reg`, `%tid.x` and `.shared::cta` are one token each.

use super::ast::Immediate;
use super::syntax;
use crate::program::LoadError;

/// A token and its line, from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind<'a>,
    pub(super) line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TokenKind<'a> {
    Word(&'a str),
    Number(Immediate),
    Text(&'a str),
    Punctuation(u8),
    End,
}

/// The whole text; the last token is `End`.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, LoadError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    // nvcc's PTX has a token in about 5 bytes.
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Token<'a>, LoadError> {
        self.skip_blank()?;
        let line = self.line;
        let start = self.at;
        let first = self.peek(0);
        let kind = if start >= self.text.len() {
            TokenKind::End
        } else if is_word_start(first) && !(first == b'.' && self.peek(1).is_ascii_digit()) {
            self.word();
            TokenKind::Word(&self.text[start..self.at])
        } else if first.is_ascii_digit() {
            TokenKind::Number(self.number()?)
        } else if first == b'"' {
            TokenKind::Text(self.string()?)
        } else if first.is_ascii_punctuation() {
            self.at += 1;
            TokenKind::Punctuation(first)
        } else {
            return Err(syntax(line, format!("unexpected byte {first:#04x}")));
        };
        Ok(Token { kind, line })
    }

    fn skip_blank(&mut self) -> Result<(), LoadError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                (b'/', b'*') => {
                    let rest = &self.text[self.at + 2..];
                    let Some(length) = rest.find("*/") else {
                        return Err(syntax(self.line, "comment without end"));
                    };
                    self.line += rest[..length].bytes().filter(|byte| *byte == b'\n').count() as u32;
                    self.at += length + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn word(&mut self) {
        self.at += 1;
        loop {
            if is_word(self.peek(0)) {
                self.at += 1;
            } else if self.peek(0) == b':' && self.peek(1) == b':' && is_word(self.peek(2)) {
                self.at += 3;
            } else {
                return;
            }
        }
    }

    fn string(&mut self) -> Result<&'a str, LoadError> {
        let start = self.at + 1;
        let Some(length) = self.text[start..].find(['"', '\n']) else {
            return Err(syntax(self.line, "string without end"));
        };
        if self.text.as_bytes()[start + length] == b'\n' {
            return Err(syntax(self.line, "string without end"));
        }
        self.at = start + length + 1;
        Ok(&self.text[start..start + length])
    }

    fn number(&mut self) -> Result<Immediate, LoadError> {
        let line = self.line;
        let second = self.peek(1).to_ascii_lowercase();
        if self.peek(0) == b'0' && matches!(second, b'f' | b'd' | b'x' | b'b') {
            self.at += 2;
            let digits = self.take(|byte| byte.is_ascii_alphanumeric());
            let bad = || syntax(line, format!("malformed number 0{}{digits}", char::from(second)));
            return match second {
                b'f' if digits.len() == 8 => {
                    u32::from_str_radix(digits, 16).map(Immediate::F32).map_err(|_| bad())
                }
                b'd' if digits.len() == 16 => {
                    u64::from_str_radix(digits, 16).map(Immediate::F64).map_err(|_| bad())
                }
                b'x' => integer(digits, 16).ok_or_else(bad),
                b'b' => integer(digits, 2).ok_or_else(bad),
                _ => Err(bad()),
            };
        }
        let start = self.at;
        self.take(|byte| byte.is_ascii_digit());
        let is_float = self.peek(0) == b'.' || matches!(self.peek(0), b'e' | b'E');
        if is_float {
            self.take(|byte| byte == b'.' || byte.is_ascii_digit());
            if matches!(self.peek(0), b'e' | b'E') {
                self.at += 1;
                if matches!(self.peek(0), b'+' | b'-') {
                    self.at += 1;
                }
                self.take(|byte| byte.is_ascii_digit());
            }
            let text = &self.text[start..self.at];
            let value: f64 = text.parse().map_err(|_| syntax(line, format!("malformed number {text}")))?;
            return Ok(Immediate::F64(value.to_bits()));
        }
        self.take(|byte| byte.is_ascii_alphanumeric());
        let text = &self.text[start..self.at];
        let octal = text.len() > 1 && text.starts_with('0') && text.trim_end_matches('U').len() > 1;
        integer(text, if octal { 8 } else { 10 })
            .ok_or_else(|| syntax(line, format!("malformed number {text}")))
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while wanted(self.peek(0)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }
}

fn integer(digits: &str, radix: u32) -> Option<Immediate> {
    u64::from_str_radix(digits.strip_suffix('U').unwrap_or(digits), radix).ok().map(Immediate::Int)
}
