// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-user-cuda ctl`: the operator's side of the control socket.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_profile::event::Batch;
use vhost_cuda_profile::table::Tables;
use vhost_cuda_profile::timeline::Timeline;

use super::file;
use super::protocol::{Answer, Recipe, Request, Session};
use crate::args::{CtlArgs, CtlCommand, Selected};

/// The maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// The time for an answer beside the request's own: copies, for all sessions of a daemon.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Sends the request of a command line, and prints the answer.
///
/// Errors: the daemon does not answer, or the request was not carried out for all its sessions.
pub fn run(args: &CtlArgs) -> Result<()> {
    let request = match &args.command {
        CtlCommand::Status => Request::Status {},
        CtlCommand::Replace => Request::Replace {},
        CtlCommand::Suspend { selected, timeout, hold, deep } => {
            let Selected { session, connection, all } = *selected;
            let timeout_ms = milliseconds(*timeout);
            Request::Suspend { session, connection, all, timeout_ms, hold: *hold, deep: *deep }
        }
        CtlCommand::Resume { selected, timeout } => {
            let Selected { session, connection, all } = *selected;
            Request::Resume { session, connection, all, timeout_ms: milliseconds(*timeout) }
        }
        CtlCommand::Renew { selected, timeout } => {
            let Selected { session, connection, all } = *selected;
            Request::Renew { session, connection, all, timeout_ms: milliseconds(*timeout) }
        }
        CtlCommand::Trace { selected, seconds, .. } => {
            let Selected { session, connection, all } = *selected;
            Request::Trace { session, connection, all, time_ms: milliseconds(*seconds) }
        }
        CtlCommand::Recipe { selected } => {
            let Selected { session, connection, all } = *selected;
            Request::Recipe { session, connection, all }
        }
        CtlCommand::Save { session, timeout, folder } => {
            let line = file::save(&args.socket, *session, milliseconds(*timeout), folder)?;
            return show(args, &line, table);
        }
        CtlCommand::Restore { timeout, folder } => {
            let line = file::restore(&args.socket, milliseconds(*timeout), folder)?;
            return show(args, &line, table);
        }
    };
    if let CtlCommand::Trace { trace, csv, .. } = &args.command {
        return take_trace(&args.socket, &request, trace.as_deref(), |tables| match (args.json, csv) {
            (true, _) => tables.to_json(),
            (_, true) => tables.to_csv(),
            _ => tables.to_text(),
        });
    }
    let format: fn(&Answer) -> String = match request {
        Request::Recipe { .. } => recipes,
        Request::Replace {} => |_: &Answer| String::new(),
        _ => table,
    };
    show(args, &ask(&args.socket, &request)?, format)
}

/// Prints an answer.
///
/// Errors: the request was not carried out for all its sessions.
fn show(args: &CtlArgs, line: &str, format: fn(&Answer) -> String) -> Result<()> {
    let answer: Answer = serde_json::from_str(line).context("The daemon's answer is not that of a daemon")?;
    if args.json {
        print!("{line}");
    } else {
        print!("{}", format(&answer));
    }
    if let Some(error) = answer.error {
        bail!("{error}");
    }
    ensure!(answer.ok, "The request was not carried out for all its sessions");
    Ok(())
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Sends a request to the daemon that listens at `control`, and returns its answer, a line.
pub fn ask(control: &Path, request: &Request) -> Result<String> {
    next_line(control, &mut send(control, request)?)
}

/// Sends a request, and returns the stream of lines that answer it.
fn send(control: &Path, request: &Request) -> Result<BufReader<UnixStream>> {
    connect(control, request).map(BufReader::new)
}

/// Sends a request on a new connection.
pub(super) fn connect(control: &Path, request: &Request) -> Result<UnixStream> {
    let cannot = || cannot_reach(control);
    let mut stream = UnixStream::connect(control).with_context(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).with_context(cannot)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    // A daemon with too many clients says so without reading, and then there is a line nevertheless.
    let _ = stream.write_all(&line);
    Ok(stream)
}

pub(super) fn cannot_reach(control: &Path) -> String {
    format!("Cannot reach a daemon's control socket at {}", control.display())
}

pub(super) fn next_line(control: &Path, stream: &mut BufReader<UnixStream>) -> Result<String> {
    let mut line = String::new();
    stream.take(MAX_ANSWER).read_line(&mut line).with_context(|| cannot_reach(control))?;
    ensure!(line.ends_with('\n'), "The daemon at {} hung up", control.display());
    Ok(line)
}

/// Prints the tables of what the daemon records, and writes the timeline into `trace`.
fn take_trace(
    control: &Path,
    request: &Request,
    trace: Option<&Path>,
    format: impl FnOnce(&Tables) -> String,
) -> Result<()> {
    let mut stream = send(control, request)?;
    let name = trace.map(Path::display);
    let cannot = || format!("Cannot write {}", name.as_ref().map(ToString::to_string).unwrap_or_default());
    let file = trace.map(File::create).transpose().with_context(cannot)?;
    let mut timeline = file.map(|file| Timeline::new(BufWriter::new(file)));
    let mut tables = Tables::default();
    let answer = loop {
        let line = next_line(control, &mut stream)?;
        let Ok(batch) = serde_json::from_str::<Batch>(&line) else { break line };
        tables.add(&batch);
        if let Some(timeline) = &mut timeline {
            timeline.add(&batch).with_context(cannot)?;
        }
    };
    let answer: Answer =
        serde_json::from_str(&answer).context("The daemon's answer is not that of a daemon")?;
    if let Some(timeline) = timeline {
        let (_, left_out) = timeline.finish().with_context(cannot)?;
        ensure!(left_out == 0, "{left_out} events are missing in the timeline: they have too many rows");
    }
    if let Some(error) = answer.error {
        bail!("{error}");
    }
    print!("{}", format(&tables));
    for session in answer.sessions {
        if let Some(error) = session.error {
            bail!("session {}: {error}", session.session);
        }
    }
    Ok(())
}

/// Formats an answer for people.
fn table(answer: &Answer) -> String {
    let mut text = format!(
        "{:>4} {:>7} {:<16} {:>7} {:>6} {:<10} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}\n",
        "conn",
        "session",
        "program",
        "pid",
        "uid",
        "state",
        "GPU MiB",
        "susp MiB",
        "host MiB",
        "idle s",
        "moves",
        "moving s"
    );
    let mib = |bytes: u64| bytes >> 20;
    for session in &answer.sessions {
        let Session { connection, session: number, program, pid, uid, state, .. } = session;
        text += &format!(
            "{connection:>4} {number:>7} {program:<16} {pid:>7} {uid:>6} {state:<10} {:>9} {:>9} {:>9} {:>8.0} {:>8} \
             {:>8.1}\n",
            mib(session.on_card_bytes),
            mib(session.suspended_bytes),
            mib(session.stored_bytes),
            session.idle_ms as f64 / 1e3,
            session.suspensions + session.resumes,
            session.moving_ms as f64 / 1e3,
        );
    }
    text += &errors(answer);
    let of = answer.host_memory_limit.map_or(String::new(), |limit| format!(" of {}", mib(limit)));
    text += &format!("host memory of suspended sessions: {}{of} MiB\n", mib(answer.host_memory_used));
    if answer.pool_limit > 0 {
        text +=
            &format!("ready for contents: {} of {} MiB\n", mib(answer.pool_ready), mib(answer.pool_limit));
    }
    text
}

/// Formats an answer with recipes for people.
fn recipes(answer: &Answer) -> String {
    let mut text = format!(
        "{:>4} {:>7} {:<16} {:>7} {:>8} {:>8} complete\n",
        "conn", "session", "program", "pid", "calls", "KiB"
    );
    for session in &answer.sessions {
        let Session { connection, session: number, program, pid, .. } = session;
        let Some(Recipe { calls, bytes, obstacle }) = &session.recipe else { continue };
        let complete = obstacle.as_ref().map_or("yes".to_owned(), |obstacle| format!("no: {obstacle}"));
        let kib = bytes.div_ceil(1 << 10);
        text +=
            &format!("{connection:>4} {number:>7} {program:<16} {pid:>7} {calls:>8} {kib:>8} {complete}\n");
    }
    text + &errors(answer)
}

/// Returns a line for each session that the request was not carried out for, or not as deeply as asked.
fn errors(answer: &Answer) -> String {
    let lines = |session: &Session| {
        let number = session.session;
        let error = session.error.as_ref().map(|error| format!("session {number}: {error}\n"));
        let not_deep = session.not_deep.as_ref().map(|why| format!("session {number}: NOT deep: {why}\n"));
        error.into_iter().chain(not_deep).collect::<String>()
    };
    answer.sessions.iter().map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_session_and_its_error() {
        let session = Session {
            connection: 1,
            session: 2,
            program: "python3".into(),
            state: "running".into(),
            on_card_bytes: 3 << 20,
            suspensions: 4,
            resumes: 4,
            error: Some("its work did not end".into()),
            not_deep: Some("it is not suspended".into()),
            ..Session::default()
        };
        let limit = Some(5 << 20);
        let answer = Answer { sessions: vec![session], host_memory_limit: limit, ..Answer::default() };
        let text = table(&answer);
        let lines: Vec<&str> = text.lines().collect();
        let fields: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(fields, ["1", "2", "python3", "0", "0", "running", "3", "0", "0", "0", "8", "0.0"]);
        assert_eq!(lines[2], "session 2: its work did not end");
        assert_eq!(lines[3], "session 2: NOT deep: it is not suspended");
        assert_eq!(lines[4], "host memory of suspended sessions: 0 of 5 MiB");
    }
    #[test]
    fn recipes_have_a_reason_or_none() {
        let recipe = |session, obstacle: Option<&str>| {
            let recipe = Recipe { calls: 7, bytes: 1025, obstacle: obstacle.map(str::to_owned) };
            Session { session, program: "python3".into(), recipe: Some(recipe), ..Session::default() }
        };
        let silent =
            Session { session: 4, error: Some("the session has ended".into()), ..Session::default() };
        let sessions = vec![recipe(2, None), recipe(3, Some("cuGraphCreate: graphs")), silent];
        let text = recipes(&Answer { sessions, ..Answer::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["0", "2", "python3", "0", "7", "2", "yes"]
        );
        assert!(lines[2].ends_with(" no: cuGraphCreate: graphs"), "{text}");
        assert_eq!(lines[3..], ["session 4: the session has ended"]);
    }
}
