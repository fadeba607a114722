//! Splits a text into tokens, one at a time, so that a large invalid text costs nothing beyond its first error.
//!
//! It is written by hand: an RDDL name may contain `-` and `_` but not end with them (`sum_{` begins with a name and
//! `_`; `a-b` is one name, `a - b` is three tokens), which takes three lines here and would take a page with
//! combinators.

use crate::source::{Fault, Span};

/// The kind of a token; its text is in the source, at its span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name or a keyword; `primed` if it ends in `'`.
    Name {
        primed: bool,
    },
    /// `?x`
    Variable,
    /// `@x`
    Literal,
    Integer(f64),
    Real(f64),
    /// An operator or a bracket, as written.
    Symbol(&'static str),
    End,
}

/// The maximum length of a name.
const MAX_NAME: usize = 200;

/// If one symbol is a prefix of another, the longer one comes first.
const SYMBOLS: [&str; 31] = [
    "<=>", "=>", "<=", ">=", "==", "~=", "^", "&", "|", "~", "+", "-", "*", "/", "<", ">", "=", "(", ")", "[", "]",
    "{", "}", ",", ";", ":", "_", ".", "$", "?", "@",
];

pub(crate) struct Lexer<'a> {
    text: &'a str,
    file: u32,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str, file: u32) -> Lexer<'a> {
        Lexer { text, file, at: if text.starts_with('\u{feff}') { 3 } else { 0 } }
    }

    pub fn next(&mut self) -> Result<(Token, Span), Fault> {
        self.skip_blanks();
        let start = self.at;
        let rest = &self.text[start..];
        let bytes = rest.as_bytes();
        let Some(&first) = bytes.first() else { return Ok((Token::End, self.span(start))) };
        let token = match first {
            b'a'..=b'z' | b'A'..=b'Z' => {
                self.at += name_length(bytes);
                let primed = self.text[self.at..].starts_with('\'');
                self.at += usize::from(primed);
                Token::Name { primed }
            }
            b'?' | b'@' if name_length(&bytes[1..]) > 0 => {
                self.at += 1 + name_length(&bytes[1..]);
                if first == b'?' { Token::Variable } else { Token::Literal }
            }
            b'0'..=b'9' => self.number(start)?,
            b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => self.number(start)?,
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    self.at += symbol.len();
                    Token::Symbol(symbol)
                }
                None => {
                    self.at += rest.chars().next().map_or(1, char::len_utf8);
                    let c = rest.chars().next().unwrap_or_default();
                    let message = format!("`{}` has no meaning in RDDL", c.escape_default());
                    return Err(Fault::at(self.span(start), message));
                }
            },
        };
        if self.at - start > MAX_NAME && !matches!(token, Token::Integer(_) | Token::Real(_)) {
            return Err(Fault::at(self.span(start), format!("this name has more than {MAX_NAME} characters")));
        }
        Ok((token, self.span(start)))
    }

    fn skip_blanks(&mut self) {
        let bytes = self.text.as_bytes();
        loop {
            while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
                self.at += 1;
            }
            if !self.text[self.at..].starts_with("//") {
                return;
            }
            self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at);
        }
    }

    /// `12`, `0.5`, `.5` and, as an extension, `1e-3`.
    fn number(&mut self, start: usize) -> Result<Token, Fault> {
        let bytes = self.text.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += digits(self.at);
        let mut real = false;
        if bytes.get(self.at) == Some(&b'.') && digits(self.at + 1) > 0 {
            self.at += 1 + digits(self.at + 1);
            real = true;
        }
        if matches!(bytes.get(self.at), Some(b'e' | b'E')) {
            let signed = usize::from(matches!(bytes.get(self.at + 1), Some(b'+' | b'-')));
            let exponent = bytes.get(self.at + 1 + signed..).map_or(0, |_| digits(self.at + 1 + signed));
            if exponent > 0 {
                self.at += 1 + signed + exponent;
                real = true;
            }
        }
        let value: f64 = self.text[start..self.at].parse().unwrap_or(f64::NAN);
        match (value.is_finite(), real) {
            (true, true) => Ok(Token::Real(value)),
            (true, false) if value < 9.2e18 => Ok(Token::Integer(value)),
            _ => Err(Fault::at(self.span(start), "this number is too large")),
        }
    }

    fn span(&self, start: usize) -> Span {
        Span { file: self.file, start: start as u32, end: self.at as u32 }
    }
}

/// The length of the name at the front: letters, digits, `-` and `_`, ending with a letter or a digit.
fn name_length(bytes: &[u8]) -> usize {
    let run = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'-' || **b == b'_').count();
    bytes[..run].iter().rposition(u8::is_ascii_alphanumeric).map_or(0, |last| last + 1)
}
