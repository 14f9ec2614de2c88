// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The note in a domain's `<metadata>` about what `attach` has added. libvirt keeps it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use roxmltree::Node;

use crate::edits::escape;
use crate::names;

/// The namespace of the note.
const NAMESPACE: &str = "urn:vhost-cuda:libvirt:1";
const PREFIX: &str = "vhost-cuda";
const NAME: &str = "device";

/// Something that `attach` adds if it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Added {
    /// The declaration of QEMU's namespace.
    Namespace,
    /// `<qemu:commandline>`.
    CommandLine,
    /// `<memoryBacking>`.
    MemoryBacking,
    /// `<source>` in it.
    Source,
    /// `<access>` in it.
    Access,
    /// `<metadata>`.
    Metadata,
}

const ALL: [(Added, &str); 6] = [
    (Added::Namespace, "namespace"),
    (Added::CommandLine, "commandline"),
    (Added::MemoryBacking, "memoryBacking"),
    (Added::Source, "source"),
    (Added::Access, "access"),
    (Added::Metadata, "metadata"),
];

/// A domain's QEMU before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// `None` if the domain had no value.
    pub before: Option<String>,
    /// The value that `attach` has set.
    pub now: String,
}

/// The note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The value of QEMU's option `-chardev`.
    pub chardev: String,
    /// The value of QEMU's option `-device`.
    pub device: String,
    /// The other elements that were added.
    pub added: BTreeSet<Added>,
    /// The change of QEMU, if there was one.
    pub emulator: Option<Emulator>,
}

impl Record {
    /// The note's element in a domain.
    pub fn find<'a, 'input>(domain: Node<'a, 'input>) -> Option<Node<'a, 'input>> {
        let metadata = names::child(domain, "metadata")?;
        metadata.children().find(|node| node.has_tag_name((NAMESPACE, NAME)))
    }

    /// Reads it.
    pub fn parse(node: Node) -> Result<Self> {
        let attribute = |name: &str| {
            let value = node.attribute(name).map(str::to_owned);
            value.with_context(|| format!("<{PREFIX}:{NAME}> in the domain's <metadata> has no {name}="))
        };
        let words = attribute("added")?;
        let added = words.split_whitespace().map(|word| {
            let known = ALL.iter().find(|(_, name)| *name == word).map(|(added, _)| *added);
            known.with_context(|| format!("<{PREFIX}:{NAME}> in the domain's <metadata> has added='{word}'"))
        });
        let before = node.attribute("emulator-before").map(str::to_owned);
        let emulator = node.attribute("emulator").map(|now| Emulator { before, now: now.to_owned() });
        let (chardev, device) = (attribute("chardev")?, attribute("device")?);
        Ok(Self { chardev, device, added: added.collect::<Result<_>>()?, emulator })
    }

    /// Its XML.
    pub fn to_xml(&self) -> String {
        let names = ALL.iter().filter(|(added, _)| self.added.contains(added)).map(|(_, name)| *name);
        let mut xml = format!("<{PREFIX}:{NAME} xmlns:{PREFIX}='{NAMESPACE}'");
        let mut attribute = |name: &str, value: &str| xml += &format!(" {name}='{}'", escape(value));
        attribute("chardev", &self.chardev);
        attribute("device", &self.device);
        attribute("added", &names.collect::<Vec<_>>().join(" "));
        if let Some(emulator) = &self.emulator {
            attribute("emulator", &emulator.now);
            if let Some(before) = &emulator.before {
                attribute("emulator-before", before);
            }
        }
        xml + "/>"
    }
}
