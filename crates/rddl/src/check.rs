//! Checks expressions against the declarations: names, arities, types, scopes, and which fluents may be read where.

mod operators;
mod random;

use crate::ast::{Aggregate, Binding, Expr, ExprKind, Name};
use crate::model::{Kind, Model, Range, wrong_arity};
use crate::source::{Fault, Span, suggest};
use crate::tree::{Index, Node, Tree};

type Checked<T> = Result<T, Fault>;

/// What an expression belongs to, which determines the fluents that it may read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reader {
    Cpf(Kind),
    Reward,
    Precondition,
    Invariant,
    Termination,
}

impl Reader {
    fn may_read(self, kind: Kind, primed: bool) -> bool {
        use Kind::{Action, Derived, Interm, NonFluent, Observ, State};
        match (self, kind) {
            (_, NonFluent) => true,
            (_, Observ) => false,
            (Reader::Cpf(State) | Reader::Reward, _) => true,
            (Reader::Cpf(Observ), State) => primed,
            (_, State) if primed => false,
            (_, State) => true,
            (Reader::Cpf(Derived), _) => kind == Derived,
            (Reader::Cpf(Interm | Observ), Action | Interm | Derived) => true,
            (Reader::Precondition, Action) => true,
            _ => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Reader::Cpf(Kind::State) => "the next state",
            Reader::Cpf(Kind::Derived) => "derived-fluents",
            Reader::Cpf(Kind::Observ) => "observ-fluents",
            Reader::Cpf(_) => "interm-fluents",
            Reader::Reward => "the reward",
            Reader::Precondition => "action-preconditions",
            Reader::Invariant => "state-invariants",
            Reader::Termination => "terminations",
        }
    }
}

/// The fluents that an expression reads: which one, whether it is the next value, and where.
pub(crate) type Reads = Vec<(usize, bool, Span)>;

/// Checks one expression.
pub(crate) struct Checker<'a> {
    model: &'a Model,
    reader: Reader,
    /// The variables and their types; see [`Node::Variable`].
    scope: Vec<(String, usize)>,
    sites: u32,
    reads: Reads,
}

impl<'a> Checker<'a> {
    pub fn new(model: &'a Model, reader: Reader, scope: Vec<(String, usize)>) -> Checker<'a> {
        Checker { model, reader, scope, sites: 0, reads: Vec::new() }
    }

    /// Checks an expression whose value must fit the range `wanted`.
    pub fn run(mut self, expr: &Expr, wanted: Range) -> Checked<(Tree, Reads)> {
        let tree = self.expr(expr)?;
        let fits = match (wanted, tree.range) {
            (Range::Real, Range::Bool | Range::Int | Range::Real) => true,
            (Range::Int, Range::Bool | Range::Int) => true,
            (wanted, found) => wanted == found,
        };
        if !fits {
            let (wanted, found) = (self.model.range_name(wanted), self.model.range_name(tree.range));
            return Err(Fault::at(expr.span, format!("expected a value of type {wanted}, found {found}")));
        }
        Ok((tree, self.reads))
    }

    fn expr(&mut self, expr: &Expr) -> Checked<Tree> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Bool(value) => Ok(Tree::new(Node::Number(f64::from(*value)), Range::Bool, span)),
            ExprKind::Integer(value) => Ok(Tree::new(Node::Number(*value), Range::Int, span)),
            ExprKind::Real(value) => Ok(Tree::new(Node::Number(*value), Range::Real, span)),
            ExprKind::Variable(name) => {
                let place = self.variable(name, span)?;
                let of = self.scope[place].1;
                Ok(Tree::new(Node::Variable(place), Range::Object(of), span))
            }
            ExprKind::Literal(name) => self.object(name, span),
            ExprKind::Fluent { name, primed, arguments } => self.fluent(name, *primed, arguments, span),
            ExprKind::Function { name, arguments } => self.function(name, arguments, span),
            ExprKind::Unary(op, a) => self.unary(*op, a, span),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, span),
            ExprKind::Aggregate(op, bindings, body) => self.aggregate(*op, bindings, body, span),
            ExprKind::If(parts) => {
                let condition = self.condition(&parts[0])?;
                let (then, otherwise) = (self.expr(&parts[1])?, self.expr(&parts[2])?);
                let range = self.common(then.range, otherwise.range, span)?;
                Ok(Tree::new(Node::If(Box::new([condition, then, otherwise])), range, span))
            }
            ExprKind::Switch(subject, cases) => self.switch(subject, cases, span),
            ExprKind::Distribution { name, arguments } => self.distribution(name, arguments, span),
            ExprKind::Discrete { normalised, of, cases } => self.discrete(*normalised, of, cases, span),
            ExprKind::DiscreteOver { normalised, binding, body } => {
                let site = self.site(*normalised, span)?;
                let place = self.scope.len();
                let counts = self.bind(std::slice::from_ref(binding))?;
                let of = self.scope[place].1;
                let body = self.number(body)?;
                self.scope.truncate(place);
                let node = Node::DiscreteOver(place, counts[0], Box::new(body), site);
                Ok(Tree::new(node, Range::Object(of), span))
            }
        }
    }

    // Leaves.

    fn variable(&self, name: &str, span: Span) -> Checked<usize> {
        self.scope.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let known = self.scope.iter().map(|(known, _)| known.as_str());
            Fault::at(span, format!("no variable is called `?{name}` here{}", suggest(name, known)))
        })
    }

    /// A value of an enumeration. A domain cannot name the objects of an instance.
    fn object(&self, name: &str, span: Span) -> Checked<Tree> {
        match self.model.object_named(name) {
            Some((of, place)) if self.model.types[of].enumeration => {
                Ok(Tree::new(Node::Number(place as f64), Range::Object(of), span))
            }
            Some((of, _)) => {
                let of = &self.model.types[of].name;
                let message = format!(
                    "`{name}` is an object of type `{of}`, which the instance lists; expressions may only name values of enumerations"
                );
                Err(Fault::at(span, message))
            }
            None => {
                let types = self.model.types.iter().filter(|t| t.enumeration);
                let known = types.flat_map(|t| t.objects.iter().map(String::as_str));
                Err(Fault::at(span, format!("no value is called `@{name}`{}", suggest(name, known))))
            }
        }
    }

    fn fluent(&mut self, name: &Name, primed: bool, arguments: &[Expr], span: Span) -> Checked<Tree> {
        let model = self.model;
        let number = model.fluent_number(&name.text);
        if arguments.is_empty() && !primed && model.object_named(&name.text).is_some() {
            match number.map(|number| &model.fluents[number]) {
                Some(fluent) if fluent.parameters.is_empty() => {
                    let message = format!("`{}` is both an object and a pvariable without parameters", name.text);
                    return Err(Fault::at(name.span, message));
                }
                _ => return self.object(&name.text, span),
            }
        }
        let Some(number) = number else {
            let known = model.fluents.iter().map(|fluent| fluent.name.as_str());
            let message = format!("no pvariable is called `{}`{}", name.text, suggest(&name.text, known));
            return Err(Fault::at(name.span, message));
        };
        let fluent = &model.fluents[number];
        if primed && fluent.kind != Kind::State {
            let message =
                format!("`{}` ({}) has no next value; only state-fluents have one", name.text, fluent.kind.name());
            return Err(Fault::at(name.span, message));
        }
        if !self.reader.may_read(fluent.kind, primed) {
            let prime = if primed { "'" } else { "" };
            let what = if primed { "next state" } else { fluent.kind.name() };
            let message = format!("{} cannot depend on `{}{prime}` ({what})", self.reader.name(), name.text);
            return Err(Fault::at(name.span, message));
        }
        if fluent.parameters.len() != arguments.len() {
            return Err(Fault::at(span, wrong_arity(&name.text, fluent.parameters.len(), arguments.len())));
        }
        self.reads.push((number, primed, name.span));
        let mut indices = Vec::with_capacity(arguments.len());
        for (argument, of) in arguments.iter().zip(&fluent.parameters) {
            let tree = self.expr(argument)?;
            if tree.range != Range::Object(*of) {
                let (wanted, found) = (&model.types[*of].name, model.range_name(tree.range));
                let message = format!("expected an object of type `{wanted}`, found type `{found}`");
                return Err(Fault::at(argument.span, message));
            }
            let index = match tree.node {
                Node::Number(place) => Index::Constant(place as usize),
                Node::Variable(place) => Index::Variable(place),
                _ => Index::Computed(Box::new(tree)),
            };
            indices.push((index, model.types[*of].objects.len()));
        }
        let slot = if primed { fluent.next } else { fluent.slot };
        Ok(Tree::new(Node::Fluent { slot, indices }, fluent.range, span))
    }

    // Kinds of operands.

    fn number(&mut self, expr: &Expr) -> Checked<Tree> {
        let tree = self.expr(expr)?;
        match tree.range {
            Range::Object(of) => {
                let of = &self.model.types[of].name;
                Err(Fault::at(expr.span, format!("expected a number, found an object of type `{of}`")))
            }
            _ => Ok(tree),
        }
    }

    fn condition(&mut self, expr: &Expr) -> Checked<Tree> {
        let tree = self.expr(expr)?;
        match tree.range {
            Range::Bool => Ok(tree),
            range => {
                let message = format!("expected a condition (bool), found {}", self.model.range_name(range));
                Err(Fault::at(expr.span, message))
            }
        }
    }

    fn integer(&mut self, expr: &Expr, what: &str) -> Checked<Tree> {
        let tree = self.number(expr)?;
        match tree.range {
            Range::Real => Err(Fault::at(expr.span, format!("{what} takes whole numbers, found real"))),
            _ => Ok(tree),
        }
    }

    /// The range that includes both.
    fn common(&self, a: Range, b: Range, span: Span) -> Checked<Range> {
        match (a, b) {
            (a, b) if a == b => Ok(a),
            (Range::Object(_), _) | (_, Range::Object(_)) => {
                let (a, b) = (self.model.range_name(a), self.model.range_name(b));
                Err(Fault::at(span, format!("the branches have different types: {a} and {b}")))
            }
            (Range::Real, _) | (_, Range::Real) => Ok(Range::Real),
            _ => Ok(Range::Int),
        }
    }

    // Loops and branches.

    /// Puts variables into scope and returns the number of objects of each.
    fn bind(&mut self, bindings: &[Binding]) -> Checked<Vec<usize>> {
        let mut counts = Vec::with_capacity(bindings.len());
        for Binding { variable, of } in bindings {
            let of = self.model.type_of(of)?;
            if self.scope.iter().any(|(known, _)| *known == variable.text) {
                let message = format!("the variable `?{}` is already in use here", variable.text);
                return Err(Fault::at(variable.span, message));
            }
            self.scope.push((variable.text.clone(), of));
            counts.push(self.model.types[of].objects.len());
        }
        Ok(counts)
    }

    fn aggregate(&mut self, op: Aggregate, bindings: &[Binding], body: &Expr, span: Span) -> Checked<Tree> {
        let place = self.scope.len();
        let counts = self.bind(bindings)?;
        let picks = matches!(op, Aggregate::Argmin | Aggregate::Argmax);
        if picks && bindings.len() != 1 {
            return Err(Fault::at(span, "argmin and argmax take one variable"));
        }
        let orders = picks || matches!(op, Aggregate::Min | Aggregate::Max);
        if orders && counts.contains(&0) {
            return Err(Fault::at(span, "there are no objects to take this over; expected at least one"));
        }
        let of = self.scope[place].1;
        let body = match op {
            Aggregate::Forall | Aggregate::Exists => self.condition(body)?,
            _ => self.number(body)?,
        };
        self.scope.truncate(place);
        let range = match op {
            Aggregate::Forall | Aggregate::Exists => Range::Bool,
            Aggregate::Avg => Range::Real,
            Aggregate::Argmin | Aggregate::Argmax => Range::Object(of),
            _ => numeric(body.range),
        };
        Ok(Tree::new(Node::Aggregate(op, counts, Box::new(body)), range, span))
    }

    fn switch(&mut self, subject: &Expr, cases: &[(Option<Name>, Expr)], span: Span) -> Checked<Tree> {
        let subject_tree = self.expr(subject)?;
        let Range::Object(of) = subject_tree.range else {
            let found = self.model.range_name(subject_tree.range);
            let message = format!("expected a value of an enumeration to switch on, found {found}");
            return Err(Fault::at(subject.span, message));
        };
        let mut takes = vec![None; self.model.types[of].objects.len()];
        let mut default = None;
        let mut trees: Vec<Tree> = Vec::with_capacity(cases.len());
        for (number, (label, case)) in cases.iter().enumerate() {
            let before = match label {
                Some(label) => takes[self.model.object_of(label, of)?].replace(number),
                None => default.replace(number),
            };
            if before.is_some() {
                let place = label.as_ref().map_or(case.span, |label| label.span);
                return Err(Fault::at(place, "this case appears twice"));
            }
            trees.push(self.expr(case)?);
        }
        let takes = takes.iter().enumerate().map(|(value, case)| {
            case.or(default).ok_or_else(|| {
                let missing = &self.model.types[of].objects[value];
                Fault::at(span, format!("no case for `@{missing}` and no default"))
            })
        });
        let takes = takes.collect::<Checked<Vec<usize>>>()?;
        let mut ranges = trees.iter().map(|tree| tree.range);
        let first = ranges.next().unwrap_or(Range::Real);
        let range = ranges.try_fold(first, |range, next| self.common(range, next, span))?;
        Ok(Tree::new(Node::Switch(Box::new(subject_tree), trees, takes), range, span))
    }
}

/// The range of a value in arithmetic, where a condition counts as 0 or 1.
fn numeric(range: Range) -> Range {
    if range == Range::Bool { Range::Int } else { range }
}
