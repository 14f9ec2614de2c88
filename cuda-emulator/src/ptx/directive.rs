// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Declarations: variables, registers, parameters and signatures.

use cuda_fatbin::tokens::TokenKind;

use super::ast::{Linkage, RegisterNames, Signature, Statement, Variable};
use super::cursor::Cursor;
use super::initializer::initializer;
use super::types::{StateSpace, Type};
use super::{syntax, unsupported};
use crate::symbols::{LoadError, Reference};

/// Registers that one `.reg %r<n>` may declare; nvcc's largest kernels have a few ten thousand.
const MAX_REGISTERS: u64 = 1 << 20;

/// `.reg .b32 %r<10>, %x;` after `.reg`, or after `.reg.b32`, as people write, with the type.
pub(super) fn registers<'a>(
    cursor: &mut Cursor<'_, 'a>,
    kind: Option<&'a str>,
) -> Result<Statement<'a>, LoadError> {
    let line = cursor.line();
    let word = kind.map_or_else(|| cursor.word("a type"), Ok)?;
    let kind = word.strip_prefix('.').and_then(Type::from_name);
    let kind = kind.ok_or_else(|| unsupported(line, format!("unsupported register type `{word}`")))?;
    let mut names = Vec::new();
    loop {
        let name = cursor.word("a register name")?;
        let mut count = None;
        if cursor.take(b'<') {
            let number = cursor.integer("a register count")?;
            if number > MAX_REGISTERS {
                return Err(unsupported(line, format!("{number} registers `{name}`")));
            }
            count = Some(number as u32);
            cursor.expect(b'>')?;
        }
        names.push(RegisterNames { name, count });
        if !cursor.take(b',') {
            break;
        }
    }
    cursor.expect(b';')?;
    Ok(Statement::Registers { kind, names, line })
}

/// The variables of one declaration, after its state space; consumes the `;`.
pub(super) fn variables<'a>(
    cursor: &mut Cursor<'_, 'a>,
    linkage: Linkage,
    space: StateSpace,
) -> Result<Vec<Variable<'a>>, LoadError> {
    let mut list = Vec::new();
    let prefix = prefix(cursor, linkage, space)?;
    loop {
        let mut variable = declarator(cursor, &prefix)?;
        if cursor.take(b'=') {
            if variable.reference.is_some() {
                return Err(unsupported(variable.line, "a reference with attributes of its own"));
            }
            variable.initializer = Some(cursor.nested(initializer)?);
        }
        list.push(variable);
        if !cursor.take(b',') {
            break;
        }
    }
    cursor.expect(b';')?;
    Ok(list)
}

/// A parameter in a signature, from `.param` or `.reg` on.
fn parameter<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Variable<'a>, LoadError> {
    let line = cursor.line();
    match cursor.word("`.param`")? {
        ".param" => {
            let prefix = prefix(cursor, Linkage::Local, StateSpace::Param)?;
            declarator(cursor, &prefix)
        }
        ".reg" => {
            let prefix = prefix(cursor, Linkage::Local, StateSpace::Param)?;
            let variable = declarator(cursor, &prefix)?;
            if !variable.dimensions.is_empty() || variable.element_bytes != u64::from(variable.kind.bytes()) {
                return Err(unsupported(line, "parameter in several registers"));
            }
            Ok(Variable { in_register: true, ..variable })
        }
        other => Err(unsupported(line, format!("unsupported parameter space `{other}`"))),
    }
}

/// `(…) name (…)`: the signature and the name in its middle.
pub(super) fn signature<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<(&'a str, Signature<'a>), LoadError> {
    let mut signature = Signature::default();
    if cursor.take(b'(') {
        signature.returns = cursor.list(b')', parameter)?;
    }
    let name = cursor.word("a function name")?;
    if cursor.take(b'(') {
        signature.params = cursor.list(b')', parameter)?;
    }
    Ok((name, signature))
}

/// Everything before the name; the name of the result is empty.
fn prefix<'a>(
    cursor: &mut Cursor<'_, 'a>,
    linkage: Linkage,
    space: StateSpace,
) -> Result<Variable<'a>, LoadError> {
    let line = cursor.line();
    let mut align = None;
    let mut vector = 1;
    let mut managed = false;
    let mut reference = None;
    let kind = loop {
        let word = cursor.word("a type")?;
        match word {
            ".align" => align = Some(alignment(cursor)?),
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            ".attribute" => managed |= attribute(cursor)?,
            // Its address is its name, by which its binding is found.
            ".texref" | ".surfref" if space == StateSpace::Global => {
                reference = Some(if word == ".texref" { Reference::Texture } else { Reference::Surface });
                break Type::B64;
            }
            _ => match word.strip_prefix('.').and_then(Type::from_name) {
                Some(kind) if kind != Type::Pred => break kind,
                _ => return Err(unsupported(line, format!("unsupported variable type `{word}`"))),
            },
        }
    };
    // `.param .u64 .ptr .global .align 16 name` describes the pointer's target, which is not needed.
    if cursor.take_word(".ptr") {
        while let Some(word) = cursor.peek_word().filter(|word| word.starts_with('.')) {
            cursor.advance();
            if word == ".align" {
                alignment(cursor)?;
            }
        }
    }
    let element_bytes = u64::from(kind.bytes()) * vector;
    let align = align.unwrap_or(element_bytes);
    Ok(Variable {
        linkage,
        space,
        name: "",
        kind,
        align,
        element_bytes,
        dimensions: Vec::new(),
        initializer: None,
        managed,
        reference,
        in_register: false,
        line,
    })
}

fn declarator<'a>(cursor: &mut Cursor<'_, 'a>, prefix: &Variable<'a>) -> Result<Variable<'a>, LoadError> {
    let mut variable = prefix.clone();
    variable.line = cursor.line();
    variable.name = cursor.word("a name")?;
    while cursor.take(b'[') {
        if variable.reference.is_some() {
            return Err(unsupported(variable.line, "an array of references"));
        }
        if cursor.take(b']') {
            variable.dimensions.push(None);
            continue;
        }
        variable.dimensions.push(Some(cursor.integer("an array size")?));
        cursor.expect(b']')?;
    }
    Ok(variable)
}

fn alignment(cursor: &mut Cursor<'_, '_>) -> Result<u64, LoadError> {
    let line = cursor.line();
    let align = cursor.integer("an alignment")?;
    // The largest that means anything: a page of the largest size.
    if !align.is_power_of_two() || align > 1 << 21 {
        return Err(syntax(line, format!("alignment {align} is no power of two up to 2 MiB")));
    }
    Ok(align)
}

/// `.attribute(.managed)`; true for managed.
fn attribute(cursor: &mut Cursor<'_, '_>) -> Result<bool, LoadError> {
    let mut managed = false;
    cursor.expect(b'(')?;
    while !cursor.take(b')') {
        if cursor.at_end() {
            return Err(cursor.unexpected("`)`"));
        }
        managed |= cursor.peek_word() == Some(".managed");
        cursor.advance();
    }
    Ok(managed)
}

/// `.pragma "…", "…";`
pub(super) fn pragma(cursor: &mut Cursor<'_, '_>) -> Result<(), LoadError> {
    loop {
        match cursor.peek() {
            TokenKind::Text(_) => cursor.advance(),
            _ => return Err(cursor.unexpected("a string")),
        }
        if !cursor.take(b',') {
            return cursor.expect(b';');
        }
    }
}
