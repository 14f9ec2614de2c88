// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers to the kubelet's calls.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::api::HEALTHY;
use crate::api::deviceplugin::device_plugin_server::DevicePlugin;
use crate::api::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    Device, DevicePluginOptions, Empty, ListAndWatchResponse, Mount, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use crate::container::Edits;
use crate::owner::Owner;
use crate::shards::{Inventory, Shards};
use crate::shared::Shared;

/// The maximum number of containers in one request. The kubelet sends one.
const MAX_CONTAINERS: usize = 64;

/// The device plugin.
#[derive(Clone, Debug)]
pub struct Service {
    /// The shards to give out.
    pub inventory: Arc<Inventory>,
    /// The daemons.
    pub daemons: Shared,
}

impl Service {
    /// The options, for the kubelet: PreStartContainer brings daemons back after the node has restarted.
    pub fn options() -> DevicePluginOptions {
        DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true }
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
            .daemons
            .with(move |daemons| daemons.allocate(Owner::Shards(shards)).map(|()| daemons.edits(&name)))
            .await?;
        let Edits { variables, mounts } = started.map_err(unavailable)?;
        let mount = |(from, to): (PathBuf, String)| Mount {
            container_path: to,
            host_path: from.to_string_lossy().into_owned(),
            read_only: true,
        };
        Ok(ContainerAllocateResponse {
            envs: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            mounts: mounts.map(mount).into(),
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
        let prepared = self.daemons.with(|daemons| daemons.prepare(Owner::Shards(shards))).await?;
        prepared.map_err(unavailable)?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
