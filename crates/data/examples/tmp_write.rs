//! tmp
use prudence_data::*;
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let schema = Schema { task: "t".into(), observation_dim: 17, action_dim: 6, signals: vec!["speed".into(), "outside".into()] };
    let mut x = 0.1f64;
    let mut r = move || { x = (x * 3.9 * (1.0 - x)).fract(); x };
    let mut s = Store::create(&dir, schema).unwrap();
    for _ in 0..2 {
    let eps: Vec<Episode> = (0..500).map(|i| { let n = 200 + i % 7; let mut st = vec![0f64; 17]; let mut obs = vec![]; for _ in 0..=n { for v in &mut st { *v = *v * 0.99 + (r() - 0.5) * 0.1; obs.push(*v as f32); } }
        Episode { observations: obs, actions: (0..6*n).map(|_| (r() * 2.0 - 1.0) as f32).collect(), rewards: (0..n).map(|_| r() as f32).collect(), signals: (0..n).flat_map(|_| [r(), (r() > 0.8) as u8 as f64]).collect(), terminated: i % 3 == 0 } }).collect();
    let t = std::time::Instant::now();
    s.append(&eps).unwrap();
    println!("append {:?} {} steps", t.elapsed(), s.steps());
    }
    let t = std::time::Instant::now();
    let n = s.read(0..s.len()).unwrap().len();
    println!("read {n} {:?}", t.elapsed());
    let t = std::time::Instant::now();
    let n = s.read_without_signals(700..701).unwrap().len();
    println!("read {n} {:?}", t.elapsed());
    let rule = Rule::parse("mean(speed, 50) <= 2.34 and fraction(outside or speed > 2, 20) <= 0.9", &["speed", "outside"]).unwrap();
    let mut j = rule.judge();
    let t = std::time::Instant::now();
    let mut h = 0; for i in 0..10_000_000 { h += j.step(&[(i % 7) as f64 * 0.1, (i % 3) as f64]) as u64; }
    println!("judge {h} {:?} for 10M", t.elapsed());
}
