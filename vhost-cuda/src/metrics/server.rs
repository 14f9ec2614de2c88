// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves the metrics over HTTP, on a Unix socket or on the loopback interface.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};
use log::{info, warn};
use tiny_http::{Header, Method, Response, Server};

use crate::socket::{Address, remove_stale};

/// The path of the only page.
pub const PAGE: &str = "/metrics";
/// Prometheus' text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Removes the socket when the daemon ends.
#[derive(Debug)]
pub struct Listening(Option<PathBuf>);

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Answers each request for [`PAGE`] with `page`, on a thread of its own.
///
/// Errors: the address cannot be used.
pub fn start(address: &Address, page: impl Fn() -> String + Send + 'static) -> anyhow::Result<Listening> {
    let cannot = || format!("Cannot listen on {address} for metrics");
    let (server, socket) = match address {
        Address::Unix(path) => (listen_at(path).with_context(cannot)?, Some(path.clone())),
        Address::Loopback(at) => {
            (Server::http(at).map_err(|error| anyhow!(error)).with_context(cannot)?, None)
        }
    };
    info!("metrics at {address}");
    thread::Builder::new().name("metrics".into()).spawn(move || serve(&server, page)).with_context(cannot)?;
    Ok(Listening(socket))
}

fn listen_at(path: &Path) -> anyhow::Result<Server> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    Server::from_listener(listener, None).map_err(|error| anyhow!(error))
}

fn serve(server: &Server, page: impl Fn() -> String) {
    loop {
        let request = match server.recv() {
            Ok(request) => request,
            Err(error) => return warn!("metrics are not served any more: {error}"),
        };
        let answer = match (request.method(), request.url()) {
            (Method::Get, PAGE) => Response::from_string(page()),
            (Method::Get, _) => {
                Response::from_string(format!("The figures are at {PAGE}\n")).with_status_code(404)
            }
            _ => Response::from_string("Only GET\n").with_status_code(405),
        };
        let answer = match Header::from_bytes("Content-Type", FORMAT) {
            Ok(header) => answer.with_header(header),
            Err(()) => answer,
        };
        // It fails if the client has disconnected.
        let _ = request.respond(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::top::fetch;
    use super::*;

    #[test]
    fn addresses_are_paths_or_on_the_loopback_interface() {
        assert_eq!("/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!("./x".parse(), Ok(Address::Unix("./x".into())));
        assert_eq!("127.0.0.1:9100".parse::<Address>().unwrap().to_string(), "127.0.0.1:9100");
        assert!("0.0.0.0:9100".parse::<Address>().unwrap_err().contains("loopback"));
        assert!("x".parse::<Address>().unwrap_err().contains("slash"));
    }

    #[test]
    fn the_page_is_served_until_the_end() {
        let folder = std::env::temp_dir().join(format!("vhost-cuda-metrics-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let address = Address::Unix(folder.join("socket"));
        let listening = start(&address, || "a 1\n".to_owned()).unwrap();
        assert_eq!(fetch(&address).unwrap(), "a 1\n");
        assert!(start(&address, String::new).is_err(), "the address is in use");
        drop(listening);
        assert!(!folder.join("socket").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
