//! The memory use of Bullet's environments. This test has its own process, so that nothing else is measured.

use prudence_env::Env as _;
use prudence_physics::bullet::{Bullet, BulletSettings, Course, Variant, Vehicle};
use prudence_physics::engines::Engines;

prudence_physics::bullet_symbols!();

/// The anonymous memory of the process, in bytes; the pages of libraries are excluded, because the system may evict
/// them.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |key: &str| -> i64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    1024 * (kilobytes("RssAnon:") + kilobytes("VmSwap:"))
}

fn grown(mut work: impl FnMut(u64), count: u64) -> i64 {
    (0..count / 10).for_each(&mut work); // fills pools
    let before = resident();
    (0..count).for_each(&mut work);
    resident() - before
}

#[test]
fn resets_and_worlds_do_not_leak_memory() {
    let engines = Engines::from_environment().unwrap();
    engines.install(None, &mut |_, _| {}).unwrap();
    for agent in [Vehicle::Ball, Vehicle::Car] {
        let settings = BulletSettings::new(agent, Course::Circle, Variant::Original);
        let build = || Bullet::with_engines(&settings, &engines).unwrap();
        let mut observation = [0.0; 8];
        let mut env = build();
        let resets = grown(
            |seed| {
                env.reset(seed, &mut observation).unwrap();
                env.step(&[1.0, 0.5], &mut observation).unwrap();
            },
            10_000,
        );
        assert!(resets < 1 << 20, "{agent:?}: 10,000 resets took {resets} bytes");
        // A world that was not disconnected would take more than 1 MB, 500 MB in all. How much the allocator does not
        // return depends on the layout of its heap: from 45 kB to 29 MB for the same worlds.
        let worlds = grown(|seed| build().reset(seed, &mut observation).unwrap(), 500);
        assert!(worlds < 100 << 20, "{agent:?}: 500 worlds took {worlds} bytes");
        println!("{agent:?}: {resets} bytes after 10,000 resets, {worlds} after 500 worlds");
    }
}
