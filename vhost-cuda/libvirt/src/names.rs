// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of libvirt, of QEMU and of our own in a domain's XML.

use anyhow::{Context, Result, ensure};
use roxmltree::{Document, Node};

/// The namespace of `<qemu:commandline>`.
pub const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// The prefix that libvirt uses for it.
pub const QEMU_PREFIX: &str = "qemu";
/// QEMU's device.
pub const DEVICE: &str = "vhost-user-cuda-pci";
/// The id of the character device between QEMU and the daemon.
pub const CHARDEV: &str = "vhost-cuda";

/// Parses a document; its root must be a domain that QEMU runs.
pub fn parse(text: &str) -> Result<Document<'_>> {
    let document = Document::parse(text).context("This is not XML")?;
    let root = document.root_element();
    let name = root.tag_name().name();
    ensure!(root.has_tag_name("domain"), "The root element is <{name}>, not libvirt's <domain>");
    let kind = root.attribute("type").unwrap_or_default();
    ensure!(
        ["kvm", "qemu"].contains(&kind),
        "The domain has type='{kind}'. Only QEMU has the device: type='kvm' or type='qemu'"
    );
    Ok(document)
}

/// Returns the first child element of that name without a namespace.
pub fn child<'a, 'input>(parent: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    parent.children().find(|node| node.has_tag_name(name) && node.tag_name().namespace().is_none())
}

/// `<qemu:commandline>`.
pub fn command_line<'a, 'input>(domain: Node<'a, 'input>) -> Option<Node<'a, 'input>> {
    domain.children().find(|node| node.has_tag_name((QEMU, "commandline")))
}

/// The `<qemu:arg>` elements, with their values.
pub fn arguments<'a, 'input: 'a>(domain: Node<'a, 'input>) -> Vec<(Node<'a, 'input>, &'a str)> {
    let elements = command_line(domain).into_iter().flat_map(|line| line.children());
    let arguments = elements.filter(|node| node.has_tag_name((QEMU, "arg")));
    arguments.map(|node| (node, node.attribute("value").unwrap_or_default())).collect()
}

/// Returns the name of the domain.
pub fn domain_name<'a>(domain: Node<'a, '_>) -> Option<&'a str> {
    child(domain, "name").and_then(|name| name.text())
}
