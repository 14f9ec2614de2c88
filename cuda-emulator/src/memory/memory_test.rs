// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

#[test]
fn allocations_are_zero_separate_and_counted() {
    let memory = Memory::new(1 << 30).unwrap();
    let first = memory.allocate(1000, 1).unwrap();
    let second = memory.allocate(1000, 4096).unwrap();
    assert_eq!(first % MIN_ALIGN, 0);
    assert_eq!(second % 4096, 0);
    assert!(memory.free_bytes() < (1 << 30) - 2000);
    memory.write(first, &[7; 1000]).unwrap();
    let mut bytes = [1; 1000];
    memory.read(second, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 1000]);
    assert_eq!(memory.write(first, &[0; 1001]), Err(OutOfRange { address: first, bytes: 1001 }));
    assert!(memory.range_of(first + 1000).is_none());
    assert!(memory.free(first) && memory.free(second));
    assert!(!memory.free(second));
    assert_eq!(memory.free_bytes(), 1 << 30);
    let again = memory.allocate(1000, 1).unwrap();
    memory.read(again, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 1000]);
}

#[test]
fn large_memory_costs_nothing() {
    let memory = Memory::new(141 << 30).unwrap();
    let base = memory.allocate(100 << 30, 1).unwrap();
    memory.write(base + (100 << 30) - 4, &[1, 2, 3, 4]).unwrap();
    let error = memory.allocate(42 << 30, 1).unwrap_err();
    assert_eq!(error.requested, 42 << 30);
    assert!(memory.allocate(u64::MAX, 1).is_err());
}

#[test]
fn host_ranges_come_and_go() {
    let memory = Memory::new(1 << 20).unwrap();
    let mut host = vec![5_u8; 64];
    let base = host.as_mut_ptr() as u64;
    assert!(memory.check(base, 1).is_err());
    assert!(memory.add_host_range(base, 64, RangeKind::HostRegistered));
    assert!(!memory.add_host_range(base + 63, 1, RangeKind::HostRegistered));
    memory.fill(base, &[1, 2], 32).unwrap();
    assert!(memory.fill(base, &[1, 2], u64::MAX).is_err());
    assert!(!memory.free(base));
    assert!(memory.remove_host_range(base));
    assert!(!memory.remove_host_range(base));
    assert_eq!(&host[..4], &[1, 2, 1, 2]);
}

#[test]
fn heap_has_its_own_limit() {
    let memory = Memory::new(1 << 30).unwrap();
    memory.set_heap_limit(4000);
    let base = memory.heap_allocate(2000).unwrap();
    assert!(memory.heap_allocate(2000).is_none());
    assert!(!memory.free(base));
    assert!(memory.heap_free(base));
    assert!(memory.heap_allocate(2000).is_some());
}

#[test]
fn several_devices_have_several_windows() {
    let first = Memory::new(1 << 30).unwrap();
    let second = Memory::new(1 << 30).unwrap();
    let address = second.allocate(16, 1).unwrap();
    assert!(first.check(address, 16).is_err());
}
