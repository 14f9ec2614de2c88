// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parser for a file of rows.
//!
//! A line is empty, a comment (`#` at its start, or after two blanks), a property of the library, or a function:
//!
//! ```text
//! soname libcublas.so.13 libcublas.so.12
//! needs libcublasLt.so.13
//! part libcudnn_ops.so.9
//! status success=0 not_initialized=1 …
//! handle Handle
//! handle Plan i32
//! handle Descr of cusparse.MatDescr
//! handle Comm late
//! handle Handle struct 512
//! 85 writes cublasSscal_v2(handle: Handle, n: i32, alpha: scalar f32, x: ptr, incx: i32)
//! 28 none cublasGetStatusName(status: i32) -> text
//! 12 sets(cublasGetMathMode) cublasSetMathMode(handle: Handle, mode: i32) sets
//! 610 none cublasXtCreate refuse "several GPUs behind one handle"
//! 33 writes cublasSetVector custom
//! 20 writes curandGenerate@Host(generator: HostGenerator, outputPtr: out u32[num], num: u64)
//! ```
//!
//! A row begins with the function's number on the wire, which it keeps for ever, and with what a call does to the session's
//! state: `creates`, `ends`, `sets(GETTER)`, `sets("why there is no getter")`, `writes` or `none` ([`crate::Effect`]).
//!
//! The functions behind a `part` are in that file, too, up to the next part.
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
//! | `scratch[E]` | host memory of `E` bytes that only the library uses; the address may be null |
//! | `scratch P[E]` | the same, but with the contents that the last call with the handle `P` left |
//! | `scratch by(FUNCTION)` | as `scratch[E]`, with the length that the earlier function returns as its last number for the parameters of these names |
//! | `scratch[E] by(FUNCTION)` | the same, but `E` bytes long, which must not be fewer |
//! | `malloc T[E]`, `malloc T[E] of P` | a place for the address of host memory that the program frees, of at most `E` elements; the `out` number `P` is their number |
//! | `in T[E] each[B]` | the address of `B` addresses of host memory with `E` elements |
//! | `note P.NAME` | no parameter of C: the number that is remembered of the handle `P` under that name |
//! | `asked F(P).R`, `asked F(P).R[N]` | no parameter of C: the number that the function `F` writes for the handle `P`, as its result `R` or as an element of it |
//! | `sum P` | no parameter of C: the sum of the numbers in the array `P`, none of which is negative |
//! | `in T[E] room[E]` | as `in T[E]`, where the library may read more elements: the worker has memory for as many, with 0 in those of no argument |
//! | `value bytes N` | a structure by value, of more than 16 bytes |
//! | `table N` | a place for the address of the library's own host memory of `N` bytes, which never changes |
//! | `graph` | a `cudaGraph_t` |
//! | `described KIND`, `described? KIND` | the address of a descriptor ([`crate::attributes`]) |
//! | `alpha P`, `beta P` | a scalar whose place and type the descriptor `P` contains |
//! | `string`, `scaling` | a C string; cuDNN's factors |
//!
//! A rule that the worker checks may follow the elements of an array of `i32` in host memory, because libraries use
//! such numbers as indices. The rules are `rising(E)` and `below(E)`, either with a matrix descriptor as in
//! `below(E,descrA)`, and `permutation`. After an array of `i64` the rule is `metis` ([`crate::Check`]).
//!
//! A `c64` by value becomes two `f64` parameters, as C passes it. A handle in `out` memory is one that the program
//! already has.
//!
//! An element `T` is a number, `bytes N`, `sized N null(M,M)` (a structure with its length at its start and addresses
//! at `M`), `ptr`, a handle, `type(P)`, `attribute(P,Q)` or `compute(P,Q)`. An `E` consists of numbers, parameters,
//! `+ - * ( )`, `max(a,b)` and `min(a,b)`. The parameters may be followed by `-> string`, `-> i32` or another number,
//! `-> void`, and by the facts `wait`, `pure`, `pointer_mode`, `stream_of`, `sets`, `resets(FUNCTION)`,
//! `gets(FUNCTION)`, `birth(P)`, `on_device`, `wait_unless(NUMBER)`, `makes`, `finds(P)`, `lends(P)`, `links_code`,
//! `uncaptured` ([`crate::Facts`]). A function that a fact refers to is listed before it.
//!
//! `notes(P.NAME=E,…)` stores numbers for the handle `P`. `needs(P.NAME=E,…)` refuses a call if the stored number
//! differs or is missing. `forgets(P.NAME,…)` removes numbers ([`crate::Notes`]). All are written without blanks. A
//! name is one of the handle's kind. `keeps_pattern(P)` stores the matrix of a call, and `needs_pattern(P)` refuses a
//! call with another one.

mod facts;
mod kinds;
mod roles;
mod text;

use crate::attributes;
use crate::row::MAX_NUMBER;
use crate::{
    Answer, Body, Call, Effect, Function, Getter, HandleKind, Kind, Library, Number, Parameter, Part,
    Statuses,
};
use facts::is_of_notes;
use kinds::Kinds;
use roles::roles;
use text::{closing, count, is_name, is_name_or_form, number, split};

/// A line that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Line number, from 1.
    pub line: usize,
    /// A description of the error.
    pub what: String,
}

/// The maximum number of parameters of a function.
pub const MAX_PARAMETERS: usize = 40;
/// The maximum number of parameters in vector registers. Further ones would be interleaved with integers on the stack.
const MAX_FLOATS: usize = 8;

/// Parses the rows of a library, and the attributes of its descriptors.
pub fn library(name: &str, text: &str, attributes: &str) -> Result<Library, Error> {
    let descriptors = attributes::parse(attributes).map_err(|what| Error { line: 0, what })?;
    let mut library = Library {
        name: name.to_owned(),
        sonames: Vec::new(),
        parts: Vec::new(),
        needs: Vec::new(),
        statuses: Statuses::default(),
        handles: Vec::new(),
        descriptors,
        functions: Vec::new(),
        numbered: Vec::new(),
        digest: digest(text) ^ digest(attributes),
    };
    for (number, line) in rows(text) {
        read(&mut library, line).map_err(|what| Error { line: number + 1, what })?;
        if let Some(part) = library.parts.last_mut() {
            part.functions.end = library.functions.len();
        }
    }
    Ok(library)
}

/// Returns the lines of a text that say something, without comments, each with its position.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split("  #").next().unwrap_or_default().trim());
    lines.enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Returns the FNV-1a digest with which guest and host compare rows: of their words, so comments and spaces do not count. It
/// detects different releases; it is not a security check.
fn digest(text: &str) -> u64 {
    let words = rows(text).flat_map(|(_, line)| line.split_whitespace().chain(["\n"]));
    words
        .flat_map(|word| word.bytes().chain([b' ']))
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn read(library: &mut Library, line: &str) -> Result<(), String> {
    let (number, effect, line) = stated(line, library.functions.len() as u32)?;
    let add = |library: &mut Library, name: &str, body: Body| {
        let place = number as usize;
        if place >= library.numbered.len() {
            library.numbered.resize(place + 1, None);
        }
        let other = library.numbered[place].replace(library.functions.len());
        library.functions.push(Function { name: name.to_owned(), number, effect: effect.clone(), body });
        other.map_or(Ok(()), |_| Err(format!("{number} is the number of another function")))
    };
    if let Some((name, rest)) = line.split_once('(').filter(|(name, _)| is_name_or_form(name)) {
        let call = call(library, rest)?;
        let first = call.parameters.iter().find_map(|parameter| match parameter.kind {
            Kind::Handle { kind, .. } => Some(kind),
            _ => None,
        });
        if let Some(kind) = first {
            library.handles[kind].works |= call.facts.stream_of || call.roles.stream.is_some();
        }
        return add(library, name, Body::Forward(Box::new(call)));
    }
    let (word, rest) = line.split_once(' ').ok_or("a line of one word")?;
    let rest = rest.trim();
    match word {
        "library" if rest == library.name => {}
        "library" => return Err(format!("the file is of `{}`", library.name)),
        "soname" => library.sonames = rest.split_whitespace().map(str::to_owned).collect(),
        "part" => {
            let here = library.functions.len();
            library.parts.push(Part { soname: rest.to_owned(), functions: here..here });
        }
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
            add(library, name, body)?;
        }
        _ => return Err(format!("`{word}` is no name")),
    }
    Ok(())
}

/// Splits the number and the effect off a row; `next` is the number of a row that states none.
fn stated(line: &str, next: u32) -> Result<(u32, Option<Effect>, &str), String> {
    let Some((number, rest)) =
        line.split_once(' ').filter(|(word, _)| word.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return Ok((next, None, line));
    };
    let number = number.parse().ok().filter(|number| *number < MAX_NUMBER);
    let number = number.ok_or("a function's number is too large")?;
    if let Some((getter, row)) = rest.strip_prefix("sets(").and_then(|rest| rest.split_once(") ")) {
        let getter = match getter.strip_prefix('"').and_then(|reason| reason.strip_suffix('"')) {
            Some(reason) => Getter::None(reason.to_owned()),
            None => Getter::Function(getter.to_owned()),
        };
        return Ok((number, Some(Effect::Sets(getter)), row));
    }
    let (word, row) = rest.split_once(' ').ok_or("a number without a row")?;
    let effect = match word {
        "creates" => Effect::Creates,
        "ends" => Effect::Ends,
        "writes" => Effect::Writes,
        "none" => Effect::Nothing,
        _ => return Err(format!("`{word}` is no effect on the state")),
    };
    Ok((number, Some(effect), row))
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
            // The C calling convention passes its two halves as if they were two numbers (System V ABI for x86-64,
            // 3.2.3).
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
        let bytes = kind.fixed_bytes();
        Ok::<_, String>(Parameter { name: (*name).to_owned(), kind, bytes })
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
    let notes = facts::notes(&mut library.handles, &pairs, &notes)?;
    let facts = facts::facts(&library.functions, &names, &facts)?;
    if facts.birth.is_some() {
        for parameter in &parameters {
            if let Kind::New(kind) = parameter.kind {
                library.handles[kind].has_birth = true;
            }
        }
    }
    let roles = roles(&parameters, answer, &facts, &notes);
    Ok(Call { parameters, answer, facts, notes, roles })
}

#[cfg(test)]
#[path = "parse_test.rs"]
mod tests;
