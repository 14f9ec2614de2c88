// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initial values of variables, after the `=`.

use super::ast::{Immediate, Initializer};
use super::cursor::Cursor;
use super::operand::{number, offset};
use super::syntax;
use crate::symbols::LoadError;

/// A value, an address, or a list of them in braces.
pub(super) fn initializer<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Initializer<'a>, LoadError> {
    if cursor.take(b'{') {
        return cursor.list(b'}', initializer).map(Initializer::List);
    }
    if cursor.peek_word().is_some() {
        return address(cursor, None);
    }
    let line = cursor.line();
    let value = number(cursor)?;
    // `0xFF00(name)`: some bits of an address.
    if cursor.take(b'(') {
        let Immediate::Int(mask) = value else {
            return Err(syntax(line, "a mask must be an integer"));
        };
        let masked = address(cursor, Some(mask))?;
        cursor.expect(b')')?;
        return Ok(masked);
    }
    Ok(Initializer::Number(value))
}

/// `name+n` or `generic(name)+n`. All our spaces that can have initialisers have one address for both.
fn address<'a>(cursor: &mut Cursor<'_, 'a>, mask: Option<u64>) -> Result<Initializer<'a>, LoadError> {
    let mut name = cursor.word("a symbol")?;
    let mut addend = 0;
    if name == "generic" && cursor.take(b'(') {
        name = cursor.word("a symbol")?;
        addend = offset(cursor)?;
        cursor.expect(b')')?;
    }
    let addend = offset(cursor)?.wrapping_add(addend);
    Ok(Initializer::Address { name, addend, mask })
}
