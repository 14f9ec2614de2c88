// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removes from a domain's XML what `attach` has added, by the note that it left there.

use anyhow::{Context, Result, bail};
use roxmltree::Node;

use crate::edits::{Edits, escape};
use crate::names::{self, DEVICE, QEMU, child};
use crate::record::{Added, Record};

/// The domain of `text` without the device; none if `attach` has added nothing to it.
pub fn detach(text: &str) -> Result<Option<String>> {
    let document = names::parse(text)?;
    let domain = document.root_element();
    let Some(node) = Record::find(domain) else { return Ok(None) };
    let record = Record::parse(node)?;
    let mut edits = Edits::new(text);
    remove_with(&mut edits, &[node], record.added.contains(&Added::Metadata));
    remove_arguments(domain, &record, &mut edits)?;
    if let Some(backing) = child(domain, "memoryBacking") {
        let ours = [(Added::Source, "source"), (Added::Access, "access")];
        let ours = ours.iter().filter(|(added, _)| record.added.contains(added));
        let ours: Vec<Node> = ours.filter_map(|(_, name)| child(backing, name)).collect();
        remove_with(&mut edits, &ours, record.added.contains(&Added::MemoryBacking));
    }
    restore_emulator(domain, &record, &mut edits);
    Ok(Some(edits.apply()))
}

/// Removes siblings; their parent, too, if that was `added` and has no other children.
fn remove_with(edits: &mut Edits, nodes: &[Node], added: bool) {
    let Some(parent) = nodes.first().and_then(Node::parent) else { return };
    if added && parent.children().filter(Node::is_element).all(|node| nodes.contains(&node)) {
        return edits.remove(parent);
    }
    for node in nodes {
        edits.remove(*node);
    }
}

fn remove_arguments(domain: Node, record: &Record, edits: &mut Edits) -> Result<()> {
    let arguments = names::arguments(domain);
    let ours = ["-chardev", &record.chardev, "-device", &record.device];
    let found = arguments.windows(ours.len()).find(|words| words.iter().map(|(_, value)| *value).eq(ours));
    let Some(found) = found else {
        if let Some((_, value)) = arguments.iter().find(|(_, value)| value.contains(DEVICE)) {
            bail!(
                "<qemu:commandline> of the domain was changed after the device was attached: it has <qemu:arg \
                 value='{value}'/>, not `{}`. Change it back, or remove it by hand",
                ours.join(" ")
            );
        }
        // Somebody has removed the device, and the rest is still there.
        return Ok(());
    };
    let nodes: Vec<Node> = found.iter().map(|(node, _)| *node).collect();
    let line = nodes[0].parent().context("<qemu:arg> has no parent")?;
    let alone = line.children().filter(Node::is_element).all(|node| nodes.contains(&node));
    remove_with(edits, &nodes, record.added.contains(&Added::CommandLine));
    if alone && record.added.contains(&Added::Namespace) {
        let tag = edits.start_tag(domain);
        let text = &domain.document().input_text()[tag.clone()];
        for declaration in
            ["'", "\""].map(|quote| format!(" xmlns:{}={quote}{QEMU}{quote}", names::QEMU_PREFIX))
        {
            if let Some(at) = text.find(&declaration) {
                edits.replace(tag.start + at..tag.start + at + declaration.len(), "");
            }
        }
    }
    Ok(())
}

/// Sets the earlier QEMU, unless somebody has set another one meanwhile.
fn restore_emulator(domain: Node, record: &Record, edits: &mut Edits) {
    let element = child(domain, "devices").and_then(|devices| child(devices, "emulator"));
    let (Some(element), Some(emulator)) = (element, &record.emulator) else { return };
    if element.text().unwrap_or_default().trim() != emulator.now {
        return;
    }
    match &emulator.before {
        Some(before) => {
            edits.replace(element.range(), format!("<emulator>{}</emulator>", escape(before)));
        }
        None => edits.remove(element),
    }
}
