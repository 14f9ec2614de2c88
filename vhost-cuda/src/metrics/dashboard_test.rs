// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example dashboard of Grafana has the fields of Grafana's schema, and asks for metrics and labels that the daemon has.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use vhost_cuda_common::statistics::Totals;

use super::text::write;
use crate::sessions::report::DaemonReport;
use crate::sessions::report::{DeviceReport, Refusals, SessionReport};
use crate::shares::client::ShareReport;

const DASHBOARD: &str = include_str!("../../../deploy/grafana/vhost-cuda.json");

/// The part of Grafana's schema (`kinds/dashboard`, version 39) that the dashboard uses. Others are refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct Dashboard {
    uid: String,
    title: String,
    description: String,
    tags: Vec<String>,
    timezone: String,
    editable: bool,
    graph_tooltip: u8,
    schema_version: u32,
    refresh: String,
    time: BTreeMap<String, String>,
    templating: BTreeMap<String, Vec<Variable>>,
    annotations: BTreeMap<String, Vec<Value>>,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct Variable {
    name: String,
    label: String,
    r#type: String,
    query: String,
    current: Value,
    datasource: Option<Source>,
    refresh: Option<u8>,
    sort: Option<u8>,
    multi: Option<bool>,
    include_all: Option<bool>,
    all_value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    r#type: String,
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct Panel {
    id: u32,
    r#type: String,
    title: String,
    description: Option<String>,
    datasource: Source,
    grid_pos: Place,
    targets: Vec<Target>,
    field_config: Value,
    options: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    h: u32,
    w: u32,
    x: u32,
    y: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct Target {
    ref_id: String,
    datasource: Source,
    expr: String,
    legend_format: String,
    range: bool,
    editor_mode: String,
}

fn dashboard() -> Dashboard {
    serde_json::from_str(DASHBOARD).unwrap()
}

/// Returns the words of an expression that begin with `prefix`.
fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(move |word| word.starts_with(prefix))
}

/// Returns the metrics of a daemon with an arbiter, a session and a refusal, with their labels.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let session = SessionReport {
        label: 3,
        program: "python3".into(),
        pid: 100,
        uid: 1000,
        age: std::time::Duration::from_secs(2),
        outstanding: 0,
        totals: Totals { gpu_busy_ns: Some(1), ..Totals::default() },
        process: crate::sessions::report::ProcessUse::of(std::iter::once(std::process::id())),
        ready_memory: 0,
        moves: crate::sessions::residence::Moves::default(),
    };
    let device = DeviceReport {
        connection: 1,
        sessions: vec![session],
        ended: Totals::default(),
        closed: 0,
        lost: 0,
        refused: Refusals::default().counts().collect(),
    };
    let usage = vec![([0; 16], crate::shares::client::Usage::default())];
    let share = ShareReport { weight: 100, connected: true, usage };
    let text = write(&DaemonReport::default(), Some(&share), &[device]);
    let mut metrics = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let labels = line.split(['{', ',']).filter_map(|part| Some(part.split_once("=\"")?.0.to_owned()));
        metrics.entry(name.to_owned()).or_default().extend(labels);
    }
    metrics
}

#[test]
fn its_metrics_and_labels_are_those_of_the_daemon() {
    let (dashboard, metrics) = (dashboard(), exported());
    // Prometheus adds these.
    let common = ["instance", "job"].map(str::to_owned);
    let targets = dashboard.panels.iter().flat_map(|panel| &panel.targets);
    let variables = dashboard.templating["list"].iter().filter(|variable| variable.r#type == "query");
    let queries = targets.map(|target| (target.expr.as_str(), target.legend_format.as_str()));
    for (query, legend) in queries.chain(variables.map(|variable| (variable.query.as_str(), ""))) {
        let names: Vec<_> = words(query, "vhost_cuda_").collect();
        assert!(!names.is_empty(), "{query}");
        let labels: BTreeSet<_> =
            common.iter().chain(names.iter().flat_map(|name| &metrics[*name])).collect();
        let filters = query.split(['{', ',']).filter_map(|part| Some(part.split_once("=~")?.0.trim()));
        let shown = legend.split("{{").skip(1).filter_map(|part| Some(part.split_once("}}")?.0));
        for label in filters.chain(shown) {
            assert!(labels.contains(&label.to_owned()), "{query} has no label {label}");
        }
    }
    assert!(
        words("rate(vhost_cuda_calls[1m]) / vhost_cuda_x", "vhost_cuda_")
            .eq(["vhost_cuda_calls", "vhost_cuda_x"])
    );
}

#[test]
fn its_parts_are_told_apart_and_have_a_place() {
    let dashboard = dashboard();
    let ids: BTreeSet<_> = dashboard.panels.iter().map(|panel| panel.id).collect();
    assert_eq!(ids.len(), dashboard.panels.len());
    let variables: BTreeSet<_> =
        dashboard.templating["list"].iter().map(|variable| variable.name.as_str()).collect();
    let mut taken = BTreeSet::new();
    for panel in &dashboard.panels {
        let Place { h, w, x, y } = panel.grid_pos;
        assert!(h > 0 && w > 0 && x + w <= 24, "{}", panel.title);
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} lies over another panel", panel.title);
        }
        let refs: BTreeSet<_> = panel.targets.iter().map(|target| &target.ref_id).collect();
        assert_eq!(refs.len(), panel.targets.len());
        let sources = panel.targets.iter().map(|target| &target.datasource).chain([&panel.datasource]);
        for source in sources {
            assert_eq!((source.r#type.as_str(), source.uid.as_str()), ("prometheus", "${datasource}"));
        }
        for target in &panel.targets {
            let used = target.expr.split('$').skip(1).map(|rest| words(rest, "").next().unwrap_or_default());
            for variable in used.filter(|name| !name.starts_with("__")) {
                assert!(variables.contains(variable), "{}: ${variable}", panel.title);
            }
        }
    }
}
