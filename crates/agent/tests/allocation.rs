//! An update allocates nothing: counted by the allocator itself, in a test binary of its own.
//!
//! The matrix library does: for a product it may take a buffer to pack into (aligned to cache lines) and a few flags
//! (bytes). Nothing of ours has such an alignment: numbers, sizes and boxes are aligned to 2 to 16.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use prudence_agent::AgentSettings;
use prudence_agent::safesac::{Batch, Dimensions, Learner};
use prudence_core::random::stream;

thread_local! {
    static OURS: Cell<usize> = const { Cell::new(0) };
    static THE_LIBRARYS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator as it came; counting touches no memory of its own (thread-locals
// without a destructor).
#[allow(unsafe_code)] // an allocator cannot be written without
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let counter = if (2..=16).contains(&layout.align()) { &OURS } else { &THE_LIBRARYS };
        counter.set(counter.get() + 1);
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

/// Matrix products of one agent's update with two hidden layers: forward 3 a network, back to the parameters 5, back to
/// the action 3.
fn products(critics: usize) -> usize {
    let (policy, critic) = (2 * 3 + 5, 3 * 3 + 5 + 3);
    policy + critics * critic
}

#[test]
fn an_update_allocates_nothing() {
    for (safety, population, hidden, batch) in [(true, 1, 256, 256), (false, 1, 64, 64), (true, 3, 64, 32)] {
        let d = Dimensions { state: 34, action: 6, population, safety };
        let settings = AgentSettings { hidden: vec![hidden; 2], batch, ..AgentSettings::default() };
        let mut rng = stream(1, "allocation", 0);
        let mut learner = Learner::<f32>::new(d, &settings, &mut rng);
        let mut data = Batch::new(d, batch);
        data.goes_on.fill(1.0);
        let multiplier = vec![0.5; population];
        let mut update = || {
            data.draw_noise(&mut rng);
            learner.update(&data, &multiplier, 3e-4)
        };
        update(); // the matrix library keeps a buffer for each thread
        let before = (OURS.get(), THE_LIBRARYS.get(), LIVE.get());
        assert!(before.0 > 0, "the allocator counts");
        for _ in 0..5 {
            update();
        }
        assert_eq!(OURS.get() - before.0, 0, "allocations in 5 updates");
        assert_eq!(LIVE.get(), before.2, "bytes held before and after");
        let library = THE_LIBRARYS.get() - before.1;
        assert!(library <= 5 * 2 * population * products(d.critics()), "{library} allocations of the matrix library");
    }
}
