//! Episodes, their labels, and the rules that label them.

mod episode;
pub use episode::Episode;
