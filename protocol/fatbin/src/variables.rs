// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The variables that PTX declares in device memory.
//!
//! The text is read as tokens, those that the emulator reads as well: what is in strings and comments declares nothing and hides
//! nothing. Where a text could mean something else to NVIDIA's compiler, or a size is not a plain number, the answer is that
//! the bytes are unknown.

use super::tokens::{Immediate, TokenKind, Tokens};

/// State spaces in device memory.
const SPACES: [&str; 3] = ["global", "const", "tex"];

/// A variable in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its length in bytes.
    pub bytes: u64,
    /// True if its initial value has the address of something.
    pub has_addresses: bool,
    /// True for a reference to a texture, sampler or surface, which has no address on the device.
    pub is_reference: bool,
}

/// Returns the bytes of all variables. `None`: those of one are unknown.
pub fn bytes(text: &str) -> Option<u64> {
    let mut sum = Some(0u64);
    each(text, |variable| sum = sum.and_then(|sum| sum.checked_add(variable.bytes)))?;
    sum
}

/// Passes all variables to `visit`, but those of other modules. `None`: one cannot be read. Those before it have been passed.
pub fn each<'a>(text: &'a str, mut visit: impl FnMut(Variable<'a>)) -> Option<()> {
    let mut reader = Reader { tokens: Tokens::new(text), again: None };
    let mut nested = 0u32;
    // Right after `.extern`.
    let mut is_extern = false;
    loop {
        let token = reader.next()?;
        match token {
            TokenKind::End => return (nested == 0).then_some(()),
            TokenKind::Punctuation(b'(') => nested = nested.checked_add(1)?,
            TokenKind::Punctuation(b')') => nested = nested.checked_sub(1)?,
            // The parameters of a function are declared with spaces that are those of what they point to.
            TokenKind::Punctuation(b';') if nested > 0 => return None,
            TokenKind::Word(word) if nested == 0 && word.starts_with('.') => {
                let mut parts = directives(word);
                while let Some(part) = parts.next() {
                    let was_extern = std::mem::replace(&mut is_extern, part == "extern");
                    if SPACES.contains(&part) {
                        reader.declaration(parts, was_extern, &mut visit)?;
                        break;
                    }
                    if part == "ptr" {
                        reader.skip_pointer()?;
                        break;
                    }
                }
                continue;
            }
            _ => {}
        }
        is_extern = false;
    }
}

/// The directives of a word: it may be several, as in `.global.align`.
fn directives(word: &str) -> impl Iterator<Item = &str> {
    word.split('.').filter(|part| !part.is_empty())
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    again: Option<TokenKind<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<TokenKind<'a>> {
        if let Some(token) = self.again.take() {
            return Some(token);
        }
        let token = self.tokens.read().ok()?.kind;
        match token {
            // The end of the string, for those to whom this is a quotation mark in it.
            TokenKind::Text(text) if text.ends_with('\\') => None,
            // Directives of a preprocessor.
            TokenKind::Punctuation(b'#' | b'\\' | b'`') => None,
            token => Some(token),
        }
    }

    /// Reads the target of a pointer that is a parameter.
    fn skip_pointer(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                TokenKind::Word(word) if word.starts_with('.') => {}
                TokenKind::Number(_) => {}
                other => {
                    self.again = Some(other);
                    return Some(());
                }
            }
        }
    }

    /// Reads a declaration from the rest of the word with its space on, and passes its variables to `visit` if they are not of
    /// another module.
    fn declaration(
        &mut self,
        rest: impl Iterator<Item = &'a str>,
        is_extern: bool,
        visit: &mut impl FnMut(Variable<'a>),
    ) -> Option<()> {
        let (mut element, mut lanes, mut is_reference) = (None, 1u64, false);
        let mut directive = |part: &str| {
            is_reference |= is_reference_type(part);
            if let Some(count) = part.strip_prefix('v').and_then(|count| count.parse::<u64>().ok()) {
                lanes = lanes.max(count);
            }
            element = element.max(type_bytes(part));
        };
        rest.for_each(&mut directive);
        // The type and other directives, up to the first name.
        let mut name = loop {
            match self.next()? {
                TokenKind::Word(word) if word.starts_with('.') => directives(word).for_each(&mut directive),
                TokenKind::Word(name) => break name,
                // Alignment.
                TokenKind::Number(_) => {}
                TokenKind::Punctuation(b'(') => self.skip_to(b')')?,
                // The number of a bank.
                TokenKind::Punctuation(b'[') => self.skip_to(b']')?,
                _ => return None,
            }
        };
        let element = element?.checked_mul(lanes)?;
        loop {
            let Declarator { count, has_addresses, is_last } = self.declarator(is_extern)?;
            let bytes = element.checked_mul(count)?;
            if !is_extern {
                visit(Variable { name, bytes, has_addresses, is_reference });
            }
            if is_last {
                return Some(());
            }
            name = match self.next()? {
                TokenKind::Word(word) if !word.starts_with('.') => word,
                _ => return None,
            };
        }
    }

    fn skip_to(&mut self, end: u8) -> Option<()> {
        loop {
            match self.next()? {
                TokenKind::Punctuation(found) if found == end => return Some(()),
                TokenKind::Word(_) | TokenKind::Number(_) | TokenKind::Punctuation(b',') => {}
                _ => return None,
            }
        }
    }

    /// Reads what follows a name.
    fn declarator(&mut self, is_extern: bool) -> Option<Declarator> {
        let (mut count, mut has_size) = (1u64, true);
        loop {
            match self.next()? {
                TokenKind::Punctuation(b'[') => match self.next()? {
                    TokenKind::Punctuation(b']') => has_size = false,
                    TokenKind::Number(Immediate::Int(elements)) => {
                        count = count.checked_mul(elements)?;
                        self.skip_to(b']')?;
                    }
                    _ => return None,
                },
                TokenKind::Punctuation(b'=') => {
                    let initial = self.initializer()?;
                    // As many as it has values, at most.
                    let count = if has_size { count } else { count.checked_mul(initial.count)? };
                    return Some(Declarator { count, ..initial });
                }
                TokenKind::Punctuation(end @ (b',' | b';')) => {
                    let declarator = Declarator { count, has_addresses: false, is_last: end == b';' };
                    return (has_size || is_extern).then_some(declarator);
                }
                // Many variables of one name, `name<100>`, or anything else.
                _ => return None,
            }
        }
    }

    /// Reads an initial value. Counts its tokens: they are more than its numbers.
    fn initializer(&mut self) -> Option<Declarator> {
        let (mut nested, mut count, mut has_addresses) = (0u32, 0u64, false);
        loop {
            match self.next()? {
                TokenKind::End => return None,
                TokenKind::Punctuation(b'{' | b'(' | b'[') => nested = nested.checked_add(1)?,
                TokenKind::Punctuation(b'}' | b')' | b']') => nested = nested.checked_sub(1)?,
                TokenKind::Punctuation(end @ (b',' | b';')) if nested == 0 => {
                    return Some(Declarator { count, has_addresses, is_last: end == b';' });
                }
                TokenKind::Punctuation(b';') => return None,
                TokenKind::Text(text) => count += text.len() as u64 + 1,
                token => {
                    has_addresses |= matches!(token, TokenKind::Word(_));
                    count += 1;
                }
            }
        }
    }
}

/// The part of a declaration after the variable's name: its dimensions and its initial value.
struct Declarator {
    /// The number of elements.
    count: u64,
    has_addresses: bool,
    /// True if no other name follows.
    is_last: bool,
}

/// Bytes of a type, as `f32`; handles of textures and the like have 64 bits.
fn is_reference_type(part: &str) -> bool {
    matches!(part, "texref" | "samplerref" | "surfref")
}

fn type_bytes(part: &str) -> Option<u64> {
    if is_reference_type(part) {
        return Some(8);
    }
    let letters = part.bytes().take_while(|letter| letter.is_ascii_alphabetic()).count();
    let (kind, rest) = part.split_at(letters);
    if !matches!(kind, "b" | "u" | "s" | "f" | "bf" | "tf") || rest.is_empty() {
        return None;
    }
    match rest.parse::<u64>() {
        Ok(bits) => (bits <= 128).then_some(bits.div_ceil(8)),
        // `.f16x2` and the like have at most 64 bits.
        Err(_) => Some(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

    #[test]
    fn variables_are_counted() {
        for (declared, expected) in [
            (".visible .global .align 8 .b8 big[1073741824];", Some(1 << 30)),
            (".global .u32 one;", Some(4)),
            (".const .align 4 .f32 table[16] = {0f00000000, 0f3F800000};", Some(64)),
            (".global .align 16 .v4 .f32 vectors[4];", Some(64)),
            (".global .u8 a[0x10], b[2][3], c = 7;", Some(16 + 6 + 1)),
            (".extern .global .u8 elsewhere[1000000];", Some(0)),
            (".extern .const .u8 unknown[];", Some(0)),
            (".extern .global .u8 elsewhere[9]; .global .u8 here[7];", Some(7)),
            (".extern .func f; .global .u8 here[7];", Some(7)),
            (".weak .extern.global .u8 a[9]; .weak.global.u8 here[7];", Some(7)),
            // The last one counts.
            (".extern .visible .global .u8 a[9];", Some(9)),
            (".global .texref image;", Some(8)),
            (".tex .u32 old;", Some(4)),
            (".const[2] .b8 bank[100];", Some(100)),
            (".global .u64 place = generic(table);", Some(8)),
            (".global .u64 places[2] = {table+1, 0xFF00(table)}, more[3];", Some(40)),
            (".global .attribute(.managed) .align 4 .u32 managed[3];", Some(12)),
            (".global .u8 text[] = {1, 2, 3};", Some(5)),
            (".shared .align 4 .b8 shared[4096];", Some(0)),
            ("// .global .u8 x[99];\n/* .global .u8 y[99]; */ .global .u8 z[3];", Some(3)),
            (".global .u8 much[n];", None),
            (".global .u8 much[];", None),
            (".global .u8 much[2*3];", None),
            (".global .u8 much[18446744073709551615][2];", None),
            (".global .unknown8 x;", None),
            (".global .u8 unfinished[3]", None),
            (".global.align 8.b8 close[9];", Some(9)),
            ("here: there: .global .b8 behind[9];", Some(9)),
            (".visible .func f(.param .u64 .ptr .global .align 4 p);", Some(0)),
            (".param .u64 .ptr .global .align 4 p; .global .b8 x;", Some(1)),
            (".section .debug_str { .b8 103,108,0 }", Some(0)),
        ] {
            assert_eq!(bytes(&format!("{HEAD}{declared}\n")), expected, "{declared}");
        }
    }

    #[test]
    fn variables_have_names_and_may_have_addresses() {
        let text = format!(
            "{HEAD}.global .u8 a[0x10], b[2][3], c = 7;\n.extern .global .u32 other;\n.const .align 4 .f32 $table[2] = {{0f00000000, \
             0f3F800000}};\n.global .u64 places[2] = {{a+1, 0xFF00(b)}}, more;"
        );
        let mut found = Vec::new();
        let read =
            each(&text, |variable| found.push((variable.name, variable.bytes, variable.has_addresses)));
        assert_eq!(read, Some(()));
        let expected =
            [("a", 16, false), ("b", 6, false), ("c", 1, false), ("$table", 8, false), ("places", 16, true)];
        assert_eq!(found[..5], expected);
        assert_eq!(found[5..], [("more", 8, false)]);
    }

    #[test]
    fn strings_hide_no_variable() {
        let variable = ".global .b8 big[1073741824];";
        for (text, expected) in [
            (format!(".pragma \"/*\"; {variable} .pragma \"*/\";"), Some(1 << 30)),
            (format!(".pragma \"//\"; {variable}"), Some(1 << 30)),
            (format!(".file 1 \"a=b\"\n{variable}"), Some(1 << 30)),
            (format!(".file 1 \"x .func y\"\n{variable}"), Some(1 << 30)),
            (format!(".file 1 \";\" .file 2 \"{{(\"\n{variable}"), Some(1 << 30)),
            (format!(".pragma \"{variable}\";"), Some(0)),
            // A quotation mark in the string, or its end?
            (format!(".pragma \"x\\\"; {variable} .pragma \"\";"), None),
            (format!("#define X {variable}\nX"), None),
            (".global .b64 a<1000000>;".to_owned(), None),
            (".global .b64 a, b<9>;".to_owned(), None),
            (format!(".visible .func f(.param .b64 p; {variable}"), None),
            (format!(".func f (.param .b64 p) {{ call (r), f, (p); }} {variable}"), Some(1 << 30)),
        ] {
            assert_eq!(bytes(&format!("{HEAD}{text}\n")), expected, "{text}");
        }
    }

    #[test]
    fn functions_have_none_and_hide_none() {
        let text = ".version 8.0\n.visible .entry f(.param .u64 p)\n{\n.reg .b64 %rd<3>;\n\
                    .local .align 4 .b8 stack[64];\nld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1];\n\
                    .global .u8 inside[5];\nret;\n}\n.global .u8 behind[7];";
        assert_eq!(bytes(text), Some(12));
    }
}
