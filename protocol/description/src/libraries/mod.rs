// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The rows of NVIDIA's libraries, in the language of [`crate::rows`]. A file has a library:
//!
//! ```text
//! library cublas 0
//! soname libcublas.so.13 libcublas.so.12
//! needs libcublasLt.so.13
//! part libcudnn_ops.so.9
//! status success=0 not_initialized=1 …
//! handle Handle
//! handle Plan i32
//! handle Descr of cusparse.MatDescr
//! handle Comm late
//! handle Handle struct 512
//! 85 forward cublasSscal_v2(handle: Handle, n: i32, alpha: scalar f32, x: ptr, incx: i32) [writes];
//! 28 forward cublasGetStatusName(status: i32) -> string [none pure];
//! 12 forward cublasSetMathMode(handle: Handle, mode: i32) [sets(cublasGetMathMode) sets];
//! 610 refuse cublasXtCreate [none] "several GPUs behind one handle";
//! 33 custom cublasSetVector [writes];
//! 20 forward curandGenerate@Host(generator: HostGenerator, outputPtr: out u32[num], num: u64) [writes];
//! ```
//!
//! Behind the library's name is its number on the wire. A row begins with the function's number on the wire; both are kept for
//! ever. Its kind is one of
//!
//! | kind | the exported function |
//! | --- | --- |
//! | `forward` | is generated, and sends the call to the worker |
//! | `wrap` | is written by hand (`guest-lib/vendor/src/custom`), and sends the call to the worker. With a clause `as fill(4, true)` the function is generated, and calls the function `fill` there with the positions of the row and of its forms, its arguments, and `4, true` |
//! | `custom` | is written by hand, and this row sends nothing |
//! | `refuse` | returns `not_supported`, for the reason behind the brackets |
//!
//! The first word in brackets states what a call does to the session's state: `creates`, `ends`, `sets(GETTER)`,
//! `sets("why there is no getter")`, `writes` or `none` ([`cuda_library_rows::Effect`]). The functions behind a `part` are in that
//! file, too, up to the next part.
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
//! | `described KIND`, `described? KIND` | the address of a descriptor ([`cuda_library_rows::attributes`]) |
//! | `alpha P`, `beta P` | a scalar whose place and type the descriptor `P` contains |
//! | `string`, `scaling` | a C string; cuDNN's factors |
//!
//! A rule that the worker checks may follow the elements of an array of `i32` in host memory, because libraries use
//! such numbers as indices. The rules are `rising(E)` and `below(E)`, either with a matrix descriptor as in
//! `below(E,descrA)`, and `permutation`. After an array of `i64` the rule is `metis` ([`cuda_library_rows::Check`]).
//!
//! A `c64` by value becomes two `f64` parameters, as C passes it. A handle in `out` memory is one that the program
//! already has.
//!
//! An element `T` is a number, `bytes N`, `sized N null(M,M)` (a structure with its length at its start and addresses
//! at `M`), `ptr`, a handle, `type(P)`, `attribute(P,Q)` or `compute(P,Q)`. An `E` consists of numbers, parameters,
//! `+ - * ( )`, `max(a,b)` and `min(a,b)`. The parameters may be followed by `-> string`, `-> i32` or another number, or
//! `-> void`. The facts in brackets are `wait`, `pure`, `pointer_mode`, `stream_of`, `sets`, `resets(FUNCTION)`,
//! `gets(FUNCTION)`, `birth(P)`, `on_device`, `wait_unless(NUMBER)`, `makes`, `finds(P)`, `lends(P)`, `links_code`,
//! `uncaptured` ([`cuda_library_rows::Facts`]). A function that a fact refers to is listed before it.
//!
//! `notes(P.NAME=E,…)` stores numbers for the handle `P`. `needs(P.NAME=E,…)` refuses a call if the stored number
//! differs or is missing. `forgets(P.NAME,…)` removes numbers ([`cuda_library_rows::Notes`]). All are written without blanks. A
//! name is one of the handle's kind. `keeps_pattern(P)` stores the matrix of a call, and `needs_pattern(P)` refuses a
//! call with another one.

pub mod attributes;
mod expression;
mod facts;
mod kinds;
mod roles;

use std::ops::Range;

use cuda_library_rows::attributes::Descriptor;
use cuda_library_rows::{
    Answer, Body, Call, Effect, Function, Getter, HandleKind, Kind, Library, MAX_FUNCTIONS, MAX_PARAMETERS,
    NO_FUNCTION, Number, Parameter, Part, Statuses,
};

pub use crate::rows::Error;
use crate::rows::{self, Item, Row, digest, is_name};
use crate::{kept, kept_text, slice};
use facts::is_of_notes;
use kinds::Kinds;
use roles::roles;

/// The maximum number of parameters in vector registers. Further ones would be interleaved with integers on the stack.
const MAX_FLOATS: usize = 8;

/// A library whose rows are being read.
#[derive(Default)]
struct Building {
    name: &'static str,
    number: u32,
    sonames: Vec<&'static str>,
    parts: Vec<(&'static str, Range<usize>)>,
    needs: Vec<&'static str>,
    statuses: Statuses,
    handles: Vec<HandleKind>,
    descriptors: Vec<Descriptor>,
    functions: Vec<Function>,
    exports: Vec<Export>,
    positions: Vec<u16>,
}

/// A library, and what only a generator wants to know of it.
#[derive(Debug)]
pub struct Description {
    /// The library.
    pub library: Library,
    /// The origin of each exported function.
    pub exports: Vec<Export>,
}

/// The origin of an exported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// It follows from the row.
    Row,
    /// It calls a function of the guest that is written by hand, with the positions of the row and of its forms, with the slots of
    /// its arguments, and with these further arguments.
    Calls {
        /// The name of the function.
        function: String,
        /// The further arguments, as Rust has them.
        arguments: String,
    },
    /// It is written by hand.
    ByHand,
}

/// Parses the rows of a library, and the attributes of its descriptors.
pub fn library(text: &str, attributes: &str) -> Result<Description, Error> {
    let descriptors = attributes::parse(attributes).map_err(|what| Error { line: 0, what })?;
    let mut building = Building { descriptors, ..Building::default() };
    for (line, item) in rows::read(text)? {
        let read = match item {
            Item::Directive(text) => directive(&mut building, &text),
            Item::Row(row) => function(&mut building, &row),
        };
        read.map_err(|what| Error { line, what })?;
        if let Some((_, functions)) = building.parts.last_mut() {
            functions.end = building.functions.len();
        }
    }
    let numbers = building.functions.iter().map(|function| function.number);
    if numbers.eq(0..building.functions.len() as u32) {
        building.positions.clear();
    }
    let parts = building.parts.into_iter().map(|(soname, functions)| Part { soname, functions });
    let library = Library {
        name: building.name,
        number: building.number,
        sonames: slice(building.sonames),
        parts: slice(parts.collect()),
        needs: slice(building.needs),
        statuses: building.statuses,
        handles: slice(building.handles),
        descriptors: slice(building.descriptors),
        functions: slice(building.functions),
        positions: slice(building.positions),
    };
    Ok(Description { library, exports: building.exports })
}

/// Returns the digest of what guest and host must agree on before they use a function: its row without the parts that concern the
/// guest's exported function only, and without reasons; and the kinds of handles and descriptors in it.
fn digest_of(library: &Building, row: &Row, body: &Body) -> u64 {
    let Row { number, kind, name, inputs, result, effect, words, .. } = row;
    let kind = if kind == "wrap" { "forward" } else { kind };
    let effect = match effect {
        rows::Effect::Sets(getter) => format!("sets {:?}", getter.as_ref().ok()),
        other => format!("{other:?}"),
    };
    let mut text = format!("{number} {kind} {name} {inputs:?} {result:?} {effect} {words:?}");
    let Body::Forward(call) = body else { return digest(&text) };
    for parameter in call.parameters {
        match parameter.kind {
            Kind::Handle { kind, .. } | Kind::New(kind) | Kind::End(kind) => {
                let HandleKind { name, is_int, or, of, structure, is_late, .. } = &library.handles[kind];
                text += &format!(" {kind} {name} {is_int} {or:?} {of:?} {structure} {is_late}");
            }
            Kind::Described { kind, .. } => text += &described(&library.descriptors, kind),
            _ => {}
        }
    }
    digest(&text)
}

/// Returns the layout of a kind of descriptor, and of those that it contains or refers to.
fn described(all: &[Descriptor], kind: usize) -> String {
    let descriptor = &all[kind];
    let parts = descriptor.parts.iter().map(|part| part.kind);
    let others = parts.chain(descriptor.other().map(|(_, kind)| kind)).filter(|other| *other != kind);
    others.fold(format!(" {kind} {descriptor:?}"), |text, other| text + &described(all, other))
}

fn directive(library: &mut Building, line: &str) -> Result<(), String> {
    let (word, rest) = line.split_once(' ').ok_or("a line of one word")?;
    let rest = rest.trim();
    let names = || rest.split_whitespace().map(kept_text).collect();
    match word {
        "library" => {
            let (name, number) = rest.split_once(' ').ok_or("a library has a name and a number")?;
            (library.name, library.number) = (kept_text(name), count(number)?);
        }
        "soname" => library.sonames = names(),
        "part" => {
            let here = library.functions.len();
            library.parts.push((kept_text(rest), here..here));
        }
        "needs" => library.needs = names(),
        "handle" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let mut kind = HandleKind { name: kept_text(words[0]), ..HandleKind::default() };
            match words[1..] {
                [] => {}
                ["i32"] => kind.is_int = true,
                ["late"] => kind.is_late = true,
                ["struct", bytes] => kind.structure = count(bytes)? as usize,
                ["or", library] => kind.or = Some(kept_text(library)),
                ["of", other] => {
                    let (library, name) = other.split_once('.').ok_or("`of` needs LIBRARY.KIND")?;
                    kind.of = Some((kept_text(library), kept_text(name)));
                }
                _ => return Err(format!("`{rest}` is no kind of handle")),
            }
            library.handles.push(kind);
        }
        "status" => library.statuses = statuses(rest)?,
        _ => return Err(format!("`{word}` is no directive, and rows begin with their number")),
    }
    Ok(())
}

/// Adds the function of a row.
fn function(library: &mut Building, row: &Row) -> Result<(), String> {
    let body = match (row.kind.as_str(), &row.inputs) {
        ("forward" | "wrap", Some(inputs)) => Body::Forward(kept(call(library, inputs, row)?)),
        ("custom", None) => Body::Custom,
        ("refuse", None) => {
            let reason = row.rest.strip_prefix('"').and_then(|reason| reason.strip_suffix('"'));
            Body::Refuse(kept_text(reason.ok_or("`refuse` needs a reason")?))
        }
        ("forward" | "wrap", None) => return Err("the parameters are missing".into()),
        ("custom" | "refuse", Some(_)) => {
            return Err(format!("a row of kind `{}` has no parameters", row.kind));
        }
        (other, _) => return Err(format!("`{other}` is no kind of row")),
    };
    let is_form = row.name.contains('@');
    if is_form && row.kind != "forward" || !is_form && !is_name(&row.name) {
        return Err(format!("`{}` is no name", row.name));
    }
    let place = row.number as usize;
    if row.number >= MAX_FUNCTIONS || library.functions.len() >= MAX_FUNCTIONS as usize {
        return Err("a function's number is too large".into());
    }
    if place >= library.positions.len() {
        library.positions.resize(place + 1, NO_FUNCTION);
    }
    if std::mem::replace(&mut library.positions[place], library.functions.len() as u16) != NO_FUNCTION {
        return Err(format!("{} is the number of another function", row.number));
    }
    if library.functions.iter().any(|function| function.name == row.name) {
        return Err(format!("`{}` has another row", row.name));
    }
    library.exports.push(export(row)?);
    let digest = digest_of(library, row, &body);
    library.functions.push(Function {
        name: kept_text(&row.name),
        number: row.number,
        digest,
        effect: effect(row)?,
        body,
    });
    Ok(())
}

fn export(row: &Row) -> Result<Export, String> {
    let too_much = || Err(format!("`{}` is too much", row.rest));
    Ok(match row.kind.as_str() {
        "refuse" => Export::Row,
        "wrap" if !row.rest.is_empty() => {
            let call = row.rest.strip_prefix("as ").and_then(|call| call.strip_suffix(')')?.split_once('('));
            let Some((function, arguments)) = call.filter(|(function, _)| is_name(function)) else {
                return too_much();
            };
            Export::Calls { function: function.to_owned(), arguments: arguments.to_owned() }
        }
        _ if !row.rest.is_empty() => return too_much(),
        "forward" => Export::Row,
        _ => Export::ByHand,
    })
}

fn effect(row: &Row) -> Result<Effect, String> {
    if row.made.is_some() {
        return Err("`creates` of a library's function names nothing".into());
    }
    Ok(match &row.effect {
        rows::Effect::Creates => Effect::Creates,
        rows::Effect::Ends => Effect::Ends,
        rows::Effect::Writes => Effect::Writes,
        rows::Effect::Nothing => Effect::Nothing,
        rows::Effect::Sets(Ok(getter)) => Effect::Sets(Getter::Function(kept_text(getter))),
        rows::Effect::Sets(Err(reason)) => Effect::Sets(Getter::None(kept_text(reason))),
        rows::Effect::Library => return Err("`library` is no effect of a library's function".into()),
    })
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

/// Parses the parameters and the facts of a row.
fn call(library: &mut Building, inputs: &[(String, String)], row: &Row) -> Result<Call, String> {
    let mut parts = Vec::new();
    for (name, kind) in inputs {
        match (name.as_str(), kind.as_str()) {
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
        Ok::<_, String>(Parameter { name: kept_text(name), kind, bytes })
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
    let answer = match row.result.as_deref() {
        None => Answer::Status,
        Some("string") => Answer::Text,
        Some("void") => Answer::Nothing,
        Some(word) => Answer::Number(number(word).ok_or_else(|| format!("nothing returns `{word}`"))?),
    };
    let (notes, facts): (Vec<String>, Vec<String>) =
        row.words.iter().cloned().partition(|word| is_of_notes(word));
    let notes = facts::notes(&mut library.handles, &pairs, &notes)?;
    let facts = facts::facts(&library.functions, &names, &facts)?;
    let first = parameters.iter().find_map(|parameter| match parameter.kind {
        Kind::Handle { kind, .. } => Some(kind),
        _ => None,
    });
    if facts.birth.is_some() {
        for parameter in &parameters {
            if let Kind::New(kind) = parameter.kind {
                library.handles[kind].has_birth = true;
            }
        }
    }
    let roles = roles(&parameters, answer, &facts, &notes);
    if let Some(kind) = first {
        library.handles[kind].works |= facts.stream_of || roles.stream.is_some();
    }
    Ok(Call { parameters: slice(parameters), answer, facts, notes, roles })
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

#[cfg(test)]
#[path = "libraries_test.rs"]
mod tests;
