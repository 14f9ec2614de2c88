// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported functions of calls whose row describes them completely.

use anyhow::{Context, Result};
use cuda_api_description::calls::{Area, Row};

use crate::file::{CALLS, File, OWN};

/// The entry points of all rows with a clause `entry`.
pub fn entries(areas: &[Area]) -> Result<File> {
    let rows = areas.iter().flat_map(|area| &area.rows);
    let entries = rows.filter_map(|row| row.entry.as_ref().map(|entry| entry_point(row, entry)));
    let code = format!(
        "use virtio_cuda_client::calls;\nuse virtio_cuda_client::protocol::*;\n\nuse super::{{Input, Output}};\n\
         use crate::entry_points;\nuse crate::ffi::Out;\n\nentry_points! {{ {} }}\n",
        entries.collect::<Result<String>>()?
    );
    let what = "Entry points that the rows describe completely: inputs are converted, the call is made, and its results are\n\
                //! stored.";
    File::new("guest-lib/libcuda/src/plain/entries.rs", OWN, what, CALLS, &code)
}

fn entry_point(row: &Row, (order, per_thread): &(String, Option<String>)) -> Result<String> {
    let Row { name, inputs, results, .. } = row;
    let docs: String = row.docs.iter().map(|line| format!("    /// {line}\n")).collect();
    let variant = per_thread.as_ref().map_or(String::new(), |name| format!(" / {name}"));
    let taken: Vec<String> =
        inputs.iter().map(|field| format!("{}: <{} as Input>::C", field.name, field.of)).collect();
    let given: Vec<String> =
        results.iter().map(|field| format!("{}: Out<<{} as Output>::C>", field.name, field.of)).collect();
    let all = if order == "first" { [given, taken].concat() } else { [taken, given].concat() };
    let parameters: String = all.iter().map(|parameter| format!(", {parameter}")).collect();
    let mut lines = Vec::new();
    if let Some(first) = inputs.first() {
        lines.push(format!("<{} as Input>::check({}, api)?;", first.of, first.name));
    }
    lines.extend(results.iter().map(|field| format!("{}.check()?;", field.name)));
    lines.push(match inputs.first() {
        Some(first) => format!("let mut call = <{} as Input>::call({}, api)?;", first.of, first.name),
        None => "let mut call = api.in_context()?;".to_owned(),
    });
    let arguments: String =
        inputs.iter().map(|field| format!(", <{} as Input>::take({}, api)?", field.of, field.name)).collect();
    let made = format!("calls::{name}(&mut call{arguments})");
    match &results[..] {
        [] => lines.push(made),
        [one] => lines.push(format!("{}.set({made}?.give(api))", one.name)),
        [first, second] => {
            lines.push(format!("let (first, second) = {made}?;"));
            lines.push(format!("{}.set(first.give(api))?;", first.name));
            lines.push(format!("{}.set(second.give(api))", second.name));
        }
        _ => return Err(anyhow::Error::msg("more than two results")).context(name.clone()),
    }
    let body: String = lines.iter().map(|line| format!("        {line}\n")).collect();
    Ok(format!("\n{docs}    call {name}{variant} (api{parameters}) {{\n{body}    }}\n"))
}
