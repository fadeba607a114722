//! An update allocates nothing. The allocator counts, so the test has its own binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use prudence_agent::AgentSettings;
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_core::random::{StreamId, stream};
use prudence_nn::work::Batch;
use prudence_nn::{Cpu, Device as _};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; counting allocates nothing (thread-locals without a
// destructor).
#[allow(unsafe_code)] // required to implement an allocator
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_update_allocates_nothing() {
    let d = Cpu::<f32>::new();
    for (safety, population, hidden, batch) in [(true, 1, 256, 256), (false, 1, 64, 64), (true, 3, 64, 32)] {
        let settings = AgentSettings { hidden: vec![hidden; 2], batch, ..AgentSettings::default() };
        let mut heads = vec![Head::reward(true)];
        if safety {
            heads.push(Head::safety(settings.score_floor));
        }
        let steering = Steering { rate: 3e-4, update: 1, multipliers: vec![0.5; heads.len() - 1] };
        let networks = Networks::new(population, 34, 6, &settings.hidden, heads);
        let streams = (0..population as u64).map(|agent| stream(1, "allocation", agent));
        let mut learner = Learner::new(&d, networks, &settings, streams).unwrap();
        let mut data = Batch::new(&d, population, batch, 34, 6).unwrap();
        data.not_terminal.fill(1.0);
        let addresses: Vec<u32> =
            (0..population as u64).flat_map(|agent| StreamId::new(1, "noise", agent).address(0)).collect();
        let mut update = || {
            d.normals(&addresses, batch * 6, &mut data.next_noise);
            d.normals(&addresses, batch * 6, &mut data.noise);
            (0..population).for_each(|agent| learner.steer(agent, Some(&steering)));
            learner.update(&data).unwrap();
        };
        update(); // the matrix kernels keep a buffer for each thread
        let before = (ALLOCATIONS.get(), LIVE.get());
        assert!(before.0 > 0, "the allocator counts");
        for _ in 0..5 {
            update();
        }
        assert_eq!(ALLOCATIONS.get() - before.0, 0, "allocations in 5 updates");
        assert_eq!(LIVE.get(), before.1, "bytes held before and after");
    }
}
