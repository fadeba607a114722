//! The built-in tasks.
//!
//! ```
//! assert!(prudence::tasks::names().any(|name| name == "navigation"));
//! ```

/// The names of the tasks and the texts of their task files.
const TASKS: [(&str, &str); 9] = [
    ("navigation", include_str!("../../../tasks/navigation.toml")),
    ("hvac", include_str!("../../../tasks/hvac.toml")),
    ("hopper", include_str!("../../../tasks/hopper.toml")),
    ("walker2d", include_str!("../../../tasks/walker2d.toml")),
    ("half-cheetah", include_str!("../../../tasks/half-cheetah.toml")),
    ("ball-circle", include_str!("../../../tasks/ball-circle.toml")),
    ("ball-run", include_str!("../../../tasks/ball-run.toml")),
    ("car-circle", include_str!("../../../tasks/car-circle.toml")),
    ("car-run", include_str!("../../../tasks/car-run.toml")),
];

/// The names of the built-in tasks.
pub fn names() -> impl Iterator<Item = &'static str> {
    TASKS.iter().map(|(name, _)| *name)
}

/// The text of a built-in task's file.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    TASKS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
