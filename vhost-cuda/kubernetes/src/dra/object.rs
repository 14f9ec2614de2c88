// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of the apiserver (`resource.k8s.io/v1`): claims, which we read, and slices, which list the devices of this node.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::quantity;
use crate::claim::{Claim, DEFAULT_WEIGHT, MEMORY_UNIT, WEIGHTS};
use crate::gpus::Gpu;
use crate::shards::Inventory;

/// The name of the driver. Device classes select its devices by it.
pub const DRIVER: &str = "vhost-cuda.io";
/// The path of all slices.
pub const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// The maximum number of devices in a slice. One slice is enough: no node has so many GPUs.
const MAX_DEVICES: usize = 128;
/// The maximum length of a name of an object, and of one of its parts.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

#[derive(Deserialize)]
struct ResourceClaim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

#[derive(Default, Deserialize)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Deserialize)]
struct Allocation {
    #[serde(default)]
    devices: Devices,
}

#[derive(Default, Deserialize)]
struct Devices {
    #[serde(default)]
    results: Vec<Allocated>,
    #[serde(default)]
    config: Vec<Config>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocated {
    request: String,
    driver: String,
    pool: String,
    device: String,
    #[serde(default)]
    admin_access: Option<bool>,
    /// Absent where the cluster gives devices as a whole.
    #[serde(default)]
    consumed_capacity: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    opaque: Option<Opaque>,
}

#[derive(Deserialize)]
struct Opaque {
    driver: String,
}

/// The path of a claim.
///
/// Errors: these are not names of objects.
pub fn claim_path(namespace: &str, name: &str) -> Result<String> {
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label =
        |label: &str| !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(is_inside);
    let is_name =
        name.len() <= MAX_NAME && name.split('.').all(|part| !part.is_empty() && part.bytes().all(is_inside));
    ensure!(is_label(namespace), "`{:.80}` is not the name of a namespace", namespace);
    ensure!(is_name, "`{:.80}` is not the name of a claim", name);
    Ok(format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"))
}

/// Reads a claim that the scheduler has allocated on the node.
///
/// Errors: it is not the claim with that UID, it is not allocated, or not as this driver can give it.
pub fn claim(object: &[u8], uid: &str, node: &str, inventory: &Inventory) -> Result<Claim> {
    let claim: ResourceClaim = serde_json::from_slice(object).context("The apiserver has sent no claim")?;
    ensure!(claim.metadata.uid == uid, "It was removed, and another one with its name was made");
    let Devices { results, config } = claim.status.allocation.context("It is not allocated")?.devices;
    let mut ours = results.into_iter().filter(|result| result.driver == DRIVER);
    let result = ours.next().with_context(|| format!("It has no device of {DRIVER}"))?;
    ensure!(ours.next().is_none(), "It has several devices of {DRIVER}: make a claim for each");
    ensure!(result.pool == node, "It has a device of node {:.80}, not of {node}", result.pool);
    ensure!(result.admin_access != Some(true), "{DRIVER} has no access for administrators");
    if config.iter().filter_map(|config| config.opaque.as_ref()).any(|opaque| opaque.driver == DRIVER) {
        bail!("{DRIVER} takes no parameters: ask for memory and weight by the request's capacity");
    }
    let gpu = inventory.gpus().find(|gpu| device_name(gpu) == result.device);
    let gpu = gpu.with_context(|| format!("This node has no device `{:.80}`", result.device))?;
    let consumed = |name: &str| {
        let quantity = result.consumed_capacity.get(name);
        let quantity = quantity.or_else(|| result.consumed_capacity.get(&format!("{DRIVER}/{name}")));
        quantity
            .map(|text| {
                quantity::parse(text)
                    .with_context(|| format!("Its {name} of `{text:.80}` is not a whole number"))
            })
            .transpose()
    };
    let (memory, weight) = match (consumed("memory")?, consumed("weight")?) {
        (Some(memory), weight) => (memory, weight.unwrap_or(DEFAULT_WEIGHT)),
        // The device as a whole.
        (None, _) => (gpu.memory, WEIGHTS),
    };
    Ok(Claim::new(inventory, uid, &result.request, &gpu.id, memory, weight)?)
}

/// The name of a GPU as a device.
pub fn device_name(gpu: &Gpu) -> String {
    format!("gpu-{}", gpu.id.to_ascii_lowercase().trim_start_matches("gpu-"))
}

/// The name of the slice of a node.
pub fn slice_name(node: &str) -> String {
    format!("{node}-{DRIVER}")
}

/// The slice of a node: its devices, without its metadata. Weights are only offered where an arbiter shares GPU time by them.
///
/// Errors: there are too many GPUs, or two have the same name as devices.
pub fn slice_spec(node: &str, inventory: &Inventory, has_weights: bool) -> Result<Value> {
    let gpus: Vec<&Gpu> = inventory.gpus().collect();
    ensure!(
        gpus.len() <= MAX_DEVICES,
        "{} GPUs are more than a slice has room for: {MAX_DEVICES}",
        gpus.len()
    );
    let names: std::collections::BTreeSet<_> = gpus.iter().map(|gpu| device_name(gpu)).collect();
    ensure!(names.len() == gpus.len(), "Two GPUs have the same name as devices: {names:?}");
    let default = inventory.shard_memory() / MEMORY_UNIT * MEMORY_UNIT;
    let device = |gpu: &&Gpu| {
        let mut capacity = json!({
            "memory": {
                "value": quantity::bytes(gpu.memory),
                "requestPolicy": {
                    "default": quantity::bytes(default),
                    "validRange": {
                        "min": quantity::bytes(MEMORY_UNIT),
                        "step": quantity::bytes(MEMORY_UNIT),
                    },
                },
            },
        });
        if has_weights {
            capacity["weight"] = json!({
                "value": WEIGHTS.to_string(),
                "requestPolicy": {
                    "default": DEFAULT_WEIGHT.to_string(),
                    "validRange": { "min": "1", "step": "1" },
                },
            });
        }
        json!({
            "name": device_name(gpu),
            "attributes": { "id": { "string": gpu.id } },
            "allowMultipleAllocations": true,
            "capacity": capacity,
        })
    };
    Ok(json!({
        "driver": DRIVER,
        "nodeName": node,
        "pool": { "name": node, "resourceSliceCount": 1 },
        "devices": gpus.iter().map(device).collect::<Vec<_>>(),
    }))
}

/// Returns whether an object has all that `ours` has; it may have more.
pub fn has(object: &Value, ours: &Value) -> bool {
    match (object, ours) {
        (Value::Object(object), Value::Object(ours)) => {
            ours.iter().all(|(key, value)| object.get(key).is_some_and(|object| has(object, value)))
        }
        (Value::Array(object), Value::Array(ours)) => {
            object.len() == ours.len() && object.iter().zip(ours).all(|(object, ours)| has(object, ours))
        }
        _ => object == ours,
    }
}
