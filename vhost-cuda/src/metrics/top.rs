// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-user-cuda top`: the sessions of a daemon in a terminal.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::server::PAGE;
use crate::socket::Address;

/// The maximum size of an answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// The time limit for the daemon's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clears a terminal, and moves the cursor to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The common prefix of the metrics of sessions.
const PREFIX: &str = "vhost_cuda_session_";

/// Fetches the page of metrics.
pub fn fetch(address: &Address) -> Result<String> {
    let answer = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            ask(stream)
        }
        Address::Loopback(at) => {
            let stream = TcpStream::connect_timeout(at, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            ask(stream)
        }
    }?;
    let (head, body) = answer.split_once("\r\n\r\n").context("The answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "The answer is: {status}");
    Ok(body.to_owned())
}

/// Requests the page with HTTP 1.0, so that the answer ends with the connection.
fn ask(mut stream: impl Read + Write) -> io::Result<String> {
    write!(stream, "GET {PAGE} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Metrics of a session, by name.
type Figures = BTreeMap<String, f64>;

/// Identifies a session: connection, number, program, process, user.
type Name = [String; 5];

/// The common prefix of the metrics of the machine's share of GPU time.
const SHARE_PREFIX: &str = "vhost_cuda_gpu_";

/// The metrics of a daemon at one moment.
struct Look {
    at: Instant,
    /// The values by metric, and by GPU for metrics per GPU.
    share: BTreeMap<(String, String), f64>,
    sessions: BTreeMap<Name, Figures>,
}

impl Look {
    fn at(address: &Address) -> Result<Self> {
        let text = fetch(address).with_context(|| format!("Cannot read metrics from {address}"))?;
        Ok(Self { at: Instant::now(), share: share(&text), sessions: sessions(&text) })
    }
}

fn sessions(text: &str) -> BTreeMap<Name, Figures> {
    let mut sessions: BTreeMap<Name, Figures> = BTreeMap::new();
    for line in text.lines() {
        let Some((metric, rest)) = line.strip_prefix(PREFIX).and_then(|line| line.split_once('{')) else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let name = ["connection", "session", "program", "pid", "uid"].map(|label| value_of(labels, label));
        let value = value.parse().unwrap_or_default();
        let metric = match metric {
            STATE => format!("{STATE} {}", value_of(labels, STATE)),
            _ => metric.to_owned(),
        };
        sessions.entry(name).or_default().insert(metric, value);
    }
    sessions
}

/// The metric with the state as a label, and with the label's value in [`Figures`].
const STATE: &str = "state";

/// Returns the state of a session's device memory.
fn state_of(figures: &Figures) -> &str {
    figures.keys().find_map(|metric| metric.strip_prefix(STATE)).map_or("", str::trim_start)
}

fn share(text: &str) -> BTreeMap<(String, String), f64> {
    let of = |line: &str| {
        let (metric, value) = line.strip_prefix(SHARE_PREFIX)?.rsplit_once(' ')?;
        let (metric, labels) = metric.split_once('{').unwrap_or((metric, ""));
        Some(((metric.to_owned(), value_of(labels, "gpu")), value.parse().ok()?))
    };
    text.lines().filter_map(of).collect()
}

/// Formats the machine's share of GPU time. Empty without an arbiter.
fn share_lines(before: &Look, now: &Look, seconds: f64) -> String {
    let figure = |metric: &str| now.share.get(&(metric.to_owned(), String::new()));
    let Some(weight) = figure("share_weight") else { return String::new() };
    let arbiter = if figure("arbiter_connected") == Some(&0.0) { ", no arbiter" } else { "" };
    let mut text = format!("GPU share: weight {weight}{arbiter}\n");
    for ((metric, gpu), used) in &now.share {
        if metric != "contended_seconds_total" {
            continue;
        }
        let rate = |metric: &str, now_is: f64| {
            let key = (metric.to_owned(), gpu.clone());
            100.0 * (now_is - before.share.get(&key).copied().unwrap_or(now_is)).max(0.0) / seconds
        };
        let held = "held_seconds_total";
        let held_is = now.share.get(&(held.to_owned(), gpu.clone())).copied().unwrap_or_default();
        let (used, held) = (rate(metric, *used), rate(held, held_is));
        text += &format!("{gpu}: {used:.1} % used against others, {held:.1} % of the time held back\n");
    }
    text
}

/// Returns a label's value, still with the escapes of the format. A guest's text inside another value cannot be taken
/// for a label, because its quotes are escaped.
fn value_of(labels: &str, label: &str) -> String {
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = after.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        if name == label {
            return after[..end].to_owned();
        }
        rest = after[end + 1..].trim_start_matches(',');
    }
    String::new()
}

/// Prints the sessions every `interval`, `count` times or without an end.
pub fn run(address: &Address, interval: Duration, count: Option<u64>) -> Result<()> {
    let mut before = Look::at(address)?;
    let mut output = io::stdout();
    for _ in 0..count.unwrap_or(u64::MAX) {
        thread::sleep(interval);
        let now = Look::at(address)?;
        let clear = if output.is_terminal() { CLEAR } else { "" };
        write!(output, "{clear}{}", table(&before, &now))?;
        output.flush()?;
        before = now;
    }
    Ok(())
}

fn table(before: &Look, now: &Look) -> String {
    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
    let mut text = share_lines(before, now, seconds);
    text += &format!(
        "{:>4} {:>7} {:<16} {:>7} {:>6} {:>10} {:>8} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9} {:>10} {:>8}\n",
        "conn",
        "session",
        "program",
        "pid",
        "uid",
        "calls/s",
        "failed/s",
        "in MB/s",
        "out MB/s",
        "cpu %",
        "gpu %",
        "GPU MiB",
        "susp MiB",
        "state",
        "age s"
    );
    for (name, figures) in &now.sessions {
        let figure = |metric: &str| figures.get(metric).copied().unwrap_or_default();
        // A session that was opened since the last update began at zero.
        let earlier = |metric: &str| {
            before.sessions.get(name).and_then(|then| then.get(metric)).copied().unwrap_or_default()
        };
        let rate = |metric: &str| (figure(metric) - earlier(metric)).max(0.0) / seconds;
        let gpu = figures.contains_key("gpu_busy_seconds_total");
        let gpu = if gpu { format!("{:.0}", 100.0 * rate("gpu_busy_seconds_total")) } else { "-".into() };
        let [connection, session, program, pid, uid] = name;
        text += &format!(
            "{connection:>4} {session:>7} {program:<16} {pid:>7} {uid:>6} {:>10.0} {:>8.0} {:>9.1} {:>9.1} {:>6.0} {gpu:>6} {:>9.0} {:>9.0} {:>10} {:>8.0}\n",
            rate("calls_total"),
            rate("failed_calls_total"),
            rate("in_bytes_total") / 1e6,
            rate("out_bytes_total") / 1e6,
            100.0 * rate("cpu_seconds_total"),
            figure("on_card_bytes") / f64::from(1 << 20),
            figure("suspended_bytes") / f64::from(1 << 20),
            state_of(figures),
            figure("age_seconds"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Instant, calls: u64) -> Look {
        let labels = r#"connection="1",session="2",program="a\",pid=\"9",pid="10",uid="0""#;
        let text = format!(
            "# HELP x\nvhost_cuda_sessions{{connection=\"1\"}} 1\nvhost_cuda_session_calls_total{{{labels}}} {calls}\n\
             vhost_cuda_session_on_card_bytes{{{labels}}} 2097152\n\
             vhost_cuda_session_suspended_bytes{{{labels}}} 1048576\n\
             vhost_cuda_session_state{{{labels},state=\"suspended\"}} 1\n"
        );
        Look { at, share: BTreeMap::new(), sessions: sessions(&text) }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let start = Instant::now();
        let text = table(&look(start, 100), &look(start + Duration::from_secs(2), 300));
        let fields: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(fields[..6], ["1", "2", r#"a\",pid=\"9"#, "10", "0", "100"], "{text}");
        assert_eq!(fields[10..14], ["-", "2", "1", "suspended"], "{text}");
    }

    #[test]
    fn the_share_of_gpu_time_comes_first() {
        let start = Instant::now();
        let look = |at, used: f64| {
            let text = format!(
                "vhost_cuda_gpu_share_weight 300\nvhost_cuda_gpu_arbiter_connected 1\n\
                 vhost_cuda_gpu_contended_seconds_total{{gpu=\"GPU-1\"}} {used}\n\
                 vhost_cuda_gpu_held_seconds_total{{gpu=\"GPU-1\"}} 1\n"
            );
            Look { at, share: share(&text), sessions: BTreeMap::new() }
        };
        let text = table(&look(start, 1.0), &look(start + Duration::from_secs(2), 2.5));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "GPU share: weight 300");
        assert_eq!(lines[1], "GPU-1: 75.0 % used against others, 0.0 % of the time held back");
    }
}
