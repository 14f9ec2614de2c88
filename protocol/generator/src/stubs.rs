// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's half: a function per call that sends it.

use std::fmt::Write as _;

use anyhow::Result;
use cuda_api_description::calls::{Area, Row};

use crate::file::{CALLS, File, OWN};

/// Calls that the client makes below its stubs, which need them: `guest-lib/client/src/control.rs`.
const CONTROL: [&str; 4] = ["session_hello", "session_lane", "session_order", "session_wait"];

/// A file per area, and the one that names them.
pub fn files(areas: &[Area]) -> Result<Vec<File>> {
    let file = |area: &Area| {
        let rows: String =
            area.rows.iter().filter(|row| !CONTROL.contains(&row.name.as_str())).map(stub).collect();
        let code = format!("use virtio_cuda_protocol::cuda::*;\n\nuse crate::{{Call, CudaError}};\n{rows}");
        File::new(&format!("guest-lib/client/src/calls/{}.rs", area.name), OWN, &area.title, CALLS, &code)
    };
    let mut files = areas.iter().map(file).collect::<Result<Vec<_>>>()?;
    let (mut modules, mut uses) = (String::new(), String::new());
    for Area { name, .. } in areas {
        let _ = writeln!(modules, "mod {name};");
        let _ = writeln!(uses, "pub use {name}::*;");
    }
    let code = format!(
        "#![allow(non_snake_case, clippy::too_many_arguments, clippy::type_complexity)]\n\n{modules}\n{uses}"
    );
    let what = "A typed stub for each row of the call table, with the row's own documentation. Bulk data is set on the\n\
                //! [`Call`](crate::Call) beforehand.";
    files.push(File::new("guest-lib/client/src/calls/mod.rs", OWN, what, CALLS, &code)?);
    Ok(files)
}

fn stub(row: &Row) -> String {
    let Row { name, inputs, results, .. } = row;
    let docs: String = row.docs.iter().map(|line| format!("/// {line}\n")).collect();
    let parameters: String = inputs.iter().map(|field| format!(", {}: {}", field.name, field.of)).collect();
    let types: Vec<&str> = results.iter().map(|field| field.of.as_str()).collect();
    let (result, take) = match types[..] {
        [] => ("()".to_owned(), "|_| Ok(())".to_owned()),
        [one] => (one.to_owned(), "Wire::take".to_owned()),
        _ => (
            format!("({})", types.join(", ")),
            format!("|reader| Ok(({}))", "Wire::take(reader)?,".repeat(types.len())),
        ),
    };
    let touched: String = inputs.iter().map(|field| format!("touched.add(&{});", field.name)).collect();
    let put = match inputs.split_last() {
        None => "|_| Ok(())".to_owned(),
        Some((last, others)) => {
            let others: String =
                others.iter().map(|field| format!("Wire::put(&{}, writer)?;", field.name)).collect();
            let last = format!("Wire::put(&{}, writer)", last.name);
            if others.is_empty() {
                format!("|writer| {last}")
            } else {
                format!("|writer| {{ {others} {last} }}")
            }
        }
    };
    let mutable = if inputs.is_empty() { "" } else { "mut " };
    format!(
        "\n{docs}pub fn {name}(call: &mut Call<'_>{parameters}) -> Result<{result}, CudaError> {{\n\
         let {mutable}touched = call.touched(Opcode::{name});\n{touched}\n\
         call.run(Opcode::{name}, &touched, {put}, {take})\n}}\n"
    )
}
