// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kubelet's part of dynamic resource allocation: it finds the driver by its socket, registers it, and has it prepare claims
//! (`pkg/kubelet/pluginmanager`, `pkg/kubelet/cm/dra` of Kubernetes 1.34). It keeps no state, so a kubelet that has restarted is
//! another value.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use vhost_cuda_plugin::api::dra::dra_plugin_client::DraPluginClient;
use vhost_cuda_plugin::api::dra::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use vhost_cuda_plugin::api::pluginregistration::registration_client::RegistrationClient;
use vhost_cuda_plugin::api::pluginregistration::{InfoRequest, RegistrationStatus};
use vhost_cuda_plugin::api::{DRA_SERVICE, DRA_TYPE, PLUGINS_REGISTRY};

/// The time limit for each answer of the driver, which is the kubelet's.
const ANSWER: Duration = Duration::from_secs(45);
/// The pause between two tries to reach a driver.
const LOOK: Duration = Duration::from_millis(20);

/// The manager of claims of a kubelet.
pub struct Claims {
    folder: PathBuf,
    runtime: Runtime,
}

impl Claims {
    /// One of the kubelet in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join(PLUGINS_REGISTRY))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { folder: folder.to_path_buf(), runtime })
    }

    /// Waits until a driver answers, registers it, and returns its name.
    pub fn wait_for_driver(&self, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        self.runtime.block_on(async {
            loop {
                match self.register().await {
                    Ok((name, _)) => return Ok(name),
                    Err(error) if Instant::now() > end => {
                        return Err(error.context(format!("no driver registers within {limit:?}")));
                    }
                    Err(_) => sleep(LOOK).await,
                }
            }
        })
    }

    /// Has claims prepared. Returns a device or an error for each, by the claims' UIDs.
    ///
    /// Errors: there is no driver, or it refuses the whole request.
    pub fn prepare(&self, claims: &[Claim]) -> Result<HashMap<String, Result<Device, String>>> {
        self.runtime.block_on(async {
            let request = NodePrepareResourcesRequest { claims: claims.to_vec() };
            let answer = timeout(ANSWER, self.driver().await?.node_prepare_resources(request)).await??;
            let mut answers = HashMap::new();
            for (uid, mut answer) in answer.into_inner().claims {
                let answer = match (answer.devices.pop(), answer.error) {
                    (Some(device), error) if error.is_empty() && answer.devices.is_empty() => Ok(device),
                    (None, error) if !error.is_empty() => Err(error),
                    other => bail!("{uid}: {other:?}"),
                };
                answers.insert(uid, answer);
            }
            ensure!(claims.iter().all(|claim| answers.contains_key(&claim.uid)), "{answers:?}");
            Ok(answers)
        })
    }

    /// Has a claim prepared that the driver must not refuse.
    pub fn prepare_one(&self, claim: &Claim) -> Result<Device> {
        let mut answers = self.prepare(std::slice::from_ref(claim))?;
        answers.remove(&claim.uid).context("no answer")?.map_err(anyhow::Error::msg)
    }

    /// Has claims ended.
    ///
    /// Errors: there is no driver, it refuses the whole request, or one of the claims.
    pub fn unprepare(&self, claims: &[Claim]) -> Result<()> {
        self.runtime.block_on(async {
            let request = NodeUnprepareResourcesRequest { claims: claims.to_vec() };
            let answer = timeout(ANSWER, self.driver().await?.node_unprepare_resources(request)).await??;
            let answers = answer.into_inner().claims;
            for claim in claims {
                let error = &answers.get(&claim.uid).context("no answer")?.error;
                ensure!(error.is_empty(), "{error}");
            }
            Ok(())
        })
    }

    /// Registers the driver whose socket is there, as after each start of the kubelet. Returns its name and the path of its socket.
    async fn register(&self) -> Result<(String, String)> {
        let mut files = fs::read_dir(self.folder.join(PLUGINS_REGISTRY))?;
        let socket = files.next().context("no socket for registration")??.path();
        let mut client = RegistrationClient::new(connect(&socket).await?);
        let info = timeout(ANSWER, client.get_info(InfoRequest {})).await??.into_inner();
        ensure!(info.r#type == DRA_TYPE && info.supported_versions == [DRA_SERVICE], "{info:?}");
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        timeout(ANSWER, client.notify_registration_status(status)).await??;
        Ok((info.name, info.endpoint))
    }

    async fn driver(&self) -> Result<DraPluginClient<Channel>> {
        let (_, endpoint) = self.register().await?;
        Ok(DraPluginClient::new(connect(Path::new(&endpoint)).await?))
    }
}

async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    Ok(timeout(ANSWER, endpoint.connect()).await??)
}
