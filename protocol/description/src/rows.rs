// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The language of rows. `protocol/calls/README.md` describes it.
//!
//! ```text
//! # A comment.
//! since 3
//! /// Documentation of the row that follows.
//! 0x0607 forward cuStreamGetPriority(stream: StreamId) -> (priority: i32) [none other same silent] entry last;
//! 12 forward cublasSetMathMode(handle: Handle, mode: i32) [sets(cublasGetMathMode) sets];  # why
//! ```
//!
//! A row may continue on the next lines and ends with `;`. All other lines are directives of the file.

/// A line that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Line number, from 1.
    pub line: usize,
    /// A description of the error.
    pub what: String,
}

/// A part of a file.
#[derive(Debug)]
pub enum Item {
    /// A directive: a line that is not a row.
    Directive(String),
    /// A row.
    Row(Box<Row>),
}

/// A row.
#[derive(Debug)]
pub struct Row {
    /// The documentation, a line each.
    pub docs: Vec<String>,
    /// The number on the wire.
    pub number: u32,
    /// The kind of the row.
    pub kind: String,
    /// The name of the function.
    pub name: String,
    /// Names and types of the inputs, in order. `None`: the row has no parentheses.
    pub inputs: Option<Vec<(String, String)>>,
    /// The text behind `->`.
    pub result: Option<String>,
    /// What the call does to the session's state.
    pub effect: Effect,
    /// The thing that it creates. Rows of libraries do not say it.
    pub made: Option<Made>,
    /// The other words between the brackets.
    pub words: Vec<String>,
    /// The text between the brackets and the `;`.
    pub rest: String,
}

/// What a call does to the session's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Makes an object, a hold on one, or a name for a part of one.
    Creates,
    /// Ends one.
    Ends,
    /// Changes an object. The call that returns the setting, or the reason why none does.
    Sets(Result<String, String>),
    /// Changes contents only.
    Writes,
    /// Changes nothing.
    Nothing,
    /// The row of the library's function says it.
    Library,
}

/// The thing that a call makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The object that the input or result of this name identifies.
    Named(String),
    /// Memory, a mapping or addresses.
    Addresses,
    /// Something that no recipe can make again. The text says why.
    Never(String),
}

/// Reads a file. Each item has the number of its last line, from 1.
pub fn read(text: &str) -> Result<Vec<(usize, Item)>, Error> {
    let (mut items, mut docs, mut open) = (Vec::new(), Vec::new(), String::new());
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let failed = |what: String| Error { line: number, what };
        if let Some(text) = line.trim().strip_prefix("///") {
            docs.push(text.trim().to_owned());
            continue;
        }
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        let is_row = !open.is_empty() || line.starts_with(|letter: char| letter.is_ascii_digit());
        if !is_row {
            items.push((number, Item::Directive(line.to_owned())));
            continue;
        }
        open = if open.is_empty() { line.to_owned() } else { format!("{open} {line}") };
        if let Some(text) = open.strip_suffix(';') {
            let row = row(text, std::mem::take(&mut docs)).map_err(failed)?;
            items.push((number, Item::Row(Box::new(row))));
            open.clear();
        }
    }
    if open.is_empty() && docs.is_empty() {
        return Ok(items);
    }
    Err(Error { line: text.lines().count(), what: "the last row has no end".into() })
}

/// Returns a line without its comment and the spaces around it.
fn without_comment(line: &str) -> &str {
    let line = line.split("  #").next().unwrap_or_default().trim();
    if line.starts_with('#') { "" } else { line }
}

/// Returns the FNV-1a digest of a text. It detects different releases; it is not a security check.
pub fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Parses a row without its `;`.
fn row(text: &str, docs: Vec<String>) -> Result<Row, String> {
    let mut words = text.splitn(3, ' ');
    let (Some(number), Some(kind), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return Err("a row begins with number, kind and name".into());
    };
    let number = match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    let number = number.map_err(|_| "a row begins with its number")?;
    let end = rest.find(['(', ' ']).ok_or("the `[` is missing")?;
    let (name, mut rest) = (&rest[..end], &rest[end..]);
    if !is_name_or_form(name) {
        return Err(format!("`{name}` is no name"));
    }
    let mut inputs = None;
    if let Some(inside) = rest.strip_prefix('(') {
        let end = closing(inside).ok_or("the `)` is missing")?;
        inputs = Some(fields(&inside[..end])?);
        rest = &inside[end + 1..];
    }
    let (before, inside) = rest.split_once('[').ok_or("the `[` is missing")?;
    // A result may have brackets, too.
    let (before, inside) = match before.trim().strip_prefix("->").map(str::trim_start) {
        Some(result) if result.starts_with('(') => {
            let at = rest.find("->").unwrap_or_default() + "->".len();
            let start = at + rest[at..].find('(').unwrap_or_default() + 1;
            let end = start + closing(&rest[start..]).ok_or("the `)` is missing")?;
            let inside = rest[end + 1..].trim_start().strip_prefix('[').ok_or("the `[` is missing")?;
            (&rest[..=end], inside)
        }
        _ => (before, inside),
    };
    let result = match before.trim() {
        "" => None,
        before => Some(before.strip_prefix("->").ok_or("the `->` is missing")?.trim().to_owned()),
    };
    let end = closing(inside).ok_or("the `]` is missing")?;
    let mut words = words_of(&inside[..end]).into_iter();
    let (effect, made) = effect(words.next().ok_or("a row states its effect on the state")?)?;
    Ok(Row {
        docs,
        number,
        kind: kind.to_owned(),
        name: name.to_owned(),
        inputs,
        result,
        effect,
        made,
        words: words.map(str::to_owned).collect(),
        rest: inside[end + 1..].trim().to_owned(),
    })
}

fn effect(word: &str) -> Result<(Effect, Option<Made>), String> {
    let inside = |of: &str| word.strip_prefix(of)?.strip_prefix('(')?.strip_suffix(')');
    let reason = |text: &str| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    if let Some(getter) = inside("sets") {
        return Ok((Effect::Sets(reason(getter).map_or_else(|| Ok(getter.to_owned()), Err)), None));
    }
    if let Some(made) = inside("creates") {
        let made = match (made, reason(made)) {
            ("addresses", _) => Made::Addresses,
            (_, Some(reason)) => Made::Never(reason),
            (name, None) => Made::Named(name.to_owned()),
        };
        return Ok((Effect::Creates, Some(made)));
    }
    let effect = match word {
        "creates" => Effect::Creates,
        "ends" => Effect::Ends,
        "writes" => Effect::Writes,
        "none" => Effect::Nothing,
        "library" => Effect::Library,
        "sets" => return Err("`sets` names the call that returns the setting, or says why none does".into()),
        _ => return Err(format!("`{word}` is no effect on the state")),
    };
    Ok((effect, None))
}

/// Parses `name: type, …`.
pub fn fields(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |text: &str| {
        let (name, of) = text.split_once(':').ok_or_else(|| format!("`{text}` has no kind"))?;
        Ok((name.trim().to_owned(), of.trim().to_owned()))
    };
    split(text).into_iter().map(pair).collect()
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_name_or_form(text: &str) -> bool {
    text.split_once('@').map_or_else(|| is_name(text), |(name, form)| is_name(name) && is_name(form))
}

/// Returns the position of the parenthesis or bracket that closes the one before `text`. Parentheses inside quotes do not count.
pub(crate) fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut is_quoted) = (1, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            '"' => is_quoted = !is_quoted,
            '(' | '[' if !is_quoted => depth += 1,
            ')' | ']' if !is_quoted => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Splits a text at the commas outside of parentheses and brackets.
pub fn split(text: &str) -> Vec<&str> {
    split_at(text, ',')
}

/// Splits a text at the spaces outside of parentheses and brackets.
fn words_of(text: &str) -> Vec<&str> {
    split_at(text, ' ')
}

fn split_at(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            c if c == separator && depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Row, String> {
        match read(text).map_err(|error| error.what)?.pop() {
            Some((_, Item::Row(row))) => Ok(*row),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_row_has_all_its_parts() {
        let text = "/// A call.\n0x0987 forward cuX(pool: PoolId, map: [u8; 16]) -> (a: [u64; 2], b: u32)\n  \
                    [sets(\"none (yet) returns it\") other notes(h.n=n) gets(f)] as f(map, one());  # why";
        let row = one(text).expect("a row");
        assert_eq!((row.number, row.kind.as_str(), row.name.as_str()), (0x987, "forward", "cuX"));
        assert_eq!(row.inputs.expect("inputs")[1], ("map".to_owned(), "[u8; 16]".to_owned()));
        assert_eq!(row.result.as_deref(), Some("(a: [u64; 2], b: u32)"));
        assert_eq!(row.effect, Effect::Sets(Err("none (yet) returns it".to_owned())));
        assert_eq!(row.words, ["other", "notes(h.n=n)", "gets(f)"]);
        assert_eq!((row.rest.as_str(), row.docs), ("as f(map, one())", vec!["A call.".to_owned()]));
    }

    #[test]
    fn a_row_says_what_it_makes() {
        let made = |word: &str| {
            let row = one(&format!("7 forward f(n: i32) [{word} idle];")).expect("a row");
            (row.effect, row.made)
        };
        assert_eq!(made("creates"), (Effect::Creates, None));
        assert_eq!(made("creates(n)"), (Effect::Creates, Some(Made::Named("n".to_owned()))));
        assert_eq!(made("creates(addresses)"), (Effect::Creates, Some(Made::Addresses)));
        let reason = Some(Made::Never("for (good) reasons".to_owned()));
        assert_eq!(made("creates(\"for (good) reasons\")"), (Effect::Creates, reason));
    }

    #[test]
    fn parts_may_be_missing() {
        let row = one("7 refuse f [none] \"for reasons\";").expect("a row");
        assert!(row.inputs.is_none() && row.result.is_none() && row.rest == "\"for reasons\"");
        let row = one("7 forward f@Host() -> u64 [none];").expect("a row");
        assert_eq!((row.inputs, row.result.as_deref()), (Some(Vec::new()), Some("u64")));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("7 forward f(n: i32) [none]", "the last row has no end"),
            ("7 forward f(n: i32;", "the `)` is missing"),
            ("7 forward f(n) [none];", "`n` has no kind"),
            ("7 forward f(n: i32);", "the `[` is missing"),
            ("7 forward f(n: i32) [];", "a row states its effect on the state"),
            (
                "7 forward f(n: i32) [sets];",
                "`sets` names the call that returns the setting, or says why none does",
            ),
            ("7 forward f(n: i32) [good];", "`good` is no effect on the state"),
            ("7x forward f(n: i32) [none];", "a row begins with its number"),
            ("7 forward @Host(n: i32) [none];", "`@Host` is no name"),
        ] {
            assert_eq!(one(text).map(|row| row.name), Err(what.to_owned()), "{text}");
        }
    }
}
