// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The things that a kubelet knows: its plugin, and the devices of its pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use vhost_cuda_plugin::api::deviceplugin::{ContainerAllocateResponse, DevicePluginOptions};

/// The devices of pods, which the next kubelet takes over.
pub type Checkpoint = BTreeMap<String, Pod>;

/// A pod with devices.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The devices.
    pub ids: Vec<String>,
    /// The plugin's answer.
    pub container: ContainerAllocateResponse,
}

impl Pod {
    /// The value of a variable of the container's environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.container.envs.get(name).map(String::as_str)
    }

    /// The path on the node of a path in the container.
    pub fn on_node(&self, path: &str) -> Option<PathBuf> {
        let mounts = self.container.mounts.iter();
        mounts
            .filter_map(|mount| {
                let inside = path.strip_prefix(&mount.container_path)?;
                inside.starts_with('/').then(|| PathBuf::from(mount.host_path.clone() + inside))
            })
            .next()
    }
}

#[derive(Clone, Debug)]
pub struct Registered {
    pub endpoint: String,
    pub options: DevicePluginOptions,
}

#[derive(Debug)]
pub struct State {
    pub registrations: watch::Sender<u64>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    registered: Option<(String, Registered)>,
    pods: Checkpoint,
}

impl State {
    pub fn new(pods: Checkpoint) -> Self {
        let inner = Mutex::new(Inner { registered: None, pods });
        Self { registrations: watch::Sender::new(0), inner }
    }

    pub fn register(&self, resource: String, registered: Registered) {
        self.inner().registered = Some((resource, registered));
        self.registrations.send_modify(|count| *count += 1);
    }

    pub fn registered(&self) -> Option<Registered> {
        self.inner().registered.as_ref().map(|(_, registered)| registered.clone())
    }

    pub fn resource(&self) -> String {
        self.inner().registered.as_ref().map(|(resource, _)| resource.clone()).unwrap_or_default()
    }

    pub fn checkpoint(&self) -> Checkpoint {
        self.inner().pods.clone()
    }

    pub fn admit(&self, name: &str, pod: Pod) {
        self.inner().pods.insert(name.to_owned(), pod);
    }

    pub fn forget(&self, name: &str) {
        self.inner().pods.remove(name);
    }

    pub fn free(&self, devices: &[String]) -> Vec<String> {
        let inner = self.inner();
        let is_used = |id: &&String| inner.pods.values().any(|pod| pod.ids.contains(id));
        devices.iter().filter(|id| !is_used(id)).cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
