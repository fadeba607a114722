//! Prints initial states of a Bullet task, one per line, for `tests/bullet-parity`: `bullet_starts ball-circle 5000`.

use prudence_env::{Env as _, Settable as _};
use prudence_physics::bullet::{Bullet, BulletSettings, Course, Variant, Vehicle};

prudence_physics::bullet_symbols!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, count] = arguments.as_slice() else { return Err("expected a task and a number of states".into()) };
    let (agent, task) = match task.as_str() {
        "ball-circle" => (Vehicle::Ball, Course::Circle),
        "ball-run" => (Vehicle::Ball, Course::Run),
        "car-circle" => (Vehicle::Car, Course::Circle),
        "car-run" => (Vehicle::Car, Course::Run),
        other => {
            return Err(
                format!("{other} is not a Bullet task; expected ball-circle, ball-run, car-circle or car-run").into()
            );
        }
    };
    let mut env = Bullet::new(&BulletSettings::new(agent, task, Variant::Original))?;
    let mut observation = vec![0.0; env.spec().observation.dim()];
    for seed in 0..count.parse()? {
        env.reset(seed, &mut observation)?;
        println!("{}", env.state());
    }
    Ok(())
}
