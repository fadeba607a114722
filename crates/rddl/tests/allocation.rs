//! Stepping does not allocate: a counting allocator checks it, in a separate test binary.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{simulator, small, tanks};
use prudence_rddl::{Keyed, Noiseless, Random};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; counting does not allocate (the counter is a
// thread-local without a destructor).
#[allow(unsafe_code)] // an allocator cannot be written without it
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_step_does_not_allocate() {
    let mut tanks = simulator(tanks(&[]));
    let objects: Vec<String> = (0..80).map(|i| format!("o{i}")).collect();
    let instance = format!("non-fluents n {{ domain = d; objects {{ t : {{{}}}; }}; }}", objects.join(","));
    let variables = "s(t, t) : { state-fluent, real, default = 1.0 }; at : { state-fluent, t, default = o1 };";
    let cpfs =
        "x' = sum_{?a : t, ?b : t} [s(?a, at) * Poisson(2.0)]; s'(?a, ?b) = s(?b, ?a) + Normal(0, 1) + Gamma(0.5, 1);
        at' = Discrete_{?a : t} [1 / 80];";
    let mut looped = simulator(small("t : object;", variables, cpfs, "x'", &instance));
    let mut keyed = Keyed::new(vec![0.25, 0.5, 0.75]).expect("uniforms");
    let mut random = Random::seeded(7);
    let before = ALLOCATIONS.get();
    for _ in 0..5 {
        tanks.reset();
        tanks.step(&[1.0, 1.0], &mut Noiseless).expect("a step");
        tanks.preconditions_hold(&[1.0, 1.0]).expect("conditions");
        tanks.invariants_hold().expect("conditions");
        looped.step(&[0.0], &mut random).expect("a step");
        looped.step(&[0.0], &mut keyed).expect("a step");
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
