// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parts of a line: names, numbers, and the text between parentheses and commas.

use crate::Number;

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn is_name_or_form(text: &str) -> bool {
    text.split_once('@').map_or_else(|| is_name(text), |(name, form)| is_name(name) && is_name(form))
}

/// Returns the position of the parenthesis that closes the one before `text`.
pub(super) fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Splits a text at the commas outside of parentheses and brackets.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

pub(super) fn number(text: &str) -> Option<Number> {
    Some(match text {
        "i8" => Number::I8,
        "u8" => Number::U8,
        "i16" => Number::I16,
        "u16" => Number::U16,
        "i32" => Number::I32,
        "u32" => Number::U32,
        "i64" => Number::I64,
        "u64" => Number::U64,
        "f32" => Number::F32,
        "f64" => Number::F64,
        "c32" => Number::C32,
        "c64" => Number::C64,
        _ => return None,
    })
}

pub(super) fn count(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number"))
}
