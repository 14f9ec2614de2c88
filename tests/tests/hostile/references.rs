// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Texture and surface references that are invalid, belong to others, or refer to memory of others.

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::frontend::CallParts;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::Opcode;

use crate::calls::{CONTEXT, INVALID_VALUE, Session, in_context};
use crate::{Target, attack};

const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const MODULE: u64 = 0x2000;
const LINE: u64 = 0x2010;
const CANVAS: u64 = 0x2020;
const MADE: u64 = 0x2030;
const ARRAY: u64 = 0x2040;
const CODE: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .texref line;\n\
    .visible .global .surfref canvas;\n.visible .global .u32 variable;\n\
    .visible .entry k()\n{\n.reg .b32 %r<2>;\ntxq.width.b32 %r1, [line];\nsuq.width.b32 %r1, [canvas];\nret;\n}\n";

pub fn collect(suite: &mut Suite) {
    attack(suite, "references::forged_and_stale", forged_and_stale);
    attack(suite, "references::memory_of_others", memory_of_others);
}

/// Long arguments, then short ones.
fn words(opcode: Opcode, long: &[u64], short: &[u32]) -> CallParts {
    let long = long.iter().flat_map(|word| word.to_le_bytes());
    let args: Vec<u8> = long.chain(short.iter().flat_map(|word| word.to_le_bytes())).collect();
    CallParts::new(opcode, &args).context(CONTEXT)
}

fn with_references(target: &Target) -> Result<Session> {
    let mut session = Session::open(target)?;
    session.expect(&in_context(Opcode::cuModuleLoadData, &[MODULE]).bulk(CODE), &[0])?;
    session.expect(&in_context(Opcode::cuModuleGetTexRef, &[MODULE, LINE]).bulk(b"line"), &[0])?;
    session.expect(&in_context(Opcode::cuModuleGetSurfRef, &[MODULE, CANVAS]).bulk(b"canvas"), &[0])?;
    session.expect(&in_context(Opcode::cuTexRefCreate, &[MADE]), &[0])?;
    Ok(session)
}

fn refuse(session: &mut Session, texture: u64, surface: u64) -> Result<()> {
    for opcode in [
        Opcode::cuTexRefDestroy,
        Opcode::cuTexRefGetAddress_v2,
        Opcode::cuTexRefGetArray,
        Opcode::cuTexRefGetMipmappedArray,
        Opcode::cuTexRefGetFilterMode,
        Opcode::cuTexRefGetFormat,
        Opcode::cuTexRefGetMipmapFilterMode,
        Opcode::cuTexRefGetMipmapLevelBias,
        Opcode::cuTexRefGetMipmapLevelClamp,
        Opcode::cuTexRefGetMaxAnisotropy,
        Opcode::cuTexRefGetBorderColor,
        Opcode::cuTexRefGetFlags,
    ] {
        session.expect(&in_context(opcode, &[texture]), &[INVALID_HANDLE])?;
    }
    session.expect(&in_context(Opcode::cuSurfRefGetArray, &[surface]), &[INVALID_HANDLE])?;
    session.expect(&words(Opcode::cuTexRefSetFlags, &[texture], &[0]), &[INVALID_HANDLE])?;
    session.expect(&words(Opcode::cuTexRefSetFormat, &[texture], &[0x20, 1]), &[INVALID_HANDLE])?;
    session.expect(&words(Opcode::cuTexRefSetAddressMode, &[texture], &[0, 1]), &[INVALID_HANDLE])?;
    let own = session.memory;
    session.expect(&words(Opcode::cuTexRefSetAddress_v2, &[texture, own, 64], &[1]), &[INVALID_HANDLE])?;
    session.expect(&words(Opcode::cuSurfRefSetArray, &[surface, ARRAY], &[0]), &[INVALID_HANDLE])?;
    Ok(())
}

fn forged_and_stale(target: &mut Target) -> Result<()> {
    let mut session = with_references(target)?;
    for forged in [0u64, 3, 0x1234_5678, 0x7fff_ffff_f000, MODULE, u64::MAX] {
        refuse(&mut session, forged, forged)?;
        session.expect(
            &in_context(Opcode::cuModuleGetTexRef, &[forged, 0x3000]).bulk(b"line"),
            if forged == MODULE { &[0] } else { &[INVALID_HANDLE] },
        )?;
        // An invalid array.
        session.expect(&words(Opcode::cuTexRefSetArray, &[LINE, forged], &[1]), &[INVALID_HANDLE])?;
        session
            .expect(&words(Opcode::cuTexRefSetMipmappedArray, &[LINE, forged], &[1]), &[INVALID_HANDLE])?;
        session.expect(&words(Opcode::cuSurfRefSetArray, &[CANVAS, forged], &[0]), &[INVALID_HANDLE])?;
    }
    // Wrong kinds, names in use, variables that are not references.
    refuse(&mut session, CANVAS, LINE)?;
    let taken = in_context(Opcode::cuModuleGetTexRef, &[MODULE, MADE]).bulk(b"line");
    session.expect(&taken, &[INVALID_VALUE])?;
    for name in [&b"variable"[..], b"canvas", b"k", b"nothing"] {
        session.expect(&in_context(Opcode::cuModuleGetTexRef, &[MODULE, 0x4000]).bulk(name), &[NOT_FOUND])?;
    }
    // A module's end with it, and cannot be destroyed before.
    session.expect(&in_context(Opcode::cuTexRefDestroy, &[LINE]), &[INVALID_HANDLE])?;
    session.expect(&in_context(Opcode::cuModuleUnload, &[MODULE]), &[0])?;
    refuse(&mut session, LINE, CANVAS)?;
    session.expect(&in_context(Opcode::cuTexRefDestroy, &[MADE]), &[0])?;
    session.expect(&in_context(Opcode::cuTexRefDestroy, &[MADE]), &[INVALID_HANDLE])?;
    session.greet()
}

fn memory_of_others(target: &mut Target) -> Result<()> {
    let mut session = with_references(target)?;
    let own = session.memory;
    let linear = |dptr: u64, bytes: u64| words(Opcode::cuTexRefSetAddress_v2, &[LINE, dptr, bytes], &[1]);
    let rows = |dptr: u64, [width, height, pitch]: [u64; 3]| {
        let args = [LINE, width, height].into_iter().flat_map(|word| word.to_le_bytes());
        let args = args.chain([0x20u32, 1].into_iter().flat_map(|word| word.to_le_bytes()));
        let args: Vec<u8> =
            args.chain([dptr, pitch].into_iter().flat_map(|word| word.to_le_bytes())).collect();
        CallParts::new(Opcode::cuTexRefSetAddress2D_v3, &args).context(CONTEXT)
    };
    session.expect(&linear(own, 4096), &[0])?;
    let bound = session.expect(&in_context(Opcode::cuTexRefGetAddress_v2, &[LINE]), &[0])?;
    let bound = u64::from_le_bytes(bound.results[..].try_into().context("A device pointer")?);
    ensure!(bound == own, "bound {bound:#x}, not {own:#x}");
    session.expect(&rows(own, [16, 8, 512]), &[0])?;
    for address in [0, 1, 0x40_0000, own - 512, own + 4096, 1 << 47, u64::MAX] {
        session.expect(&linear(address, 64), &[INVALID_VALUE])?;
        session.expect(&rows(address, [16, 1, 512]), &[INVALID_VALUE])?;
    }
    for bytes in [4097, 1 << 40, u64::MAX, u64::MAX - own + 1] {
        session.expect(&linear(own, bytes), &[INVALID_VALUE])?;
    }
    for size in [
        [16, 0, 512],
        [16, 9, 512],
        [129, 1, 512],
        [u64::MAX, 1, 512],
        [16, u64::MAX, u64::MAX],
        [1 << 62, 2, 1 << 63],
    ] {
        session.expect(&rows(own, size), &[INVALID_VALUE])?;
    }
    session.greet()
}
