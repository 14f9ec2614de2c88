// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon and its workers map the guest's memory, so QEMU must have it in a file or memfd and share it.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use roxmltree::Node;

use crate::edits::Edits;
use crate::names::child;
use crate::record::Added;

const SOURCE: &str = "<source type='memfd'/>";
const ACCESS: &str = "<access mode='shared'/>";

/// Adds the missing settings for shared memory. Returns an error if the domain contradicts them.
pub fn share(domain: Node, edits: &mut Edits, added: &mut BTreeSet<Added>) -> Result<()> {
    let private = domain.descendants().find(|node| {
        node.has_tag_name("cell") && node.attribute("memAccess").is_some_and(|access| access != "shared")
    });
    if let Some(cell) = private {
        let id = cell.attribute("id").unwrap_or("?");
        bail!(
            "NUMA cell {id} of the domain has memAccess='{}'. The daemon maps the guest's memory, so it must be \
             memAccess='shared'",
            cell.attribute("memAccess").unwrap_or_default()
        );
    }
    let Some(backing) = child(domain, "memoryBacking") else {
        added.extend([Added::MemoryBacking, Added::Source, Added::Access]);
        let lines = format!("<memoryBacking>\n  {SOURCE}\n  {ACCESS}\n</memoryBacking>");
        let before =
            ["currentMemory", "memory", "maxMemory", "name"].iter().find_map(|name| child(domain, name));
        match before {
            Some(before) => edits.insert_after(before, &lines),
            None => edits.append(domain, &lines),
        }
        return Ok(());
    };
    match child(backing, "source").map(|source| source.attribute("type").unwrap_or_default()) {
        Some("memfd" | "file") => {}
        Some(other) => bail!(
            "The domain has <memoryBacking> with <source type='{other}'>. The daemon maps the guest's memory, so it must \
             be type='memfd' or type='file'"
        ),
        // Pages of hugetlbfs are in a file.
        None if child(backing, "hugepages").is_some() => {}
        None => {
            added.insert(Added::Source);
            edits.append(backing, SOURCE);
        }
    }
    match child(backing, "access").map(|access| access.attribute("mode").unwrap_or_default()) {
        Some("shared") => {}
        Some(other) => bail!(
            "The domain has <memoryBacking> with <access mode='{other}'>. The daemon maps the guest's memory, so it must \
             be mode='shared'"
        ),
        None => {
            added.insert(Added::Access);
            edits.append(backing, ACCESS);
        }
    }
    Ok(())
}
