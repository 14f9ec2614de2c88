// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prometheus' text format (exposition format 0.0.4).

use std::fmt::{Display, Write};

use vhost_cuda_common::statistics::{Gate, Totals};

use crate::sessions::report::{DaemonReport, DeviceReport, SessionReport};
use crate::shares::arbiter;
use crate::shares::client::ShareReport;

/// A metric of connections: name, type, help, value.
type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<f64>);

const OF_CONNECTIONS: [Metric<DeviceReport>; 14] = [
    ("vhost_cuda_sessions", "gauge", "Open sessions", |device| Some(device.sessions.len() as f64)),
    ("vhost_cuda_calls_total", "counter", "CUDA calls that were executed", |device| {
        Some(sum(device, |totals| totals.calls))
    }),
    ("vhost_cuda_failed_calls_total", "counter", "CUDA calls that answered an error", |device| {
        Some(sum(device, |totals| totals.failed))
    }),
    ("vhost_cuda_in_bytes_total", "counter", "Bulk data that calls read from the guest", |device| {
        Some(sum(device, |totals| totals.bytes_in))
    }),
    ("vhost_cuda_out_bytes_total", "counter", "Bulk data that calls wrote to the guest", |device| {
        Some(sum(device, |totals| totals.bytes_out))
    }),
    ("vhost_cuda_queued_requests_total", "counter", "Requests that came through request queues", |device| {
        Some(sum(device, |totals| totals.queued))
    }),
    ("vhost_cuda_queue_wait_seconds_total", "counter", "Time that requests waited in workers", |device| {
        Some(sum(device, |totals| totals.queued_ns) / 1e9)
    }),
    (
        "vhost_cuda_lane_wait_samples_total",
        "counter",
        "Records of lanes of which the wait was measured",
        |device| Some(sum(device, |totals| totals.lane_samples)),
    ),
    ("vhost_cuda_lane_wait_seconds_total", "counter", "Time that these records waited", |device| {
        Some(sum(device, |totals| totals.lane_ns) / 1e9)
    }),
    ("vhost_cuda_suspended_wait_seconds_total", "counter", "Time that calls waited for memory", |device| {
        Some(sum(device, |totals| totals.gate_ns[Gate::Suspended as usize]) / 1e9)
    }),
    ("vhost_cuda_turn_wait_seconds_total", "counter", "Time that calls waited for a turn", |device| {
        Some(sum(device, |totals| totals.gate_ns[Gate::Turn as usize]) / 1e9)
    }),
    ("vhost_cuda_gpu_busy_seconds_total", "counter", "Time in which GPUs executed kernels", |device| {
        let all = device.sessions.iter().map(|session| &session.totals).chain([&device.ended]);
        all.filter_map(|totals| totals.gpu_busy_ns).reduce(u64::saturating_add).map(|ns| ns as f64 / 1e9)
    }),
    ("vhost_cuda_device_memory_bytes", "gauge", "Device memory that sessions are charged for", |device| {
        Some(device.sessions.iter().map(|session| session.totals.device_memory as f64).sum())
    }),
    ("vhost_cuda_outstanding_requests", "gauge", "Requests in queues without an answer", |device| {
        Some(device.sessions.iter().map(|session| session.outstanding as f64).sum())
    }),
];

const OF_SESSIONS: [Metric<SessionReport>; 22] = [
    ("vhost_cuda_session_calls_total", "counter", "CUDA calls that were executed", |session| {
        Some(session.totals.calls as f64)
    }),
    ("vhost_cuda_session_failed_calls_total", "counter", "CUDA calls that answered an error", |session| {
        Some(session.totals.failed as f64)
    }),
    ("vhost_cuda_session_in_bytes_total", "counter", "Bulk data that calls read from the guest", |session| {
        Some(session.totals.bytes_in as f64)
    }),
    ("vhost_cuda_session_out_bytes_total", "counter", "Bulk data that calls wrote to the guest", |session| {
        Some(session.totals.bytes_out as f64)
    }),
    ("vhost_cuda_session_queued_requests_total", "counter", "Requests through request queues", |session| {
        Some(session.totals.queued as f64)
    }),
    ("vhost_cuda_session_queue_wait_seconds_total", "counter", "Time that requests waited", |session| {
        Some(session.totals.queued_ns as f64 / 1e9)
    }),
    (
        "vhost_cuda_session_lane_wait_samples_total",
        "counter",
        "Records of which the wait was measured",
        |session| Some(session.totals.lane_samples as f64),
    ),
    ("vhost_cuda_session_lane_wait_seconds_total", "counter", "Time that these records waited", |session| {
        Some(session.totals.lane_ns as f64 / 1e9)
    }),
    (
        "vhost_cuda_session_suspended_wait_seconds_total",
        "counter",
        "Time that calls waited for memory",
        |session| Some(session.totals.gate_ns[Gate::Suspended as usize] as f64 / 1e9),
    ),
    (
        "vhost_cuda_session_turn_wait_seconds_total",
        "counter",
        "Time that calls waited for a turn",
        |session| Some(session.totals.gate_ns[Gate::Turn as usize] as f64 / 1e9),
    ),
    (
        "vhost_cuda_session_gpu_busy_seconds_total",
        "counter",
        "Time in which GPUs executed kernels",
        |session| session.totals.gpu_busy_ns.map(|ns| ns as f64 / 1e9),
    ),
    ("vhost_cuda_session_device_memory_bytes", "gauge", "Device memory that is charged", |session| {
        Some(session.totals.device_memory as f64)
    }),
    ("vhost_cuda_session_age_seconds", "gauge", "Time since the session was opened", |session| {
        Some(session.age.as_secs_f64())
    }),
    ("vhost_cuda_session_cpu_seconds_total", "counter", "CPU time of the worker on the host", |session| {
        session.process.map(|process| process.cpu_seconds)
    }),
    ("vhost_cuda_session_resident_bytes", "gauge", "Resident memory of the worker on the host", |session| {
        session.process.map(|process| process.resident_bytes as f64)
    }),
    ("vhost_cuda_session_on_card_bytes", "gauge", "Device memory that is on the card", |session| {
        Some(session.resident_bytes() as f64)
    }),
    ("vhost_cuda_session_suspended_bytes", "gauge", "Device memory that is in host memory", |session| {
        Some(session.moves.suspended_bytes as f64)
    }),
    ("vhost_cuda_session_stored_bytes", "gauge", "Host memory of suspended contents", |session| {
        Some(session.moves.stored_bytes as f64)
    }),
    ("vhost_cuda_session_ready_bytes", "gauge", "Host memory that is ready for contents", |session| {
        Some(session.ready_memory as f64)
    }),
    ("vhost_cuda_session_suspensions_total", "counter", "Moves to host memory", |session| {
        Some(session.moves.suspensions as f64)
    }),
    ("vhost_cuda_session_resumes_total", "counter", "Moves back to the card", |session| {
        Some(session.moves.resumes as f64)
    }),
    ("vhost_cuda_session_moving_seconds_total", "counter", "Time that moves have taken", |session| {
        Some(session.moves.moving.as_secs_f64())
    }),
];

/// The metric with a session's state as a label.
const STATE: &str = "vhost_cuda_session_state";

/// Writes all metrics.
pub fn write(daemon: &DaemonReport, share: Option<&ShareReport>, devices: &[DeviceReport]) -> String {
    let mut text = Text::default();
    text.head("vhost_cuda_build_info", "gauge", "Version of the daemon");
    text.line("vhost_cuda_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1.0);
    text.head("vhost_cuda_workers", "gauge", "Workers without a session");
    text.line("vhost_cuda_workers", &[("state", &"warm")], daemon.warm_workers as f64);
    text.line("vhost_cuda_workers", &[("state", &"starting")], daemon.starting_workers as f64);
    text.head("vhost_cuda_worker_starts_total", "counter", "Workers that were started");
    text.line("vhost_cuda_worker_starts_total", &[], daemon.started_workers as f64);
    text.head("vhost_cuda_worker_failures_total", "counter", "Workers that did not come up");
    text.line("vhost_cuda_worker_failures_total", &[], daemon.failed_workers as f64);
    if let Some(share) = share {
        text.share(share);
    }
    for (name, kind, help, value) in OF_CONNECTIONS {
        text.head(name, kind, help);
        for device in devices {
            text.maybe(name, &[("connection", &device.connection)], value(device));
        }
    }
    text.head("vhost_cuda_sessions_ended_total", "counter", "Sessions that have ended");
    for device in devices {
        for (how, count) in [("closed", device.closed), ("lost", device.lost)] {
            let labels: [(&str, &dyn Display); 2] = [("connection", &device.connection), ("how", &how)];
            text.line("vhost_cuda_sessions_ended_total", &labels, count as f64);
        }
    }
    text.head("vhost_cuda_refused_total", "counter", "Sessions and requests that were refused");
    for device in devices {
        for (reason, count) in &device.refused {
            let reason = reason.name();
            let labels: [(&str, &dyn Display); 2] = [("connection", &device.connection), ("reason", &reason)];
            text.line("vhost_cuda_refused_total", &labels, *count as f64);
        }
    }
    for (name, kind, help, value) in OF_SESSIONS {
        text.head(name, kind, help);
        for (connection, session) in sessions_of(devices) {
            text.maybe(name, &labels(&connection, session), value(session));
        }
    }
    text.head(STATE, "gauge", "1 for the state of the session's device memory");
    for (connection, session) in sessions_of(devices) {
        let state = session.moves.state();
        let [a, b, c, d, e] = labels(&connection, session);
        text.line(STATE, &[a, b, c, d, e, ("state", &state)], 1.0);
    }
    text.0
}

fn sessions_of(devices: &[DeviceReport]) -> impl Iterator<Item = (u64, &SessionReport)> {
    devices.iter().flat_map(|device| device.sessions.iter().map(|session| (device.connection, session)))
}

/// The labels of a session's metrics.
fn labels<'a>(connection: &'a u64, session: &'a SessionReport) -> [(&'static str, &'a dyn Display); 5] {
    [
        ("connection", connection),
        ("session", &session.label),
        ("program", &session.program),
        ("pid", &session.pid),
        ("uid", &session.uid),
    ]
}

/// Returns the sum over open sessions and those that have ended.
fn sum(device: &DeviceReport, counter: fn(&Totals) -> u64) -> f64 {
    let open = device.sessions.iter().map(|session| counter(&session.totals) as f64).sum::<f64>();
    open + counter(&device.ended) as f64
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn share(&mut self, share: &ShareReport) {
        self.head(
            "vhost_cuda_gpu_share_weight",
            "gauge",
            "Weight where virtual machines compete for GPU time",
        );
        self.line("vhost_cuda_gpu_share_weight", &[], f64::from(share.weight));
        self.head(
            "vhost_cuda_gpu_arbiter_connected",
            "gauge",
            "1 while the arbiter of GPU time is connected",
        );
        self.line("vhost_cuda_gpu_arbiter_connected", &[], f64::from(u8::from(share.connected)));
        let help = "GPU time that was used while virtual machines competed";
        self.head("vhost_cuda_gpu_contended_seconds_total", "counter", help);
        for (gpu, usage) in &share.usage {
            let labels: [(&str, &dyn Display); 1] = [("gpu", &arbiter::name(gpu))];
            self.line("vhost_cuda_gpu_contended_seconds_total", &labels, usage.used as f64 / 1e9);
        }
        let help = "Time for which work for the GPU was held back in favour of other virtual machines";
        self.head("vhost_cuda_gpu_held_seconds_total", "counter", help);
        for (gpu, usage) in &share.usage {
            let labels: [(&str, &dyn Display); 1] = [("gpu", &arbiter::name(gpu))];
            self.line("vhost_cuda_gpu_held_seconds_total", &labels, usage.held as f64 / 1e9);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    }

    fn maybe(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: Option<f64>) {
        if let Some(value) = value {
            self.line(name, labels, value);
        }
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"");
            self.escaped(&value.to_string());
            self.0.push('"');
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    /// Writes a value with escapes, because a guest chooses the names of programs.
    fn escaped(&mut self, value: &str) {
        for letter in value.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                letter => self.0.push(letter),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sessions::report::Refusals;
    use crate::sessions::residence::{Moves, Phase};

    fn session(program: &str, calls: u64) -> SessionReport {
        SessionReport {
            label: 3,
            program: program.to_owned(),
            pid: 100,
            uid: 1000,
            age: Duration::from_secs(2),
            outstanding: 1,
            totals: Totals {
                calls,
                device_memory: 1 << 20,
                gpu_busy_ns: Some(1_500_000_000),
                ..Totals::default()
            },
            process: None,
            ready_memory: 0,
            moves: Moves { phase: Phase::Suspended, suspended_bytes: 3 << 20, ..Moves::default() },
        }
    }

    fn device(sessions: Vec<SessionReport>) -> DeviceReport {
        DeviceReport {
            connection: 7,
            sessions,
            ended: Totals {
                calls: 10,
                queued_ns: 500_000_000,
                gpu_busy_ns: Some(2_000_000_000),
                ..Totals::default()
            },
            closed: 2,
            lost: 1,
            refused: Refusals::default().counts().collect(),
        }
    }

    #[test]
    fn sessions_and_their_sums_are_written() {
        let text = write(&DaemonReport::default(), None, &[device(vec![session("a", 5), session("b", 6)])]);
        for line in [
            "# TYPE vhost_cuda_calls_total counter",
            "vhost_cuda_sessions{connection=\"7\"} 2",
            "vhost_cuda_calls_total{connection=\"7\"} 21",
            "vhost_cuda_device_memory_bytes{connection=\"7\"} 2097152",
            "vhost_cuda_queue_wait_seconds_total{connection=\"7\"} 0.5",
            "vhost_cuda_gpu_busy_seconds_total{connection=\"7\"} 5",
            "vhost_cuda_sessions_ended_total{connection=\"7\",how=\"lost\"} 1",
            "vhost_cuda_session_calls_total{connection=\"7\",session=\"3\",program=\"a\",pid=\"100\",uid=\"1000\"} 5",
            "vhost_cuda_session_on_card_bytes{connection=\"7\",session=\"3\",program=\"a\",pid=\"100\",uid=\"1000\"} 0",
            "vhost_cuda_session_suspended_bytes{connection=\"7\",session=\"3\",program=\"a\",pid=\"100\",uid=\"1000\"} 3145728",
            "vhost_cuda_session_state{connection=\"7\",session=\"3\",program=\"a\",pid=\"100\",uid=\"1000\",state=\"suspended\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.lines().any(|line| line.starts_with("vhost_cuda_session_cpu_seconds_total{")));
    }

    #[test]
    fn a_program_cannot_write_lines_of_its_own() {
        let text = write(&DaemonReport::default(), None, &[device(vec![session("x\"} 1\nfake{y=\"\\", 0)])]);
        assert!(!text.lines().any(|line| line.starts_with("fake")), "{text}");
        assert!(text.contains("program=\"x\\\"} 1\\nfake{y=\\\"\\\\\""), "{text}");
    }
}
