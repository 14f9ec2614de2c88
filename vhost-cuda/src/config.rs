// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file: the options of the command line, in TOML.
//!
//! Each entry becomes an option before those of the command line. So names and values are checked in one place, and
//! the command line takes precedence.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgAction, CommandFactory};
use toml::{Table, Value};

use crate::args::Args;

/// Returns the arguments of this process, including those of the configuration file that they refer to.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> anyhow::Result<Vec<OsString>> {
    let mut given: Vec<OsString> = given.into_iter().collect();
    if let Some(path) = file_in(&given) {
        let text = std::fs::read_to_string(&path).with_context(|| format!("--config {}", path.display()))?;
        let options = options(&text).with_context(|| format!("--config {}", path.display()))?;
        given.splice(1..1, options);
    }
    Ok(given)
}

/// Returns the file of the option `--config`.
fn file_in(given: &[OsString]) -> Option<PathBuf> {
    let mut words = given.iter().skip(1);
    let mut found = None;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--config" {
            found = words.next().map(PathBuf::from);
        } else if let Some(path) = text.strip_prefix("--config=") {
            found = Some(Path::new(path).to_path_buf());
        }
    }
    found
}

/// Returns the options in a file.
fn options(text: &str) -> anyhow::Result<Vec<OsString>> {
    let table: Table = text.parse()?;
    let command = Args::command();
    let is_flag = |name: &str| {
        let mut known = command.get_arguments();
        known.any(|known| known.get_long() == Some(name) && matches!(known.get_action(), ArgAction::SetTrue))
    };
    let mut options = Vec::new();
    for (name, value) in table {
        let value = match value {
            Value::Boolean(is_set) if is_flag(&name) => {
                options.extend(is_set.then(|| format!("--{name}").into()));
                continue;
            }
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(value) => value.to_string(),
            Value::Array(values) => list(&values).with_context(|| format!("`{name}`"))?,
            other => bail!("`{name}` is a {}: use a text, a number, true or false", other.type_str()),
        };
        if name == "config" {
            bail!("a configuration file cannot name another one");
        }
        options.push(format!("--{name}={value}").into());
    }
    Ok(options)
}

/// Joins values with commas, as for `gpus`.
fn list(values: &[Value]) -> anyhow::Result<String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        other => bail!("has a {} in its list", other.type_str()),
    };
    Ok(values.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::io::Write;
    use vmm_sys_util::tempfile::TempFile;

    fn with_file(text: &str, more: &[&str]) -> anyhow::Result<Args> {
        let file = TempFile::new().unwrap();
        file.as_file().write_all(text.as_bytes()).unwrap();
        let mut given: Vec<OsString> = vec!["vhost-user-cuda".into(), "--config".into()];
        given.push(file.as_path().into());
        given.extend(more.iter().map(OsString::from));
        Ok(Args::try_parse_from(arguments(given)?)?)
    }

    #[test]
    fn a_file_has_options_and_the_command_line_goes_before() {
        let text = "socket-path = \"/run/one.sock\"\nmemory = \"40G\"\nmax-sessions = 8\nsingle = false\ngpus = [0, \"GPU-1\"]";
        let args = with_file(text, &["--memory=2G"]).unwrap().daemon;
        assert_eq!(args.socket_path, Some("/run/one.sock".into()));
        assert_eq!((args.memory, args.max_sessions, args.single), (Some(2 << 30), 8, false));
        assert_eq!(args.gpus.as_deref(), Some("0,GPU-1"));
    }

    #[test]
    fn flags_are_true_or_false() {
        let args =
            with_file("nccl = true\nlose-sessions = false\nsingle = true", &["--nccl"]).unwrap().daemon;
        assert_eq!((args.nccl, args.lose_sessions, args.single), (true, false, true));
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for (text, said) in [
            ("memroy = \"1G\"", "--memroy"),
            ("memory = \"much\"", "much"),
            ("memory = 1.5", "`memory` is a float"),
            ("[limits]\nmemory = 1", "`limits` is a table"),
            ("config = \"another\"", "another one"),
            ("memory =", "--config"),
        ] {
            let error = format!("{:#}", with_file(text, &[]).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
        let error = arguments(["x", "--config=/nonexistent"].map(OsString::from)).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent"));
    }

    #[test]
    fn without_a_file_nothing_changes() {
        let given = ["x", "worker", "--link-fd", "3"].map(OsString::from);
        assert_eq!(arguments(given.clone()).unwrap(), given);
    }
}
