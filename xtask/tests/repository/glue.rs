// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest driver's C functions are declared twice: for C in a header, for Rust by hand. Both must agree.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

use crate::root;

/// Names of C types for Rust; pointers and structures follow from them.
const TYPES: [(&str, &str); 13] = [
    ("void", "c_void"),
    ("char", "c_char"),
    ("int", "c_int"),
    ("unsigned int", "c_uint"),
    ("long", "c_long"),
    ("unsigned long", "c_ulong"),
    ("bool", "bool"),
    ("u8", "u8"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("s64", "i64"),
    ("size_t", "usize"),
    ("ssize_t", "isize"),
];
/// Structures that Rust calls by another name.
const STRUCTURES: [(&str, &str); 1] = [("spinlock", "spinlock_t")];
/// User addresses: in Rust `usize`, which is `c_ulong`.
const SAME: [(&str, &str); 2] = [("usize", "c_ulong"), ("isize", "c_long")];

/// Prototypes by name: types of the arguments, and of the result.
type Prototypes = BTreeMap<String, (Vec<String>, String)>;

#[test]
fn glue_of_the_driver() -> Result<()> {
    compare("glue/glue.h", "linux/bindings.rs", &["virtio_cuda_groups"])
}

#[test]
fn glue_of_the_crate_for_stock_kernels() -> Result<()> {
    compare("stock/glue.h", "stock/kernel/src/glue.rs", &["stock_module_init", "stock_module_exit"])
}

/// `only_c`: functions that Rust does not call.
fn compare(header: &str, rust: &str, only_c: &[&str]) -> Result<()> {
    let folder = root().join("guest-driver");
    let mut wanted = of_header(&fs::read_to_string(folder.join(header))?)?;
    wanted.retain(|name, _| !only_c.contains(&name.as_str()));
    let found = of_rust(&fs::read_to_string(folder.join(rust))?)?;
    ensure!(wanted.len() > 20, "{header} has {} functions only", wanted.len());
    for (name, prototype) in &wanted {
        let declared = found.get(name).with_context(|| format!("{rust} lacks {name}"))?;
        ensure!(declared == prototype, "{name}: {header} says {prototype:?}, {rust} {declared:?}");
    }
    let unknown: Vec<_> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
    ensure!(unknown.is_empty(), "{header} lacks {unknown:?}");
    Ok(())
}

fn of_header(text: &str) -> Result<Prototypes> {
    let text = Regex::new(r"(?s)/\*.*?\*/")?.replace_all(text, "");
    let text = Regex::new(r"(?m)^#.*$")?.replace_all(&text, "");
    let text = Regex::new(r"(?s)(struct|enum) \w+ \{.*?\n\};")?.replace_all(&text, "");
    // A function pointer takes one pointer and returns nothing; `rust_type` has its type by name.
    let text = Regex::new(r"void \(\*(\w+)\)\(([\w ]+\*)\w+\)")?.replace_all(&text, "fn<$2> $1");
    let prototype = Regex::new(r"^(.*?)(\w+)\((.*)\)$")?;
    let argument = Regex::new(r"^(.*?)\w+$")?;
    let mut prototypes = Prototypes::new();
    for declaration in text.split(';') {
        let declaration = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some(parts) = prototype.captures(&declaration) else { continue };
        let arguments = match &parts[3] {
            "void" => Vec::new(),
            list => list
                .split(',')
                .map(|one| {
                    let kind = argument.captures(one.trim()).with_context(|| declaration.clone())?;
                    rust_type(&kind[1])
                })
                .collect::<Result<_>>()?,
        };
        let result = if parts[1].trim() == "void" { "()".to_owned() } else { rust_type(&parts[1])? };
        prototypes.insert(parts[2].to_owned(), (arguments, result));
    }
    Ok(prototypes)
}

fn rust_type(kind: &str) -> Result<String> {
    let kind = kind.trim();
    if let Some(of) = kind.strip_prefix("fn<").and_then(|rest| rest.strip_suffix('>')) {
        return Ok(format!("unsafe extern \"C\" fn({})", rust_type(of)?));
    }
    if let Some(of) = kind.strip_suffix("*const *") {
        return Ok(format!("*const {}", rust_type(&format!("{of}*"))?));
    }
    if let Some(of) = kind.strip_suffix('*') {
        let of = of.trim();
        return Ok(match of.strip_prefix("const ").filter(|of| !of.contains('*')) {
            Some(of) => format!("*const {}", rust_type(of)?),
            None => format!("*mut {}", rust_type(of)?),
        });
    }
    if kind.starts_with("enum ") {
        return Ok("c_uint".to_owned());
    }
    let lookup = |table: &[(&str, &str)], name: &str| {
        table.iter().find(|(c, _)| *c == name).map(|(_, rust)| (*rust).to_owned())
    };
    if let Some(name) = kind.strip_prefix("struct ") {
        return Ok(lookup(&STRUCTURES, name).unwrap_or_else(|| name.to_owned()));
    }
    let Some(found) = lookup(&TYPES, kind) else { bail!("{kind}: not a type of the table") };
    Ok(lookup(&SAME, &found).unwrap_or(found))
}

fn of_rust(text: &str) -> Result<Prototypes> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let function = Regex::new(r"fn (\w+)\( ?((?:[^()]|\([^()]*\))*?),? ?\)(?: -> ([^;]+))?;")?;
    let argument = Regex::new(r"(\w+): ((?:[^,()]|\([^()]*\))+)")?;
    let plain = |kind: &str| {
        let same = SAME.iter().find(|(rust, _)| *rust == kind);
        same.map_or_else(|| kind.to_owned(), |(_, other)| (*other).to_owned())
    };
    let of_function = |parts: regex::Captures<'_>| {
        let arguments = argument.captures_iter(&parts[2]).map(|one| plain(one[2].trim())).collect();
        let result = parts.get(3).map_or_else(|| "()".to_owned(), |result| plain(result.as_str().trim()));
        (parts[1].to_owned(), (arguments, result))
    };
    Ok(function.captures_iter(&text).map(of_function).collect())
}
