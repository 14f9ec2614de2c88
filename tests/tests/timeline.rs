// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A timeline in Perfetto's own user interface, in Chromium: its trace processor, asked by SQL, finds what was written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vhost_cuda_profile::reader::{self, Slice};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{self, Kit};

const OPEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timeline/open.py");
const LIMIT: Duration = Duration::from_secs(240);

/// Each slice with its row and process.
const SLICES: &str = "
    select process.name as process, process.pid, process_track.name as row, slice.category, slice.name, slice.ts,
        slice.ts + slice.dur as end
    from slice join process_track on process_track.id = slice.track_id join process using (upid)";
/// Each value of a counter.
const COUNTERS: &str = "
    select process.name as process, process.pid, process_counter_track.name as row, '' as category, '' as name, counter.ts,
        counter.ts as end, cast(counter.value as int) as value
    from counter join process_counter_track on process_counter_track.id = counter.track_id join process using (upid)";
/// The annotations of slices.
const NOTES: &str = "
    select slice.name, args.key, args.display_value as value
    from slice join args using (arg_set_id) where slice.category in ('range', 'span')";
/// What the trace processor could not make sense of.
const PROBLEMS: &str = "select name, value from stats where severity in ('error', 'data_loss') and value > 0";

fn main() -> ExitCode {
    suite::run("timeline", |suite| {
        suite.test("of_a_program_with_ranges", of_a_program_with_ranges);
        Ok(())
    })
}

fn of_a_program_with_ranges(kit: &Kit) -> Result<()> {
    let daemon =
        Daemon::start(&kit.stack, &DaemonOptions { device: "emulated".into(), ..Default::default() })?;
    let route = Route::through(&kit.stack, daemon);
    let folder = tempfile::tempdir()?;
    let [trace, picture] = ["trace.pftrace", "picture.png"].map(|name| folder.path().join(name));
    let mut command = route.command(&kit.stack.profiler());
    command.arg("--trace").arg(&trace).arg(kit.programs.get("ranges")?);
    run(&mut command, "", LIMIT)?.expect_exit(0)?;
    let written = reader::slices(&fs::read(&trace)?).map_err(anyhow::Error::msg)?;

    let queries = json!({ "slices": SLICES, "counters": COUNTERS, "notes": NOTES, "problems": PROBLEMS });
    let opened = open(kit, &trace, &picture, &json!({ "queries": queries }))?;
    let rows = |name: &str| opened["answers"][name].as_array().cloned().unwrap_or_default();
    ensure!(rows("problems").is_empty(), "{:?}", rows("problems"));
    let found: BTreeSet<_> =
        ["slices", "counters"].into_iter().flat_map(rows).map(|row| key_of_row(&row)).collect();
    let expected: BTreeSet<_> = written.iter().map(key).collect();
    let differences: Vec<_> = expected.symmetric_difference(&found).collect();
    ensure!(differences.is_empty(), "{differences:?}");
    for (category, least) in [("kernel", 1), ("copy", 2), ("api", 4), ("call", 4), ("range", 3), ("span", 2)]
    {
        let count = written.iter().filter(|slice| slice.category == category).count();
        ensure!(count >= least, "{count} slices of {category}: {written:?}");
    }
    for (key, value) in [("debug.category", "data"), ("debug.payload", "-42")] {
        let is_it = |row: &Value| row["name"] == "inner?" && row["key"] == key && row["value"] == value;
        ensure!(rows("notes").iter().any(is_it), "no {key} of {value}: {:?}", rows("notes"));
    }
    // What a person sees: the names of all rows.
    let text = opened["text"].as_str().unwrap_or_default();
    for row in written.iter().map(|slice| &slice.row).collect::<BTreeSet<_>>() {
        ensure!(text.contains(row.as_str()), "the page does not show the row {row}: {text}");
    }
    ensure!(fs::metadata(&picture)?.len() > 10_000, "the picture is empty");
    Ok(())
}

/// Opens a timeline. Returns the page's answers.
fn open(kit: &Kit, trace: &Path, picture: &Path, asked: &Value) -> Result<Value> {
    let mut command = Command::new("python3");
    command.arg(OPEN).arg(kit.stack.perfetto()).args([trace, picture]);
    let outcome = run(&mut command, &asked.to_string(), LIMIT)?;
    outcome.expect_exit(0)?;
    let answer: Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.stdout.clone())?;
    ensure!(answer["error"].is_null(), "{answer}");
    Ok(answer)
}

/// Identifies a slice: its texts and numbers.
fn key(slice: &Slice) -> String {
    let Slice { process, pid, row, category, name, time: [begin, end], value, .. } = slice;
    format!("{process} {pid}, {row}: {category} {name} {begin} {end} {}", value.unwrap_or(0))
}

/// The same of a row of the trace processor's, in which numbers of 64 bits are texts.
fn key_of_row(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
    let [process, pid, line, category, name, begin, end] =
        ["process", "pid", "row", "category", "name", "ts", "end"].map(text);
    let value = if row["value"].is_null() { "0".to_owned() } else { text("value") };
    format!("{process} {pid}, {line}: {category} {name} {begin} {end} {value}")
}
