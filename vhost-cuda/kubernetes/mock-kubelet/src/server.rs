// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kubelet's two sockets.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, async_trait};
use vhost_cuda_plugin::api::deviceplugin::registration_server::{Registration, RegistrationServer};
use vhost_cuda_plugin::api::deviceplugin::{Empty, RegisterRequest};
use vhost_cuda_plugin::api::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use vhost_cuda_plugin::api::podresources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use vhost_cuda_plugin::api::{POD_RESOURCES_SOCKET, REGISTRATION_SOCKET, VERSION};

use crate::state::{Registered, State};

/// Starts both servers on the current runtime.
pub async fn start(folder: &Path, state: Arc<State>) -> Result<()> {
    let listen =
        |socket| Ok::<_, anyhow::Error>(UnixListenerStream::new(UnixListener::bind(folder.join(socket))?));
    // The plugin registers when its socket appears, so that comes last.
    let pods =
        Server::builder().add_service(PodResourcesListerServer::from_arc(Arc::new(Servant(state.clone()))));
    tokio::spawn(pods.serve_with_incoming(listen(POD_RESOURCES_SOCKET)?));
    let registration = Server::builder().add_service(RegistrationServer::new(Servant(state)));
    tokio::spawn(registration.serve_with_incoming(listen(REGISTRATION_SOCKET)?));
    Ok(())
}

struct Servant(Arc<State>);

#[async_trait]
impl Registration for Servant {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name, options } = request.into_inner();
        if version != VERSION {
            return Err(Status::invalid_argument(format!("version {version}")));
        }
        let registered = Registered { endpoint, options: options.unwrap_or_default() };
        self.0.register(resource_name, registered);
        Ok(Response::new(Empty {}))
    }
}

#[async_trait]
impl PodResourcesLister for Servant {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let resource = self.0.resource();
        let pod = |(name, pod): (String, crate::Pod)| {
            let devices =
                ContainerDevices { resource_name: resource.clone(), device_ids: pod.ids, topology: None };
            let container =
                ContainerResources { name: "main".into(), devices: vec![devices], cpu_ids: vec![] };
            PodResources { name, namespace: "default".into(), containers: vec![container] }
        };
        let pod_resources = self.0.checkpoint().into_iter().map(pod).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }
}
