// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's management library: the table of its getters, and their exported functions in the guest.

use std::fmt::Write as _;

use anyhow::Result;
use cuda_api_description::getters::Getter;

use crate::file::{DUAL, File, OWN};

/// The rows that the sources are made of.
const ROWS: &str = "protocol/nvml/getters.rows";

/// The table, and the functions.
pub fn files(getters: &[Getter]) -> Result<Vec<File>> {
    let (mut table, mut functions) = (String::new(), String::new());
    for Getter { number, name, is_forwarded, of_device, parameters } in getters {
        let kinds: Vec<String> = parameters.iter().map(|(_, kind)| kind_of(kind)).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "    Getter {{ number: {number:#04x}, name: {name:?}, of_device: {of_device}, parameters: &[{}] }},",
            kinds.join(", ")
        );
        if *is_forwarded {
            functions.push_str(&function(*number, name, *of_device, parameters));
        }
    }
    let table = format!(
        "use super::Getter;\nuse super::Parameter::*;\n\n/// Every row.\n#[rustfmt::skip]\n\
         pub(super) const GETTERS: &[Getter] = &[\n{table}];\n"
    );
    let functions =
        format!("use super::{{answer, c}};\nuse crate::state::nvmlDevice_t;\n\napi! {{\n{functions}}}\n");
    Ok(vec![
        File::new(
            "protocol/src/cuda/getter/rows.rs",
            DUAL,
            "The getters of NVIDIA's management library.",
            ROWS,
            &table,
        )?,
        File::new(
            "guest-lib/nvml/src/getters/exports.rs",
            OWN,
            "The exported functions of `forward` rows.",
            ROWS,
            &functions,
        )?,
    ])
}

/// A kind of parameter as a value of Rust. A structure without inputs leaves the list out.
fn kind_of(kind: &str) -> String {
    let lists = kind.replace('[', "&[");
    match lists.strip_prefix("Struct(").and_then(|rest| rest.strip_suffix(')')) {
        Some(inside) if !inside.contains('[') => format!("Struct({inside}, &[])"),
        _ => lists,
    }
}

fn function(number: u32, name: &str, of_device: bool, parameters: &[(String, String)]) -> String {
    let device = if of_device { ("device: nvmlDevice_t, ", "Some(device)") } else { ("", "None") };
    let taken: Vec<String> = parameters
        .iter()
        .map(|(name, kind)| format!("{name}: c::{}", kind.split('(').next().unwrap_or_default()))
        .collect();
    let given: Vec<String> = parameters.iter().map(|(name, _)| format!("{name}.into()")).collect();
    format!(
        "    fn {name}({}{}) {{\n        \
         // SAFETY: the program promises places, or null, as the row says, which is NVML's prototype.\n        \
         unsafe {{ answer({number:#04x}, {}, &[{}]) }}\n    }}\n",
        device.0,
        taken.join(", "),
        device.1,
        given.join(", ")
    )
}
