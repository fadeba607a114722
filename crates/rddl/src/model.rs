//! The resolved declarations: types with their objects, and pvariables with their slots in the array of values and
//! their initial values. [`crate::check`] checks expressions against them.

use std::collections::HashMap;

use crate::ast::{Assignment, Constant, ConstantValue, Files, Name, Objects, TypeDeclaration, VariableDeclaration};
use crate::source::{Fault, Span, suggest};

/// The maximum number of ground pvariables of all kinds together.
const MAX_GROUND: usize = 4_000_000;
/// The maximum size in bytes of all ground names of a pvariable.
const MAX_NAMES: usize = 256 << 20;

/// The maximum number of parameters of a pvariable.
const MAX_PARAMETERS: usize = 32;

/// The role of a pvariable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A constant of the instance.
    NonFluent,
    /// Part of the state, with an initial value and one after each step.
    State,
    /// Chosen by the agent at each step.
    Action,
    /// Computed in a step from the state and the action.
    Interm,
    /// Computed in a step from the state only.
    Derived,
    /// Observed after a step; part of a partially observable domain.
    Observ,
}

impl Kind {
    /// All kinds, in the order of declaration.
    pub const ALL: [Kind; 6] = [Kind::NonFluent, Kind::State, Kind::Action, Kind::Interm, Kind::Derived, Kind::Observ];

    /// The name in RDDL.
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

/// The values that a pvariable or an expression can take. All of them are stored as `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// 0 or 1.
    Bool,
    /// An integer.
    Int,
    /// A real number.
    Real,
    /// The index of an object within the type with this number (see [`crate::Program::objects`]).
    Object(usize),
}

/// A type and its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// The declared name.
    pub name: String,
    /// The names of the objects, without `@`, in order.
    pub objects: Vec<String>,
    /// Whether the domain lists the objects, so that its expressions may name them.
    pub enumeration: bool,
}

/// A pvariable with all its groundings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluent {
    /// The declared name, without arguments.
    pub name: String,
    /// The role of the pvariable.
    pub kind: Kind,
    /// The values that it can take.
    pub range: Range,
    /// The types of the parameters, as indices into [`crate::Program::types`].
    pub parameters: Vec<usize>,
    /// The index of the first grounding in the array of values; the others follow in row-major order.
    pub slot: usize,
    /// The number of groundings.
    pub count: usize,
    /// The slot of the next state, for a state-fluent.
    pub(crate) next: usize,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub types: Vec<Type>,
    pub fluents: Vec<Fluent>,
    /// The values before the first step: state, next state, actions, other fluents, non-fluents.
    pub values: Vec<f64>,
    /// How many of the values are states, and how many are actions.
    pub states: usize,
    pub actions: usize,
    type_names: HashMap<String, usize>,
    fluent_names: HashMap<String, usize>,
    object_names: HashMap<String, (usize, usize)>,
}

impl Model {
    pub fn new(files: &Files) -> Result<Model, Fault> {
        let Some(domain) = &files.domain else {
            return Err(Fault::general("the texts have no `domain` block"));
        };
        let Some(instance) = &files.instance else {
            return Err(Fault::general("the texts have no `instance` block"));
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
        // As in pyRDDLGym, an instance that gives non-fluents itself replaces the non-fluents block.
        let block = files.non_fluents.as_ref();
        let own = instance.non_fluents.is_some() || block.is_none();
        let objects = if own && !instance.objects.is_empty() {
            &instance.objects[..]
        } else {
            block.map_or(&instance.objects[..], |block| &block.objects)
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
                let message = format!("`{ground}` has no value; expected a default here or a value in the instance");
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
                let message = format!("the objects of `{}` are given twice", objects.of.text);
                return Err(Fault::at(objects.of.span, message));
            }
        }
        for TypeDeclaration { name, values } in types {
            if ["bool", "int", "real", "object"].contains(&name.text.as_str()) {
                return Err(Fault::at(name.span, format!("`{}` is a built-in type", name.text)));
            }
            let names = match (values, given.get(name.text.as_str())) {
                (Some(values), None) => values,
                (None, Some(found)) => &found.names,
                (Some(_), Some(found)) => {
                    let message = format!("the values of `{}` are already given in the domain", name.text);
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
                    let message = format!("`{}` is already an object of type `{other}`", object.text);
                    return Err(Fault::at(object.span, message));
                }
            }
            if self.type_names.insert(name.text.clone(), number).is_some() {
                return Err(Fault::at(name.span, format!("the type `{}` is declared twice", name.text)));
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
                return Err(Fault::at(name.span, format!("`{}` is a reserved word", name.text)));
            }
            if name.text.contains("__") {
                let message = "`__` separates objects in ground names; expected a name without it";
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
                return Err(Fault::at(name.span, format!("the pvariable `{}` is declared twice", name.text)));
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

    /// Assigns slots to all fluents: state, next state, actions, intermediate, derived, observed, non-fluents.
    fn lay_out(&mut self, starts: &HashMap<usize, f64>) -> Result<(), Fault> {
        let total: usize = self.fluents.iter().map(|f| f.count * (1 + usize::from(f.kind == Kind::State))).sum();
        if total > MAX_GROUND {
            let message = format!("{total} ground pvariables; at most {MAX_GROUND} are supported");
            return Err(Fault::general(message));
        }
        for fluent in &self.fluents {
            let longest = |of: &usize| self.types[*of].objects.iter().map(|name| name.len() + 2).max().unwrap_or(0);
            let name = fluent.name.len() + fluent.parameters.iter().map(longest).sum::<usize>();
            if fluent.count.saturating_mul(name) > MAX_NAMES {
                let message = format!("the ground names of `{}` would take more than {MAX_NAMES} bytes", fluent.name);
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
                return Err(Fault::at(value_at, format!("`{}` already has a different value", name.text)));
            }
            self.values[slot] = value;
        }
        Ok(())
    }

    /// Converts a constant to a number of the range.
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
            (_, Range::Bool) => wrong("`true` or `false`, because the range is bool"),
            (_, Range::Int) => wrong("a whole number, because the range is int"),
            (_, Range::Real) => wrong("a number, because the range is real"),
            (_, Range::Object(of)) => wrong(&format!("an object of type `{}`", self.types[of].name)),
        }
    }

    pub fn type_of(&self, name: &Name) -> Result<usize, Fault> {
        self.type_names.get(&name.text).copied().ok_or_else(|| {
            let known = self.types.iter().map(|t| t.name.as_str());
            Fault::at(name.span, format!("no type is called `{}`{}", name.text, suggest(&name.text, known)))
        })
    }

    /// The index of an object within a type.
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

    /// The type of an object and its index within the type.
    pub fn object_named(&self, name: &str) -> Option<(usize, usize)> {
        self.object_names.get(name).copied()
    }

    pub fn fluent_number(&self, name: &str) -> Option<usize> {
        self.fluent_names.get(name).copied()
    }

    pub fn fluent_named(&self, name: &str) -> Option<&Fluent> {
        self.fluent_number(name).and_then(|number| self.fluents.get(number))
    }

    /// The name of a range in messages.
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
    if objects.is_empty() { fluent.name.clone() } else { format!("{}___{}", fluent.name, objects.join("__")) }
}
