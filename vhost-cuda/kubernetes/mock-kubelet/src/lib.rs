// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kubelet for tests: its sockets, and its way to give devices to pods. It behaves as that of Kubernetes 1.20 does
//! (`pkg/kubelet/cm/devicemanager/manager.go`), with one resource and one container per pod. Its functions wait, so that tests
//! need no runtime.

mod cdi;
mod claims;
mod cluster;
mod server;
mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use vhost_cuda_plugin::api::deviceplugin::device_plugin_client::DevicePluginClient;
use vhost_cuda_plugin::api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Empty,
    PreStartContainerRequest, PreferredAllocationRequest,
};

pub use cdi::injected;
pub use claims::Claims;
pub use cluster::Cluster;
pub use state::{Checkpoint, Pod};
use state::{Registered, State};
pub use vhost_cuda_plugin::api::dra::Claim;

/// The time limit for each answer of the plugin. The kubelet's for PreStartContainer.
const ANSWER: Duration = Duration::from_secs(30);
/// The pause between two tries to reach a plugin.
const LOOK: Duration = Duration::from_millis(20);

/// A running kubelet. It ends with the value.
pub struct MockKubelet {
    folder: PathBuf,
    state: Arc<State>,
    runtime: Runtime,
}

impl MockKubelet {
    /// Starts one in `folder`, with the devices of pods of the last one. As the real one, it removes the sockets of all plugins.
    pub fn start(folder: &Path, checkpoint: Checkpoint) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let state = Arc::new(State::new(checkpoint));
        for of in ["device-plugins", "pod-resources"] {
            let of = folder.join(of);
            fs::create_dir_all(&of)?;
            for file in fs::read_dir(&of)? {
                fs::remove_file(file?.path())?;
            }
        }
        runtime.block_on(server::start(folder, state.clone()))?;
        Ok(Self { folder: folder.to_path_buf(), state, runtime })
    }

    /// Ends it, without a word to plugins and pods, and returns what its file `kubelet_internal_checkpoint` has.
    pub fn kill(self) -> Checkpoint {
        let checkpoint = self.state.checkpoint();
        self.runtime.shutdown_timeout(ANSWER);
        checkpoint
    }

    /// The number of registrations so far.
    pub fn registrations(&self) -> u64 {
        *self.state.registrations.borrow()
    }

    /// Waits for a registration beyond the first `seen` of a plugin that answers, and returns the ids of its healthy devices.
    pub fn wait_for_plugin(&self, seen: u64, limit: Duration) -> Result<Vec<String>> {
        let mut registrations = self.state.registrations.subscribe();
        let wait = async {
            registrations.wait_for(|count| *count > seen).await?;
            loop {
                match self.devices().await {
                    Ok(devices) => return Ok(devices),
                    // The plugin was killed after its registration, and the next one starts.
                    Err(_) => sleep(LOOK).await,
                }
            }
        };
        let devices = self.runtime.block_on(async { timeout(limit, wait).await });
        devices.with_context(|| format!("no plugin registers within {limit:?}"))?
    }

    /// Admits a pod that asks for `count` devices, and starts its container: as the kubelet does, it chooses devices with the
    /// plugin's advice, has the plugin allocate them, and prepares the start.
    ///
    /// Errors: the plugin's refusal, as it appears in the pod's event. The pod then has no devices.
    pub fn admit(&self, pod: &str, count: usize) -> Result<Pod> {
        self.runtime.block_on(async {
            let devices = self.devices().await?;
            let available = self.state.free(&devices);
            ensure!(available.len() >= count, "Insufficient devices: {} are free", available.len());
            let mut client = self.client().await?;
            let preferred = ContainerPreferredAllocationRequest {
                available_device_i_ds: available.clone(),
                must_include_device_i_ds: vec![],
                allocation_size: count as i32,
            };
            let request = PreferredAllocationRequest { container_requests: vec![preferred] };
            let answer = timeout(ANSWER, client.get_preferred_allocation(request)).await??.into_inner();
            let preferred = answer.container_responses.into_iter().next().unwrap_or_default().device_i_ds;
            // Advice that is short is filled up with any devices.
            let mut chosen: Vec<String> = preferred.into_iter().filter(|id| available.contains(id)).collect();
            let more = available.iter().filter(|id| !chosen.contains(id)).cloned().collect::<Vec<_>>();
            chosen.extend(more);
            chosen.truncate(count);
            self.allocate(pod, chosen).await
        })
    }

    /// Gives a pod devices of the test's choice.
    ///
    /// Errors: as [`MockKubelet::admit`].
    pub fn give(&self, pod: &str, ids: &[String]) -> Result<Pod> {
        self.runtime.block_on(self.allocate(pod, ids.to_vec()))
    }

    /// Prepares another start of a pod's container.
    pub fn start_container(&self, pod: &Pod) -> Result<()> {
        self.runtime.block_on(self.prepare(&pod.ids))
    }

    /// The pod has ended: its devices are free.
    pub fn end_pod(&self, pod: &str) {
        self.state.forget(pod);
    }

    async fn allocate(&self, pod: &str, ids: Vec<String>) -> Result<Pod> {
        let request = ContainerAllocateRequest { devices_i_ds: ids.clone() };
        let request = AllocateRequest { container_requests: vec![request] };
        let answer = timeout(ANSWER, self.client().await?.allocate(request)).await?;
        let answer = answer.map_err(|status| anyhow::anyhow!("{}", status.message()))?.into_inner();
        let container =
            answer.container_responses.into_iter().next().context("an answer without a container")?;
        let pod_with_devices = Pod { ids, container };
        self.state.admit(pod, pod_with_devices.clone());
        self.prepare(&pod_with_devices.ids).await?;
        Ok(pod_with_devices)
    }

    async fn prepare(&self, ids: &[String]) -> Result<()> {
        let request = PreStartContainerRequest { devices_i_ds: ids.to_vec() };
        let answer = timeout(ANSWER, self.client().await?.pre_start_container(request)).await?;
        answer.map_err(|status| anyhow::anyhow!("{}", status.message()))?;
        Ok(())
    }

    async fn devices(&self) -> Result<Vec<String>> {
        let mut stream = timeout(ANSWER, self.client().await?.list_and_watch(Empty {})).await??.into_inner();
        let list = timeout(ANSWER, stream.message()).await??.context("the plugin has no list")?;
        Ok(list
            .devices
            .into_iter()
            .filter(|device| device.health == "Healthy")
            .map(|device| device.id)
            .collect())
    }

    async fn client(&self) -> Result<DevicePluginClient<Channel>> {
        let Some(Registered { endpoint, options }) = self.state.registered() else { bail!("no plugin") };
        ensure!(options.pre_start_required && options.get_preferred_allocation_available, "{options:?}");
        let socket = self.folder.join("device-plugins").join(endpoint);
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
        Ok(DevicePluginClient::new(timeout(ANSWER, endpoint.connect()).await??))
    }
}
