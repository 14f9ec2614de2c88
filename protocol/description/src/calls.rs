// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the call table. `protocol/calls/README.md` describes their form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, bail, ensure};
use regex::Regex;

use crate::rows::{self, Item, fields, split};
pub use crate::rows::{Effect, Made};

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

/// The clauses behind a row's facts.
const CLAUSES: &str = r"(?x)^
    (?:as\ (?<function>(?:\w+\.)*\w+)\((?<arguments>.*?)\))?
    (?:\ ?entry\ (?<order>first|last)(?:\ /\ (?<per_thread>\w+))?)?
    (?:\ ?where\ (?<ranges>.*))?
    $";

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
    /// The thing that it creates.
    pub made: Option<Made>,
    /// What it does to the device's work, to launches, and to the text of device code.
    pub facts: [String; 3],
    /// Further facts.
    pub words: Vec<String>,
    /// The driver's function, or that of a part of the session (`PART.FUNCTION`), and its arguments, where they are not the
    /// row's.
    pub call: Option<(String, Vec<String>)>,
    /// Where the exported function has its results (`first` or `last`), and the name of its variant per thread.
    pub entry: Option<(String, Option<String>)>,
    /// Addresses, and the bytes that the driver uses there.
    pub ranges: Vec<(String, String)>,
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
    let clauses = Regex::new(CLAUSES)?;
    let (mut rows, mut since) = (Vec::new(), None);
    for (line, item) in rows::read(text)? {
        let at = || format!("line {line}");
        match item {
            Item::Directive(text) => {
                let version =
                    text.strip_prefix("since ").with_context(|| format!("{}: no row: {text}", at()))?;
                since = Some(version.parse().with_context(at)?);
            }
            Item::Row(row) => {
                let since =
                    since.with_context(|| format!("{}: no `since VERSION` before the first row", at()))?;
                rows.push(call(*row, &clauses, since).with_context(at)?);
            }
        }
    }
    let title = text.lines().filter_map(|line| line.strip_prefix("# "));
    let title: Vec<&str> = title.filter(|line| !line.starts_with("SPDX")).collect();
    Ok(Area { name, title: title.join(" "), rows })
}

fn call(row: rows::Row, clauses: &Regex, since: u32) -> Result<Row> {
    let rows::Row { docs, number, kind, name, inputs, result, effect, made, mut words, rest } = row;
    let pairs = |text: &str| -> Result<Vec<Field>> {
        let pairs = fields(text).map_err(Error::msg)?.into_iter();
        Ok(pairs.map(|(name, of)| Field { name, of }).collect())
    };
    let result = result.as_deref().and_then(|text| text.strip_prefix('(')?.strip_suffix(')'));
    let results = pairs(result.context("a call has `-> (RESULTS)`")?)?;
    let inputs = inputs.context("a call has `(INPUTS)`")?;
    ensure!(words.len() >= 3, "a call states what it does to the device's work, to launches and to texts");
    let others = words.split_off(3);
    let facts = <[String; 3]>::try_from(words).map_err(|_| Error::msg("three facts"))?;
    let found = clauses.captures(&rest).with_context(|| format!("`{rest}` are no clauses"))?;
    let text = |part: &str| found.name(part).map(|found| found.as_str().to_owned());
    let list = |text: &str| split(text).into_iter().map(str::to_owned).collect();
    let ranges = pairs(&text("ranges").unwrap_or_default())?;
    Ok(Row {
        docs,
        number,
        since,
        kind,
        name,
        inputs: inputs.into_iter().map(|(name, of)| Field { name, of }).collect(),
        results,
        state: effect,
        made,
        facts,
        words: others,
        call: text("function").map(|function| (function, list(&text("arguments").unwrap_or_default()))),
        entry: text("order").map(|order| (order, text("per_thread"))),
        ranges: ranges.into_iter().map(|Field { name, of }| (name, of)).collect(),
    })
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
        if row.state == Effect::Creates {
            let made = row.made.as_ref().with_context(|| format!("{name} does not say what it creates"))?;
            let mut fields = row.inputs.iter().chain(&row.results);
            let is_there = match made {
                Made::Named(of) => fields.any(|field| field.name == *of),
                Made::Addresses | Made::Never(_) => true,
            };
            ensure!(is_there, "{name} creates {made:?}, which is no input and no result of it");
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
        assert!(checked("0x0001 create cuX(x: StreamId) -> () [creates(x) other same silent];").is_ok());
        assert!(checked("0x0001 create cuX(x: StreamId) -> () [creates other same silent];").is_err());
        assert!(checked("0x0001 create cuX(x: StreamId) -> () [creates(y) other same silent];").is_err());
        assert!(checked("0x0001 custom cuX() -> (x: u64) [creates(x) other same silent];").is_ok());
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
