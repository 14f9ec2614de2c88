// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The definitions, imports, names and calls of one source file. Tests are left out.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Words after which the name of an item follows.
const ITEMS: [&str; 9] = ["fn", "struct", "enum", "trait", "const", "static", "type", "union", "mod"];

/// One import: the path, and its local name (`*`: all names).
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub path: Vec<String>,
    pub name: String,
}

/// The names of a file.
#[derive(Debug, Default)]
pub struct Names {
    /// Items at the top of the file and in its inline modules.
    pub defined: BTreeSet<String>,
    /// Macros.
    pub macros: BTreeSet<String>,
    /// All `use`, at any place.
    pub imports: Vec<Import>,
    /// Paths of at least two parts in the code.
    pub paths: Vec<Vec<String>>,
    /// Functions of implementations: the type's name, or none for a trait's, and the function's.
    pub methods: Vec<(Option<String>, String)>,
    /// Functions that are called with a receiver.
    pub calls: BTreeSet<String>,
    /// The names of files of modules that are for tests only. True: an attribute gives the path.
    pub tests: BTreeSet<(String, bool)>,
}

impl Names {
    /// The names in a file's text.
    pub fn of(text: &str) -> Result<Self> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
        let mut names = Self::default();
        names.walk(tokens, &[], true);
        Ok(names)
    }

    /// `inside`: the enclosing inline modules. `items`: whether the names of items are collected.
    fn walk(&mut self, tokens: TokenStream, inside: &[String], items: bool) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test(&tokens[at..]) {
                let length = item_length(&tokens[at + 2..]);
                self.tests.extend(module_elsewhere(&tokens[at + 2..at + 2 + length]));
                at += 2 + length;
                continue;
            }
            match &tokens[at] {
                TokenTree::Ident(word) if word == "use" => {
                    let end = (at..tokens.len()).find(|i| is_punct(&tokens[*i], ';')).unwrap_or(tokens.len());
                    self.import(&tokens[at + 1..end], &mut Vec::new(), inside);
                    at = end;
                }
                TokenTree::Ident(word) if word == "impl" && items => {
                    let body = at + body_of(&tokens[at..]);
                    self.implementation(&tokens[at + 1..body], tokens.get(body));
                    // Its paths and calls follow.
                    at += 1;
                    continue;
                }
                TokenTree::Ident(word) => {
                    let is_called = at > 0
                        && is_punct(&tokens[at - 1], '.')
                        && tokens.get(at + 1).is_some_and(|next| is_arguments(next) || is_punct(next, ':'));
                    if is_called {
                        self.calls.insert(word.to_string());
                    }
                    if let (true, Some(TokenTree::Ident(name))) = (items, tokens.get(at + 1))
                        && ITEMS.iter().any(|item| word == item)
                    {
                        self.defined.insert(name.to_string());
                        if let (true, Some(TokenTree::Group(body))) = (word == "mod", tokens.get(at + 2)) {
                            self.walk(body.stream(), &[inside, &[name.to_string()]].concat(), true);
                            at += 3;
                            continue;
                        }
                    }
                    if let (true, Some(TokenTree::Ident(name))) = (word == "macro_rules", tokens.get(at + 2))
                    {
                        self.macros.insert(name.to_string());
                    }
                    let (path, length) = path(&tokens[at..]);
                    let continues =
                        at > 0 && (is_punct(&tokens[at - 1], ':') || is_punct(&tokens[at - 1], '.'));
                    let is_rooted =
                        at > 1 && is_punct(&tokens[at - 2], ':') && is_punct(&tokens[at - 1], ':');
                    if path.len() > 1 && !(continues && (is_rooted || is_punct(&tokens[at - 1], '.'))) {
                        self.paths.push(from(path, inside));
                    }
                    at += length - 1;
                }
                TokenTree::Group(group) if is_visibility(group) => {}
                TokenTree::Group(group) => self.walk(group.stream(), inside, false),
                _ => {}
            }
            at += 1;
        }
    }

    /// The functions of an implementation. `head` is between `impl` and the body.
    fn implementation(&mut self, head: &[TokenTree], body: Option<&TokenTree>) {
        let Some(TokenTree::Group(body)) = body else { return };
        let name = if head.iter().any(|token| is_word(token, "for")) { None } else { Some(type_of(head)) };
        let mut tokens: Vec<_> = body.stream().into_iter().collect();
        while let Some(at) = (0..tokens.len()).find(|at| is_test(&tokens[*at..])) {
            tokens.drain(at..at + 2 + item_length(&tokens[at + 2..]));
        }
        for pair in tokens.windows(2) {
            if let [word, TokenTree::Ident(function)] = pair
                && is_word(word, "fn")
            {
                self.methods.push((name.clone(), function.to_string()));
            }
        }
    }

    /// A tree of imports, after `prefix`.
    fn import(&mut self, tokens: &[TokenTree], prefix: &mut Vec<String>, inside: &[String]) {
        let before = prefix.len();
        let mut name = None;
        let mut tokens = tokens.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => name = tokens.next().map(ToString::to_string),
                TokenTree::Ident(word) => prefix.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => prefix.push("*".to_owned()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let trees: Vec<_> = group.stream().into_iter().collect();
                    trees
                        .split(|token| is_punct(token, ','))
                        .for_each(|tree| self.import(tree, prefix, inside));
                    prefix.truncate(before);
                }
                _ => {}
            }
        }
        if prefix.len() > before {
            let mut path = prefix.clone();
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
            self.imports.push(Import { path: from(path, inside), name });
        }
        prefix.truncate(before);
    }
}

/// The path as the file's own module sees it.
fn from(path: Vec<String>, inside: &[String]) -> Vec<String> {
    let up = path.iter().take_while(|part| *part == "super").count();
    match path[0].as_str() {
        "super" if up <= inside.len() => {
            [&["self".to_owned()], &inside[..inside.len() - up], &path[up..]].concat()
        }
        "super" => path[inside.len()..].to_vec(),
        _ => path,
    }
}

/// The path at the start of `tokens`, and its length in tokens.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let mut path = vec![tokens[0].to_string()];
    let mut length = 1;
    while let [first, second, TokenTree::Ident(word), ..] = &tokens[length..]
        && is_punct(first, ':')
        && is_punct(second, ':')
    {
        path.push(word.to_string());
        length += 3;
    }
    (path, length)
}

/// Returns whether an item begins that is for tests only.
fn is_test(tokens: &[TokenTree]) -> bool {
    let [first, TokenTree::Group(group), ..] = tokens else { return false };
    is_punct(first, '#') && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// The name of the file, without its ending, of the module whose declaration these tokens are, if its items are in another file.
fn module_elsewhere(tokens: &[TokenTree]) -> Option<(String, bool)> {
    let [.., word, TokenTree::Ident(name), end] = tokens else { return None };
    if !is_word(word, "mod") || !is_punct(end, ';') {
        return None;
    }
    // `#[path = "folder/name.rs"]`
    let text = TokenStream::from_iter(tokens.iter().cloned()).to_string();
    let file = text.split('"').nth(1).and_then(|path| path.rsplit('/').next()?.strip_suffix(".rs"));
    Some(file.map_or_else(|| (name.to_string(), false), |file| (file.to_owned(), true)))
}

/// Tokens of the item, with its attributes.
fn item_length(tokens: &[TokenTree]) -> usize {
    let is_import =
        tokens.iter().take(3).any(|token| matches!(token, TokenTree::Ident(word) if word == "use"));
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is_import,
        token => is_punct(token, ';'),
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Tokens before the body of an implementation.
fn body_of(tokens: &[TokenTree]) -> usize {
    let is_body =
        |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    tokens.iter().position(is_body).unwrap_or(tokens.len())
}

/// The name of the type of an implementation's head: the last word of its path, without parameters.
fn type_of(head: &[TokenTree]) -> String {
    let mut depth = 0_i32;
    let mut name = String::new();
    for token in head {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => depth -= 1,
            TokenTree::Ident(word) if word == "where" => break,
            TokenTree::Ident(word) if depth == 0 => name = word.to_string(),
            _ => {}
        }
    }
    name
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == text)
}

fn is_arguments(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

/// Returns whether the group is the `(in …)` of a visibility.
fn is_visibility(group: &Group) -> bool {
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "in")
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_file() -> Result<()> {
        let text = "
            pub(in crate::worker) use super::a::{self, B as C, d::*};
            fn item() { crate::e::f(child::g); other.h::<u8>(); }
            #[cfg(test)]
            mod tests { use super::*; use crate::unseen; }
            #[cfg(test)]
            #[path = \"a/b.rs\"]
            mod elsewhere;
            #[cfg(test)]
            mod there;
            mod inline { use super::super::i; }
        ";
        let names = Names::of(text)?;
        let imports: Vec<_> =
            names.imports.iter().map(|one| (one.path.join("::"), one.name.as_str())).collect();
        let wanted = [("super::a", "a"), ("super::a::B", "C"), ("super::a::d::*", "*"), ("super::i", "i")];
        assert_eq!(imports, wanted.map(|(path, name)| (path.to_owned(), name)));
        let paths: Vec<_> = names.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::e::f", "child::g"]);
        assert!(names.defined.contains("item") && !names.defined.contains("tests"));
        assert_eq!(Vec::from_iter(names.tests), [("b".to_owned(), true), ("there".to_owned(), false)]);
        Ok(())
    }

    #[test]
    fn methods_and_calls_of_a_file() -> Result<()> {
        let text = "
            impl<T: Into<u8>> a::Api<T> where T: Copy { fn one() { x.two().three::<u8>(4).field; } #[cfg(test)] fn no() {} }
            impl Clone for Api { fn clone(&self) -> Self { five() } }
        ";
        let names = Names::of(text)?;
        let methods: Vec<_> = names.methods.iter().map(|(of, name)| (of.as_deref(), name.as_str())).collect();
        assert_eq!(methods, [(Some("Api"), "one"), (None, "clone")]);
        assert_eq!(Vec::from_iter(names.calls), ["three", "two"]);
        Ok(())
    }
}
