//! The f32 kernels against the f64 ones, products against three loops, optimisers against their formulas.

mod common;

use common::{cast, distance, numbers, wide};
use prudence_nn::gaussian::{self, LogStd};
use prudence_nn::kernels::{self, View, affine_one, matmul, sum_squares};
use prudence_nn::{Adam, AdamSettings, Gru, GruWork, Mlp, MlpWork, Scalar};

/// Norm of the difference over the norm.
const LIMIT: f64 = 1e-5;

fn assert_close(x: &[f32], exact: &[f64]) {
    let error = distance(&wide(x), exact);
    assert!(error < LIMIT, "relative error {error:e}");
}

const MLP_GROUPS: usize = 4;
const MLP_BATCH: usize = 33;

/// Output, gradients by the parameters, by all inputs, and by the last two of them.
fn run_mlp<T: Scalar>() -> [Vec<T>; 4] {
    let (mlp, share) = (Mlp::new(11, &[37, 29], 3), 2);
    let parameters: Vec<T> = cast(&numbers(1, MLP_GROUPS * mlp.parameters(), 0.4));
    let x: Vec<T> = cast(&numbers(2, MLP_GROUPS / share * MLP_BATCH * 11, 1.0));
    let mut work = MlpWork::new(&mlp, MLP_GROUPS, MLP_BATCH);
    mlp.forward(&parameters, &x, share, &mut work);
    let gradient = cast::<T>(&numbers(3, work.output().len(), 1.0));
    work.output_gradient().copy_from_slice(&gradient);
    let mut gradients = vec![T::ZERO; parameters.len()];
    mlp.backward(&parameters, &x, share, &mut work, &mut gradients);
    let mut dx = vec![T::ZERO; MLP_GROUPS * MLP_BATCH * 11];
    mlp.input_gradient(&parameters, &work, 0, &mut dx);
    let mut last = vec![T::ZERO; MLP_GROUPS * MLP_BATCH * 2];
    mlp.backward_input(&parameters, &mut work, 9, &mut last);
    [work.output().to_vec(), gradients, dx, last]
}

#[test]
fn f32_mlp_equals_f64() {
    run_mlp::<f32>().iter().zip(run_mlp::<f64>()).for_each(|(x, exact)| assert_close(x, &exact));
}

const GRU: Gru = Gru { inputs: 7, hidden: 19 };

fn gru_parameters<T: Scalar>() -> Vec<T> {
    cast(&numbers(11, GRU.parameters(), 0.5))
}

/// The memories, the gradients by the parameters and by the input.
fn run_gru<T: Scalar>() -> [Vec<T>; 3] {
    let (steps, batch) = (15, 9);
    let x: Vec<T> = cast(&numbers(12, steps * batch * GRU.inputs, 1.5));
    let dh: Vec<T> = cast(&numbers(13, (steps + 1) * batch * GRU.hidden, 1.0));
    let mut work = GruWork::new(&GRU, steps, batch);
    let mut gradients = vec![T::ZERO; GRU.parameters()];
    GRU.forward(&gru_parameters(), &x, &mut work);
    GRU.backward(&gru_parameters(), &x, &dh, &mut work, &mut gradients);
    let mut dx = vec![T::ZERO; x.len()];
    GRU.input_gradient(&gru_parameters(), &work, &mut dx);
    [work.hidden().to_vec(), gradients, dx]
}

#[test]
fn f32_gru_equals_f64() {
    run_gru::<f32>().iter().zip(run_gru::<f64>()).for_each(|(x, exact)| assert_close(x, &exact));
}

/// Actions, log-probabilities, the gradient by the head.
fn run_gaussian<T: Scalar>() -> [Vec<T>; 3] {
    let (batch, dim, clip) = (40, 3, LogStd { min: -2.0, max: 1.0 });
    let head: Vec<T> = cast(&numbers(21, batch * 2 * dim, 2.5));
    let noise: Vec<T> = cast(&numbers(22, batch * dim, 2.0));
    let (mut actions, mut log_prob) = (vec![T::ZERO; batch * dim], vec![T::ZERO; batch]);
    gaussian::sample(&head, &noise, clip, &mut actions, &mut log_prob);
    let d_action: Vec<T> = cast(&numbers(23, batch * dim, 1.0));
    let mut d_head = vec![T::ZERO; head.len()];
    gaussian::sample_backward(&head, &noise, clip, &actions, &d_action, T::of(0.6), dim, &mut d_head);
    [actions, log_prob, d_head]
}

#[test]
fn f32_gaussian_equals_f64() {
    run_gaussian::<f32>().iter().zip(run_gaussian::<f64>()).for_each(|(x, exact)| assert_close(x, &exact));
}

#[test]
fn the_mode_is_the_action_without_noise() {
    let head = numbers(24, 2 * 3, 2.0);
    let (mut mode, mut sampled, mut log_prob) = ([0.0; 3], [0.0; 3], [0.0]);
    gaussian::mode(&head, &mut mode);
    gaussian::sample(&head, &[0.0; 3], LogStd { min: -2.0, max: 1.0 }, &mut sampled, &mut log_prob);
    assert_eq!(mode, sampled);
}

const ADAM: AdamSettings = AdamSettings { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.02 };

/// Weights, moments and target after some steps. 61 weights: not a whole number of vectors.
fn run_adam<T: Scalar>(settings: AdamSettings, scale: f64) -> [Vec<T>; 4] {
    let mut w: Vec<T> = cast(&numbers(31, 61, 1.0));
    let mut target: Vec<T> = cast(&numbers(32, 61, 1.0));
    let mut adam = Adam::new(61, settings);
    for step in 0..6 {
        let g: Vec<T> = cast(&numbers(40 + step, 61, 0.3));
        adam.step(&mut w, &g, 1e-2, scale);
        kernels::polyak(&mut target, &w, T::of(0.1));
    }
    let [m, v] = adam.moments;
    [w, m, v, target]
}

#[test]
fn f32_adam_equals_f64() {
    run_adam::<f32>(ADAM, 0.7).iter().zip(run_adam::<f64>(ADAM, 0.7)).for_each(|(x, exact)| assert_close(x, &exact));
}

/// The formulas as they stand in the papers (Kingma & Ba; Loshchilov & Hutter), a weight at a time.
#[test]
fn adam_and_adamw_follow_their_formulas() {
    for (settings, scale) in [(AdamSettings { weight_decay: 0.0, ..ADAM }, 1.0), (ADAM, 0.7)] {
        let AdamSettings { beta1, beta2, epsilon, weight_decay } = settings;
        let [w, m, v, target] = run_adam::<f64>(settings, scale);
        let (start, target_start) = (numbers(31, 61, 1.0), numbers(32, 61, 1.0));
        for i in 0..61 {
            let (mut x, mut mi, mut vi, mut y) = (start[i], 0.0, 0.0, target_start[i]);
            for step in 0..6 {
                let g = scale * numbers(40 + step, 61, 0.3)[i];
                mi = beta1 * mi + (1.0 - beta1) * g;
                vi = beta2 * vi + (1.0 - beta2) * g * g;
                let t = step as i32 + 1;
                let (m_hat, v_hat) = (mi / (1.0 - beta1.powi(t)), vi / (1.0 - beta2.powi(t)));
                x -= 1e-2 * weight_decay * x;
                x -= 1e-2 * m_hat / (v_hat.sqrt() + epsilon);
                y = 0.9 * y + 0.1 * x;
            }
            for (ours, theirs) in [(w[i], x), (m[i], mi), (v[i], vi), (target[i], y)] {
                assert!((ours - theirs).abs() < 1e-13, "weight {i}: {ours} != {theirs}");
            }
        }
    }
}

#[test]
fn step_polyak_equals_step_then_polyak() {
    let (mut w, mut target) = (numbers(51, 29, 1.0), numbers(52, 29, 1.0));
    let (mut w2, mut target2) = (w.clone(), target.clone());
    let (mut adam, mut adam2) = (Adam::new(29, ADAM), Adam::new(29, ADAM));
    for step in 0..4 {
        let g = numbers(60 + step, 29, 1.0);
        adam.step_polyak(&mut w, &g, 3e-3, &mut target, 0.05);
        adam2.step(&mut w2, &g, 3e-3, 1.0);
        kernels::polyak(&mut target2, &w2, 0.05);
    }
    assert_eq!((w, target, adam.moments), (w2, target2, adam2.moments));
}

/// `[rows, cols]` inside rows that are `spare` longer, what is between being NaN.
fn spread(x: &[f64], rows: usize, cols: usize, spare: usize) -> Vec<f64> {
    let mut out = vec![f64::NAN; rows * (cols + spare)];
    for r in 0..rows {
        out[r * (cols + spare)..][..cols].copy_from_slice(&x[r * cols..][..cols]);
    }
    out
}

fn transposed(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect()
}

#[test]
fn matmul_equals_three_loops_for_odd_shapes_strides_and_transposes() {
    let shapes = [
        (1, 1, 1),
        (1, 7, 1),
        (3, 1, 5),
        (5, 3, 1),
        (1, 17, 33),
        (7, 13, 5),
        (16, 16, 16),
        (31, 67, 9),
        (65, 3, 129),
        (9, 70, 1),
        (1, 70, 40),
        (40, 1, 21),
    ];
    for (m, k, n) in shapes {
        let (a, b) = (numbers(71, m * k, 1.0), numbers(72, k * n, 1.0));
        let before = numbers(73, m * n, 1.0);
        let mut product = vec![0.0; m * n];
        for (i, out) in product.iter_mut().enumerate() {
            *out = (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum();
        }
        let (a_t, b_t) = (transposed(&a, m, k), transposed(&b, k, n));
        let (a_wide, b_wide) = (spread(&a, m, k, 3), spread(&b, k, n, 2));
        let (a_t_wide, b_t_wide) = (spread(&a_t, k, m, 1), spread(&b_t, n, k, 5));
        let lefts = [
            View::new(&a, m, k),
            View::new(&a_t, k, m).t(),
            View::strided(&a_wide, m, k, k + 3),
            View::strided(&a_t_wide, k, m, m + 1).t(),
        ];
        let rights = [
            View::new(&b, k, n),
            View::new(&b_t, n, k).t(),
            View::strided(&b_wide, k, n, n + 2),
            View::strided(&b_t_wide, n, k, k + 5).t(),
        ];
        for (i, (left, right)) in lefts.iter().flat_map(|l| rights.map(|r| (*l, r))).enumerate() {
            let mut out = vec![f64::NAN; m * n]; // overwritten, never read
            matmul(&mut out, false, left, right);
            let error = distance(&out, &product);
            assert!(error < 1e-14, "[{m}, {k}] [{k}, {n}], layout {i}: {error:e}");
            let mut out = before.clone();
            matmul(&mut out, true, left, right);
            let sum: Vec<f64> = before.iter().zip(&product).map(|(x, y)| x + y).collect();
            assert!(distance(&out, &sum) < 1e-14, "[{m}, {k}] [{k}, {n}] added, layout {i}");
        }
        let (mut narrow, a, b) = (vec![f32::NAN; m * n], cast::<f32>(&a), cast::<f32>(&b_t));
        matmul(&mut narrow, false, View::new(&a, m, k), View::new(&b, n, k).t());
        assert_close(&narrow, &product);
    }
}

#[test]
fn a_product_over_nothing_is_zero() {
    let mut out = [f64::NAN; 6];
    matmul(&mut out, false, View::new(&[], 2, 0), View::new(&[], 0, 3));
    assert_eq!(out, [0.0; 6]);
    matmul(&mut [], false, View::new(&[], 0, 2), View::new(&[1.0; 6], 2, 3));
}

#[test]
fn affine_one_equals_matmul() {
    for (outputs, inputs) in [(1, 1), (3, 5), (4, 15), (5, 16), (2, 17), (9, 31), (48, 100)] {
        let (w, x, bias) = (numbers(81, outputs * inputs, 1.0), numbers(82, inputs, 1.0), numbers(83, outputs, 1.0));
        let mut product = bias.clone();
        matmul(&mut product, true, View::new(&x, 1, inputs), View::new(&w, outputs, inputs).t());
        let mut one = vec![f64::NAN; outputs];
        affine_one(&mut one, &w, &bias, &x);
        assert!(distance(&one, &product) < 1e-14, "[{outputs}, {inputs}]");
        let mut narrow = vec![f32::NAN; outputs];
        affine_one(&mut narrow, &cast::<f32>(&w), &cast::<f32>(&bias), &cast::<f32>(&x));
        assert_close(&narrow, &product);
    }
}

#[test]
fn forward_one_equals_forward() {
    let mut scratch = [vec![f64::NAN; 3], vec![f64::NAN; 1000]]; // any content, any size
    for hidden in [&[][..], &[20], &[33, 17], &[5, 40, 7]] {
        let (mlp, batch) = (Mlp::new(6, hidden, 4), 5);
        let (parameters, x) = (numbers(91, mlp.parameters(), 0.6), numbers(92, batch * 6, 1.0));
        let mut work = MlpWork::new(&mlp, 1, batch);
        mlp.forward(&parameters, &x, 1, &mut work);
        let mut narrow_scratch = Default::default();
        for (x, exact) in x.chunks_exact(6).zip(work.output().chunks_exact(4)) {
            let mut out = [f64::NAN; 4];
            mlp.forward_one(&parameters, x, &mut out, &mut scratch);
            assert!(distance(&out, exact) < 1e-13, "{hidden:?}");
            let mut narrow = [f32::NAN; 4];
            mlp.forward_one(&cast::<f32>(&parameters), &cast::<f32>(x), &mut narrow, &mut narrow_scratch);
            assert_close(&narrow, exact);
        }
    }
}

#[test]
fn gru_step_equals_forward() {
    let (steps, parameters) = (12, gru_parameters());
    let x = numbers(93, steps * GRU.inputs, 1.5);
    let mut work = GruWork::new(&GRU, steps, 1);
    GRU.forward(&parameters, &x, &mut work);
    let mut h = vec![0.0; GRU.hidden];
    let mut narrow = vec![0.0f32; GRU.hidden];
    let mut scratch = [vec![f64::NAN; 200], vec![], vec![f64::NAN; 1]];
    let mut narrow_scratch = Default::default();
    for (x, exact) in x.chunks_exact(GRU.inputs).zip(work.hidden().chunks_exact(GRU.hidden).skip(1)) {
        GRU.step(&parameters, x, &mut h, &mut scratch);
        assert!(distance(&h, exact) < 1e-13);
        GRU.step(&gru_parameters::<f32>(), &cast::<f32>(x), &mut narrow, &mut narrow_scratch);
        assert_close(&narrow, exact);
    }
}

/// Forward, backward and both input gradients on `batch` rows in a workspace that may have been used before.
fn mlp_pass(work: &mut MlpWork<f32>, batch: usize, scale: f64) -> [Vec<f32>; 4] {
    let mlp = Mlp::new(4, &[13, 10], 2);
    let parameters = cast::<f32>(&numbers(101, 3 * mlp.parameters(), 0.5));
    let x = cast::<f32>(&numbers(102 + batch as u64, 3 * batch * 4, scale));
    mlp.forward(&parameters, &x, 1, work);
    work.output_gradient().copy_from_slice(&cast::<f32>(&numbers(103, 3 * batch * 2, scale)));
    let mut gradients = vec![f32::NAN; parameters.len()];
    mlp.backward(&parameters, &x, 1, work, &mut gradients);
    let mut dx = [vec![f32::NAN; 3 * batch * 4], vec![f32::NAN; 3 * batch]];
    mlp.input_gradient(&parameters, work, 0, &mut dx[0]);
    mlp.backward_input(&parameters, work, 3, &mut dx[1]);
    let [all, last] = dx;
    [work.output().to_vec(), gradients, all, last]
}

#[test]
fn set_batch_leaves_no_trace_of_what_was_there() {
    let mlp = Mlp::new(4, &[13, 10], 2);
    let mut used = MlpWork::new(&mlp, 3, 9);
    mlp_pass(&mut used, 9, 1e6);
    for batch in [4, 7, 1, 9, 14] {
        used.set_batch(batch);
        let fresh = mlp_pass(&mut MlpWork::new(&mlp, 3, batch), batch, 1.0);
        assert_eq!(mlp_pass(&mut used, batch, 1.0), fresh, "batch {batch}");
        mlp_pass(&mut used, batch, 1e6);
    }
}

fn gru_pass(work: &mut GruWork<f32>, steps: usize, scale: f64) -> [Vec<f32>; 3] {
    let parameters = gru_parameters();
    let x = cast::<f32>(&numbers(111 + steps as u64, steps * 5 * GRU.inputs, scale));
    let dh = cast::<f32>(&numbers(112, (steps + 1) * 5 * GRU.hidden, scale));
    let mut gradients = vec![f32::NAN; parameters.len()];
    GRU.forward(&parameters, &x, work);
    GRU.backward(&parameters, &x, &dh, work, &mut gradients);
    let mut dx = vec![f32::NAN; x.len()];
    GRU.input_gradient(&parameters, work, &mut dx);
    [work.hidden().to_vec(), gradients, dx]
}

#[test]
fn set_steps_leaves_no_trace_of_what_was_there() {
    let mut used = GruWork::new(&GRU, 8, 5);
    gru_pass(&mut used, 8, 1e6);
    for steps in [3, 6, 1, 8, 11] {
        used.set_steps(steps);
        let fresh = gru_pass(&mut GruWork::new(&GRU, steps, 5), steps, 1.0);
        assert_eq!(gru_pass(&mut used, steps, 1.0), fresh, "{steps} steps");
        gru_pass(&mut used, steps, 1e6);
    }
}

#[test]
fn sum_squares_counts_every_number_once() {
    for n in [0, 1, 7, 8, 9, 64, 101] {
        let x = numbers(121, n, 3.0);
        let exact: f64 = x.iter().map(|x| x * x).sum();
        assert!((sum_squares(&x) - exact).abs() <= 1e-14 * exact, "{n} numbers");
    }
}

#[test]
fn each_network_of_a_bank_gives_the_bits_it_gives_alone() {
    let (mlp, groups, batch) = (Mlp::new(5, &[24, 18], 1), 4, 21);
    let parameters = cast::<f32>(&numbers(131, groups * mlp.parameters(), 0.5));
    let x = cast::<f32>(&numbers(132, batch * 5, 1.0));
    let mut work = MlpWork::new(&mlp, groups, batch);
    mlp.forward(&parameters, &x, groups, &mut work);
    for (one, together) in parameters.chunks_exact(mlp.parameters()).zip(work.output().chunks_exact(batch)) {
        let mut alone = MlpWork::new(&mlp, 1, batch);
        mlp.forward(one, &x, 1, &mut alone);
        assert_eq!(alone.output(), together);
    }
}
