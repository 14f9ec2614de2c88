// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol's half: numbers, facts and sizes of calls.

use std::fmt::Write as _;

use anyhow::Result;
use cuda_api_description::calls::{Area, Effect, Field, Made, Row};

use crate::file::{CALLS, DUAL, File};

/// The calls by number, their names, and their rows as data.
pub fn files(areas: &[Area]) -> Result<Vec<File>> {
    let (mut calls, mut numbers, mut names, mut facts, mut rows) =
        (String::new(), String::new(), String::new(), String::new(), String::new());
    let all = || areas.iter().flat_map(|area| &area.rows);
    let oldest = all().map(|row| row.since).min().unwrap_or_default();
    let mut since = String::new();
    for row in all() {
        let Row { name, number, docs, .. } = row;
        calls.extend(docs.iter().map(|line| format!("/// {line}\n")));
        // Writing to a string does not fail.
        let _ = writeln!(calls, "{name} = {number:#06x},");
        let _ = writeln!(numbers, "{number:#06x} => Self::{name},");
        let _ = writeln!(names, "Self::{name} => {name:?},");
        if row.since > oldest {
            let _ = writeln!(since, "Self::{name} => {},", row.since);
        }
        let _ = writeln!(facts, "            Self::{name} => {},", facts_of(row));
        let _ = writeln!(rows, "    {},", data(row));
    }
    let calls = format!(
        "/// The calls by number.\n#[allow(non_camel_case_types)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
         #[repr(u32)]\npub enum Opcode {{ {calls} }}\n"
    );
    let names = format!(
        "use super::Opcode;\n\nimpl Opcode {{\n/// Returns the call with this number.\n\
         pub fn from_u32(number: u32) -> Option<Self> {{ Some(match number {{ {numbers} _ => return None, }}) }}\n\
         /// Returns the CUDA name, for traces.\n\
         pub const fn name(self) -> &'static str {{ match self {{ {names} }} }}\n\
         /// Returns the version of the call table that had it first.\n\
         pub const fn since(self) -> u32 {{ match self {{ {since} _ => {oldest}, }} }}\n}}\n"
    );
    let rows = format!(
        "use super::facts::{{Facts, Getter, Launches, Makes, State, Text, Work}};\nuse super::*;\n\n\
         impl Opcode {{\n    /// Returns the facts of its row.\n    #[rustfmt::skip]\n\
         \x20   pub const fn facts(self) -> Facts {{\n        match self {{\n{facts}        }}\n    }}\n}}\n\n\
         /// Every row, by number.\n#[rustfmt::skip]\npub const ROWS: &[Row] = &[\n{rows}];\n"
    );
    let file = |name: &str, what: &str, code: &str| {
        File::new(&format!("protocol/src/cuda/table/{name}.rs"), DUAL, what, CALLS, code)
    };
    Ok(vec![
        file("opcode", "The calls by number.", &calls)?,
        file("names", "Numbers and names of calls.", &names)?,
        file("rows", "The facts of calls, and their rows as data.", &rows)?,
    ])
}

fn data(row: &Row) -> String {
    let fields = |fields: &[Field]| -> String {
        let fields = fields.iter().map(|Field { name, of }| format!("field::<{of}>({name:?}, {of:?})"));
        fields.collect::<Vec<_>>().join(", ")
    };
    let Row { name, kind, since, .. } = row;
    format!(
        "Row::new(Opcode::{name}, {kind:?}, {since}, &[{}], &[{}])",
        fields(&row.inputs),
        fields(&row.results)
    )
}

fn facts_of(row: &Row) -> String {
    let state = match &row.state {
        Effect::Creates => match &row.made {
            Some(Made::Named(name)) => format!("Creates(Makes::Named({name:?}))"),
            Some(Made::Never(reason)) => format!("Creates(Makes::Never({reason:?}))"),
            Some(Made::Addresses) | None => "Creates(Makes::Addresses)".to_owned(),
        },
        Effect::Ends => "Ends".to_owned(),
        Effect::Writes => "Writes".to_owned(),
        Effect::Nothing => "Nothing".to_owned(),
        Effect::Library => "Library".to_owned(),
        Effect::Sets(Ok(getter)) => format!("Sets(Getter::Call({getter:?}))"),
        Effect::Sets(Err(reason)) => format!("Sets(Getter::None({reason:?}))"),
    };
    let [work, launches, text] = &row.facts;
    let words: String = row.words.iter().map(|word| format!(".{word}()")).collect();
    format!(
        "Facts::new(State::{state}, Work::{}, Launches::{}, Text::{}){words}",
        camel(work),
        camel(launches),
        camel(text)
    )
}

/// `queues_copy` as `QueuesCopy`.
fn camel(word: &str) -> String {
    word.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}
