//! What Bullet's environments take of memory; alone in its process, so that nobody else's use is measured.

use prudence_env::Env as _;
use prudence_physics::bullet::{Agent, Bullet, BulletSettings, Task, Variant};
use prudence_physics::engines::Engines;

prudence_physics::bullet_symbols!();

/// The memory that is the process's own, in bytes; not the library's pages, which come and go as the machine likes.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |key: &str| -> i64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    1024 * (kilobytes("RssAnon:") + kilobytes("VmSwap:"))
}

fn grown(mut work: impl FnMut(u64), count: u64) -> i64 {
    (0..count / 10).for_each(&mut work); // pools fill
    let before = resident();
    (0..count).for_each(&mut work);
    resident() - before
}

#[test]
fn ten_thousand_resets_and_hundreds_of_worlds_leave_nothing_behind() {
    let engines = Engines::from_environment().unwrap();
    engines.install(None, &mut |_, _| {}).unwrap();
    for agent in [Agent::Ball, Agent::Car] {
        let settings = BulletSettings::new(agent, Task::Circle, Variant::Original);
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
        // A world that was left connected would take more than a megabyte, 500 MB in all. What the allocator does not give
        // back depends on how its heap lies: 45 kB to 29 MB were seen for the same worlds.
        let worlds = grown(|seed| build().reset(seed, &mut observation).unwrap(), 500);
        assert!(worlds < 100 << 20, "{agent:?}: 500 worlds took {worlds} bytes");
        println!("{agent:?}: {resets} bytes after 10,000 resets, {worlds} after 500 worlds");
    }
}
