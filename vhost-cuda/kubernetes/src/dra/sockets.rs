// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's two sockets. The kubelet finds the one for registration, also when it starts again, and learns the other from it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::UnixListener;
use tokio::time::sleep;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::driver::Driver;
use super::object::DRIVER;
use crate::api::dra::dra_plugin_server::DraPluginServer;
use crate::api::pluginregistration::registration_server::RegistrationServer;
use crate::api::{PLUGINS, PLUGINS_REGISTRY};
use crate::identity::{Identity, identity};

/// The pause between two looks at the sockets, and between two tries to serve.
const LOOK: Duration = Duration::from_millis(500);

/// The path of the socket that claims come by, below the kubelet's folder.
pub fn endpoint(kubelet: &Path) -> PathBuf {
    kubelet.join(PLUGINS).join(DRIVER).join("dra.sock")
}

/// Serves the kubelet with this folder. Does not return.
pub async fn serve(kubelet: &Path, driver: &Driver) {
    let mut said = String::new();
    loop {
        if let Err(error) = serve_once(kubelet, driver).await {
            let text = format!("{error:#}");
            // Once, however long it goes on.
            if text != said {
                log::warn!("not registered, trying again: {text}");
                said = text;
            }
        }
        sleep(LOOK).await;
    }
}

/// Serves until a socket is lost.
async fn serve_once(kubelet: &Path, driver: &Driver) -> Result<()> {
    let (registration, registering) =
        bind(kubelet.join(PLUGINS_REGISTRY).join(format!("{DRIVER}-reg.sock")))?;
    let (claims, preparing) = bind(driver.endpoint.clone())?;
    let registering = Server::builder()
        .add_service(RegistrationServer::new(driver.clone()))
        .serve_with_incoming(UnixListenerStream::new(registering));
    let preparing = Server::builder()
        .add_service(DraPluginServer::new(driver.clone()))
        .serve_with_incoming(UnixListenerStream::new(preparing));
    let look = async {
        loop {
            sleep(LOOK).await;
            if let Some(lost) = [&registration, &claims].into_iter().find(|socket| !socket.is_there()) {
                return lost.path.display();
            }
        }
    };
    tokio::select! {
        ended = registering => ended?,
        ended = preparing => ended?,
        lost = look => bail!("somebody has removed {lost}"),
    }
    bail!("a server has ended")
}

/// A socket. It is removed with the value: the kubelet then sees that the driver has ended.
struct Socket {
    path: PathBuf,
    made: Identity,
}

impl Socket {
    fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.made)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket in the place of the last driver's.
fn bind(path: PathBuf) -> Result<(Socket, UnixListener)> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.with_context(|| format!("Cannot make the folder of {}", path.display()))?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("Cannot remove {}", path.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("Cannot make {}", path.display()))?;
    let made = identity(&path)?;
    Ok((Socket { path, made }, listener))
}
