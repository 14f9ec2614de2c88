// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io::Write;

use super::*;

/// Writes `bytes` as a worker and returns the lines of the log.
fn logged(bytes: &[u8], session: Option<u64>, loud: &mut Allowance) -> Vec<(Level, String)> {
    log::set_max_level(log::LevelFilter::Trace);
    let (pipe, mut writer) = Messages::pipe().unwrap();
    let label = Label::default();
    if let Some(session) = session {
        label.set(session);
    }
    let quiet = Allowance::new(3, Duration::from_secs(3600));
    let mut source = Source { pipe, pid: 77, label, line: Vec::new(), quiet };
    let mut lines = Vec::new();
    let mut emit = |level, text: &str| lines.push((level, text.to_owned()));
    for piece in bytes.chunks(READ_BYTES) {
        writer.write_all(piece).unwrap();
        assert_eq!(source.read(&mut emit, loud), Read::Some);
    }
    assert_eq!(source.read(&mut emit, loud), Read::Nothing, "an empty pipe is not a closed one");
    drop(writer);
    let end = until_let_go(|| Some(source.read(&mut emit, loud)).filter(|&read| read != Read::Nothing));
    assert_eq!(end, Read::End);
    lines
}

/// Returns the result of `attempt` once no process holds a pipe whose end was closed here: while another test starts
/// a process, that process has a copy of each descriptor until it executes its program.
fn until_let_go<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "another process holds the pipe");
        thread::sleep(Duration::from_millis(1));
    }
}

fn unlimited() -> Allowance {
    Allowance::new(u32::MAX, Duration::from_secs(3600))
}

#[test]
fn lines_have_a_level_and_a_name() {
    let lines = logged(b"E broken\nD detail\nsomething else\nW last", Some(3), &mut unlimited());
    let expected = [
        (Level::Error, "session 3: worker: broken"),
        (Level::Debug, "session 3: worker: detail"),
        (Level::Warn, "session 3: worker: something else"),
        (Level::Warn, "session 3: worker: last"),
    ];
    assert_eq!(lines, expected.map(|(level, text)| (level, text.to_owned())));
    assert_eq!(logged(b"I up\n", None, &mut unlimited()), [(Level::Info, "worker 77: up".to_owned())]);
}

#[test]
fn lines_cannot_be_forged_or_command_a_terminal() {
    let lines = logged(b"I a\x1b[2Jb\rc\xff\x00\xe2\x80\xae\n\n\n", None, &mut unlimited());
    assert_eq!(lines, [(Level::Info, "worker 77: a?[2Jb?c\u{fffd}??".to_owned())]);
}

#[test]
fn long_lines_are_cut() {
    let mut bytes = vec![b'x'; 1 << 20];
    bytes.extend(b"\nE next\n");
    let lines = logged(&bytes, None, &mut unlimited());
    assert_eq!((lines.len(), lines[0].1.len()), (2, "worker 77: ".len() + MAX_LINE));
    assert_eq!(lines[1].1, "worker 77: next");
}

#[test]
fn floods_are_left_out_and_counted() {
    let mut loud = Allowance::new(2, Duration::from_secs(3600));
    assert_eq!(logged(&b"E again\n".repeat(1000), None, &mut loud).len(), 2);
    assert_eq!(loud.dropped, 998);
    loud.left = 1;
    let lines = logged(b"E once more\n", None, &mut loud);
    assert_eq!(lines[0].1, "998 messages of workers were left out: too many at a time");
    assert_eq!(lines.len(), 2);
    // Debugging messages have a limit of their own.
    assert_eq!(logged(&b"D again\n".repeat(1000), None, &mut loud).len(), 3);
}

#[test]
fn allowances_come_back_with_time() {
    let start = Instant::now();
    let mut allowance = Allowance::new(2, Duration::from_secs(1));
    allowance.since = start;
    let taken =
        |allowance: &mut Allowance, after| allowance.take(start + Duration::from_millis(after)).is_some();
    assert!(taken(&mut allowance, 0) && taken(&mut allowance, 0) && !taken(&mut allowance, 900));
    assert!(taken(&mut allowance, 1100) && !taken(&mut allowance, 1100));
    assert!(taken(&mut allowance, 60_000) && taken(&mut allowance, 60_000) && !taken(&mut allowance, 60_000));
}

#[test]
fn a_worker_that_has_ended_leaves_no_pipe() {
    let messages = Messages::start().unwrap();
    let (pipe, mut writer) = Messages::pipe().unwrap();
    let attached = messages.attach(pipe, 77).unwrap();
    writer.write_all(b"D half a line").unwrap();
    drop(attached);
    // The writer's end is still open, as in a process that the worker has left.
    let error = until_let_go(|| writer.write(b"more").err());
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert!(messages.0.lock().by_id.is_empty());
}
