//! An update allocates nothing: counted by the allocator itself, in a test binary of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use prudence_agent::AgentSettings;
use prudence_agent::safesac::{Batch, Dimensions, Learner};
use prudence_env::random::stream;

thread_local! {
    static PLAIN: Cell<usize> = const { Cell::new(0) };
    static PACKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator as it came; counting touches no memory of its own (a thread-local
// without a destructor).
#[allow(unsafe_code)] // an allocator cannot be written without
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let counter = if layout.align() >= 64 { &PACKED } else { &PLAIN };
        counter.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

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
        update(); // the matrix library sets up its thread's buffer
        let before = (PLAIN.get(), PACKED.get());
        for _ in 0..5 {
            update();
        }
        let after = (PLAIN.get(), PACKED.get());
        println!("plain {} packed {}", after.0 - before.0, after.1 - before.1);
    }
}
