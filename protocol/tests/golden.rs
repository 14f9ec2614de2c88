// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Shipped numbers and layouts never change: compares them with `golden/`.
//! After adding rows, run with `UPDATE_GOLDEN=1` and read the difference before committing it.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use virtio_cuda_protocol::cuda::table::{Field, RETIRED, ROWS};
use virtio_cuda_protocol::cuda::{CallHeader, Getter, ResultHeader};
use virtio_cuda_protocol::transport::*;
use virtio_cuda_protocol::uapi;

fn compare(file: &str, now: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, now).expect("golden file is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("golden file exists");
    assert_eq!(golden, now, "{file} differs from what was shipped; see the head of this test");
}

#[test]
fn calls_keep_their_numbers_and_arguments() {
    let mut text = String::new();
    for row in ROWS {
        let fields = |fields: &[Field]| -> String {
            let fields: Vec<_> =
                fields.iter().map(|field| format!("{} : {}", field.name, field.of)).collect();
            fields.join(", ")
        };
        let (inputs, results) = (fields(row.inputs), fields(row.results));
        writeln!(text, "{:#06x} {}({inputs}) -> ({results})", row.opcode, row.name).unwrap();
    }
    compare("calls.txt", &text);
    for number in RETIRED {
        assert!(ROWS.iter().all(|row| row.opcode != *number), "{number:#06x} was another call's");
    }
}

#[test]
fn getters_keep_their_numbers_and_parameters() {
    let mut text = String::new();
    for getter in Getter::all() {
        let of = if getter.of_device { "device" } else { "system" };
        writeln!(text, "{:#04x} {} {of} {:?}", getter.number, getter.name, getter.parameters).unwrap();
    }
    compare("getters.txt", &text);
}

#[test]
fn layouts_keep_sizes_and_offsets() {
    /// Returns a line per structure: its size, and the offsets of its fields.
    macro_rules! layouts {
        ($($t:ty { $($field:ident),* })*) => {{
            let mut text = String::new();
            $(
                write!(text, "{} {}:", stringify!($t), size_of::<$t>()).unwrap();
                $(write!(text, " {}@{}", stringify!($field), offset_of!($t, $field)).unwrap();)*
                text.push('\n');
            )*
            text
        }};
    }
    let mut text = layouts! {
        Config { magic, protocol_version, num_request_queues, max_payload_bytes, max_bulk_bytes,
                 max_sessions, max_outstanding, status, driver_version }
        RequestHeader { op, flags, session, payload_bytes, in_entries, out_entries, tag }
        MemEntry { addr, bytes }
        ReplyHeader { status, payload_bytes }
        Open { pid, uid, charged_uid, name }
        Opened { session }
        Event { kind, session, value }
        uapi::Info { protocol_version, max_payload_bytes, max_bulk_bytes, max_pinned_bytes, max_outstanding }
        uapi::Call { payload, reply, payload_bytes, reply_bytes, in_addr, in_bytes, out_addr, out_bytes,
                     flags, ticket, tag }
        uapi::Unpin { tag }
        CallHeader { opcode, thread, context, args_bytes, flags, bulk_in_bytes, bulk_out_bytes }
        ResultHeader { result, results_bytes, flags, bulk_out_bytes }
    };
    for (name, number) in [
        ("VIRTIO_CUDA_INFO", uapi::VIRTIO_CUDA_INFO),
        ("VIRTIO_CUDA_CALL", uapi::VIRTIO_CUDA_CALL),
        ("VIRTIO_CUDA_UNPIN", uapi::VIRTIO_CUDA_UNPIN),
        ("OP_HELLO", OP_HELLO),
        ("OP_OPEN", OP_OPEN),
        ("OP_CLOSE", OP_CLOSE),
        ("OP_CALL", OP_CALL),
        ("OP_UNPIN", OP_UNPIN),
        ("OP_SHARE", OP_SHARE),
    ] {
        writeln!(text, "{name} {number:#x}").unwrap();
    }
    compare("layouts.txt", &text);
}
