//! Declarations made good: types with their objects, pvariables with their places in the value array and their initial
//! values. Expressions are checked against this in [`crate::check`].

use std::collections::HashMap;

use crate::ast::{Assignment, Constant, ConstantValue, Files, Name, Objects, TypeDeclaration, VariableDeclaration};
use crate::source::{Fault, Span, suggest};

/// At most so many ground pvariables, all kinds together.
const MAX_GROUND: usize = 4_000_000;
/// Bytes of all ground names of a pvariable.
const MAX_NAMES: usize = 256 << 20;

/// A pvariable has at most so many parameters.
const MAX_PARAMETERS: usize = 32;

/// What a pvariable is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A constant of the instance.
    NonFluent,
    /// Part of the state; has a value at the start, and one after each step.
    State,
    /// Chosen by the agent at each step.
    Action,
    /// Computed in a step from state and action.
    Interm,
    /// As an intermediate one, from the state alone.
    Derived,
    /// What is seen of the state after a step.
    Observ,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [Kind::NonFluent, Kind::State, Kind::Action, Kind::Interm, Kind::Derived, Kind::Observ];

    /// As the language calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NonFluent => "non-fluent",
            Kind::State => "state-fluent",
            Kind::Action => "action-fluent",
            Kind::Interm => "interm-fluent",
            Kind::Derived => "derived-fluent",
            Kind::Observ => "observ-fluent",
        }
    }
}

/// What values a pvariable or an expression takes; all of them are held as `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// 0 or 1.
    Bool,
    /// A whole number.
    Int,
    /// Any number.
    Real,
    /// The place of an object in the type with this number (see [`crate::Program::objects`]).
    Object(usize),
}

/// A type of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// Its name.
    pub name: String,
    /// Its objects, without `@`, in order.
    pub objects: Vec<String>,
    /// Whether the domain itself lists the objects, so that its expressions may name them.
    pub enumeration: bool,
}

/// A pvariable with all its groundings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluent {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// What values it takes.
    pub range: Range,
    /// The types of its parameters.
    pub parameters: Vec<usize>,
    /// Where its groundings begin in the array of values; they follow each other in row-major order.
    pub slot: usize,
    /// How many groundings it has.
    pub count: usize,
    /// Where the next state begins, for a state fluent.
    pub(crate) next: usize,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub types: Vec<Type>,
    pub fluents: Vec<Fluent>,
    /// State, next state, actions, the other fluents, non-fluents: what they are before the first step.
    pub values: Vec<f64>,
    /// How many of the values are state, action.
    pub states: usize,
    pub actions: usize,
    type_names: HashMap<String, usize>,
    fluent_names: HashMap<String, usize>,
    object_names: HashMap<String, (usize, usize)>,
}

impl Model {
    pub fn new(files: &Files) -> Result<Model, Fault> {
        let Some(domain) = &files.domain else {
            return Err(Fault::general("no `domain` block in the texts given"));
        };
        let Some(instance) = &files.instance else {
            return Err(Fault::general("no `instance` block in the texts given"));
        };
        let mut model = Model {
            types: Vec::new(),
            fluents: Vec::new(),
            values: Vec::new(),
            states: 0,
            actions: 0,
            type_names: HashMap::new(),
            fluent_names: HashMap::new(),
            object_names: HashMap::new(),
        };
        // As in pyRDDLGym, an instance that gives non-fluents itself takes the place of the non-fluents block.
        let block = files.non_fluents.as_ref();
        let own = instance.non_fluents.is_some() || block.is_none();
        let objects = match own && !instance.objects.is_empty() {
            true => &instance.objects[..],
            false => block.map_or(&instance.objects[..], |block| &block.objects),
        };
        model.declare_types(&domain.types, objects)?;
        model.declare_fluents(&domain.variables)?;
        let given = match (&instance.non_fluents, block) {
            (Some(values), _) => &values[..],
            (None, Some(block)) => &block.values,
            (None, None) => &[],
        };
        model.assign(given, Kind::NonFluent)?;
        model.assign(&instance.init_state, Kind::State)?;
        for fluent in model.fluents.iter().filter(|f| matches!(f.kind, Kind::NonFluent | Kind::State)) {
            let values = &model.values[fluent.slot..fluent.slot + fluent.count];
            if let Some(missing) = values.iter().position(|value| value.is_nan()) {
                let ground = ground_name(fluent, missing, &model.types);
                let message = format!("`{ground}` has no value: expected a default here or a value in the instance");
                return Err(Fault::at(fluent.span, message));
            }
        }
        model.values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = 0.0);
        Ok(model)
    }

    fn declare_types(&mut self, types: &[TypeDeclaration], objects: &[Objects]) -> Result<(), Fault> {
        let mut given = HashMap::new();
        for objects in objects {
            if given.insert(objects.of.text.as_str(), objects).is_some() {
                let message = format!("objects of `{}` a second time", objects.of.text);
                return Err(Fault::at(objects.of.span, message));
            }
        }
        for TypeDeclaration { name, values } in types {
            if ["bool", "int", "real", "object"].contains(&name.text.as_str()) {
                return Err(Fault::at(name.span, format!("`{}` is a type already", name.text)));
            }
            let names = match (values, given.get(name.text.as_str())) {
                (Some(values), None) => values,
                (None, Some(found)) => &found.names,
                (Some(_), Some(found)) => {
                    let message = format!("the values of `{}` are given in the domain already", name.text);
                    return Err(Fault::at(found.of.span, message));
                }
                (None, None) => {
                    let message = format!("the instance gives no objects of type `{}`", name.text);
                    return Err(Fault::at(name.span, message));
                }
            };
            let number = self.types.len();
            for (place, object) in names.iter().enumerate() {
                if let Some((other, _)) = self.object_names.insert(object.text.clone(), (number, place)) {
                    let other = self.types.get(other).map_or(&name.text, |t| &t.name);
                    let message = format!("`{}` is an object of type `{other}` already", object.text);
                    return Err(Fault::at(object.span, message));
                }
            }
            if self.type_names.insert(name.text.clone(), number).is_some() {
                return Err(Fault::at(name.span, format!("a second type `{}`", name.text)));
            }
            let objects = names.iter().map(|object| object.text.clone()).collect();
            self.types.push(Type { name: name.text.clone(), objects, enumeration: values.is_some() });
        }
        objects.iter().try_for_each(|objects| self.type_of(&objects.of).map(|_| ()))
    }

    fn declare_fluents(&mut self, variables: &[VariableDeclaration]) -> Result<(), Fault> {
        let mut starts = HashMap::new();
        for declaration in variables {
            let name = &declaration.name;
            if is_reserved(&name.text) {
                return Err(Fault::at(name.span, format!("`{}` is a word of the language", name.text)));
            }
            if name.text.contains("__") {
                let message = "`__` stands between objects in ground names; expected a name without it";
                return Err(Fault::at(name.span, message));
            }
            if declaration.parameters.len() > MAX_PARAMETERS {
                let message = format!("`{}` has more than {MAX_PARAMETERS} parameters", name.text);
                return Err(Fault::at(name.span, message));
            }
            let parameters: Vec<usize> =
                declaration.parameters.iter().map(|t| self.type_of(t)).collect::<Result<_, _>>()?;
            let count = parameters.iter().try_fold(1usize, |n, t| n.checked_mul(self.types[*t].objects.len()));
            let count = count.filter(|count| *count <= MAX_GROUND);
            let Some(count) = count else {
                let message = format!("`{}` has more than {MAX_GROUND} groundings", name.text);
                return Err(Fault::at(name.span, message));
            };
            let range = match declaration.range.text.as_str() {
                "bool" => Range::Bool,
                "int" => Range::Int,
                "real" => Range::Real,
                _ => Range::Object(self.type_of(&declaration.range)?),
            };
            if declaration.kind == Kind::Action && declaration.default.is_none() {
                return Err(Fault::at(name.span, format!("the action `{}` needs a default", name.text)));
            }
            if self.fluent_names.insert(name.text.clone(), self.fluents.len()).is_some() {
                return Err(Fault::at(name.span, format!("a second pvariable `{}`", name.text)));
            }
            let default = declaration.default.as_ref().map(|default| self.value(default, range)).transpose()?;
            starts.insert(self.fluents.len(), default.unwrap_or(f64::NAN));
            self.fluents.push(Fluent {
                name: name.text.clone(),
                kind: declaration.kind,
                range,
                parameters,
                slot: 0,
                count,
                next: 0,
                span: name.span,
            });
        }
        self.lay_out(&starts)
    }

    /// Gives every fluent its place: state, next state, actions, intermediates, derived, observed, non-fluents.
    fn lay_out(&mut self, starts: &HashMap<usize, f64>) -> Result<(), Fault> {
        let total: usize = self.fluents.iter().map(|f| f.count * (1 + usize::from(f.kind == Kind::State))).sum();
        if total > MAX_GROUND {
            let message = format!("{total} ground pvariables; at most {MAX_GROUND} are held");
            return Err(Fault::general(message));
        }
        for fluent in &self.fluents {
            let longest = |of: &usize| self.types[*of].objects.iter().map(|name| name.len() + 2).max().unwrap_or(0);
            let name = fluent.name.len() + fluent.parameters.iter().map(longest).sum::<usize>();
            if fluent.count.saturating_mul(name) > MAX_NAMES {
                let message = format!("the ground names of `{}` would fill more than {MAX_NAMES} bytes", fluent.name);
                return Err(Fault::at(fluent.span, message));
            }
        }
        for kind in [Kind::State, Kind::Action, Kind::Interm, Kind::Derived, Kind::Observ, Kind::NonFluent] {
            for (number, fluent) in self.fluents.iter_mut().enumerate().filter(|(_, f)| f.kind == kind) {
                fluent.slot = self.values.len();
                let start = starts.get(&number).copied().unwrap_or(f64::NAN);
                self.values.resize(self.values.len() + fluent.count, start);
            }
            match kind {
                Kind::State => {
                    self.states = self.values.len();
                    self.fluents.iter_mut().for_each(|f| f.next = f.slot + self.states);
                    self.values.resize(2 * self.states, 0.0);
                }
                Kind::Action => self.actions = self.values.len() - 2 * self.states,
                _ => {}
            }
        }
        Ok(())
    }

    fn assign(&mut self, assignments: &[Assignment], kind: Kind) -> Result<(), Fault> {
        let mut seen: HashMap<usize, f64> = HashMap::new();
        for Assignment { name, arguments, value } in assignments {
            let fluent = self.fluent_named(&name.text).filter(|fluent| fluent.kind == kind);
            let Some(fluent) = fluent else {
                let known = self.fluents.iter().filter(|f| f.kind == kind).map(|f| f.name.as_str());
                let message = format!("no {} is called `{}`{}", kind.name(), name.text, suggest(&name.text, known));
                return Err(Fault::at(name.span, message));
            };
            if fluent.parameters.len() != arguments.len() {
                return Err(Fault::at(name.span, wrong_arity(&name.text, fluent.parameters.len(), arguments.len())));
            }
            let mut slot = 0;
            for (argument, of) in arguments.iter().zip(&fluent.parameters) {
                slot = slot * self.types[*of].objects.len() + self.object_of(argument, *of)?;
            }
            slot += fluent.slot;
            let value_at = value.span;
            let value = self.value(value, fluent.range)?;
            if seen.insert(slot, value).is_some_and(|before| before != value) {
                return Err(Fault::at(value_at, format!("a second, other value of `{}`", name.text)));
            }
            self.values[slot] = value;
        }
        Ok(())
    }

    /// A constant as a number of the range.
    fn value(&self, constant: &Constant, range: Range) -> Result<f64, Fault> {
        let wrong = |expected: &str| Err(Fault::at(constant.span, format!("expected {expected}")));
        match (&constant.value, range) {
            (ConstantValue::Bool(value), Range::Bool | Range::Int | Range::Real) => Ok(f64::from(*value)),
            (ConstantValue::Integer(value), Range::Int | Range::Real) => Ok(*value),
            (ConstantValue::Real(value), Range::Real) => Ok(*value),
            (ConstantValue::Name(name), Range::Object(of)) => {
                let name = Name { text: name.clone(), span: constant.span };
                Ok(self.object_of(&name, of)? as f64)
            }
            (_, Range::Bool) => wrong("`true` or `false`, for the range is bool"),
            (_, Range::Int) => wrong("a whole number, for the range is int"),
            (_, Range::Real) => wrong("a number, for the range is real"),
            (_, Range::Object(of)) => wrong(&format!("an object of type `{}`", self.types[of].name)),
        }
    }

    pub fn type_of(&self, name: &Name) -> Result<usize, Fault> {
        self.type_names.get(&name.text).copied().ok_or_else(|| {
            let known = self.types.iter().map(|t| t.name.as_str());
            Fault::at(name.span, format!("no type is called `{}`{}", name.text, suggest(&name.text, known)))
        })
    }

    /// The place of an object in a type.
    pub fn object_of(&self, name: &Name, of: usize) -> Result<usize, Fault> {
        match self.object_names.get(&name.text) {
            Some((found, place)) if *found == of => Ok(*place),
            Some((found, _)) => {
                let (found, wanted) = (&self.types[*found].name, &self.types[of].name);
                let message = format!("`{}` is of type `{found}`; expected type `{wanted}`", name.text);
                Err(Fault::at(name.span, message))
            }
            None => {
                let known = self.types[of].objects.iter().map(String::as_str);
                let hint = suggest(&name.text, known);
                let message = format!("no object of type `{}` is called `{}`{hint}", self.types[of].name, name.text);
                Err(Fault::at(name.span, message))
            }
        }
    }

    /// The type and the place of an object.
    pub fn object_named(&self, name: &str) -> Option<(usize, usize)> {
        self.object_names.get(name).copied()
    }

    pub fn fluent_number(&self, name: &str) -> Option<usize> {
        self.fluent_names.get(name).copied()
    }

    pub fn fluent_named(&self, name: &str) -> Option<&Fluent> {
        self.fluent_number(name).and_then(|number| self.fluents.get(number))
    }

    /// A range as messages call it.
    pub fn range_name(&self, range: Range) -> &str {
        match range {
            Range::Bool => "bool",
            Range::Int => "int",
            Range::Real => "real",
            Range::Object(of) => self.types.get(of).map_or("object", |t| &t.name),
        }
    }
}

pub(crate) fn wrong_arity(name: &str, expected: usize, given: usize) -> String {
    format!("`{name}` has {expected} parameter{}, {given} given", if expected == 1 { "" } else { "s" })
}

fn is_reserved(name: &str) -> bool {
    let words = ["if", "then", "else", "switch", "case", "default", "otherwise", "true", "false", "forall", "exists"];
    words.contains(&name) || crate::distributions::is_distribution(name)
}

/// `fluent___object__object`, as pyRDDLGym writes ground names.
pub(crate) fn ground_name(fluent: &Fluent, mut index: usize, types: &[Type]) -> String {
    let mut objects = Vec::new();
    for of in fluent.parameters.iter().rev() {
        let names = &types[*of].objects;
        objects.push(names.get(index % names.len().max(1)).map_or("", String::as_str));
        index /= names.len().max(1);
    }
    objects.reverse();
    match objects.is_empty() {
        true => fluent.name.clone(),
        false => format!("{}___{}", fluent.name, objects.join("__")),
    }
}
