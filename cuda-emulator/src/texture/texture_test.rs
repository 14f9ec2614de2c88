// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::memory::Memory;

fn memory() -> &'static Memory {
    Box::leak(Box::new(Memory::new(1 << 20).unwrap()))
}

fn floats(channels: u32) -> Format {
    Format { channel: Channel::F32, channels }
}

/// An array whose texels count up from 0 in storage order.
fn counting(dimension: Dimension, extent: Extent) -> Arc<Array> {
    let array = Array::new(memory(), dimension, floats(1), extent).unwrap();
    let surface = Surface::new(Arc::new(array));
    let mut count = 0f32;
    for z in 0..extent.depth as i32 {
        for y in 0..extent.height as i32 {
            for x in 0..extent.width as i32 {
                assert!(surface.write([x * 4, y, z], &count.to_le_bytes()));
                count += 1.0;
            }
        }
    }
    Arc::clone(surface.array())
}

fn extent(width: u32, height: u32, depth: u32) -> Extent {
    Extent { width, height, depth }
}

fn read(texture: &Texture, point: [f32; 3], layer: u32) -> f32 {
    let at = Coordinates { layer, point: Point::Float(point), detail: Detail::Base };
    f32::from_bits(texture.fetch(&at).unwrap()[0])
}

fn on(array: Arc<Array>, sampler: Sampler) -> Texture {
    Texture::of_arrays(vec![array], sampler, None).unwrap()
}

#[test]
fn point_sampling_takes_the_texel_around() {
    let texture = on(counting(Dimension::D2, extent(4, 3, 1)), Sampler::default());
    assert_eq!(read(&texture, [0.0, 0.0, 0.0], 0), 0.0);
    assert_eq!(read(&texture, [3.99, 1.0, 0.0], 0), 7.0);
    assert_eq!(read(&texture, [-5.0, 1e30, 0.0], 0), 8.0);
    let wrap = Sampler {
        address: [AddressMode::Wrap, AddressMode::Mirror, AddressMode::Clamp],
        normalized_coordinates: true,
        ..Sampler::default()
    };
    let texture = on(counting(Dimension::D2, extent(4, 3, 1)), wrap);
    assert_eq!(read(&texture, [1.25, 0.0, 0.0], 0), 1.0);
    assert_eq!(read(&texture, [-0.25, -0.1, 0.0], 0), 3.0);
    assert_eq!(read(&texture, [0.0, 1.1, 0.0], 0), 8.0);
}

#[test]
fn linear_filtering_weighs_neighbours_with_eight_bits() {
    let sampler = Sampler { linear: true, ..Sampler::default() };
    let line = on(counting(Dimension::D1, extent(8, 1, 1)), sampler);
    assert_eq!(read(&line, [3.5, 0.0, 0.0], 0), 3.0);
    assert_eq!(read(&line, [3.75, 0.0, 0.0], 0), 3.25);
    assert_eq!(read(&line, [3.5 + 1.0 / 1024.0, 0.0, 0.0], 0), 3.0);
    assert_eq!(read(&line, [0.1, 0.0, 0.0], 0), 0.0);
    let plane = on(counting(Dimension::D2, extent(4, 4, 1)), sampler);
    assert_eq!(read(&plane, [1.0, 1.0, 0.0], 0), 2.5);
    let space = on(counting(Dimension::D3, extent(2, 2, 2)), sampler);
    assert_eq!(read(&space, [1.0, 1.0, 1.0], 0), 3.5);
    let border = Sampler { address: [AddressMode::Border; 3], ..sampler };
    let line = on(counting(Dimension::D1, extent(8, 1, 1)), border);
    assert_eq!(read(&line, [8.0, 0.0, 0.0], 0), 3.5);
    assert_eq!(read(&line, [f32::NAN, 0.0, 0.0], 0), 0.0);
}

#[test]
fn layers_faces_and_levels_are_chosen() {
    let layered = on(counting(Dimension::D2Layered, extent(2, 2, 3)), Sampler::default());
    assert_eq!(read(&layered, [1.0, 0.0, 0.0], 2), 9.0);
    assert_eq!(read(&layered, [1.0, 0.0, 0.0], 99), 9.0);
    let lines = on(counting(Dimension::D1Layered, extent(2, 1, 3)), Sampler::default());
    assert_eq!(read(&lines, [1.0, 0.0, 0.0], 1), 3.0);
    let cube = on(counting(Dimension::Cube, extent(1, 1, 6)), Sampler::default());
    assert_eq!(read(&cube, [0.1, -2.0, 0.3], 0), 3.0);
    let cubes = on(counting(Dimension::CubeLayered, extent(1, 1, 12)), Sampler::default());
    assert_eq!(read(&cubes, [0.0, 0.0, -1.0], 1), 11.0);
    let mipmapped = MipmappedArray::new(memory(), Dimension::D2, floats(1), extent(8, 4, 1), 9).unwrap();
    assert_eq!(mipmapped.levels.len(), 4);
    for (index, level) in mipmapped.levels.iter().enumerate() {
        let whole = level.level.extent;
        let surface = Surface::new(Arc::clone(level));
        for y in 0..whole.height as i32 {
            for x in 0..whole.width as i32 {
                surface.write([x * 4, y, 0], &(index as f32).to_le_bytes());
            }
        }
    }
    let sampler = Sampler { linear_mipmap: true, level_clamp: [0.0, 2.5], ..Sampler::default() };
    let texture = Texture::of_arrays(mipmapped.levels, sampler, None).unwrap();
    let at = |detail| {
        let at = Coordinates { layer: 0, point: Point::Float([0.0; 3]), detail };
        f32::from_bits(texture.fetch(&at).unwrap()[0])
    };
    assert_eq!(at(Detail::Level(1.25)), 1.25);
    assert_eq!(at(Detail::Level(9.0)), 2.5);
    assert_eq!(at(Detail::Base), 0.0);
    assert_eq!(at(Detail::Gradient([2.0, 0.0, 0.0], [0.0, 1.0, 0.0])), 1.0);
}

#[test]
fn integers_are_read_as_such_or_normalised() {
    let bytes = Format { channel: Channel::U8, channels: 4 };
    let array = Arc::new(Array::new(memory(), Dimension::D2, bytes, extent(2, 1, 1)).unwrap());
    Surface::new(Arc::clone(&array)).write([0, 0, 0], &[0, 51, 102, 255, 255, 51, 102, 255]);
    let at = Coordinates { layer: 0, point: Point::Float([0.5, 0.5, 0.0]), detail: Detail::Base };
    let integers = on(Arc::clone(&array), Sampler::default());
    assert!(!integers.reads_floats());
    assert_eq!(integers.fetch(&at), Ok([0, 51, 102, 255]));
    let sampler = Sampler { normalized_read: true, linear: true, ..Sampler::default() };
    let floats = on(array, sampler);
    assert_eq!(floats.fetch(&at).unwrap().map(f32::from_bits), [0.0, 0.2, 0.4, 1.0]);
    let between = Coordinates { point: Point::Float([1.0, 0.5, 0.0]), ..at };
    assert_eq!(f32::from_bits(floats.fetch(&between).unwrap()[0]), 0.5);
}

#[test]
fn buffers_and_rows_end_and_notice_a_free() {
    let memory = memory();
    let base = memory.allocate(64, 512).unwrap();
    memory.write(base, &(0..16).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    let format = Format { channel: Channel::U32, channels: 1 };
    let buffer = Texture::of_buffer(memory, base, 16, format, Sampler::default());
    let at =
        |x: i32, y: i32| Coordinates { layer: 0, point: Point::Integer([x, y, 0]), detail: Detail::Base };
    assert_eq!(buffer.fetch(&at(15, 0)), Ok([15, 0, 0, 0]));
    assert_eq!(buffer.fetch(&at(16, 0)), Ok([0; 4]));
    assert_eq!(buffer.fetch(&at(-1, 0)), Ok([0; 4]));
    for linear in [false, true] {
        let none = Texture::of_buffer(memory, base, 0, format, Sampler { linear, ..Sampler::default() });
        let point = Point::Float([0.5, 0.5, 0.0]);
        assert_eq!(none.fetch(&at(0, 0)), Ok([0; 4]), "without texels");
        assert_eq!(none.fetch(&Coordinates { point, ..at(0, 0) }), Ok([0; 4]));
        assert_eq!(none.gather(&at(0, 0), 0), Ok([0; 4]));
    }
    let rows = Texture::of_rows(memory, base, [3, 4], 16, format, Sampler::default()).unwrap();
    assert_eq!(rows.fetch(&at(1, 2)), Ok([9, 0, 0, 0]));
    assert_eq!(rows.fetch(&at(9, 9)), Ok([14, 0, 0, 0]));
    assert_eq!(rows.gather(&at(2, 2), 0), Ok([9, 10, 6, 5]));
    assert!(Texture::of_rows(memory, base, [5, 4], 16, format, Sampler::default()).is_none());
    assert!(memory.free(base));
    assert!(rows.fetch(&at(0, 0)).is_err() && buffer.fetch(&at(0, 0)).is_err());
}

#[test]
fn surfaces_refuse_what_is_outside() {
    let array = counting(Dimension::D2, extent(4, 4, 1));
    let address = array.level.base;
    let surface = Surface::new(array);
    let mut bytes = [0; 8];
    assert!(surface.read([8, 3, 0], &mut bytes));
    assert_eq!(bytes[4..], 15f32.to_le_bytes());
    for at in [[12, 3, 0], [-1, 0, 0], [0, 4, 0], [0, 0, 1], [i32::MAX, 0, 0]] {
        assert!(!surface.read(at, &mut bytes), "{at:?}");
    }
    assert_eq!(surface.clamp([99, -1, 7], 8), [8, 0, 0]);
    publish_surface(77, surface);
    assert!(super::surface(77).is_some() && super::surface(78).is_none() && texture(77).is_none());
    assert!(remove_surface(77) && !remove_surface(77));
    assert_ne!(address, 0);
}

#[test]
fn warps_read_what_single_lanes_read() {
    let formats = [
        (Channel::F32, 1),
        (Channel::F32, 4),
        (Channel::U8, 1),
        (Channel::U8, 4),
        (Channel::S16, 2),
        (Channel::U32, 1),
        (Channel::F16, 1),
    ];
    let modes = [AddressMode::Clamp, AddressMode::Wrap, AddressMode::Mirror, AddressMode::Border];
    let dimensions = [Dimension::D1, Dimension::D2, Dimension::D2Layered, Dimension::D1Layered];
    let memory = memory();
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32
    };
    let edges =
        [0.0, -0.0, 0.5, 1.0, 7.0, 7.5, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e20, -1e20];
    let (mut together, mut single) = (0, 0);
    for number in 0..4000 {
        let (channel, channels) = formats[random() as usize % formats.len()];
        let dimension = dimensions[random() as usize % dimensions.len()];
        let layered = matches!(dimension, Dimension::D2Layered | Dimension::D1Layered);
        let rows = if matches!(dimension, Dimension::D1 | Dimension::D1Layered) { 1 } else { 5 };
        let size = extent(7, rows, if layered { 3 } else { 1 });
        let array = Array::new(memory, dimension, Format { channel, channels }, size).unwrap();
        let surface = Surface::new(Arc::new(array));
        let row = 7 * (channel.bytes() * channels) as i32;
        for (z, y) in (0..size.depth as i32).flat_map(|z| (0..rows as i32).map(move |y| (z, y))) {
            for x in 0..row {
                // No exponents that make infinities of halves and floats.
                assert!(surface.write([x, y, z], &[random() as u8 & 0x3f]));
            }
        }
        let sampler = Sampler {
            address: std::array::from_fn(|_| modes[random() as usize % 4]),
            linear: random() % 2 == 0,
            normalized_read: random() % 2 == 0,
            normalized_coordinates: random() % 2 == 0,
            border: if random() % 2 == 0 { [0.0; 4] } else { [0.25, 0.5, 1.0, 2.0] },
            ..Sampler::default()
        };
        let texture = on(Arc::clone(surface.array()), sampler);
        let integer = number % 5 == 0;
        let points = [0, 1].map(|_| {
            std::array::from_fn(|_| match (integer, random() % 8) {
                (true, _) => (random() % 16).wrapping_sub(4),
                (false, 0) => edges[random() as usize % edges.len()].to_bits(),
                (false, _) if sampler.normalized_coordinates => {
                    ((random() % 4000) as f32 / 1000.0 - 1.5).to_bits()
                }
                (false, _) => ((random() % 12000) as f32 / 1000.0 - 2.0).to_bits(),
            })
        });
        let layers = std::array::from_fn(|_| random() % 4);
        let Some(found) = texture.fetch_warp(&Places { points, layers, integer }) else {
            single += 1;
            continue;
        };
        together += 1;
        for lane in 0..32 {
            let word = |axis: usize| points[axis][lane];
            let point = if integer {
                Point::Integer([word(0).cast_signed(), word(1).cast_signed(), 0])
            } else {
                Point::Float([f32::from_bits(word(0)), f32::from_bits(word(1)), 0.0])
            };
            let at = Coordinates { layer: layers[lane], point, detail: Detail::Base };
            let wanted = texture.fetch(&at).unwrap();
            let values: [u32; 4] = std::array::from_fn(|channel| found[channel][lane]);
            assert_eq!(values, wanted, "{at:?} in {texture:?}");
        }
    }
    assert!(together > 2000 && single > 10, "{together} {single}");
}
