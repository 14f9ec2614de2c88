// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker's half: a function per call that takes its arguments, executes it and puts its results.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use cuda_api_description::calls::{Area, Field, Row};

use crate::file::{CALLS, File, OWN};

/// The facts of calls that put work on the GPU's processors.
const GPU_WORK: [&str; 4] = ["fills", "queues_fill", "kernels", "queues_kernel"];

/// A file per area, and the one that chooses the call's function.
pub fn files(areas: &[Area]) -> Result<Vec<File>> {
    let file = |area: &Area| {
        let rows = area.rows.iter().map(|row| function(row).with_context(|| row.name.clone()));
        let code = format!("use super::call::*;\n{}", rows.collect::<Result<String>>()?);
        File::new(&path(&area.name), OWN, &area.title, CALLS, &code)
    };
    let mut files = areas.iter().map(file).collect::<Result<Vec<_>>>()?;
    let (mut modules, mut arms) = (String::new(), String::new());
    for Area { name, rows, .. } in areas {
        let _ = writeln!(modules, "mod {name};");
        for row in rows {
            let call = &row.name;
            let _ = writeln!(arms, "Opcode::{call} => {name}::{call}(cx, args, results),");
        }
    }
    let code = format!(
        "#![allow(non_snake_case)]\n\nmod answer;\nmod call;\n{modules}\nuse call::*;\n\n\
         /// Takes the arguments of `opcode`, executes it and puts its results.\n///\n\
         /// Errors: `CUDA_ERROR_INVALID_VALUE` for arguments that are too short, too long or out of range; else\n\
         /// the handler's error.\n\
         pub fn dispatch(opcode: Opcode, cx: &mut CallContext<'_>, args: Reader<'_>, results: &mut Writer<'_>) \
         -> CuResult<()> {{\nmatch opcode {{ {arms} }}\n}}\n"
    );
    let what = "From an opcode to its handler. The handler of a `custom` row is the function of that name in\n\
                //! [`crate::handlers`], and the build fails without it; those of all other rows follow from the row.";
    files.push(File::new(&path("mod"), OWN, what, CALLS, &code)?);
    Ok(files)
}

fn path(name: &str) -> String {
    format!("vhost-cuda/worker/src/dispatch/{name}.rs")
}

fn function(row: &Row) -> Result<String> {
    let Row { name, inputs, results, .. } = row;
    let docs: String = row.docs.iter().map(|line| format!("/// {line}\n")).collect();
    let mut body = String::new();
    for Field { name, of } in inputs {
        let _ = writeln!(body, "let {name} = take::<{of}>(&mut args)?;");
    }
    let _ = writeln!(body, "finish(args)?;");
    let is_work = GPU_WORK.contains(&row.facts[0].as_str());
    if is_work {
        let stream = inputs.iter().find(|field| field.of == "StreamId");
        let place = match stream {
            _ if name == "vendor_call" => "Place::Unknown".to_owned(),
            Some(stream) => format!("Place::Stream({})", stream.name),
            None => "Place::Stream(StreamId(STREAM_LEGACY as u64))".to_owned(),
        };
        let _ = writeln!(body, "// Before the call locks anything.\nlet work = begin(cx, {place});");
    }
    let outcome = outcome(row)?;
    let names: String = results.iter().map(|field| format!("{},", field.name)).collect();
    if is_work {
        let _ = writeln!(body, "let outcome: CuResult<({})> = {{ {outcome} }};", types(results));
        let _ = writeln!(body, "started(work, cx);");
    }
    match (is_work, results.is_empty()) {
        (true, true) => body.push_str("outcome"),
        (false, true) => body.push_str(&outcome),
        (true, false) => drop(writeln!(body, "let ({names}) = outcome?;")),
        (false, false) => drop(writeln!(body, "let ({names}): ({}) = {{ {outcome} }}?;", types(results))),
    }
    for (index, Field { name, .. }) in results.iter().enumerate() {
        let end = if index + 1 < results.len() { "?;" } else { "" };
        let _ = writeln!(body, "put(&{name}, results){end}");
    }
    let (mutable, used) =
        (if inputs.is_empty() { "" } else { "mut " }, if results.is_empty() { "_" } else { "" });
    Ok(format!(
        "\n{docs}pub fn {name}(cx: &mut CallContext<'_>, {mutable}args: Reader<'_>, {used}results: &mut Writer<'_>) \
         -> CuResult<()> {{\n{body}}}\n"
    ))
}

/// A tuple's contents.
fn types(fields: &[Field]) -> String {
    fields.iter().map(|field| format!("{},", field.of)).collect()
}

/// The expression that executes the call, of type `CuResult` of all results.
fn outcome(row: &Row) -> Result<String> {
    let Row { name, inputs, results, call, .. } = row;
    let own: Vec<String> = inputs.iter().map(|field| field.name.clone()).collect();
    let first = own.first().map_or("", String::as_str);
    let is_part = call.as_ref().is_some_and(|(function, _)| function.contains('.'));
    // The function of the driver or of another part, with what it needs in place of the guest's values.
    let driver = |skipped: usize| {
        let (function, arguments) = match call {
            Some((function, arguments)) => (function, &arguments[..]),
            None => (name, &own[skipped..]),
        };
        let arguments: String = arguments.iter().map(|value| format!("{}?,", argument(value))).collect();
        match is_part {
            true => format!("Outcome::outcome(cx.session.{function}({arguments}))"),
            false => format!("cx.session.gpu.{function}({arguments})"),
        }
    };
    Ok(match row.kind.as_str() {
        "custom" => format!("handlers::{name}(cx, {})", own.join(", ")),
        "forward" if !row.ranges.is_empty() => within_ranges(row, &own),
        "forward" => {
            let names: String = results.iter().map(|field| format!("{},", field.name)).collect();
            let answers: String = results
                .iter()
                .map(|Field { name, of }| format!("<_ as Answer<{of}>>::answer({name}, cx)?,"))
                .collect();
            let call = driver(0);
            let call = match &results[..] {
                [] => format!("{call}?;"),
                [Field { name, .. }] if is_part => format!("let {name} = {call}?;"),
                _ => format!("let ({names}) = {call}?;"),
            };
            format!("{}{call}\nOk(({answers}))", enter(inputs))
        }
        "create" => format!(
            "let reserved = lifecycle::Create::reserve({first}, cx)?;\nlet (raw,) = {}?;\n\
             lifecycle::Create::made({first}, cx, reserved, raw)",
            driver(1)
        ),
        "destroy" => match call {
            Some((of, arguments)) => {
                format!("lifecycle::Destroy::destroy({of}({}), cx)", arguments.join(", "))
            }
            None => format!("lifecycle::Destroy::destroy({first}, cx)"),
        },
        "part" => {
            let new = own.last().context("a part without a name")?;
            let described: String = results
                .iter()
                .map(|Field { name, of }| format!("let {name}: {of} = lifecycle::described(cx, raw)?;\n"))
                .collect();
            let names: String = results.iter().map(|field| format!("{},", field.name)).collect();
            format!(
                "let whole = lifecycle::Whole::whole({first}, cx)?;\nlet reserved = lifecycle::reserve(cx, {new})?;\n\
                 let (raw,) = {}?;\n{described}\
                 cx.fill(reserved, lifecycle::part(cx, {first}, {new}, raw, whole)?)?;\nOk(({names}))",
                driver(0)
            )
        }
        "variable" => {
            let find = format!(
                "let (dptr, bytes) = cx.session.gpu.{name}(cx.resolve({first})?, cx.bulk_in.name()?)?;\n"
            );
            let found = format!("variable::found(cx, {first}, dptr, bytes)");
            match results.len() {
                2 => find + &found,
                _ => format!(
                    "{find}let (dptr, bytes) = {found}?;\n\
                     Ok((dptr, bytes, variable::is_managed(cx, dptr)?.into()))"
                ),
            }
        }
        "load" if own.len() == 1 => format!("image::load(cx, {first})"),
        "load" => format!("image::load_known(cx, {})", own.join(", ")),
        "upload" => format!("handlers::upload(cx, {}, {})", own.join(", "), name == "cuMemcpyHtoD_v2"),
        "download" => match &own[..] {
            [src] => format!("handlers::download(cx, {src}, STREAM_LEGACY)"),
            [src, stream] => {
                format!("let stream = cx.resolve({stream})?;\nhandlers::download(cx, {src}, stream)")
            }
            _ => bail!("a download has a source and a stream"),
        },
        "card" => {
            let (device, others) = own
                .split_first()
                .map_or(("DeviceOrdinal(0)", &[][..]), |(device, others)| (device.as_str(), others));
            let others: String = others.iter().map(|name| format!(", {name}")).collect();
            format!("Nvml::{name}(handlers::nvml_of(cx, {device})?{others}).ok_or(CudaError::NOT_SUPPORTED)")
        }
        other => bail!("`{other}` is no kind of row"),
    })
}

/// The expression of an argument: a word takes the call, too; a value is resolved by its type.
fn argument(text: &str) -> String {
    let is_word =
        |name: &str| !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || one == '_');
    match text.split_once('(').filter(|(name, _)| is_word(name)) {
        Some((word, others)) => format!("{word}(cx, {others}"),
        None => format!("Resolve::resolve({text}, cx)"),
    }
}

/// Locks the graphs of nodes first, with the graphs beside them: they may be several, and come before anything else.
fn enter(inputs: &[Field]) -> String {
    let all = |of: &str| -> Vec<&str> {
        inputs.iter().filter(|field| field.of == of).map(|field| field.name.as_str()).collect()
    };
    let (graphs, nodes) = (all("GraphId").join(", "), all("GraphNodeId").join(", "));
    if nodes.is_empty() { String::new() } else { format!("cx.enter(&[{graphs}], &[{nodes}]);\n") }
}

/// A call with addresses: nothing happens if the driver uses no bytes there.
fn within_ranges(row: &Row, own: &[String]) -> String {
    let mut code = String::from("'empty: {\n");
    for (range, bytes) in &row.ranges {
        let written = range == "dst";
        let _ =
            writeln!(code, "let {range} = Region {{ start: {range}, bytes: {bytes}, written: {written} }};");
    }
    code.extend(own.iter().map(|name| format!("let {name} = Resolve::resolve({name}, cx)?;\n")));
    for (range, _) in &row.ranges {
        let _ = writeln!(code, "let Some({range}) = {range}.checked(cx)? else {{ break 'empty Ok(()) }};");
    }
    let _ = write!(
        code,
        "// SAFETY: the row's `where` clause states the bytes that the driver uses at each address; they are the\n\
         // session's. The other arguments are good by themselves.\nunsafe {{ cx.session.gpu.{}({}) }} }}",
        row.name,
        own.join(", ")
    );
    code
}
