// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of the plugin.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::{Action, Args, CdiArgs};
use crate::cdi::{self, Specs};
use crate::container::Edits;
use crate::daemons::Daemons;
use crate::dra::{self, Cluster, Driver};
use crate::folder::Folder;
use crate::gpus;
use crate::kubelet::Kubelet;
use crate::service::Service;
use crate::settings::Settings;
use crate::shards::Inventory;
use crate::shared::Shared;

/// The pause between two looks at pods and daemons.
const LOOK: Duration = Duration::from_secs(1);
/// The time for a daemon that starts or ends, when the plugin is asked to end.
const END: Duration = Duration::from_secs(25);

/// Runs the plugin until it gets SIGTERM or SIGINT. Daemons go on without it. Or does something else, if the options say so.
///
/// Errors: there are no GPUs, or the files of the plugin cannot be made or read.
pub fn run(args: &Args) -> Result<()> {
    match &args.action {
        Some(Action::Cdi(args)) => device(args),
        None => plugin(args),
    }
}

/// Makes or removes a device of the Container Device Interface.
fn device(args: &CdiArgs) -> Result<()> {
    let specs = Specs { folder: args.cdi.clone() };
    if args.remove {
        return specs.remove(&args.name);
    }
    let socket = args.socket.clone();
    let socket = socket.unwrap_or_else(|| format!("/run/vhost-user-cuda/{}.sock", args.name).into());
    // A container runtime would say less.
    for path in [&socket, &args.guest_libraries] {
        ensure!(path.is_absolute(), "{} is not an absolute path", path.display());
        ensure!(path.exists(), "{} does not exist", path.display());
    }
    specs.write(&args.name, &Edits::for_socket(&socket, &args.guest_libraries))?;
    println!("{}", cdi::qualified(&args.name));
    Ok(())
}

fn plugin(args: &Args) -> Result<()> {
    let gpus = gpus::find(&args.gpus)?;
    let inventory = Inventory::new(&gpus, args.shard_memory)?;
    let options = match &args.daemon_options {
        Some(file) => {
            fs::read_to_string(file).with_context(|| format!("--daemon-options {}", file.display()))?
        }
        None => String::new(),
    };
    let folder = Folder::open(&args.folder, &inventory)?;
    let settings = Settings {
        program: args.daemon.clone(),
        options,
        arbiter: args.arbiter.clone(),
        grace: args.grace,
        libraries: args.guest_libraries.clone(),
        specs: args.dra.is_some().then(|| Specs { folder: args.cdi.clone() }),
    };
    let inventory = Arc::new(inventory);
    let daemons = Shared::new(Daemons::open(folder, settings, inventory.clone())?);
    log::info!("{} GPUs, {} shards of {} bytes", gpus.len(), inventory.ids().count(), args.shard_memory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            () = serve(args, inventory, daemons) => {}
            _ = term.recv() => log::info!("ends on SIGTERM; daemons go on"),
            _ = int.recv() => log::info!("ends on SIGINT; daemons go on"),
        }
        Ok(())
    });
    runtime.shutdown_timeout(END);
    ended
}

/// Serves the kubelet. Does not return.
async fn serve(args: &Args, inventory: Arc<Inventory>, daemons: Shared) {
    if let Some(node) = &args.dra {
        let cluster = Cluster { kubectl: args.kubectl.clone() };
        let endpoint = dra::endpoint(&args.kubelet);
        let driver = Driver { node: node.clone(), inventory, daemons: daemons.clone(), cluster, endpoint };
        tokio::select! {
            () = dra::serve(&args.kubelet, &driver) => {}
            () = dra::publish(&driver, args.arbiter.is_some()) => {}
            () = reconcile(None, &daemons) => {}
        }
    } else {
        let kubelet = Kubelet { folder: args.kubelet.clone(), resource: args.resource.clone() };
        let service = Service { inventory, daemons: daemons.clone() };
        tokio::select! {
            () = kubelet.serve(service) => {}
            () = reconcile(Some(&kubelet), &daemons) => {}
        }
    }
}

/// Starts daemons that have ended, and ends those without containers if the kubelet lists these, again and again. Does not return.
async fn reconcile(kubelet: Option<&Kubelet>, daemons: &Shared) {
    let mut is_known = true;
    loop {
        let listed = match kubelet {
            Some(kubelet) => kubelet.listed().await.map(Some),
            None => Ok(None),
        };
        if let Err(error) = &listed
            && is_known
        {
            log::warn!("no daemon is ended meanwhile: {error:#}");
        }
        is_known = listed.is_ok();
        let listed = listed.ok().flatten();
        let done = daemons.with(move |daemons| daemons.reconcile(listed.as_ref())).await;
        if let Err(error) = done {
            log::error!("{error}");
        }
        sleep(LOOK).await;
    }
}
