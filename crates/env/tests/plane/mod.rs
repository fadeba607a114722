//! The geometry of navigation, written by hand, to test the RDDL text against.
#![allow(dead_code, reason = "each test uses a part of it")]

use prudence_env::rddl::{Rddl, RddlSettings};

pub const START: [f64; 2] = [1.0, 1.0];
pub const GOAL: [f64; 2] = [8.0, 9.0];
/// The plane extends from 0 to this in both dimensions.
pub const SIDE: f64 = 10.0;
/// It is dangerous strictly between these values of y, at every x.
pub const STRIP: [f64; 2] = [2.7, 3.3];
/// It is dangerous strictly within the radius of this centre.
pub const DISC_CENTRE: [f64; 2] = [5.3, 5.9];
pub const DISC_RADIUS: f64 = 1.5;
/// The variance of a move's error per unit of the move's size, in each dimension separately.
pub const NOISE_VARIANCE: f64 = 0.05;
/// The indices of the signals `in_danger` and `distance`.
pub const IN_DANGER: usize = 4;
pub const DISTANCE: usize = 5;

pub fn in_danger(location: [f64; 2]) -> bool {
    (STRIP[0] < location[1] && location[1] < STRIP[1]) || distance(location, DISC_CENTRE) < DISC_RADIUS
}

pub fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    let [dx, dy] = [a[0] - b[0], a[1] - b[1]];
    (dx * dx + dy * dy).sqrt()
}

pub fn build(noise: bool, horizon: usize) -> Rddl {
    Rddl::new(&RddlSettings { noise, horizon: Some(horizon), ..RddlSettings::builtin("navigation") }).unwrap()
}
