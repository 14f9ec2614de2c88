// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as KubeVirt's sidecar-shim calls it: by the name of the hook, with the domain as an argument. Without KubeVirt.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vhost-cuda-libvirt");
/// The limit of Linux for an argument with its end, in bytes.
const LINUX_LIMIT: usize = 128 << 10;

/// A domain as Go prints those of KubeVirt: on one line, without short forms of empty elements.
fn domain(memory: &str) -> String {
    let xmlns = "http://libvirt.org/schemas/domain/qemu/1.0";
    format!(
        "<domain type=\"kvm\" xmlns:qemu=\"{xmlns}\"><name>default_vm</name><memory unit=\"b\">1073741824</memory>\
         {memory}<os><type arch=\"x86_64\" machine=\"q35\">hvm</type></os>\
         <metadata><kubevirt xmlns=\"http://kubevirt.io\"><uid>5e0a2b1c</uid></kubevirt></metadata>\
         <devices><emulator>/usr/libexec/qemu-kvm</emulator><interface type=\"ethernet\"><model type=\"virtio\"></model>\
         </interface></devices></domain>"
    )
}

/// Runs the hook with further options.
fn hook(domain: &str, options: &[&str]) -> Output {
    let vmi = r#"{"metadata":{"name":"vm"}}"#;
    Command::new(PROGRAM)
        .arg0("/usr/bin/onDefineDomain")
        .args(["--vmi", vmi, "--domain", domain])
        .args(options)
        .output()
        .unwrap()
}

/// The program's answer for a file.
fn attached(domain: &str, options: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["attach", "--file", "-"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(domain.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

fn printed(output: Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_hook_prints_what_attach_does() {
    let shared =
        "<memoryBacking><source type=\"memfd\"></source><access mode=\"shared\"></access></memoryBacking>";
    for memory in ["", shared, "<memoryBacking><hugepages></hugepages></memoryBacking>"] {
        let domain = domain(memory);
        let with = printed(hook(&domain, &[]));
        assert_eq!(with, attached(&domain, &["--socket", "/run/vhost-cuda/vhost.sock"]));
        for part in ["path=/run/vhost-cuda/vhost.sock", "vhost-user-cuda-pci", "<uid>5e0a2b1c</uid>", "mode="]
        {
            assert!(with.contains(part), "{part}: {with}");
        }
        assert!(with.contains("<emulator>/usr/libexec/qemu-kvm</emulator>"), "{with}");
        // KubeVirt may call it again.
        assert_eq!(printed(hook(&with, &[])), with);
        let options = ["--socket", "/run/x.sock", "--num-queues", "4", "--emulator", "/usr/bin/qemu"];
        assert_eq!(printed(hook(&domain, &options)), attached(&domain, &options));
    }
}

#[test]
fn errors_are_on_stderr() {
    let private = domain("<memoryBacking><access mode=\"private\"></access></memoryBacking>");
    for (domain, why) in [("no XML", "not XML"), (private.as_str(), "mode='private'"), ("", "not XML")] {
        let output = hook(domain, &[]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
    // As large as Linux allows. The parser ends at deep nesting, and the program with an error.
    let deep = "<domain type='kvm'>".to_owned() + &"<a>".repeat((LINUX_LIMIT - 100) / 3);
    let output = hook(&deep, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.len() < 1000, "{output:?}");
}
