//! Checks distributions: their arguments, and the number of each within its cpf.

use super::{Checked, Checker, Reader};
use crate::ast::{Expr, Name};
use crate::distributions::Law;
use crate::model::Range;
use crate::source::{Fault, Span};
use crate::tree::{Node, Site, Tree};

impl Checker<'_> {
    pub(super) fn site(&mut self, normalised: bool, span: Span) -> Checked<Site> {
        if !matches!(self.reader, Reader::Cpf(_) | Reader::Reward) {
            let message = format!("{} must not be random", self.reader.name());
            return Err(Fault::at(span, message));
        }
        self.sites += 1;
        Ok(Site { number: self.sites - 1, normalised })
    }

    pub(super) fn distribution(&mut self, name: &Name, arguments: &[Expr], span: Span) -> Checked<Tree> {
        if let ("KronDelta" | "DiracDelta", [argument]) = (name.text.as_str(), arguments) {
            let tree = self.expr(argument)?;
            return match (name.text.as_str(), tree.range) {
                ("KronDelta", Range::Real) => {
                    Err(Fault::at(argument.span, "KronDelta takes bool, int or an object, found real; use DiracDelta"))
                }
                ("DiracDelta", Range::Object(_)) => {
                    Err(Fault::at(argument.span, "DiracDelta takes a number, found an object; use KronDelta"))
                }
                _ => Ok(tree),
            };
        }
        let law = Law::by_name(&name.text);
        let arity = law.map_or(1, Law::arity);
        let (Some(law), true) = (law, arguments.len() == arity) else {
            let message = format!(
                "`{}` takes {arity} argument{}, {} given",
                name.text,
                if arity == 1 { "" } else { "s" },
                arguments.len()
            );
            return Err(Fault::at(span, message));
        };
        let site = self.site(true, span)?;
        let mut trees = Vec::with_capacity(arity);
        for (i, argument) in arguments.iter().enumerate() {
            trees.push(match (law, i) {
                (Law::Binomial, 0) => self.integer(argument, "the number of trials of a Binomial")?,
                _ => self.number(argument)?,
            });
        }
        Ok(Tree::new(Node::Draw(law, trees, site), law.range(), span))
    }

    pub(super) fn discrete(
        &mut self,
        normalised: bool,
        of: &Name,
        cases: &[(Name, Expr)],
        span: Span,
    ) -> Checked<Tree> {
        let site = self.site(normalised, span)?;
        let number = self.model.type_of(of)?;
        let objects = &self.model.types[number].objects;
        if !self.model.types[number].enumeration {
            return Err(Fault::at(of.span, format!("`{}` is not an enumeration; use Discrete_{{?x : type}}", of.text)));
        }
        let mut probabilities: Vec<Option<Tree>> = objects.iter().map(|_| None).collect();
        for (label, case) in cases {
            let place = self.model.object_of(label, number)?;
            let tree = self.number(case)?;
            if probabilities[place].replace(tree).is_some() {
                return Err(Fault::at(label.span, "this value already has a probability"));
            }
        }
        let missing = |place: usize| Fault::at(span, format!("no probability for `@{}`", objects[place]));
        let probabilities = probabilities.into_iter().enumerate().map(|(i, p)| p.ok_or_else(|| missing(i)));
        let probabilities = probabilities.collect::<Checked<Vec<Tree>>>()?;
        Ok(Tree::new(Node::Discrete(probabilities, site), Range::Object(number), span))
    }
}
