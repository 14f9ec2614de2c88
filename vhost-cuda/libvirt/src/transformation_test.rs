// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains before and after.

use std::path::PathBuf;

use roxmltree::Document;

use crate::attach::{Device, attach};
use crate::detach::detach;
use crate::names;

/// As libvirt prints one.
const PLAIN: &str = "<domain type='kvm'>
  <name>vm1</name>
  <uuid>0b1c6c43-7a3e-4d2a-9d53-5f2e6d3c9a10</uuid>
  <memory unit='KiB'>1048576</memory>
  <currentMemory unit='KiB'>1048576</currentMemory>
  <vcpu placement='static'>2</vcpu>
  <os>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
  </os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <graphics type='vnc' passwd='a&lt;b'/>
  </devices>
</domain>
";
const OURS: &str = "/usr/lib/vhost-cuda/qemu/bin/qemu-system-x86_64";

fn device(socket: &str) -> Device {
    Device { socket: PathBuf::from(socket), queues: 2, emulator: Some(PathBuf::from(OURS)) }
}

/// Returns `PLAIN` with `more` after the line that ends with `behind`.
fn with(behind: &str, more: &str) -> String {
    assert!(PLAIN.contains(behind));
    PLAIN.replacen(behind, &format!("{behind}\n{more}"), 1)
}

/// Domains that an administrator may have.
fn domains() -> Vec<String> {
    let qemu = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'";
    let memory = |inside: &str| {
        with("</currentMemory>", &format!("  <memoryBacking>\n    {inside}\n  </memoryBacking>"))
    };
    let arguments = "  <qemu:commandline>\n    <qemu:arg value='-s'/>\n  </qemu:commandline>\n</domain>";
    vec![
        PLAIN.to_owned(),
        memory("<source type='memfd'/>\n    <access mode='shared'/>"),
        memory("<source type='file'/>"),
        memory("<hugepages/>"),
        memory("<locked/>\n    <access mode='shared'/>"),
        with("</uuid>", "  <metadata>\n    <x:y xmlns:x='urn:x'>text</x:y>\n  </metadata>"),
        with("</uuid>", "  <title>One</title>\n  <description>Two</description>"),
        PLAIN.replace("kvm'", &format!("kvm' {qemu}")).replace("</domain>", arguments),
        PLAIN.replace("kvm'", &format!("kvm' {qemu}")),
        PLAIN.replace("    <emulator>/usr/bin/qemu-system-x86_64</emulator>\n", ""),
        PLAIN.replace("/usr/bin/qemu-system-x86_64", OURS),
        PLAIN.lines().map(str::trim).collect(),
        format!("<?xml version='1.0'?>\n<!-- a comment -->\n{PLAIN}"),
    ]
}

fn arguments(text: &str) -> Vec<String> {
    let document = names::parse(text).unwrap();
    names::arguments(document.root_element()).into_iter().map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn detaching_gives_back_the_same_bytes() {
    for domain in domains() {
        let attached = attach(&domain, &device("/run/vm1.sock")).unwrap();
        assert_eq!(detach(&attached).unwrap().as_deref(), Some(domain.as_str()), "{attached}");
        assert_eq!(detach(&domain).unwrap(), None);
    }
}

#[test]
fn the_domain_has_everything_that_the_device_needs() {
    for domain in domains() {
        let attached = attach(&domain, &device("/run/vm1.sock")).unwrap();
        let words = arguments(&attached);
        let ours = &words[words.len() - 4..];
        let expected = [
            "-chardev",
            "socket,id=vhost-cuda,path=/run/vm1.sock,reconnect-ms=500",
            "-device",
            r#"{"driver":"vhost-user-cuda-pci","chardev":"vhost-cuda","num-queues":2}"#,
        ];
        assert_eq!(ours, expected);
        assert_eq!(words.len() - 4, arguments(&domain).len(), "other arguments stay");
        let document = Document::parse(&attached).unwrap();
        let has = |name: &str| document.descendants().find(|node| node.has_tag_name(name));
        let access = has("access").expect("access");
        assert_eq!(access.attribute("mode"), Some("shared"));
        assert!(has("source").is_some() || has("hugepages").is_some());
        assert_eq!(has("emulator").and_then(|node| node.text()), Some(OURS));
    }
}

#[test]
fn attaching_again_changes_nothing() {
    let attached = attach(PLAIN, &device("/run/vm1.sock")).unwrap();
    assert_eq!(attach(&attached, &device("/run/vm1.sock")).unwrap(), attached);
    // libvirt writes the note with other quotes.
    let start = attached.find("<vhost-cuda:device").unwrap();
    let end = start + attached[start..].find("/>").unwrap();
    let relaid =
        format!("{}{}{}", &attached[..start], attached[start..end].replace('\'', "\""), &attached[end..]);
    assert_ne!(relaid, attached);
    assert_eq!(attach(&relaid, &device("/run/vm1.sock")).unwrap(), relaid);
}

#[test]
fn attaching_with_other_options_replaces_the_device() {
    let attached = attach(PLAIN, &device("/run/vm1.sock")).unwrap();
    let other = attach(&attached, &device("/run/a,b'<&.sock")).unwrap();
    assert_eq!(arguments(&other)[1], "socket,id=vhost-cuda,path=/run/a,,b'<&.sock,reconnect-ms=500");
    assert_eq!(arguments(&other).len(), 4);
    assert_eq!(detach(&other).unwrap().as_deref(), Some(PLAIN));
    // Without a wish for QEMU, the domain's first one comes back.
    let own = Device { emulator: None, ..device("/run/vm1.sock") };
    assert!(attach(&attached, &own).unwrap().contains("<emulator>/usr/bin/qemu-system-x86_64</emulator>"));
}

#[test]
fn later_changes_of_others_stay() {
    let attached = attach(PLAIN, &device("/run/vm1.sock")).unwrap();
    let changed = attached
        .replace("    <access mode='shared'/>\n", "    <access mode='shared'/>\n    <locked/>\n")
        .replace("  </qemu:commandline>", "    <qemu:env name='A' value='1'/>\n  </qemu:commandline>")
        .replace(&format!("<emulator>{OURS}"), "<emulator>/opt/qemu");
    let without = detach(&changed).unwrap().unwrap();
    assert!(without.contains("<memoryBacking>\n    <locked/>\n  </memoryBacking>"), "{without}");
    assert!(without.contains("<qemu:env name='A'") && without.contains("xmlns:qemu="), "{without}");
    assert!(without.contains("<emulator>/opt/qemu</emulator>"), "{without}");
    assert!(!without.contains("vhost-cuda:device") && arguments(&without).is_empty(), "{without}");
}

#[test]
fn a_device_that_was_changed_by_hand_is_not_guessed() {
    let attached = attach(PLAIN, &device("/run/vm1.sock")).unwrap();
    let at = attached.find("<qemu:commandline>").unwrap();
    let changed =
        format!("{}{}", &attached[..at], attached[at..].replace("num-queues&quot;:2", "num-queues&quot;:4"));
    assert_ne!(changed, attached);
    let error = detach(&changed).unwrap_err().to_string();
    assert!(error.contains("num-queues\":4") && error.contains("by hand"), "{error}");
}

#[test]
fn domains_that_cannot_have_the_device_are_refused() {
    let memory = |inside: &str| with("</currentMemory>", &format!("<memoryBacking>{inside}</memoryBacking>"));
    let cell = "<cpu><numa><cell id='0' cpus='0' memory='1' memAccess='private'/></numa></cpu>";
    let by_hand =
        "<qemu:commandline><qemu:arg value='vhost-user-cuda-pci,chardev=c'/></qemu:commandline>\n</domain>";
    let by_hand = PLAIN
        .replace("kvm'", "kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'")
        .replace("</domain>", by_hand);
    for (domain, part) in [
        (memory("<source type='anonymous'/>"), "anonymous"),
        (memory("<access mode='private'/>"), "private"),
        (with("</currentMemory>", cell), "NUMA cell 0"),
        (by_hand, "by hand"),
        (PLAIN.replace("kvm", "xen"), "type='xen'"),
        (PLAIN.replace("kvm'", "kvm' xmlns:qemu='urn:other'"), "urn:other"),
        ("<network/>".to_owned(), "<network>"),
        ("<domain".to_owned(), "not XML"),
    ] {
        let error = attach(&domain, &device("/run/vm1.sock")).expect_err(&domain);
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }
    assert!(attach(PLAIN, &device("relative.sock")).is_err());
}
