//! The syntax tree, before names are resolved.

use gilk_samples::Meaning;

use crate::program::{Hook, Operator, Scope, Span, UnaryOp, Width};

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// The first statement: `instrument NAME "SUMMARY" unit "UNIT" MEANING once;`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) unit: String,
    pub(crate) meaning: Option<Meaning>,
    pub(crate) once: bool,
}

/// `shared thread s64 @a, @b;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) shared: bool,
    pub(crate) scope: Scope,
    pub(crate) signed: bool,
    pub(crate) names: Vec<Named>,
}

/// `hook:function / predicate / { statements }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeNode {
    pub(crate) hook: Hook,
    pub(crate) function: Option<Named>,
    pub(crate) predicate: Option<ExprNode>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// `sample(value)`
    Sample(ExprNode),
    /// `printf("format", arguments)`
    Printf(ExprNode, Vec<ExprNode>),
    /// `@name = value`, which may be an aggregate's `hist(value)`.
    Assign(Named, ExprNode),
    /// `@name[tid] = value`, of a thread's variable.
    AssignOfThread(Named, ExprNode),
    /// `@name += value`, or the other way with `true`.
    Add(Named, ExprNode, bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExprNode {
    pub(crate) node: Node,
    pub(crate) span: Span,
}

impl Statement {
    /// Returns the values that the statement computes.
    pub(crate) fn values(&self) -> &[ExprNode] {
        match &self.kind {
            StatementKind::Printf(_, arguments) => arguments,
            StatementKind::Sample(value)
            | StatementKind::Assign(_, value)
            | StatementKind::AssignOfThread(_, value)
            | StatementKind::Add(_, value, _) => std::slice::from_ref(value),
        }
    }

    /// Returns whether it delivers text.
    pub(crate) fn is_line(&self) -> bool {
        match &self.kind {
            StatementKind::Printf(..) => true,
            StatementKind::Sample(value) => match &value.node {
                Node::Name(name) => name == "comm",
                Node::Call(name, _) => name.text == "str",
                _ => false,
            },
            _ => false,
        }
    }
}

impl ExprNode {
    /// Returns whether it is the word for the number of the thread.
    pub(crate) fn is_thread(&self) -> bool {
        matches!(&self.node, Node::Name(name) if name == "tid")
    }

    /// Returns whether `holds` is true of the expression or of one inside it.
    pub(crate) fn any<'s>(&'s self, holds: &mut impl FnMut(&'s Node) -> bool) -> bool {
        if holds(&self.node) {
            return true;
        }
        match &self.node {
            Node::Number(_) | Node::Text(_) | Node::Name(_) | Node::Variable(_) => false,
            Node::Call(_, arguments) => arguments.iter().any(|argument| argument.any(holds)),
            Node::Keyed(keys, _, arguments) => {
                let mut parts = keys.iter().chain(arguments);
                parts.any(|part| part.any(holds))
            }
            Node::Field(of, ..)
            | Node::Unary(_, of)
            | Node::Pointed(of)
            | Node::Address(of)
            | Node::Cast(_, of)
            | Node::Group(of) => of.any(holds),
            Node::Index(left, right) | Node::Binary(_, left, right) => {
                left.any(holds) || right.any(holds)
            }
            Node::Select(condition, yes, no) => {
                condition.any(holds) || yes.any(holds) || no.any(holds)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Number(u64),
    Text(String),
    Name(String),
    Variable(String),
    Call(Named, Vec<ExprNode>),
    /// `of.name`, or `of->name` with `true`.
    Field(Box<ExprNode>, Named, bool),
    Index(Box<ExprNode>, Box<ExprNode>),
    Unary(UnaryOp, Box<ExprNode>),
    /// `*p`
    Pointed(Box<ExprNode>),
    /// `&place`
    Address(Box<ExprNode>),
    Binary(&'static Operator, Box<ExprNode>, Box<ExprNode>),
    Select(Box<ExprNode>, Box<ExprNode>, Box<ExprNode>),
    Cast(TypeName, Box<ExprNode>),
    /// `(inside)`
    Group(Box<ExprNode>),
    /// An assignment to `@name[keys]`: the keys, and the aggregate of the values.
    Keyed(Vec<ExprNode>, Named, Vec<ExprNode>),
}

/// `struct file *`, `s32`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeName {
    pub(crate) base: Base,
    pub(crate) pointers: u8,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Void,
    Integer(Width, bool),
    Struct(String),
    Union(String),
    Enum(String),
}
