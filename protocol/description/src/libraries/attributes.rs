// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parses a file of attributes ([`cuda_library_rows::attributes`] describes its lines).

use cuda_library_rows::attributes::{Attribute, Descriptor, MASK_BYTES, Part};

use crate::{kept_text, slice};

/// A descriptor whose attributes are being read.
struct Building {
    descriptor: Descriptor,
    attributes: Vec<Attribute>,
    parts: Vec<Part>,
}

/// Reads a file of attributes.
///
/// Errors: describes the line that cannot be parsed.
pub fn parse(text: &str) -> Result<Vec<Descriptor>, String> {
    let mut descriptors: Vec<Building> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let position = |name: &str| descriptors.iter().position(|known| known.descriptor.name == name);
        match words[..] {
            ["descriptor", name, bytes, init, set] => {
                let mut descriptor = empty(name, bytes).ok_or(line)?;
                (descriptor.descriptor.init, descriptor.descriptor.set) = (kept_text(init), kept_text(set));
                descriptors.push(descriptor);
            }
            ["object", name, bytes] => {
                let mut descriptor = empty(name, bytes).ok_or(line)?;
                descriptor.descriptor.is_object = true;
                descriptors.push(descriptor);
            }
            ["part", of, name, kind] => {
                let (kind, of) = (position(kind).ok_or(line)?, position(of).ok_or(line)?);
                descriptors[of].parts.push(Part { name: kept_text(name), kind, offset: 0 });
            }
            [kind, number, name, bytes, default, ref flags @ ..] => {
                let Some(descriptor) = position(kind) else { continue };
                let other = flags.iter().find_map(|flag| flag.strip_prefix("descriptor:"));
                let other = other.map(|name| position(name).ok_or(line)).transpose()?;
                descriptors[descriptor].attributes.push(Attribute {
                    number: number.parse().map_err(|_| line.to_owned())?,
                    name: kept_text(name),
                    bytes: bytes.parse().map_err(|_| line.to_owned())?,
                    offset: 0,
                    default: value_of(default).ok_or(line)?,
                    is_given: default == "given",
                    is_pointer: flags.contains(&"pointer") || other.is_some(),
                    is_readonly: flags.contains(&"readonly"),
                    descriptor: other,
                });
            }
            _ => {}
        }
    }
    // A part is listed before the descriptor that contains it.
    let mut all: Vec<Descriptor> = Vec::new();
    for building in descriptors {
        all.push(lay_out(building, &all));
    }
    for index in 0..all.len() {
        let other = all[index].other().map_or(0, |(_, kind)| all[kind].bytes);
        all[index].crossing_bytes = all[index].bytes + other;
    }
    Ok(all)
}

fn empty(name: &str, bytes: &str) -> Option<Building> {
    let descriptor = Descriptor {
        name: kept_text(name),
        public_bytes: bytes.parse().ok()?,
        init: "",
        set: "",
        is_object: false,
        attributes: &[],
        parts: &[],
        bytes: 0,
        crossing_bytes: 0,
    };
    Some(Building { descriptor, attributes: Vec::new(), parts: Vec::new() })
}

fn value_of(text: &str) -> Option<u64> {
    match (text, text.strip_prefix("0x")) {
        ("given" | "-", _) => Some(0),
        (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
        _ => text.parse::<i64>().ok().map(|value| value as u64),
    }
}

/// Returns the descriptor with the offsets of its attributes and parts. `before` contains the descriptors that are listed before
/// this one.
fn lay_out(building: Building, before: &[Descriptor]) -> Descriptor {
    let Building { descriptor, mut attributes, mut parts } = building;
    let mut order: Vec<usize> = (0..attributes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(attributes[*index].bytes));
    let mut end = MASK_BYTES;
    for index in order {
        attributes[index].offset = end;
        end += attributes[index].bytes;
    }
    end = end.next_multiple_of(8);
    for part in &mut parts {
        part.offset = end;
        end += before[part.kind].bytes;
    }
    Descriptor { attributes: slice(attributes), parts: slice(parts), bytes: end, ..descriptor }
}

/// Reads the attributes of cuDNN whose elements refer to something: their numbers, and the numbers of the only types that their
/// elements may have (`cudnnBackendAttributeType_t`), in the order of the attributes.
///
/// Errors: describes the line that cannot be parsed.
pub fn referring(text: &str) -> Result<Vec<(i64, i8)>, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("attribute "));
    let listed = lines.filter_map(|line| {
        let kind = match line.rsplit(' ').next()? {
            "CUDNN_TYPE_HANDLE" => 0,
            "CUDNN_TYPE_VOID_PTR" => 6,
            "CUDNN_TYPE_BACKEND_DESCRIPTOR" => 15,
            _ => return None,
        };
        let number = line.split(' ').next()?.parse();
        Some(number.map(|number| (number, kind)).map_err(|_| format!("`{line}` has no number")))
    });
    let mut listed = listed.collect::<Result<Vec<_>, _>>()?;
    listed.sort_unstable();
    Ok(listed)
}
