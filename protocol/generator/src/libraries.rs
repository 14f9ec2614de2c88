// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of NVIDIA's libraries: a constant per function, from its row.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, ensure};
use cuda_api_description::libraries::attributes::referring;
use cuda_api_description::libraries::{Description, library};
use cuda_library_rows::attributes::Descriptor;
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{
    Answer, Asked, Body, Call, Check, Effect, Element, Facts, Function, Getter, HandleKind, Host, Kind,
    Measure, Note, Notes, Parameter, Roles, ScratchBytes, Statuses,
};

use crate::file::{DUAL, File};

/// The folder of the rows.
const FOLDER: &str = "protocol/libraries/rows";

/// Reads the rows of all libraries, in the order of the libraries' numbers on the wire.
pub fn descriptions(root: &Path) -> Result<Vec<Description>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("Cannot read {FOLDER}"))? {
        let file = entry?.path();
        if file.extension().is_none_or(|kind| kind != "rows") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let attributes = attributes(root, &file.file_stem().unwrap_or_default().to_string_lossy())?;
        all.push(library(&text, &attributes).with_context(|| file.display().to_string())?);
    }
    all.sort_unstable_by_key(|description| description.library.number);
    let mut numbers = all.iter().zip(0..);
    ensure!(
        numbers.all(|(description, number)| description.library.number == number),
        "{FOLDER}: the libraries' numbers are not 0, 1, 2, …"
    );
    Ok(all)
}

/// The attributes of a library's descriptors, which few libraries have.
fn attributes(root: &Path, name: &str) -> Result<String> {
    let path = root.join(FOLDER).join(format!("{name}.attributes"));
    // Those of cuDNN are not parts of descriptors.
    if name == "cudnn" || !path.exists() {
        return Ok(String::new());
    }
    Ok(fs::read_to_string(path)?)
}

/// A file per library, and the list of all.
pub fn files(root: &Path, all: &[Description]) -> Result<Vec<File>> {
    let mut files = all.iter().map(file).collect::<Result<Vec<_>>>()?;
    let (mut modules, mut uses, mut list) = (String::new(), String::new(), String::new());
    for Description { library, .. } in all {
        let (name, constant) = (module(library.name), constant(library.name));
        // Writing to a string does not fail.
        let _ = writeln!(modules, "mod {name};");
        let _ = writeln!(uses, "pub use {name}::{constant};");
        let _ = write!(list, "&{constant}, ");
    }
    let cudnn = fs::read_to_string(root.join(FOLDER).join("cudnn.attributes"))?;
    let referring = referring(&cudnn).map_err(Error::msg)?;
    let code = format!(
        "{modules}\n{uses}\nuse crate::Library;\n\n\
         /// All libraries, in the order of their numbers on the wire.\npub const LIBRARIES: [&Library; {}] = [{list}];\n\n\
         /// The attributes of cuDNN whose elements refer to something, and the `cudnnBackendAttributeType_t` of their elements.\n\
         #[rustfmt::skip]\npub(crate) static REFERRING: &[(i64, i8)] = &{referring:?};\n",
        all.len()
    );
    files.push(File::new(&path("mod"), DUAL, "The rows of NVIDIA's libraries.", FOLDER, &code)?);
    Ok(files)
}

fn path(name: &str) -> String {
    format!("protocol/libraries/src/tables/{name}.rs")
}

/// The module of a library.
pub(crate) fn module(name: &str) -> String {
    name.to_lowercase()
}

/// The constant of a library.
pub(crate) fn constant(name: &str) -> String {
    name.to_uppercase()
}

fn file(description: &Description) -> Result<File> {
    let library = &description.library;
    let (mut calls, mut functions) = (String::new(), String::new());
    for function in library.functions {
        let body = match &function.body {
            Body::Forward(call) => {
                let name = call_constant(function.name);
                let _ = writeln!(calls, "#[rustfmt::skip]\nstatic {name}: Call = {};", of_call(call));
                format!("Body::Forward(&{name})")
            }
            other => format!("Body::{other:?}"),
        };
        let Function { name, number, digest, effect, .. } = function;
        let effect = of_effect(effect);
        let _ = writeln!(
            functions,
            "    Function {{ name: {name:?}, number: {number}, digest: {digest:#018x}, effect: {effect}, body: {body} }},"
        );
    }
    let descriptors: String = library.descriptors.iter().map(of_descriptor).collect();
    let parts = list(library.parts, |part| {
        format!("Part {{ soname: {:?}, functions: {:?} }}", part.soname, part.functions)
    });
    let code = format!(
        "#![allow(non_upper_case_globals, unused_imports, clippy::wildcard_imports)]\n\n\
         use crate::attributes::*;\nuse crate::expression::Expression::{{Constant, Operation}};\nuse crate::expression::*;\n\
         use crate::{{Parameter as P, *}};\n\n\
         /// The rows of `{name}.rows`.\n#[rustfmt::skip]\npub static {constant}: Library = Library {{\n    \
         name: {name:?},\n    number: {number},\n    sonames: &{sonames:?},\n    parts: {parts},\n    needs: &{needs:?},\n    statuses: {statuses},\n    \
         handles: {handles},\n    descriptors: &[{descriptors}],\n    functions: FUNCTIONS,\n    positions: &{positions:?},\n}};\n\n\
         #[rustfmt::skip]\nstatic FUNCTIONS: &[Function] = &[\n{functions}];\n\n{calls}",
        name = library.name,
        constant = constant(library.name),
        number = library.number,
        sonames = library.sonames,
        needs = library.needs,
        statuses = of_statuses(&library.statuses),
        handles = list(library.handles, of_handle),
        positions = library.positions,
    )
    .replace("crate::attributes::*;", if library.descriptors.is_empty() { "crate::attributes::Descriptor;" } else { "crate::attributes::{Attribute, Descriptor, Part as Contained};" });
    let what = format!("The functions of {}.", library.sonames.first().unwrap_or(&""));
    File::new(&path(&module(library.name)), DUAL, &what, &format!("{FOLDER}/{}.rows", library.name), &code)
}

/// The name of a function's constant.
fn call_constant(function: &str) -> String {
    function.replace('@', "_of_")
}

fn list<T>(items: &[T], of: impl Fn(&T) -> String) -> String {
    format!("&[{}]", items.iter().map(of).collect::<Vec<_>>().join(", "))
}

/// The fields of a structure that differ from those of its constant `NONE`.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn put(&mut self, name: &str, value: String, default: &str) {
        if value != default {
            // Writing to a string does not fail.
            let _ = write!(self.0, "{name}: {value}, ");
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.put(name, value.to_string(), "false");
    }

    fn option(&mut self, name: &str, value: Option<impl Debug>) {
        self.put(name, format!("{value:?}"), "None");
    }

    fn of(self, structure: &str) -> String {
        if self.0.is_empty() {
            format!("{structure}::NONE")
        } else {
            format!("{structure} {{ {}..{structure}::NONE }}", self.0)
        }
    }
}

fn of_statuses(statuses: &Statuses) -> String {
    format!("{statuses:?}")
}

fn of_handle(kind: &HandleKind) -> String {
    let HandleKind { name, is_int, or, of, structure, is_late, has_birth, works, notes } = kind;
    let mut fields = Fields::default();
    fields.flag("is_int", *is_int);
    fields.option("or", *or);
    fields.option("of", *of);
    fields.put("structure", structure.to_string(), "0");
    fields.flag("is_late", *is_late);
    fields.flag("has_birth", *has_birth);
    fields.flag("works", *works);
    fields.put("notes", format!("&{notes:?}"), "&[]");
    format!("HandleKind {{ name: {name:?}, {}..HandleKind::NONE }}", fields.0)
}

fn of_descriptor(descriptor: &Descriptor) -> String {
    let Descriptor { name, public_bytes, init, set, is_object, attributes, parts, bytes, crossing_bytes } =
        descriptor;
    let attributes: String =
        attributes.iter().map(|attribute| format!("\n            {attribute:?},")).collect();
    let parts = format!("{parts:?}").replace("Part {", "Contained {");
    format!(
        "\n        Descriptor {{ name: {name:?}, public_bytes: {public_bytes}, init: {init:?}, set: {set:?}, is_object: {is_object}, \
         attributes: &[{attributes}], parts: &{parts}, bytes: {bytes}, crossing_bytes: {crossing_bytes} }},"
    )
}

fn of_effect(effect: &Effect) -> String {
    match effect {
        Effect::Sets(Getter::Function(name)) => format!("Effect::Sets(Getter::Function({name:?}))"),
        Effect::Sets(Getter::None(reason)) => format!("Effect::Sets(Getter::None({reason:?}))"),
        other => format!("Effect::{other:?}"),
    }
}

fn of_call(call: &Call) -> String {
    let Call { parameters, answer, facts, notes, roles } = call;
    let parameters =
        list(parameters, |Parameter { name, kind, .. }| format!("P::new({name:?}, {})", of_kind(kind)));
    let answer = match answer {
        Answer::Number(number) => format!("Number(Number::{number:?})"),
        other => format!("{other:?}"),
    };
    format!(
        "Call {{ parameters: {parameters}, answer: Answer::{answer}, facts: {}, notes: {}, roles: {} }}",
        of_facts(facts),
        of_notes(notes),
        of_roles(roles)
    )
}

fn of_kind(kind: &Kind) -> String {
    let value = match kind {
        Kind::Value(number) => format!("Value(Number::{number:?})"),
        Kind::Host(host) => format!("Host(&{})", of_host(host)),
        Kind::Scalar { direction, element, count } => format!(
            "Scalar {{ direction: Direction::{direction:?}, element: {}, count: {} }}",
            of_element(element),
            of_count(count.as_ref())
        ),
        Kind::Scratch(scratch) => {
            let bytes = match &scratch.bytes {
                ScratchBytes::Counted(bytes) => format!("Counted({})", of_expression(bytes)),
                ScratchBytes::Asked(function) => format!("Asked({function})"),
                ScratchBytes::Checked(bytes, function) => {
                    format!("Checked({}, {function})", of_expression(bytes))
                }
            };
            format!("Scratch(Scratch {{ owner: {:?}, bytes: ScratchBytes::{bytes} }})", scratch.owner)
        }
        Kind::Noted(note) => format!("Noted({note:?})"),
        Kind::Measured(Measure::Sum(array)) => format!("Measured(Measure::Sum({array}))"),
        Kind::Measured(Measure::Asked(asked)) => {
            let Asked { .. } = asked;
            format!("Measured(Measure::Asked({asked:?}))")
        }
        Kind::Arrays { element, count, arrays } => format!(
            "Arrays {{ element: Number::{element:?}, count: {}, arrays: {} }}",
            of_expression(count),
            of_expression(arrays)
        ),
        Kind::Allocated { element, most, count } => format!(
            "Allocated {{ element: Number::{element:?}, most: {}, count: {count:?} }}",
            of_expression(most)
        ),
        other => format!("{other:?}"),
    };
    format!("Kind::{value}")
}

fn of_host(host: &Host) -> String {
    let Host { direction, nullable, element, count, room, check } = host;
    let check = match check {
        None => "None".to_owned(),
        Some(Check::Rising { span, base }) => {
            format!("Some(Check::Rising {{ span: {}, base: {base:?} }})", of_expression(span))
        }
        Some(Check::Below { limit, base }) => {
            format!("Some(Check::Below {{ limit: {}, base: {base:?} }})", of_expression(limit))
        }
        Some(other) => format!("Some(Check::{other:?})"),
    };
    let mut fields = Fields::default();
    fields.put("direction", format!("Direction::{direction:?}"), "Direction::In");
    fields.flag("nullable", *nullable);
    fields.put("count", of_count(count.as_ref()), "None");
    fields.put("room", of_count(room.as_ref()), "None");
    fields.put("check", check, "None");
    format!("Host {{ element: {}, {}..Host::NONE }}", of_element(element), fields.0)
}

fn of_element(element: &Element) -> String {
    match element {
        Element::Number(number) => format!("Element::Number(Number::{number:?})"),
        other => format!("Element::{other:?}"),
    }
}

fn of_count(count: Option<&Expression>) -> String {
    count.map_or_else(|| "None".to_owned(), |count| format!("Some({})", of_expression(count)))
}

fn of_expression(expression: &Expression) -> String {
    match expression {
        Expression::Constant(value) => format!("Constant({value})"),
        Expression::Parameter(index) => format!("Expression::Parameter({index})"),
        Expression::Operation(operator, left, right) => {
            format!("Operation(Operator::{operator:?}, &{}, &{})", of_expression(left), of_expression(right))
        }
    }
}

fn of_facts(facts: &Facts) -> String {
    let Facts {
        wait,
        pure,
        pointer_mode,
        stream_of,
        sets,
        resets,
        gets,
        birth,
        on_device,
        wait_unless,
        makes,
        finds,
        links_code,
        lends,
        uncaptured,
    } = facts;
    let mut fields = Fields::default();
    let flags = [
        ("wait", wait),
        ("pure", pure),
        ("pointer_mode", pointer_mode),
        ("stream_of", stream_of),
        ("sets", sets),
    ];
    flags.into_iter().for_each(|(name, value)| fields.flag(name, *value));
    let flags =
        [("on_device", on_device), ("makes", makes), ("links_code", links_code), ("uncaptured", uncaptured)];
    flags.into_iter().for_each(|(name, value)| fields.flag(name, *value));
    let options = [("resets", resets), ("gets", gets), ("birth", birth), ("finds", finds), ("lends", lends)];
    options.into_iter().for_each(|(name, value)| fields.option(name, *value));
    fields.option("wait_unless", *wait_unless);
    fields.of("Facts")
}

fn of_notes(notes: &Notes) -> String {
    let Notes { needs, takes, forgets, keeps_pattern, needs_pattern } = notes;
    let pairs = |pairs: &[(Note, Expression)]| {
        list(pairs, |(note, value)| format!("({note:?}, {})", of_expression(value)))
    };
    let mut fields = Fields::default();
    fields.put("needs", pairs(needs), "&[]");
    fields.put("takes", pairs(takes), "&[]");
    fields.put("forgets", format!("&{forgets:?}"), "&[]");
    fields.option("keeps_pattern", *keeps_pattern);
    fields.option("needs_pattern", *needs_pattern);
    fields.of("Notes")
}

fn of_roles(roles: &Roles) -> String {
    let mut fields = Fields::default();
    let options = [
        ("handle", roles.handle),
        ("stream", roles.stream),
        ("out_stream", roles.out_stream),
        ("table", roles.table),
    ];
    options.into_iter().for_each(|(name, value)| fields.option(name, value));
    fields.option("new", roles.new);
    let lists = [
        ("values", roles.values),
        ("addresses", roles.addresses),
        ("encoded", roles.encoded),
        ("handles", roles.handles),
        ("ends", roles.ends),
        ("memory", roles.memory),
        ("reads", roles.reads),
        ("writes", roles.writes),
        ("changes", roles.changes),
        ("checked", roles.checked),
        ("allocated", roles.allocated),
        ("noted", roles.noted),
        ("measured", roles.measured),
    ];
    lists.into_iter().for_each(|(name, value)| fields.put(name, format!("&{value:?}"), "&[]"));
    fields.flag("answers", roles.answers);
    fields.flag("is_plain", roles.is_plain);
    fields.of("Roles")
}
