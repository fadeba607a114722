//! placeholder while the real one is written
/// x
pub struct EventFile;
impl EventFile {
    /// x
    pub fn create(_: &std::path::Path) -> std::io::Result<Self> { Ok(Self) }
    /// x
    pub fn scalars(&mut self, _: u64, _: f64, _: &[(&str, f32)]) -> std::io::Result<()> { Ok(()) }
    /// x
    pub fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
}
