// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers to the kubelet's calls: its registration of plugins, and preparation of claims.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tonic::{Request, Response, Status};

use super::cluster::Cluster;
use super::object::{self, DRIVER};
use crate::api::dra::dra_plugin_server::DraPlugin;
use crate::api::dra::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use crate::api::pluginregistration::registration_server::Registration;
use crate::api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::api::{DRA_SERVICE, DRA_TYPE};
use crate::cdi;
use crate::owner::Owner;
use crate::shards::Inventory;
use crate::shared::Shared;

/// The maximum number of claims in one request. The kubelet sends those of one pod; a pod has up to 32.
const MAX_CLAIMS: usize = 64;
/// The part of an error that the kubelet gets, in characters. It becomes an event of the pod.
const SHOWN: usize = 1000;

/// The driver.
#[derive(Clone, Debug)]
pub struct Driver {
    /// The name of the node.
    pub node: String,
    /// The GPUs.
    pub inventory: Arc<Inventory>,
    /// The daemons.
    pub daemons: Shared,
    /// The apiserver.
    pub cluster: Cluster,
    /// The path of the socket that claims come by.
    pub endpoint: PathBuf,
}

impl Driver {
    /// Starts the daemon of a claim, if there is none yet, and returns the device for the kubelet.
    async fn prepare(&self, claim: Claim) -> Result<Device> {
        let name = Owner::name_of_claim(&claim.uid)?;
        let known = {
            let name = name.clone();
            self.daemons.with(move |daemons| daemons.owner(&name).cloned()).await?
        };
        let owner = match known {
            // A claim keeps its devices until it is unprepared, so the apiserver need not be asked again.
            Some(owner) => owner,
            None => {
                let object = self.cluster.get(&object::claim_path(&claim.namespace, &claim.name)?).await?;
                Owner::Claim(object::claim(&object, &claim.uid, &self.node, &self.inventory)?)
            }
        };
        let gpu =
            self.inventory.gpu(owner.gpu()).ok_or_else(|| anyhow!("Its GPU is not one of this node"))?;
        let device = Device {
            request_names: owner.request().map(str::to_owned).into_iter().collect(),
            pool_name: self.node.clone(),
            device_name: object::device_name(gpu),
            cdi_device_ids: vec![cdi::qualified(&name)],
        };
        self.daemons.with(move |daemons| daemons.prepare(owner)).await??;
        Ok(device)
    }

    /// Ends the daemon of a claim, if there is one.
    async fn unprepare(&self, claim: Claim) -> Result<()> {
        let name = Owner::name_of_claim(&claim.uid)?;
        self.daemons.with(move |daemons| daemons.end(&name)).await?
    }
}

/// Does `work` for the claims one after the other. The errors are texts for the kubelet.
async fn each<T, F: Future<Output = Result<T>>>(
    claims: Vec<Claim>,
    work: impl Fn(Claim) -> F,
) -> Result<Vec<(String, Result<T, String>)>, Status> {
    if claims.len() > MAX_CLAIMS {
        return Err(Status::invalid_argument(format!("{} claims in one request", claims.len())));
    }
    let mut answers = Vec::new();
    for claim in claims {
        let uid = claim.uid.clone();
        let name = format!("{:.80}/{:.80}", claim.namespace, claim.name);
        let done = work(claim).await.map_err(|error| {
            let error = format!("claim {name}: {error:#}").chars().take(SHOWN).collect::<String>();
            log::error!("{error}");
            error
        });
        answers.push((uid, done));
    }
    Ok(answers)
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let prepared = each(request.into_inner().claims, |claim| self.prepare(claim)).await?;
        let answer = |prepared: Result<Device, String>| match prepared {
            Ok(device) => NodePrepareResourceResponse { devices: vec![device], error: String::new() },
            Err(error) => NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims: HashMap<_, _> =
            prepared.into_iter().map(|(uid, prepared)| (uid, answer(prepared))).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let ended = each(request.into_inner().claims, |claim| self.unprepare(claim)).await?;
        let answer = |ended: Result<(), String>| NodeUnprepareResourceResponse {
            error: ended.err().unwrap_or_default(),
        };
        let claims = ended.into_iter().map(|(uid, ended)| (uid, answer(ended))).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: DRA_TYPE.into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec![DRA_SERVICE.into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            log::info!("registered {DRIVER} with the kubelet");
        } else {
            log::error!("The kubelet refuses {DRIVER}: {error:.400}");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
