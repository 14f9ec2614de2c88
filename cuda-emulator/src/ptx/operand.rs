// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operands and constant expressions.

use cuda_fatbin::tokens::TokenKind;

use super::ast::{Base, Immediate, Operand};
use super::cursor::Cursor;
use super::syntax;
use crate::symbols::LoadError;

/// One operand of an instruction.
pub(super) fn operand<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Operand<'a>, LoadError> {
    match cursor.peek() {
        TokenKind::Punctuation(b'{') => {
            cursor.advance();
            let list = cursor.list(b'}', operand)?;
            if cursor.take(b'|') {
                return Ok(Operand::VectorPair(list, cursor.word("a predicate")?));
            }
            Ok(Operand::Vector(list))
        }
        TokenKind::Punctuation(b'[') => {
            cursor.advance();
            let address = address(cursor)?;
            if cursor.take(b',') {
                let coordinates = cursor.list(b']', operand)?;
                let Operand::Address { base, offset: 0 } = address else {
                    return Err(cursor.unexpected("a texture or surface without offset"));
                };
                return Ok(Operand::Sampled { base, coordinates });
            }
            cursor.expect(b']')?;
            Ok(address)
        }
        TokenKind::Punctuation(b'!') => {
            cursor.advance();
            cursor.word("a predicate").map(Operand::Not)
        }
        TokenKind::Punctuation(b'-') if cursor.is_second_word() => {
            cursor.advance();
            cursor.word("a register").map(Operand::Minus)
        }
        TokenKind::Word(name) => {
            cursor.advance();
            if cursor.take(b'|') {
                return Ok(Operand::Pair(name, cursor.word("a register")?));
            }
            if cursor.take(b'[') {
                let index = expression(cursor)?;
                cursor.expect(b']')?;
                return Ok(Operand::Element(name, index));
            }
            match offset(cursor)? {
                0 => Ok(Operand::Name(name)),
                offset => Ok(Operand::Offset(name, offset)),
            }
        }
        _ => number(cursor).map(Operand::Immediate),
    }
}

/// `base`, `base+offset` or `offset`, between brackets.
fn address<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Operand<'a>, LoadError> {
    if let Some(name) = cursor.peek_word() {
        cursor.advance();
        return Ok(Operand::Address { base: Base::Name(name), offset: offset(cursor)? });
    }
    let offset = expression(cursor)?;
    Ok(Operand::Address { base: Base::Absolute, offset })
}

/// An optional `+n` or `-n`.
pub(super) fn offset(cursor: &mut Cursor<'_, '_>) -> Result<i64, LoadError> {
    let mut offset = 0_i64;
    loop {
        if cursor.take(b'+') {
            offset = offset.wrapping_add(term(cursor)?);
        } else if cursor.take(b'-') {
            offset = offset.wrapping_sub(term(cursor)?);
        } else {
            return Ok(offset);
        }
    }
}

/// A literal with its sign, or an integer expression.
pub(super) fn number(cursor: &mut Cursor<'_, '_>) -> Result<Immediate, LoadError> {
    let negative = cursor.is(b'-') && cursor.is_second_float();
    if negative {
        cursor.advance();
    }
    if let TokenKind::Number(number @ (Immediate::F32(_) | Immediate::F64(_))) = cursor.peek() {
        cursor.advance();
        return Ok(match number {
            Immediate::F32(bits) => Immediate::F32(bits ^ u32::from(negative) << 31),
            Immediate::F64(bits) => Immediate::F64(bits ^ u64::from(negative) << 63),
            Immediate::Int(_) => number,
        });
    }
    expression(cursor).map(|value| Immediate::Int(value as u64))
}

/// The binary operators by rising precedence.
const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];

/// A constant integer expression, 64 bits with wrap-around.
pub(super) fn expression(cursor: &mut Cursor<'_, '_>) -> Result<i64, LoadError> {
    binary(cursor, 0)
}

/// A term of a sum: binds tighter than `+` and `-`.
fn term(cursor: &mut Cursor<'_, '_>) -> Result<i64, LoadError> {
    binary(cursor, 5)
}

fn binary(cursor: &mut Cursor<'_, '_>, level: usize) -> Result<i64, LoadError> {
    let Some(operators) = LEVELS.get(level) else { return unary(cursor) };
    let mut left = binary(cursor, level + 1)?;
    'terms: loop {
        for operator in *operators {
            if take_operator(cursor, operator) {
                let line = cursor.line();
                let right = binary(cursor, level + 1)?;
                left = apply(operator, left, right)
                    .ok_or_else(|| syntax(line, "division by zero in a constant"))?;
                continue 'terms;
            }
        }
        return Ok(left);
    }
}

fn take_operator(cursor: &mut Cursor<'_, '_>, operator: &str) -> bool {
    let bytes = operator.as_bytes();
    if bytes.len() == 1 {
        return cursor.take(bytes[0]);
    }
    let found = cursor.is(bytes[0]) && cursor.is_second(bytes[1]);
    if found {
        cursor.advance();
        cursor.advance();
    }
    found
}

fn apply(operator: &str, left: i64, right: i64) -> Option<i64> {
    Some(match operator {
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "<<" => left.wrapping_shl(right as u32),
        ">>" => left.wrapping_shr(right as u32),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" if right != 0 => left.wrapping_div(right),
        "%" if right != 0 => left.wrapping_rem(right),
        _ => return None,
    })
}

fn unary(cursor: &mut Cursor<'_, '_>) -> Result<i64, LoadError> {
    if cursor.take(b'-') {
        return Ok(cursor.nested(unary)?.wrapping_neg());
    }
    if cursor.take(b'~') {
        return Ok(!cursor.nested(unary)?);
    }
    if cursor.take(b'!') {
        return Ok(i64::from(cursor.nested(unary)? == 0));
    }
    if cursor.take(b'(') {
        let value = cursor.nested(expression)?;
        cursor.expect(b')')?;
        return Ok(value);
    }
    cursor.integer("a number").map(|value| value as i64)
}
