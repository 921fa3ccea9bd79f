//! Values of expressions before they become numbers: a number that may point to a known type, a place in memory,
//! or text.

use super::Checker;
use super::build::{self, Space};
use crate::Fault;
use crate::program::{Expr, Span, ValueNames, Width};
use crate::types::{Id, Shape};

/// A type: of the source's own words, or of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    Void,
    Integer(Width, bool),
    Pointer(Box<Self>),
    /// A pointer to memory of the running process.
    User(Box<Self>),
    Known(Id),
}

/// The target of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) ty: Ty,
    pub(super) space: Space,
}

/// A text in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) address: Expr,
    pub(super) space: Space,
    /// Size of its array, if that is known.
    pub(super) room: Option<u32>,
}

/// The use of a type in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    Void,
    Integer(Width, bool),
    Pointer(Ty),
    /// A structure or union with its fields.
    Fields(Id),
    Array(Ty, u32),
    /// A structure of which only the name is known, a function, a number of sixteen bytes.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number that is there, which may point to something.
    Number(Expr, Option<Ty>),
    /// Something in memory.
    Place(Place),
    /// The name of the thread.
    Comm(Span),
    /// A string of the source.
    Text(String, Span),
    /// Text in memory.
    Memory(Text, Span),
    /// An address that a line shows as a symbol.
    Symbol(Expr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: Expr,
    pub(super) space: Space,
    pub(super) ty: Ty,
    /// First bit and number of bits of a bit field, in what is loaded with this width.
    pub(super) bits: Option<(u32, u32, Width)>,
    pub(super) span: Span,
}

impl Value {
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Number(expr, _) | Self::Symbol(expr) => expr.span,
            Self::Place(place) => place.span,
            Self::Comm(span) | Self::Text(_, span) | Self::Memory(_, span) => *span,
        }
    }
}

impl Checker<'_> {
    /// The memory that pointers are to, unless their type says another.
    pub(super) fn space(&self) -> Space {
        match self.context.of_process {
            true => Space::User,
            false => Space::Kernel,
        }
    }

    pub(super) fn view(&self, ty: &Ty) -> View {
        let id = match ty {
            Ty::Void => return View::Void,
            Ty::Integer(width, signed) => return View::Integer(*width, *signed),
            Ty::Pointer(of) | Ty::User(of) => return View::Pointer((**of).clone()),
            Ty::Known(id) => *id,
        };
        let Some(types) = self.context.types else {
            return View::Other;
        };
        let (id, shape) = types.shape(id);
        match shape {
            Shape::Void => View::Void,
            Shape::Integer { bytes, signed, .. } | Shape::Enum { bytes, signed } => {
                Width::of(u64::from(bytes))
                    .map_or(View::Other, |width| View::Integer(width, signed))
            }
            Shape::Pointer(of) => View::Pointer(Ty::Known(of)),
            Shape::Array { of, count } => View::Array(Ty::Known(of), count),
            Shape::Struct { .. } | Shape::Union { .. } => View::Fields(id),
            _ => View::Other,
        }
    }

    /// Returns the enumeration that a type is.
    fn enumeration(&self, ty: &Ty) -> Option<Id> {
        let Ty::Known(id) = ty else { return None };
        let (id, shape) = self.context.types?.shape(*id);
        matches!(shape, Shape::Enum { .. }).then_some(id)
    }

    /// Returns the names of the values of a number's enumeration; none for a number of another type.
    pub(super) fn value_names(&self, value: &Value) -> ValueNames {
        let ty = match value {
            Value::Number(_, ty) => ty.as_ref(),
            Value::Place(place) if place.bits.is_none() => Some(&place.ty),
            _ => None,
        };
        let known = ty.and_then(|ty| self.enumeration(ty));
        match (known, self.context.types) {
            (Some(id), Some(types)) => ValueNames::new(types.constants(id)),
            _ => ValueNames::default(),
        }
    }

    pub(super) fn size(&self, ty: &Ty) -> Option<u64> {
        match ty {
            Ty::Void => None,
            Ty::Integer(width, _) => Some(u64::from(width.bytes())),
            Ty::Pointer(_) | Ty::User(_) => Some(8),
            Ty::Known(id) => self.context.types?.size(*id),
        }
    }

    /// The type as C writes it, for messages.
    pub(super) fn written(&self, ty: &Ty) -> String {
        match ty {
            Ty::Void => "void".to_owned(),
            Ty::Integer(width, signed) => {
                format!("{}{}", if *signed { "s" } else { "u" }, width.bytes() * 8)
            }
            Ty::Pointer(of) | Ty::User(of) => {
                let of = self.written(of);
                format!("{of}{}*", if of.ends_with('*') { "" } else { " " })
            }
            Ty::Known(id) => self
                .context
                .types
                .map_or_else(String::new, |types| types.written(*id)),
        }
    }

    /// A value of a type that is in a register: the bits above a narrow type mean nothing.
    pub(super) fn arrived(&self, expr: Expr, ty: Ty) -> Value {
        let span = expr.span;
        match self.view(&ty) {
            View::Integer(width, signed) => {
                // The names of an enumeration are shown.
                let named = Some(ty).filter(|ty| self.enumeration(ty).is_some());
                Value::Number(build::extend(expr, width, signed, span), named)
            }
            View::Pointer(_) => Value::Number(expr, Some(ty)),
            _ => Value::Number(expr, None),
        }
    }

    /// The value as a number, and what it points to, if it points to something.
    pub(super) fn pointer(&self, value: Value) -> Result<(Expr, Option<Target>), Fault> {
        match value {
            Value::Number(expr, ty) => {
                let to = ty.and_then(|ty| match (self.view(&ty), ty) {
                    (View::Pointer(to), Ty::User(_)) => Some((to, Space::User)),
                    (View::Pointer(to), _) => Some((to, self.space())),
                    _ => None,
                });
                Ok((expr, to.map(|(ty, space)| Target { ty, space })))
            }
            Value::Symbol(expr) => Ok((expr, None)),
            Value::Place(place) => self.loaded(place),
            Value::Comm(span) => Err(Fault::new(span, "The name of a thread is not a number.")
                .help(
                    "It is a key, `@names[comm, tid] = count()`, or compared: `comm == \"sh\"`.",
                )),
            Value::Text(_, span) => Err(Fault::new(span, "A string is not a number.")
                .help("Strings are compared: `comm == \"sh\"`.")),
            Value::Memory(_, span) => Err(Fault::new(span, "Text is not a number.").help(
                "It is a key, `@names[str(pointer)] = count()`, or compared: `str(pointer) == \"text\"`.",
            )),
        }
    }

    /// The value as a number.
    pub(super) fn number(&self, value: Value) -> Result<Expr, Fault> {
        self.pointer(value).map(|(expr, _)| expr)
    }

    fn loaded(&self, place: Place) -> Result<(Expr, Option<Target>), Fault> {
        let span = place.span;
        let refuse = |what: &str, help: &str| {
            Err(Fault::new(
                span,
                format!(
                    "This is {what} ({}), not a number.",
                    self.written(&place.ty)
                ),
            )
            .help(help))
        };
        let at = |address| (place.space, address);
        if let (Some((first, bits, width)), View::Integer(_, signed)) =
            (place.bits, self.view(&place.ty))
        {
            return Ok((
                build::bit_field(at(place.address), first, bits, width, signed, span),
                None,
            ));
        }
        match self.view(&place.ty) {
            View::Integer(width, signed) => {
                Ok((build::load(at(place.address), width, signed, span), None))
            }
            // A pointer in a process's memory is one of the process.
            View::Pointer(ty) => {
                let space = place.space;
                let pointer = build::load(at(place.address), Width::B8, false, span);
                Ok((pointer, Some(Target { ty, space })))
            }
            View::Fields(_) => refuse("a structure", "Write `.field` after it, or `&` before it."),
            View::Array(of, _) if matches!(self.view(&of), View::Integer(Width::B1, _)) => refuse(
                "an array",
                "Write `str(…)` around it for its text, `[0]` after it, or `&` before it.",
            ),
            View::Array(..) => refuse("an array", "Write `[0]` after it, or `&` before it."),
            View::Void => refuse("nothing", "Cast the pointer first: `*(u64 *)pointer`."),
            View::Other => refuse(
                "something whose bytes are not known",
                "Cast its address to what it is: `*(u64 *)&place`.",
            ),
        }
    }
}
