// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Rotations of points in a plane (section 2.5): their making, and the modified ones.

use std::ffi::c_int;

use super::handle::{Place, Scalar, Settings, queue, queue_result, settings};
use super::{Status, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Strided, moved};
use crate::numbers::{C64, Type};
use crate::stream::{Done, Fault};

/// The rotation that makes b zero: r, z, c and s. Numbers of a real type have no imaginary part.
fn rotation(a: C64, b: C64, is_complex: bool) -> (C64, C64, f64, C64) {
    let one = C64::new(1.0, 0.0);
    if is_complex {
        if a == C64::default() {
            return (b, b, 0.0, one);
        }
        let (size, length) = (a.norm(), a.norm().hypot(b.norm()));
        let phase = a / size;
        return (phase * length, b, size / length, phase * b.conj() / length);
    }
    let (a, b) = (a.re, b.re);
    let length = a.hypot(b);
    if length == 0.0 {
        return (C64::default(), C64::default(), 1.0, C64::default());
    }
    let r = length.copysign(if a.abs() > b.abs() { a } else { b });
    let (c, s) = (a / r, b / r);
    let z = match a.abs() > b.abs() {
        true => s,
        false if c != 0.0 => 1.0 / c,
        false => 1.0,
    };
    (r.into(), z.into(), c, s.into())
}

fn rotg(handle: Handle, kind: Type, [a, b, c, s]: [usize; 4]) -> Result<(), Status> {
    let settings = settings(handle)?;
    let place = |kind, address| Place::new(&settings, kind, address);
    let (a, b, c, s) = (place(kind, a)?, place(kind, b)?, place(kind.real(), c)?, place(kind, s)?);
    queue_result(&settings, move || {
        let (r, z, cosine, sine) = rotation(a.get()?, b.get()?, kind.is_complex());
        a.set(r)?;
        b.set(z)?;
        c.set(cosine.into())?;
        s.set(sine)
    })
}

/// Returns the matrix of a modified rotation, by columns, for its form and numbers; `None` is the identity.
fn modified([form, h11, h21, h12, h22]: [f64; 5]) -> Option<[f64; 4]> {
    match form as i32 {
        -2 => None,
        0 => Some([1.0, h21, h12, 1.0]),
        1 => Some([h11, -1.0, 1.0, h22]),
        _ => Some([h11, h21, h12, h22]),
    }
}

fn parameters(settings: &Settings, kind: Type, base: usize) -> Result<[usize; 5], Status> {
    // An address of 0 is refused.
    Place::new(settings, kind, base)?;
    Ok(std::array::from_fn(|at| moved(base, at as i64, kind)))
}

fn rotm(handle: Handle, kind: Type, n: c_int, x: Strided, y: Strided, numbers: usize) -> Result<(), Status> {
    let settings = settings(handle)?;
    let count = usize::try_from(n).unwrap_or(0);
    let addresses = parameters(&settings, kind, numbers)?;
    let mut numbers = [Scalar::Known(C64::default()); 5];
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = Scalar::new(&settings, kind, address)?;
    }
    queue(settings.stream, move || -> Done {
        let mut values = [0.0; 5];
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = number.get()?.re;
        }
        let Some([h11, h21, h12, h22]) = modified(values) else { return Ok(()) };
        let (x, y) = (x.open(kind, count)?, y.open(kind, count)?);
        for index in 0..count {
            let (a, b) = (x.get(index), y.get(index));
            x.set(index, h11 * a + h12 * b);
            y.set(index, h21 * a + h22 * b);
        }
        Ok(())
    })
}

/// Returns the modified rotation that makes the second of two scaled numbers zero: the changed d1, d2 and x1, and the
/// parameters.
fn modified_rotation(mut d1: f64, mut d2: f64, mut x1: f64, y1: f64) -> ([f64; 3], [f64; 5]) {
    const GAMMA: f64 = 4096.0;
    let (p1, p2) = (d1 * x1, d2 * y1);
    if d1 < 0.0 {
        return ([0.0; 3], [-1.0, 0.0, 0.0, 0.0, 0.0]);
    }
    if p2 == 0.0 {
        return ([d1, d2, x1], [-2.0, 0.0, 0.0, 0.0, 0.0]);
    }
    let (q1, q2) = (p1 * x1, p2 * y1);
    let (mut form, mut h);
    if q1.abs() > q2.abs() {
        (form, h) = (0.0, [1.0, -y1 / x1, p2 / p1, 1.0]);
        let u = 1.0 - h[2] * h[1];
        if u <= 0.0 {
            return ([0.0; 3], [-1.0, 0.0, 0.0, 0.0, 0.0]);
        }
        (d1, d2, x1) = (d1 / u, d2 / u, x1 * u);
    } else if q2 < 0.0 {
        return ([0.0; 3], [-1.0, 0.0, 0.0, 0.0, 0.0]);
    } else {
        (form, h) = (1.0, [p1 / p2, -1.0, 1.0, x1 / y1]);
        let u = 1.0 + h[0] * h[3];
        (d1, d2, x1) = (d2 / u, d1 / u, y1 * u);
    }
    // Keeps the factors near one, as the reference does. Infinities and NaNs are left as they are: no scaling brings them back.
    let outside = |value: f64| {
        let size = value.abs();
        size.is_finite() && size != 0.0 && (size <= GAMMA.powi(-2) || size >= GAMMA.powi(2))
    };
    while outside(d1) {
        let factor = if d1.abs() < 1.0 { GAMMA } else { 1.0 / GAMMA };
        (d1, x1, form) = (d1 * factor * factor, x1 / factor, -1.0);
        (h[0], h[2]) = (h[0] / factor, h[2] / factor);
    }
    while outside(d2) {
        let factor = if d2.abs() < 1.0 { GAMMA } else { 1.0 / GAMMA };
        (d2, form) = (d2 * factor * factor, -1.0);
        (h[1], h[3]) = (h[1] / factor, h[3] / factor);
    }
    ([d1, d2, x1], [form, h[0], h[1], h[2], h[3]])
}

fn rotmg(handle: Handle, kind: Type, [d1, d2, x1, y1, numbers]: [usize; 5]) -> Result<(), Status> {
    let settings = settings(handle)?;
    let addresses = parameters(&settings, kind, numbers)?;
    let place = |address| Place::new(&settings, kind, address);
    let ([d1, d2, x1], y1) = ([place(d1)?, place(d2)?, place(x1)?], Scalar::new(&settings, kind, y1)?);
    let mut numbers = [d1; 5];
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = place(address)?;
    }
    queue_result(&settings, move || -> Result<(), Fault> {
        let (changed, parameters) = modified_rotation(d1.get()?.re, d2.get()?.re, x1.get()?.re, y1.get()?.re);
        for (place, value) in [d1, d2, x1].into_iter().zip(changed) {
            place.set(value.into())?;
        }
        // As the reference: numbers that the form implies stay as they were.
        let written: &[usize] = match parameters[0] as i32 {
            -2 => &[0],
            0 => &[0, 2, 3],
            1 => &[0, 1, 4],
            _ => &[0, 1, 2, 3, 4],
        };
        written.iter().try_for_each(|at| numbers[*at].set(parameters[*at].into()))
    })
}

exported! {
    /// Creates a rotation.
    pub extern "C" fn(kind) [
        cublasSrotg_v2(Type::F32), cublasDrotg_v2(Type::F64), cublasCrotg_v2(Type::C32), cublasZrotg_v2(Type::C64),
    ]
    (handle: Handle, a: usize, b: usize, c: usize, s: usize) -> Status {
        status(rotg(handle, kind, [a, b, c, s]))
    }

    /// Applies a modified rotation.
    pub extern "C" fn(kind) [cublasSrotm_v2(Type::F32), cublasDrotm_v2(Type::F64)]
    (handle: Handle, n: c_int, x: usize, incx: c_int, y: usize, incy: c_int, numbers: usize) -> Status {
        status(rotm(handle, kind, n, Strided::new(x, incx), Strided::new(y, incy), numbers))
    }

    /// Creates a modified rotation.
    pub extern "C" fn(kind) [cublasSrotmg_v2(Type::F32), cublasDrotmg_v2(Type::F64)]
    (handle: Handle, d1: usize, d2: usize, x1: usize, y1: usize, numbers: usize) -> Status {
        status(rotmg(handle, kind, [d1, d2, x1, y1, numbers]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_make_zeros() {
        let numbers = [-3.0, -0.5, 0.0, 0.25, 4.0];
        for a in numbers {
            for b in numbers {
                let (r, _, c, s) = rotation(a.into(), b.into(), false);
                assert!((c * a + s.re * b - r.re).abs() < 1e-14 && (c * b - s.re * a).abs() < 1e-14);
                assert!((c * c + s.re * s.re - 1.0).abs() < 1e-14);
                let (a, b) = (C64::new(a, b), C64::new(b - 1.0, a));
                let (r, _, c, s) = rotation(a, b, true);
                assert!((c * a + s * b - r).norm() < 1e-14 && (c * b - s.conj() * a).norm() < 1e-14);
            }
        }
    }

    #[test]
    fn modified_rotations_make_zeros() {
        for (d1, d2, x1, y1) in [
            (2.0, 3.0, 1.5, 0.5),
            (2.0, 3.0, 0.5, 1.5),
            (1e-9, 1e9, 3.0, 4.0),
            (1e12, 1e-12, 3.0, 4.0),
            (5.0, -1.0, 3.0, 1.0),
        ] {
            let ([new_d1, new_d2, new_x1], parameters) = modified_rotation(d1, d2, x1, y1);
            let [h11, h21, h12, h22] = modified(parameters).expect("there is something to do");
            let near =
                |one: f64, other: f64| (one - other).abs() <= 1e-12 * one.abs().max(other.abs()).max(1.0);
            assert!(near(h11 * x1 + h12 * y1, new_x1) && near(h21 * x1 + h22 * y1, 0.0));
            // The rotation preserves the lengths that the factors define.
            assert!(near(d1 * x1 * x1 + d2 * y1 * y1, new_d1 * new_x1 * new_x1), "{d1} {d2}");
            assert!([new_d1, new_d2].iter().all(|d| (2f64.powi(-24)..=2f64.powi(24)).contains(&d.abs())));
        }
        assert_eq!(modified_rotation(1.0, 2.0, 3.0, 0.0).1[0], -2.0);
        assert_eq!(modified_rotation(-1.0, 2.0, 3.0, 1.0).1[0], -1.0);
        // It ends.
        modified_rotation(f64::INFINITY, f64::NAN, f64::MAX, f64::NAN);
        modified_rotation(f64::NAN, 1.0, f64::INFINITY, 1.0);
    }
}
