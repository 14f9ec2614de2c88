// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slice of this node at the apiserver, by which the scheduler knows the node's devices.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Cluster, Error};
use super::driver::Driver;
use super::object::{self, DRIVER, SLICES};

/// The pause between two looks at the slice: the kubelet removes it when it starts, and when the driver was away.
const LOOK: Duration = Duration::from_secs(10);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the slice as it should be. Does not return.
pub async fn publish(driver: &Driver, has_weights: bool) {
    let mut said = String::new();
    loop {
        let spec = object::slice_spec(&driver.node, &driver.inventory, has_weights);
        let done = match spec {
            Ok(spec) => publish_once(&driver.cluster, &driver.node, spec).await,
            Err(error) => Err(error),
        };
        let pause = match done {
            Ok(changed) => {
                if changed {
                    log::info!("published the slice {}", object::slice_name(&driver.node));
                }
                said.clear();
                LOOK
            }
            Err(error) => {
                let text = format!("{error:#}");
                // Once, however long it goes on.
                if text != said {
                    log::error!("Cannot publish the slice of this node, trying again: {text}");
                    said = text;
                }
                AGAIN
            }
        };
        sleep(pause).await;
    }
}

/// Makes the slice, or changes it. Returns whether it was neither there nor as it should be.
async fn publish_once(cluster: &Cluster, node: &str, mut spec: Value) -> Result<bool> {
    let name = object::slice_name(node);
    let path = format!("{SLICES}/{name}");
    let last = match cluster.get(&path).await {
        Ok(object) => {
            let last: Value = serde_json::from_slice(&object).context("The apiserver has sent no slice")?;
            Some(last)
        }
        Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if last.as_ref().is_some_and(|last| object::has(&last["spec"], &spec)) {
        return Ok(false);
    }
    let generation = last.as_ref().and_then(|last| last["spec"]["pool"]["generation"].as_i64()).unwrap_or(0);
    spec["pool"]["generation"] = json!(generation.saturating_add(1));
    // With the node, the slice ends.
    let uid = uid(cluster, node).await?;
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true },
            ],
        },
        "spec": spec,
    });
    match last {
        Some(last) => {
            slice["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
            cluster.replace(&path, slice.to_string().as_bytes()).await?;
        }
        None => cluster.create(SLICES, slice.to_string().as_bytes()).await?,
    }
    Ok(true)
}

async fn uid(cluster: &Cluster, node: &str) -> Result<String> {
    let object = cluster.get(&format!("/api/v1/nodes/{node}")).await?;
    let node: Value = serde_json::from_slice(&object).context("The apiserver has sent no node")?;
    let uid = node["metadata"]["uid"].as_str();
    Ok(uid.with_context(|| format!("The node has no UID, which the slice of {DRIVER} needs"))?.to_owned())
}
