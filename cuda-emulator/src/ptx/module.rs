// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Module-level directives.

use cuda_fatbin::tokens::TokenKind;

use super::ast::{Alias, Function, Immediate, Linkage, Module};
use super::cursor::Cursor;
use super::directive::{pragma, signature, variables};
use super::statement::statements;
use super::types::StateSpace;
use super::{syntax, unsupported};
use crate::symbols::LoadError;

/// The whole text.
pub(super) fn module<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Module<'a>, LoadError> {
    let mut module = Module::default();
    let mut linkage = Linkage::Local;
    while !cursor.at_end() {
        let line = cursor.line();
        let word = cursor.word("a directive")?;
        match word {
            ".version" => module.version = version(cursor)?,
            ".target" => module.target = target(cursor)?,
            ".address_size" => address_size(cursor)?,
            ".visible" => linkage = Linkage::Visible,
            ".weak" => linkage = Linkage::Weak,
            ".extern" => linkage = Linkage::Extern,
            ".common" => linkage = Linkage::Common,
            ".entry" | ".func" => {
                module.functions.push(function(cursor, std::mem::take(&mut linkage), word == ".entry")?);
            }
            ".file" | ".loc" => cursor.skip_line(),
            ".section" => section(cursor)?,
            ".pragma" => pragma(cursor)?,
            ".alias" => {
                let name = cursor.word("a function name")?;
                cursor.expect(b',')?;
                let target = cursor.word("a function name")?;
                cursor.expect(b';')?;
                module.aliases.push(Alias { name, target, line });
            }
            _ => {
                let space = word.strip_prefix('.').and_then(StateSpace::from_name);
                let Some(space) = space.filter(|space| *space != StateSpace::Param) else {
                    return Err(unsupported(line, format!("unsupported directive `{word}`")));
                };
                module.variables.extend(variables(cursor, std::mem::take(&mut linkage), space)?);
            }
        }
    }
    if module.version == 0 {
        return Err(syntax(1, "no `.version` directive: this is not PTX"));
    }
    Ok(module)
}

/// `9.0` as 90.
fn version(cursor: &mut Cursor<'_, '_>) -> Result<u32, LoadError> {
    match cursor.peek() {
        TokenKind::Number(Immediate::F64(bits)) => {
            cursor.advance();
            Ok((f64::from_bits(bits) * 10.0).round().clamp(1.0, 10_000.0) as u32)
        }
        _ => Err(cursor.unexpected("a version")),
    }
}

/// `sm_90a, debug` as 90.
fn target(cursor: &mut Cursor<'_, '_>) -> Result<u32, LoadError> {
    let mut number = 0;
    loop {
        let line = cursor.line();
        let word = cursor.word("a target")?;
        if let Some(name) = word.strip_prefix("sm_") {
            let digits = name.trim_end_matches(|c: char| !c.is_ascii_digit());
            number = digits.parse().map_err(|_| syntax(line, format!("malformed target `{word}`")))?;
        }
        if !cursor.take(b',') {
            return Ok(number);
        }
    }
}

fn address_size(cursor: &mut Cursor<'_, '_>) -> Result<(), LoadError> {
    let line = cursor.line();
    match cursor.integer("an address size")? {
        64 => Ok(()),
        size => Err(unsupported(line, format!("unsupported address size {size}"))),
    }
}

/// `.section name { … }`: debug information.
fn section(cursor: &mut Cursor<'_, '_>) -> Result<(), LoadError> {
    cursor.word("a section name")?;
    cursor.expect(b'{')?;
    while !cursor.take(b'}') {
        if cursor.at_end() {
            return Err(cursor.unexpected("`}`"));
        }
        cursor.advance();
    }
    Ok(())
}

fn function<'a>(
    cursor: &mut Cursor<'_, 'a>,
    linkage: Linkage,
    is_entry: bool,
) -> Result<Function<'a>, LoadError> {
    let line = cursor.line();
    // `.attribute(.unified(…))` before the name.
    if cursor.take_word(".attribute") {
        cursor.expect(b'(')?;
        while !cursor.take(b')') {
            if cursor.at_end() {
                return Err(cursor.unexpected("`)`"));
            }
            cursor.advance();
        }
    }
    let (name, signature) = signature(cursor)?;
    let mut max_threads = None;
    let mut cluster = None;
    loop {
        let line = cursor.line();
        let Some(word) = cursor.peek_word() else { break };
        cursor.advance();
        match word {
            ".maxntid" | ".reqntid" => max_threads = Some(product(cursor)?),
            ".reqnctapercluster" => cluster = Some(dimensions(cursor)?),
            ".explicitcluster" => {}
            ".minnctapersm"
            | ".maxnreg"
            | ".maxnctapersm"
            | ".maxclusterrank"
            | ".abi_preserve"
            | ".abi_preserve_control" => {
                product(cursor)?;
            }
            ".noreturn" => {}
            ".pragma" => pragma(cursor)?,
            _ => return Err(unsupported(line, format!("unsupported directive `{word}`"))),
        }
    }
    let body = if cursor.take(b'{') {
        Some(cursor.nested(statements)?)
    } else {
        cursor.expect(b';')?;
        None
    };
    Ok(Function { linkage, is_entry, name, signature, max_threads, cluster, body, line })
}

/// `2, 1, 1`; missing dimensions are 1.
fn dimensions(cursor: &mut Cursor<'_, '_>) -> Result<[u32; 3], LoadError> {
    let mut sizes = [1; 3];
    for (axis, size) in sizes.iter_mut().enumerate() {
        if axis > 0 && !cursor.take(b',') {
            break;
        }
        let line = cursor.line();
        let number = cursor.integer("a number")?;
        *size = u32::try_from(number).map_err(|_| syntax(line, format!("{number} blocks of a cluster")))?;
    }
    Ok(sizes)
}

/// `256, 1, 1` as 256.
fn product(cursor: &mut Cursor<'_, '_>) -> Result<u64, LoadError> {
    let mut product = 1_u64;
    loop {
        product = product.saturating_mul(cursor.integer("a number")?);
        if !cursor.take(b',') {
            return Ok(product);
        }
    }
}
