// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Function bodies.

use super::ast::{Guard, Instruction, Linkage, Operand, Statement};
use super::cursor::Cursor;
use super::directive::{pragma, registers, signature, variables};
use super::operand::operand;
use super::types::StateSpace;
use super::unsupported;
use crate::symbols::LoadError;

/// Statements up to the `}` that closes the scope, which is consumed.
pub(super) fn statements<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Vec<Statement<'a>>, LoadError> {
    let mut list = Vec::new();
    while !cursor.take(b'}') {
        statement(cursor, &mut list)?;
    }
    Ok(list)
}

fn statement<'a>(cursor: &mut Cursor<'_, 'a>, list: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
    let line = cursor.line();
    if cursor.take(b'{') {
        list.push(Statement::Block(cursor.nested(statements)?));
        return Ok(());
    }
    if cursor.take(b';') {
        return Ok(());
    }
    if cursor.take(b'@') {
        let negated = cursor.take(b'!');
        let guard = Guard { name: cursor.word("a predicate")?, negated };
        list.push(instruction(cursor, Some(guard))?);
        return Ok(());
    }
    let word = cursor.peek_word().ok_or_else(|| cursor.unexpected("a statement"))?;
    if cursor.is_second(b':') {
        cursor.advance();
        cursor.advance();
        list.push(labelled(cursor, word, line)?);
        return Ok(());
    }
    if !word.starts_with('.') {
        list.push(instruction(cursor, None)?);
        return Ok(());
    }
    cursor.advance();
    match word {
        ".reg" => list.push(registers(cursor, None)?),
        _ if word.starts_with(".reg.") => list.push(registers(cursor, word.strip_prefix(".reg"))?),
        ".loc" | ".file" => cursor.skip_line(),
        ".pragma" => pragma(cursor)?,
        _ => {
            let Some(space) = word.strip_prefix('.').and_then(StateSpace::from_name) else {
                return Err(unsupported(line, format!("unsupported directive `{word}`")));
            };
            let declared = variables(cursor, Linkage::Local, space)?;
            list.extend(declared.into_iter().map(Statement::Variable));
        }
    }
    Ok(())
}

/// Parses the rest of a statement after `name:`.
fn labelled<'a>(cursor: &mut Cursor<'_, 'a>, name: &'a str, line: u32) -> Result<Statement<'a>, LoadError> {
    if cursor.take_word(".callprototype") {
        signature(cursor)?;
        while cursor.take_word(".noreturn") || skip_numbered(cursor)? {}
        cursor.expect(b';')?;
        return Ok(Statement::Prototype { name });
    }
    if cursor.take_word(".branchtargets") {
        let mut labels = Vec::new();
        loop {
            labels.push(cursor.word("a label")?);
            if !cursor.take(b',') {
                break;
            }
        }
        cursor.expect(b';')?;
        return Ok(Statement::Targets { name, labels });
    }
    Ok(Statement::Label { name, line })
}

/// `.abi_preserve n` of a prototype.
fn skip_numbered(cursor: &mut Cursor<'_, '_>) -> Result<bool, LoadError> {
    let found = cursor.take_word(".abi_preserve") || cursor.take_word(".abi_preserve_control");
    if found {
        cursor.integer("a number")?;
    }
    Ok(found)
}

fn instruction<'a>(
    cursor: &mut Cursor<'_, 'a>,
    guard: Option<Guard<'a>>,
) -> Result<Statement<'a>, LoadError> {
    let line = cursor.line();
    let opcode = cursor.word("an instruction")?;
    let is_call = opcode == "call" || opcode.starts_with("call.");
    let mut operands = Vec::new();
    if !cursor.is(b';') {
        loop {
            if is_call && cursor.take(b'(') {
                operands.push(Operand::List(cursor.list(b')', operand)?));
            } else {
                operands.push(operand(cursor)?);
            }
            if !cursor.take(b',') {
                break;
            }
        }
    }
    cursor.expect(b';')?;
    Ok(Statement::Instruction(Instruction { guard, opcode, operands, line }))
}
