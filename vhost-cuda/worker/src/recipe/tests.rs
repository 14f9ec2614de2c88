// SPDX-License-Identifier: Apache-2.0 OR MIT

#[cfg(test)]
#[path = "again_test.rs"]
mod again;

use std::collections::{BTreeMap, BTreeSet};

use vhost_cuda_common::link::{Frame, ToWorker};
use virtio_cuda_protocol::cuda::table::{Field, ROWS, Row};
use virtio_cuda_protocol::cuda::{
    ArrayDescriptor, CALL_IN_INLINE, CALL_OUT_INLINE, CallHeader, FIRST_HANDLE, FIRST_VARIABLE, Location,
    PoolProperties, ResourceDescriptor, ResultHeader, Wire, Writer,
};
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::{FromBytes, IntoBytes};

use super::kept::{CALL_BYTES, FIRST_LOOK, MAX_BYTES};
use super::*;
use crate::call::ThreadState;
use crate::fuzz::session::FuzzSession;
use crate::gpu::{CuResult, CudaError};
use crate::serve::execute::execute;

const CONTEXT: u64 = FIRST_HANDLE + 4;
/// Rows whose objects need something that has no recipe, or that the driver of these tests does not have.
const LEFT_OUT: [&str; 11] = [
    // The daemon's cache is empty.
    "module_load_known",
    "library_load_known",
    // They need resources.
    "cuDevResourceGenerateDesc",
    "cuGreenCtxCreate",
    "cuExternalMemoryGetMappedMipmappedArray",
    // They need memory, which has no recipe.
    "cuTexRefSetAddress_v2",
    "cuTexRefSetAddress2D_v3",
    // There is no CUPTI.
    "trace_start",
    "trace_stop",
    // There is no daemon that has offers.
    "cuIpcGetEventHandle",
    "cuIpcOpenEventHandle",
];

/// A guest process.
struct Guest {
    session: FuzzSession,
    thread: ThreadState,
}

impl Guest {
    fn new() -> Self {
        Self { session: FuzzSession::new(false, false), thread: ThreadState::default() }
    }

    fn with_context() -> Self {
        let mut guest = Self::new();
        guest.retain();
        guest
    }

    fn call(&mut self, opcode: Opcode, arguments: &[&[u8]]) -> CuResult<Vec<u8>> {
        self.call_with(opcode, (1, CONTEXT), &arguments.concat(), &[])
    }

    /// Makes a call with a name and further arguments of 32 bits, which must succeed.
    fn name(&mut self, opcode: Opcode, name: u64, others: &[u32]) {
        let others: Vec<_> = others.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.call(opcode, &[&name.to_le_bytes(), &others]).unwrap();
    }

    fn retain(&mut self) {
        self.call(Opcode::cuDevicePrimaryCtxRetain, &[&0_u32.to_le_bytes(), &CONTEXT.to_le_bytes()]).unwrap();
    }

    fn release(&mut self) {
        self.call(Opcode::cuDevicePrimaryCtxRelease_v2, &[&0_u32.to_le_bytes()]).unwrap();
    }

    fn set_attribute(&mut self, stream: u64, value: u8) {
        let mut bytes = [0; 64];
        bytes[0] = value;
        let attribute = 3_u32.to_le_bytes();
        self.call(Opcode::cuStreamSetAttribute, &[&stream.to_le_bytes(), &attribute, &bytes]).unwrap();
    }

    /// The names of the calls of the recipe, in their order.
    fn called(&self) -> Vec<Opcode> {
        self.calls().iter().map(|call| call.opcode).collect()
    }

    fn call_with(
        &mut self,
        opcode: Opcode,
        (thread, context): (u32, u64),
        arguments: &[u8],
        bulk: &[u8],
    ) -> CuResult<Vec<u8>> {
        self.call_for_answers(opcode, (thread, context), arguments, bulk, 0)
    }

    fn call_for_answers(
        &mut self,
        opcode: Opcode,
        (thread, context): (u32, u64),
        arguments: &[u8],
        bulk: &[u8],
        room: u64,
    ) -> CuResult<Vec<u8>> {
        let header = CallHeader {
            opcode: opcode as u32,
            thread,
            context,
            flags: CALL_IN_INLINE | CALL_OUT_INLINE,
            args_bytes: arguments.len() as u32,
            bulk_in_bytes: bulk.len() as u64,
            bulk_out_bytes: room,
        };
        let payload = [header.as_bytes(), arguments, bulk].concat();
        let to_worker = ToWorker { reply_room: 0x8000, ..ToWorker::default() };
        let (status, reply) =
            execute(self.session.state, &mut self.thread, &mut Frame::of_payload(to_worker, payload));
        assert_eq!(status, REPLY_OK, "{opcode:?}");
        let (header, results) = ResultHeader::read_from_prefix(&reply).unwrap();
        if header.result == 0 { Ok(results.to_vec()) } else { Err(CudaError(header.result)) }
    }

    fn recipe(&self) -> Description {
        describe(self.session.state)
    }

    /// The calls of the recipe, in their order.
    fn calls(&self) -> Vec<Call> {
        let mut state = self.session.state.recipe.0.lock();
        let find = |key: &Key| find(self.session.state, key);
        state.settle(&find);
        state.look(&find);
        let mut calls: Vec<Call> = state.kept.values().flat_map(Kept::calls).cloned().collect();
        calls.sort_by_key(|call| call.number);
        calls
    }

    fn make_again(calls: &[Call]) -> Self {
        let mut again = Self::new();
        for call in calls {
            let bulk = match &call.bulk {
                Bulk::Bytes(bulk) => bulk,
                Bulk::Image(digest) => panic!("nobody keeps the image {digest:?} here"),
            };
            let by = (call.thread, call.context.0);
            let made = again.call_with(call.opcode, by, &call.arguments, bulk);
            assert_eq!(made.map(|results| results.len()), Ok(call.results.len()), "{call:?}");
        }
        again
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.thread.held.release();
        self.thread.signal.end(&self.session.state.gpu);
    }
}

/// A name that the guest chooses.
fn name(number: u64) -> u64 {
    FIRST_HANDLE + 16 * (number + 1)
}

/// Makes one object of each row, and changes each setting, with arguments that follow from the row.
struct Everything {
    guest: Guest,
    /// The first object of each class.
    names: BTreeMap<Class, u64>,
    /// The first object that a field of this name named. Kernels and functions are of one class.
    fields: BTreeMap<(Class, &'static str), u64>,
    next: u64,
}

impl Everything {
    fn made() -> (Guest, BTreeSet<&'static str>) {
        let names = BTreeMap::from([(Class::Device, 0)]);
        let mut all = Self { guest: Guest::new(), names, fields: BTreeMap::new(), next: FIRST_HANDLE };
        let mut todo: Vec<&Row> = ROWS.iter().filter(|row| all.is_wanted(row)).collect();
        let wanted = todo.iter().map(|row| row.name).collect();
        // A row may need an object of a later one.
        while !todo.is_empty() {
            let before = todo.len();
            let mut errors = Vec::new();
            todo.retain(|row| all.make(row).inspect_err(|error| errors.push((row.name, *error))).is_err());
            assert!(todo.len() < before, "{errors:?}");
        }
        (all.guest, wanted)
    }

    fn is_wanted(&self, row: &Row) -> bool {
        let opcode = Opcode::from_u32(row.opcode).unwrap();
        let is_kept = match rule(opcode) {
            Some(Rule::Makes(place)) => place.class.is_kept(),
            Some(Rule::Sets { .. }) => true,
            _ => false,
        };
        is_kept && !LEFT_OUT.contains(&row.name)
    }

    fn make(&mut self, row: &Row) -> CuResult<()> {
        let opcode = Opcode::from_u32(row.opcode).unwrap();
        let made = match rule(opcode) {
            Some(Rule::Makes(place)) => Some(place),
            _ => None,
        };
        let mut arguments = Vec::new();
        for field in row.inputs {
            let start = arguments.len();
            let is_new = made.is_some_and(|made| !made.is_result && made.bytes.start == start);
            if is_new {
                self.next += 16;
                // Numbers of variables are in a range of their own, and there is one row of them.
                let is_variable = made.is_some_and(|made| made.class == Class::Variable);
                let new = if is_variable { FIRST_VARIABLE } else { self.next };
                arguments.extend_from_slice(&new.to_le_bytes());
            } else {
                arguments.extend_from_slice(&self.value(opcode, field).ok_or(CudaError::INVALID_HANDLE)?);
            }
            assert_eq!(arguments.len(), start + field.bytes, "{}: {}", row.name, field.name);
        }
        let context = self.names.get(&Class::Context).copied().unwrap_or(0);
        let bulk: &[u8] = match opcode {
            Opcode::vendor_environment => b"",
            _ => b"name\0",
        };
        let results = self.guest.call_with(opcode, (1, context), &arguments, bulk)?;
        if let Some(made) = made {
            let name = made.name(&arguments, &results).unwrap();
            self.names.entry(made.class).or_insert(name);
            for field in row.inputs.iter().filter(|_| !made.is_result) {
                if Class::of(opcode, field.of) == Some(made.class) {
                    self.fields.entry((made.class, field.name)).or_insert(name);
                }
            }
        }
        Ok(())
    }

    /// Returns an argument.
    fn value(&self, opcode: Opcode, field: &Field) -> Option<Vec<u8>> {
        // CU_AD_FORMAT_FLOAT, and CU_MEM_LOCATION_TYPE_DEVICE.
        let [float, device] = [0x20, 1];
        let mut value = match (Class::of(opcode, field.of), field.of, field.name) {
            (Some(class), of, name) if of != "u64" => {
                let name = self.fields.get(&(class, name)).or_else(|| self.names.get(&class))?;
                name.to_le_bytes().to_vec()
            }
            (_, "ArrayDescriptor", _) => {
                let descriptor = ArrayDescriptor {
                    width: 8,
                    height: 8,
                    format: float,
                    channels: 1,
                    ..ArrayDescriptor::default()
                };
                put(&descriptor)
            }
            (_, "ResourceDescriptor", _) => {
                let object = *self.names.get(&Class::Array)?;
                put(&ResourceDescriptor { object, ..ResourceDescriptor::default() })
            }
            (_, "PoolProperties", _) => {
                let location = Location { kind: device, id: 0 };
                put(&PoolProperties { kind: 1, location, ..PoolProperties::default() })
            }
            (_, "Location", _) => put(&Location { kind: device, id: 0 }),
            (_, _, "attribute") if opcode == Opcode::cuMemPoolSetAttribute => vec![4],
            _ => Vec::new(),
        };
        value.resize(field.bytes, 0);
        Some(value)
    }
}

fn put(value: &impl Wire) -> Vec<u8> {
    let mut room = [0; 256];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).unwrap();
    writer.written().to_vec()
}

/// The data of a call that must be the same.
fn data(calls: &[Call]) -> Vec<(Opcode, u64, &[u8])> {
    calls.iter().map(|call| (call.opcode, call.context.0, &call.arguments[..])).collect()
}

#[test]
fn every_object_and_every_setting_is_made_again() {
    let (guest, wanted) = Everything::made();
    let calls = guest.calls();
    let there: BTreeSet<_> = calls.iter().map(|call| call.opcode.name()).collect();
    let replaced: Vec<_> = wanted.difference(&there).collect();
    assert!(replaced.is_empty(), "not in the recipe: {replaced:?}");
    assert_eq!(guest.recipe().obstacle, None);
    drop(guest);
    let again = Guest::make_again(&calls);
    assert_eq!(data(&again.calls()), data(&calls));
}

#[test]
fn objects_that_have_ended_need_no_calls() {
    let mut guest = Guest::with_context();
    let [stream, other, event, pool] = [1, 2, 3, 4].map(name);
    guest.name(Opcode::cuStreamCreateWithPriority, stream, &[1, 0]);
    guest.name(Opcode::cuStreamCreateWithPriority, other, &[1, 0]);
    guest.name(Opcode::cuEventCreate, event, &[0]);
    guest.name(Opcode::cuMemPoolCreate, pool, &[1, 1, 0, 0, 0, 0]);
    for (stream, value) in [(stream, 1), (other, 1), (stream, 2), (1, 1)] {
        guest.set_attribute(stream, value);
    }
    let last = guest.calls();
    assert_eq!(
        guest.called()[4..],
        [
            Opcode::cuMemPoolCreate,
            Opcode::cuStreamSetAttribute,
            Opcode::cuStreamSetAttribute,
            Opcode::cuStreamSetAttribute
        ]
    );
    assert_eq!(last[6].arguments[12], 2, "the later one of two");
    guest.name(Opcode::cuStreamDestroy_v2, stream, &[]);
    assert_eq!(guest.called().len(), 6, "with its setting");
    guest.name(Opcode::cuStreamCreateWithPriority, stream, &[1, 0]);
    assert_eq!(guest.called().len(), 7, "without the setting of the one before");
    guest.call(Opcode::cuDeviceSetMemPool, &[&0_u32.to_le_bytes(), &pool.to_le_bytes()]).unwrap();
    assert_eq!(guest.called().last(), Some(&Opcode::cuDeviceSetMemPool));
    guest.name(Opcode::cuMemPoolDestroy, pool, &[]);
    assert!(!guest.called().contains(&Opcode::cuDeviceSetMemPool), "without the pool it says nothing");
    guest.release();
    assert_eq!(guest.called(), []);
}

#[test]
fn holds_keep_settings_and_new_contexts_have_none() {
    let mut guest = Guest::with_context();
    guest.call(Opcode::cuCtxSetCacheConfig, &[&1_u32.to_le_bytes()]).unwrap();
    guest.retain();
    assert_eq!(guest.called(), [Opcode::cuDevicePrimaryCtxRetain, Opcode::cuCtxSetCacheConfig]);
    guest.release();
    assert_eq!(guest.called().len(), 2);
    guest.release();
    guest.retain();
    assert_eq!(guest.called(), [Opcode::cuDevicePrimaryCtxRetain]);
}

#[test]
fn what_is_not_followed_is_named() {
    let mut guest = Guest::with_context();
    let [graph, events] = [1, 2].map(name);
    guest.name(Opcode::cuGraphCreate, graph, &[0]);
    let told = guest.recipe();
    assert_eq!((told.calls, told.obstacle), (1, None), "graphs are looked at when they end");
    guest.set_attribute(PER_THREAD, 0);
    let told = guest.recipe().obstacle.unwrap();
    assert!(told.starts_with("cuStreamSetAttribute: "), "{told}");
    guest.name(Opcode::cuStreamCreateWithPriority, events, &[1, 0]);
    guest.call(Opcode::cuStreamCopyAttributes, &[&events.to_le_bytes(), &1_u64.to_le_bytes()]).unwrap();
    assert_eq!(guest.recipe().obstacle, Some(told), "the first reason");
    assert_eq!(named(Opcode::vendor_call, &[0; 8]), "cublas");
    assert_eq!(named(Opcode::vendor_call, &[]), "vendor_call");
}

#[test]
fn a_recipe_is_bounded() {
    let mut guest = Guest::with_context();
    for number in 0..20_000 {
        guest.name(Opcode::cuEventCreate, name(number), &[0]);
        guest.name(Opcode::cuEventDestroy_v2, name(number), &[]);
    }
    assert!(guest.session.state.recipe.0.lock().bytes <= FIRST_LOOK + CALL_BYTES * 4, "of ended events");
    assert_eq!(guest.called(), [Opcode::cuDevicePrimaryCtxRetain]);
    for number in 0..(MAX_BYTES / CALL_BYTES) as u64 {
        guest.name(Opcode::cuEventCreate, name(number), &[0]);
    }
    let told = guest.recipe();
    assert_eq!((told.calls, told.bytes), (0, 0));
    assert!(told.obstacle.is_some_and(|obstacle| obstacle.contains("longer than 64 MiB")));
}

#[test]
fn long_images_are_kept_by_their_digests() {
    let mut guest = Guest::with_context();
    let image = vec![b'/'; MAX_BULK as usize + 1];
    let load = |guest: &mut Guest, module: u64| {
        guest.call_with(Opcode::cuModuleLoadData, (1, CONTEXT), &module.to_le_bytes(), &image).unwrap();
    };
    load(&mut guest, name(1));
    let calls = guest.calls();
    let Bulk::Image(KnownImage { digest, bytes }) = &calls[1].bulk else { panic!("{calls:?}") };
    // Another thread computes it.
    assert_eq!((*digest.wait(), *bytes), (*blake3::hash(&image).as_bytes(), MAX_BULK + 1));
    assert!(calls[1].bytes() < 2 * CALL_BYTES);
    assert_eq!(guest.recipe().obstacle.as_deref(), Some(NO_IMAGE), "there is no daemon here");
    guest.name(Opcode::cuEventCreate, name(2), &[0]);
    assert!(matches!(&guest.calls()[2].bulk, Bulk::Bytes(bulk) if bulk.is_empty()), "not of a later call");
}
