//! Parses the blocks of a file: domain, non-fluents, instance.

use crate::Kind;
use crate::ast::*;
use crate::lexer::Token;
use crate::parser::{Parsed, Parser};
use crate::source::{Fault, suggest};

impl Parser<'_> {
    /// All blocks of a text.
    pub fn file(&mut self, files: &mut Files) -> Parsed<()> {
        while self.token != Token::End {
            let start = self.span;
            let once = |given: bool, what: &str| {
                if given { Err(Fault::at(start, format!("a second {what} block; expected only one"))) } else { Ok(()) }
            };
            if self.take_word("domain")? {
                once(files.domain.is_some(), "domain")?;
                files.domain = Some(self.domain()?);
            } else if self.take_word("non-fluents")? {
                once(files.non_fluents.is_some(), "non-fluents")?;
                files.non_fluents = Some(self.non_fluents()?);
            } else if self.take_word("instance")? {
                once(files.instance.is_some(), "instance")?;
                files.instance = Some(self.instance()?);
            } else if self.is_word("policy") {
                return Err(Fault::at(start, "policy blocks are not supported"));
            } else {
                return self.unexpected("`domain`, `non-fluents` or `instance`");
            }
            self.take(";")?;
        }
        Ok(())
    }

    fn domain(&mut self) -> Parsed<Domain> {
        const SECTIONS: [&str; 10] = [
            "requirements",
            "types",
            "pvariables",
            "cpfs",
            "cdfs",
            "reward",
            "termination",
            "action-preconditions",
            "state-action-constraints",
            "state-invariants",
        ];
        let name = self.name("the name of the domain")?;
        let mut domain = Domain {
            name,
            types: Vec::new(),
            variables: Vec::new(),
            cpfs: Vec::new(),
            reward: None,
            preconditions: Vec::new(),
            invariants: Vec::new(),
            terminations: Vec::new(),
        };
        let mut seen = Vec::new();
        self.expect("{")?;
        while !self.take("}")? {
            let Some(section) = SECTIONS.iter().copied().find(|section| self.is_word(section)) else {
                let hint = suggest(self.word(), SECTIONS);
                return self.unexpected(&format!("a section of the domain or `}}`{hint}"));
            };
            if seen.contains(&section) {
                return Err(Fault::at(self.span, format!("a second section `{section}`; expected only one")));
            }
            seen.push(section);
            self.advance()?;
            match section {
                "requirements" => self.requirements()?,
                "types" => domain.types = self.section(Self::type_declaration)?,
                "pvariables" => domain.variables = self.section(Self::variable_declaration)?,
                "cpfs" | "cdfs" => domain.cpfs = self.section(Self::cpf)?,
                "reward" => {
                    self.expect("=")?;
                    domain.reward = Some(self.statement()?);
                }
                "termination" => domain.terminations = self.section(Self::statement)?,
                "action-preconditions" => domain.preconditions = self.section(Self::statement)?,
                "state-invariants" => domain.invariants = self.section(Self::statement)?,
                // Parsed and ignored, as in pyRDDLGym: the two sections above have replaced it in the language.
                _ => drop(self.section(Self::statement)?),
            }
        }
        Ok(domain)
    }

    fn requirements(&mut self) -> Parsed<()> {
        self.take("=")?;
        self.expect("{")?;
        if !self.is("}") {
            self.list(|p| p.name("the name of a requirement"))?;
        }
        self.expect("}")?;
        self.expect(";")
    }

    fn type_declaration(&mut self) -> Parsed<TypeDeclaration> {
        let name = self.name("the name of a type or `}`")?;
        self.expect(":")?;
        let values = if self.take("{")? {
            let values = if self.is("}") { Vec::new() } else { self.list(|p| p.object("a value such as `@red`"))? };
            self.expect("}")?;
            Some(values)
        } else if self.take_word("object")? {
            None
        } else {
            return self.unexpected("`object` or the values of an enumeration, such as `{@red, @blue}`");
        };
        self.expect(";")?;
        Ok(TypeDeclaration { name, values })
    }

    fn variable_declaration(&mut self) -> Parsed<VariableDeclaration> {
        let name = self.name("the name of a pvariable or `}`")?;
        let mut parameters = Vec::new();
        if self.take("(")? {
            parameters = self.list(|p| p.name("a type"))?;
            self.expect(")")?;
        }
        self.expect(":")?;
        self.expect("{")?;
        let Some(kind) = Kind::ALL.into_iter().find(|kind| self.is_word(kind.name())) else {
            let hint = suggest(self.word(), Kind::ALL.map(Kind::name));
            return self.unexpected(&format!("a kind of pvariable{hint}"));
        };
        self.advance()?;
        self.expect(",")?;
        let range = self.name("`bool`, `int`, `real` or a type")?;
        let mut default = None;
        while self.take(",")? {
            if self.take_word("default")? {
                self.expect("=")?;
                default = Some(self.constant()?);
            } else if self.take_word("level")? {
                self.expect("=")?;
                self.constant()?; // ignored: the order follows from what the cpfs read
            } else {
                return self.unexpected("`default` or `level`");
            }
        }
        self.expect("}")?;
        self.expect(";")?;
        Ok(VariableDeclaration { name, parameters, kind, range, default })
    }

    fn constant(&mut self) -> Parsed<Constant> {
        let start = self.span;
        let negative = self.take("-")?;
        let sign = if negative { -1.0 } else { 1.0 };
        let value = match self.token {
            Token::Integer(value) => ConstantValue::Integer(if value == 0.0 { 0.0 } else { sign * value }),
            Token::Real(value) => ConstantValue::Real(sign * value),
            Token::Name { primed: false } | Token::Literal if !negative => match self.word() {
                "true" => ConstantValue::Bool(true),
                "false" => ConstantValue::Bool(false),
                "pos-inf" => ConstantValue::Real(f64::INFINITY),
                "neg-inf" => ConstantValue::Real(f64::NEG_INFINITY),
                word => ConstantValue::Name(word.trim_start_matches('@').to_owned()),
            },
            _ => return self.unexpected("a value: a number, `true`, `false` or an object"),
        };
        self.advance()?;
        Ok(Constant { value, span: self.since(start) })
    }

    fn cpf(&mut self) -> Parsed<Cpf> {
        let Token::Name { primed } = self.token else { return self.unexpected("the name of a fluent or `}`") };
        let name = Name { text: self.word().trim_end_matches('\'').to_owned(), span: self.span };
        self.advance()?;
        let mut parameters = Vec::new();
        if self.take("(")? {
            if !self.is(")") {
                parameters = self.list(Self::variable)?;
            }
            self.expect(")")?;
        }
        self.expect("=")?;
        Ok(Cpf { name, primed, parameters, expr: self.statement()? })
    }

    /// An expression and the semicolon after it.
    fn statement(&mut self) -> Parsed<Expr> {
        let expr = self.expr()?;
        if !self.is(";") {
            return self.unexpected("an operator or `;`");
        }
        self.advance()?;
        Ok(expr)
    }

    fn non_fluents(&mut self) -> Parsed<NonFluents> {
        self.name("the name of the non-fluents")?;
        self.expect("{")?;
        let mut block = NonFluents::default();
        while !self.take("}")? {
            if self.take_word("domain")? {
                self.reference()?;
            } else if self.take_word("objects")? {
                block.objects.extend(self.section(Self::objects)?);
            } else if self.take_word("non-fluents")? {
                block.values.extend(self.section(Self::assignment)?);
            } else {
                return self.unexpected("`domain`, `objects`, `non-fluents` or `}`");
            }
        }
        Ok(block)
    }

    fn instance(&mut self) -> Parsed<Instance> {
        let name = self.name("the name of the instance")?;
        let mut block = Instance {
            name,
            objects: Vec::new(),
            non_fluents: None,
            init_state: Vec::new(),
            max_nondef_actions: None,
            horizon: None,
            discount: None,
        };
        self.expect("{")?;
        while !self.take("}")? {
            let start = self.span;
            if self.take_word("domain")? {
                self.reference()?;
            } else if self.take_word("non-fluents")? {
                if self.is("=") {
                    self.reference()?;
                } else {
                    block.non_fluents.get_or_insert_default().extend(self.section(Self::assignment)?);
                }
            } else if self.take_word("objects")? {
                block.objects.extend(self.section(Self::objects)?);
            } else if self.take_word("init-state")? {
                block.init_state.extend(self.section(Self::assignment)?);
            } else if self.take_word("max-nondef-actions")? {
                block.max_nondef_actions = Some(self.setting()?);
            } else if self.take_word("horizon")? {
                block.horizon = Some((self.setting()?, self.since(start)));
            } else if self.take_word("discount")? {
                block.discount = Some((self.setting()?, self.since(start)));
            } else {
                return self.unexpected(
                    "`domain`, `non-fluents`, `objects`, `init-state`, `max-nondef-actions`, `horizon`, `discount` or `}`",
                );
            }
        }
        Ok(block)
    }

    /// `= name;`
    fn reference(&mut self) -> Parsed<()> {
        self.expect("=")?;
        self.name("a name")?;
        self.expect(";")
    }

    /// `= number;`
    fn setting(&mut self) -> Parsed<f64> {
        self.expect("=")?;
        if self.is_word("terminate-when") {
            return Err(Fault::at(self.span, "`terminate-when` is not supported; use the section `termination`"));
        }
        let value = match self.token {
            Token::Integer(value) | Token::Real(value) => value,
            _ if self.is_word("pos-inf") => f64::INFINITY,
            _ => return self.unexpected("a number or `pos-inf`"),
        };
        self.advance()?;
        self.expect(";")?;
        Ok(value)
    }

    fn objects(&mut self) -> Parsed<Objects> {
        let of = self.name("a type or `}`")?;
        self.expect(":")?;
        self.expect("{")?;
        let names = if self.is("}") { Vec::new() } else { self.list(|p| p.object("an object"))? };
        self.expect("}")?;
        self.expect(";")?;
        Ok(Objects { of, names })
    }

    fn assignment(&mut self) -> Parsed<Assignment> {
        let start = self.span;
        let negated = self.take("~")?;
        let name = self.name("the name of a pvariable or `}`")?;
        let mut arguments = Vec::new();
        if self.take("(")? {
            if !self.is(")") {
                arguments = self.list(|p| p.object("an object"))?;
            }
            self.expect(")")?;
        }
        let value = if !negated && self.take("=")? {
            self.constant()?
        } else {
            Constant { value: ConstantValue::Bool(!negated), span: self.since(start) }
        };
        self.expect(";")?;
        Ok(Assignment { name, arguments, value })
    }
}
