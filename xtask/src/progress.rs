// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows the progress of long work: one line per step, with the details in a log file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

/// Lines of the log that a failure shows.
const SHOWN_LOG_LINES: usize = 20;

/// One named thing that is being done.
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
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {prefix:14} {elapsed:>4} {wide_msg:.dim}")?;
        bar.set_style(style);
        bar.set_prefix(name.to_owned());
        Ok(Self { name: name.to_owned(), log, bar, started: Instant::now() })
    }

    /// Says what is going on now; without a terminal this is a line of its own.
    pub fn note(&self, text: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(Duration::from_millis(200));
            self.bar.set_message(text.to_owned());
        } else {
            eprintln!("  {:14} {text}", self.name);
        }
    }

    /// Runs `command` with its output in the log. A failure shows the end of that.
    pub fn run(&self, command: &mut Command) -> Result<()> {
        let (reader, writer) = pipe().context("Cannot create a pipe")?;
        let mut log = File::options().append(true).open(&self.log)?;
        writeln!(log, "$ {command:?}")?;
        command.stdin(std::process::Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("Cannot start {program}"))?;
        // The command keeps the write ends of the pipe, which would never end.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
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
        eprintln!("{:16} {what}  {}", self.name, duration(seconds));
    }

    /// Ends a step that had nothing to do.
    pub fn cached(self, what: &str) {
        self.bar.finish_and_clear();
        eprintln!("{:16} {what}  cached", self.name);
    }

    /// Where the step's commands write.
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
    }
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
