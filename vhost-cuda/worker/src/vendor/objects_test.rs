// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::cell::RefCell;

use cuda_library_rows::library;

use super::*;

const HANDLE: u64 = 0x1000;
/// A matrix with this number of rows is refused.
const REFUSED_ROWS: u64 = 13;

thread_local! {
    /// The calls of the library: the function and its arguments.
    static CALLS: RefCell<Vec<(&'static str, [u64; 9])>> = const { RefCell::new(Vec::new()) };
}

/// Defines functions of a library that note their calls.
macro_rules! fakes {
    ($($name:ident)*) => {
        $(extern "C" fn $name(
            a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64
        ) -> i32 {
            CALLS.with_borrow_mut(|calls| calls.push((stringify!($name), [a, b, c, d, e, f, g, h, i])));
            match stringify!($name) {
                "cusparseLtDenseDescriptorInit" if c == REFUSED_ROWS => 10,
                "cusparseLtMatmulAlgGetAttribute" if c == 2 => 3,
                "cusparseLtMatmulAlgGetAttribute" => {
                    // SAFETY: the caller gives a place for an attribute of 4 bytes.
                    unsafe { (d as *mut u32).write(7) };
                    0
                }
                _ => 0,
            }
        })*

        fn address(name: Option<&str>) -> usize {
            match name {
                $(Some(stringify!($name)) => $name as *const () as usize,)*
                _ => 0,
            }
        }
    };
}

#[allow(non_snake_case, clippy::too_many_arguments)]
mod fake {
    use super::CALLS;
    use super::REFUSED_ROWS;

    fakes! {
        cusparseLtDenseDescriptorInit cusparseLtStructuredDescriptorInit cusparseLtMatDescriptorDestroy
        cusparseLtMatDescSetAttribute cusparseLtMatmulDescriptorInit cusparseLtMatmulDescSetAttribute
        cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgSelectionDestroy cusparseLtMatmulAlgSetAttribute
        cusparseLtMatmulAlgGetAttribute cusparseLtMatmulPlanInit cusparseLtMatmulPlanDestroy
    }

    pub fn loaded() -> super::Loaded {
        let (_, rows) = super::library("cusparseLt").expect("known");
        super::Loaded::fake(rows, address)
    }
}

fn kind(name: &str) -> usize {
    let (_, rows) = library("cusparseLt").expect("known");
    rows.descriptors.iter().position(|known| known.name == name).expect(name)
}

fn make(name: &str, given: &[u64], parts: &[&[u8]]) -> Vec<u8> {
    let (_, rows) = library("cusparseLt").expect("known");
    let descriptor = &rows.descriptors[kind(name)];
    let mut contents = vec![0; descriptor.bytes];
    descriptor.make(given, &mut contents);
    for (index, part) in parts.iter().enumerate() {
        contents[descriptor.part(rows.descriptors, index)].copy_from_slice(part);
    }
    contents
}

fn set(name: &str, number: u32, value: u64, contents: &mut [u8]) {
    let (_, rows) = library("cusparseLt").expect("known");
    let descriptor = &rows.descriptors[kind(name)];
    let (index, _) = descriptor.attribute(number).expect("an attribute");
    descriptor.set(index, value, contents);
}

fn matrix(rows: u64) -> Vec<u8> {
    make("mat", &[rows, 64, 64, 16, 2, 2], &[])
}

/// A plan with one attribute of its product from before the selection was created, and a later one.
fn plan() -> Vec<u8> {
    let mut sparse = matrix(16);
    set("mat", 106, 0, &mut sparse);
    set("mat", 0, 2, &mut sparse);
    let dense = matrix(32);
    let mut product = make("matmul", &[0, 1, 2], &[&sparse, &dense, &dense, &dense]);
    set("matmul", 8, 0x7000, &mut product);
    let (_, rows) = library("cusparseLt").expect("known");
    let mut selection = make("selection", &[0, rows.descriptors[kind("matmul")].mask(&product)], &[&product]);
    set("selection", 0, 5, &mut selection);
    set("matmul", 5, 1, &mut product);
    let part = rows.descriptors[kind("selection")].part(rows.descriptors, 0);
    selection[part].copy_from_slice(&product);
    make("plan", &[1], &[&selection])
}

fn calls() -> Vec<(&'static str, [u64; 9])> {
    CALLS.take().into_iter().map(|(name, arguments)| (&name["cusparseLt".len()..], arguments)).collect()
}

fn names() -> Vec<&'static str> {
    calls().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn equal_contents_are_one_object() {
    let (loaded, mut objects) = (fake::loaded(), Objects::default());
    let mut of = |contents: &[u8]| objects.of(&loaded, HANDLE, kind("mat"), contents);
    let first = of(&matrix(16)).expect("made");
    assert_ne!(of(&matrix(32)), Ok(first));
    assert_eq!(of(&matrix(16)), Ok(first));
    let calls = calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], ("DenseDescriptorInit", [HANDLE, first, 16, 64, 64, 16, 2, 2, calls[0].1[8]]));
}

#[test]
fn the_oldest_object_ends_when_there_are_many() {
    let (loaded, mut objects) = (fake::loaded(), Objects::default());
    let mut of = |rows| objects.of(&loaded, HANDLE, kind("mat"), &matrix(rows)).expect("made");
    let (used, oldest) = (of(1000), of(1001));
    assert!((2000..2000 + MAX_KEPT as u64 - 2).all(|rows| of(rows) != used));
    assert_eq!(of(1000), used);
    calls();
    of(3000);
    let calls = calls();
    assert_eq!(
        calls.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["DenseDescriptorInit", "MatDescriptorDestroy"]
    );
    assert_eq!(calls[1].1[0], oldest, "not the one that was used");
    assert_eq!(of(1000), used);
    objects.end();
    assert_eq!(names(), ["MatDescriptorDestroy"; MAX_KEPT]);
}

#[test]
fn a_plan_is_made_as_the_program_has_made_it() {
    let (loaded, mut objects) = (fake::loaded(), Objects::default());
    objects.of(&loaded, HANDLE, kind("plan"), &plan()).expect("made");
    let made = calls();
    let names_of: Vec<&str> = made.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names_of,
        [
            "StructuredDescriptorInit",
            "MatDescSetAttribute",
            "DenseDescriptorInit",
            "DenseDescriptorInit",
            "DenseDescriptorInit",
            "MatmulDescriptorInit",
            "MatmulDescSetAttribute",
            "MatmulAlgSelectionInit",
            "MatmulAlgSetAttribute",
            "MatmulDescSetAttribute",
            "MatmulPlanInit",
        ]
    );
    let argument = |call: usize, index: usize| made[call].1[index];
    assert_eq!(
        (argument(6, 2), argument(9, 2)),
        (8, 5),
        "the bias before the selection, the vector after it"
    );
    let (product, selection) = (argument(5, 1), argument(7, 1));
    assert_eq!((2..=3).map(|index| argument(5, index)).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((argument(5, 4), argument(5, 7)), (argument(0, 1), argument(4, 1)), "its matrices");
    assert_eq!((argument(7, 2), argument(10, 2), argument(10, 3)), (product, product, selection));
    objects.end();
    assert_eq!(
        names(),
        [
            "MatmulPlanDestroy",
            "MatmulAlgSelectionDestroy",
            "MatDescriptorDestroy",
            "MatDescriptorDestroy",
            "MatDescriptorDestroy",
            "MatDescriptorDestroy"
        ]
    );
}

#[test]
fn objects_go_without_their_context() {
    let loaded = fake::loaded();
    loaded.handles.made(0, 32, None);
    let make = || {
        let (_, state) = &mut loaded.handles.lock(&[(0, 32)])[0];
        state.objects.of(&loaded, HANDLE, kind("mat"), &matrix(16)).expect("made");
        names()
    };
    assert_eq!((make(), make()), (vec!["DenseDescriptorInit"], vec![]));
    loaded.handles.close_context(1);
    assert_eq!(make(), ["DenseDescriptorInit"], "and nothing was destroyed");
    loaded.handles.ended(0, 32, 0);
    assert_eq!(names(), ["MatDescriptorDestroy"]);
}

#[test]
fn what_cannot_be_made_is_refused_with_the_librarys_status() {
    let (loaded, mut objects) = (fake::loaded(), Objects::default());
    let dense = matrix(16);
    let product = make("matmul", &[0, 1, 2], &[&dense, &matrix(REFUSED_ROWS), &dense, &dense]);
    assert_eq!(objects.of(&loaded, HANDLE, kind("matmul"), &product), Err(Refusal::Status(10)));
    assert_eq!(names(), ["DenseDescriptorInit", "DenseDescriptorInit", "MatDescriptorDestroy"]);
    for name in ["mat", "matmul", "selection", "plan"] {
        let nothing = make(name, &[], &[]);
        assert_eq!(objects.of(&loaded, HANDLE, kind(name), &nothing), Err(Refusal::Status(3)), "{name}");
    }
    let plan = make("plan", &[1], &[]);
    assert_eq!(
        objects.of(&loaded, HANDLE, kind("plan"), &plan),
        Err(Refusal::Status(3)),
        "without a selection"
    );
    objects.end();
    assert!(names().is_empty());
}

#[test]
fn a_search_ends_its_plan_and_tells_the_selection() {
    let (loaded, mut objects) = (fake::loaded(), Objects::default());
    let (contents, selection) = (plan(), &loaded.rows.descriptors[kind("selection")]);
    let value = |number, found: &[u8]| {
        let (index, _) = selection.attribute(number).expect("an attribute");
        selection.value(index, found)
    };
    objects.of(&loaded, HANDLE, kind("plan"), &contents).expect("made");
    let found = objects.found(&loaded, HANDLE, kind("plan"), &contents, true);
    assert_eq!((value(0, &found), value(3, &found)), (Some(7), Some(7)));
    assert_eq!(value(2, &found), None, "the library has not told it");
    assert_eq!((value(1, &found), value(100, &found)), (None, None), "not the program's to set");
    assert_eq!(names().iter().filter(|name| name.ends_with("Destroy")).count(), 6);
    objects.of(&loaded, HANDLE, kind("plan"), &contents).expect("made again");
    assert!(objects.found(&loaded, HANDLE, kind("plan"), &contents, false).is_empty());
    assert!(objects.found(&loaded, HANDLE, kind("plan"), &contents, true).is_empty(), "there is none");
}
