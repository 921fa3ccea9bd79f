//! The image of several objects of a process, from the image of each.

use super::{Function, FunctionId, Image};
use crate::ids::{Id, Ids};
use crate::{Error, Result};

impl Image {
    /// Adds the functions of another object of the same process. Its bytes overlap none of this image's. Functions
    /// are numbered again, by address.
    ///
    /// # Errors
    /// [`Error::Elf`] if all names together take up more than 4 GiB.
    pub fn join(&mut self, other: Self) -> Result<()> {
        let joined = self.symbols.join(&other.symbols);
        joined.ok_or_else(|| Error::Elf {
            reason: "its names and those of other objects take up more than 4 GiB".to_owned(),
        })?;
        let own = std::mem::take(&mut self.functions);
        let mut functions: Vec<(bool, Function)> = own
            .into_iter()
            .map(|function| (false, function))
            .chain(other.functions.into_iter().map(|function| (true, function)))
            .collect();
        functions.sort_by_key(|(_, function)| function.span);
        let mut renumbered = Ids::<FunctionId, FunctionId>::new();
        let mut others = Ids::<FunctionId, FunctionId>::new();
        for (number, (is_other, function)) in functions.iter_mut().enumerate() {
            let ids = if *is_other {
                &mut others
            } else {
                &mut renumbered
            };
            // Those of each object stay in order.
            let before = ids.push(FunctionId::new(number));
            debug_assert_eq!(
                before, function.id,
                "the functions of an object are in order"
            );
            function.id = FunctionId::new(number);
        }
        let numbered = |is_other: bool, id: FunctionId| match is_other {
            true => others[id],
            false => renumbered[id],
        };
        let refused = std::mem::take(&mut self.refused);
        let refused = refused.into_iter().map(|(id, why)| (renumbered[id], why));
        let further = other.refused.into_iter();
        self.refused = refused
            .chain(further.map(|(id, why)| (others[id], why)))
            .collect();
        self.names.join(other.names, numbered);
        self.functions = functions
            .into_iter()
            .map(|(_, function)| function)
            .collect();
        self.texts.add(other.texts.all().cloned());
        self.memory.join(other.memory);
        self.known.join(other.known);
        self.fixed.join(other.fixed);
        self.entries.join(other.entries);
        self.probes.extend(other.probes);
        self.probes.sort_unstable();
        self.read_only.extend(other.read_only);
        self.read_only.sort_unstable();
        self.tables.extend(other.tables);
        self.live &= other.live;
        self.is_known &= other.is_known;
        Ok(())
    }
}
