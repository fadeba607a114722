//! A text with one token of look-ahead, for [`crate::blocks`] and [`crate::expressions`].
//!
//! By hand, as the lexer: RDDL's sections come in any order and keywords are only keywords in their place, so each
//! function is one production, and every fault can say what was expected there.

use crate::ast::{Files, Name};
use crate::lexer::{Lexer, Token};
use crate::source::{Fault, Source, Span};

/// A text may be this long; the largest instances known have 200 kB.
const MAX_TEXT: usize = 16 << 20;

pub(crate) type Parsed<T> = Result<T, Fault>;

/// Reads all blocks of all files.
pub(crate) fn parse(sources: &[Source]) -> Parsed<Files> {
    let mut files = Files::default();
    for (file, source) in sources.iter().enumerate() {
        if source.text.len() > MAX_TEXT {
            let message = format!("{}: {} bytes; a text has at most {MAX_TEXT}", source.name, source.text.len());
            return Err(Fault::general(message));
        }
        Parser::new(&source.text, file as u32)?.file(&mut files)?;
    }
    Ok(files)
}

/// One token of look-ahead over a text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    pub token: Token,
    pub span: Span,
    /// The end of the token before.
    last: Span,
    /// How many expressions are being read, one inside the other.
    pub depth: u32,
    /// How many operands and operators have been read.
    pub nodes: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str, file: u32) -> Parsed<Parser<'a>> {
        let mut lexer = Lexer::new(text, file);
        let (token, span) = lexer.next()?;
        Ok(Parser { text, lexer, token, span, last: Span { file, ..Span::default() }, depth: 0, nodes: 0 })
    }

    pub fn advance(&mut self) -> Parsed<()> {
        self.last = self.span;
        (self.token, self.span) = self.lexer.next()?;
        Ok(())
    }

    /// The text of the token ahead.
    pub fn word(&self) -> &'a str {
        self.text.get(self.span.start as usize..self.span.end as usize).unwrap_or_default()
    }

    pub fn is(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(s) if s == symbol)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Name { .. }) && self.word() == word
    }

    pub fn take(&mut self, symbol: &str) -> Parsed<bool> {
        let found = self.is(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub fn take_word(&mut self, word: &str) -> Parsed<bool> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.take(symbol)? { Ok(()) } else { self.unexpected(&format!("`{symbol}`")) }
    }

    pub fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word)? { Ok(()) } else { self.unexpected(&format!("`{word}`")) }
    }

    pub fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        let found = match self.token {
            Token::End => "the text ends here".to_owned(),
            _ => format!("found `{}`", self.word().chars().take(40).collect::<String>()),
        };
        Err(Fault::at(self.span, format!("expected {expected}, {found}")))
    }

    /// From a token to the last one read.
    pub fn since(&self, start: Span) -> Span {
        start.to(self.last)
    }

    pub fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.token {
            Token::Name { primed: false } => {
                let name = Name { text: self.word().to_owned(), span: self.span };
                self.advance()?;
                Ok(name)
            }
            _ => self.unexpected(what),
        }
    }

    /// A name or `@name`, without the `@`.
    pub fn object(&mut self, what: &str) -> Parsed<Name> {
        match self.token {
            Token::Literal => {
                let name = Name { text: self.word()[1..].to_owned(), span: self.span };
                self.advance()?;
                Ok(name)
            }
            _ => self.name(what),
        }
    }

    /// `?x`, without the `?`.
    pub fn variable(&mut self) -> Parsed<Name> {
        match self.token {
            Token::Variable => {
                let name = Name { text: self.word()[1..].to_owned(), span: self.span };
                self.advance()?;
                Ok(name)
            }
            _ => self.unexpected("a variable such as `?x`"),
        }
    }

    /// One or more, with commas between.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take(",")? {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Items up to the closing brace and its semicolon.
    pub fn section<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.is("}") {
            items.push(item(self)?);
        }
        self.advance()?;
        self.expect(";")?;
        Ok(items)
    }
}
