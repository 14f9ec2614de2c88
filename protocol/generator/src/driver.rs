// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's functions that the worker calls for plain rows: their types follow from cudarc's declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;
use cuda_api_description::calls::{Area, Field, Row};
use regex::Regex;

use crate::bindings::{Bindings, Function};
use crate::file::{CALLS, File, OWN};

/// The functions that are written by hand.
const BY_HAND: &str = "vhost-cuda/worker/src/gpu/driver.rs";
/// C's numbers, and those of the worker.
const NUMBERS: [(&str, &str); 8] = [
    ("c_int", "c_int"),
    ("c_uint", "c_uint"),
    ("c_ulonglong", "c_ulonglong"),
    ("cuuint32_t", "c_uint"),
    ("cuuint64_t", "c_ulonglong"),
    ("usize", "usize"),
    ("f32", "f32"),
    ("CUuuid", "CUuuid"),
];

/// The functions of all rows whose arguments are numbers and objects.
pub fn file(root: &Path, areas: &[Area], bindings: &Bindings) -> Result<File> {
    let text = fs::read_to_string(root.join(BY_HAND))?;
    let by_hand = Regex::new(r"(?m)^ *(?:un)?safe (cu\w+)")?;
    let by_hand: BTreeSet<&str> =
        by_hand.captures_iter(&text).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    let mut functions = BTreeMap::new();
    for row in areas.iter().flat_map(|area| &area.rows) {
        let name = row.call.as_ref().map_or(&row.name, |(function, _)| function);
        let function = bindings.functions.get(name).filter(|_| !by_hand.contains(name.as_str()));
        if let Some(types) = function.and_then(|function| types(row, function, bindings)) {
            functions.insert(name.as_str(), types);
        }
    }
    let handle = Regex::new(r"\bCU\w+")?;
    let used: BTreeSet<&str> =
        functions.values().flat_map(|types| handle.find_iter(types)).map(|found| found.as_str()).collect();
    let used: Vec<&str> = used.into_iter().collect();
    let rows: String = functions.iter().map(|(name, types)| format!("    safe {name} {types};\n")).collect();
    let code = format!(
        "#![allow(non_snake_case)]\n\nuse std::ffi::{{c_int, c_uint, c_ulonglong}};\n\nuse cudarc::driver::sys::{{{}}};\n\n\
         use super::argument::{{Argument, Plain}};\nuse super::driver::{{Driver, compare, driver_functions, method}};\n\
         use super::error::{{CuResult, CudaError}};\n\n\
         driver_functions! {{\n    generated Generated in generated;\n{rows}}}\n",
        used.join(", ")
    );
    let what = "The driver's functions of rows whose arguments are numbers and objects. All others are in [`super::driver`].";
    File::new("vhost-cuda/worker/src/gpu/plain.rs", OWN, what, CALLS, &code)
}

/// Returns `[results] (arguments) [results]`, as `driver_functions!` reads them. `None`: the row does not say all of it.
fn types(row: &Row, function: &Function, bindings: &Bindings) -> Option<String> {
    let inputs = match row.kind.as_str() {
        "forward" if row.ranges.is_empty() => &row.inputs[..],
        "create" => row.inputs.get(1..)?,
        _ => return None,
    };
    let given: Vec<Option<&Field>> = match &row.call {
        Some((_, arguments)) => {
            arguments.iter().map(|name| inputs.iter().find(|input| input.name == *name)).collect()
        }
        None => inputs.iter().map(Some).collect(),
    };
    let results: Vec<Option<&Field>> =
        if row.kind == "create" { vec![None] } else { row.results.iter().map(Some).collect() };
    let parameters = &function.parameters;
    if parameters.len() != given.len() + results.len() {
        return None;
    }
    let is_result = |(_, of): &(String, String)| of.starts_with("*mut ");
    let is_first = parameters[..results.len()].iter().all(is_result);
    let (first, arguments, last) = if is_first {
        (&parameters[..results.len()], &parameters[results.len()..], &[][..])
    } else {
        (&[][..], &parameters[..given.len()], &parameters[given.len()..])
    };
    let fields = |part: &[(String, String)], wire: &[Option<&Field>]| -> Option<String> {
        let pairs = part.iter().zip(wire).map(|((name, of), field)| {
            let of = of.strip_prefix("*mut ").filter(|_| !std::ptr::eq(part, arguments)).unwrap_or(of);
            let is_address = std::ptr::eq(part, arguments) && of == "CUdeviceptr";
            let of = if is_address { None } else { of_worker(of, *field, bindings) };
            Some(format!("{name}: {}", of?))
        });
        Some(pairs.collect::<Option<Vec<_>>>()?.join(", "))
    };
    Some(format!(
        "[{}] ({}) [{}]",
        fields(first, &results)?,
        fields(arguments, &given)?,
        fields(last, &results)?
    ))
}

/// Returns the worker's type of a value that `field` carries on the wire.
fn of_worker(of: &str, field: Option<&Field>, bindings: &Bindings) -> Option<String> {
    if let Some((_, here)) = NUMBERS.iter().find(|(name, _)| *name == of) {
        return Some((*here).to_owned());
    }
    if bindings.enums.contains(of) {
        return match field?.of.as_str() {
            "i32" => Some("c_int".to_owned()),
            "u32" => Some("c_uint".to_owned()),
            _ => None,
        };
    }
    bindings.handles.contains(of).then(|| of.to_owned())
}
