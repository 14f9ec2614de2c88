// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The words after the parameters of a function: changes of notes of handles, and facts about the function.

use cuda_library_rows::{Facts, Function, HandleKind, Note, Notes};

use super::expression;
use crate::rows::split;
use crate::{kept_text, slice};

/// Returns whether a word concerns notes instead of facts.
pub(super) fn is_of_notes(word: &str) -> bool {
    ["notes(", "needs(", "forgets(", "keeps_pattern(", "needs_pattern("]
        .iter()
        .any(|start| word.starts_with(start))
}

/// Parses the words about notes (see [`crate::Notes`]). A note that a call changes gets a number in its kind of handle.
pub(super) fn notes(
    handles: &mut [HandleKind],
    pairs: &[(&str, &str)],
    words: &[String],
) -> Result<Notes, String> {
    let (mut needs, mut takes, mut forgets) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = Notes::NONE;
    let index = |name: &str| pairs.iter().position(|(known, _)| *known == name);
    for word in words {
        let (fact, rest) = word.split_once('(').unwrap_or_default();
        let inside = rest.strip_suffix(')').ok_or("a `)` is missing")?;
        for item in split(inside) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let pattern = match fact {
                "keeps_pattern" => Some(&mut notes.keeps_pattern),
                "needs_pattern" => Some(&mut notes.needs_pattern),
                _ => None,
            };
            if let Some(pattern) = pattern {
                let handle =
                    index(name).filter(|index| handles.iter().any(|known| known.name == pairs[*index].1));
                *pattern = Some(handle.ok_or_else(|| format!("`{name}` is no handle"))?);
                continue;
            }
            if fact != "needs" {
                let (handle, note) = name.split_once('.').ok_or_else(|| format!("`{name}` is no note"))?;
                let kind = pairs.iter().find(|(known, _)| *known == handle).map(|(_, kind)| *kind);
                let kind = handles.iter_mut().find(|known| Some(known.name) == kind);
                let kind = kind.ok_or_else(|| format!("`{handle}` is no handle"))?;
                if !kind.notes.contains(&note) {
                    kind.notes = slice([kind.notes, &[kept_text(note)]].concat());
                }
            }
            let note = note(handles, pairs, name)?;
            match fact {
                "notes" => takes.push((note, expression::parse(value, &index)?)),
                "needs" => needs.push((note, expression::parse(value, &index)?)),
                _ => forgets.push(note),
            }
        }
    }
    Ok(Notes { needs: slice(needs), takes: slice(takes), forgets: slice(forgets), ..notes })
}

/// Parses `HANDLE.NAME`, given the names and kinds of parameters.
pub(super) fn note(handles: &[HandleKind], pairs: &[(&str, &str)], text: &str) -> Result<Note, String> {
    let unknown = || format!("there is no note `{text}` before");
    let (parameter, name) = text.trim().split_once('.').ok_or_else(unknown)?;
    let handle = pairs.iter().position(|(known, _)| *known == parameter).ok_or_else(unknown)?;
    let kind = handles.iter().find(|known| known.name == pairs[handle].1).ok_or_else(unknown)?;
    let note = kind.notes.iter().position(|known| *known == name).ok_or_else(unknown)?;
    Ok(Note { handle, note })
}

/// Parses facts (see [`crate::Facts`]). Functions and parameters in them must be listed before.
pub(super) fn facts(functions: &[Function], names: &[&str], words: &[String]) -> Result<Facts, String> {
    let mut facts = Facts::NONE;
    for word in words {
        let (fact, argument) = match word.strip_suffix(')').and_then(|word| word.split_once('(')) {
            Some((fact, argument)) => (fact, Some(argument)),
            None => (word.as_str(), None),
        };
        let function = |name: &str| {
            let found = functions.iter().position(|function| function.name == name);
            found.ok_or_else(|| format!("there is no function `{name}` before"))
        };
        let parameter = |name: &str| {
            let index = names.iter().position(|known| *known == name);
            index.ok_or_else(|| format!("there is no parameter `{name}`"))
        };
        match (fact, argument) {
            ("wait", None) => facts.wait = true,
            ("pure", None) => facts.pure = true,
            ("pointer_mode", None) => facts.pointer_mode = true,
            ("stream_of", None) => facts.stream_of = true,
            ("on_device", None) => facts.on_device = true,
            ("sets", None) => facts.sets = true,
            ("makes", None) => facts.makes = true,
            ("links_code", None) => facts.links_code = true,
            ("uncaptured", None) => facts.uncaptured = true,
            ("resets", Some(name)) => facts.resets = Some(function(name)?),
            ("gets", Some(name)) => facts.gets = Some(function(name)?),
            ("birth", Some(name)) => facts.birth = Some(parameter(name)?),
            ("lends", Some(name)) => facts.lends = Some(parameter(name)?),
            ("finds", Some(name)) => facts.finds = Some(parameter(name)?),
            ("wait_unless", Some(number)) => {
                facts.wait_unless = Some(number.parse().map_err(|_| format!("`{number}` is no number"))?);
            }
            _ => return Err(format!("there is no fact `{word}`")),
        }
    }
    Ok(facts)
}
