// SPDX-License-Identifier: Apache-2.0 OR MIT

//! CUDA's environment variables ("CUDA Environment Variables" in the CUDA programming guide), read once by a driver
//! library when it is initialised. `docs/environment.md` lists which of them act. Settings that programs change afterwards
//! (those of core dumps) are here, too.

pub mod core_dump;
pub mod speed;
mod visible;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

pub use visible::{NamedTwice, VisibleDevices};

/// Device code that the driver may take from an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Machine code: not with `CUDA_FORCE_PTX_JIT=1` or `CUDA_FORCE_JIT=1`.
    pub machine: bool,
    /// PTX, and intermediate code for the linker: not with `CUDA_DISABLE_PTX_JIT=1` or `CUDA_DISABLE_JIT=1`.
    pub ptx: bool,
}

/// The destination of `CUDA_LOG_FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, by its path.
    Path(OsString),
}

/// The variables that act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: VisibleDevices,
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    pub pci_order: bool,
    /// `CUDA_LAUNCH_BLOCKING=1`.
    pub launch_blocking: bool,
    /// `CUDA_MODULE_LOADING=EAGER`.
    pub eager_loading: bool,
    /// `CUDA_FORCE_PTX_JIT` and its relatives.
    pub code: Code,
    /// `CUDA_GRAPHS_USE_NODE_PRIORITY`, if it is set.
    pub node_priority: Option<bool>,
    /// `CUDA_LOG_FILE`.
    pub log_file: Option<LogFile>,
}

impl Environment {
    /// The variables of this process, as they are now.
    pub fn of_this_process() -> Self {
        Self::new(|name| std::env::var_os(name).map(OsStringExt::into_vec))
    }

    /// The variables that `read` returns.
    pub fn new(read: impl Fn(&str) -> Option<Vec<u8>>) -> Self {
        let number = |name| read(name).map(|text| leading_number(&text).unwrap_or(0));
        let is_set = |name| number(name).is_some_and(|value| value != 0);
        let has_value = |name, value: &str| read(name).is_some_and(|text| text == value.as_bytes());
        Self {
            visible_devices: VisibleDevices::new(read("CUDA_VISIBLE_DEVICES").as_deref()),
            pci_order: has_value("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            launch_blocking: is_set("CUDA_LAUNCH_BLOCKING"),
            eager_loading: has_value("CUDA_MODULE_LOADING", "EAGER"),
            code: Code {
                machine: !is_set("CUDA_FORCE_PTX_JIT") && !is_set("CUDA_FORCE_JIT"),
                ptx: !is_set("CUDA_DISABLE_PTX_JIT") && !is_set("CUDA_DISABLE_JIT"),
            },
            node_priority: number("CUDA_GRAPHS_USE_NODE_PRIORITY").map(|value| value != 0),
            log_file: read("CUDA_LOG_FILE").filter(|text| !text.is_empty()).map(|text| match &text[..] {
                b"stdout" => LogFile::Stdout,
                b"stderr" => LogFile::Stderr,
                _ => LogFile::Path(OsString::from_vec(text)),
            }),
        }
    }
}

/// The number that a text begins with, as `strtol` reads it; `None` if it begins with none.
fn leading_number(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = digits[..count]
        .iter()
        .fold(0i64, |value, &digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    (count > 0).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Environment {
        Environment::new(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_bytes().to_vec())
        })
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let environment = with(&[]);
        assert!(!environment.launch_blocking && !environment.eager_loading && !environment.pci_order);
        assert_eq!(environment.code, Code { machine: true, ptx: true });
        assert_eq!((environment.node_priority, environment.log_file), (None, None));
        assert_eq!(environment.visible_devices.choose(2, &[]), Ok(vec![0, 1]));
    }

    #[test]
    fn numbers_switch_and_words_choose() {
        assert!(with(&[("CUDA_LAUNCH_BLOCKING", "1")]).launch_blocking);
        assert!(!with(&[("CUDA_LAUNCH_BLOCKING", "0")]).launch_blocking);
        assert!(!with(&[("CUDA_LAUNCH_BLOCKING", "yes")]).launch_blocking);
        assert!(with(&[("CUDA_MODULE_LOADING", "EAGER")]).eager_loading);
        assert!(!with(&[("CUDA_MODULE_LOADING", "LAZY")]).eager_loading);
        assert!(with(&[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]).pci_order);
        assert_eq!(with(&[("CUDA_GRAPHS_USE_NODE_PRIORITY", "0")]).node_priority, Some(false));
        assert_eq!(with(&[("CUDA_GRAPHS_USE_NODE_PRIORITY", "1")]).node_priority, Some(true));
    }

    #[test]
    fn either_name_rules_a_kind_of_code_out() {
        for name in ["CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"] {
            assert_eq!(with(&[(name, "1")]).code, Code { machine: false, ptx: true });
        }
        for name in ["CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT"] {
            assert_eq!(with(&[(name, "1")]).code, Code { machine: true, ptx: false });
        }
    }

    #[test]
    fn the_log_goes_to_a_stream_or_a_file() {
        let log_file = |value| with(&[("CUDA_LOG_FILE", value)]).log_file;
        assert_eq!(log_file("stdout"), Some(LogFile::Stdout));
        assert_eq!(log_file("stderr"), Some(LogFile::Stderr));
        assert_eq!(log_file("/tmp/a"), Some(LogFile::Path("/tmp/a".into())));
        assert_eq!(log_file(""), None);
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(leading_number(b" 12abc"), Some(12));
        assert_eq!(leading_number(b"-3"), Some(-3));
        assert_eq!(leading_number(b"+3"), Some(3));
        assert_eq!(leading_number(b"99999999999999999999"), Some(i64::MAX));
        for none in ["", "-", "a1", " "] {
            assert_eq!(leading_number(none.as_bytes()), None);
        }
    }
}
