// SPDX-License-Identifier: Apache-2.0 OR MIT

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::args::Args;
use crate::hand_over::files::Leaving;

fn args(more: &[&str]) -> DaemonArgs {
    // A library that every host has.
    let words = ["vhost-user-cuda", "--device", "/proc/self/exe"];
    Args::parse_from(words.iter().chain(more)).daemon
}

fn state() -> State {
    let mut files = Leaving::default();
    let number = files.add(&std::io::stderr());
    let common = Common {
        program: "/usr/bin/vhost-user-cuda".into(),
        options: vec!["--single".into()],
        executable: number,
        listener: number,
        socket: Some("/run/socket".into()),
        control: None,
        cgroups: None,
    };
    State::new(&common, &args(&[]))
}

/// A device with a session, as JSON.
fn with_device(link_version: u32) -> Value {
    let mut value = serde_json::to_value(state()).unwrap();
    let moves = serde_json::to_value(crate::sessions::residence::Moves::default()).unwrap();
    let totals = serde_json::to_value(vhost_cuda_common::statistics::Totals::default()).unwrap();
    value["devices"] = json!([{
        "connection": 1,
        "relay": {
            "front_end": 9,
            "requests": {"bytes": [], "files": []},
            "record": {"device": [], "queues": [], "regions": []},
        },
        "rings": [{"next_avail": 7, "stopped_at": null}],
        "sessions": [{
            "session": {
                "id": u64::MAX, "label": 1, "uid": 0,
                "place": {"charged_uid": 0, "account": null, "in_group": false},
                "worker": {
                    "version": link_version, "pid": 2, "process": 10, "mapper": null, "link": 11, "images": 12,
                    "exchange": 13, "counters": 14, "listener": null, "messages": null, "enrolment": null,
                },
                "residence": {"moves": moves, "wakes": 0, "charged_bytes": 0, "kept_for": null},
                "program": "python3", "pid": 3, "begun": 4, "next_request": 4, "calls": 1, "bytes_in": 0,
                "bytes_out": 0, "maps_memory": true, "age": {"secs": 1, "nanos": 0}, "gpu_busy_ns": null,
                "profile": null, "recipe": 4,
                "named": {
                    "held": [[{"Kept": 1}, {"read": [], "written": [{"file": [1, 2], "start": 0, "end": 4096}]}]],
                    "present": [[16, [1, 2], true]], "gone": [], "count": 1,
                },
            },
            "offers": [],
            "ages": {"calls": 1, "idle": {"secs": 1, "nanos": 0}, "tried": null},
        }],
        "driver_version": 2, "lost": [5], "is_paused": false,
        "ended": {"closed": 1, "lost": 0, "totals": totals},
        "refusals": [0], "account": null, "memory_files": [[1, 2]],
    }]);
    value
}

fn parse(value: &Value) -> anyhow::Result<State> {
    State::parse(&serde_json::to_vec(value).unwrap())
}

#[test]
fn a_state_comes_back_as_it_was() {
    let written = parse(&with_device(vhost_cuda_common::link::VERSION)).unwrap();
    let file = written.write().unwrap();
    assert_eq!(State::read(&file).unwrap(), written);
    // It is read once more if the next program gives it back.
    assert_eq!(State::read(&file).unwrap(), written);
    assert_eq!(written.program(), "/usr/bin/vhost-user-cuda");
    assert_eq!(written.options(), ["--single"]);
    assert_eq!(written.socket(), Some("/run/socket".into()));
}

#[test]
fn another_version_is_refused_by_its_name() {
    let mut value = with_device(1);
    value["version"] = json!(VERSION + 1);
    value["of the next version"] = json!(true);
    value["release"] = json!("9.9");
    let error = format!("{:#}", parse(&value).unwrap_err());
    assert!(error.contains("9.9") && error.contains("restart"), "{error}");
}

#[test]
fn a_worker_of_an_unknown_version_is_refused_by_its_session() {
    let known = parse(&with_device(vhost_cuda_common::link::VERSION)).unwrap();
    known.check(&args(&[])).unwrap();
    for version in [0, vhost_cuda_common::link::VERSION + 1] {
        let error = parse(&with_device(version)).unwrap().check(&args(&[])).unwrap_err().to_string();
        assert!(error.contains("session 1") && error.contains(&format!("version {version}")), "{error}");
    }
}

#[test]
fn options_that_cannot_change_are_refused_while_there_are_connections() {
    let state = parse(&with_device(vhost_cuda_common::link::VERSION)).unwrap();
    for more in [["--num-queues", "3"], ["--guest-pages", "all"], ["--sandbox", "off"]] {
        let error = state.check(&args(&more)).unwrap_err().to_string();
        assert!(error.contains(&more[0][2..]), "{error}");
    }
    state.check(&args(&["--memory", "1G"])).unwrap();
    self::state().check(&args(&["--num-queues", "3"])).unwrap();
    assert!(self::state().check(&args(&["--libraries", "/nowhere"])).is_err());
}

#[test]
fn malformed_states_are_refused() {
    let good = serde_json::to_vec(&with_device(1)).unwrap();
    assert!(State::parse(&good).is_ok());
    for length in 0..good.len() {
        assert!(State::parse(&good[..length]).is_err(), "cut at {length}");
    }
    // Each byte in turn. Some changes are valid, and none panics.
    for at in 0..good.len() {
        for byte in [0, b'-', b'9', b'"', b'}', 0xff] {
            let mut changed = good.clone();
            changed[at] = byte;
            let _ = State::parse(&changed).map(|state| state.check(&args(&[])));
        }
    }
    let file = files::memory_file(c"long").unwrap();
    file.set_len(MAX_BYTES + 1).unwrap();
    assert!(State::read(&file).unwrap_err().to_string().contains("too much"));
    let mut deep = vec![b'['; 1 << 20];
    deep.extend_from_slice(b"1");
    assert!(State::parse(&deep).is_err());
}
