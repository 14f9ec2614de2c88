// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows the progress of long work: one line per step, with the details in a log file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, PipeReader, Read, Seek, Write, pipe};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Lines of the log that a failure shows.
const SHOWN_LOG_LINES: usize = 20;

/// The terminal's lines of all steps in progress.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// One named thing that is being done, beside others if they have threads of their own.
pub struct Step {
    name: String,
    log: PathBuf,
    bar: ProgressBar,
    started: Instant,
}

impl Step {
    /// Starts the step `name`; the output of its commands goes to `<log_directory>/<name>.log`.
    pub fn new(name: &str, log_directory: &Path) -> Result<Self> {
        fs::create_dir_all(log_directory)
            .with_context(|| format!("Cannot create the log folder {}", log_directory.display()))?;
        let log = log_directory.join(format!("{name}.log"));
        File::create(&log).with_context(|| format!("Cannot write {}", log.display()))?;
        let bar = BARS.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{spinner} {prefix:14} {elapsed:>4} {wide_msg:.dim}")?;
        bar.set_style(style);
        bar.set_prefix(name.to_owned());
        Ok(Self { name: name.to_owned(), log, bar, started: Instant::now() })
    }

    /// Reports what is going on now; without a terminal this is a line of its own.
    pub fn note(&self, text: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(Duration::from_millis(200));
            self.bar.set_message(text.to_owned());
        } else {
            say(&format!("  {:14} {text}", self.name));
        }
    }

    /// Runs `command` with its output in the log. A failure shows the end of that.
    pub fn run(&self, command: &mut Command) -> Result<()> {
        let (reader, writer) = pipe().context("Cannot create a pipe")?;
        command.stdout(writer.try_clone()?).stderr(writer);
        self.watch(command, reader)
    }

    /// Runs `command` with its error output in the log. Returns its standard output.
    pub fn output(&self, command: &mut Command) -> Result<String> {
        let (reader, writer) = pipe().context("Cannot create a pipe")?;
        let mut file = tempfile::tempfile().context("Cannot create a temporary file")?;
        command.stdout(file.try_clone()?).stderr(writer);
        self.watch(command, reader)?;
        file.rewind()?;
        let mut output = String::new();
        file.read_to_string(&mut output)?;
        Ok(output)
    }

    /// Runs `command`, whose messages `reader` brings, to its end.
    fn watch(&self, command: &mut Command, reader: PipeReader) -> Result<()> {
        let mut log = File::options().append(true).open(&self.log)?;
        writeln!(log, "$ {command:?}")?;
        command.stdin(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("Cannot start {program}"))?;
        // The command keeps the write ends of the pipe, which would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        for line in BufReader::new(reader).split(b'\n') {
            let line = line?;
            log.write_all(&line)?;
            log.write_all(b"\n")?;
            self.bar.set_message(String::from_utf8_lossy(&line).trim().to_owned());
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("{program} failed ({status})\n{}", self.log_end());
        }
        Ok(())
    }

    /// Ends the step with one line: name, `what`, and how long it took.
    pub fn done(self, what: &str) {
        self.bar.finish_and_clear();
        let seconds = self.started.elapsed();
        say(&format!("{:16} {what}  {}", self.name, duration(seconds)));
    }

    /// Ends a step that had nothing to do.
    pub fn cached(self, what: &str) {
        self.bar.finish_and_clear();
        say(&format!("{:16} {what}  cached", self.name));
    }

    /// The file to which the step's commands write.
    pub fn log(&self) -> &Path {
        &self.log
    }

    fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(SHOWN_LOG_LINES);
        format!("{}\nThe whole log: {}", lines[first..].join("\n"), self.log.display())
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        BARS.remove(&self.bar);
    }
}

/// Prints a line on stderr, above the lines of the steps in progress.
pub fn say(line: &str) {
    BARS.suspend(|| eprintln!("{line}"));
}

/// Runs jobs concurrently, each in a thread of its own. Waits for all of them, and returns the error of the first in
/// the list.
pub fn side_by_side<'a>(jobs: Vec<Box<dyn FnOnce() -> Result<()> + Send + 'a>>) -> Result<()> {
    let results = thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    results.into_iter().collect()
}

/// `0.4 s`, `12.0 s` or `3m12s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{}m{:02}s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

/// The standard output of `command`, without the line end; an error if it fails.
pub fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("Cannot start {program}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed ({}): {}", output.status, error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_run_side_by_side_and_all_end() {
        let (ended, (sender, receiver)) = (&Mutex::new(0), channel());
        let error = side_by_side(vec![
            Box::new(move || {
                // Only a job beside this one can send.
                receiver.recv_timeout(Duration::from_secs(60))?;
                *ended.lock().unwrap() += 1;
                bail!("first in the list")
            }),
            Box::new(move || Ok(sender.send(())?)),
            Box::new(|| {
                *ended.lock().unwrap() += 1;
                bail!("second in the list")
            }),
        ]);
        assert_eq!(error.unwrap_err().to_string(), "first in the list");
        assert_eq!(*ended.lock().unwrap(), 2);
    }

    #[test]
    fn output_and_messages_are_kept_apart() {
        let logs = tempfile::tempdir().unwrap();
        let step = Step::new("sh", logs.path()).unwrap();
        let output = step.output(Command::new("sh").args(["-c", "echo result; echo message >&2"])).unwrap();
        assert_eq!(output, "result\n");
        let log = fs::read_to_string(step.log()).unwrap();
        assert!(log.ends_with("\nmessage\n"), "{log}");
        let error = step.output(Command::new("sh").args(["-c", "echo reason >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("reason"), "{error}");
    }
}
