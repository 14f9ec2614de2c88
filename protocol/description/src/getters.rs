// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The rows of NVIDIA's management library (`protocol/nvml/getters.rows`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::rows::{self, Effect, Item};

/// The file of the rows.
const FILE: &str = "protocol/nvml/getters.rows";

/// A function that describes a card.
#[derive(Debug)]
pub struct Getter {
    /// The number on the wire.
    pub number: u32,
    /// NVIDIA's name.
    pub name: String,
    /// True if the guest's function is generated, false if it is written by hand.
    pub is_forwarded: bool,
    /// True if the first parameter is a device.
    pub of_device: bool,
    /// Names and kinds of the other parameters.
    pub parameters: Vec<(String, String)>,
}

/// Reads all rows.
pub fn getters(root: &Path) -> Result<Vec<Getter>> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("Cannot read {FILE}"))?;
    let items = rows::read(&text).context(FILE)?.into_iter();
    items.map(|(line, item)| getter(item).with_context(|| format!("{FILE}: line {line}"))).collect()
}

fn getter(item: Item) -> Result<Getter> {
    let row = match item {
        Item::Row(row) => row,
        Item::Directive(text) => bail!("`{text}` is no row"),
    };
    let is_forwarded = match row.kind.as_str() {
        "forward" => true,
        "custom" => false,
        other => bail!("`{other}` is no kind of row"),
    };
    ensure!(row.effect == Effect::Nothing, "a getter changes nothing");
    ensure!(
        row.result.is_none() && row.words.is_empty() && row.rest.is_empty(),
        "a getter has no other parts than its parameters"
    );
    let mut parameters = row.inputs.context("the parameters are missing")?;
    let of_device = parameters.first().is_some_and(|(_, kind)| kind == "Device");
    if of_device {
        parameters.remove(0);
    }
    Ok(Getter { number: row.number, name: row.name, is_forwarded, of_device, parameters })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Getter> {
        getter(rows::read(text)?.remove(0).1)
    }

    #[test]
    fn a_getter_may_be_of_a_device() {
        let getter =
            one("0x02 forward nvmlX(device: Device, of: Up(3), text: Text(16)) [none];").expect("a row");
        assert!(getter.of_device && getter.is_forwarded && getter.number == 2);
        assert_eq!(getter.parameters[1], ("text".to_owned(), "Text(16)".to_owned()));
        let getter = one("0x02 custom nvmlX(speed: Struct(24, 1, [3, 32])) [none];").expect("a row");
        assert!(!getter.of_device && !getter.is_forwarded && getter.parameters.len() == 1);
    }

    #[test]
    fn other_rows_are_refused() {
        for row in [
            "0x02 forward nvmlX(device: Device) [writes];",
            "0x02 forward nvmlX [none];",
            "0x02 destroy nvmlX(device: Device) [none];",
            "0x02 forward nvmlX(device: Device) -> u32 [none];",
            "since 3",
        ] {
            assert!(one(row).is_err(), "{row}");
        }
    }
}
