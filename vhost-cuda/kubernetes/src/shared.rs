// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemons, for the servers of the kubelet's interfaces.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use crate::daemons::Daemons;

/// The daemons of this plugin.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Daemons>>);

impl Shared {
    /// Takes the daemons.
    pub fn new(daemons: Daemons) -> Self {
        Self(Arc::new(Mutex::new(daemons)))
    }

    /// Runs `work`, which waits for processes, beside the servers.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Daemons) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let daemons = self.0.clone();
        let work = move || work(&mut daemons.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
    }
}
