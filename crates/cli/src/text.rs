//! Text for terminals.

use std::io::IsTerminal as _;

/// The width that lines should not exceed.
const WIDTH: usize = 80;

/// An error's text, with long lines broken on a terminal. Elsewhere they stay whole, so that they can be searched.
pub fn of_error(text: &str) -> String {
    if std::io::stderr().is_terminal() { wrap(text) } else { text.to_owned() }
}

/// Words as a shell reads them back.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:@+%".contains(c);
    let quote = |word: &str| {
        let plain = !word.is_empty() && word.chars().all(plain);
        if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Breaks long lines between words; lines that begin with a space, such as quoted text with a marker below it, stay as
/// they are.
pub fn wrap(text: &str) -> String {
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
    use super::{command, wrap};

    #[test]
    fn long_lines_are_broken_between_words_and_quoted_ones_are_not() {
        let long = "word ".repeat(30);
        let broken = wrap(long.trim_end());
        assert!(broken.lines().count() == 2 && broken.lines().all(|line| line.chars().count() <= 80), "{broken}");
        assert_eq!(broken.split_whitespace().count(), 30);
        let quoted = format!("  {}\n      ^^^", "x ".repeat(60));
        assert_eq!(wrap(&quoted), quoted);
        assert_eq!(wrap("short\nlines"), "short\nlines");
        let path = "/a".repeat(60);
        assert_eq!(wrap(&path), path, "a word is never broken");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(command(["prudence", "resume", "runs/a-1"]), "prudence resume runs/a-1");
        assert_eq!(command(["my runs/a", "it's", ""]), r"'my runs/a' 'it'\''s' ''");
    }
}
