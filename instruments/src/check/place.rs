//! Paths through memory: fields, elements, what a pointer points to, and text that lies there.

use super::build::{self, Space};
use super::value::{Place, Target, Text, Ty, Value, View};
use super::{Checker, HookScope};
use crate::Fault;
use crate::fault::nearest;
use crate::program::{BinaryOp, Expr, Half, Input, Span, Type, UnaryOp, UserRead, Width};
use crate::source::ast::{self, Named, Node};

/// Most bytes that memory is compared with.
const TEXT: usize = 31;
/// Most bytes of a thread's name.
const COMM: usize = 15;

impl Checker<'_> {
    pub(super) fn field(
        &mut self,
        of: &ast::ExprNode,
        name: &Named,
        arrow: bool,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let of = self.value(of, scope)?;
        let base = of.span();
        let (address, space, ty) = match (of, arrow) {
            (Value::Place(place), false) => match self.view(&place.ty) {
                View::Pointer(_) => {
                    return Err(Fault::new(
                        name.span,
                        format!("This is a pointer ({}).", self.written(&place.ty)),
                    )
                    .help(format!("Write `->{}`.", name.text)));
                }
                _ => (place.address, place.space, place.ty),
            },
            (Value::Place(place), true) if matches!(self.view(&place.ty), View::Fields(_)) => {
                return Err(Fault::new(
                    name.span,
                    format!("This is no pointer, but a {}.", self.written(&place.ty)),
                )
                .help(format!("Write `.{}`.", name.text)));
            }
            (value, _) => {
                let (address, to) = self.pointer(value)?;
                let Some(Target { ty, space }) = to else {
                    return Err(self.untyped(base));
                };
                if !arrow {
                    return Err(Fault::new(
                        name.span,
                        format!("This is a pointer to {}.", self.written(&ty)),
                    )
                    .help(format!("Write `->{}`.", name.text)));
                }
                (address, space, ty)
            }
        };
        let (View::Fields(id), Some(types)) = (self.view(&ty), self.context.types) else {
            return Err(Fault::new(
                base,
                format!("There are no fields in {}.", self.written(&ty)),
            )
            .help("Cast the pointer to what it points to: `((struct name *)pointer)->field`."));
        };
        let Some(field) = types.field(id, &name.text) else {
            let fault = Fault::new(
                name.span,
                format!("{} has no field {}.", self.written(&ty), name.text),
            );
            return Err(fault.like(&name.text, types.field_names(id)));
        };
        let ty = Ty::Known(field.of);
        let (byte, bits) = if field.bits == 0 {
            (u64::from(field.bit / 8), None)
        } else {
            let (byte, window) = window(field.bit, field.bits, self.size(&ty))
                .ok_or_else(|| Fault::new(name.span, "This bit field lies across nine bytes."))?;
            (byte, Some(window))
        };
        Ok(Value::Place(Place {
            address: build::further(address, byte, span),
            space,
            ty,
            bits,
            span,
        }))
    }

    /// Returns the reason why a number has no fields.
    fn untyped(&self, span: Span) -> Fault {
        let fault = Fault::new(span, "What this points to is not known.");
        if self.context.types.is_none() {
            let lacks = self.context.lacks_types("Fields need");
            let lacks = lacks.trim_end_matches('.');
            fault.help(format!("{lacks}; write `*(u64 *)(address + offset)`."))
        } else {
            fault.help("Cast it: `((struct name *)pointer)->field`.")
        }
    }

    pub(super) fn element(
        &mut self,
        of: &ast::ExprNode,
        index: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        if let (Node::Variable(name), true) = (&of.node, index.is_thread()) {
            self.of_thread(name, of.span)?;
            return self.variable(name, scope, span);
        }
        let of = self.value(of, scope)?;
        let index = self.value(index, scope)?;
        let index = self.number(index)?;
        let base = of.span();
        let (address, Target { ty, space }) = match of {
            Value::Place(place) if matches!(self.view(&place.ty), View::Array(..)) => {
                let View::Array(of, count) = self.view(&place.ty) else {
                    return Err(self.untyped(base));
                };
                // The last field of a structure may be an array whose length its type does not say.
                if let Some(at) = build::as_constant(&index)
                    && count > 0
                    && at >= u64::from(count)
                {
                    return Err(Fault::new(
                        index.span,
                        format!("The array has {count} elements, 0 to {}.", count - 1),
                    ));
                }
                let space = place.space;
                (place.address, Target { ty: of, space })
            }
            value => {
                let (address, to) = self.pointer(value)?;
                (address, to.ok_or_else(|| self.untyped(base))?)
            }
        };
        let Some(size) = self.size(&ty).filter(|&size| size > 0) else {
            return Err(Fault::new(
                base,
                format!("Elements of type {} have no size.", self.written(&ty)),
            )
            .help("Cast the pointer first: `((u64 *)pointer)[1]`."));
        };
        let size = build::constant(size, Type::U64, index.span);
        let at = index.span;
        let bytes = build::binary(BinaryOp::Multiply, index, size, Type::U64, at);
        let address = match build::as_constant(&bytes) {
            Some(bytes) => build::further(address, bytes, span),
            None => build::binary(BinaryOp::Add, address, bytes, Type::U64, span),
        };
        Ok(Value::Place(Place {
            address,
            space,
            ty,
            bits: None,
            span,
        }))
    }

    pub(super) fn pointed(
        &mut self,
        of: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let of = self.value(of, scope)?;
        let base = of.span();
        let (address, to) = self.pointer(of)?;
        let Target { ty, space } = to.ok_or_else(|| {
            Fault::new(base, "How much is to be read here is not known.")
                .help("Cast it: `*(u64 *)address`, or `u32`, `u16`, `u8`.")
        })?;
        Ok(Value::Place(Place {
            address,
            space,
            ty,
            bits: None,
            span,
        }))
    }

    pub(super) fn address(
        &mut self,
        of: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        match self.value(of, scope)? {
            Value::Place(Place { bits: Some(_), .. }) => {
                Err(Fault::new(span, "A bit field has no address."))
            }
            Value::Place(place) => Ok(Value::Number(
                Expr {
                    span,
                    ..place.address
                },
                Some(match place.space {
                    Space::Kernel => Ty::Pointer(Box::new(place.ty)),
                    Space::User => Ty::User(Box::new(place.ty)),
                }),
            )),
            other => Err(Fault::new(
                other.span(),
                "Only what lies in memory has an address.",
            )),
        }
    }

    /// `str(value)`: text in memory.
    pub(super) fn text(
        &mut self,
        of: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let of = self.value(of, scope)?;
        // Any number is an address, as for bpftrace.
        let text = |address, space| Text {
            address,
            space,
            room: None,
        };
        let text = match of {
            Value::Number(address, None) => text(address, self.space()),
            Value::Number(address, Some(Ty::User(to))) if *to == Ty::Void => {
                text(address, Space::User)
            }
            value => self.text_at(value).map_err(|fault| {
                let what = "This is neither text in memory nor a pointer to it.";
                let help = "Write `str((u8 *)address)`, or the member that points to text: `str(file->f_path.dentry->d_name.name)`.";
                Fault::new(fault.span, what).help(help)
            })?,
        };
        Ok(Value::Memory(text, span))
    }

    /// `uptr(value)`: an address of the running process.
    pub(super) fn of_process(
        &mut self,
        of: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let of = self.value(of, scope)?;
        let (address, to) = self.pointer(of)?;
        let to = to.map_or(Ty::Void, |target| target.ty);
        Ok(Value::Number(
            Expr { span, ..address },
            Some(Ty::User(Box::new(to))),
        ))
    }

    /// Returns the words of a key that are the first bytes of a text in memory, with zeroes after its end. The last
    /// byte of the second is 0 if that is all of the text, and else [`Key::CUT`](crate::program::Key::CUT).
    pub(super) fn text_words(&self, text: &Text, span: Span) -> [Expr; 2] {
        match text.space {
            Space::User if self.context.of_process => {
                loaded_words((Space::User, &text.address), text.room, span)
            }
            Space::Kernel => loaded_words((Space::Kernel, &text.address), text.room, span),
            Space::User => user_words(&text.address, text.room, span),
        }
    }

    /// `value == "text"`, 1 or 0.
    pub(super) fn compare_text(
        &mut self,
        value: Value,
        text: &str,
        text_span: Span,
        equal: bool,
        span: Span,
    ) -> Result<Expr, Fault> {
        let too_long = |most: usize| {
            Err(Fault::new(
                text_span,
                format!(
                    "The string has {} bytes; {most} is the most here.",
                    text.len()
                ),
            ))
        };
        let same = match value {
            Value::Comm(at) => {
                if text.len() > COMM {
                    return too_long(COMM);
                }
                let half = |half, from: usize| {
                    let part =
                        build::constant(little(text.as_bytes(), from, 8), Type::U64, text_span);
                    let name = self.of_running(Input::Comm(half), at);
                    build::binary(BinaryOp::Equal, name, part, Type::I64, span)
                };
                build::and(half(Half::First, 0), half(Half::Second, 8), span)
            }
            value => {
                let there = self.text_at(value)?;
                if text.len() > TEXT {
                    return too_long(TEXT);
                }
                let bytes = match there.room {
                    Some(room) if text.len() > room as usize => {
                        return Err(Fault::new(
                            text_span,
                            format!(
                                "The text there has {room} bytes at most: this is never equal."
                            ),
                        ));
                    }
                    Some(room) if text.len() == room as usize => text.len(),
                    _ => text.len() + 1,
                };
                self.compare_bytes(&there, text.as_bytes(), bytes, span)
            }
        };
        Ok(if equal {
            same
        } else {
            build::unary(UnaryOp::Not, same, span)
        })
    }

    /// Returns the text that a value is.
    fn text_at(&self, value: Value) -> Result<Text, Fault> {
        let span = value.span();
        let letter = |ty: &Ty| matches!(self.view(ty), View::Integer(Width::B1, _));
        let is_pointer = |ty: &Ty| matches!(self.view(ty), View::Pointer(_));
        let (room, points) = match &value {
            Value::Place(place) => match self.view(&place.ty) {
                View::Array(of, count) => (Some(count).filter(|_| letter(&of)), false),
                _ => (None, is_pointer(&place.ty)),
            },
            Value::Number(_, Some(ty)) => (None, is_pointer(ty)),
            _ => (None, false),
        };
        let resolved = match value {
            Value::Memory(text, _) => Some(text),
            Value::Place(place) if room.is_some() => Some(Text {
                address: place.address,
                space: place.space,
                room,
            }),
            value if points => {
                let (address, to) = self.pointer(value)?;
                to.filter(|to| letter(&to.ty)).map(|to| Text {
                    address,
                    space: to.space,
                    room,
                })
            }
            _ => None,
        };
        resolved.ok_or_else(|| {
            Fault::new(span, "This is not text that a string could be compared with.")
                .help("Compare `comm`, an array of characters, or a pointer: `(u8 *)address == \"text\"`.")
        })
    }

    fn compare_bytes(&self, there: &Text, text: &[u8], bytes: usize, span: Span) -> Expr {
        let mut same: Option<Expr> = None;
        let mut from = 0;
        while from < bytes {
            let width = [Width::B8, Width::B4, Width::B2]
                .into_iter()
                .find(|width| width.bytes() as usize <= bytes - from)
                .unwrap_or(Width::B1);
            let at = build::further(there.address.clone(), from as u64, span);
            let read = Expr {
                ty: Type::U64,
                ..build::load((there.space, at), width, false, span)
            };
            let part = little(text, from, width.bytes() as usize);
            let part = build::constant(part, Type::U64, span);
            let equal = build::binary(BinaryOp::Equal, read, part, Type::I64, span);
            same = Some(match same {
                Some(same) => build::and(same, equal, span),
                None => equal,
            });
            from += width.bytes() as usize;
        }
        same.unwrap_or_else(|| build::constant(1, Type::I64, span))
    }

    /// The enumeration of that name, or the one that has the name among its values.
    pub(super) fn named_enumeration(&self, name: &str, span: Span) -> Result<Ty, Fault> {
        let Some(types) = self.context.types else {
            let what = self.context.lacks_types(&format!("enum {name} needs"));
            return Err(Fault::new(span, what).help("Leave the cast out."));
        };
        types.enumeration(name).map(Ty::Known).ok_or_else(|| {
            let fault = Fault::new(
                span,
                format!("{} has no enum {name}.", self.context.owner()),
            );
            match nearest(name, types.enumeration_names()) {
                Some(near) => fault.help(format!("Did you mean enum {near}?")),
                None => fault
                    .help("A nameless one is named by one of its values: `(enum TCP_CLOSE)state`."),
            }
        })
    }

    /// The structure or union of that name.
    pub(super) fn named_type(&self, name: &str, union: bool, span: Span) -> Result<Ty, Fault> {
        let kind = if union { "union" } else { "struct" };
        let Some(types) = self.context.types else {
            let what = self.context.lacks_types(&format!("{kind} {name} needs"));
            return Err(Fault::new(span, what).help("Write `*(u64 *)(address + offset)`."));
        };
        let found = if union {
            types.union(name)
        } else {
            types.structure(name)
        };
        found.map(Ty::Known).ok_or_else(|| {
            let fault = Fault::new(
                span,
                format!("{} has no {kind} {name}.", self.context.owner()),
            );
            match nearest(name, types.struct_names()) {
                Some(near) => fault.help(format!("Did you mean struct {near}?")),
                None => fault,
            }
        })
    }
}

/// Returns the words of a text, by two loads.
fn loaded_words((space, address): (Space, &Expr), room: Option<u32>, span: Span) -> [Expr; 2] {
    let constant = |bits| build::constant(bits, Type::U64, span);
    let op = |op, left, right| build::binary(op, left, right, Type::U64, span);
    let load = |from: u32| {
        let at = build::further(address.clone(), u64::from(from), span);
        let all = Expr {
            ty: Type::U64,
            ..build::load((space, at), Width::B8, false, span)
        };
        match room.map(|room| room.saturating_sub(from)) {
            Some(0) => constant(0),
            Some(room @ 1..8) => {
                let inside = (1 << (8 * room)) - 1;
                op(BinaryOp::And, all, constant(inside))
            }
            _ => all,
        }
    };
    // The highest bit of each byte that is 0, and perhaps of bytes after it (Warren, Hacker's Delight, 6-1).
    let ends = |word: &Expr| {
        let less = op(
            BinaryOp::Subtract,
            word.clone(),
            constant(0x0101_0101_0101_0101),
        );
        let inverse = build::unary(UnaryOp::Invert, word.clone(), span);
        let high = constant(0x8080_8080_8080_8080);
        op(BinaryOp::And, op(BinaryOp::And, less, inverse), high)
    };
    // All bits below the lowest of them; all, if there is none.
    let before = |ends: Expr| {
        let negative = build::unary(UnaryOp::Negate, ends.clone(), span);
        let lowest = op(BinaryOp::And, ends, negative);
        op(BinaryOp::Subtract, lowest, constant(1))
    };
    // All bits if there is no such byte.
    let none = |ends: Expr| {
        let none = build::binary(BinaryOp::Equal, ends, constant(0), Type::U64, span);
        build::unary(UnaryOp::Negate, none, span)
    };
    let (first, second) = (load(0), load(8));
    let (ended, cut) = (ends(&first), ends(&second));
    let rest = op(BinaryOp::And, second, before(cut.clone()));
    let cut = op(BinaryOp::ShiftLeft, none(cut), constant(56));
    let rest = op(BinaryOp::Or, rest, cut);
    let rest = op(BinaryOp::And, rest, none(ended.clone()));
    [op(BinaryOp::And, first, before(ended)), rest]
}

/// Returns the words of a text in a process's memory, which the target's code reads as far as the text goes.
fn user_words(address: &Expr, room: Option<u32>, span: Span) -> [Expr; 2] {
    let half = |half, from: u32| {
        let all = build::user(UserRead::Text(half), address.clone(), span);
        let mask = |bits| {
            let inside = build::constant(bits, Type::U64, span);
            build::binary(BinaryOp::And, all.clone(), inside, Type::U64, span)
        };
        match room.map(|room| room.saturating_sub(from)) {
            Some(0) => build::constant(0, Type::U64, span),
            Some(room @ 1..8) => mask((1 << (8 * room)) - 1),
            _ => all,
        }
    };
    [half(Half::First, 0), half(Half::Second, 8)]
}

/// Returns bytes of a text as a little-endian number, with zeroes after its end.
fn little(text: &[u8], from: usize, count: usize) -> u64 {
    (0..count)
        .filter_map(|index| Some((index, *text.get(from + index)?)))
        .fold(0, |word, (index, byte)| {
            word | u64::from(byte) << (8 * index)
        })
}

/// The byte from which a bit field is loaded, and its first bit, its bits and the width there.
fn window(bit: u32, bits: u32, size: Option<u64>) -> Option<(u64, (u32, u32, Width))> {
    let fits = |byte: u32, width: Width| {
        let first = bit - byte * 8;
        (first + bits <= width.bytes() * 8).then_some((u64::from(byte), (first, bits, width)))
    };
    // As the compiler reads it: aligned, as wide as its type.
    let aligned = size.and_then(Width::of).and_then(|width| {
        let byte = bit / (8 * width.bytes()) * width.bytes();
        fits(byte, width)
    });
    aligned.or_else(|| {
        [Width::B1, Width::B2, Width::B4, Width::B8]
            .into_iter()
            .find_map(|width| fits(bit / 8, width))
    })
}
