//! Statistics, figures and the HTML report: reads records, returns text, writes nothing.
//!
//! The tour, in the order data flows: test episodes become [`records`] (what `evaluation.json` holds) by way of
//! [`statistics`]; [`figure`] draws records and curves as SVG; [`html`] puts all of it on one page. [`film`] draws an
//! episode that moves. The same input gives the same bytes.

mod beta;
pub mod figure;
pub mod film;
pub mod html;
pub mod records;
pub mod statistics;
