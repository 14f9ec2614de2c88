// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reads a file of rows.
//!
//! A line is empty, a comment (`#` at its start, or after two blanks), a property of the library, or a function:
//!
//! ```text
//! soname libcublas.so.13 libcublas.so.12
//! needs libcublasLt.so.13
//! status success=0 not_initialized=1 …
//! handle Handle
//! handle Plan i32
//! handle Descr of cusparse.MatDescr
//! handle Comm late
//! handle Handle struct 512
//! cublasSscal_v2(handle: Handle, n: i32, alpha: scalar f32, x: ptr, incx: i32)
//! cublasGetStatusName(status: i32) -> text
//! cublasXtCreate refuse "several GPUs behind one handle"
//! cublasSetVector custom
//! curandGenerate@Host(generator: HostGenerator, outputPtr: out u32[num], num: u64)
//! ```
//!
//! A row with `@` is a further form of the function in front of it, which treats another kind of handle differently. The guest's
//! function is written by hand and chooses the row.
//!
//! Kinds of parameters:
//!
//! | written | means |
//! | --- | --- |
//! | `i8` … `u64`, `f32`, `f64`, `c32`, `c64` | a number by value; enums are `i32`, `size_t` is `u64` |
//! | `ptr` | an address that only the GPU follows |
//! | `stream`, `out stream`, `in stream` | a `cudaStream_t`; a place for that of the handle; the address of one, or null |
//! | `Name`, `Name?`, `new Name`, `end Name` | a handle; one that may be null; a place for a new one; one that ends |
//! | `in T`, `out T`, `inout T`, `in T[E]`, `in? T` | host memory with one or `E` elements; with `?` the address may be null |
//! | `scalar T`, `scalar out T`, `scalar inout T[E]` | memory of the host or the device, by the handle's pointer mode |
//! | `placed(P) N` | `N` bytes that the library reads, in host memory unless the parameter `P` is 0 |
//! | `scratch[E]` | host memory of `E` bytes that nobody but the library looks at; the address may be null |
//! | `scratch P[E]` | the same, but what the last call with the handle `P` has left is there |
//! | `scratch by(FUNCTION)` | the same, as long as the function before answers for the parameters of these names |
//! | `malloc T[E]`, `malloc T[E] of P` | a place for the address of host memory that the program frees, of at most `E` elements; the `out` number `P` is their number |
//! | `in T[E] each[B]` | the address of `B` addresses of host memory with `E` elements |
//! | `note P.NAME` | no parameter of C: what is remembered of the handle `P` under that name |
//! | `value bytes N` | a structure by value, of more than 16 bytes |
//! | `table N` | a place for the address of the library's own host memory of `N` bytes, which never changes |
//! | `graph` | a `cudaGraph_t` |
//! | `described KIND`, `described? KIND` | the address of a descriptor ([`crate::attributes`]) |
//! | `alpha P`, `beta P` | a scalar whose place and type the descriptor `P` tells |
//! | `string`, `scaling` | a C string; cuDNN's factors |
//!
//! Behind the elements of an array of `i32` in host memory may stand a rule that the worker checks, because libraries follow such
//! numbers: `rising(E)`, `below(E)`, either with a matrix descriptor as in `below(E,descrA)`, and `permutation`; behind one of `i64`
//! `metis` ([`crate::Check`]).
//!
//! A `c64` by value becomes two parameters `f64`, which is how C passes it. A handle in `out` memory is one that the program has.
//!
//! An element `T` is a number, `bytes N`, `sized N null(M,M)` (a structure with its length at its start and addresses at `M`), `ptr`,
//! a handle, `type(P)`, `attribute(P)` or `compute(P,Q)`. An `E` is made of numbers, parameters,
//! `+ - * ( )`, `max(a,b)` and `min(a,b)`. After the parameters may stand `-> string`, `-> i32` or another number, `-> void`,
//! and the facts `wait`, `pure`, `pointer_mode`, `stream_of`, `sets`, `resets(FUNCTION)`, `gets(FUNCTION)`, `birth(P)`, `on_device`,
//! `wait_unless(NUMBER)`, `makes`, `finds(P)` ([`crate::Facts`]). A function that a fact names stands before it.
//!
//! `notes(P.NAME=E,…)` remembers numbers of the handle `P`, `needs(P.NAME=E,…)` refuses a call if something else was remembered, or
//! nothing, and `forgets(P.NAME,…)` ends what was ([`crate::Notes`]). These have no blanks. A name is one of the handle's kind.
//! `keeps_pattern(P)` remembers the matrix of a call, and `needs_pattern(P)` refuses a call with another one.

use crate::attributes::{self, Descriptor};
use crate::expression::Expression;
use crate::{
    Answer, Body, Call, Check, Direction, Element, Facts, Function, HandleKind, Host, Kind, Library, Note,
    Notes, Number, Parameter, Scratch, ScratchBytes, Statuses,
};

/// A line that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Its number, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// Most parameters of a function.
pub const MAX_PARAMETERS: usize = 40;
/// Most of them that are passed in vector registers; further ones would mix with integers on the stack.
const MAX_FLOATS: usize = 8;

/// Reads the rows of a library, and the attributes of its descriptors.
pub fn library(name: &str, text: &str, attributes: &str) -> Result<Library, Error> {
    let descriptors = attributes::parse(attributes).map_err(|what| Error { line: 0, what })?;
    let mut library = Library {
        name: name.to_owned(),
        sonames: Vec::new(),
        needs: Vec::new(),
        statuses: Statuses::default(),
        handles: Vec::new(),
        descriptors,
        functions: Vec::new(),
        digest: digest(text) ^ digest(attributes),
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split("  #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        read(&mut library, line).map_err(|what| Error { line: number + 1, what })?;
    }
    Ok(library)
}

/// FNV-1a: guest and host compare rows by it, which is no defence, only a check for different releases.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn read(library: &mut Library, line: &str) -> Result<(), String> {
    if let Some((name, rest)) = line.split_once('(').filter(|(name, _)| is_name_or_form(name)) {
        let body = Body::Forward(call(library, rest)?);
        library.functions.push(Function { name: name.to_owned(), body });
        return Ok(());
    }
    let (word, rest) = line.split_once(' ').ok_or("a line of one word")?;
    let rest = rest.trim();
    match word {
        "library" if rest == library.name => {}
        "library" => return Err(format!("the file is of `{}`", library.name)),
        "soname" => library.sonames = rest.split_whitespace().map(str::to_owned).collect(),
        "needs" => library.needs = rest.split_whitespace().map(str::to_owned).collect(),
        "handle" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let mut kind = HandleKind { name: words[0].to_owned(), ..HandleKind::default() };
            match words[1..] {
                [] => {}
                ["i32"] => kind.is_int = true,
                ["late"] => kind.is_late = true,
                ["struct", bytes] => kind.structure = count(bytes)? as usize,
                ["or", library] => kind.or = Some(library.to_owned()),
                ["of", other] => {
                    let (library, name) = other.split_once('.').ok_or("`of` needs LIBRARY.KIND")?;
                    kind.of = Some((library.to_owned(), name.to_owned()));
                }
                _ => return Err(format!("`{rest}` is no kind of handle")),
            }
            library.handles.push(kind);
        }
        "status" => library.statuses = statuses(rest)?,
        name if is_name(name) => {
            let body = match rest.split_once(' ') {
                None if rest == "custom" => Body::Custom,
                Some(("refuse", reason)) => Body::Refuse(reason.trim().trim_matches('"').to_owned()),
                _ => return Err(format!("`{rest}` is neither parameters nor `custom` nor `refuse`")),
            };
            library.functions.push(Function { name: name.to_owned(), body });
        }
        _ => return Err(format!("`{word}` is no name")),
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_name_or_form(text: &str) -> bool {
    text.split_once('@').map_or_else(|| is_name(text), |(name, form)| is_name(name) && is_name(form))
}

fn statuses(text: &str) -> Result<Statuses, String> {
    let mut statuses = Statuses::default();
    for pair in text.split_whitespace() {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not name=number"))?;
        let place = match name {
            "success" => &mut statuses.success,
            "not_initialized" => &mut statuses.not_initialized,
            "alloc_failed" => &mut statuses.alloc_failed,
            "invalid_value" => &mut statuses.invalid_value,
            "not_supported" => &mut statuses.not_supported,
            "internal_error" => &mut statuses.internal_error,
            "pending" => statuses.pending.insert(0),
            _ => return Err(format!("there is no status `{name}`")),
        };
        *place = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    }
    Ok(statuses)
}

/// Parses the rest of a function after its `(`.
fn call(library: &mut Library, text: &str) -> Result<Call, String> {
    let end = closing(text).ok_or("the `)` is missing")?;
    let (inside, after) = (&text[..end], text[end + 1..].trim());
    let pairs = split(inside).into_iter().map(|text| {
        text.split_once(':')
            .map(|(name, kind)| (name.trim(), kind.trim()))
            .ok_or_else(|| format!("`{text}` has no kind"))
    });
    let mut parts = Vec::new();
    for pair in pairs {
        match pair? {
            // The C calling convention passes its two halves as if they were two numbers (System V ABI for x86-64, 3.2.3).
            (name, "c64") => parts.extend([(name, "f64"); 2]),
            pair => parts.push(pair),
        }
    }
    let pairs = parts;
    let names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
    let kinds = Kinds {
        handles: &library.handles,
        descriptors: &library.descriptors,
        functions: &library.functions,
        names: &names,
        pairs: &pairs,
    };
    let parameters = pairs.iter().map(|(name, text)| {
        let kind = kinds.kind(text).map_err(|what| format!("{name}: {what}"))?;
        Ok::<_, String>(Parameter { name: (*name).to_owned(), kind })
    });
    let parameters: Vec<Parameter> = parameters.collect::<Result<_, _>>()?;
    let floats = parameters.iter().filter(|parameter| match parameter.kind {
        Kind::Value(number) => number.is_float(),
        _ => false,
    });
    if parameters.len() > MAX_PARAMETERS || floats.count() > MAX_FLOATS {
        return Err("too many parameters".into());
    }
    for (index, parameter) in parameters.iter().enumerate() {
        let count = parameters.get(index + 1).map(|next| &next.kind);
        if parameter.kind == Kind::InStream && count != Some(&Kind::Value(Number::I32)) {
            return Err(format!("{}: the number of streams is to follow, an i32", parameter.name));
        }
    }
    let (answer, facts) = match after.strip_prefix("->") {
        None => (Answer::Status, after),
        Some(rest) => {
            let (word, facts) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            let answer = match word {
                "string" => Answer::Text,
                "void" => Answer::Nothing,
                _ => Answer::Number(number(word).ok_or_else(|| format!("nothing returns `{word}`"))?),
            };
            (answer, facts)
        }
    };
    let (notes, facts): (Vec<&str>, Vec<&str>) = facts.split_whitespace().partition(|word| is_of_notes(word));
    let notes = self::notes(&mut library.handles, &pairs, &notes)?;
    let facts = self::facts(&library.functions, &names, &facts)?;
    if facts.birth.is_some() {
        for parameter in &parameters {
            if let Kind::New(kind) = parameter.kind {
                library.handles[kind].has_birth = true;
            }
        }
    }
    Ok(Call { parameters, answer, facts, notes })
}

fn is_of_notes(word: &str) -> bool {
    ["notes(", "needs(", "forgets(", "keeps_pattern(", "needs_pattern("]
        .iter()
        .any(|start| word.starts_with(start))
}

/// Reads the words about notes. Those that a call changes get their numbers.
fn notes(handles: &mut [HandleKind], pairs: &[(&str, &str)], words: &[&str]) -> Result<Notes, String> {
    let mut notes = Notes::default();
    let index = |name: &str| pairs.iter().position(|(known, _)| *known == name);
    for word in words {
        let (fact, rest) = word.split_once('(').unwrap_or_default();
        let inside = rest.strip_suffix(')').ok_or("a `)` is missing")?;
        for item in split(inside) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let pattern = match fact {
                "keeps_pattern" => Some(&mut notes.keeps_pattern),
                "needs_pattern" => Some(&mut notes.needs_pattern),
                _ => None,
            };
            if let Some(pattern) = pattern {
                let handle =
                    index(name).filter(|index| handles.iter().any(|known| known.name == pairs[*index].1));
                *pattern = Some(handle.ok_or_else(|| format!("`{name}` is no handle"))?);
                continue;
            }
            if fact != "needs" {
                let (handle, note) = name.split_once('.').ok_or_else(|| format!("`{name}` is no note"))?;
                let kind = pairs.iter().find(|(known, _)| *known == handle).map(|(_, kind)| *kind);
                let kind = handles.iter_mut().find(|known| Some(known.name.as_str()) == kind);
                let kind = kind.ok_or_else(|| format!("`{handle}` is no handle"))?;
                if !kind.notes.iter().any(|known| known == note) {
                    kind.notes.push(note.to_owned());
                }
            }
            let note = note(handles, pairs, name)?;
            match fact {
                "notes" => notes.takes.push((note, Expression::parse(value, &index)?)),
                "needs" => notes.needs.push((note, Expression::parse(value, &index)?)),
                _ => notes.forgets.push(note),
            }
        }
    }
    Ok(notes)
}

/// Reads `HANDLE.NAME`, given the names and kinds of parameters.
fn note(handles: &[HandleKind], pairs: &[(&str, &str)], text: &str) -> Result<Note, String> {
    let unknown = || format!("there is no note `{text}` before");
    let (parameter, name) = text.trim().split_once('.').ok_or_else(unknown)?;
    let handle = pairs.iter().position(|(known, _)| *known == parameter).ok_or_else(unknown)?;
    let kind = handles.iter().find(|known| known.name == pairs[handle].1).ok_or_else(unknown)?;
    let note = kind.notes.iter().position(|known| known == name).ok_or_else(unknown)?;
    Ok(Note { handle, note })
}

fn facts(functions: &[Function], names: &[&str], words: &[&str]) -> Result<Facts, String> {
    let mut facts = Facts::default();
    for &word in words {
        let (fact, argument) = match word.strip_suffix(')').and_then(|word| word.split_once('(')) {
            Some((fact, argument)) => (fact, Some(argument)),
            None => (word, None),
        };
        let function = |name: &str| {
            let found = functions.iter().position(|function| function.name == name);
            found.ok_or_else(|| format!("there is no function `{name}` before"))
        };
        let parameter = |name: &str| {
            let index = names.iter().position(|known| *known == name);
            index.ok_or_else(|| format!("there is no parameter `{name}`"))
        };
        match (fact, argument) {
            ("wait", None) => facts.wait = true,
            ("pure", None) => facts.pure = true,
            ("pointer_mode", None) => facts.pointer_mode = true,
            ("stream_of", None) => facts.stream_of = true,
            ("on_device", None) => facts.on_device = true,
            ("sets", None) => facts.sets = true,
            ("makes", None) => facts.makes = true,
            ("resets", Some(name)) => facts.resets = Some(function(name)?),
            ("gets", Some(name)) => facts.gets = Some(function(name)?),
            ("birth", Some(name)) => facts.birth = Some(parameter(name)?),
            ("finds", Some(name)) => facts.finds = Some(parameter(name)?),
            ("wait_unless", Some(number)) => {
                facts.wait_unless = Some(number.parse().map_err(|_| format!("`{number}` is no number"))?);
            }
            _ => return Err(format!("there is no fact `{word}`")),
        }
    }
    Ok(facts)
}

/// Returns the position of the parenthesis that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// At commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

fn number(text: &str) -> Option<Number> {
    Some(match text {
        "i8" => Number::I8,
        "u8" => Number::U8,
        "i16" => Number::I16,
        "u16" => Number::U16,
        "i32" => Number::I32,
        "u32" => Number::U32,
        "i64" => Number::I64,
        "u64" => Number::U64,
        "f32" => Number::F32,
        "f64" => Number::F64,
        "c32" => Number::C32,
        "c64" => Number::C64,
        _ => return None,
    })
}

fn count(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number"))
}

struct Kinds<'a> {
    handles: &'a [HandleKind],
    descriptors: &'a [Descriptor],
    functions: &'a [Function],
    names: &'a [&'a str],
    /// Names and kinds of the parameters.
    pairs: &'a [(&'a str, &'a str)],
}

impl Kinds<'_> {
    fn kind(&self, text: &str) -> Result<Kind, String> {
        if let Some(number) = number(text) {
            return Ok(Kind::Value(number));
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        Ok(match (word, rest) {
            ("ptr", "") => Kind::Pointer,
            ("stream", "") => Kind::Stream,
            ("out", "stream") => Kind::OutStream,
            ("in", "stream") => Kind::InStream,
            ("string", "") => Kind::Text,
            ("scaling", "") => Kind::Scaling,
            ("graph", "") => Kind::Graph,
            ("table", bytes) => Kind::Table(count(bytes)?),
            ("value", _) => Kind::Structure(count(rest.strip_prefix("bytes ").unwrap_or(rest))?),
            ("note", name) => Kind::Noted(note(self.handles, self.pairs, name)?),
            ("malloc", _) => self.allocated(rest)?,
            ("in", _) if rest.contains("] each[") => self.arrays(rest)?,
            _ if word == "scratch" || text.starts_with("scratch[") => Kind::Scratch(self.scratch(text)?),
            _ if text.starts_with("placed(") => {
                let (place, bytes) = text["placed(".len()..].split_once(')').ok_or("the `)` is missing")?;
                Kind::Placed { place: self.parameter(place)?, bytes: count(bytes.trim())? }
            }
            ("described", name) => Kind::Described { kind: self.descriptor(name)?, nullable: false },
            ("described?", name) => Kind::Described { kind: self.descriptor(name)?, nullable: true },
            ("alpha", name) => Kind::DescribedScalar { descriptor: self.parameter(name)?, is_beta: false },
            ("beta", name) => Kind::DescribedScalar { descriptor: self.parameter(name)?, is_beta: true },
            ("new", name) => Kind::New(self.handle(name)?),
            ("end", name) => Kind::End(self.handle(name)?),
            ("scalar", _) => {
                let (direction, element) = match rest.split_once(' ') {
                    Some(("out", element)) => (Direction::Out, element),
                    Some(("inout", element)) => (Direction::InOut, element),
                    _ => (Direction::In, rest),
                };
                let (element, count) = self.counted(element)?;
                Kind::Scalar { direction, element: self.element(element)?, count }
            }
            ("in" | "in?" | "out" | "out?" | "inout" | "inout?", _) => self.host(word, rest)?,
            _ => {
                let name = word.strip_suffix('?');
                Kind::Handle { kind: self.handle(name.unwrap_or(text))?, nullable: name.is_some() }
            }
        })
    }

    /// `scratch[E]`, `scratch P[E]` or `scratch by(FUNCTION)`.
    fn scratch(&self, text: &str) -> Result<Scratch, String> {
        let text = text["scratch".len()..].trim();
        if let Some(name) = text.strip_prefix("by(").and_then(|rest| rest.strip_suffix(')')) {
            let found = self.functions.iter().position(|function| function.name == name);
            let number = found.ok_or_else(|| format!("there is no function `{name}` before"))?;
            return match &self.functions[number].body {
                Body::Forward(call) if self.has_all_but_one(call) => {
                    Ok(Scratch { owner: None, bytes: ScratchBytes::Asked(number) })
                }
                _ => Err(format!("`{name}` has other parameters")),
            };
        }
        let (owner, size) = self.counted(text)?;
        let owner = if owner.is_empty() { None } else { Some(self.parameter(owner)?) };
        Ok(Scratch { owner, bytes: ScratchBytes::Counted(size.ok_or("`scratch` needs a size")?) })
    }

    /// Returns whether a call has parameters that are here, too, and then a place for a `size_t`.
    fn has_all_but_one(&self, call: &Call) -> bool {
        let Some((last, others)) = call.parameters.split_last() else { return false };
        let is_answer = matches!(
            &last.kind,
            Kind::Host(Host {
                direction: Direction::Out,
                element: Element::Number(Number::U64),
                count: None,
                ..
            })
        );
        is_answer && others.iter().all(|parameter| self.names.contains(&parameter.name.as_str()))
    }

    /// `T[E]` or `T[E] of P` behind `malloc`.
    fn allocated(&self, text: &str) -> Result<Kind, String> {
        let (text, count) = text.rsplit_once(" of ").map_or((text, None), |(text, name)| (text, Some(name)));
        let (element, most) = self.counted(text)?;
        let element = number(element).ok_or_else(|| format!("`{element}` is no number"))?;
        let count = count.map(|name| self.parameter(name)).transpose()?;
        Ok(Kind::Allocated { element, most: most.ok_or("`malloc` needs a size")?, count })
    }

    /// `T[E] each[B]` behind `in`.
    fn arrays(&self, text: &str) -> Result<Kind, String> {
        let (text, arrays) = text.split_once(" each").ok_or("`each` is missing")?;
        let (element, count) = self.counted(text)?;
        let element = number(element).ok_or_else(|| format!("`{element}` is no number"))?;
        let (Some(count), (_, Some(arrays))) = (count, self.counted(arrays)?) else {
            return Err("`each` needs two sizes".into());
        };
        Ok(Kind::Arrays { element, count, arrays })
    }

    fn host(&self, word: &str, text: &str) -> Result<Kind, String> {
        let direction = match word.trim_end_matches('?') {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => Direction::InOut,
        };
        let (text, rule) = match text.split_once("] ") {
            Some((front, rule)) => (&text[..=front.len()], Some(rule)),
            None => (text, None),
        };
        let (element, count) = self.counted(text)?;
        let element = self.element(element)?;
        let check = rule.map(|rule| self.check(rule)).transpose()?;
        let number = if check == Some(Check::Metis) { Number::I64 } else { Number::I32 };
        if check.is_some() && (direction == Direction::Out || element != Element::Number(number)) {
            return Err("rules are for numbers of 32 bits that the library reads".into());
        }
        if direction == Direction::InOut && matches!(element, Element::Handle(_)) {
            return Err("handles in host memory are `in` or `out`".into());
        }
        Ok(Kind::Host(Host { direction, nullable: word.ends_with('?'), element, count, check }))
    }

    /// A rule for the numbers of an array.
    fn check(&self, text: &str) -> Result<Check, String> {
        let (word, inside) = text.trim().split_once('(').unwrap_or((text.trim(), ""));
        let parts = split(inside.strip_suffix(')').unwrap_or_default());
        let base = parts.get(1).map(|name| self.parameter(name)).transpose()?;
        let value =
            || Expression::parse(parts.first().copied().unwrap_or_default(), &|name| self.index(name));
        Ok(match word {
            "rising" => Check::Rising { span: value()?, base },
            "below" => Check::Below { limit: value()?, base },
            "permutation" => Check::Permutation,
            "metis" => Check::Metis,
            _ => return Err(format!("there is no rule `{word}`")),
        })
    }

    /// `T[E]`: what stands before the bracket, and `E`.
    fn counted<'t>(&self, text: &'t str) -> Result<(&'t str, Option<Expression>), String> {
        let Some((element, count)) = text.split_once('[') else { return Ok((text.trim(), None)) };
        let count = count.strip_suffix(']').ok_or("the `]` is missing")?;
        Ok((element.trim(), Some(Expression::parse(count, &|name| self.index(name))?)))
    }

    fn element(&self, text: &str) -> Result<Element, String> {
        if let Some(number) = number(text) {
            return Ok(Element::Number(number));
        }
        if text == "ptr" {
            return Ok(Element::Pointer);
        }
        if let Some(bytes) = text.strip_prefix("bytes ") {
            return count(bytes).map(Element::Bytes);
        }
        if let Some((bytes, nulls)) = text.strip_prefix("sized ").and_then(|rest| rest.split_once(" null(")) {
            let (first, second) = nulls
                .strip_suffix(')')
                .and_then(|pair| pair.split_once(','))
                .ok_or("`null` needs two places")?;
            return Ok(Element::Sized { bytes: count(bytes)?, nulls: [count(first)?, count(second)?] });
        }
        let inside = |word: &str| text.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(name) = inside("type") {
            return Ok(Element::ByDataType(self.parameter(name)?));
        }
        if let Some(name) = inside("attribute") {
            return Ok(Element::ByAttribute(self.parameter(name)?));
        }
        if let Some((compute, data)) = inside("compute").and_then(|names| names.split_once(',')) {
            return Ok(Element::ByCompute { compute: self.parameter(compute)?, data: self.parameter(data)? });
        }
        self.handle(text).map(Element::Handle)
    }

    fn handle(&self, name: &str) -> Result<usize, String> {
        self.handles
            .iter()
            .position(|known| known.name == name)
            .ok_or_else(|| format!("there is no kind `{name}`"))
    }

    fn descriptor(&self, name: &str) -> Result<usize, String> {
        let found = self.descriptors.iter().position(|known| known.name == name);
        found.ok_or_else(|| format!("there is no descriptor `{name}`"))
    }

    fn parameter(&self, name: &str) -> Result<usize, String> {
        self.index(name.trim()).ok_or_else(|| format!("there is no parameter `{name}`"))
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "library x\nsoname libx.so.1\nstatus success=0 not_supported=15\nhandle Handle\n";

    fn one(row: &str) -> Result<Function, Error> {
        Ok(library("x", &format!("{HEAD}{row}"), "")?.functions.remove(0))
    }

    #[test]
    fn a_row_is_read() {
        let function =
            one("gemm(h: Handle, n: i32, a: scalar compute(t,d), A: ptr, v: in? i32[n*2], t: i32, d: i32) wait  # why")
                .expect("valid");
        let Body::Forward(call) = function.body else { panic!("{function:?}") };
        assert_eq!(function.name, "gemm");
        assert!(call.facts.wait && call.answers());
        assert_eq!(call.parameters[0].kind, Kind::Handle { kind: 0, nullable: false });
        let element = Element::ByCompute { compute: 5, data: 6 };
        assert_eq!(call.parameters[2].kind, Kind::Scalar { direction: Direction::In, element, count: None });
        let Kind::Host(host) = &call.parameters[4].kind else { panic!("{:?}", call.parameters[4]) };
        assert!(host.nullable && host.count.is_some());
    }

    #[test]
    fn answers_and_bodies_are_read() {
        let Body::Forward(call) = one("name(status: i32) -> string pure").unwrap().body else { panic!() };
        assert!(call.answer == Answer::Text && call.facts.pure);
        assert!(matches!(one("f custom").unwrap().body, Body::Custom));
        let Body::Refuse(reason) = one("f refuse \"for reasons\"").unwrap().body else { panic!() };
        assert_eq!(reason, "for reasons");
    }

    #[test]
    fn a_function_has_further_forms() {
        let function = one("fill@Host(h: Handle, n: i32)").expect("valid");
        assert!(function.is_form() && function.symbol() == "fill", "{function:?}");
        let function = one("fill(h: Handle)").expect("valid");
        assert!(!function.is_form() && function.symbol() == "fill", "{function:?}");
        assert!(one("fill@(h: Handle)").is_err() && one("@Host(h: Handle)").is_err());
    }

    #[test]
    fn kinds_of_memory_are_read() {
        let row = "f(h: Handle, id: value bytes 128, w: scratch[2*n], n: u64, s: placed(n) 8, t: table 64, g: graph, c: in? sized 80 null(32,48))";
        let Body::Forward(call) = one(row).expect("valid").body else { panic!() };
        let kinds: Vec<Kind> = call.parameters.into_iter().map(|parameter| parameter.kind).collect();
        assert_eq!(kinds[1], Kind::Structure(128));
        assert!(matches!(kinds[2], Kind::Scratch(_)));
        assert_eq!(kinds[4..7], [Kind::Placed { place: 3, bytes: 8 }, Kind::Table(64), Kind::Graph]);
        let Kind::Host(host) = &kinds[7] else { panic!("{kinds:?}") };
        assert_eq!(host.element, Element::Sized { bytes: 80, nulls: [32, 48] });
    }

    #[test]
    fn a_complex_double_is_two_doubles() {
        let Body::Forward(call) = one("f(h: Handle, tol: c64, n: i32)").expect("valid").body else {
            panic!()
        };
        let kinds: Vec<Kind> = call.parameters.into_iter().map(|parameter| parameter.kind).collect();
        assert_eq!(kinds[1..3], [Kind::Value(Number::F64), Kind::Value(Number::F64)]);
        assert!(one("f(a: c64, b: c64, c: c64, d: c64, e: f32)").is_err(), "nine vector registers");
    }

    #[test]
    fn handles_of_other_libraries_and_facts_are_read() {
        let text = "handle M of other.MatDescr\nhandle C late\nset(c: C, n: i32) sets\nget(c: C, n: out i32) gets(set)\n\
                    make(kind: i32, c: new C) birth(kind)\nend(c: C) wait_unless(16)";
        let library = library("x", &format!("{HEAD}{text}"), "").expect("valid");
        assert_eq!(library.handles[1].of, Some(("other".into(), "MatDescr".into())));
        assert!(library.handles[2].is_late && library.handles[2].has_birth);
        let facts = |index: usize| match &library.functions[index].body {
            Body::Forward(call) => call.facts,
            _ => panic!("{library:?}"),
        };
        assert!(facts(0).sets);
        assert_eq!((facts(1).gets, facts(2).birth, facts(3).wait_unless), (Some(0), Some(0), Some(16)));
    }

    #[test]
    fn structures_of_the_program_are_read() {
        let text = "handle S struct 512\nmake(s: S, d: described d) makes\n\
                    search(s: S, d: described d, at: in stream, n: i32, found: out u8[64]) finds(found)";
        let library = library("x", &format!("{HEAD}{text}"), "object d 64\nd 0 N 4 given\n").expect("valid");
        assert_eq!(library.handles[1].structure, 512);
        let call = |index: usize| match &library.functions[index].body {
            Body::Forward(call) => call,
            _ => panic!("{library:?}"),
        };
        assert!(call(0).facts.makes && !call(1).facts.makes);
        assert_eq!((call(1).facts.finds, &call(1).parameters[2].kind), (Some(4), &Kind::InStream));
    }

    #[test]
    fn notes_are_read() {
        let text = "handle M of other.M\nhandle Info\nanalyse(h: Handle, n: i32, i: Info) notes(i.n=n) forgets(i.n)\n\
                    size(h: Handle, n: i32, bytes: out u64)\n\
                    solve(h: Handle, n: i32, b: in f64[n], i: Info, w: scratch i[8*m], m: note i.n) needs(i.n=n)\n\
                    extract(i: Info, z: out i32, L: malloc i32[2*m] of z, p: malloc f64[m+1], m: note i.n)\n\
                    permute(h: Handle, n: i32, d: M, r: inout i32[n+1] rising(n,d), c: in i32[n] below(max(n,1)), \
                    p: in i32[n] permutation, w: scratch by(size), a: in f64[n] each[n])";
        let library = library("x", &format!("{HEAD}{text}"), "").expect("valid");
        assert_eq!(library.handles[2].notes, ["n"]);
        let call = |index: usize| match &library.functions[index].body {
            Body::Forward(call) => call,
            _ => panic!("{library:?}"),
        };
        let note = Note { handle: 2, note: 0 };
        assert_eq!(call(0).notes.takes, [(note, Expression::Parameter(1))]);
        assert!(call(0).answers() && !call(2).answers(), "calls that change notes are waited for");
        assert_eq!(call(0).notes.changed().collect::<Vec<_>>(), [note; 2]);
        assert_eq!(call(2).notes.needs, [(Note { handle: 3, note: 0 }, Expression::Parameter(1))]);
        let Kind::Scratch(Scratch { owner: Some(3), bytes: ScratchBytes::Counted(_) }) =
            &call(2).parameters[4].kind
        else {
            panic!("{:?}", call(2))
        };
        assert_eq!(call(2).parameters[5].kind, Kind::Noted(Note { handle: 3, note: 0 }));
        let Kind::Allocated { count: Some(1), .. } = &call(3).parameters[2].kind else { panic!() };
        let Kind::Allocated { count: None, .. } = &call(3).parameters[3].kind else { panic!() };
        let checks: Vec<Option<Check>> = call(4)
            .parameters
            .iter()
            .filter_map(|parameter| match &parameter.kind {
                Kind::Host(host) => Some(host.check.clone()),
                _ => None,
            })
            .collect();
        let [Some(Check::Rising { base: Some(2), .. }), Some(Check::Below { base: None, .. }), last] =
            &checks[..]
        else {
            panic!("{checks:?}")
        };
        assert_eq!(last, &Some(Check::Permutation));
        let asked = Scratch { owner: None, bytes: ScratchBytes::Asked(1) };
        assert_eq!(call(4).parameters[6].kind, Kind::Scratch(asked));
        assert!(matches!(call(4).parameters[7].kind, Kind::Arrays { .. }));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (row, what) in [
            ("f(h: Handle, n: note h.n)", "n: there is no note `h.n` before"),
            ("f(h: Handle, n: i32) needs(h.n=n)", "there is no note `h.n` before"),
            ("f(n: i32) notes(n.x=n)", "`n` is no handle"),
            ("f(n: i32) keeps_pattern(n)", "`n` is no handle"),
            ("f(n: i32, w: scratch by(g))", "w: there is no function `g` before"),
            (
                "f(n: i32, p: out i32[n] permutation)",
                "p: rules are for numbers of 32 bits that the library reads",
            ),
            ("f(n: i32, p: in i32[n] sorted)", "p: there is no rule `sorted`"),
            ("f(n: i32, p: malloc i32[n] of m)", "p: there is no parameter `m`"),
            ("f(h: Handel)", "h: there is no kind `Handel`"),
            ("f(s: in stream, n: u64)", "s: the number of streams is to follow, an i32"),
            ("f(h: Handle", "the `)` is missing"),
            ("f(n: in i32[m])", "n: there is no parameter `m`"),
            ("f(h: inout Handle)", "h: handles in host memory are `in` or `out`"),
            ("f(h: Handle) gets(g)", "there is no function `g` before"),
            ("f(h: Handle) birth(t)", "there is no parameter `t`"),
            ("f(s: in sized 80 null(8))", "s: `null` needs two places"),
            ("f(s: scratch[n])", "s: there is no parameter `n`"),
            ("f(h: Handle) fast", "there is no fact `fast`"),
            ("f nothing", "`nothing` is neither parameters nor `custom` nor `refuse`"),
        ] {
            assert_eq!(one(row).unwrap_err(), Error { line: 5, what: what.to_owned() }, "{row}");
        }
    }
}
