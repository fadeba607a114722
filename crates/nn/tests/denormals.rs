//! Denormal numbers, with which many processors compute a hundred times slower, do not arise where numbers decay.

mod common;

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{AdamStep, Columns, GruPass, Parameters, TrajectoryLoss};
use prudence_nn::{AdamSettings, Bank, Cpu, Device as _, Gru};

fn denormals(x: &[f32]) -> usize {
    x.iter().filter(|x| x.is_subnormal()).count()
}

/// Units that died: their gradients are 0 from some step on, and their moments decay.
#[test]
fn moments_of_dead_units_become_zero() {
    let (d, n) = (Cpu::<f32>::new(), 100);
    let mut p = Parameters::new(&d, 1, &cast::<f32>(&numbers(1, n, 1.0))).unwrap();
    let alive: Vec<f64> = (0..n).map(|i| 10f64.powi(-(i as i32))).collect();
    for t in 1..=3000 {
        p.gradients = if t <= 5 { buffer(&alive) } else { Buffer::zeros(n) };
        let (rate, correction) = AdamSettings::default().correction(1e-3, t);
        let step = AdamStep {
            settings: AdamSettings::default(),
            rate: &buffer(&[rate]),
            correction: &buffer(&[correction]),
            active: &buffer(&[1.0]),
            shrink: None,
            factor: None,
        };
        d.adam(&mut p, &step, None);
        let [m, v] = &p.moments;
        assert_eq!((denormals(m), denormals(v)), (0, 0), "step {t}");
    }
    assert!(p.moments[0].iter().all(|m| *m == 0.0), "first moments have decayed");
    assert!(p.moments[1][0] > 0.0, "second moments last longer");
}

/// Gradients that shrink at every step on their way back through time.
#[test]
fn gradients_that_fade_through_time_become_zero() {
    let (d, steps, rows, net) = (Cpu::<f32>::new(), 400, 3, Bank::dense(Gru { inputs: 2, hidden: 8 }, 1));
    let parameters = buffer(&numbers(2, net.stride, 0.3));
    let x = buffer(&numbers(3, steps * rows * 2, 1.0));
    let input = Columns::new(&x, steps * rows, 2, 1);
    let mut dh = Buffer::zeros((steps + 1) * rows * 8);
    dh[steps * rows * 8..].fill(1.0); // at the last memory alone
    let mut pass = GruPass::new(&d, &net, steps, rows).unwrap();
    let [mut gradients, mut dx] = [parameters.len(), x.len()].map(unwritten);
    d.gru_forward(&net, &parameters, input, &mut pass);
    d.gru_backward(&net, &parameters, input, &dh, &mut pass, &mut gradients, Some(&mut dx));
    assert_eq!((denormals(&gradients), denormals(&dx)), (0, 0));
    assert!(dx[..rows * 2].iter().all(|x| *x == 0.0), "nothing is left at the first step");
    assert!(dx[(steps - 1) * rows * 2..].iter().all(|x| *x != 0.0));
}

/// Gates so sure of themselves that next to nothing flows through them.
#[test]
fn saturated_gates_give_normal_gradients() {
    let (d, steps, rows, net) = (Cpu::<f32>::new(), 30, 3, Bank::dense(Gru { inputs: 2, hidden: 8 }, 1));
    for scale in [10.0, 30.0, 100.0] {
        let parameters = buffer(&numbers(2, net.stride, scale));
        let x = buffer(&numbers(3, steps * rows * 2, 1.0));
        let dh = buffer(&numbers(4, (steps + 1) * rows * 8, 1e-3));
        let input = Columns::new(&x, steps * rows, 2, 1);
        let mut pass = GruPass::new(&d, &net, steps, rows).unwrap();
        let [mut gradients, mut dx] = [parameters.len(), x.len()].map(unwritten);
        d.gru_forward(&net, &parameters, input, &mut pass);
        d.gru_backward(&net, &parameters, input, &dh, &mut pass, &mut gradients, Some(&mut dx));
        assert_eq!((denormals(&gradients), denormals(&dx)), (0, 0), "weights of {scale}");
        assert!(gradients.iter().any(|g| *g != 0.0));
    }
}

/// A model that is as sure as it can be, and right.
#[test]
fn a_saturated_loss_gives_normal_gradients() {
    let (steps, rows) = (30, 10);
    // Steps that are safe for certain, and sequences whose log-probability is about -84 to -111.
    for (label, first, apart) in [(1.0, 60.0, 30.0), (-1.0, -2.75, -0.1)] {
        let logits: Vec<f64> = (0..steps * rows).map(|i| first + (i % rows) as f64 * apart).collect();
        let mut labels = vec![0.0; steps * rows];
        labels[(steps - 1) * rows..].fill(label);
        let mut pass = pass_with_output::<f32>(&cast(&logits), 1, steps * rows, 1);
        let (scale, mut loss) = (buffer(&[1.0 / rows as f64]), unwritten(1));
        let t = TrajectoryLoss { labels: &buffer(&labels), scale: &scale, steps, rows };
        Cpu::new().trajectory_loss(t, &mut pass, &mut loss);
        assert_eq!(denormals(pass.output_gradient()), 0, "label {label}");
        assert!(loss[0].is_finite());
    }
}
