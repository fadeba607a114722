//! Prints initial states of a Bullet task, one per line, for `tests/bullet-parity`: `bullet_starts ball-circle 5000`.

use prudence_env::{Env as _, Settable as _};
use prudence_physics::bullet::{Agent, Bullet, BulletSettings, Task, Variant};

prudence_physics::bullet_symbols!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, count] = arguments.as_slice() else { return Err("expected a task and a number of states".into()) };
    let (agent, task) = match task.as_str() {
        "ball-circle" => (Agent::Ball, Task::Circle),
        "ball-run" => (Agent::Ball, Task::Run),
        "car-circle" => (Agent::Car, Task::Circle),
        "car-run" => (Agent::Car, Task::Run),
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
