// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PTX text to tokens. Words keep their dots: `ld.global.f32`, `.reg`, `%tid.x` and `.shared::cta` are one token each.

use thiserror::Error;

/// A literal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Immediate {
    /// Two's complement.
    Int(u64),
    /// The bits of `0f…`.
    F32(u32),
    /// The bits of `0d…` or of a decimal literal.
    F64(u64),
}

/// A token and its line, from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token<'a> {
    /// The token.
    pub kind: TokenKind<'a>,
    /// Its line.
    pub line: u32,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TokenKind<'a> {
    /// A name, a directive or an instruction.
    Word(&'a str),
    /// A literal.
    Number(Immediate),
    /// The text between quotation marks.
    Text(&'a str),
    /// Any other character.
    Punctuation(u8),
    /// The end of the text.
    End,
}

/// A text that is not made of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct TokenError {
    /// The line, from 1.
    pub line: u32,
    /// The fault.
    pub message: String,
}

fn error(line: u32, message: impl Into<String>) -> TokenError {
    TokenError { line, message: message.into() }
}

/// The tokens of a text, one after the other.
#[derive(Debug)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl<'a> Tokens<'a> {
    /// Begins with the first token.
    pub fn new(text: &'a str) -> Self {
        Tokens { text, at: 0, line: 1 }
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

impl<'a> Tokens<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The next token; after the last one, [`TokenKind::End`].
    ///
    /// Errors: the text goes on with something else.
    pub fn read(&mut self) -> Result<Token<'a>, TokenError> {
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
            return Err(error(line, format!("unexpected byte {first:#04x}")));
        };
        Ok(Token { kind, line })
    }

    fn skip_blank(&mut self) -> Result<(), TokenError> {
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
                        return Err(error(self.line, "comment without end"));
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

    fn string(&mut self) -> Result<&'a str, TokenError> {
        let start = self.at + 1;
        let Some(length) = self.text[start..].find(['"', '\n']) else {
            return Err(error(self.line, "string without end"));
        };
        if self.text.as_bytes()[start + length] == b'\n' {
            return Err(error(self.line, "string without end"));
        }
        self.at = start + length + 1;
        Ok(&self.text[start..start + length])
    }

    fn number(&mut self) -> Result<Immediate, TokenError> {
        let line = self.line;
        let second = self.peek(1).to_ascii_lowercase();
        if self.peek(0) == b'0' && matches!(second, b'f' | b'd' | b'x' | b'b') {
            self.at += 2;
            let digits = self.take(|byte| byte.is_ascii_alphanumeric());
            let bad = || error(line, format!("malformed number 0{}{digits}", char::from(second)));
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
        // `8.b8` is a number and a directive.
        let is_float = match self.peek(0) {
            b'.' => !is_word_start(self.peek(1)) || self.is_exponent(1),
            _ => self.is_exponent(0),
        };
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
            let value: f64 = text.parse().map_err(|_| error(line, format!("malformed number {text}")))?;
            return Ok(Immediate::F64(value.to_bits()));
        }
        self.take(|byte| byte.is_ascii_alphanumeric());
        let text = &self.text[start..self.at];
        let octal = text.len() > 1 && text.starts_with('0') && text.trim_end_matches('U').len() > 1;
        integer(text, if octal { 8 } else { 10 })
            .ok_or_else(|| error(line, format!("malformed number {text}")))
    }

    fn is_exponent(&self, ahead: usize) -> bool {
        let (letter, next) = (self.peek(ahead), self.peek(ahead + 1));
        matches!(letter, b'e' | b'E') && (next.is_ascii_digit() || matches!(next, b'+' | b'-'))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<TokenKind<'_>>, TokenError> {
        let mut tokens = Tokens::new(text);
        let mut all = Vec::new();
        loop {
            match tokens.read()?.kind {
                TokenKind::End => return Ok(all),
                kind => all.push(kind),
            }
        }
    }

    #[test]
    fn strings_and_comments_hide_each_other() {
        use TokenKind::{Punctuation, Text, Word};
        let (pragma, end) = (Word(".pragma"), Punctuation(b';'));
        assert_eq!(tokens(".pragma \"/*\"; .b8 /* \"; */"), Ok(vec![pragma, Text("/*"), end, Word(".b8")]));
        assert_eq!(tokens("\"// ;\" // \"\n;"), Ok(vec![Text("// ;"), end]));
        assert!(tokens("\"a\nb\"").is_err() && tokens("/* ").is_err() && tokens("\"").is_err());
    }

    #[test]
    fn directives_may_follow_numbers_closely() {
        use TokenKind::{Number, Word};
        let int = |value| Number(Immediate::Int(value));
        assert_eq!(tokens(".align 8.b8 x"), Ok(vec![Word(".align"), int(8), Word(".b8"), Word("x")]));
        let float = |value: f64| Number(Immediate::F64(value.to_bits()));
        assert_eq!(
            tokens("8.0 8.e2 8. 8e1 0x8U 010"),
            Ok(vec![float(8.0), float(800.0), float(8.0), float(80.0), int(8), int(8)])
        );
    }
}
