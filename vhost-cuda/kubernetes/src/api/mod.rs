// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kubelet's interfaces, from its .proto files (`../../proto`).

pub mod deviceplugin;
pub mod dra;
pub mod pluginregistration;
pub mod podresources;

/// The version of the device plugin API, for its registration.
pub const VERSION: &str = "v1beta1";
/// The socket for registrations, below the kubelet's folder (`/var/lib/kubelet`).
pub const REGISTRATION_SOCKET: &str = "device-plugins/kubelet.sock";
/// The socket for the devices of pods, below the kubelet's folder.
pub const POD_RESOURCES_SOCKET: &str = "pod-resources/kubelet.sock";
/// The health of a device that the scheduler may give to pods.
pub const HEALTHY: &str = "Healthy";
/// The folder in which the kubelet looks for the sockets of plugins to register, below its own.
pub const PLUGINS_REGISTRY: &str = "plugins_registry";
/// The folder for the sockets of plugins themselves, below the kubelet's.
pub const PLUGINS: &str = "plugins";
/// The type of a plugin that is a DRA driver, for its registration.
pub const DRA_TYPE: &str = "DRAPlugin";
/// The version of its service, for the registration.
pub const DRA_SERVICE: &str = "v1.DRAPlugin";
