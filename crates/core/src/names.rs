//! Names that were mistyped.

/// The name closest to `given`, if it is close enough to be a typo.
///
/// ```
/// use prudence_core::nearest;
///
/// assert_eq!(nearest("navigatoin", ["navigation", "hvac"]), Some("navigation"));
/// assert_eq!(nearest("chess", ["navigation", "hvac"]), None);
/// ```
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().map(|name| (edits(given, name), name));
    distances.min().filter(|(distance, name)| *distance <= 1 + name.len() / 4).map(|(_, name)| name)
}

/// The edit (Levenshtein) distance between two words.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["hidden", "batch", "learning_rate"];
        assert_eq!(nearest("hiden", names), Some("hidden"));
        assert_eq!(nearest("learnign_rate", names), Some("learning_rate"));
        assert_eq!(nearest("depth", names), None);
        assert_eq!(nearest("x", []), None);
    }
}
