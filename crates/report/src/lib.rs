//! Statistics, figures and the HTML report. This crate takes records and returns text; it does not read or write files.
//!
//! A tour in the order in which data flows: [`statistics`] turn test episodes into [`records`], the content of
//! `evaluation.json`; [`figure`] draws records and curves as SVG; [`html`] combines everything on one page. [`film`]
//! renders an episode as an animation. The same input gives the same bytes.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod beta;
pub mod figure;
pub mod film;
pub mod html;
pub mod records;
pub mod statistics;
