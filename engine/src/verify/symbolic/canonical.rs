//! A canonical form of values, comparable across proofs.

use super::atom::{Atom, SymValue};
use super::value::SymValues;

impl SymValues {
    /// Returns the canonical form of a value of constants, the pointer to the running task and the
    /// stack pointer alone; `None` for other values, and for large ones.
    pub(crate) fn of_task_alone(&self, value: SymValue) -> Option<String> {
        let mut words = String::new();
        self.describe(value, 8, &mut words).then_some(words)
    }

    fn describe(&self, value: SymValue, depth: u32, words: &mut String) -> bool {
        let Some(sum) = self.sum(value).filter(|_| depth > 0 && words.len() < 4096) else {
            return false;
        };
        words.push_str(&format!("{:#x}", sum.constant));
        let mut terms: Vec<String> = Vec::new();
        for term in sum.terms {
            let mut inner = format!(
                "+{:#x}*[{}..{}]",
                term.factor,
                term.lo,
                term.lo.wrapping_add(term.len)
            );
            let atom = match &self.atoms[term.atom] {
                Atom::Task => {
                    inner.push_str("task");
                    true
                }
                Atom::Stack => {
                    inner.push_str("stack");
                    true
                }
                Atom::Whole(part) => {
                    inner.push('(');
                    let atom = self.describe(*part, depth - 1, &mut inner);
                    inner.push(')');
                    atom
                }
                Atom::Xor(parts) => {
                    let mut all: Vec<String> = Vec::new();
                    for part in parts {
                        let mut one = String::new();
                        if !self.describe(*part, depth - 1, &mut one) {
                            return false;
                        }
                        all.push(one);
                    }
                    all.sort();
                    inner.push_str(&format!("({})", all.join("^")));
                    true
                }
                _ => false,
            };
            if !atom {
                return false;
            }
            terms.push(inner);
        }
        terms.sort();
        words.push_str(&terms.concat());
        true
    }
}
