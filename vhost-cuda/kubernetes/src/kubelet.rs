// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections to and from the kubelet.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint, Server};

use crate::api::deviceplugin::RegisterRequest;
use crate::api::deviceplugin::device_plugin_server::DevicePluginServer;
use crate::api::deviceplugin::registration_client::RegistrationClient;
use crate::api::podresources::ListPodResourcesRequest;
use crate::api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use crate::api::{POD_RESOURCES_SOCKET, REGISTRATION_SOCKET, VERSION};
use crate::authority::Filter;
use crate::identity::identity;
use crate::service::Service;

/// The pause between two looks at the sockets, and between two tries to register.
const LOOK: Duration = Duration::from_millis(500);
/// The time limit for an answer of the kubelet.
const ANSWER: Duration = Duration::from_secs(10);
/// The maximum size of the list of pods. That of the kubelet's own clients.
const MAX_LIST: usize = 16 << 20;
/// Bytes between a connection and the server.
const BUFFER: usize = 64 << 10;

/// The kubelet of this node.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// Its folder.
    pub folder: PathBuf,
    /// The name of the resource.
    pub resource: String,
}

impl Kubelet {
    /// Serves the kubelet, and registers with each one that starts. Does not return.
    pub async fn serve(&self, service: Service) {
        let mut said = String::new();
        loop {
            match self.serve_one(service.clone()).await {
                Ok(why) => log::info!("registering again: {why}"),
                Err(error) => {
                    let text = format!("{error:#}");
                    // Once, however long the kubelet is away.
                    if text != said {
                        log::warn!("not registered, trying again: {text}");
                        said = text;
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Serves until the kubelet has restarted, and returns how that was seen.
    async fn serve_one(&self, service: Service) -> Result<&'static str> {
        let registration = self.folder.join(REGISTRATION_SOCKET);
        let kubelet = identity(&registration)?;
        let endpoint = self.resource.replace('/', "_") + ".sock";
        let own_path = registration.with_file_name(&endpoint);
        let _ = fs::remove_file(&own_path);
        let listener =
            UnixListener::bind(&own_path).with_context(|| format!("Cannot make {}", own_path.display()))?;
        let own = identity(&own_path)?;
        let server = AbortOnDrop(tokio::spawn(serve(listener, service)));
        self.register(&registration, endpoint).await?;
        log::info!("registered {} with the kubelet", self.resource);
        loop {
            sleep(LOOK).await;
            if server.0.is_finished() {
                bail!("the server has ended");
            }
            if identity(&own_path).ok().as_ref() != Some(&own) {
                return Ok("the kubelet has removed the socket");
            }
            if identity(&registration).ok().as_ref() != Some(&kubelet) {
                return Ok("the kubelet has restarted");
            }
        }
    }

    async fn register(&self, registration: &Path, endpoint: String) -> Result<()> {
        let request = RegisterRequest {
            version: VERSION.into(),
            endpoint,
            resource_name: self.resource.clone(),
            options: Some(Service::options()),
        };
        let mut client = RegistrationClient::new(connect(registration).await?);
        let answer =
            timeout(ANSWER, client.register(request)).await.context("The kubelet does not answer")?;
        answer.with_context(|| format!("The kubelet refuses {}", self.resource))?;
        Ok(())
    }

    /// The ids of the shards of all pods.
    ///
    /// Errors: the kubelet does not answer, for example because it restarts.
    pub async fn listed(&self) -> Result<HashSet<String>> {
        let channel = connect(&self.folder.join(POD_RESOURCES_SOCKET)).await?;
        let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_LIST);
        let answer = timeout(ANSWER, client.list(ListPodResourcesRequest {})).await;
        let list = answer.context("The kubelet does not list pods in time")??.into_inner();
        let devices = list.pod_resources.into_iter().flat_map(|pod| pod.containers).flat_map(|of| of.devices);
        let ours = devices.filter(|devices| devices.resource_name == self.resource);
        Ok(ours.flat_map(|devices| devices.device_ids).collect())
    }
}

async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    let connected = timeout(ANSWER, endpoint.connect()).await;
    connected
        .context("The kubelet does not accept a connection")?
        .with_context(|| format!("Cannot connect to {}", socket.display()))
}

/// Serves connections until the task is aborted.
async fn serve(listener: UnixListener, service: Service) -> Result<()> {
    let (sender, receiver) = mpsc::channel::<DuplexStream>(1);
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let (ours, server) = duplex(BUFFER);
            tokio::spawn(carry(stream, ours));
            if sender.send(server).await.is_err() {
                return Ok(());
            }
        }
    };
    let incoming = tokio_stream::wrappers::ReceiverStream::new(receiver).map(Ok::<_, std::io::Error>);
    let server = Server::builder().add_service(DevicePluginServer::new(service));
    tokio::select! {
        ended = accept => ended,
        ended = server.serve_with_incoming(incoming) => ended.map_err(Into::into),
    }
}

/// Carries the bytes of one connection, with a valid authority in the requests.
async fn carry(stream: UnixStream, server: DuplexStream) -> Result<()> {
    let (mut from_kubelet, mut to_kubelet) = stream.into_split();
    let (mut from_server, mut to_server) = split(server);
    let requests = async {
        let (mut filter, mut bytes) = (Filter::default(), [0; 16 << 10]);
        loop {
            let count = from_kubelet.read(&mut bytes).await?;
            if count == 0 {
                return Ok(());
            }
            let mut out = Vec::new();
            filter.push(&bytes[..count], &mut out)?;
            to_server.write_all(&out).await?;
        }
    };
    let answers = async { tokio::io::copy(&mut from_server, &mut to_kubelet).await };
    tokio::select! {
        ended = requests => ended,
        ended = answers => { ended?; Ok(()) }
    }
}

/// A task that ends with the value.
struct AbortOnDrop(tokio::task::JoinHandle<Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
