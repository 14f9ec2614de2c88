// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tests of the tables of reservations and host memory.

use super::*;

const BASE: u64 = RESERVATIONS_BASE;
const UNIT: u64 = GRANULARITY;

fn reserved(bytes: u64, bound: Bound) -> Reserved {
    Reserved { bytes, slot_bytes: 16 * UNIT, bound }
}

fn allocation(handle: u64) -> HostAllocation {
    let properties =
        CUmemAllocationProp { location: CUmemLocation { kind: 2, id: 0 }, ..CUmemAllocationProp::ZERO };
    HostAllocation { handle, store: Store::new(4096).unwrap(), bytes: 4 * UNIT, properties }
}

/// Returns a reservation of each kind: of the host with mappings in units 1 and 2 to 3, of the driver, and without an
/// owner.
fn fixture() -> State {
    let mut state = State::default();
    state.reserved.insert(BASE, reserved(6 * UNIT, Bound::Host));
    state.reserved.insert(BASE + 16 * UNIT, reserved(16 * UNIT, Bound::Device));
    state.reserved.insert(BASE + 32 * UNIT, reserved(UNIT, Bound::Nothing));
    for (unit, units) in [(1, 1), (2, 2)] {
        let map = HostMap {
            bytes: units * UNIT,
            allocation: Arc::new(allocation(7)),
            access: HashMap::new(),
            attached: None,
        };
        state.maps.insert(BASE + unit * UNIT, map);
    }
    state
}

#[test]
fn ranges_are_divided_by_reservations_and_mappings() {
    let state = fixture();
    let parts = |unit: u64, units: u64| state.parts(BASE + unit * UNIT, units * UNIT);
    let range = |unit: u64, end: u64| BASE + unit * UNIT..BASE + end * UNIT;
    let host = |units: &[u64]| Part::Host(units.iter().map(|unit| BASE + unit * UNIT).collect());
    assert_eq!(parts(1, 3), Ok(vec![host(&[1, 2])]));
    assert_eq!(
        parts(0, 6),
        Ok(vec![Part::Empty(range(0, 1)), host(&[1, 2]), Part::Empty(range(4, 6))]),
        "all of a reservation"
    );
    assert_eq!(
        parts(16, 17),
        Ok(vec![Part::Worker(range(16, 32)), Part::Empty(range(32, 33))]),
        "neighbours"
    );
    for (unit, units) in [(2, 1), (3, 1), (3, 3), (1, 2), (0, 3), (0, 0), (5, 2), (5, 12), (6, 1), (32, 2)] {
        assert_eq!(parts(unit, units), Err(CudaError::INVALID_VALUE), "{units} units from {unit} on");
    }
    assert_eq!(state.parts(BASE, u64::MAX), Err(CudaError::INVALID_VALUE));
    assert_eq!(state.parts(BASE + UNIT + 4096, UNIT - 4096), Err(CudaError::INVALID_VALUE), "inside one");
    let elsewhere = state.parts(0x7000, 0x1000);
    assert_eq!(elsewhere, Ok(vec![Part::Worker(0x7000..0x8000)]), "not of this library");
}

#[test]
fn addresses_are_found_in_what_the_program_asked_for() {
    let state = fixture();
    let around = |unit: u64| state.around(BASE + unit * UNIT).map(|(base, _)| (base - BASE) / UNIT);
    assert_eq!([around(0), around(5), around(6), around(16)], [Some(0), Some(0), None, Some(16)]);
    let at = |unit: u64| state.map_at(BASE + unit * UNIT).map(|(base, _)| (base - BASE) / UNIT);
    assert_eq!([at(0), at(1), at(3), at(4)], [None, Some(1), Some(2), None]);
    let mapped = |unit: u64, end: u64| state.is_mapped(BASE + unit * UNIT..BASE + end * UNIT);
    assert_eq!([mapped(0, 1), mapped(0, 2), mapped(3, 4), mapped(4, 6)], [false, true, true, false]);
}

#[test]
fn handles_are_held_and_had_again() {
    let vmm = Vmm::default();
    assert!(!vmm.any_host() && vmm.host(7).is_none());
    vmm.insert(allocation(7));
    let mut state = vmm.lock();
    let allocation = state.held(7).expect("held");
    let map = HostMap { bytes: UNIT, allocation, access: HashMap::new(), attached: None };
    state.maps.insert(BASE, map);
    assert!(state.release(7) && !state.release(7), "held once");
    assert!(state.held(7).is_none(), "the mapping is no handle");
    assert_eq!(state.retain(BASE + UNIT), None);
    assert_eq!([state.retain(BASE), state.retain(BASE + 5)], [Some(7); 2]);
    assert!(state.release(7) && state.held(7).is_some() && state.release(7) && !state.release(7));
}

#[test]
fn access_of_the_host_is_no_devices() {
    let mut map = fixture().maps.remove(&(BASE + UNIT)).expect("mapped");
    let [host, node] = [2, 3].map(|kind| Reader::at(CUmemLocation { kind, id: 0 }));
    assert_eq!(host, node);
    map.access.insert(host, 3);
    assert!(!map.is_for_devices());
    map.access.insert(Reader::at(CUmemLocation { kind: 1, id: 1 }), 1);
    assert!(map.is_for_devices());
}
