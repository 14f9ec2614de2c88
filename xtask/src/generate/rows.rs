// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the rows of the call table. `protocol/calls/README.md` describes their form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

/// The folder of the rows.
const FOLDER: &str = "protocol/calls";

/// The areas in the order of the table. Saved inputs of fuzz targets choose calls by their position, so new areas come last.
const AREAS: [&str; 19] = [
    "session",
    "device",
    "context",
    "memory",
    "module",
    "launch",
    "stream",
    "event",
    "array",
    "texture",
    "reference",
    "pool",
    "vmm",
    "link",
    "peer",
    "ipc",
    "graph",
    "nvml",
    "vendor",
];

/// A row: the parts of its first line, in order, and its clauses.
const ROW: &str = r#"(?x)^
    0x(?<number>[0-9a-f]{4}) \ (?<kind>\w+) \ (?<name>\w+)
    \((?<inputs>[^()]*)\) \ ->\ \((?<results>[^()]*)\)
    \ \[(?<state>\w+) (?:\((?<getter>[^()]+)\))? \ (?<work>\w+) \ (?<launches>\w+) \ (?<text>\w+) (?<words>(?:\ \w+)*)\]
    (?:\ as\ (?<function>\w+)\((?<arguments>.*?)\))?
    (?:\ entry\ (?<order>first|last)(?:\ /\ (?<per_thread>\w+))?)?
    (?:\ where\ (?<ranges>.*))?
    ;$"#;

/// The rows of a file.
#[derive(Debug)]
pub struct Area {
    /// The name of the file.
    pub name: String,
    /// Its description.
    pub title: String,
    /// In the order of the file.
    pub rows: Vec<Row>,
}

/// An input or a result.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its Rust type.
    pub of: String,
}

/// A call.
#[derive(Debug)]
pub struct Row {
    /// The documentation, a line each.
    pub docs: Vec<String>,
    /// The number on the wire.
    pub number: u32,
    /// The version of the call table that had it first.
    pub since: u32,
    /// The kind of handler.
    pub kind: String,
    /// CUDA's name, or one of our own.
    pub name: String,
    /// In the order of the wire.
    pub inputs: Vec<Field>,
    /// In the order of the wire.
    pub results: Vec<Field>,
    /// What the call does to the session's state.
    pub state: Effect,
    /// What it does to the device's work, to launches, and to the text of device code.
    pub facts: [String; 3],
    /// Further facts.
    pub words: Vec<String>,
    /// The driver's function and its arguments, where they are not the row's.
    pub call: Option<(String, Vec<String>)>,
    /// Where the exported function has its results (`first` or `last`), and the name of its variant per thread.
    pub entry: Option<(String, Option<String>)>,
    /// Addresses, and the bytes that the driver uses there.
    pub ranges: Vec<(String, String)>,
}

/// What a call does to the session's state (`State` in the crate `virtio-cuda-protocol`).
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

/// Reads all areas, in the order of the table.
pub fn areas(root: &Path) -> Result<Vec<Area>> {
    for file in fs::read_dir(root.join(FOLDER)).with_context(|| format!("Cannot read {FOLDER}"))? {
        let file = file?.path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_known = file.extension().is_none_or(|kind| kind != "rows") || AREAS.contains(&&*name);
        ensure!(is_known, "{}: the generator has no such area", file.display());
    }
    let read = |name: &str| {
        let path = format!("{FOLDER}/{name}.rows");
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("Cannot read {path}"))?;
        area(name.to_owned(), &text).context(path)
    };
    let areas = AREAS.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    check(&areas)?;
    Ok(areas)
}

/// Reads one file.
fn area(name: String, text: &str) -> Result<Area> {
    let row = Regex::new(ROW)?;
    let (mut title, mut rows, mut docs, mut since, mut open) =
        (Vec::new(), Vec::new(), Vec::new(), None, String::new());
    for (number, line) in text.lines().enumerate() {
        let at = || format!("line {}", number + 1);
        let line = line.trim();
        if let Some(text) = line.strip_prefix("# ") {
            title.extend((!text.starts_with("SPDX")).then(|| text.to_owned()));
        } else if let Some(text) = line.strip_prefix("///") {
            docs.push(text.trim().to_owned());
        } else if let Some(version) = line.strip_prefix("since ") {
            since = Some(version.parse().with_context(at)?);
        } else if !line.is_empty() {
            open = if open.is_empty() { line.to_owned() } else { format!("{open} {line}") };
            if open.ends_with(';') {
                let since =
                    since.with_context(|| format!("{}: no `since VERSION` before the first row", at()))?;
                let found = row.captures(&open).with_context(|| format!("{}: no row: {open}", at()))?;
                rows.push(parse(&found, std::mem::take(&mut docs), since).with_context(at)?);
                open.clear();
            }
        }
    }
    ensure!(open.is_empty() && docs.is_empty(), "the last row has no end");
    Ok(Area { name, title: title.join(" "), rows })
}

fn parse(found: &regex::Captures<'_>, docs: Vec<String>, since: u32) -> Result<Row> {
    let text = |part: &str| found.name(part).map_or("", |found| found.as_str()).to_owned();
    let optional = |part: &str| found.name(part).map(|found| found.as_str().to_owned());
    let state = match (text("state").as_str(), optional("getter")) {
        ("creates", None) => Effect::Creates,
        ("ends", None) => Effect::Ends,
        ("writes", None) => Effect::Writes,
        ("none", None) => Effect::Nothing,
        ("library", None) => Effect::Library,
        ("sets", Some(getter)) => match getter.strip_prefix('"') {
            Some(reason) => Effect::Sets(Err(reason.trim_end_matches('"').to_owned())),
            None => Effect::Sets(Ok(getter)),
        },
        ("sets", None) => bail!("`sets` names the call that returns the setting, or says why none does"),
        (other, _) => bail!("`{other}` is no effect on the state"),
    };
    let pair = |text: String| {
        let (name, of) = text.split_once(": ").with_context(|| format!("`{text}` has no type"))?;
        Ok((name.to_owned(), of.to_owned()))
    };
    let pairs = |part: &str| split(&text(part)).into_iter().map(pair).collect::<Result<Vec<_>>>();
    let fields = |part: &str| {
        let fields = pairs(part)?.into_iter().map(|(name, of)| Field { name, of });
        Ok::<Vec<_>, anyhow::Error>(fields.collect())
    };
    Ok(Row {
        docs,
        number: u32::from_str_radix(&text("number"), 16)?,
        since,
        kind: text("kind"),
        name: text("name"),
        inputs: fields("inputs")?,
        results: fields("results")?,
        state,
        facts: [text("work"), text("launches"), text("text")],
        words: text("words").split_whitespace().map(str::to_owned).collect(),
        call: optional("function").map(|function| (function, split(&text("arguments")))),
        entry: optional("order").map(|order| (order, optional("per_thread"))),
        ranges: pairs("ranges")?,
    })
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_u32);
    for letter in text.chars() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if letter != ',' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Compares rows with each other.
fn check(areas: &[Area]) -> Result<()> {
    let rows: BTreeMap<&str, &Row> =
        areas.iter().flat_map(|area| &area.rows).map(|row| (row.name.as_str(), row)).collect();
    let count: usize = areas.iter().map(|area| area.rows.len()).sum();
    ensure!(rows.len() == count, "two rows have the same name");
    let numbers: BTreeSet<u32> = rows.values().map(|row| row.number).collect();
    ensure!(numbers.len() == count, "two rows have the same number");
    let setter = Regex::new("^cu.*[a-z]Set[A-Z]")?;
    for (name, row) in &rows {
        let right = match row.kind.as_str() {
            "create" | "part" | "load" => row.state == Effect::Creates,
            "destroy" => row.state == Effect::Ends,
            "upload" => row.state == Effect::Writes,
            "variable" | "download" | "card" => row.state == Effect::Nothing,
            "forward" | "custom" => true,
            other => bail!("{name}: `{other}` is no kind"),
        };
        ensure!(right, "{name}: a row of kind `{}` does not have the effect {:?}", row.kind, row.state);
        if setter.is_match(name) {
            ensure!(matches!(row.state, Effect::Sets(_)), "{name} sets something");
        }
        if let Effect::Sets(Ok(getter)) = &row.state {
            let getter =
                rows.get(getter.as_str()).with_context(|| format!("{name}: there is no call {getter}"))?;
            let is_getter = matches!(getter.state, Effect::Nothing | Effect::Creates);
            ensure!(is_getter, "{name}: {} changes something itself", getter.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(row: &str) -> Result<Row> {
        Ok(area("x".to_owned(), &format!("since 3\n/// A call.\n{row}\n"))?.rows.remove(0))
    }

    #[test]
    fn a_row_has_all_its_parts() {
        let row = one(
            "0x0987 forward cuMemPoolSetAccess(pool: MemoryPoolId, map: [u8; 16]) -> () [sets(cuMemPoolGetAccess) other same \
             code no_context]\n    as cuMemPoolSetAccess(pool, granted(map, access), one()) entry last / cuX_ptsz;",
        )
        .expect("a row");
        assert_eq!((row.number, row.since, row.kind.as_str()), (0x987, 3, "forward"));
        assert_eq!(row.inputs[1].of, "[u8; 16]");
        assert_eq!(row.state, Effect::Sets(Ok("cuMemPoolGetAccess".to_owned())));
        assert_eq!(row.words, ["no_context"]);
        assert_eq!(row.call.expect("a call").1, ["pool", "granted(map, access)", "one()"]);
        assert_eq!(row.entry, Some(("last".to_owned(), Some("cuX_ptsz".to_owned()))));
    }

    #[test]
    fn no_row_leaves_its_state_out() {
        assert!(one("0x0001 forward cuX() -> () [other same silent];").is_err());
        assert!(one("0x0001 forward cuX() -> () [sets other same silent];").is_err());
        assert!(one("0x0001 forward cuX() -> () [none other same silent];").is_ok());
        assert!(area("x".to_owned(), "0x0001 forward cuX() -> () [none other same silent];").is_err());
    }

    #[test]
    fn kinds_agree_with_the_state() {
        let checked = |row: &str| check(&[area("x".to_owned(), &format!("since 3\n{row}")).expect("rows")]);
        assert!(checked("0x0001 create cuX(x: StreamId) -> () [creates other same silent];").is_ok());
        assert!(checked("0x0001 create cuX(x: StreamId) -> () [writes other same silent];").is_err());
        assert!(checked("0x0001 destroy cuX(x: StreamId) -> () [none other same silent];").is_err());
        assert!(checked("0x0001 forward cuCtxSetX(x: u32) -> () [none other same silent];").is_err());
        assert!(
            checked("0x0001 forward cuCtxSetX(x: u32) -> () [sets(cuCtxGetX) other same silent];").is_err()
        );
        assert!(
            checked("0x0001 forward cuCtxSetX(x: u32) -> () [sets(\"none\") other same silent];").is_ok()
        );
    }
}
