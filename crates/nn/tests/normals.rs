//! Normal numbers on a device: those of the named streams, whatever part of them is drawn.

mod common;

use common::{bits, unwritten};
use proptest::prelude::*;
use prudence_core::random::StreamId;
use prudence_nn::{Cpu, Device as _, Scalar};

fn on_device<T: Scalar>(owners: &[(StreamId, u64)], each: usize) -> Vec<T> {
    let (d, mut out) = (Cpu::new(), unwritten(owners.len() * each));
    let mut addresses = d.rows(6 * owners.len()).unwrap();
    for (i, (id, block)) in owners.iter().enumerate() {
        d.write_rows(&mut addresses, 6 * i, &id.address(*block));
    }
    d.normals(&addresses, each, &mut out);
    out.to_vec()
}

fn of_stream(id: StreamId, block: u64, n: usize) -> Vec<f32> {
    let mut numbers = vec![f32::NAN; n];
    id.normals(block, &mut numbers);
    numbers
}

proptest! {
    #[test]
    fn normals_are_those_of_the_stream_at_any_address(
        seed: u64, index: u64, block in prop_oneof![0..100u64, any::<u64>()], each in 1..700usize
    ) {
        let id = StreamId::new(seed, "device", index);
        prop_assert_eq!(bits(&on_device::<f32>(&[(id, block)], each)), bits(&of_stream(id, block, each)));
        prop_assert_eq!(bits(&on_device::<f64>(&[(id, block)], each)), bits(&of_stream(id, block, each)));
    }

    #[test]
    fn parts_equal_the_whole(seed: u64, blocks in prop::collection::vec(1..120usize, 1..6), first in 0..1u64 << 40) {
        let id = StreamId::new(seed, "device", 0);
        let whole: Vec<f32> = on_device(&[(id, first)], 4 * blocks.iter().sum::<usize>());
        let mut parts = Vec::new();
        let mut at = first;
        for n in blocks {
            parts.extend(on_device::<f32>(&[(id, at)], 4 * n));
            at += n as u64;
        }
        prop_assert_eq!(bits(&parts), bits(&whole));
    }
}

#[test]
fn each_owner_draws_from_its_own_address() {
    for each in [1, 3, 4, 255, 256, 257, 1000] {
        let owners = [(1, "a", 0, 0), (1, "a", 0, 70), (2, "a", 0, 0), (1, "b", 0, 0), (1, "a", 1, u64::MAX / 3)]
            .map(|(seed, purpose, index, block)| (StreamId::new(seed, purpose, index), block));
        let alone: Vec<f32> = owners.iter().flat_map(|(id, block)| of_stream(*id, *block, each)).collect();
        assert_eq!(bits(&on_device::<f32>(&owners, each)), bits(&alone), "{each} numbers each");
    }
}
