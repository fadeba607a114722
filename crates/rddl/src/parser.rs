//! A parser with one token of look-ahead; the productions are in [`crate::blocks`] and [`crate::expressions`].
//!
//! It is written by hand, like the lexer: RDDL's sections come in any order, and keywords are only reserved in their
//! place. Each function is one production, and every error can say what was expected.

use crate::ast::{Files, Name};
use crate::lexer::{Lexer, Token};
use crate::source::{Fault, Source, Span};

/// The maximum length of a text in bytes; the largest known instances have 200 kB.
const MAX_TEXT: usize = 16 << 20;

pub(crate) type Parsed<T> = Result<T, Fault>;

/// Parses all blocks of all files.
pub(crate) fn parse(sources: &[Source]) -> Parsed<Files> {
    let mut files = Files::default();
    for (file, source) in sources.iter().enumerate() {
        if source.text.len() > MAX_TEXT {
            let message = format!("{}: {} bytes; at most {MAX_TEXT} are accepted", source.name, source.text.len());
            return Err(Fault::general(message));
        }
        Parser::new(&source.text, file as u32)?.file(&mut files)?;
    }
    Ok(files)
}

/// A recursive-descent parser of one text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    pub token: Token,
    pub span: Span,
    /// The place of the previous token.
    last: Span,
    /// The current nesting depth of expressions.
    pub depth: u32,
    /// The number of operands and operators parsed so far.
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

    /// The text of the current token.
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
            Token::End => "but the text ends here".to_owned(),
            _ => format!("found `{}`", self.word().chars().take(40).collect::<String>()),
        };
        Err(Fault::at(self.span, format!("expected {expected}, {found}")))
    }

    /// The span from a token to the previous one.
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

    /// One or more items, separated by commas.
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
