// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes to the text of an XML document at places that its parsed form names. All other text stays as it is.

use std::ops::Range;

use roxmltree::Node;

/// Changes to a text, which do not overlap.
pub struct Edits<'a> {
    text: &'a str,
    list: Vec<(Range<usize>, String)>,
}

impl<'a> Edits<'a> {
    /// No changes to `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, list: Vec::new() }
    }

    /// Replaces the text of `range`.
    pub fn replace(&mut self, range: Range<usize>, by: impl Into<String>) {
        self.list.push((range, by.into()));
    }

    /// Inserts lines after the element `node`, as its sibling, with the same indentation.
    pub fn insert_after(&mut self, node: Node, lines: &str) {
        let (end, indent) = (node.range().end, self.indent(node));
        self.replace(end..end, indented(lines, &indent));
    }

    /// Inserts lines as the last children of `parent`.
    pub fn append(&mut self, parent: Node, lines: &str) {
        if let Some(last) = parent.children().rfind(Node::is_element) {
            return self.insert_after(last, lines);
        }
        let indent = self.indent(parent);
        let inner = if indent.is_empty() { String::new() } else { format!("{indent}  ") };
        let content = format!("{}{indent}", indented(lines, &inner));
        let tag = self.start_tag(parent);
        if tag.end == parent.range().end {
            let open = self.text[tag.clone()].trim_end_matches("/>").trim_end();
            let name = open[1..].split_whitespace().next().unwrap_or_default();
            self.replace(tag, format!("{open}>{content}</{name}>"));
        } else {
            self.replace(tag.end..tag.end, content);
        }
    }

    /// Removes an element and the white space in front of it.
    pub fn remove(&mut self, node: Node) {
        let before = node.prev_sibling().filter(|before| before.is_text());
        let blank = before.filter(|text| text.text().is_some_and(|text| text.trim().is_empty()));
        let start = blank.map_or(node.range().start, |text| text.range().start);
        self.replace(start..node.range().end, "");
    }

    /// Adds text to the start tag of an element, after its attributes.
    pub fn add_to_start_tag(&mut self, node: Node, text: &str) {
        let tag = self.start_tag(node);
        let inside = self.text[tag.clone()].trim_end_matches('>').trim_end_matches('/').trim_end();
        let at = tag.start + inside.len();
        self.replace(at..at, text);
    }

    /// The text with all changes.
    pub fn apply(mut self) -> String {
        // Insertions at one place keep their order.
        self.list.sort_by_key(|(range, _)| range.start);
        let (mut result, mut at) = (String::with_capacity(self.text.len()), 0);
        for (range, by) in self.list {
            result += &self.text[at..range.start];
            result += &by;
            at = range.end;
        }
        result + &self.text[at..]
    }

    /// The range of an element's start tag.
    pub fn start_tag(&self, node: Node) -> Range<usize> {
        let range = node.range();
        let mut quote = None;
        for (at, byte) in self.text[range.clone()].bytes().enumerate() {
            match (quote, byte) {
                (None, b'>') => return range.start..range.start + at + 1,
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(open), byte) if open == byte => quote = None,
                _ => {}
            }
        }
        range
    }

    /// The line break and the white space in front of an element; nothing if something else is in front of it.
    fn indent(&self, node: Node) -> String {
        let before = &self.text[..node.range().start];
        let blank = &before[before.trim_end_matches([' ', '\t']).len()..];
        if before[..before.len() - blank.len()].ends_with('\n') {
            format!("\n{blank}")
        } else {
            String::new()
        }
    }
}

/// The lines, each with `indent` in front; without any line breaks if that is empty.
fn indented(lines: &str, indent: &str) -> String {
    let indented = |line| match indent {
        "" => str::trim_start(line).to_owned(),
        indent => format!("{indent}{line}"),
    };
    lines.lines().map(indented).collect()
}

/// Text for an attribute, or for the content of an element.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&apos;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    fn edited(text: &str, edit: impl Fn(&mut Edits, Node)) -> String {
        let document = Document::parse(text).unwrap();
        let mut edits = Edits::new(text);
        edit(&mut edits, document.root_element());
        edits.apply()
    }

    #[test]
    fn children_are_indented_as_their_siblings() {
        let append = |text| edited(text, |edits, root| edits.append(root, "<c>\n  <d/>\n</c>"));
        assert_eq!(append("<a>\n   <b/>\n</a>"), "<a>\n   <b/>\n   <c>\n     <d/>\n   </c>\n</a>");
        assert_eq!(append("<a><b/></a>"), "<a><b/><c><d/></c></a>");
        assert_eq!(append("<a x='>'></a>"), "<a x='>'><c><d/></c></a>");
        assert_eq!(append("\n<a x='/>' />"), "\n<a x='/>'>\n  <c>\n    <d/>\n  </c>\n</a>");
    }

    #[test]
    fn a_removed_element_takes_its_line_with_it() {
        let remove = |text| edited(text, |edits, root| edits.remove(root.first_element_child().unwrap()));
        assert_eq!(remove("<a>\n  <b/>\n  <c/>\n</a>"), "<a>\n  <c/>\n</a>");
        assert_eq!(remove("<a>text<b></b></a>"), "<a>text</a>");
    }

    #[test]
    fn attributes_are_added_behind_others() {
        let add = |text| edited(text, |edits, root| edits.add_to_start_tag(root, " y='1'"));
        assert_eq!(add("<a x='1'><b/></a>"), "<a x='1' y='1'><b/></a>");
        assert_eq!(add("<a x='1' />"), "<a x='1' y='1' />");
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escape("a'b<c>&d\""), "a&apos;b&lt;c&gt;&amp;d&quot;");
    }
}
