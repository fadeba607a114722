//! Text for terminals.

use std::io::IsTerminal as _;

/// The width that lines should not exceed.
const WIDTH: usize = 80;

/// For a terminal, breaks long lines between words. Elsewhere lines stay whole, so that they can be searched.
pub fn wrap(text: &str) -> String {
    if std::io::stderr().is_terminal() { wrapped(text) } else { text.to_owned() }
}

/// Lines that begin with a space, such as quoted text with a marker below it, stay as they are.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for (i, line) in text.lines().enumerate() {
        if i > 0 {
            wrapped.push('\n');
        }
        if line.starts_with(' ') || line.chars().count() <= WIDTH {
            wrapped.push_str(line);
            continue;
        }
        let mut column = 0;
        for word in line.split(' ') {
            let width = word.chars().count();
            if column > 0 && column + 1 + width > WIDTH {
                wrapped.push_str("\n  ");
                column = 2;
            } else if column > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += width;
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_are_broken_between_words_and_quoted_ones_are_not() {
        let long = "word ".repeat(30);
        let broken = wrapped(long.trim_end());
        assert!(broken.lines().count() == 2 && broken.lines().all(|line| line.chars().count() <= 80), "{broken}");
        assert_eq!(broken.split_whitespace().count(), 30);
        let quoted = format!("  {}\n      ^^^", "x ".repeat(60));
        assert_eq!(wrapped(&quoted), quoted);
        assert_eq!(wrapped("short\nlines"), "short\nlines");
        let path = "/a".repeat(60);
        assert_eq!(wrapped(&path), path, "a word is never broken");
    }
}
