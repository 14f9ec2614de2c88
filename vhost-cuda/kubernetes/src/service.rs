// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers to the kubelet's calls.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::api::HEALTHY;
use crate::api::deviceplugin::device_plugin_server::DevicePlugin;
use crate::api::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    Device, DevicePluginOptions, Empty, ListAndWatchResponse, Mount, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use crate::daemons::Daemons;
use crate::shards::{Inventory, Shards};

/// The folder of the socket in a container.
const GUEST: &str = "/run/vhost-cuda";
/// The folder of the libraries in a container.
const LIBRARIES: &str = "/usr/lib/vhost-cuda";
/// The variable by which the guest's libraries find the socket.
const SOCKET_VARIABLE: &str = "VIRTIO_CUDA_SOCKET";
/// The maximum number of containers in one request. The kubelet sends one.
const MAX_CONTAINERS: usize = 64;

/// The device plugin.
#[derive(Clone, Debug)]
pub struct Service {
    /// The shards to give out.
    pub inventory: Arc<Inventory>,
    /// The daemons.
    pub daemons: Arc<Mutex<Daemons>>,
    /// The folder of the guest's libraries on the node.
    pub libraries: PathBuf,
}

impl Service {
    /// The options, for the kubelet: PreStartContainer brings daemons back after the node has restarted.
    pub fn options() -> DevicePluginOptions {
        DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true }
    }

    /// Runs `work`, which waits for processes, beside the server.
    pub async fn with_daemons<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Daemons) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let daemons = self.daemons.clone();
        let work = move || work(&mut daemons.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
    }

    fn check(&self, ids: &[String]) -> Result<Shards, Status> {
        self.inventory.check(ids).map_err(|refused| {
            log::warn!("refused: {refused}");
            Status::invalid_argument(refused.to_string())
        })
    }

    async fn start(&self, ids: &[String]) -> Result<ContainerAllocateResponse, Status> {
        let shards = self.check(ids)?;
        let name = shards.name();
        let started = self
            .with_daemons(move |daemons| daemons.allocate(shards).map(|()| daemons.folder().guest(&name)))
            .await?;
        let guest = started.map_err(unavailable)?;
        let mount = |host: PathBuf, container: &str| Mount {
            container_path: container.into(),
            host_path: host.to_string_lossy().into_owned(),
            read_only: true,
        };
        let envs = [(SOCKET_VARIABLE, format!("{GUEST}/vhost.sock")), ("LD_LIBRARY_PATH", LIBRARIES.into())];
        Ok(ContainerAllocateResponse {
            envs: envs.map(|(name, value)| (name.to_owned(), value)).into(),
            mounts: vec![mount(guest, GUEST), mount(self.libraries.clone(), LIBRARIES)],
            devices: Vec::new(),
            annotations: HashMap::new(),
        })
    }
}

fn unavailable(error: anyhow::Error) -> Status {
    log::error!("{error:#}");
    Status::unavailable(format!("{error:#}"))
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(Self::options()))
    }

    /// The list does not change. The stream stays open, because its end means that the plugin has ended.
    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let device = |id| Device { id, health: HEALTHY.into(), topology: None };
        let list = ListAndWatchResponse { devices: self.inventory.ids().map(device).collect() };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(list)).chain(tokio_stream::pending()))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let container_responses = containers.iter().take(MAX_CONTAINERS).map(|container| {
            let count = usize::try_from(container.allocation_size).unwrap_or(0);
            let (available, required) =
                (&container.available_device_i_ds, &container.must_include_device_i_ds);
            ContainerPreferredAllocationResponse {
                device_i_ds: self.inventory.prefer(available, required, count),
            }
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: container_responses.collect() }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests;
        if containers.len() > MAX_CONTAINERS {
            return Err(Status::invalid_argument(format!("{} containers in one request", containers.len())));
        }
        let mut container_responses = Vec::new();
        for container in containers {
            container_responses.push(self.start(&container.devices_i_ds).await?);
        }
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let shards = self.check(&request.into_inner().devices_i_ds)?;
        self.with_daemons(|daemons| daemons.prepare(shards)).await?.map_err(unavailable)?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
