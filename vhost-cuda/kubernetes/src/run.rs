// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of the plugin.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::Args;
use crate::daemons::{Daemons, Settings};
use crate::folder::Folder;
use crate::gpus;
use crate::kubelet::Kubelet;
use crate::service::Service;
use crate::shards::Inventory;

/// The pause between two looks at pods and daemons.
const LOOK: Duration = Duration::from_secs(1);
/// The time for a daemon that starts or ends, when the plugin is asked to end.
const END: Duration = Duration::from_secs(25);

/// Runs the plugin until it gets SIGTERM or SIGINT. Daemons go on without it.
///
/// Errors: there are no GPUs, or the files of the plugin cannot be made or read.
pub fn run(args: &Args) -> Result<()> {
    let gpus = gpus::find(&args.gpus)?;
    let inventory = Inventory::new(&gpus, args.shard_memory)?;
    let options = match &args.daemon_options {
        Some(file) => {
            fs::read_to_string(file).with_context(|| format!("--daemon-options {}", file.display()))?
        }
        None => String::new(),
    };
    let folder = Folder::open(&args.folder, &inventory)?;
    let settings =
        Settings { program: args.daemon.clone(), options, arbiter: args.arbiter.clone(), grace: args.grace };
    let daemons = Daemons::open(folder, settings, &inventory)?;
    log::info!("{} GPUs, {} shards of {} bytes", gpus.len(), inventory.ids().count(), args.shard_memory);
    let service = Service {
        inventory: Arc::new(inventory),
        daemons: Arc::new(Mutex::new(daemons)),
        libraries: args.guest_libraries.clone(),
    };
    let kubelet = Kubelet { folder: args.kubelet.clone(), resource: args.resource.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            () = kubelet.serve(service.clone()) => {}
            () = reconcile(&kubelet, &service) => {}
            _ = term.recv() => log::info!("ends on SIGTERM; daemons go on"),
            _ = int.recv() => log::info!("ends on SIGINT; daemons go on"),
        }
        Ok(())
    });
    runtime.shutdown_timeout(END);
    ended
}

/// Compares daemons with the kubelet's pods, again and again. Does not return.
async fn reconcile(kubelet: &Kubelet, service: &Service) {
    let mut is_known = true;
    loop {
        let listed = kubelet.listed().await;
        if let Err(error) = &listed
            && is_known
        {
            log::warn!("no daemon is ended meanwhile: {error:#}");
        }
        is_known = listed.is_ok();
        let done = service.with_daemons(move |daemons| daemons.reconcile(listed.ok().as_ref())).await;
        if let Err(error) = done {
            log::error!("{error}");
        }
        sleep(LOOK).await;
    }
}
