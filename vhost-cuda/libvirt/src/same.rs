// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares documents without their layout, because libvirt changes quotes and spaces of its input.

use roxmltree::{Document, Node};

/// Returns whether two documents have the same elements with the same attributes and text.
pub fn same(a: &Document, b: &Document) -> bool {
    same_nodes(a.root_element(), b.root_element())
}

fn same_nodes(a: Node, b: Node) -> bool {
    a.tag_name() == b.tag_name()
        && attributes(a) == attributes(b)
        && text(a) == text(b)
        && elements(a).count() == elements(b).count()
        && elements(a).zip(elements(b)).all(|(a, b)| same_nodes(a, b))
}

fn attributes<'a>(node: Node<'a, '_>) -> Vec<(Option<&'a str>, &'a str, &'a str)> {
    let mut list: Vec<_> = node.attributes().map(|a| (a.namespace(), a.name(), a.value())).collect();
    list.sort_unstable();
    list
}

/// The text of an element that has no child elements.
fn text<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}

fn elements<'a, 'input: 'a>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_layout_may_differ() {
        let same = |a, b| same(&Document::parse(a).unwrap(), &Document::parse(b).unwrap());
        assert!(same("<a x='1' y='2'><b>t</b></a>", "<a y=\"2\"  x=\"1\">\n <b>t</b>\n</a>"));
        for other in ["<a/>", "<a><b>u</b></a>", "<a><b x='1'>t</b></a>", "<a><b>t</b><b>t</b></a>"] {
            assert!(!same("<a><b>t</b></a>", other), "{other}");
        }
        assert!(!same("<a><b/><c/></a>", "<a><c/><b/></a>"));
    }
}
