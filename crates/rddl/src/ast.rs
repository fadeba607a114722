//! The syntax tree: blocks and expressions with their places in the text; names are not resolved yet.

use crate::source::Span;

/// A name as written, without `?`, `@` or `'`.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: String,
    pub span: Span,
}

/// All blocks of all files, at most one of each kind.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub domain: Option<Domain>,
    pub non_fluents: Option<NonFluents>,
    pub instance: Option<Instance>,
}

#[derive(Debug)]
pub(crate) struct Domain {
    pub name: Name,
    pub types: Vec<TypeDeclaration>,
    pub variables: Vec<VariableDeclaration>,
    pub cpfs: Vec<Cpf>,
    pub reward: Option<Expr>,
    pub preconditions: Vec<Expr>,
    pub invariants: Vec<Expr>,
    pub terminations: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct TypeDeclaration {
    pub name: Name,
    /// The values of an enumeration; `None` for `object`.
    pub values: Option<Vec<Name>>,
}

#[derive(Debug)]
pub(crate) struct VariableDeclaration {
    pub name: Name,
    pub parameters: Vec<Name>,
    pub kind: crate::Kind,
    pub range: Name,
    pub default: Option<Constant>,
}

#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub value: ConstantValue,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ConstantValue {
    Bool(bool),
    Integer(f64),
    Real(f64),
    /// A value of an enumeration or an object.
    Name(String),
}

#[derive(Debug)]
pub(crate) struct Cpf {
    pub name: Name,
    pub primed: bool,
    pub parameters: Vec<Name>,
    pub expr: Expr,
}

/// The objects of a type: `zone : {z1, z2};`
#[derive(Debug)]
pub(crate) struct Objects {
    pub of: Name,
    pub names: Vec<Name>,
}

/// `name(a, b) = value;`
#[derive(Debug)]
pub(crate) struct Assignment {
    pub name: Name,
    pub arguments: Vec<Name>,
    pub value: Constant,
}

#[derive(Debug, Default)]
pub(crate) struct NonFluents {
    pub objects: Vec<Objects>,
    pub values: Vec<Assignment>,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub name: Name,
    pub objects: Vec<Objects>,
    /// Non-fluents that the instance itself gives.
    pub non_fluents: Option<Vec<Assignment>>,
    pub init_state: Vec<Assignment>,
    /// `None` if it is not given, infinite for `pos-inf`.
    pub max_nondef_actions: Option<f64>,
    pub horizon: Option<(f64, Span)>,
    pub discount: Option<(f64, Span)>,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// The height of the tree, which is limited because trees are walked recursively.
    pub height: u32,
}

/// `?x : type`
#[derive(Debug)]
pub(crate) struct Binding {
    pub variable: Name,
    pub of: Name,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Bool(bool),
    Integer(f64),
    Real(f64),
    /// `?x`
    Variable(String),
    /// `@x`
    Literal(String),
    /// A fluent, or an object if it has neither arguments nor a prime.
    Fluent {
        name: Name,
        primed: bool,
        arguments: Vec<Expr>,
    },
    /// `f[a, b]`
    Function {
        name: Name,
        arguments: Vec<Expr>,
    },
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Aggregate(Aggregate, Vec<Binding>, Box<Expr>),
    If(Box<[Expr; 3]>),
    /// The subject and the cases; the label `None` is the default.
    Switch(Box<Expr>, Vec<(Option<Name>, Expr)>),
    /// `Normal(a, b)`
    Distribution {
        name: Name,
        arguments: Vec<Expr>,
    },
    /// `Discrete(type, @a : p, ...)`
    Discrete {
        normalised: bool,
        of: Name,
        cases: Vec<(Name, Expr)>,
    },
    /// `Discrete_{?x : type} [p]`
    DiscreteOver {
        normalised: bool,
        binding: Binding,
        body: Box<Expr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unary {
    Minus,
    Plus,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Binary {
    Equivalent,
    Implies,
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aggregate {
    Sum,
    Prod,
    Avg,
    Min,
    Max,
    Forall,
    Exists,
    Argmin,
    Argmax,
}
